/* The parts of the trainer: updates (trainer.c) and evaluations (evaluate.c), graphs and plans of
 * batches (graphs.c, graph_runs.c), checkpoints (checkpoint.c, pieces.c). What several processes do
 * otherwise is in distributed/training/; it uses the functions that are WEFT_PRIVATE_API. */
#ifndef WEFT_MODELS_TRAINER_H
#define WEFT_MODELS_TRAINER_H

#include <weft/models.h>
#include <weft/parallel.h>

#include "base/private.h"
#include "run/plans.h"
#include "hooks.h"
#include "sums.h"

typedef enum graph_kind {
    GRAPH_SUM,     /* adds the gradients of a batch to the running sum */
    GRAPH_STORE,   /* stores the running sum in a slot; has no shape */
    GRAPH_ADD,     /* adds a stored sum to the running one; has no shape */
    GRAPH_UPDATE,  /* gradients of this process's last batch, and the update */
    GRAPH_EVALUATE /* the metric, without dropout */
} graph_kind;

struct trainer_graph {
    plan_entry plan; /* first member: the list frees it */
    graph_kind kind;
    weft_batch_shape shape;
    int slot; /* of stored sums; store and add */
    /* Until the graph is built: the stage of the model, and parameters of which this process has
     * pieces only; NULL if it has all. */
    struct weft_stage *stage;
    struct weft_gathered *gathered;
    weft_value loss;     /* of the whole graph; built.loss is that of the stage, if it has it */
    weft_value pause;    /* before whose node the forward pass of a stage ends; may be none */
    weft_value sent;     /* complete when the stage's exchanges are; may be none */
    weft_value metric;   /* evaluations; none in stages that do not have it */
    weft_value accuracy; /* the same; none without one */
    weft_built built;
    size_t input_bytes[WEFT_BUILT_VALUES];
    weft_dtype dtype; /* of the loss and of the fed scalars */
    /* Fed scalars. Sum: the running sum becomes old_weight * sum + gradient of weight * loss.
     * Update: the same with a weight; inverse = 1 / weight of all batches; lr, and ema_decay of the
     * average. Without accumulation there is no weight. */
    weft_value lr, ema_decay, old_weight, weight, inverse;
    weft_value norm, target;
};

/* Lists of one value per trained parameter, and then per running average (weft_track): gradients,
 * new values, and updates to group. The gradient of an average is the value that it follows. */
struct graph_lists {
    weft_trainer *t;
    trainer_graph *s;
    weft_value *params, *grads, *updated, *group;
    const weft_tracked *tracked;
    size_t n_tracked;
    weft_value *pieces;  /* room for this process's pieces of the parameters */
    weft_value *owned;   /* what the update changes: `params` or `pieces` */
    bool *counted;       /* of a split model: weft_model_split.counted */
    size_t n, n_trained; /* without the averages */
    weft_value one;      /* of the loss's dtype */
};

/* Of the batches and the model, this process's part. */
typedef struct trainer_place {
    int rank, size;    /* among the processes that share the batches; 0 of 1 if none does */
    bool in_turn;      /* batches are dealt so, and sums are of pieces of the gradients */
    weft_ranks world;  /* all processes */
    weft_ranks tensor; /* those that divide layers */
    bool divided;      /* the model is divided into parts of layers or stages */
    bool has_parts;    /* this process has only a part of the model, or pieces of its parameters */
} trainer_place;

struct weft_trainer {
    weft_trainer_options o;
    char options[WEFT_OPTIONS_TEXT]; /* of the builder */
    weft_param_group *groups;        /* of the optimiser, followed by its texts */
    weft_batch_source batches;
    const trainer_hooks *hooks;          /* of several processes; NULL: this one is alone */
    struct trainer_processes *processes; /* theirs; else NULL */
    trainer_place place;
    sum_schedule sums; /* of this process's batches of an update */
    double *numbers;   /* of all batches of an update */
    weft_params *params;
    weft_params *averaged;    /* the model with averaged parameters; NULL without an average */
    weft_params *whole_store; /* a divided model, whole; NULL before it was asked for */
    plan_list plans;
    const trainer_graph *updated; /* whose run has the gradients of the last update; NULL: none */
    bool planned;                 /* a plan was made in this update */
    bool resumed;                 /* the store had the progress of a training */
    bool states, averages;        /* the store had states of a training; averages among them */
    double accuracy;              /* of the last evaluation */
    void *inputs[WEFT_BUILT_VALUES];
    size_t input_capacity[WEFT_BUILT_VALUES]; /* bytes */
    weft_trainer_progress progress;
    weft_error error;
};

/* ---- Errors (errors.c) ---- */

/* Each sets the trainer's error and returns its status. */
WEFT_PRIVATE_API weft_status weft__trainer_fail(weft_trainer *t, weft_status status,
                                                const char *where, const char *message);
WEFT_PRIVATE_API weft_status weft__trainer_no_memory(weft_trainer *t);
/* An empty store, with tensors from the trainer's allocator; NULL with the trainer's error. */
WEFT_PRIVATE_API weft_params *weft__trainer_store(weft_trainer *t);
/* The same with the tensors of the options' base. */
weft_params *weft__trainer_model_store(weft_trainer *t);
/* Whether a tensor is one of those, which are not saved. */
static inline bool trainer_is_base(const weft_trainer *t, const char *name)
{
    return t->o.base && weft_params_find(t->o.base, name, NULL);
}
/* weft__trainer_no_memory, and signals the other processes, which wait for this one's part of an
 * exchange. */
WEFT_PRIVATE_API weft_status weft__ranks_no_memory(weft_trainer *t);
/* Exchanges reports with this rank's t->error, and `n` numbers of each batch, of which every rank
 * has those of its own on entry and all on return. In a divided model the process that has the loss
 * provides them. t->error becomes that of the lowest rank that has one, report->spent that of rank
 * 0. */
WEFT_PRIVATE_API weft_status weft__ranks_agree(weft_trainer *t, rank_report *report,
                                               double *numbers, rank_batches dealt, size_t n);
/* Spreads the error of one process, in t->error, to all. */
WEFT_PRIVATE_API weft_status weft__checkpoint_agree(weft_trainer *t);

/* ---- Batches of several processes (sums.c) ---- */

/* How the batches of an update are dealt. */
WEFT_PRIVATE_API rank_batches weft__ranks_batches(const weft_trainer *t);
/* How many batches a rank of those that share them has, and the number of its k-th. */
WEFT_PRIVATE_API uint32_t weft__ranks_count(const weft_trainer *t, rank_batches dealt, int rank);
WEFT_PRIVATE_API uint32_t weft__ranks_batch(const weft_trainer *t, rank_batches dealt, int rank,
                                            uint32_t k);

/* Begin and end a public call: false, with the caller's error, if the trainer is NULL; the status,
 * after copying the trainer's error to the caller's. */
bool weft__trainer_begin(weft_trainer *t, weft_error *error);
weft_status weft__trainer_end(const weft_trainer *t, weft_status status, weft_error *error);

/* ---- Trainers (trainer.c) ---- */

/* Makes a trainer with checked options, without batches and store; NULL on failure. */
weft_trainer *weft__trainer_unbound(const weft_trainer_options *options, weft_error *error);

/* ---- Graphs of batches (graphs.c, graph_runs.c) ---- */

static inline weft_batch_shape shape_at(const weft_batch_source *source, size_t index)
{
    return source->shape(source->context, index);
}

static inline void start_epoch(const weft_batch_source *source, uint64_t epoch)
{
    if (source->start) source->start(source->context, epoch);
}

/* Builds the graph of the whole model, in whole layers if `tensor` has one rank. NULL on failure.
 */
WEFT_PRIVATE_API weft_graph *weft__trainer_build_model(weft_trainer *t, weft_batch_shape shape,
                                                       bool training, weft_ranks tensor,
                                                       weft_built *built);
/* The name of the value that is the gradient of a parameter, with options.retain_gradients. False
 * if it would be too long. */
#define TRAINER_GRADIENT_BYTES 256
static inline bool trainer_gradient_name(const char *param, char name[TRAINER_GRADIENT_BYTES])
{
    const int n = snprintf(name, TRAINER_GRADIENT_BYTES, "gradient.%s", param);
    return n > 0 && n < TRAINER_GRADIENT_BYTES;
}
/* Adds the gradients of running averages. */
WEFT_PRIVATE_API void weft__graph_add_tracked(const trainer_graph *s, const graph_lists *l,
                                              weft_value weight, weft_value *grads,
                                              const weft_grad_hooks *ready);
/* Adds the backward pass of the whole model. */
WEFT_PRIVATE_API void weft__graph_differentiate(const trainer_graph *s, const graph_lists *l,
                                                weft_value weight, weft_value *grads,
                                                const weft_grad_hooks *ready);
/* Adds this process's last gradient, or its sum over a round, to the sums before: values[] become
 * the stored ones, and then the running one. Returns how many are stored. */
WEFT_PRIVATE_API int weft__graph_last_sums(const graph_lists *l, size_t i, weft_value gradient,
                                           weft_value *values);
/* Builds a graph from its kind and shape. */
WEFT_PRIVATE_API weft_status weft__trainer_graph_build(weft_trainer *t, trainer_graph *s);
/* Plans a graph. */
weft_status weft__trainer_graph_plan(weft_trainer *t, trainer_graph *s);
/* The graph of a kind, shape and slot (0 for graphs without one), with an open session; NULL on
 * failure. The graphs of store and add need a shape only to declare parameters: they take that of
 * the first batch. */
trainer_graph *weft__trainer_graph_for(weft_trainer *t, graph_kind kind, weft_batch_shape shape,
                                       int slot);
/* Whether a state begins anew if the store lacks it: in a new training all do, except what the file
 * of a loaded store should have; in a resumed one averages if its checkpoint has none, sums, and
 * states that other files have. The context is the trainer. */
WEFT_PRIVATE_API bool weft__trainer_may_begin(void *context, const char *name);
/* The same in a lane other than 0. Lanes share graphs and plans, but no memory, so graphs of
 * different lanes can be in progress at a time. */
WEFT_PRIVATE_API trainer_graph *weft__trainer_graph_in_lane(weft_trainer *t, graph_kind kind,
                                                            weft_batch_shape shape, int slot,
                                                            int lane);
WEFT_PRIVATE_API void weft__trainer_graph_free(weft_trainer *t, trainer_graph *s);
/* Fills t->inputs with batch `index` of a source, and sets *weight to its weight. */
WEFT_PRIVATE_API weft_status weft__trainer_graph_fill(weft_trainer *t, const trainer_graph *s,
                                                      const weft_batch_source *source, size_t index,
                                                      size_t *weight);
/* The same, and feeds them. */
WEFT_PRIVATE_API weft_status weft__trainer_graph_feed(weft_trainer *t, trainer_graph *s,
                                                      const weft_batch_source *source, size_t index,
                                                      size_t *weight);
/* Feeds a scalar; does nothing for WEFT_NO_VALUE. */
WEFT_PRIVATE_API weft_status weft__trainer_graph_feed_scalar(weft_trainer *t, trainer_graph *s,
                                                             weft_value input, double x);
WEFT_PRIVATE_API double weft__trainer_graph_fetch_scalar(const trainer_graph *s, weft_value value);
/* Runs the graph as update `number`. If a result is not finite, the error names the first such
 * node. */
WEFT_PRIVATE_API weft_status weft__trainer_graph_run(weft_trainer *t, trainer_graph *s,
                                                     uint64_t number);
/* Runs the forward pass of a stage; weft__trainer_graph_run goes on from there. */
WEFT_PRIVATE_API weft_status weft__trainer_graph_run_forward(weft_trainer *t, trainer_graph *s,
                                                             uint64_t number);

/* ---- Updates (trainer.c) ---- */

/* The numbers of a batch: its loss and its weight. */
enum { BATCH_LOSS, BATCH_WEIGHT, BATCH_NUMBERS };
/* The same, and its accuracy, of an evaluation. */
enum { BATCH_ACCURACY = BATCH_NUMBERS, EVALUATED_NUMBERS };

/* The index of the next batch; starts the next epoch after the last batch. */
WEFT_PRIVATE_API size_t weft__trainer_next_batch(weft_trainer *t, weft_trainer_progress *s);
/* The number of this process's k-th batch of an update among those of all updates. */
WEFT_PRIVATE_API uint64_t weft__trainer_batch_number(const weft_trainer *t, uint32_t k);
/* Whether the program's `stop` ends the call, which becomes the trainer's error. */
WEFT_PRIVATE_API bool weft__trainer_stopped(weft_trainer *t);
/* Runs a graph that moves sums, in a lane. */
WEFT_PRIVATE_API weft_status weft__trainer_move_sums(weft_trainer *t, graph_kind kind, int slot,
                                                     int lane);
/* Feeds what the update depends on besides its batch; `numbers` are those of all its batches. */
WEFT_PRIVATE_API weft_status weft__trainer_feed_update(weft_trainer *t, trainer_graph *s,
                                                       double spent, const double *numbers,
                                                       weft_update_report *report);

/* ---- Checkpoints (checkpoint.c) ---- */

/* Writes the builder's options into t->options. */
weft_status weft__checkpoint_describe(weft_trainer *t);
/* Reads the training state from the store's metadata and checks that model, data and options are
 * the same. Without metadata the training starts with update 0. */
weft_status weft__checkpoint_resume(weft_trainer *t);
/* Copies the model's states, averaged if there are averages, into the states of `to`. Every process
 * must call it. */
WEFT_PRIVATE_API weft_status weft__checkpoint_copy_model(weft_trainer *t, weft_params *to);

/* ---- Checkpoints of several processes (pieces.c) ---- */

weft_status weft__pieces_save(weft_trainer *t, const char *path);
/* Fills the states of this process's pieces from the checkpoint, or the whole states of a single
 * process from the pieces of several. The store has the states already. Sets *averages if there
 * were some. */
weft_status weft__pieces_load(weft_trainer *t, bool *averages);
/* Whether weft__pieces_load reads a state of the training, so that the store may lack it. */
bool weft__pieces_follow(const weft_trainer *t, const weft_state_key *key);
/* Removes the files of ranks in the folder of PATH that the lines of `list` do not name. */
void weft__pieces_clean(const char *path, const char *list);

/* ---- Texts of options (options_text.c) ---- */

/* Words of such a text, at most. */
#define WEFT_OPTIONS_WORDS (WEFT_OPTIONS_TEXT / 4) /* a word has at least "k=v " */

/* The options of a checkpoint as this version writes them: with today's names and every option, for
 * those that a listed model gained since. Returns `current`, or `text` if `model` is not listed or
 * does not have these options. */
const char *weft__options_current(const char *model, const char *text,
                                  char current[WEFT_OPTIONS_TEXT]);
/* Whether two texts of "key=value key=value ..." have other keys or values; their order does not
 * count, and numbers are compared by value. Sets *was and *is to the first words that differ, or to
 * NULL where the text has no such key. Words end at a space or NUL. */
bool weft__options_differ(const char *a, const char *b, const char **was, const char **is);

#endif
