/* Gathers a model that several processes have in parts and stages, or in pieces (zero 3): records
 * which process has which states, and sends them to one process or to all. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

/* States travel in groups of about this many bytes, or one by one if they are larger. */
#define GROUP_BYTES ((size_t)4 << 20)

struct whole_model {
    weft_graph *graph;        /* of the whole model */
    const weft_value *states; /* those of the model, without the training's */
    size_t n;
    mesh_group group; /* the processes that have the model together */
    weft_piece *held; /* [processes of the group][n]; no elements: a process does not have it */
};

void weft__whole_free(whole_model *w)
{
    if (!w) return;
    weft_graph_free(w->graph);
    free(w->held);
    free(w);
}

static const char *name_of(const whole_model *w, size_t i)
{
    return weft_name_of(w->graph, w->states[i]);
}

static size_t bytes_of(const whole_model *w, size_t i)
{
    return weft_tensor_bytes(weft_dtype_of(w->graph, w->states[i]),
                             weft_shape_of(w->graph, w->states[i]));
}

/* What a process of the model has of a state. */
static const weft_piece *held_by(const whole_model *w, int rank, size_t i)
{
    return &w->held[(size_t)rank * w->n + i];
}

static int64_t elements_of(const weft_piece *p)
{
    return p->end - p->first;
}

/* Whether a process has something of a state that no lower one has: of equal copies the lowest
 * process sends and saves its own. */
static bool is_source(const whole_model *w, int rank, size_t i)
{
    const weft_piece *own = held_by(w, rank, i);
    for (int r = 0; r < rank; r++)
        if (!memcmp(held_by(w, r, i), own, sizeof *own)) return false;
    return elements_of(own) > 0;
}

/* Finds what this process's store has of a state. */
static bool find_own(const weft_trainer *t, const weft_params *own, size_t i, weft_tensor *tensor)
{
    const char *name = name_of(t->processes->whole, i);
    char piece[WEFT_STATE_KEY_BYTES];
    const weft_state_key key = weft__shards_key(t->processes->shards, name);
    return weft_params_find(own, name, tensor) ||
           weft_params_find(own, weft_state_key_write(&key, piece, sizeof piece), tensor);
}

/* ---- Who has what ---- */

static weft_status build_whole(weft_trainer *t, whole_model *w, weft_batch_shape shape)
{
    weft_built built;
    w->graph = weft__trainer_build_model(t, shape, true, (weft_ranks){0, 0, 1}, &built);
    if (!w->graph) return t->error.status;
    w->states = weft_graph_states(w->graph, &w->n);
    w->held = calloc(w->n * ((size_t)weft__mesh_ranks(&t->processes->mesh, w->group).size + 1) + 1,
                     sizeof *w->held);
    return w->held ? WEFT_OK : weft__trainer_no_memory(t);
}

/* Lists what this process's graph has of the model. */
static void list_own(const weft_trainer *t, const weft_graph *own, weft_piece *held)
{
    const whole_model *w = t->processes->whole;
    for (size_t i = 0; i < w->n; i++) {
        const weft_value state = weft_graph_find(own, name_of(w, i));
        held[i] = (weft_piece){0};
        if (weft_is_value(state)) held[i] = weft__piece_of(own, state);
        if (w->group == MESH_DATA)
            weft__shards_piece(t->processes->shards, name_of(w, i), t->place.rank, &held[i].first,
                               &held[i].end);
    }
}

/* Every element of the model must be on one process, except for copies; and if layers are to be
 * divided, some must be. */
static weft_status check_whole(weft_trainer *t, const whole_model *w)
{
    const int size = weft__mesh_ranks(&t->processes->mesh, w->group).size;
    bool parts = false;
    for (size_t i = 0; i < w->n; i++) {
        const int64_t elements = weft_shape_numel(weft_shape_of(w->graph, w->states[i]));
        int64_t sum = 0;
        for (int r = 0; r < size; r++) {
            if (!is_source(w, r, i)) continue;
            sum += elements_of(held_by(w, r, i));
            parts |= held_by(w, r, i)->length < INT64_MAX;
        }
        if (sum != elements)
            return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, name_of(w, i),
                                  "the processes have %lld of its %lld elements: a divided model "
                                  "must use all its parameters",
                                  (long long)sum, (long long)elements);
    }
    if (t->processes->mesh.tensor == 1 || parts) return WEFT_OK;
    return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->o.builder.name,
                          "has no layers that %d processes could divide among them: only attention "
                          "and feed-forward layers can",
                          t->processes->mesh.tensor);
}

static bool is_training(void *context, const char *name)
{
    (void)context;
    return weft_state_key_read(name).kind != WEFT_STATE_MODEL;
}

weft_status weft__whole_split_store(weft_trainer *t)
{
    if (!t->place.has_parts) return t->error.status;
    const weft_params_filter training = {.selects = is_training};
    const weft_batch_shape shape = shape_at(&t->batches, 0);
    const mesh_group group = t->place.divided ? MESH_MODEL : MESH_DATA;
    weft_communicator *model = t->processes->mesh.groups[group];
    trainer_graph *own = calloc(1, sizeof *own);
    whole_model *w = t->processes->whole = calloc(1, sizeof *w);
    if (!own || !w) {
        weft__trainer_no_memory(t);
    } else if (t->error.status == WEFT_OK) {
        w->group = group;
        own->kind = GRAPH_UPDATE;
        own->shape = shape;
        if (weft__trainer_graph_build(t, own) == WEFT_OK) build_whole(t, w, shape);
    }
    if (weft__checkpoint_agree(t) == WEFT_OK) {
        weft_piece *held = w->held + (size_t)model->size * w->n;
        list_own(t, own->plan.graph, held);
        if (weft_communicator_gather(model, held, w->n * sizeof *held, w->held, &t->error) ==
                WEFT_OK &&
            check_whole(t, w) == WEFT_OK)
            weft_params_keep_parts(t->params, own->plan.graph, &training, &t->error);
    }
    weft__trainer_graph_free(t, own);
    return t->error.status;
}

bool weft__whole_saves(const weft_trainer *t, const weft_state_key *key)
{
    const whole_model *w = t->processes->whole;
    const weft_state_key param = {.param = key->param, .param_bytes = key->param_bytes};
    char name[WEFT_STATE_KEY_BYTES];
    if (!w) return true;
    const weft_value state =
        weft_graph_find(w->graph, weft_state_key_write(&param, name, sizeof name));
    for (size_t i = 0; i < w->n; i++)
        if (w->states[i].id == state.id)
            return is_source(
                w, weft__mesh_place(&t->processes->mesh, w->group, t->processes->mesh.rank), i);
    return true;
}

/* ---- Gathering ---- */

/* The states that travel together, and room for them. */
typedef struct gathering {
    weft_trainer *t;
    const whole_model *w;
    const weft_params *own;
    weft_params *to; /* NULL if this process gets nothing */
    weft_communicator *model;
    bool everyone;
    size_t first, end;
    char *send, *receive;
    size_t *sent, *received; /* bytes by rank */
} gathering;

/* The end of the group that begins with state `first`, and its bytes. */
static size_t group_end(const whole_model *w, size_t first, size_t *bytes)
{
    size_t i = first;
    *bytes = 0;
    do *bytes += bytes_of(w, i++);
    while (i < w->n && *bytes + bytes_of(w, i) <= GROUP_BYTES);
    return i;
}

static weft_status add_wholes(gathering *g)
{
    const whole_model *w = g->w;
    weft_tensor own;
    weft_status status = WEFT_OK;
    for (size_t i = 0; g->to && status == WEFT_OK && i < w->n; i++)
        status = weft_params_add(g->to, name_of(w, i), weft_dtype_of(w->graph, w->states[i]),
                                 weft_shape_of(w->graph, w->states[i]), NULL, &g->t->error);
    for (size_t i = 0; status == WEFT_OK && i < w->n; i++)
        if (elements_of(held_by(w, g->model->rank, i)) > 0 && !find_own(g->t, g->own, i, &own))
            status = weft_error_set(&g->t->error, WEFT_NOT_FOUND, name_of(w, i),
                                    "is not in the store of this process");
    return status;
}

static weft_status make_room(gathering *g)
{
    const size_t size = (size_t)g->model->size;
    size_t most = 0, bytes;
    for (size_t i = 0; i < g->w->n;) {
        i = group_end(g->w, i, &bytes);
        if (bytes > most) most = bytes;
    }
    g->send = malloc(most + 1);
    g->receive = g->to ? malloc(most + 1) : NULL;
    g->sent = calloc(2 * size, sizeof *g->sent);
    if (!g->send || !g->sent || (g->to && !g->receive)) return weft__trainer_no_memory(g->t);
    g->received = g->sent + size;
    return add_wholes(g);
}

static size_t source_bytes(const gathering *g, int rank, size_t i)
{
    const size_t each = weft_dtype_bytes(weft_dtype_of(g->w->graph, g->w->states[i]));
    return is_source(g->w, rank, i) ? (size_t)elements_of(held_by(g->w, rank, i)) * each : 0;
}

/* Copies this process's states of the group into `send`. */
static void pack(const gathering *g)
{
    char *at = g->send;
    for (size_t i = g->first; i < g->end; i++) {
        const size_t bytes = source_bytes(g, g->model->rank, i);
        weft_tensor own;
        if (!bytes || !find_own(g->t, g->own, i, &own)) continue;
        memcpy(at, own.data, bytes);
        at += bytes;
    }
}

/* Copies the states of the group out of `receive`. */
static void unpack(const gathering *g)
{
    const char *at = g->receive;
    for (int r = 0; r < g->model->size; r++)
        for (size_t i = g->first; i < g->end; i++) {
            const size_t bytes = source_bytes(g, r, i);
            weft_tensor to;
            if (!bytes || !weft_params_find(g->to, name_of(g->w, i), &to)) continue;
            const weft_piece whole = {0, weft_shape_numel(to.shape), INT64_MAX, INT64_MAX, 0};
            weft__piece_copy(&whole, to.data, held_by(g->w, r, i), at, weft_dtype_bytes(to.dtype));
            at += bytes;
        }
}

static weft_status gather_group(gathering *g)
{
    weft_exchange x = {.kind = g->everyone ? WEFT_ALL_GATHER : WEFT_ALL_TO_ALL,
                       .send = g->send,
                       .receive = g->receive,
                       .send_bytes = g->sent,
                       .receive_bytes = g->received};
    for (int r = 0; r < g->model->size; r++) {
        size_t bytes = 0;
        for (size_t i = g->first; i < g->end; i++) bytes += source_bytes(g, r, i);
        g->received[r] = g->to ? bytes : 0;
        if (r == g->model->rank) g->sent[0] = bytes;
    }
    pack(g);
    const weft_status status = weft_communicator_run(g->model, &x, &g->t->error);
    if (status == WEFT_OK && g->to) unpack(g);
    return status;
}

/* Gathers the model of which each process has its states in `own`. */
static weft_status gather(weft_trainer *t, const weft_params *own, weft_params *to, bool everyone)
{
    size_t bytes;
    gathering g = {.t = t,
                   .w = t->processes->whole,
                   .own = own,
                   .to = everyone || t->place.world.rank == 0 ? to : NULL,
                   .model = t->processes->mesh.groups[t->processes->whole->group],
                   .everyone = everyone};
    /* The processes of one replica have the whole model, unless they have pieces of it. */
    const bool takes_part = everyone || g.w->group == MESH_DATA || t->place.rank == 0;
    if (t->error.status == WEFT_OK && takes_part) make_room(&g);
    if (weft__checkpoint_agree(t) == WEFT_OK && takes_part)
        for (; g.first < g.w->n && t->error.status == WEFT_OK; g.first = g.end) {
            g.end = group_end(g.w, g.first, &bytes);
            gather_group(&g);
        }
    free(g.send);
    free(g.receive);
    free(g.sent);
    return t->error.status;
}

weft_status weft__whole_gather(weft_trainer *t, weft_params *to)
{
    return gather(t, t->params, to, false);
}

/* Adds room for what this process has of a state. */
static void add_own(weft_trainer *t, weft_params *own, size_t i)
{
    const char *name = name_of(t->processes->whole, i);
    char piece[WEFT_STATE_KEY_BYTES];
    weft_tensor state;
    if (!find_own(t, t->params, i, &state)) return;
    const weft_state_key key = weft__shards_key(t->processes->shards, name);
    if (!weft_params_find(t->params, name, NULL))
        name = weft_state_key_write(&key, piece, sizeof piece);
    weft_params_add(own, name, state.dtype, state.shape, NULL, &t->error);
}

weft_status weft__whole_averaged(weft_trainer *t, weft_params *to, bool everyone)
{
    const whole_model *w = t->processes->whole;
    if (!(t->o.ema > 0)) return gather(t, t->params, to, everyone);
    weft_params *own = weft__trainer_store(t);
    for (size_t i = 0; own && t->error.status == WEFT_OK && i < w->n; i++) add_own(t, own, i);
    if (weft__checkpoint_agree(t) == WEFT_OK) weft__checkpoint_copy_model(t, own);
    gather(t, own, to, everyone);
    weft_params_free(own);
    return t->error.status;
}

/* Gathers the pieces of a parameter's average from all ranks into `into`. */
static weft_status gather_average(weft_trainer *t, const char *name, const weft_tensor *into)
{
    const weft_shards *shards = t->processes->shards;
    weft_communicator *c = t->processes->mesh.groups[MESH_DATA];
    const int size = t->place.size;
    const size_t each = weft_dtype_bytes(into->dtype);
    char state[WEFT_STATE_KEY_BYTES];
    weft_state_key key = weft__shards_key(shards, name);
    weft_tensor own;
    size_t *bytes = malloc((size_t)size * sizeof *bytes);
    if (!bytes) return weft__ranks_no_memory(t);
    for (int r = 0; r < size; r++) {
        int64_t first, end;
        weft__shards_piece(shards, name, r, &first, &end);
        bytes[r] = (size_t)(end - first) * each;
    }
    key.kind = WEFT_STATE_AVERAGE;
    weft_params_find(t->params, weft_state_key_write(&key, state, sizeof state), &own);
    const weft_exchange x = {
        .kind = WEFT_ALL_GATHER, .send = own.data, .receive = into->data, .receive_bytes = bytes};
    if (size == 1) memcpy(into->data, own.data, bytes[0]);
    weft_status status = WEFT_OK;
    if (c) status = weft_communicator_run(c, &x, &t->error);
    free(bytes);
    return status;
}

weft_status weft__whole_average(weft_trainer *t, const char *param, const weft_tensor *into,
                                bool *gathered)
{
    int64_t first, end;
    /* With zero 3, both stores have pieces. */
    *gathered = t->processes->o.zero < 3 &&
                weft__shards_piece(t->processes->shards, param, 0, &first, &end);
    return *gathered ? gather_average(t, param, into) : WEFT_OK;
}
