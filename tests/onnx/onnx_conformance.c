/* Runs ONNX's test data: models with inputs and the outputs of the reference implementation. Each
 * case is a folder with model.onnx and test_data_set_*, as Debian's libonnx-testdata has them.
 *
 * A case passes if all outputs are within rtol 1e-3 and atol 1e-7, the tolerance of ONNX's own
 * runner, or within the tolerance that `tolerances` states for it, and have the same bits at 1 and
 * 2 threads. Outputs of 16 bits are rounded to the type that the model declares. Floats of at most 8
 * bits must be equal, zeros with their sign; that includes all their bits but those of a NaN. Some
 * models need the contents of an input when their graph is built, such as the shape of a Reshape.
 * So a model that is refused is tried with its integer and bool inputs as constants, then with all
 * of them. */
#include <weft/onnx.h>
#include <weft/weft.h>

#include "onnx/tensor.h"
#include "onnx/wire.h"

#include <dirent.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DATA_FOLDER "/usr/share/libonnx-testdata/data"
#define MAX_TENSORS 64
#define PATH_BYTES  1024

/* ---- Files ---- */

/* Reads a file; NULL if there is none. The caller frees it. */
static void *read_file(const char *path, size_t *bytes)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    void *data = NULL;
    if (file && fstat(fileno(file), &info) == 0 && (data = malloc((size_t)info.st_size + 1)))
        *bytes = fread(data, 1, (size_t)info.st_size, file);
    if (file) fclose(file);
    return data;
}

/* A message of a file; NULL if it is not one. */
static void *read_message(const char *path, const ProtobufCMessageDescriptor *type)
{
    size_t bytes = 0;
    void *data = read_file(path, &bytes), *message = NULL;
    if (data && weft__wire_check(type, data, bytes) == WEFT_OK)
        message = protobuf_c_message_unpack(type, NULL, bytes, data);
    free(data);
    return message;
}

/* ---- One case ---- */

typedef struct test_case {
    char folder[PATH_BYTES];
    WeftOnnx__ModelProto *proto; /* for the names of inputs */
    WeftOnnx__TensorProto *messages[2 * MAX_TENSORS];
    size_t n_messages;
    const char *names[MAX_TENSORS]; /* of the inputs */
    onnx_tensor inputs[MAX_TENSORS], outputs[MAX_TENSORS];
    const char **input_texts[MAX_TENSORS], **output_texts[MAX_TENSORS]; /* of strings, else NULL */
    size_t n_inputs, n_outputs;
    arena memory;
    weft_error error;
    int constants; /* 0: none, 1: integers and bools, 2: all */
    bool random;   /* whether its results are */
    weft_onnx *model;
} test_case;

static void free_case(test_case *c)
{
    weft_onnx_free(c->model);
    for (size_t i = 0; i < c->n_messages; i++)
        protobuf_c_message_free_unpacked(&c->messages[i]->base, NULL);
    if (c->proto) protobuf_c_message_free_unpacked(&c->proto->base, NULL);
    weft__arena_free(&c->memory);
}

/* Whether all values are tensors. */
static bool are_tensors(WeftOnnx__ValueInfoProto *const *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!values[i]->type || !values[i]->type->tensor_type) return false;
    return true;
}

/* Reads a tensor of strings; their numbers are set once there is a model. */
static const char **read_texts(test_case *c, const WeftOnnx__TensorProto *message, onnx_tensor *t)
{
    const size_t n = message->n_string_data;
    const char **texts = weft__arena_alloc(&c->memory, (n + 1) * sizeof *texts);
    if (!texts || weft__onnx_tensor_type(message, "strings", t, &c->error) != WEFT_OK) return NULL;
    if (weft_shape_numel(t->shape) != (int64_t)n) {
        weft_error_set(&c->error, WEFT_BAD_FILE, "strings", "are not as many as the shape says");
        return NULL;
    }
    t->data = weft__arena_alloc(&c->memory, (n + 1) * sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        const ProtobufCBinaryData *data = &message->string_data[i];
        char *text = weft__arena_alloc(&c->memory, data->len + 1);
        if (!text || !t->data) return NULL;
        if (data->len) memcpy(text, data->data, data->len);
        texts[i] = text;
    }
    return texts;
}

/* The numbers of the texts, in the model. */
static void number_texts(test_case *c)
{
    for (size_t i = 0; i < 2 * MAX_TENSORS; i++) {
        const bool in = i < MAX_TENSORS;
        const char **texts = in ? c->input_texts[i] : c->output_texts[i - MAX_TENSORS];
        const onnx_tensor *t = in ? &c->inputs[i] : &c->outputs[i - MAX_TENSORS];
        int32_t *numbers = (int32_t *)(uintptr_t)t->data;
        for (int64_t k = 0; texts && k < weft_shape_numel(t->shape); k++)
            numbers[k] = weft_onnx_text_number(c->model, texts[k]);
    }
}

/* Reads SET/input_*.pb or output_*.pb; the number of them. */
static size_t read_tensors(test_case *c, const char *set, const char *kind, onnx_tensor *tensors)
{
    size_t n = 0;
    const WeftOnnx__GraphProto *g = c->proto->graph;
    if (!are_tensors(g->input, g->n_input) || !are_tensors(g->output, g->n_output)) {
        weft_error_set(&c->error, WEFT_BAD_DTYPE, kind,
                       "is a sequence, a map or an optional value");
        return 0;
    }
    for (; n < MAX_TENSORS && c->error.status == WEFT_OK; n++) {
        char path[PATH_BYTES + 64];
        snprintf(path, sizeof path, "%s/%s_%zu.pb", set, kind, n);
        struct stat info;
        if (stat(path, &info) != 0) break;
        WeftOnnx__TensorProto *message = read_message(path, &weft_onnx__tensor_proto__descriptor);
        if (!message) {
            weft_error_set(&c->error, WEFT_BAD_DTYPE, kind, "is not a tensor");
            break;
        }
        c->messages[c->n_messages++] = message;
        if (message->data_type == ONNX_STRING) {
            (tensors == c->inputs ? c->input_texts : c->output_texts)[n] =
                read_texts(c, message, &tensors[n]);
            continue;
        }
        weft__onnx_tensor_read(message, kind, &c->memory, &(onnx_files){NULL, NULL, NULL},
                               &tensors[n], &c->error);
    }
    return n;
}

static void name_inputs(test_case *c)
{
    const WeftOnnx__GraphProto *g = c->proto->graph;
    size_t n = 0;
    for (size_t i = 0; i < g->n_input && n < MAX_TENSORS; i++) {
        bool initialised = false;
        for (size_t k = 0; k < g->n_initializer; k++)
            initialised |= !strcmp(onnx_text(g->initializer[k]->name), g->input[i]->name);
        if (!initialised) c->names[n++] = onnx_text(g->input[i]->name);
    }
    if (n < c->n_inputs) c->n_inputs = n;
}

static bool is_constant(const test_case *c, size_t i)
{
    return c->constants == 2 || (c->constants == 1 && !weft_dtype_is_float(c->inputs[i].dtype));
}

/* Loads the model, with as few constants as it needs. */
static void load(test_case *c)
{
    char path[PATH_BYTES + 16];
    weft_onnx_dim dims[MAX_TENSORS * WEFT_MAX_RANK];
    snprintf(path, sizeof path, "%s/model.onnx", c->folder);
    for (c->constants = 0; c->constants < 3 && !c->model; c->constants++) {
        weft_onnx_constant constants[MAX_TENSORS];
        weft_onnx_options o = {.dims = dims, .constants = constants};
        for (size_t i = 0; i < c->n_inputs; i++) {
            const onnx_tensor *t = &c->inputs[i];
            for (int k = 0; k < t->shape.rank; k++)
                dims[o.n_dims++] = (weft_onnx_dim){NULL, c->names[i], k, t->shape.dim[k]};
            if (is_constant(c, i))
                constants[o.n_constants++] =
                    (weft_onnx_constant){.input = c->names[i],
                                         .dtype = t->dtype,
                                         .shape = t->shape,
                                         .data = c->input_texts[i] ? NULL : t->data,
                                         .texts = c->input_texts[i]};
        }
        c->model = weft_onnx_load(path, &o, &c->error);
    }
    c->constants--;
}

static size_t tensor_bytes(const onnx_tensor *t)
{
    return weft_tensor_bytes(t->dtype, t->shape);
}

static weft_status feed_all(test_case *c, weft_session *s, const weft_value *inputs)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0, fed = 0; i < c->n_inputs && status == WEFT_OK; i++)
        if (!is_constant(c, i))
            status = weft_session_feed(s, inputs[fed++], c->inputs[i].data,
                                       tensor_bytes(&c->inputs[i]), &c->error);
    return status;
}

/* Copies a tensor that need not be contiguous. */
static void copy_dense(char *to, const weft_tensor *from)
{
    const size_t bytes = weft_dtype_bytes(from->dtype);
    for (int64_t i = 0; i < weft_shape_numel(from->shape); i++, to += bytes) {
        int64_t at = 0, left = i;
        for (int k = from->shape.rank - 1; k >= 0; k--) {
            at += left % from->shape.dim[k] * from->stride[k];
            left /= from->shape.dim[k];
        }
        memcpy(to, (const char *)from->data + at * (int64_t)bytes, bytes);
    }
}

/* Copies the outputs of a session; their types must be the expected ones. */
static weft_status fetch_all(test_case *c, weft_session *s, const weft_value *values,
                             void **results)
{
    for (size_t i = 0; i < c->n_outputs; i++) {
        const onnx_tensor *t = &c->outputs[i];
        weft_tensor got;
        if (weft_onnx_output(c->model, s, values, i, &got, &c->error) != WEFT_OK)
            return c->error.status;
        if (got.dtype != t->dtype || !weft_shape_equal(got.shape, t->shape)) {
            char is[80], wanted[80];
            return weft_error_set(
                &c->error, WEFT_BAD_SHAPE, "output", "%s %s, expected %s %s",
                weft_dtype_name(got.dtype), weft_shape_text(got.shape, is, sizeof is),
                weft_dtype_name(t->dtype), weft_shape_text(t->shape, wanted, sizeof wanted));
        }
        results[i] = weft__arena_alloc(&c->memory, tensor_bytes(t));
        if (!results[i]) return weft_error_set(&c->error, WEFT_NO_MEMORY, "output", "no memory");
        copy_dense(results[i], &got);
    }
    return WEFT_OK;
}

/* Computes all outputs; false with c->error set on failure. */
static bool compute(test_case *c, int threads, void **results)
{
    weft_value inputs[MAX_TENSORS], outputs[MAX_TENSORS];
    weft_session_options o = {.threads = threads};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_plan *plan = NULL;
    weft_session *s = NULL;
    size_t count;
    weft_onnx_outputs(c->model, &count);
    if (count < c->n_outputs)
        weft_error_set(&c->error, WEFT_BAD_SHAPE, "output", "%zu outputs, expected %zu", count,
                       c->n_outputs);
    else if (weft_onnx_build(g, c->model, 0, inputs, outputs) != WEFT_OK)
        weft_error_copy(&c->error, weft_graph_error(g));
    else if (weft_onnx_copy_weights(c->model, params, &c->error) == WEFT_OK)
        plan = weft_plan_new(g, outputs, count, NULL, &c->error);
    for (size_t i = 0; i < weft_graph_node_count(g); i++)
        c->random |= weft_graph_node(g, i).op->random &&
                     strcmp(weft_graph_node(g, i).op->name, "sdpa") != 0; /* without dropout */
    if (plan) s = weft_session_new(plan, params, &o, &c->error);
    if (s && feed_all(c, s, inputs) == WEFT_OK && weft_session_run(s, &c->error) == WEFT_OK)
        fetch_all(c, s, outputs, results);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return c->error.status == WEFT_OK;
}

/* ---- Comparison ---- */

static double element(const onnx_tensor *t, const void *data, int64_t i)
{
    const onnx_tensor got = {t->dtype, t->shape, data};
    return onnx_tensor_element(&got, i);
}

/* Cases with a tolerance of their own: those whose name contains both words. The first row is for
 * all others. */
typedef struct tolerance {
    const char *word, *other;
    double relative, absolute;
    const char *reason;
} tolerance;

static const tolerance tolerances[] = {
    {"", "", 1e-3, 1e-7, "ONNX's own"},
    {"attention", "bf16", 0x1p-6, 1e-7,
     "the reference rounds every intermediate result to 8 bits, weft computes in f32: the results "
     "differ by at most two units in the last of 8 places"},
    {"dft_inverse", "", 1e-3, 5e-7,
     "the rounding of the reference, where the exact result is 0; the largest numbers are near 1"},
};

static const tolerance *tolerance_of(const char *folder)
{
    const size_t n = sizeof tolerances / sizeof *tolerances;
    for (size_t i = 1; i < n; i++)
        if (strstr(folder, tolerances[i].word) && strstr(folder, tolerances[i].other))
            return &tolerances[i];
    return &tolerances[0];
}

/* Without a tolerance, zeros must have the same sign. */
static bool same_number(double got, double wanted, const tolerance *t)
{
    if (isnan(wanted)) return isnan(got);
    if (isinf(wanted)) return got == wanted;
    if (!t) return got == wanted && !signbit(got) == !signbit(wanted);
    return fabs(got - wanted) <= t->absolute + t->relative * fabs(wanted);
}

/* The nearest number of a type of 16 bits; numbers of other types as they are. */
static double as_type(double x, int type)
{
    const int bits = type == ONNX_FLOAT16 ? 11 : type == ONNX_BFLOAT16 ? 8 : 0;
    const int lowest = type == ONNX_FLOAT16 ? -13 : -125; /* exponents of subnormal numbers */
    int exponent;
    if (bits == 0 || x - x != 0) return x;
    frexp(x, &exponent);
    const double unit = ldexp(1, (exponent < lowest ? lowest : exponent) - bits);
    return nearbyint(x / unit) * unit;
}

static void compare(test_case *c, void **one, void **two)
{
    const tolerance *allowed = tolerance_of(c->folder);
    for (size_t k = 0; k < c->n_outputs && c->error.status == WEFT_OK; k++) {
        const onnx_tensor *t = &c->outputs[k];
        const int type = c->messages[c->n_messages - c->n_outputs + k]->data_type;
        const tolerance *limit = weft__onnx_minifloat(type) || type == ONNX_STRING ? NULL : allowed;
        if (memcmp(one[k], two[k], tensor_bytes(t)) != 0)
            weft_error_set(&c->error, WEFT_INTERNAL, "output",
                           "%zu has other bits at 2 threads than at 1", k);
        for (int64_t i = 0; i < weft_shape_numel(t->shape); i++) {
            const double got = as_type(element(t, one[k], i), type);
            const double wanted = element(t, t->data, i);
            if (!same_number(got, wanted, limit))
                weft_error_set(&c->error, WEFT_INTERNAL, "output",
                               "%zu: element %lld is %g, expected %g", k, (long long)i, got,
                               wanted);
        }
    }
}

typedef enum verdict { PASSED, PASSED_WITH_CONSTANTS, REFUSED, FAILED, VERDICTS } verdict;

static verdict run_set(test_case *c, const char *set)
{
    void *one[MAX_TENSORS], *two[MAX_TENSORS];
    c->n_inputs = read_tensors(c, set, "input", c->inputs);
    c->n_outputs = read_tensors(c, set, "output", c->outputs);
    if (c->error.status != WEFT_OK) return REFUSED;
    name_inputs(c);
    load(c);
    if (!c->model) return REFUSED;
    number_texts(c);
    const bool computed = compute(c, 1, one) && compute(c, 2, two);
    if (c->random) weft_error_set(&c->error, WEFT_NO_KERNEL, "data", "its results are random");
    if (c->random) return REFUSED;
    if (computed) compare(c, one, two);
    if (c->error.status != WEFT_OK) return FAILED;
    return c->constants ? PASSED_WITH_CONSTANTS : PASSED;
}

/* Cases whose data contradict the model, and why. They are not run. Their folder contains both
 * words. */
static const char *const wrong_cases[][3] = {
    {"test_adam_multiple", "", "its data were made with an epsilon of 0.01, which the model lacks"},
    {"BFLOAT16", "libonnx-testdata", "its data have the bits of bfloat16 as integers"},
};

/* The worst verdict of a folder's sets of data. */
static verdict run_case(const char *folder, weft_error *error)
{
    verdict worst = PASSED;
    for (size_t i = 0; i < sizeof wrong_cases / sizeof *wrong_cases; i++)
        if (strstr(folder, wrong_cases[i][0]) && strstr(folder, wrong_cases[i][1])) {
            weft_error_set(error, WEFT_BAD_FILE, "data", "%s", wrong_cases[i][2]);
            return REFUSED;
        }
    for (int set = 0;; set++) {
        char path[PATH_BYTES + 64];
        struct stat info;
        test_case *c = calloc(1, sizeof *c);
        if (!c) return FAILED;
        snprintf(c->folder, sizeof c->folder, "%s", folder);
        snprintf(path, sizeof path, "%s/model.onnx", folder);
        c->proto = read_message(path, &weft_onnx__model_proto__descriptor);
        snprintf(path, sizeof path, "%s/test_data_set_%d", folder, set);
        const bool present = stat(path, &info) == 0 && c->proto && c->proto->graph;
        const verdict v = present ? run_set(c, path) : PASSED;
        if (v > worst || (v != PASSED && v == worst)) weft_error_copy(error, &c->error);
        if (v > worst) worst = v;
        if (!c->proto) worst = FAILED;
        free_case(c);
        free(c);
        if (!present) return worst;
    }
}

/* ---- All cases ---- */

/* How often a reason was met. */
typedef struct reason {
    char text[160];
    int count;
} reason;

#define MAX_REASONS 256

typedef struct report {
    bool list;
    int counts[VERDICTS];
    reason reasons[MAX_REASONS];
    size_t n_reasons;
} report;

/* Counts an error by its status and the op, which the name of a node has in parentheses. */
static void count_reason(report *r, const weft_error *error)
{
    char text[sizeof r->reasons[0].text];
    const char *op = strrchr(error->where, '(');
    snprintf(text, sizeof text, "%-22s %.*s", weft_status_text(error->status),
             op ? (int)strcspn(op + 1, ")") : 0, op ? op + 1 : "");
    for (size_t i = 0; i < r->n_reasons; i++)
        if (!strcmp(r->reasons[i].text, text)) {
            r->reasons[i].count++;
            return;
        }
    if (r->n_reasons == MAX_REASONS) return;
    snprintf(r->reasons[r->n_reasons].text, sizeof text, "%s", text);
    r->reasons[r->n_reasons++].count = 1;
}

static int by_count(const void *a, const void *b)
{
    const reason *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : strcmp(x->text, y->text);
}

static int is_test(const struct dirent *entry)
{
    return strncmp(entry->d_name, "test_", 5) == 0;
}

static void run_folder(report *r, const char *root, const char *name)
{
    static const char *const words[] = {"passed", "passed, constant inputs", "refused", "FAILED"};
    char folder[PATH_BYTES / 2], path[PATH_BYTES];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "%s/%s", root, name);
    const int n = scandir(folder, &entries, is_test, alphasort);
    int passed = 0;
    for (int i = 0; i < n; i++) {
        weft_error error = {0};
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        const verdict v = run_case(path, &error);
        r->counts[v]++;
        passed += v <= PASSED_WITH_CONSTANTS;
        if (v == REFUSED) count_reason(r, &error);
        if (r->list || v == FAILED)
            printf("%s/%s: %s%s%s%s%s\n", name, entries[i]->d_name, words[v],
                   error.status ? ": " : "", error.where, error.status ? ": " : "", error.message);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    printf("%-18s %4d of %d passed\n", name, passed, n > 0 ? n : 0);
}

int main(int argc, char **argv)
{
    static const char *const folders[] = {"node", "simple", "pytorch-converted",
                                          "pytorch-operator"};
    static const struct option options[] = {
        {"list", no_argument, NULL, 'l'}, {"at-least", required_argument, NULL, 'n'}, {0}};
    report *r = calloc(1, sizeof *r);
    int wanted = 1, option;
    if (!r) return 2;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'l') r->list = true;
        if (option == 'n') wanted = atoi(optarg);
        if (option == '?') {
            fprintf(stderr, "Usage: onnx_conformance [--list] [--at-least PASSED] [FOLDER]\n");
            free(r);
            return 2;
        }
    }
    const char *root = optind < argc ? argv[optind] : DATA_FOLDER;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) run_folder(r, root, folders[i]);
    const int passed = r->counts[PASSED] + r->counts[PASSED_WITH_CONSTANTS];
    printf("\n%5d passed, %d of them with constant inputs\n%5d failed\n%5d refused\n", passed,
           r->counts[PASSED_WITH_CONSTANTS], r->counts[FAILED], r->counts[REFUSED]);
    qsort(r->reasons, r->n_reasons, sizeof *r->reasons, by_count);
    for (size_t i = 0; i < r->n_reasons; i++)
        printf("%9d %s\n", r->reasons[i].count, r->reasons[i].text);
    if (passed < wanted) printf("expected at least %d to pass\n", wanted);
    const int status = r->counts[FAILED] > 0 || passed < wanted;
    free(r);
    return status;
}
