/* 004: the encoder-decoder Transformer whose heads share a projection, on the two pairs of
 * sentences of the document. */
#include "examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SOURCE = 9, TARGET = 7, VOCAB = 10, LOGITS = BATCH * TARGET * VOCAB };

static const int32_t source[BATCH * SOURCE] = {1, 5, 6, 4, 3, 9, 5, 2, 0,
                                               1, 8, 7, 3, 4, 5, 6, 7, 2};
static const int32_t target[BATCH][TARGET + 1] = {{1, 7, 4, 3, 5, 9, 2, 0},
                                                  {1, 5, 6, 2, 4, 7, 6, 2}};

typedef struct machine {
    weft_graph *graph;
    weft_built built;
    weft_value lr, step; /* of training */
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
    int32_t in[BATCH * TARGET], out[BATCH * TARGET]; /* the targets but the last, but the first */
} machine;

static void machine_close(machine *a)
{
    weft_session_free(a->session);
    weft_plan_free(a->plan);
    weft_params_free(a->store);
    weft_graph_free(a->graph);
}

static bool feed(machine *a, const int32_t *from, const int32_t *to)
{
    return weft_session_feed(a->session, weft_built_input(&a->built, "source"), from, sizeof source,
                             NULL) == WEFT_OK &&
           weft_session_feed(a->session, weft_built_input(&a->built, "target_in"), to, sizeof a->in,
                             NULL) == WEFT_OK &&
           weft_session_feed(a->session, weft_built_input(&a->built, "target_out"), a->out,
                             sizeof a->out, NULL) == WEFT_OK;
}

/* With an Adam step for training. */
static bool machine_open(machine *a, bool training, const char *const *options, size_t n,
                         weft_error *error)
{
    *a = (machine){.store = weft_params_new()};
    for (int b = 0; b < BATCH; b++) {
        memcpy(a->in + b * TARGET, target[b], TARGET * sizeof(int32_t));
        memcpy(a->out + b * TARGET, target[b] + 1, TARGET * sizeof(int32_t));
    }
    a->graph = weft_graph_new();
    const weft_model *model = weft_model_find("transformer-shared");
    if (weft_model_build_text(a->graph, model, options, n, training, &a->built, error) != WEFT_OK)
        return false;
    if (training) {
        weft_optimizer adam = WEFT_ADAM_DEFAULT;
        a->lr = weft_input(a->graph, "lr", WEFT_F32, WEFT_SCALAR);
        a->step = weft_train_update(a->graph, a->built.loss, NULL, 0, a->lr, &adam, NULL);
    }
    const weft_value targets[] = {a->built.outputs[0], a->built.loss, a->step};
    a->plan = weft_plan_new(a->graph, targets, training ? 3 : 2, NULL, error);
    if (a->plan && weft_params_init(a->store, a->graph, 1, error) == WEFT_OK)
        a->session = weft_session_new(a->plan, a->store, NULL, error);
    return a->session && feed(a, source, a->in);
}

static bool run_logits(machine *a, float *logits)
{
    return weft_session_run(a->session, NULL) == WEFT_OK &&
           weft_session_fetch(a->session, a->built.outputs[0], logits, LOGITS * sizeof *logits,
                              NULL) == WEFT_OK;
}

/* ---- Masks ---- */

/* Changes each target token in turn and counts the earlier logits that change by a bit. */
static bool earlier_changes(machine *a, const float *before, size_t *changed, size_t *later)
{
    float after[LOGITS];
    *changed = *later = 0;
    for (int place = 1; place < TARGET; place++) {
        int32_t in[BATCH * TARGET];
        memcpy(in, a->in, sizeof in);
        for (int b = 0; b < BATCH; b++) in[b * TARGET + place] = 1 + in[b * TARGET + place] % 9;
        if (!feed(a, source, in) || !run_logits(a, after)) return false;
        for (int i = 0; i < LOGITS; i++) {
            bool differs = memcmp(&before[i], &after[i], sizeof after[i]) != 0;
            *(i / VOCAB % TARGET < place ? changed : later) += differs;
        }
    }
    return true;
}

/* Changes the contents of the encoder's padded positions: the embedding of the padding token. */
static bool padding_changes(machine *a, const float *before, size_t *changed)
{
    float after[LOGITS];
    weft_tensor table;
    *changed = 0;
    if (!weft_params_find(a->store, "source_embedding", &table)) return false;
    for (int i = 0; i < table.shape.dim[1]; i++) ((float *)table.data)[i] += 3;
    if (!feed(a, source, a->in) || !run_logits(a, after)) return false;
    for (int i = 0; i < LOGITS; i++)
        *changed += memcmp(&before[i], &after[i], sizeof after[i]) != 0;
    return true;
}

static void count_row(report *r, const char *figure, size_t count, bool none)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", count);
    report_row(r, "004 Transformer", figure, none ? "0" : "some", text, (double)count,
               (count == 0) == none);
}

static void forward(report *r)
{
    machine a;
    weft_error error = {0};
    float before[LOGITS];
    char printed[64], ours[64];
    size_t changed, later;
    weft_tensor logits;
    const weft_shape shape = WEFT_SHAPE(BATCH, TARGET, VOCAB);
    bool good = machine_open(&a, false, NULL, 0, &error) && run_logits(&a, before) &&
                weft_session_tensor(a.session, a.built.outputs[0], &logits, NULL) == WEFT_OK;
    if (good) {
        for (int i = 0; i < LOGITS; i++) good = good && isfinite(before[i]);
        weft_shape_text(shape, printed, sizeof printed);
        weft_shape_text(logits.shape, ours, sizeof ours);
        report_row(r, "004 Transformer", "logits", printed, ours, NAN,
                   good && weft_shape_equal(shape, logits.shape));
    }
    if (good && (good = earlier_changes(&a, before, &changed, &later))) {
        count_row(r, "earlier logits that a token changes", changed, true);
        count_row(r, "later logits that it changes", later, false);
    }
    if (good && (good = padding_changes(&a, before, &changed)))
        count_row(r, "logits that padding changes", changed, true);
    if (!good)
        report_row(r, "004 Transformer", "runs", "", error.message[0] ? error.message : "fails",
                   NAN, false);
    machine_close(&a);
}

/* ---- Over-fitting ---- */

#define MAX_STEPS 600
#define ENOUGH    0.01f

/* The rate rises over 40 steps and then stays. Without dropout, because the model shall over-fit.
 */
static bool train(machine *a, float *loss, int *steps)
{
    for (*steps = 0; *steps < MAX_STEPS && !(*loss < ENOUGH); ++*steps) {
        float rate = 3e-4f * fminf(1, (float)(*steps + 1) / 40);
        if (weft_session_feed(a->session, a->lr, &rate, sizeof rate, NULL) != WEFT_OK ||
            weft_session_run(a->session, NULL) != WEFT_OK ||
            weft_session_fetch(a->session, a->built.loss, loss, sizeof *loss, NULL) != WEFT_OK)
            return false;
        if (*steps % 25 == 0) fprintf(stderr, "004 step %d loss %.4f\n", *steps, (double)*loss);
    }
    return true;
}

static void overfit(report *r)
{
    static const char *const options[] = {"dropout=0"};
    machine a;
    weft_error error = {0};
    float loss = INFINITY;
    int steps = 0;
    char figure[64], ours[32];
    bool good = machine_open(&a, true, options, 1, &error) && train(&a, &loss, &steps);
    snprintf(figure, sizeof figure, "loss after %d steps", steps);
    snprintf(ours, sizeof ours, "%.4f", (double)loss);
    report_row(r, "004 Transformer", good ? figure : error.message, "< 0.01", ours, (double)loss,
               good && loss < ENOUGH);
    machine_close(&a);
}

void document_004(report *r)
{
    forward(r);
    overfit(r);
    report_left_out(r, "004 Transformer", "logits", "left out: no seed stated");
}
