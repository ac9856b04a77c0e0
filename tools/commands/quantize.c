/* weft quantize: a run or checkpoint with matrices of 8 or 4 bits, for inference. */
#include "quantize/quantize.h"
#include "text/text_files.h"

#include "training/saved.h"
#include "base/platform.h"
#include "base/text.h"
#include "base/file.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *from, *out, *keep; /* keep: scopes; NULL: none */
    unsigned bits;                 /* the choice 8 or 4 */
    long group;
    bool json;
} arguments;

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->group % 32)
        tool_usage_error(parser, "--group is %ld, expected a multiple of 32", a->group);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option quantize_options[] = {
    {TOOL_ONE(arguments, from, "RUN or FILE"), .required = true},
    {"output", "OUT", FIELD(out),
     "the run to write, with copies of the vocabularies, or the file NAME.safetensors",
     .letter = 'o', .required = true},
    {"bits", "8|4", FIELD(bits), "of an element of a matrix"},
    {"group", "N", FIELD(group),
     "elements of a row that share a scale and a zero point, a multiple of 32", 32, 1 << 20},
    {"keep-f32", "SCOPES", FIELD(keep),
     "parameters of these scopes, such as output,layer.0, stay as they are"},
    {"json", NULL, FIELD(json), "print JSON"},
    {0}};

static const tool_command command = {
    .options = quantize_options,
    .usage = "RUN|FILE",
    .doc = "Writes a run or a checkpoint with weight matrices and embedding tables in 8 or 4 bits, "
           "for inference: translate, generate, logprob and run accept it like the original. "
           "Matrix products round their other operand to 8 bits. Tables that are not multiplied "
           "with always have 8 bits. Everything else stays in f32.",
    .check = check};

static int bits_of(const arguments *a)
{
    return a->bits == 0 ? 8 : 4;
}

/* ---- Which matrices ---- */

typedef struct choice {
    const arguments *a;
    bool terminal;
    double shown; /* when the line of progress was printed last */
} choice;

/* Called for each matrix before it is quantised, so it also shows the progress. */
static bool selects(void *context, const char *name)
{
    choice *c = context;
    if (c->terminal && tool_seconds() - c->shown > 0.2) {
        char safe[TOOL_NAME_BYTES];
        fprintf(stderr, "\r\033[Kquantising %s", tool_printable(name, safe));
        c->shown = tool_seconds();
    }
    return !weft__text_in_scopes(c->a->keep, name);
}

/* ---- Files ---- */

/* OUT is a file if its name says so, otherwise a run. */
static bool is_file(const arguments *a)
{
    return tool_ends_with(a->out, ".safetensors");
}

/* Makes the folder OUT and copies the vocabularies of the run, if it has any. */
static bool make_run(const arguments *a, weft_error *error)
{
    if (weft__os_make_folder(a->out) || errno == EEXIST)
        return text_files_copy(a->from, a->out, error);
    weft_error_set(error, WEFT_IO, a->out, "cannot be made: %s", strerror(errno));
    return false;
}

/* The file to write; false if OUT is a run that has a model. */
static bool find_out(const arguments *a, char path[4096], weft_error *error)
{
    const char *names[] = {"best.safetensors", "model.safetensors"};
    if (is_file(a)) return snprintf(path, 4096, "%s", a->out) < 4096;
    for (size_t i = 0; i < 2; i++) {
        if (snprintf(path, 4096, "%s/%s", a->out, names[i]) < 4096 && !weft__file_exists(path))
            continue;
        weft_error_set(error, WEFT_BAD_ARGUMENT, a->out, "has a model already: choose another -o");
        return false;
    }
    return true;
}

/* ---- The result ---- */

static int print_result(const arguments *a, const weft_quantize_report *r)
{
    if (a->json) {
        const struct {
            const char *name;
            double value;
        } numbers[] = {{"bits", bits_of(a)},
                       {"group", (double)a->group},
                       {"matrices", (double)r->matrices},
                       {"left", (double)r->left},
                       {"kept", (double)r->kept},
                       {"parameters", r->parameters},
                       {"bytes_before", r->bytes_before},
                       {"bytes_after", r->bytes_after},
                       {"max_error", r->max_error}};
        cJSON *json = cJSON_CreateObject();
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            cJSON_AddNumberToObject(json, numbers[i].name, numbers[i].value);
        cJSON_AddStringToObject(json, "max_error_name", r->max_error_name);
        return tool_print_json(json);
    }
    tool_print_line(stdout, "%zu matrices of %.0f elements in %d bits, groups of %ld", r->matrices,
                    r->parameters, bits_of(a), a->group);
    tool_print_line(stdout, "largest relative error of a matrix: %.4f, of %s", r->max_error,
                    r->max_error_name);
    if (r->left)
        tool_print_line(stdout, "%zu stay in f32: groups of %ld do not divide their rows", r->left,
                        a->group);
    if (r->kept)
        tool_print_line(stdout, "%zu also stay in f32, for other nodes that read them", r->kept);
    char after[TEXT_SIZE_BYTES], before[TEXT_SIZE_BYTES];
    tool_print_line(stdout, "%s, %.2f of the %s before, saved in %s",
                    weft__text_from_bytes(r->bytes_after, after), r->bytes_after / r->bytes_before,
                    weft__text_from_bytes(r->bytes_before, before), a->out);
    return EXIT_GOOD;
}

/* Quantises the model and saves it at `path`. */
static weft_status quantize(const arguments *a, const weft_saved_model *m, const char *path,
                            weft_quantize_report *report, weft_error *error)
{
    choice c = {.a = a, .terminal = system_is_terminal(stderr)};
    if (weft__quantized_refuse(m->params, a->from, error) != WEFT_OK) return error->status;
    weft_graph *g = weft__saved_graph(&m->config, a->from, error);
    if (!g) return error->status;
    const weft_params_filter filter = {selects, &c};
    const weft_quantize_options options = {bits_of(a), (int)a->group, &filter};
    weft_params *small = weft_params_quantize(m->params, g, &options, report, error);
    if (c.terminal) fputs("\r\033[K", stderr);
    weft_graph_free(g);
    if (small && !report->matrices)
        weft_error_set(error, WEFT_BAD_ARGUMENT, a->from,
                       "has no matrix to quantise with groups of %ld", a->group);
    else if (small && (is_file(a) || make_run(a, error)))
        weft_params_save(small, path, NULL, error);
    weft_params_free(small);
    return error->status;
}

int cmd_quantize(int argc, char **argv)
{
    arguments a = {.group = 32};
    weft_error error = {0};
    weft_quantize_report report;
    tool_parse(&command, argc, argv, &a);
    char path[4096], from[4096];
    if (!find_out(&a, path, &error) ||
        weft_saved_path(a.from, from, sizeof from, &error) != WEFT_OK ||
        tool_check_output(path, from, &error) != WEFT_OK)
        return tool_fail(&error);
    weft_saved_model *m = weft_saved_open(a.from, NULL, &error);
    const weft_status status = m ? quantize(&a, m, path, &report, &error) : error.status;
    weft_saved_close(m);
    return status == WEFT_OK ? print_result(&a, &report) : tool_fail(&error);
}
