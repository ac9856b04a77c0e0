/* A text that grows token by token: its bytes so far, and which bytes may follow. */
#include "constraint.h"

#include <stdlib.h>
#include <string.h>

/* Checks at one place of a text before the first characters of tokens are tried alone. */
#define FEW_CHECKS 24

typedef enum byte_state { BYTE_UNKNOWN, BYTE_ALLOWED, BYTE_REFUSED } byte_state;

struct weft_constrained_text {
    constraint_matcher matcher;
    const weft_token_bytes *tokens;
    int32_t *ends; /* [n_ends] */
    size_t n_ends;
    bool continues;
    char *bytes; /* [capacity]: of the text, of the id that is checked, and CHARACTER_BYTES more */
    size_t length, capacity;
    size_t moved; /* bytes before those of the tokens of a call */
    int32_t *ids; /* [n] of [ids_capacity]: tokens after them, whose bytes the text has */
    size_t n, ids_capacity;
    size_t checked;          /* ids that were checked at this place */
    unsigned char next[128]; /* byte_state of each character of ASCII at this place */
};

weft_constrained_text *weft_constrained_text_new(const weft_constraint *constraint,
                                                 const weft_token_bytes *tokens,
                                                 const weft_constrained_text_options *options,
                                                 weft_error *error)
{
    const weft_constrained_text_options o =
        options ? *options : (weft_constrained_text_options){.ends = NULL};
    weft_error_clear(error);
    if (!constraint || !tokens || (o.n_ends && !o.ends)) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                       "a constrained text needs a constraint, tokens and their ends");
        return NULL;
    }
    weft_constrained_text *t = calloc(1, sizeof *t);
    if (!t) {
        weft__constraint_no_memory(error);
        return NULL;
    }
    t->tokens = tokens;
    t->n_ends = o.n_ends;
    t->continues = o.continues;
    t->ends = calloc(o.n_ends + 1, sizeof *t->ends);
    t->bytes = calloc(1, CHARACTER_BYTES);
    if (t->ends && o.n_ends) memcpy(t->ends, o.ends, o.n_ends * sizeof *t->ends);
    if (t->ends && t->bytes && weft__constraint_open(&t->matcher, constraint, error)) return t;
    weft__constraint_no_memory(error);
    weft_constrained_text_free(t);
    return NULL;
}

void weft_constrained_text_free(weft_constrained_text *text)
{
    if (!text) return;
    weft__constraint_close(&text->matcher);
    free(text->ends);
    free(text->bytes);
    free(text->ids);
    free(text);
}

/* ---- Bytes ---- */

/* Writes the bytes of an id after the text; *n becomes their number. */
static weft_status put(weft_constrained_text *t, int32_t id, size_t *n, weft_error *error)
{
    weft_status status = WEFT_OK;
    char *own = NULL;
    const char *bytes = weft_token_bytes_of(t->tokens, id, n);
    /* Some tokenisers leave out a blank where a text begins. */
    if (!t->continues && !t->length && *n)
        status = weft_tokenizer_decode_bytes(weft__token_bytes_tokenizer(t->tokens), &id, 1, &own,
                                             n, error);
    if (status != WEFT_OK) return status;
    if (t->length + *n + CHARACTER_BYTES > t->capacity) {
        const size_t capacity = 2 * (t->length + *n) + 64;
        char *grown = realloc(t->bytes, capacity);
        if (!grown) {
            free(own);
            return weft__constraint_no_memory(error);
        }
        t->bytes = grown;
        t->capacity = capacity;
    }
    if (*n) memcpy(t->bytes + t->length, own ? own : bytes, *n);
    free(own);
    return WEFT_OK;
}

static void move_on(weft_constrained_text *t)
{
    t->checked = t->matcher.matches = 0;
    memset(t->next, BYTE_UNKNOWN, sizeof t->next);
}

static weft_status reserve_ids(weft_constrained_text *t, size_t n, weft_error *error)
{
    if (n <= t->ids_capacity) return WEFT_OK;
    int32_t *grown = realloc(t->ids, 2 * n * sizeof *grown);
    if (!grown) return weft__constraint_no_memory(error);
    t->ids = grown;
    t->ids_capacity = 2 * n;
    return WEFT_OK;
}

/* Makes the text that of n tokens. */
static weft_status update(weft_constrained_text *t, const int32_t *tokens, size_t n,
                          weft_error *error)
{
    if (reserve_ids(t, n, error) != WEFT_OK) return WEFT_NO_MEMORY;
    if (n < t->n || (t->n && memcmp(tokens, t->ids, t->n * sizeof *tokens) != 0)) {
        t->length = t->moved;
        t->n = 0;
        move_on(t);
    }
    while (t->n < n) {
        size_t more = 0;
        const weft_status status = put(t, tokens[t->n], &more, error);
        if (status != WEFT_OK) return status;
        t->length += more;
        t->ids[t->n] = tokens[t->n];
        t->n++;
        move_on(t);
    }
    return WEFT_OK;
}

/* ---- Checks ---- */

static weft_status begins(weft_constrained_text *t, size_t more, bool *allowed, weft_error *error)
{
    return weft__constraint_begins(&t->matcher, t->bytes, t->length + more, allowed, error);
}

/* Whether the first byte of the id after the text, which is a character, may follow. It is tried once
 * at each place, so most ids of a vocabulary need no match of their own. */
static weft_status check_first(weft_constrained_text *t, bool *allowed, weft_error *error)
{
    unsigned char *state = &t->next[(unsigned char)t->bytes[t->length]];
    weft_status status = WEFT_OK;
    if (*state == BYTE_UNKNOWN) {
        char saved[CHARACTER_BYTES];
        memcpy(saved, t->bytes + t->length + 1, sizeof saved);
        status = begins(t, 1, allowed, error);
        memcpy(t->bytes + t->length + 1, saved, sizeof saved);
        if (status == WEFT_OK) *state = *allowed ? BYTE_ALLOWED : BYTE_REFUSED;
    }
    *allowed = *state == BYTE_ALLOWED;
    return status;
}

static bool is_end(const weft_constrained_text *t, int32_t id)
{
    for (size_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id) return true;
    return false;
}

weft_status weft_constrained_text_allows(void *text, const int32_t *tokens, size_t n, int32_t id,
                                         bool *allowed, weft_error *error)
{
    weft_constrained_text *t = text;
    size_t more = 0;
    weft_error_clear(error);
    if (!t || (n && !tokens) || !allowed)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                              "a check needs a text, tokens and an answer");
    *allowed = false;
    weft_status status = update(t, tokens, n, error);
    if (status != WEFT_OK) return status;
    if (is_end(t, id))
        return weft__constraint_whole(&t->matcher, t->bytes, t->length, allowed, error);
    status = put(t, id, &more, error);
    if (status != WEFT_OK || !more) return status;
    if (++t->checked > FEW_CHECKS && (unsigned char)t->bytes[t->length] < 0x80) {
        status = check_first(t, allowed, error);
        if (status != WEFT_OK || !*allowed || more == 1) return status;
    }
    return begins(t, more, allowed, error);
}

weft_status weft_constrained_text_move(weft_constrained_text *text, const int32_t *tokens, size_t n,
                                       weft_error *error)
{
    weft_error_clear(error);
    if (!text || (n && !tokens))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                              "moving on needs a text and tokens");
    const weft_status status = update(text, tokens, n, error);
    if (status != WEFT_OK) return status;
    text->moved = text->length;
    text->n = 0;
    return WEFT_OK;
}

weft_status weft_constrained_text_match(weft_constrained_text *text, const int32_t *tokens,
                                        size_t n, weft_constraint_state *state, weft_error *error)
{
    weft_error_clear(error);
    bool whole = false, may = false;
    if (!text || (n && !tokens) || !state)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                              "a state needs a text and tokens");
    weft_status status = update(text, tokens, n, error);
    if (status == WEFT_OK)
        status = weft__constraint_whole(&text->matcher, text->bytes, text->length, &whole, error);
    if (status == WEFT_OK && !whole) status = begins(text, 0, &may, error);
    *state = whole ? WEFT_CONSTRAINT_WHOLE : may ? WEFT_CONSTRAINT_MAYBE : WEFT_CONSTRAINT_NEVER;
    return status;
}
