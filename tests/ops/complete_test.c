/* Every op of the list is complete: it has a doc, samples, a builder that a public header declares,
 * a naive reference (a tests/support/reference_*.c) and a case computed by PyTorch (tests/golden).
 * The tables below name the ops without one of these, with the reason; an entry that is out of date
 * also fails. Every descriptor that the library defines is in ops/list.h, and every model in
 * models/zoo/registry.h. */
#include "golden.h"
#include "reference.h"

#include <weft/autograd.h>
#include <weft/emit.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* Ops, separated by spaces, and why they lack something. */
typedef struct exemption {
    const char *reason, *ops;
} exemption;

#define COLLECTIVES                                                                                \
    "sum_over_ranks copy_to_ranks reduce_scatter all_gather broadcast_ranks sum_to_rank send "     \
    "receive"

static const exemption without_builder[] = {
    {"other ops expand into it, or have it as their gradient",
     "panels matmul_panels sdpa_grad softmax_grad log_softmax_grad layer_norm_grad rms_norm_grad "
     "slice_scatter embedding_grad cross_entropy_grad conv_grad_weight batch_norm_grad prod_grad "
     "ctc_grad matmul_quantized_grad"},
    {"passes make it of another op",
     "conv_rows conv_rows_depthwise winograd_weights conv_winograd"},
    {"the importer of ONNX files makes it",
     "quantize_bytes dequantize_bytes add_bytes conv_bytes conv_bytes_depthwise max_pool_bytes"},
    {"declared in weft/parallel.h", "exchange_start exchange_wait " COLLECTIVES},
    {NULL, NULL},
};

/* Builders with a name of their own. */
static const struct {
    const char *op, *builder;
} renamed[] = {
    {"momentum_update", "weft_sgd_update"},           {"conv_grad_input", "weft_conv_transpose"},
    {"cross_entropy", "weft_cross_entropy_loss"},     {"mse", "weft_mse_loss"},
    {"bce_with_logits", "weft_bce_with_logits_loss"},
};

static const exemption without_samples[] = {
    {"nothing is computed", "input state constant group track"},
    {"needs other processes, which the suites parallel and collectives have",
     "exchange_start exchange_wait " COLLECTIVES},
    {NULL, NULL},
};

static const exemption without_reference[] = {
    {"the suite collectives compares it with its definition", COLLECTIVES},
    {"nothing is computed", "input state constant group track exchange_start exchange_wait"},
    {"the suite of ops compares it with its expansion into ops that have references",
     "sdpa sdpa_grad layer_norm_grad rms_norm_grad batch_norm batch_norm_grad"},
    {NULL, NULL},
};

static const exemption without_source[] = {
    {"exchanges data with other processes", "exchange_start exchange_wait"},
    {NULL, NULL},
};

static const exemption without_golden[] = {
    {"the suite collectives compares it with its definition", COLLECTIVES},
    {"nothing is computed", "input state constant group track exchange_start exchange_wait"},
    {"elements are moved or made, so that the reference decides every bit",
     "contiguous reshape broadcast_to slice_scatter one_hot fill arange tril_mask assign "
     "cache_write cache_reorder require_finite narrow_rows widen_rows bitcast custom_gradient"},
    {"part of the case global_norm", "square_sums root_of_sum"},
    {"one operation of C on each element, which the reference repeats",
     "neg sign floor ceil round atan square add sub mul add_n blend cast equal not_equal less "
     "less_equal greater greater_equal logical_and logical_or "
     "logical_not argmax argmin suppress fake_quantize"},
    {"the suite conv compares it with its definition",
     "conv conv_grad_input conv_grad_weight max_pool average_pool"},
    {"the suite conv_rows compares it with conv", "conv_rows conv_rows_depthwise"},
    {"the suite winograd compares it with conv", "winograd_weights conv_winograd"},
    {"the suite quantize compares it with its definition",
     "matmul_quantized matmul_quantized_grad embedding_quantized"},
    {"whole numbers in bytes: the reference decides every bit",
     "quantize_bytes dequantize_bytes add_bytes conv_bytes conv_bytes_depthwise max_pool_bytes"},
    {"ONNX's cases of GridSample and RoiAlign check it", "embedding_bag"},
    {"part of the case softmax_masked", "masked_fill"},
    {"computed from the same formula as matmul, which has cases",
     "matmul_shared panels matmul_panels"},
    {"the suite bf16 compares it with its definition", "matmul_tiles"},
    {"the cases of whole models run it", "sdpa"},
    {"the case of its forward op checks the gradient",
     "relu_grad softmax_grad log_softmax_grad layer_norm_grad rms_norm_grad embedding_grad "
     "cross_entropy_grad sdpa_grad batch_norm_grad prod_grad ctc_grad"},
    {"PyTorch draws other random numbers", "dropout random_uniform random_normal bernoulli"},
    {"its optimiser has suites of its own", "sgd_update momentum_update adam_update"},
    {NULL, NULL},
};

static void missing(const char *op, const char *what)
{
    fprintf(stderr, "\n    %s: %s\n", op, what);
    CU_FAIL("an op or a model is incomplete");
}

/* Whether `word` is one of the words of `text`. */
static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static bool exempt(const exemption *table, const char *op)
{
    for (; table->ops; table++)
        if (has_word(table->ops, op)) return true;
    return false;
}

/* An op has what is asked for or an exemption, and not both. */
static void expect(const weft_op *op, bool has, const exemption *table, const char *what)
{
    char text[160];
    if (has != exempt(table, op->name)) {
        CU_PASS("complete");
        return;
    }
    snprintf(text, sizeof text, "%s %s", has ? "is exempt, but has" : "lacks", what);
    missing(op->name, text);
}

/* An exemption of an op that no longer exists. */
static void check_exemptions(const exemption *table, const char *what)
{
    for (; table->ops; table++) {
        char copy[512], *rest = NULL;
        CU_ASSERT_TRUE_FATAL(strlen(table->ops) < sizeof copy);
        memcpy(copy, table->ops, strlen(table->ops) + 1);
        for (char *op = strtok_r(copy, " ", &rest); op; op = strtok_r(NULL, " ", &rest))
            if (!weft_op_find(op)) missing(op, what);
    }
}

/* The text of the file, which the caller frees. */
static char *text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    char *text = calloc(1, 1 << 20);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_TRUE_FATAL(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static bool is_declared(const char *header, const char *op)
{
    char call[96];
    snprintf(call, sizeof call, " weft_%s(", op);
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(renamed[i].op, op)) snprintf(call, sizeof call, " %s(", renamed[i].builder);
    return strstr(header, call) != NULL;
}

static void test_builders(void)
{
    enum { HEADERS = 4 };
    char *headers[HEADERS] = {text_of(WEFT_SOURCE_DIR "/graph/weft/weft.h"),
                              text_of(WEFT_SOURCE_DIR "/ops/weft/ops.h"),
                              text_of(WEFT_SOURCE_DIR "/ops/weft/losses.h"),
                              text_of(WEFT_SOURCE_DIR "/graph/weft/graph.h")};
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        bool declared = false;
        for (int h = 0; h < HEADERS; h++) declared = declared || is_declared(headers[h], op->name);
        expect(op, declared, without_builder,
               "a builder declared in weft/weft.h, weft/ops.h or weft/losses.h");
    }
    check_exemptions(without_builder, "is not in the list, but in without_builder");
    for (int h = 0; h < HEADERS; h++) free(headers[h]);
}

/* Whether the builder of an elementwise op makes a node of it, from operands of this dtype; true if
 * the op is another. */
static bool builds(const weft_op *op, weft_dtype dtype)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", dtype, WEFT_SHAPE(2));
    const weft_value y = weft_input(g, "y", dtype, WEFT_SHAPE(2));
    weft_value v = WEFT_NO_VALUE;
    const bool known = reference_build(g, op->name, x, y, &v);
    const bool good = weft_is_value(v) && weft_graph_node(g, weft_producer_of(g, v)).op == op;
    weft_graph_free(g);
    return good || !known;
}

static void test_elementwise_builders(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (!builds(op, WEFT_F32) && !builds(op, WEFT_BOOL))
            missing(op->name, "its builder makes another op");
    }
}

static void test_descriptors(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (!op->doc || strlen(op->doc) < 5) missing(op->name, "lacks a doc");
        expect(op, op->n_samples > 0, without_samples, "samples");
    }
    check_exemptions(without_samples, "is not in the list, but in without_samples");
}

/* A pass that an op names has a place in the order: otherwise it would never run, and its
 * name could not be skipped. */
static void test_passes(void)
{
    size_t n_passes = 0;
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1));
    for (size_t i = 0; i < weft_op_count(); i++)
        for (const weft_pass *const *p = weft_op_at(i)->passes; p && *p; p++, n_passes++) {
            const weft_plan_options options = {.skip = (*p)->name};
            weft_error error = WEFT_NO_ERROR;
            weft_plan *plan = weft_plan_new(g, &x, 1, &options, &error);
            if (!plan) missing((*p)->name, error.message);
            weft_plan_free(plan);
        }
    weft_graph_free(g);
    CU_ASSERT(n_passes > 0);
}

static void test_references(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        expect(op, reference_find(op->name), without_reference,
               "a reference in a table of tests/support/reference_*.c");
    }
    check_exemptions(without_reference, "is not in the list, but in without_reference");
}

/* A case NAME of the golden file has a tensor NAME.out, and the suite golden runs every case. */
static void test_golden(void)
{
    weft_params *store = golden_load(GOLDEN("ops.safetensors"), "", WEFT_F32);
    for (size_t i = 0; i < weft_op_count(); i++) {
        char name[96];
        weft_tensor out;
        snprintf(name, sizeof name, "%s.out", weft_op_at(i)->name);
        expect(weft_op_at(i), weft_params_find(store, name, &out), without_golden,
               "a case in tests/golden");
    }
    check_exemptions(without_golden, "is not in the list, but in without_golden");
    weft_params_free(store);
}

static bool op_is_listed(const char *name)
{
    return weft_op_find(name);
}

/* `name` may have '_' where the model's has '-'. */
static bool model_is_listed(const char *name)
{
    char dashed[128];
    snprintf(dashed, sizeof dashed, "%s", name);
    for (char *c = dashed; (c = strchr(c, '_'));) *c = '-';
    return weft_model_find(dashed);
}

/* Every data symbol PREFIXname of the libraries must be listed, and the list must have no others. */
static void expect_listed(const char *prefix, bool (*is_listed)(const char *name), size_t count,
                          const char *problem)
{
    char line[512], kind, symbol[128];
    size_t found = 0;
    FILE *symbols = popen("nm --defined-only " WEFT_LIBRARIES " 2>/dev/null", "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(symbols);
    while (fgets(line, sizeof line, symbols)) {
        if (sscanf(line, "%*x %c %127s", &kind, symbol) != 2 || strchr("Tt", kind) ||
            strncmp(symbol, prefix, strlen(prefix)) != 0)
            continue;
        found++;
        if (!is_listed(symbol + strlen(prefix))) missing(symbol, problem);
    }
    if (pclose(symbols) != 0)
        test_skip("descriptors outside of the lists", "the program nm does not read the library");
    else
        CU_ASSERT_EQUAL(found, count);
}

static void test_listed(void)
{
    expect_listed("weft_op_", op_is_listed, weft_op_count(), "is not in ops/list.h");
}

/* A file of models that is not built defines nothing that could be missed. */
static void expect_built(const char *folder, const char *file)
{
    char *meson = text_of(WEFT_SOURCE_DIR "/models/meson.build"), entry[300];
    snprintf(entry, sizeof entry, "%s/%s", folder, file);
    if (!strstr(meson, entry)) missing(entry, "is not in models/meson.build");
    free(meson);
}

static void test_models_listed(void)
{
    expect_listed("weft__model_", model_is_listed, weft_model_count(),
                  "is not in models/zoo/registry.h");
    DIR *folder = opendir(WEFT_SOURCE_DIR "/models/zoo");
    CU_ASSERT_PTR_NOT_NULL_FATAL(folder);
    for (const struct dirent *e; (e = readdir(folder));) {
        const size_t n = strlen(e->d_name);
        if (n > 2 && !strcmp(e->d_name + n - 2, ".c")) expect_built("zoo", e->d_name);
    }
    closedir(folder);
}

/* Every op with kernels can be written as C. */
static void test_sources(void)
{
    for (size_t i = 0; i < weft_op_count(); i++)
        expect(weft_op_at(i), weft_emit_has_op(weft_op_at(i)), without_source, "weft_op.source");
    check_exemptions(without_source, "without_source");
}

/* autograd/specified_bits.h has the op's hash. */
static void test_specified_bits(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        uint64_t hash = 0;
        if (!op->n_samples) continue;
        CU_ASSERT_EQUAL(weft_op_bits(op, &hash, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(hash, weft_op_specified_bits(op));
        if (hash != weft_op_specified_bits(op))
            printf("    {\"%s\", 0x%016llxu},\n", op->name, (unsigned long long)hash);
    }
    CU_ASSERT_EQUAL(weft_op_specified_bits(NULL), 0);
}

void complete_tests(void)
{
    CU_pSuite suite = CU_add_suite("complete", NULL, NULL);
    CU_add_test(suite, "docs and samples", test_descriptors);
    CU_add_test(suite, "passes", test_passes);
    CU_add_test(suite, "builders", test_builders);
    CU_add_test(suite, "builders make the ops of their names", test_elementwise_builders);
    CU_add_test(suite, "references", test_references);
    CU_add_test(suite, "golden cases", test_golden);
    CU_add_test(suite, "sources in C", test_sources);
    CU_add_test(suite, "specified bits", test_specified_bits);
    CU_add_test(suite, "every descriptor is listed", test_listed);
    CU_add_test(suite, "every model is listed", test_models_listed);
}
