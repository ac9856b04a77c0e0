/* The parts of the trainer: updates (trainer.c, pipeline.c) and evaluations (evaluate.c), graphs
 * and plans of batches (graphs.c, graph_runs.c), its processes (mesh.c, ranks.c), models that they
 * divide (divided.c, whole.c), checkpoints (checkpoint.c, pieces.c). */
#ifndef WEFT_MODELS_TRAINER_H
#define WEFT_MODELS_TRAINER_H

#include <weft/models.h>
#include <weft/distributed.h>
#include <weft/train.h>

#include "run/plans.h"
#include "mesh.h"
#include "sums.h"

typedef struct whole_model whole_model; /* see whole.c */

typedef enum graph_kind {
    GRAPH_SUM,     /* adds the gradients of a batch to the running sum */
    GRAPH_STORE,   /* stores the running sum in a slot; has no shape */
    GRAPH_ADD,     /* adds a stored sum to the running one; has no shape */
    GRAPH_UPDATE,  /* gradients of this process's last batch, and the update */
    GRAPH_EVALUATE /* the metric, without dropout */
} graph_kind;

typedef struct trainer_graph {
    plan_entry plan; /* first member: the list frees it */
    graph_kind kind;
    weft_batch_shape shape;
    int slot;                /* of stored sums; store and add */
    weft_stage *stage;       /* of the model; NULL if this process has all layers */
    weft_gathered *gathered; /* parameters, if this process has pieces of them only; else NULL */
    weft_value loss;         /* of the whole graph; built.loss is that of the stage, if it has it */
    weft_value pause;        /* before whose node the forward pass of a stage ends; may be none */
    weft_value sent;         /* complete when the stage's exchanges are; may be none */
    weft_value metric;       /* evaluations; none in stages that do not have it */
    weft_value accuracy;     /* the same; none without one */
    weft_built built;
    size_t input_bytes[WEFT_BUILT_VALUES];
    weft_dtype dtype; /* of the loss and of the fed scalars */
    /* Fed scalars. Sum: the running sum becomes old_weight * sum + gradient of weight * loss.
     * Update: the same with a weight; inverse = 1 / weight of all batches; lr, and ema_decay of the
     * average. Without accumulation there is no weight. */
    weft_value lr, ema_decay, old_weight, weight, inverse;
    weft_value norm, target;
} trainer_graph;

struct weft_trainer {
    weft_trainer_options o;
    char options[WEFT_OPTIONS_TEXT]; /* of the builder */
    weft_param_group *groups;        /* of the optimiser, followed by its texts */
    weft_batch_source batches;
    weft_communicator *communicator; /* of several processes; else NULL */
    mesh mesh;
    sum_schedule sums;   /* of this process's batches of an update */
    double *numbers;     /* of all batches of an update */
    weft_shards *shards; /* of parameters; NULL for one process, and before the first graph */
    weft_stage *stage;   /* of the first batch; says which parameters this process has */
    weft_params *params;
    weft_params *averaged;    /* the model with averaged parameters; NULL without an average */
    whole_model *whole;       /* of a divided model; else NULL */
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

/* Each sets the trainer's error and returns its status. */
weft_status weft__trainer_fail(weft_trainer *t, weft_status status, const char *where,
                               const char *message);
weft_status weft__trainer_no_memory(weft_trainer *t);

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
weft_graph *weft__trainer_build_model(weft_trainer *t, weft_batch_shape shape, bool training,
                                      weft_ranks tensor, weft_built *built);
/* The name of the value that is the gradient of a parameter, with options.retain_gradients. False
 * if it would be too long. */
#define TRAINER_GRADIENT_BYTES 256
static inline bool trainer_gradient_name(const char *param, char name[TRAINER_GRADIENT_BYTES])
{
    const int n = snprintf(name, TRAINER_GRADIENT_BYTES, "gradient.%s", param);
    return n > 0 && n < TRAINER_GRADIENT_BYTES;
}
/* Builds a graph from its kind and shape. */
weft_status weft__trainer_graph_build(weft_trainer *t, trainer_graph *s);
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
bool weft__trainer_may_begin(void *context, const char *name);
/* The same in another lane than 0. Lanes share graphs and plans, but no memory, so graphs of
 * different lanes can be in progress at a time. */
trainer_graph *weft__trainer_graph_in_lane(weft_trainer *t, graph_kind kind, weft_batch_shape shape,
                                           int slot, int lane);
void weft__trainer_graph_free(trainer_graph *s);
/* Fills t->inputs with batch `index` of a source, and sets *weight to its weight. */
weft_status weft__trainer_graph_fill(weft_trainer *t, const trainer_graph *s,
                                     const weft_batch_source *source, size_t index, size_t *weight);
/* The same, and feeds them. */
weft_status weft__trainer_graph_feed(weft_trainer *t, trainer_graph *s,
                                     const weft_batch_source *source, size_t index, size_t *weight);
/* Feeds a scalar; does nothing for WEFT_NO_VALUE. */
weft_status weft__trainer_graph_feed_scalar(weft_trainer *t, trainer_graph *s, weft_value input,
                                            double x);
double weft__trainer_graph_fetch_scalar(const trainer_graph *s, weft_value value);
/* Runs the graph as update `number`. If a result is not finite, the error names the first such
 * node. */
weft_status weft__trainer_graph_run(weft_trainer *t, trainer_graph *s, uint64_t number);
/* Runs the forward pass of a stage; weft__trainer_graph_run goes on from there. */
weft_status weft__trainer_graph_run_forward(weft_trainer *t, trainer_graph *s, uint64_t number);

/* ---- Several processes (ranks.c) ---- */

/* The message of a process to the others before an update, and after it. */
typedef struct rank_report {
    weft_error error;
    double spent;    /* of the time budget; that of rank 0 counts */
    uint64_t checks; /* of what must be equal: number of the update, or of batches */
} rank_report;

/* How the processes share `total` batches: neighbours each, or in turn (a round has one of each
 * process). */
typedef struct rank_batches {
    uint32_t total;
    bool in_turn;
} rank_batches;

/* How the batches of an update are dealt. */
rank_batches weft__ranks_batches(const weft_trainer *t);
/* How many batches a rank of those that share them has, and the number of its k-th. */
uint32_t weft__ranks_count(const weft_trainer *t, rank_batches dealt, int rank);
uint32_t weft__ranks_batch(const weft_trainer *t, rank_batches dealt, int rank, uint32_t k);
/* This process among those that share batches; 0 of 1 if none does. */
int weft__ranks_own(const weft_trainer *t);
int weft__ranks_size(const weft_trainer *t);
/* Exchanges reports with this rank's t->error, and `n` numbers of each batch, of which every rank
 * has those of its own on entry and all on return. In a divided model the process that has the loss
 * provides them. t->error becomes that of the lowest rank that has one, report->spent that of rank
 * 0. */
weft_status weft__ranks_agree(weft_trainer *t, rank_report *report, double *numbers,
                              rank_batches dealt, size_t n);
/* Fails for all processes, because this one has no memory for its part of an exchange. */
weft_status weft__ranks_no_memory(weft_trainer *t);
/* Fails unless all processes have the same model, data and options. */
weft_status weft__ranks_compare(weft_trainer *t);

/* ---- Divided models (divided.c) ---- */

/* Whether this process has only a part of the model: parts of layers, a stage, or pieces. */
bool weft__divided_has_parts(const weft_trainer *t);
/* Bytes for the name of a state, longer than any that a graph takes. */
enum { STATE_NAME = 1024 };
/* Cuts the model into stages, by the shape of the first batch of all. */
weft_status weft__divided_begin(weft_trainer *t, weft_batch_shape shape);
/* On several processes the first graph decides how its parameters are cut; those that are tied are
 * cut alone. */
weft_status weft__divided_shard(weft_trainer *t, const weft_graph *g, const weft_value *params,
                                const bool *tied, size_t n);
/* Replaces the whole model in a graph, which is built, by this process's stage. */
weft_status weft__divided_cut(weft_trainer *t, trainer_graph *s);
/* With zero 3, replaces the parameters in a graph, which is built, by this process's
 * pieces, gathered where they are read. */
weft_status weft__divided_gather(weft_trainer *t, trainer_graph *s);
/* Whether several stages read the parameter of that name. */
bool weft__divided_is_tied(const weft_trainer *t, const trainer_graph *s, const char *param);
/* Whether this process counts the gradient of a parameter, which others may have too, in the norm.
 */
bool weft__divided_counts(const weft_trainer *t, const trainer_graph *s, weft_value param);
/* Replaces the gradients of parameters that several stages read, or this process's pieces of them,
 * by the sums over these stages. Returns a target that is complete when all are sent, or none. */
weft_value weft__divided_sum_tied(weft_trainer *t, trainer_graph *s, const weft_value *params,
                                  size_t n, weft_value *grads);

/* ---- The whole of a divided model (whole.c) ----
 * Every process must call these functions, except for weft__whole_saves and weft__whole_free. */

/* Finds which process has which states of a divided model, and replaces the whole model in the
 * store by what this process has of it. Sets t->whole. If one process fails, all fail. */
weft_status weft__whole_split_store(weft_trainer *t);
void weft__whole_free(whole_model *w);
/* Whether this process saves its states of a parameter, rather than another one that has the same.
 */
bool weft__whole_saves(const weft_trainer *t, const char *param, size_t length);
/* Gathers the model of which each process has its states in `own`: all states of all stages, parts
 * joined, into the stores `to` of everyone, or only into that of the first process. */
weft_status weft__whole_gather(weft_trainer *t, const weft_params *own, weft_params *to,
                               bool everyone);
/* The same of the averaged model, if there are averages. */
weft_status weft__whole_averaged(weft_trainer *t, weft_params *to, bool everyone);

/* ---- Updates (trainer.c, pipeline.c) ---- */

/* The numbers of a batch: its loss and its weight. */
enum { BATCH_LOSS, BATCH_WEIGHT, BATCH_NUMBERS };
/* The same, and its accuracy, of an evaluation. */
enum { BATCH_ACCURACY = BATCH_NUMBERS, EVALUATED_NUMBERS };

/* The index of the next batch; starts the next epoch after the last batch. */
size_t weft__trainer_next_batch(weft_trainer *t, weft_trainer_progress *s);
/* The number of this process's k-th batch of an update among those of all updates. */
uint64_t weft__trainer_batch_number(const weft_trainer *t, uint32_t k);
/* Whether the program's `stop` ends the call, which becomes the trainer's error. */
bool weft__trainer_stopped(weft_trainer *t);
/* Runs a graph that moves sums, in a lane. */
weft_status weft__trainer_move_sums(weft_trainer *t, graph_kind kind, int slot, int lane);
/* Feeds what the update depends on besides its batch; `numbers` are those of all its batches. */
weft_status weft__trainer_feed_update(weft_trainer *t, trainer_graph *s, double spent,
                                      const double *numbers, weft_update_report *report);
/* One update of a divided model. Sets *last to its last graph. */
weft_status weft__pipeline_update(weft_trainer *t, weft_trainer_progress *progress, rank_report *r,
                                  double *numbers, weft_update_report *report,
                                  trainer_graph **last);

/* A hash of the compiled library (build_id.c). */
uint64_t weft__build_id(void);

/* ---- Checkpoints (checkpoint.c) ---- */

/* Writes the builder's options into t->options. */
weft_status weft__checkpoint_describe(weft_trainer *t);
/* Reads the training state from the store's metadata and checks that model, data and options are
 * the same. Without metadata the training starts with update 0. */
weft_status weft__checkpoint_resume(weft_trainer *t);
/* Copies the model's states, averaged if there are averages, into the states of `to`. Every process
 * must call it. */
weft_status weft__checkpoint_copy_model(weft_trainer *t, weft_params *to);

/* Whether this process writes the replicated state. */
bool weft__checkpoint_is_first(const weft_trainer *t);
/* Spreads the error of one process, in t->error, to all. */
weft_status weft__checkpoint_agree(weft_trainer *t);

/* ---- Checkpoints of several processes (pieces.c) ---- */

weft_status weft__pieces_save(weft_trainer *t, const char *path);
/* Fills the states of this process's pieces from the checkpoint, or the whole states of a single
 * process from the pieces of several. The store has the states already. Sets *averages if there
 * were some. */
weft_status weft__pieces_load(weft_trainer *t, bool *averages);
/* Whether weft__pieces_load reads a state of the training, so that the store may lack it. */
bool weft__pieces_follow(const weft_trainer *t, const char *name);
/* Whether a state is a sum of gradients, which no checkpoint has. */
bool weft__pieces_is_sum(const char *name);
/* Whether a state is a moving average of a parameter. */
bool weft__pieces_is_average(const char *name);
/* Removes the files of ranks in the folder of PATH that the lines of `list` do not name. */
void weft__pieces_clean(const char *path, const char *list);

/* ---- Texts of options (options_text.c) ---- */

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
