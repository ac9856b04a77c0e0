/* Checkpoints of several processes. PATH has the replicated states, and in its metadata `shards`
 * the names of the ranks' files in the same folder, STEM.step-S.rank-R-of-N.safetensors, with the
 * states of their pieces (weft__shards_key). These files are written before PATH replaces its
 * predecessor, so PATH always names a whole set. Any number of processes can resume: each reads
 * what it needs. */
#include "trainer.h"

#include "base/platform.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".safetensors"

/* ---- Names of files ---- */

/* Splits a path into the folder, with its slash, and the stem of the file's name. */
typedef struct path_split {
    int folder, stem; /* bytes */
    const char *name;
} path_split;

static path_split split_path(const char *path)
{
    const char *name = weft__os_name(path);
    const size_t length = strlen(name), suffix = strlen(SUFFIX);
    const bool has = length > suffix && !strcmp(name + length - suffix, SUFFIX);
    return (path_split){(int)(name - path), (int)(has ? length - suffix : length), name};
}

/* The name of a rank's file, without the folder. */
static void shard_name(const weft_trainer *t, const char *path, int rank, char *name, size_t size)
{
    const path_split p = split_path(path);
    snprintf(name, size, "%.*s.step-%" PRIu64 ".rank-%d-of-%d" SUFFIX, p.stem, p.name,
             t->progress.updates, rank, t->place.world.size);
}

/* Whether a file's name is one of a rank's, of any update, or one that was not finished. */
static bool is_shard(const char *path, const char *name)
{
    const path_split p = split_path(path);
    int read = 0;
    return !strncmp(name, p.name, (size_t)p.stem) &&
           sscanf(name + p.stem, ".step-%*u.rank-%*d-of-%*d" SUFFIX "%n", &read) == 0 && read > 0;
}

/* Whether the lines of `list` have the name. */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, name, length) && (!at[length] || at[length] == '\n')) return true;
    }
    return false;
}

typedef struct cleaning {
    const char *path, *list;
} cleaning;

/* Removes a rank's file that is not in the list. */
static void clean_entry(void *context, const char *name)
{
    const cleaning *c = context;
    char other[4096 + 256];
    if (!is_shard(c->path, name) || is_listed(c->list, name)) return;
    snprintf(other, sizeof other, "%.*s%s", split_path(c->path).folder, c->path, name);
    weft__os_remove(other);
}

void weft__pieces_clean(const char *path, const char *list)
{
    const path_split p = split_path(path);
    char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", p.folder, path);
    weft__os_list(p.folder ? folder : ".", clean_entry, &(cleaning){path, list});
}

void weft_checkpoint_remove(const char *path)
{
    if (!path) return;
    weft__os_remove(path);
    weft__pieces_clean(path, "");
}

/* ---- Saving ---- */

/* Whether checkpoints have a state of training. Sums are meaningless between updates. */
static bool is_lasting(const weft_state_key *key)
{
    return key->kind != WEFT_STATE_MODEL && key->kind != WEFT_STATE_SUM;
}

/* Whether the store has a piece of a state. */
static bool has_pieces(const weft_params *params, const weft_state_key *state)
{
    for (size_t i = 0; i < weft_params_count(params); i++) {
        const weft_state_key key = weft_params_key(params, i);
        if (key.is_piece && weft_state_key_same(&key, state)) return true;
    }
    return false;
}

/* Whether PATH has a state: pieces are in the ranks' files. */
static bool is_common(void *context, const char *name)
{
    const weft_trainer *t = context;
    const weft_state_key key = weft_state_key_read(name);
    if (trainer_is_base(t, name)) return false;
    if (!is_lasting(&key)) return key.kind == WEFT_STATE_MODEL;
    return !t->hooks || !has_pieces(t->params, &key);
}

/* The pieces that this process saves: of those that several have, one saves them. */
static bool is_saved(void *context, const char *name)
{
    const weft_trainer *t = context;
    const weft_state_key key = weft_state_key_read(name);
    return is_lasting(&key) && key.is_piece && t->hooks->saves(t, &key);
}

/* Writes this rank's file. */
static weft_status save_own(weft_trainer *t, const char *path)
{
    const weft_params_filter pieces = {is_saved, t};
    const path_split p = split_path(path);
    char file[4096], name[512];
    shard_name(t, path, t->place.world.rank, name, sizeof name);
    if (snprintf(file, sizeof file, "%.*s%s", p.folder, path, name) >= (int)sizeof file)
        return weft__trainer_fail(t, WEFT_TOO_LARGE, path, "the path is too long");
    return weft_params_save(t->params, file, &pieces, &t->error);
}

/* The names of all ranks' files, a line each, which the caller frees. */
static char *list_shards(weft_trainer *t, const char *path)
{
    char name[512];
    const int size = t->place.world.size;
    char *list = malloc((size_t)size * sizeof name), *at = list;
    if (!list) weft__trainer_no_memory(t);
    for (int r = 0; list && r < size; r++) {
        shard_name(t, path, r, name, sizeof name);
        at += sprintf(at, "%s%s", r ? "\n" : "", name);
    }
    return list;
}

/* Copies to the whole model what else PATH has. */
static weft_status add_common(weft_trainer *t, weft_params *whole)
{
    for (size_t i = 0; t->error.status == WEFT_OK && i < weft_params_count(t->params); i++) {
        const char *name = weft_params_name(t->params, i);
        weft_tensor from, to;
        if (weft_params_key(t->params, i).kind == WEFT_STATE_MODEL || !is_common(t, name)) continue;
        weft_params_find(t->params, name, &from);
        if (weft_params_add(whole, name, from.dtype, from.shape, &to, &t->error) == WEFT_OK)
            memcpy(to.data, from.data, weft_tensor_bytes(from.dtype, from.shape));
    }
    if (weft_params_copy_meta(whole, t->params, NULL) != WEFT_OK) weft__trainer_no_memory(t);
    return t->error.status;
}

/* The first process writes PATH. A divided model takes all processes. */
static weft_status save_common(weft_trainer *t, const char *path)
{
    const weft_params_filter common = {is_common, t};
    const bool first = t->place.world.rank == 0;
    if (!t->place.has_parts && first && t->error.status == WEFT_OK)
        return weft_params_save(t->params, path, &common, &t->error);
    if (!t->place.has_parts) return t->error.status;
    weft_params *whole = weft__trainer_store(t);
    if (t->hooks->gather(t, whole) == WEFT_OK && first && add_common(t, whole) == WEFT_OK)
        weft_params_save(whole, path, NULL, &t->error);
    weft_params_free(whole);
    return t->error.status;
}

weft_status weft__pieces_save(weft_trainer *t, const char *path)
{
    char *list = NULL;
    if (t->hooks) {
        save_own(t, path);
        if (weft__checkpoint_agree(t) != WEFT_OK) return t->error.status;
        list = list_shards(t, path);
    }
    /* A single process that resumed the training of several no longer has their files. */
    if (list || (!t->hooks && weft_params_meta(t->params, "shards")))
        if (weft_params_set_meta(t->params, "shards", list ? list : "", NULL) != WEFT_OK)
            weft__trainer_no_memory(t);
    /* The next save begins when all have agreed, so its files are not in the folder yet. */
    if (save_common(t, path) == WEFT_OK && t->place.world.rank == 0)
        weft__pieces_clean(path, list ? list : "");
    free(list);
    return weft__checkpoint_agree(t);
}

/* ---- Loading ---- */

/* A state of this process: a whole one, or a piece. */
typedef struct own_state {
    const char *name;
    weft_state_key key;
    int64_t covered; /* elements that were loaded */
    weft_tensor tensor;
} own_state;

/* Reads tensor i of a store; false if it is not a lasting state, or does not have the elements that
 * its key says. */
static bool read_state(const weft_params *params, size_t i, own_state *s)
{
    *s = (own_state){.name = weft_params_name(params, i), .key = weft_params_key(params, i)};
    if (!is_lasting(&s->key) || !weft_params_find(params, s->name, &s->tensor)) return false;
    const int64_t elements = weft_shape_numel(s->tensor.shape);
    if (!s->key.is_piece) s->key.piece.end = elements;
    return s->key.piece.end - s->key.piece.first == elements;
}

/* Copies what one tensor of a file has of this process's states. */
static void take(const own_state *from, own_state *own, size_t n)
{
    const size_t bytes = weft_dtype_bytes(from->tensor.dtype);
    for (size_t i = 0; i < n; i++) {
        own_state *to = &own[i];
        if (!weft_state_key_same(&to->key, &from->key) || to->tensor.dtype != from->tensor.dtype ||
            to->tensor.data == from->tensor.data)
            continue;
        to->covered += weft__piece_copy(&to->key.piece, to->tensor.data, &from->key.piece,
                                        from->tensor.data, bytes);
    }
}

static void take_all(const weft_params *from, own_state *own, size_t n)
{
    own_state s;
    for (size_t i = 0; i < weft_params_count(from); i++)
        if (read_state(from, i, &s)) take(&s, own, n);
}

/* The states of this process, as a filter of files. */
typedef struct wanted_states {
    const own_state *own;
    size_t n;
} wanted_states;

/* Whether a tensor of a file has something of them. */
static bool is_wanted(void *context, const char *name)
{
    const wanted_states *w = context;
    const weft_state_key key = weft_state_key_read(name);
    for (size_t i = 0; i < w->n; i++)
        if (weft_state_key_same(&w->own[i].key, &key) &&
            weft__piece_copy(&w->own[i].key.piece, NULL, &key.piece, NULL, 0) > 0)
            return true;
    return false;
}

static bool same_meta(const weft_params *a, const weft_params *b, const char *key)
{
    const char *x = weft_params_meta(a, key), *y = weft_params_meta(b, key);
    return x && y && !strcmp(x, y);
}

static weft_status take_file(weft_trainer *t, const char *file, own_state *own, size_t n)
{
    wanted_states wanted = {own, n};
    const weft_params_filter states = {is_wanted, &wanted};
    weft_params *from = weft__trainer_store(t);
    weft_status status =
        from ? weft_params_load_some(from, file, &states, &t->error) : t->error.status;
    if (status == WEFT_OK &&
        (!same_meta(from, t->params, "step") || !same_meta(from, t->params, "run")))
        status = weft__trainer_fail(t, WEFT_BAD_FILE, file,
                                    "belongs to a different step or run than the checkpoint");
    if (status == WEFT_OK) take_all(from, own, n);
    weft_params_free(from);
    return status;
}

static weft_status no_path(weft_trainer *t)
{
    return weft__trainer_fail(
        t, WEFT_BAD_ARGUMENT, "checkpoint",
        "the states of the optimiser are in the file, or in files of the same "
        "folder: weft_trainer_options.checkpoint must be its path");
}

/* Reads the checkpoint and the files that it names, one at a time. */
static weft_status take_files(weft_trainer *t, const char *list, own_state *own, size_t n)
{
    const char *path = t->o.checkpoint;
    char file[4096];
    if (!path) return no_path(t);
    weft_status status = take_file(t, path, own, n);
    for (; status == WEFT_OK && *list; list += *list == '\n') {
        const size_t length = strcspn(list, "\n");
        if (snprintf(file, sizeof file, "%.*s%.*s", split_path(path).folder, path, (int)length,
                     list) >= (int)sizeof file)
            return weft__trainer_fail(t, WEFT_TOO_LARGE, path, "the path is too long");
        status = take_file(t, file, own, n);
        list += length;
    }
    return status;
}

/* Fails unless all states that follow were loaded whole. A checkpoint may be without averages. */
static weft_status check_covered(weft_trainer *t, const own_state *own, size_t n, bool averages)
{
    const char *path = t->o.checkpoint ? t->o.checkpoint : weft_params_source(t->params);
    for (size_t i = 0; i < n; i++) {
        const weft_state_key *key = &own[i].key;
        const int64_t elements = key->piece.end - key->piece.first;
        if (own[i].covered == elements || (key->kind == WEFT_STATE_AVERAGE && !averages)) continue;
        if (!own[i].covered && !weft__pieces_follow(t, key)) continue;
        return weft_error_set(&t->error, WEFT_BAD_FILE, path ? path : "checkpoint",
                              "has %" PRId64 " of the %" PRId64 " elements of %s", own[i].covered,
                              elements, own[i].name);
    }
    return WEFT_OK;
}

static bool is_sharded(const weft_trainer *t)
{
    const char *list = weft_params_meta(t->params, "shards");
    return list && *list;
}

bool weft__pieces_follow(const weft_trainer *t, const weft_state_key *key)
{
    if (is_sharded(t) || !t->hooks) return is_sharded(t);
    return !t->states || key->is_piece;
}

weft_status weft__pieces_load(weft_trainer *t, bool *averages)
{
    const char *list = weft_params_meta(t->params, "shards");
    const bool sharded = is_sharded(t);
    if (!t->progress.updates || (!sharded && !t->hooks)) return WEFT_OK;
    size_t n = 0, count = weft_params_count(t->params);
    own_state *own = calloc(count + 1, sizeof *own);
    if (!own) return weft__trainer_no_memory(t);
    for (size_t i = 0; i < count; i++)
        n += read_state(t->params, i, &own[n]) &&
             (own[n].key.is_piece || !t->hooks || !has_pieces(t->params, &own[n].key));
    weft_status status = WEFT_OK;
    bool whole = false; /* the program has loaded the whole states of a single process */
    if (!sharded) take_all(t->params, own, n);
    for (size_t i = 0; i < n; i++) whole |= own[i].covered > 0;
    if (!whole && (sharded || t->o.checkpoint))
        status = take_files(t, list ? list : "", own, n);
    else if (!whole && n)
        status = no_path(t);
    for (size_t i = 0; i < n; i++)
        *averages |= own[i].covered && own[i].key.kind == WEFT_STATE_AVERAGE;
    if (status == WEFT_OK) status = check_covered(t, own, n, *averages);
    free(own);
    return status;
}
