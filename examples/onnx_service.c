/* A web service that runs an ONNX file with one input of f32. It loads the file once. A POST has
 * the input as JSON, such as [[0.5, 1], [2, 3]]. The answer has each output's elements in row-major
 * order, {"NAME": [0.1, ...], ...}, or {"error": "..."}. The service listens on the loopback
 * interface only, reads at most 4 MiB of a request, and writes no files.
 *
 *     cc onnx_service.c $(pkg-config --cflags --libs weft-formats libmicrohttpd libcjson) -o onnx_service
 *     ./onnx_service FILE.onnx
 * Prints the address, and ends at SIGINT or SIGTERM. One thread answers all requests, one after
 * another, so they can share a runner. */
#define _POSIX_C_SOURCE 200809L
#include <weft/onnx.h>
#include <weft/weft.h>

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUEST = 1 << 22 };

typedef struct request {
    size_t bytes; /* MAX_REQUEST + 1: too long */
    char text[MAX_REQUEST];
} request;

typedef struct service {
    const weft_onnx_value *input, *outputs;
    weft_forward *runner;
    float *data; /* of the input */
    size_t size; /* in elements */
} service;

/* Appends the numbers of nested arrays to the input; false if something else is among them, or if
 * they are more than the input has. */
static bool read_numbers(const service *s, const cJSON *json, size_t *n)
{
    if (cJSON_IsNumber(json))
        return *n < s->size && (s->data[(*n)++] = (float)json->valuedouble, true);
    if (!cJSON_IsArray(json)) return false;
    for (json = json->child; json; json = json->next)
        if (!read_numbers(s, json, n)) return false;
    return true;
}

/* Adds the outputs, or an error, to the reply. Returns the status of HTTP. */
static unsigned answer(const service *s, const request *r, cJSON *reply)
{
    const weft_build_options options = WEFT_DEFAULTS(weft_build_options);
    const void *data = s->data;
    weft_error error = WEFT_NO_ERROR;
    weft_tensor t;
    size_t n = 0;
    cJSON *json = cJSON_ParseWithLength(r->text, r->bytes > MAX_REQUEST ? 0 : r->bytes);
    const bool complete = read_numbers(s, json, &n) && n == s->size;
    cJSON_Delete(json);
    if (complete && weft_forward_run(s->runner, &options, &data, &error) == WEFT_OK) {
        for (size_t i = 0; weft_forward_output(s->runner, i, &t); i++) {
            cJSON *values = cJSON_AddArrayToObject(reply, s->outputs[i].name);
            for (int64_t k = 0; k < weft_shape_numel(t.shape); k++)
                cJSON_AddItemToArray(values, cJSON_CreateNumber(weft_tensor_element(&t, k)));
        }
        return MHD_HTTP_OK;
    }
    weft_error_set(&error, WEFT_BAD_SHAPE, s->input->name,
                   "expected a POST of %zu numbers as JSON, in at most %d bytes", s->size,
                   MAX_REQUEST);
    cJSON_AddStringToObject(reply, "error", error.message);
    return complete ? MHD_HTTP_INTERNAL_SERVER_ERROR : MHD_HTTP_BAD_REQUEST;
}

/* Called when the header of a request is complete, for each piece of its body, and at its end. */
static enum MHD_Result receive(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *piece,
                               size_t *bytes, void **state)
{
    (void)url, (void)method, (void)version;
    request *r = (request *)*state;
    if (!r) return (*state = calloc(1, sizeof *r)) ? MHD_YES : MHD_NO;
    if (*bytes) {
        const bool fits = r->bytes + *bytes <= MAX_REQUEST;
        if (fits) memcpy(r->text + r->bytes, piece, *bytes);
        r->bytes = fits ? r->bytes + *bytes : MAX_REQUEST + 1;
        return *bytes = 0, MHD_YES;
    }
    cJSON *reply = cJSON_CreateObject();
    const unsigned status = answer((const service *)context, r, reply);
    char *text = cJSON_PrintUnformatted(reply);
    cJSON_Delete(reply);
    if (!text) return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    const enum MHD_Result queued = MHD_queue_response(connection, status, response);
    return MHD_destroy_response(response), queued;
}

static void forget(void *context, struct MHD_Connection *connection, void **state,
                   enum MHD_RequestTerminationCode code)
{
    (void)context, (void)connection, (void)code;
    free(*state);
}

/* Serves until a signal arrives; false if it cannot listen. */
static bool serve(service *s)
{
    struct sockaddr_in loopback;
    memset(&loopback, 0, sizeof loopback); /* port 0: any that is free */
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sigset_t signals; /* blocked in all threads, so that sigwait gets them */
    sigemptyset(&signals), sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, receive, s, MHD_OPTION_SOCK_ADDR, &loopback,
        MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_CONNECTION_LIMIT, 16u,
        MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    if (!daemon) return false;
    const int port = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    printf("http://127.0.0.1:%d\n", port), fflush(stdout);
    int signal;
    sigwait(&signals, &signal);
    return MHD_stop_daemon(daemon), true;
}

int main(int argc, char **argv)
{
    if (argc != 2) return fputs("usage: onnx_service FILE.onnx\n", stderr), 2;
    weft_error error = WEFT_NO_ERROR;
    weft_params *params = weft_params_new();
    weft_onnx *model = weft_onnx_load(argv[1], NULL, &error);
    const weft_builder builder = weft_onnx_builder(model);
    service s = WEFT_DEFAULTS(service);
    size_t n = 0;
    if (model && weft_onnx_copy_weights(model, params, &error) == WEFT_OK) {
        s.input = weft_onnx_inputs(model, &n), s.outputs = weft_onnx_outputs(model, NULL);
        if (n != 1 || s.input->dtype != WEFT_F32)
            weft_error_set(&error, WEFT_BAD_ARGUMENT, argv[1], "expected one input, of f32");
        else
            s.size = (size_t)weft_shape_numel(s.input->shape);
    }
    if (error.status == WEFT_OK) s.runner = weft_forward_new(&builder, params, NULL, &error);
    s.data = (float *)calloc(s.size + 1, sizeof *s.data);
    if (s.runner && !(s.data && serve(&s))) weft_error_set(&error, WEFT_IO, "port", "unavailable");
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    free(s.data), weft_forward_free(s.runner), weft_onnx_free(model), weft_params_free(params);
    return error.status == WEFT_OK ? 0 : 1;
}
