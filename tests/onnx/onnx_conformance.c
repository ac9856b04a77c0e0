/* Runs ONNX's test data: models with inputs and the outputs of the reference implementation.
 *
 * A case passes if all outputs are within rtol 1e-3 and atol 1e-7, the tolerance of ONNX's own
 * runner, or within the tolerance that `tolerances` states for it, and have the same bits at 1 and
 * 2 threads. Outputs of 16 bits are rounded to the type that the model declares. Floats of at most 8
 * bits must be equal, zeros with their sign; that includes all their bits but those of a NaN. */
#include <weft/onnx.h>
#include <weft/weft.h>

#include "onnx_case.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the outputs of a session; their types must be the expected ones. */
static weft_status fetch_all(onnx_case *c, weft_session *s, const weft_value *values,
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
        results[i] = weft__arena_alloc(&c->memory, onnx_case_bytes(t));
        if (!results[i]) return weft_error_set(&c->error, WEFT_NO_MEMORY, "output", "no memory");
        onnx_case_copy(results[i], &got);
    }
    return WEFT_OK;
}

/* Computes all outputs; false with c->error set on failure. *random: some are random. */
static bool compute(onnx_case *c, int threads, void **results, bool *random)
{
    weft_value inputs[ONNX_CASE_TENSORS], outputs[ONNX_CASE_TENSORS];
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
        *random |= weft_graph_node(g, i).op->random &&
                   strcmp(weft_graph_node(g, i).op->name, "sdpa") != 0; /* without dropout */
    if (plan) s = weft_session_new(plan, params, &o, &c->error);
    if (s && onnx_case_feed(c, s, inputs) == WEFT_OK && weft_session_run(s, &c->error) == WEFT_OK)
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

static void compare(onnx_case *c, void **one, void **two)
{
    const tolerance *allowed = tolerance_of(c->folder);
    for (size_t k = 0; k < c->n_outputs && c->error.status == WEFT_OK; k++) {
        const onnx_tensor *t = &c->outputs[k];
        const int type = c->messages[c->n_messages - c->n_outputs + k]->data_type;
        const tolerance *limit = weft__onnx_minifloat(type) || type == ONNX_STRING ? NULL : allowed;
        if (memcmp(one[k], two[k], onnx_case_bytes(t)) != 0)
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

static verdict run_set(onnx_case *c)
{
    void *one[ONNX_CASE_TENSORS], *two[ONNX_CASE_TENSORS];
    bool random = false;
    if (c->error.status != WEFT_OK || !onnx_case_load(c)) return REFUSED;
    const bool computed = compute(c, 1, one, &random) && compute(c, 2, two, &random);
    if (random) weft_error_set(&c->error, WEFT_NO_KERNEL, "data", "its results are random");
    if (random) return REFUSED;
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
        onnx_case *c = calloc(1, sizeof *c);
        if (!c) return FAILED;
        const bool present = onnx_case_read(c, folder, set);
        const verdict v = present ? run_set(c) : PASSED;
        if (v > worst || (v != PASSED && v == worst)) weft_error_copy(error, &c->error);
        if (v > worst) worst = v;
        if (!c->proto) worst = FAILED;
        onnx_case_free(c);
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

static void run_one(void *context, const char *path)
{
    static const char *const words[] = {"passed", "passed, constant inputs", "refused", "FAILED"};
    report *r = context;
    weft_error error = {0};
    const verdict v = run_case(path, &error);
    r->counts[v]++;
    if (v == REFUSED) count_reason(r, &error);
    if (r->list || v == FAILED)
        printf("%s: %s%s%s%s%s\n", path, words[v], error.status ? ": " : "", error.where,
               error.status ? ": " : "", error.message);
}

static int passed_so_far(const report *r)
{
    return r->counts[PASSED] + r->counts[PASSED_WITH_CONSTANTS];
}

static void run_folder(report *r, const char *root, const char *name)
{
    const int before = passed_so_far(r), n = onnx_case_each(root, name, run_one, r);
    printf("%-18s %4d of %d passed\n", name, passed_so_far(r) - before, n);
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
    const char *root = optind < argc ? argv[optind] : ONNX_CASE_DATA;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) run_folder(r, root, folders[i]);
    const int passed = passed_so_far(r);
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
