/* Graphs that are cut into stages, whose ranks are threads: losses have the bits of the whole
 * model, gradients equal its gradients, and stages work on several batches at a time without
 * deadlocks. */
#include "ranks.h"
#include "tests.h"

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 96, MAX_INPUTS = WEFT_BUILT_VALUES, MAX_BATCHES = 4, SEED = 5 };

/* ---- Models ---- */

typedef struct model {
    weft_graph *g;
    weft_built built;
} model;

#define MASKS "masks"

/* A mask that is computed from a parameter, and that two later stages read. No gradient goes back
 * to it, but one goes to the sums `s`. */
static void build_masks(weft_graph *g, weft_built *built)
{
    enum { ROWS = 3, WIDTH = 128 };
    const weft_shape square = WEFT_SHAPE(WIDTH, WIDTH);
    weft_value w[3], zero = weft_scalar(g, WEFT_F64, 0);
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        w[i] = weft_param(g, name, WEFT_F64, square, WEFT_INIT_XAVIER);
    }
    const weft_value input = weft_input(g, "input", WEFT_F64, WEFT_SHAPE(ROWS, WIDTH));
    *built = (weft_built){.inputs = {input}, .n_inputs = 1};
    weft_value mask = weft_greater(g, weft_matmul(g, input, w[0]), zero);
    weft_value h = weft_tanh(g, weft_matmul(g, weft_cast(g, mask, WEFT_F64), w[1]));
    weft_value s = weft_sum(g, h, WEFT_AXES(-1), true);
    h = weft_tanh(g, weft_matmul(g, weft_where(g, mask, s, input), w[2]));
    built->loss = weft_mean(g, weft_square(g, h), WEFT_ALL_AXES, false);
}

/* Builds the model that "MODEL key=value ..." names. */
static weft_status model_build(model *m, const char *text, bool training, weft_error *error)
{
    char copy[256], *words[16], *rest = copy;
    size_t n = 0;
    weft_model_config config;
    *m = (model){.g = weft_graph_new()};
    if (!strcmp(text, MASKS)) {
        build_masks(m->g, &m->built);
        return weft_error_copy(error, weft_graph_error(m->g));
    }
    snprintf(copy, sizeof copy, "%s", text);
    while (n < 16 && (words[n] = strtok_r(rest, " ", &rest))) n++;
    if (weft_model_parse(weft_model_find(words[0]), (const char *const *)words + 1, n - 1, &config,
                         error) != WEFT_OK)
        return error->status;
    config.build.training = training;
    m->built = weft_model_build(m->g, &config);
    return weft_error_copy(error, weft_graph_error(m->g));
}

/* ---- A part of a model and its gradients ---- */

/* A graph, whole or of a stage, planned with the gradients of its parameters. */
typedef struct part {
    weft_graph *g;
    weft_params *store;
    weft_plan *plan;
    weft_session *session[MAX_BATCHES];
    int batches;
    weft_value inputs[MAX_INPUTS], loss, pause;
    size_t n;
    weft_value params[MAX_PARAMS], targets[MAX_PARAMS + 2]; /* gradients, loss, exchanges */
} part;

static void part_free(part *p)
{
    for (int i = 0; i < p->batches; i++) weft_session_free(p->session[i]);
    weft_plan_free(p->plan);
    weft_params_free(p->store);
    weft_graph_free(p->g);
}

/* Plans the graph and makes the sessions, each of which has its batch. */
static weft_status part_open(part *p, size_t n_targets, int batches, weft_communicator *c,
                             int threads, weft_error *error)
{
    const weft_session_options o = {
        .threads = threads, .communicators = &c, .n_communicators = c != NULL};
    p->store = weft_params_new();
    if (weft_params_init(p->store, p->g, SEED, error) != WEFT_OK) return error->status;
    p->plan =
        weft_plan_new(p->g, p->targets, n_targets, &(weft_plan_options){.verify = true}, error);
    for (; p->plan && p->batches < batches; p->batches++) {
        weft_session *s = weft_session_new(p->plan, p->store, &o, error);
        p->session[p->batches] = s;
        if (!s) return error->status;
        weft_session_set_run_number(s, (uint64_t)p->batches);
        for (int i = 0; i < MAX_INPUTS; i++)
            if (weft_is_value(p->inputs[i]) &&
                feed_made_up(s, p->g, p->inputs[i], p->batches) != WEFT_OK)
                return error->status;
    }
    return error->status;
}

static weft_status open_whole(part *p, const char *text, bool training, int batches,
                              weft_error *error)
{
    model m;
    *p = (part){.g = NULL};
    const weft_status status = model_build(&m, text, training, error);
    p->g = m.g;
    if (status != WEFT_OK) return status;
    memcpy(p->inputs, m.built.inputs, sizeof m.built.inputs);
    p->n = test_params(p->g, p->params, MAX_PARAMS);
    p->loss = p->targets[p->n] = m.built.loss;
    weft_grad(p->g, m.built.loss, p->params, p->n, p->targets);
    return part_open(p, p->n + 1, batches, NULL, 1, error);
}

/* Gradients as they become complete. */
typedef struct heard {
    weft_value gradient[MAX_PARAMS];
} heard;

static void hear(void *context, size_t i, weft_value gradient)
{
    ((heard *)context)->gradient[i] = gradient;
}

static weft_status open_stage(part *p, const char *text, bool training, int batches,
                              weft_communicator *c, int threads, weft_error *error)
{
    model m;
    *p = (part){.g = NULL};
    weft_stage *stage = NULL;
    if (model_build(&m, text, training, error) == WEFT_OK)
        stage =
            weft__stage_new(m.g, &m.built.loss, 1, true, (weft_ranks){0, c->rank, c->size}, error);
    weft_graph_free(m.g);
    if (!stage) return error->status;
    p->g = weft__stage_graph(stage);
    for (int i = 0; i < MAX_INPUTS; i++) p->inputs[i] = weft__stage_value(stage, m.built.inputs[i]);
    p->n = test_params(p->g, p->params, MAX_PARAMS);
    size_t n = p->n;
    p->loss = weft__stage_value(stage, m.built.loss);
    if (weft_is_value(p->loss)) p->targets[n++] = p->loss;
    heard h = {.gradient = {{0, 0}}};
    const weft_value one = weft_scalar(p->g, WEFT_F64, 1);
    const weft_grad_values values = {&m.built.loss, &one, 1, p->params, p->n};
    p->targets[n++] = weft__stage_grad(stage, &values, p->targets,
                                       &(weft_grad_hooks){.ready = hear, .context = &h}, &p->pause);
    weft__stage_free(stage);
    for (size_t i = 0; i < p->n; i++)
        if (h.gradient[i].id != p->targets[i].id)
            return weft_error_set(error, WEFT_INTERNAL, "ready", "gradient %zu is not reported", i);
    return part_open(p, n, batches, c, threads, error);
}

/* ---- Sums of gradients ---- */

/* The gradients of a part, added over its batches; and the losses. */
typedef struct results {
    double loss[MAX_BATCHES];
    bool has_loss;
    size_t n;
    char name[MAX_PARAMS][48];
    double *gradient[MAX_PARAMS];
    size_t elements[MAX_PARAMS];
    uint64_t hash;
} results;

static void results_free(results *r)
{
    for (size_t i = 0; i < r->n; i++) free(r->gradient[i]);
}

static void collect(const part *p, results *r)
{
    r->n = p->n;
    r->hash = 0xcbf29ce484222325u;
    r->has_loss = weft_is_value(p->loss);
    for (int b = 0; b < p->batches && r->has_loss; b++)
        weft_session_fetch(p->session[b], p->loss, &r->loss[b], sizeof *r->loss, NULL);
    for (size_t i = 0; i < p->n; i++) {
        snprintf(r->name[i], sizeof r->name[i], "%s", weft_name_of(p->g, p->params[i]));
        r->elements[i] = (size_t)weft_shape_numel(weft_shape_of(p->g, p->params[i]));
        r->gradient[i] = calloc(r->elements[i] + 1, sizeof(double));
        for (int b = 0; r->gradient[i] && b < p->batches; b++) {
            weft_tensor t;
            if (weft_session_tensor(p->session[b], p->targets[i], &t, NULL) != WEFT_OK) continue;
            for (size_t k = 0; k < r->elements[i]; k++) {
                r->gradient[i][k] += ((double *)t.data)[k];
                uint64_t bits;
                memcpy(&bits, (double *)t.data + k, sizeof bits);
                r->hash = (r->hash ^ bits) * 0x100000001b3u;
            }
        }
    }
}

/* ---- Compared with the whole ---- */

typedef struct sample {
    const char *text;
    int sizes; /* the most stages */
    bool training;
    bool thin; /* layers are so cheap that a stage may be left without parameters */
} sample;

typedef struct comparison {
    const sample *sample;
    int batches;
    results of[MAX_RANKS][2]; /* by rank; the first and the second time */
} comparison;

static const results *holder(const comparison *c, int r, const char *name, size_t *index)
{
    const results *of = &c->of[r][0];
    for (*index = 0; *index < of->n; ++*index)
        if (!strcmp(of->name[*index], name)) return of;
    return NULL;
}

/* The largest difference between a gradient of the whole and the sum of those of its holders;
 * infinite if no rank holds the parameter. */
static double difference(const comparison *c, int size, const results *whole, size_t i,
                         int *holders)
{
    double most = 0;
    *holders = 0;
    for (size_t k = 0; k < whole->elements[i]; k++) {
        double sum = 0;
        *holders = 0;
        for (int r = 0; r < size; r++) {
            size_t at;
            const results *h = holder(c, r, whole->name[i], &at);
            if (!h || !h->gradient[at]) continue;
            sum += h->gradient[at][k];
            ++*holders;
        }
        if (!(fabs(sum - whole->gradient[i][k]) <= most)) most = fabs(sum - whole->gradient[i][k]);
    }
    return *holders ? most : INFINITY;
}

/* Compares all; returns how many parameters have several holders. */
static int check(const comparison *c, int size, const results *whole)
{
    int losses = 0, shared = 0;
    for (int r = 0; r < size; r++) {
        CU_ASSERT_EQUAL(c->of[r][0].hash, c->of[r][1].hash);
        CU_ASSERT_TRUE(c->of[r][0].n > 0 || c->sample->thin);
        if (!c->of[r][0].has_loss) continue;
        losses++;
        for (int b = 0; b < c->batches; b++) {
            CU_ASSERT_EQUAL(c->of[r][0].loss[b], whole->loss[b]);
            CU_ASSERT_TRUE(whole->loss[b] > 0);
        }
    }
    CU_ASSERT_EQUAL(losses, 1);
    for (size_t i = 0; i < whole->n; i++) {
        int holders;
        const double off = difference(c, size, whole, i, &holders);
        if (!(off <= ROUNDING_F64))
            printf("\n    %s in %d stages: %s: %g\n", c->sample->text, size, whole->name[i], off);
        CU_ASSERT_TRUE(off <= ROUNDING_F64);
        shared += holders > 1;
    }
    return shared;
}

static void run_parts(rank *r, void (*run)(part *p, rank *r))
{
    comparison *c = r->shared;
    for (int i = 0; i < 2; i++) {
        part p;
        if (open_stage(&p, c->sample->text, c->sample->training, c->batches, r->communicator, 1 + i,
                       &r->error) == WEFT_OK)
            run(&p, r);
        if (r->error.status == WEFT_OK) collect(&p, &c->of[r->communicator->rank][i]);
        part_free(&p);
    }
}

/* One batch after the other. */
static void in_turn(part *p, rank *r)
{
    for (int b = 0; b < p->batches; b++)
        if (weft_session_run(p->session[b], &r->error) != WEFT_OK) return;
}

/* One forward, one backward: a stage is ahead by as many forward passes as stages follow. */
static void ahead(part *p, rank *r)
{
    int forward = 0;
    for (int b = 0; b < p->batches; b++) {
        for (; weft_is_value(p->pause) && forward < p->batches &&
               forward <= b + r->communicator->size - 1 - r->communicator->rank;
             forward++)
            if (weft_session_run_before(p->session[forward], p->pause, &r->error) != WEFT_OK)
                return;
        if (weft_session_run(p->session[b], &r->error) != WEFT_OK) return;
    }
}

static void run_in_turn(rank *r)
{
    run_parts(r, in_turn);
}

static void run_ahead(rank *r)
{
    run_parts(r, ahead);
}

static void compare(const sample *s, int batches, void (*run)(rank *r), int *shared)
{
    rank ranks[MAX_RANKS];
    weft_error error = WEFT_NO_ERROR;
    part whole;
    results expected = {.n = 0};
    comparison *c = calloc(1, sizeof *c);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    const weft_status status = open_whole(&whole, s->text, s->training, batches, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    for (int b = 0; b < batches; b++)
        CU_ASSERT_EQUAL(weft_session_run(whole.session[b], NULL), WEFT_OK);
    collect(&whole, &expected);
    for (int size = 1; size <= s->sizes; size++) {
        *c = (comparison){.sample = s, .batches = batches};
        run_ranks(size, run, c, ranks);
        expect_good(ranks, size);
        const int n = check(c, size, &expected);
        if (shared) *shared = n;
        for (int r = 0; r < 2 * size; r++) results_free(&c->of[r / 2][r % 2]);
    }
    results_free(&expected);
    part_free(&whole);
    free(c);
}

/* Wide enough that computing a layer costs more than sending what it reads. */
#define BLOCKS   "f64=1 d_model=160 heads=4 d_ff=320 batch=1 "
#define SEQUENCE "layers=3 length=3 vocab=13 "
#define PAIRS    "source_len=3 target_len=2 vocab=13 "
#define CELLS    "f64=1 vocab=13 width=160 hidden=160 batch=1 length=3 "

static void test_models(void)
{
    static const sample samples[] = {
        {"transformer encoder_layers=2 decoder_layers=2 " BLOCKS PAIRS, 4, false, false},
        {"transformer encoder_layers=1 decoder_layers=2 norm=pre tied=0 " BLOCKS PAIRS, 4, false,
         false},
        {"gpt " BLOCKS SEQUENCE, 4, false, false},
        {"llama kv_heads=2 " BLOCKS SEQUENCE, 4, false, false},
        {"bert " BLOCKS SEQUENCE, 4, false, false},
        {"encoder length=3 layers=3 " BLOCKS, 4, false, false},
        {"rnn layers=3 " CELLS, 4, false, true},
        {"lstm layers=2 tied=1 " CELLS, 4, false, true},
        {"feed-forward f64=1 d_model=6 d_ff=8", 2, false, true},
        {MASKS, 3, false, false},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        compare(&samples[i], 1, run_in_turn, NULL);
}

/* The masks of a batch are those of the whole model. */
static void test_dropout(void)
{
    static const sample samples[] = {
        {"transformer dropout=0.5 encoder_layers=1 decoder_layers=1 " BLOCKS PAIRS, 4, true, false},
        {"gpt dropout=0.3 " BLOCKS SEQUENCE, 3, true, false},
        {"lstm dropout=0.4 layers=2 " CELLS, 3, true, true},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        compare(&samples[i], 2, run_in_turn, NULL);
}

static void test_shared(void)
{
    static const sample tied = {"gpt tied=1 " BLOCKS SEQUENCE, 3, false, false};
    static const sample untied = {"gpt tied=0 " BLOCKS SEQUENCE, 3, false, false};
    int shared;
    compare(&tied, 1, run_in_turn, &shared);
    CU_ASSERT_EQUAL(shared, 1); /* the embedding matrix */
    compare(&untied, 1, run_in_turn, &shared);
    CU_ASSERT_EQUAL(shared, 0);
}

static void test_one_forward_one_backward(void)
{
    static const sample samples[] = {
        {"transformer dropout=0.5 encoder_layers=1 decoder_layers=1 " BLOCKS PAIRS, 3, true, false},
        {"gpt " BLOCKS SEQUENCE, 4, false, false},
        {"lstm layers=2 " CELLS, 3, false, true},
        {MASKS, 3, false, false},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        compare(&samples[i], MAX_BATCHES, run_ahead, NULL);
}

void stages_tests(void)
{
    CU_pSuite suite = CU_add_suite("stages", NULL, NULL);
    CU_add_test(suite, "models in 1 to 4 stages equal the whole", test_models);
    CU_add_test(suite, "the same masks of dropout", test_dropout);
    CU_add_test(suite, "a parameter of several stages", test_shared);
    CU_add_test(suite, "one forward, one backward", test_one_forward_one_backward);
}
