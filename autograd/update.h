/* A training update inside: what optimizer.c builds, and the rules of its updates (rules.c). */
#ifndef WEFT_AUTOGRAD_UPDATE_H
#define WEFT_AUTOGRAD_UPDATE_H

#include <weft/autograd.h>

#include "processes.h"

/* An update that is being built. The lists have room for n values each; frozen parameters are
 * removed from params, grads and counted. Running averages (weft_track) are at the end of params;
 * their gradients are the values that they move towards. */
typedef struct train_update {
    weft_graph *g;
    const weft_optimizer *o;
    const char *name;        /* of its states */
    weft_value lr, t, scale; /* t: the number of the update; scale: of the gradients */
    weft_value one; /* 1; with a guard, the run ends before it is computed if the update fails */
    weft_value *params, *grads;
    weft_value *updates; /* and one more */
    bool *counted;       /* in the norm of a split model; else NULL */
    size_t n, n_trained; /* all; without the running averages */
    const weft_tracked *tracked;
    size_t n_tracked;
    uint8_t *written; /* by value: an update node of the graph writes it */
    size_t n_written;
} train_update;

/* The name of a parameter, also if this is a piece of it (weft__gathered_piece). */
const char *weft__update_param_name(const train_update *s, weft_value param);
/* Whether the value itself is a piece, and not the whole parameter. */
bool weft__update_has_piece(const train_update *s, weft_value param);
/* The first group that matches a name; one without settings if there is none. */
const weft_param_group *weft__update_group(const weft_optimizer *optimizer, const char *name);
/* The first element, in the parameter that is given, of this rank's piece. */
int64_t weft__update_first(const train_update *s, weft_value param);
/* The parameter, or this rank's piece of it: the elements that `grads` has. */
weft_value weft__update_piece(const train_update *s, weft_value param);
/* Whether the rules read the number of the update. */
bool weft__update_counts(const weft_optimizer *optimizer);
/* Adds the update of a parameter. */
weft_value weft__update_of(const train_update *s, weft_value param, weft_value grad);

#endif
