/* Models of a tokenizer.json: the vocabulary, what a kind of model has besides, and the added
 * tokens. */
#include "load.h"
#include "pairs.h"
#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The vocabulary ---- */

static void add_piece(tk_loader *l, const tk_place *at, const char *piece, int64_t id)
{
    tk_vocabulary *v = &l->state->model.vocabulary;
    if (l->status != WEFT_OK) return;
    if (weft__tk_vocabulary_find(v, piece, strlen(piece)) >= 0)
        weft__tk_refuse(l, at, "has the piece '%.60s' twice", piece);
    else if (*weft__tk_vocabulary_piece(v, (int32_t)id))
        weft__tk_refuse(l, at, "has the id %d twice", (int)id);
    else if (!weft__tk_vocabulary_add(v, piece, (int32_t)id))
        weft__tk_no_memory(l);
}

/* The text of an entry of a vocabulary: a key of an object, or the first of [piece, score]. */
static const char *piece_of(const cJSON *entry)
{
    return entry->string                  ? entry->string
           : cJSON_IsString(entry->child) ? entry->child->valuestring
                                          : NULL;
}

/* Room for the texts of all entries, which are copied one after the other. */
static char *allocate_texts(tk_loader *l, const tk_place *at, size_t *n)
{
    size_t bytes = 1, i = 0;
    tk_model *m = &l->state->model;
    for (const cJSON *c = at->json->child; c; c = c->next, i++) {
        const char *piece = piece_of(c);
        const tk_place entry = {at, NULL, i, c};
        if (!piece) weft__tk_refuse(l, &entry, "must be [piece, score]");
        if (l->status != WEFT_OK) return NULL;
        const size_t length = strlen(piece);
        bytes += length + 1;
        if (length > m->longest) m->longest = length;
    }
    *n = i;
    m->texts = weft__tk_alloc(l, bytes, 1);
    return m->texts;
}

/* {piece: id}. Ids may have gaps, but not many. */
static void load_ids(tk_loader *l, const tk_place *at)
{
    size_t n;
    if (!cJSON_IsObject(at->json)) {
        weft__tk_refuse(l, at, "must be an object of pieces and their ids");
        return;
    }
    char *text = allocate_texts(l, at, &n);
    for (const cJSON *c = at->json->child; c && text && l->status == WEFT_OK; c = c->next) {
        const tk_place entry = {at, c->string, 0, c};
        const size_t bytes = strlen(c->string) + 1;
        memcpy(text, c->string, bytes);
        add_piece(l, &entry, text, weft__tk_integer(l, &entry, 8 * (int64_t)n + 65536));
        text += bytes;
    }
}

/* [[piece, score], ...] */
static void load_scores(tk_loader *l, const tk_place *at)
{
    tk_model *m = &l->state->model;
    size_t n, i = 0;
    double lowest = INFINITY;
    if (!weft__tk_array(l, at, true, &n)) return;
    char *text = allocate_texts(l, at, &n);
    m->scores = weft__tk_alloc(l, n, sizeof *m->scores);
    for (const cJSON *c = at->json->child; c && text && l->status == WEFT_OK; c = c->next, i++) {
        const tk_place entry = {at, NULL, i, c};
        const cJSON *score = c->child ? c->child->next : NULL;
        if (!cJSON_IsNumber(score) || !isfinite(score->valuedouble)) {
            weft__tk_refuse(l, &entry, "must be [piece, score]");
            return;
        }
        const size_t bytes = strlen(piece_of(c)) + 1;
        memcpy(text, piece_of(c), bytes);
        add_piece(l, &entry, text, (int64_t)i);
        m->scores[i] = score->valuedouble;
        if (score->valuedouble < lowest) lowest = score->valuedouble;
        if (l->status == WEFT_OK && !weft__tk_trie_add(&m->trie, text, bytes - 1, (int32_t)i))
            weft__tk_no_memory(l);
        text += bytes;
    }
    m->unk_score = lowest - 10;
}

/* ---- BPE ---- */

/* The two pieces of a merge: [left, right], or "left right". */
static bool read_merge(const cJSON *merge, const char **left, const char **right, size_t *n_left)
{
    if (cJSON_IsString(merge)) {
        const char *space = strchr(merge->valuestring, ' ');
        *left = merge->valuestring;
        *right = space ? space + 1 : "";
        *n_left = space ? (size_t)(space - *left) : 0;
        return space && !strchr(*right, ' ');
    }
    const cJSON *first = cJSON_IsArray(merge) ? merge->child : NULL;
    if (!cJSON_IsString(first) || !cJSON_IsString(first->next) || first->next->next) return false;
    *left = first->valuestring;
    *right = first->next->valuestring;
    *n_left = strlen(*left);
    return true;
}

/* The id of both pieces together, without the prefix of the right one; -1 if there is none. */
static int32_t find_merged(tk_loader *l, const char *left, size_t n_left, const char *right)
{
    const tk_model *m = &l->state->model;
    const size_t skipped = m->prefix ? strlen(m->prefix) : 0, n = strlen(right);
    if (skipped > n) return -1;
    char *text = weft__tk_alloc(l, n_left + n + 1, 1);
    if (!text) return -1;
    memcpy(text, left, n_left);
    memcpy(text + n_left, right + skipped, n - skipped);
    const int32_t id = weft__tk_vocabulary_find(&m->vocabulary, text, n_left + n - skipped);
    free(text);
    return id;
}

static void load_merges(tk_loader *l, const tk_place *at)
{
    tk_model *m = &l->state->model;
    size_t n;
    uint32_t rank = 0;
    const cJSON *c = weft__tk_array(l, at, true, &n);
    if (l->status != WEFT_OK) return;
    if (!weft__tk_pairs_new(m, n)) weft__tk_no_memory(l);
    for (; c && l->status == WEFT_OK; c = c->next, rank++) {
        const tk_place merge = {at, NULL, rank, c};
        const char *left, *right;
        size_t n_left;
        if (!read_merge(c, &left, &right, &n_left)) {
            weft__tk_refuse(l, &merge, "must be two pieces");
            return;
        }
        const int32_t a = weft__tk_vocabulary_find(&m->vocabulary, left, n_left);
        const int32_t b = weft__tk_vocabulary_find(&m->vocabulary, right, strlen(right));
        const int32_t both = find_merged(l, left, n_left, right);
        if (a < 0 || b < 0 || both < 0)
            weft__tk_refuse(l, &merge, "has a piece that is not in the vocabulary");
        else
            weft__tk_pairs_add(m, a, b, rank, both);
    }
}

/* The id of a member that names a piece; -1 if it is absent, or names none. */
static int32_t find_named(tk_loader *l, const tk_place *at, const char *name, const char *fallback)
{
    const char *piece = weft__tk_string(l, at, name, fallback);
    return weft__tk_vocabulary_find(&l->state->model.vocabulary, piece, strlen(piece));
}

static char *load_affix(tk_loader *l, const tk_place *at, const char *name)
{
    const char *text = weft__tk_string(l, at, name, "");
    return *text ? weft__tk_string_copy(l, at, name, "") : NULL;
}

static void load_bpe(tk_loader *l, const tk_place *at)
{
    tk_model *m = &l->state->model;
    const tk_place vocabulary = weft__tk_member(at, "vocab"),
                   merges = weft__tk_member(at, "merges"), dropout = weft__tk_member(at, "dropout");
    m->type = "bpe";
    m->encode = weft__tk_bpe_encode;
    if (dropout.json && (!cJSON_IsNumber(dropout.json) || dropout.json->valuedouble != 0))
        weft__tk_refuse(l, &dropout, "makes the ids random; remove it");
    m->prefix = load_affix(l, at, "continuing_subword_prefix");
    m->suffix = load_affix(l, at, "end_of_word_suffix");
    m->byte_fallback = weft__tk_bool(l, at, "byte_fallback", false);
    m->fuse_unk = weft__tk_bool(l, at, "fuse_unk", false);
    m->ignore_merges = weft__tk_bool(l, at, "ignore_merges", false);
    load_ids(l, &vocabulary);
    load_merges(l, &merges);
    m->unk = find_named(l, at, "unk_token", "");
}

/* ---- Other models ---- */

static void load_wordpiece(tk_loader *l, const tk_place *at)
{
    tk_model *m = &l->state->model;
    const tk_place vocabulary = weft__tk_member(at, "vocab"),
                   most = weft__tk_member(at, "max_input_chars_per_word");
    m->type = "wordpiece";
    m->encode = weft__tk_wordpiece_encode;
    m->prefix = weft__tk_string_copy(l, at, "continuing_subword_prefix", "##");
    m->max_characters = most.json ? (size_t)weft__tk_integer(l, &most, INT32_MAX) : 100;
    load_ids(l, &vocabulary);
    m->unk = find_named(l, at, "unk_token", "[UNK]");
}

static void load_wordlevel(tk_loader *l, const tk_place *at)
{
    tk_model *m = &l->state->model;
    const tk_place vocabulary = weft__tk_member(at, "vocab");
    m->type = "wordlevel";
    m->encode = weft__tk_wordlevel_encode;
    load_ids(l, &vocabulary);
    m->unk = find_named(l, at, "unk_token", "<unk>");
}

static void load_unigram(tk_loader *l, const tk_place *at)
{
    tk_model *m = &l->state->model;
    const tk_place vocabulary = weft__tk_member(at, "vocab"), unk = weft__tk_member(at, "unk_id");
    m->type = "unigram";
    m->encode = weft__tk_unigram_encode;
    m->byte_fallback = weft__tk_bool(l, at, "byte_fallback", false);
    load_scores(l, &vocabulary);
    if (unk.json) m->unk = (int32_t)weft__tk_integer(l, &unk, (int64_t)m->vocabulary.size - 1);
}

/* Older files do not name the type. */
static const char *guess_type(const tk_place *at)
{
    if (weft__tk_member(at, "type").json) return NULL;
    if (weft__tk_member(at, "merges").json) return "BPE";
    if (cJSON_IsArray(weft__tk_member(at, "vocab").json)) return "Unigram";
    return weft__tk_member(at, "max_input_chars_per_word").json ? "WordPiece" : "WordLevel";
}

/* Ids of single bytes, as <0x00> and as byte level writes them. */
static void find_bytes(tk_model *m)
{
    m->has_level = !m->prefix && !m->suffix;
    for (int i = 0; i < 256; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        m->byte_ids[i] = weft__tk_vocabulary_find(&m->vocabulary, text, 6);
        const size_t n = weft__tk_encode(weft__tk_byte_character((unsigned char)i), text);
        m->level_ids[i] = weft__tk_vocabulary_find(&m->vocabulary, text, n);
        if (m->level_ids[i] < 0 || m->encode != weft__tk_bpe_encode) m->has_level = false;
    }
}

void weft__tk_load_model(tk_loader *l, const tk_place *at)
{
    static const struct {
        const char *type;
        void (*load)(tk_loader *l, const tk_place *at);
    } known[] = {
        {"BPE", load_bpe},
        {"WordPiece", load_wordpiece},
        {"WordLevel", load_wordlevel},
        {"Unigram", load_unigram},
    };
    tk_model *m = &l->state->model;
    const char *guess = cJSON_IsObject(at->json) ? guess_type(at) : NULL;
    const char *type = guess ? guess : weft__tk_type(l, at);
    m->unk = -1;
    for (size_t i = 0; i < sizeof known / sizeof *known && l->status == WEFT_OK; i++) {
        if (strcmp(known[i].type, type) != 0) continue;
        known[i].load(l, at);
        if (l->status == WEFT_OK && m->vocabulary.size == 0)
            weft__tk_refuse(l, at, "has no pieces");
        m->own_size = m->vocabulary.size;
        find_bytes(m);
        return;
    }
    weft__tk_refuse(l, at, "is an unsupported model: %s", type);
}
