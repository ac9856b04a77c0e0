/* The rules of the optimisers: the nodes that update one parameter. SGD and Adam are ops; the
 * others are moving averages (weft_blend) and elementwise nodes, which end in an update of SGD. */
#include "update.h"

#include "base/text.h"
#include "base/vmath.h"
#include "ir/state_key.h"

#include <math.h>
#include <string.h>

/* ---- What a rule reads ---- */

const char *weft__update_param_name(const train_update *s, weft_value param)
{
    const char *name = weft_name_of(s->g, param);
    const struct weft_shards *shards = s->o->shards;
    const char *whole = shards ? processes_of(shards)->param(shards, name) : NULL;
    return whole ? whole : name;
}

bool weft__update_has_piece(const train_update *s, weft_value param)
{
    return weft_state_key_read(weft_name_of(s->g, param)).is_piece;
}

bool weft_name_matches(const char *patterns, const char *name)
{
    if (!patterns || !name) return false;
    for (;; patterns++) {
        size_t length = strcspn(patterns, ",");
        if (length && weft__text_match(patterns, length, name)) return true;
        patterns += length;
        if (!*patterns) return false;
    }
}

const weft_param_group *weft__update_group(const weft_optimizer *o, const char *name)
{
    static const weft_param_group none = {0};
    for (size_t i = 0; i < o->n_groups; i++)
        if (weft_name_matches(o->groups[i].names, name)) return &o->groups[i];
    return &none;
}

int64_t weft__update_first(const train_update *s, weft_value param)
{
    const struct weft_shards *shards = s->o->shards;
    if (!shards || weft__update_has_piece(s, param)) return 0;
    return processes_of(shards)->first(shards, weft__update_param_name(s, param));
}

weft_value weft__update_piece(const train_update *s, weft_value param)
{
    const struct weft_shards *shards = s->o->shards;
    if (!shards || weft__update_has_piece(s, param)) return param;
    return processes_of(shards)->slice(s->g, shards, weft__update_param_name(s, param), param);
}

/* A zeroed state for a parameter, or for this rank's piece of it. */
static weft_value moment(const train_update *s, weft_state_kind kind, weft_value param,
                         weft_value grad)
{
    weft_graph *g = s->g;
    const char *name = weft__update_param_name(s, param);
    weft_state_key key = {.param = name, .param_bytes = strlen(name)};
    if (s->o->shards) key = processes_of(s->o->shards)->key(s->o->shards, name);
    key.kind = kind;
    key.optimizer = s->name;
    return weft__state_of_key(g, &key, weft_dtype_of(g, param), weft_shape_of(g, grad));
}

/* One update. */
typedef struct rule {
    const train_update *s;
    weft_value param, grad, lr;
    double decay; /* of weights */
} rule;

/* scale grad + decay param. */
static weft_value whole_gradient(const rule *r, double decay)
{
    weft_graph *g = r->s->g;
    weft_value grad = r->grad;
    if (weft_is_value(r->s->scale)) grad = weft_mul(g, grad, r->s->scale);
    if (decay == 0) return grad;
    return weft_add(g, grad, weft_mul_scalar(g, weft__update_piece(r->s, r->param), decay));
}

/* A state becomes decay state + weight x. */
static weft_value moving(const rule *r, weft_state_kind kind, weft_value x, double decay,
                         double weight)
{
    weft_graph *g = r->s->g;
    const weft_value state = moment(r->s, kind, r->param, r->grad);
    const weft_value kept = weft_mul_scalar(g, r->s->one, decay);
    return weft_blend(g, state, x, kept, weft_mul_scalar(g, r->s->one, weight));
}

/* x / (sqrt(v) + eps) */
static weft_value over_root(weft_graph *g, weft_value x, weft_value v, double eps)
{
    return weft_div(g, x, weft_add_scalar(g, weft_sqrt(g, v), eps));
}

/* param -= lr direction, with momentum if it is not 0. */
static weft_value descend(const rule *r, weft_value direction, weft_value lr, double momentum)
{
    const weft_sgd_options o = {.momentum = momentum, .first = weft__update_first(r->s, r->param)};
    const weft_value buf =
        momentum == 0 ? WEFT_NO_VALUE : moment(r->s, WEFT_STATE_MOMENTUM, r->param, r->grad);
    return weft_sgd_update(r->s->g, r->param, buf, direction, lr, WEFT_NO_VALUE, &o);
}

/* Fails unless x is in [0, end). */
static bool in_range(const rule *r, const char *option, double x, double end)
{
    if (x >= 0 && x < end) return true;
    weft_graph_fail_in(r->s->g, "weft_train_update", WEFT_BAD_ARGUMENT,
                       "update \"%s\": %s is %g, it must be in [0, %g)", r->s->name, option, x,
                       end);
    return false;
}

/* ---- Rules ---- */

static weft_value update_sgd(const rule *r)
{
    weft_sgd_options o = r->s->o->sgd;
    o.weight_decay = r->decay;
    o.first = weft__update_first(r->s, r->param);
    const bool has_buffer = weft_option(o.momentum, 0) != 0;
    const weft_value buf =
        has_buffer ? moment(r->s, WEFT_STATE_MOMENTUM, r->param, r->grad) : WEFT_NO_VALUE;
    return weft_sgd_update(r->s->g, r->param, buf, r->grad, r->lr, r->s->scale, &o);
}

static weft_value update_adam(const rule *r)
{
    const train_update *s = r->s;
    weft_adam_options o = s->o->adam;
    o.decoupled = s->o->kind == WEFT_ADAMW;
    o.weight_decay = r->decay;
    o.first = weft__update_first(s, r->param);
    const weft_value m = moment(s, WEFT_STATE_MOMENT_1, r->param, r->grad);
    const weft_value v = moment(s, WEFT_STATE_MOMENT_2, r->param, r->grad);
    const weft_adam_values values = {r->param, m, v, r->grad, r->lr, s->t, s->scale};
    return weft_adam_update(s->g, &values, &o);
}

static weft_value update_adagrad(const rule *r)
{
    weft_graph *g = r->s->g;
    const double eps = weft_option(r->s->o->rms.eps, 1e-10);
    if (!in_range(r, "eps", eps, INFINITY)) return WEFT_NO_VALUE;
    const weft_value grad = whole_gradient(r, r->decay);
    const weft_value v = moving(r, WEFT_STATE_MOMENT_2, weft_square(g, grad), 1, 1);
    return descend(r, over_root(g, grad, v, eps), r->lr, 0);
}

static weft_value update_rmsprop(const rule *r)
{
    weft_graph *g = r->s->g;
    const weft_rms_options *o = &r->s->o->rms;
    const double alpha = weft_option(o->alpha, 0.99), eps = weft_option(o->eps, 1e-8);
    if (!in_range(r, "alpha", alpha, 1) || !in_range(r, "eps", eps, INFINITY)) return WEFT_NO_VALUE;
    const weft_value grad = whole_gradient(r, r->decay);
    weft_value v = moving(r, WEFT_STATE_MOMENT_2, weft_square(g, grad), alpha, 1 - alpha);
    if (o->centered) {
        const weft_value mean = moving(r, WEFT_STATE_MOMENT_1, grad, alpha, 1 - alpha);
        /* Rounding can make the variance of equal gradients negative. */
        v = weft_relu(g, weft_sub(g, v, weft_square(g, mean)));
    }
    return descend(r, over_root(g, grad, v, eps), r->lr, weft_option(o->momentum, 0));
}

/* x / (1 - beta^t): computed in f64, since f32 would lose digits of 1 - beta^t. */
static weft_value corrected(const rule *r, weft_value x, double beta)
{
    weft_graph *g = r->s->g;
    const weft_value t = weft_cast(g, r->s->t, WEFT_F64);
    const weft_value power = beta > 0 ? weft_exp(g, weft_mul_scalar(g, t, vm_log_f64(beta)))
                                      : weft_fill(g, WEFT_F64, WEFT_SCALAR, 0);
    const weft_value rest = weft_sub(g, weft_scalar(g, WEFT_F64, 1), power);
    return weft_mul(g, x, weft_cast(g, weft_reciprocal(g, rest), weft_dtype_of(g, x)));
}

/* |param| / |direction|; 1 if either is 0. */
static weft_value trust_ratio(const rule *r, weft_value direction)
{
    weft_graph *g = r->s->g;
    const weft_value zero = weft_scalar(g, weft_dtype_of(g, direction), 0);
    const weft_value one = weft_scalar(g, weft_dtype_of(g, direction), 1);
    const weft_value above = weft_global_norm(g, &r->param, 1);
    const weft_value below = weft_global_norm(g, &direction, 1);
    const weft_value both = weft_greater(g, weft_minimum(g, above, below), zero);
    const weft_value divisor = weft_where(g, both, below, one);
    return weft_where(g, both, weft_div(g, above, divisor), one);
}

static weft_value update_lamb(const rule *r)
{
    weft_graph *g = r->s->g;
    const weft_adam_options *o = &r->s->o->adam;
    const double beta1 = weft_option(o->beta1, 0.9), beta2 = weft_option(o->beta2, 0.999);
    const double eps = weft_option(o->eps, 1e-6);
    if (!in_range(r, "beta1", beta1, 1) || !in_range(r, "beta2", beta2, 1) ||
        !in_range(r, "eps", eps, INFINITY))
        return WEFT_NO_VALUE;
    const weft_value grad = whole_gradient(r, 0);
    const weft_value m = moving(r, WEFT_STATE_MOMENT_1, grad, beta1, 1 - beta1);
    const weft_value v = moving(r, WEFT_STATE_MOMENT_2, weft_square(g, grad), beta2, 1 - beta2);
    const weft_value mean = corrected(r, m, beta1);
    weft_value direction = over_root(g, mean, corrected(r, v, beta2), eps);
    if (r->decay != 0) direction = weft_add(g, direction, weft_mul_scalar(g, r->param, r->decay));
    return descend(r, direction, weft_mul(g, r->lr, trust_ratio(r, direction)), 0);
}

/* By weft_optimizer_kind. */
static const struct {
    weft_value (*update)(const rule *r);
    bool counts;  /* reads the number of the update */
    size_t decay; /* where weft_optimizer has its weight decay */
} rules[] = {
    {update_sgd, false, offsetof(weft_optimizer, sgd.weight_decay)},
    {update_adam, true, offsetof(weft_optimizer, adam.weight_decay)},
    {update_adam, true, offsetof(weft_optimizer, adam.weight_decay)},
    {update_adagrad, false, offsetof(weft_optimizer, rms.weight_decay)},
    {update_rmsprop, false, offsetof(weft_optimizer, rms.weight_decay)},
    {update_lamb, true, offsetof(weft_optimizer, adam.weight_decay)},
};

bool weft__update_counts(const weft_optimizer *o)
{
    return rules[o->kind].counts;
}

static double decay_of(const weft_optimizer *o, const weft_param_group *group, const char *name)
{
    double decay;
    memcpy(&decay, (const char *)o + rules[o->kind].decay, sizeof decay);
    if (weft_name_matches(o->no_decay, name)) decay = 0;
    return weft_option(group->weight_decay, decay);
}

/* Parameters of one group share the node of their learning rate once equal nodes are merged. */
weft_value weft__update_of(const train_update *s, weft_value param, weft_value grad)
{
    const char *name = weft__update_param_name(s, param);
    const weft_param_group *group = weft__update_group(s->o, name);
    const double lr_scale = weft_option(group->lr_scale, 1), decay = decay_of(s->o, group, name);
    const rule r = {s, param, grad, lr_scale == 1 ? s->lr : weft_mul_scalar(s->g, s->lr, lr_scale),
                    decay};
    if (!in_range(&r, "weight_decay", decay, INFINITY)) return WEFT_NO_VALUE;
    return rules[s->o->kind].update(&r);
}
