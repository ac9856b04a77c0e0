/* What several processes do otherwise in a training than one process: functions of the library
 * weft-distributed (distributed/training/processes.c), so that this library calls nothing of it. */
#ifndef WEFT_MODELS_HOOKS_H
#define WEFT_MODELS_HOOKS_H

#include <weft/communicator.h>
#include <weft/train.h>

typedef struct trainer_graph trainer_graph;
typedef struct graph_lists graph_lists;

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

/* Those that concern a graph are called while it is built. */
typedef struct trainer_hooks {
    /* Copies and checks the options (o.processes). Unless this process is the only one, sets
     * t->processes, t->hooks and t->place. */
    weft_status (*open)(weft_trainer *t);
    void (*close)(weft_trainer *t);
    /* Signals the others that the options of this process are refused. */
    void (*refuse)(const struct weft_trainer_processes *options);
    /* Fails unless all processes have the same model, data and options; connects them. */
    weft_status (*join)(weft_trainer *t);
    /* Begins the epoch of t->progress, divides the model, and leaves in the store what this process
     * has of it. If one process fails, all fail. */
    weft_status (*divide)(weft_trainer *t);
    /* See weft__ranks_agree. */
    weft_status (*agree)(weft_trainer *t, rank_report *report, double *numbers, rank_batches dealt,
                         size_t n);
    /* Signals the others that this process cannot go on, for the reason t->error. */
    void (*fail)(weft_trainer *t);
    /* What this process has exchanged. */
    weft_traffic (*traffic)(const weft_trainer *t);
    /* One update of a divided model. Sets *last to its last graph. */
    weft_status (*update)(weft_trainer *t, weft_trainer_progress *progress, rank_report *r,
                          double *numbers, weft_update_report *report, trainer_graph **last);

    /* ---- Graphs ---- */

    /* Replaces the whole model in a graph by what this process has of it. */
    weft_status (*cut)(weft_trainer *t, trainer_graph *s);
    /* Frees what only building a graph needs. */
    void (*built)(trainer_graph *s);
    /* The array of *count whole parameters of a graph. */
    const weft_value *(*params)(const trainer_graph *s, size_t *count);
    /* Completes the lists: `counted`, and `owned` if this process has pieces of parameters. The
     * first lists of all decide how parameters are cut. */
    weft_status (*list)(weft_trainer *t, trainer_graph *s, graph_lists *l);
    /* The key of this process's piece of a parameter, or of the whole if it is not cut. */
    weft_state_key (*key)(const weft_trainer *t, const char *param);
    /* Adds the backward pass. l->grads become the gradients of this batch; if `reduces`, those of
     * this process's pieces, summed over all batches of the update, or over those of a round. */
    void (*differentiate)(weft_trainer *t, trainer_graph *s, graph_lists *l, weft_value weight,
                          bool reduces);
    /* Replaces l->grads of parameters that several stages read by the sums over these stages.
     * Returns a target that is complete when all are sent, or none. */
    weft_value (*sum_tied)(weft_trainer *t, trainer_graph *s, graph_lists *l);
    /* Adds what weft_apply_gradients must know of the processes. */
    void (*share_update)(weft_trainer *t, const graph_lists *l, weft_optimizer *optimizer);
    /* This process's piece of the new value of a parameter. */
    weft_value (*own)(const weft_trainer *t, const trainer_graph *s, weft_value param,
                      weft_value value);

    /* ---- The whole model. Every process must call these functions, except for `saves`. ---- */

    /* Whether this process saves its states of a parameter, rather than another one that has the
     * same. */
    bool (*saves)(const weft_trainer *t, const weft_state_key *key);
    /* Gathers the states of a divided model, parts joined, in the store of the first process. */
    weft_status (*gather)(weft_trainer *t, weft_params *to);
    /* The same of the averaged model, if there are averages; if `everyone`, in all stores. */
    weft_status (*gather_averaged)(weft_trainer *t, weft_params *to, bool everyone);
    /* Gathers the average of a parameter if each process has a piece of it, and sets *gathered to
     * whether it does. */
    weft_status (*gather_average)(weft_trainer *t, const char *param, const weft_tensor *into,
                                  bool *gathered);
} trainer_hooks;

/* The functions of weft_trainer_processes; NULL if weft_trainer_processes_of has not made them. */
static inline const trainer_hooks *hooks_of(const struct weft_trainer_processes *processes)
{
    return *(const trainer_hooks *const *)(const void *)processes;
}

#endif
