/* Holds whole models of the list against what PyTorch computed (golden/make_models.py and, with
 * torchvision's models, make_vision.py): the output, the loss, the gradient of every weight and of
 * every input of vectors or images, in f32 and in f64. A file says in its metadata which cases it
 * has, with which model and options weft builds each, and which are built for training. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WRT 256
#define TEXT    512

typedef struct rig {
    weft_graph *g;
    weft_built built;
    weft_value wrt[MAX_WRT];
    size_t n; /* parameters, then inputs of vectors or images */
    weft_params *store;
} rig;

/* Builds "MODEL key=value ..." in that dtype. */
static void rig_build(rig *r, const char *what, bool training, weft_dtype dtype)
{
    char text[TEXT];
    int length = snprintf(text, sizeof text, "%s f64=%d", what, dtype == WEFT_F64);
    CU_ASSERT_TRUE_FATAL(length < TEXT);
    r->g = weft_graph_new();
    test_build_model(r->g, text, training, &r->built);
    r->n = test_params(r->g, r->wrt, MAX_WRT - 2);
    CU_ASSERT_TRUE_FATAL(r->n <= MAX_WRT - 2);
    const weft_value vectors[] = {weft_built_input(&r->built, "input"),
                                  weft_built_input(&r->built, "memory")};
    for (size_t i = 0; i < 2; i++)
        if (weft_is_value(vectors[i])) r->wrt[r->n++] = vectors[i];
}

/* Feeds every input of the graph with the tensor of its name. */
static void feed_all(const rig *r, weft_session *s)
{
    static const char *const names[] = {"source", "target_in", "target_out", "input",
                                        "memory", "target",    "hidden",     "labels"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_tensor t;
        weft_value input = weft_graph_find(r->g, names[i]);
        if (!weft_is_value(input)) continue;
        CU_ASSERT_TRUE_FATAL(weft_params_find(r->store, names[i], &t));
        CU_ASSERT_TRUE_FATAL(weft_shape_equal(t.shape, weft_shape_of(r->g, input)));
        size_t n = (size_t)weft_shape_numel(t.shape);
        uint8_t truth[64];
        const void *data = t.data;
        if (weft_dtype_of(r->g, input) == WEFT_BOOL) {
            CU_ASSERT_TRUE_FATAL(n <= sizeof truth);
            for (size_t k = 0; k < n; k++) truth[k] = ((const int32_t *)t.data)[k] != 0;
            data = truth;
        }
        size_t bytes = n * weft_dtype_bytes(weft_dtype_of(r->g, input));
        CU_ASSERT_EQUAL_FATAL(weft_session_feed(s, input, data, bytes, NULL), WEFT_OK);
    }
}

/* Every state of the graph, trainable or not, must be in the file. */
static void check_states(const rig *r, const char *name)
{
    size_t n;
    const weft_value *states = weft_graph_states(r->g, &n);
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        const bool found = weft_params_find(r->store, weft_name_of(r->g, states[i]), &t);
        if (!found) printf("\n    %s has no %s\n", name, weft_name_of(r->g, states[i]));
        CU_ASSERT_TRUE(found);
    }
}

static void check_case(const char *path, const char *name, const char *what, bool training,
                       golden_precision p)
{
    char prefix[64], text[160];
    weft_error error = {0};
    weft_value targets[MAX_WRT + 2], grads[MAX_WRT];
    rig r;
    int failures = (int)CU_get_number_of_failures();
    snprintf(prefix, sizeof prefix, "%s/", name);
    rig_build(&r, what, training, p.dtype);
    r.store = golden_load(path, prefix, p.dtype);
    double floor = GOLDEN_FLOOR * p.limit * golden_gradient_norm(r.store, r.n);
    check_states(&r, name);
    weft_grad(r.g, r.built.loss, r.wrt, r.n, grads);
    for (size_t i = 0; i < r.n; i++) targets[i] = weft_contiguous(r.g, grads[i]);
    targets[r.n] = weft_contiguous(r.g, r.built.outputs[0]);
    targets[r.n + 1] = r.built.loss;
    weft_plan_options verify = {.verify = true};
    weft_plan *plan = weft_plan_new(r.g, targets, r.n + 2, &verify, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(r.store, r.g, 1, &error) == WEFT_OK)
        s = weft_session_new(plan, r.store, NULL, &error);
    if (!s) printf("\n    %s: %s: %s\n", name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    feed_all(&r, s);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    golden_target(s, r.store, targets[r.n], "output", p.limit, 0);
    golden_target(s, r.store, targets[r.n + 1], "loss", p.limit, 0);
    for (size_t i = 0; i < r.n; i++) {
        snprintf(text, sizeof text, "grad.%s", weft_name_of(r.g, r.wrt[i]));
        golden_target(s, r.store, targets[i], text, p.limit, floor);
    }
    if ((int)CU_get_number_of_failures() != failures) printf("    case %s of %s\n", name, path);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(r.store);
    weft_graph_free(r.g);
}

/* Is the name among the words of the text? NULL has none. */
static bool has_word(const char *text, const char *name)
{
    const size_t n = strlen(name);
    for (; text && *text; text += strcspn(text, " "), text += strspn(text, " "))
        if (strcspn(text, " ") == n && !strncmp(text, name, n)) return true;
    return false;
}

static void check_file(const char *path, int at_least)
{
    char text[2048], *rest = NULL;
    int n = 0;
    weft_error error = {0};
    weft_params *file = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_params_load(file, path, &error), WEFT_OK);
    const char *names = weft_params_meta(file, "cases");
    CU_ASSERT_TRUE_FATAL(names && strlen(names) < sizeof text);
    memcpy(text, names, strlen(names) + 1);
    for (char *name = strtok_r(text, " ", &rest); name; name = strtok_r(NULL, " ", &rest), n++) {
        const char *what = weft_params_meta(file, name);
        CU_ASSERT_PTR_NOT_NULL_FATAL(what);
        const bool training = has_word(weft_params_meta(file, "training"), name);
        for (int p = 0; p < 2; p++) check_case(path, name, what, training, golden_precisions[p]);
    }
    CU_ASSERT_TRUE(n >= at_least);
    weft_params_free(file);
}

static void test_attention(void)
{
    check_file(GOLDEN("model_attention.safetensors"), 18);
}
static void test_feed_forward(void)
{
    check_file(GOLDEN("model_feed_forward.safetensors"), 4);
}
static void test_encoder(void)
{
    check_file(GOLDEN("model_encoder.safetensors"), 6);
}
static void test_shared(void)
{
    check_file(GOLDEN("model_shared.safetensors"), 1);
}
static void test_language(void)
{
    check_file(GOLDEN("model_language.safetensors"), 3);
}
static void test_vision(void)
{
    check_file(GOLDEN("vision.safetensors"), 4);
}

void golden_models_tests(void)
{
    CU_pSuite suite = CU_add_suite("models as PyTorch has them", NULL, NULL);
    CU_add_test(suite, "attention", test_attention);
    CU_add_test(suite, "feed-forward", test_feed_forward);
    CU_add_test(suite, "encoder", test_encoder);
    CU_add_test(suite, "Transformer with shared heads", test_shared);
    CU_add_test(suite, "BERT, GPT, LLaMA", test_language);
    CU_add_test(suite, "ResNet, MobileNetV2, Vision Transformer", test_vision);
}
