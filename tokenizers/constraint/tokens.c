/* The bytes that each id adds to a text: found once, by decoding it after another id. */
#include "constraint.h"

#include <stdlib.h>
#include <string.h>

struct weft_token_bytes {
    const weft_tokenizer *tokenizer;
    int32_t size;
    size_t *ends; /* [size + 1]: those of id i are bytes[ends[i] .. ends[i + 1]] */
    char *bytes;
    size_t capacity;
};

static weft_status append(weft_token_bytes *t, const char *bytes, size_t n, size_t *end,
                          weft_error *error)
{
    if (n > t->capacity - *end) {
        const size_t capacity = 2 * t->capacity + n;
        char *grown = realloc(t->bytes, capacity);
        if (!grown) return weft__constraint_no_memory(error);
        t->bytes = grown;
        t->capacity = capacity;
    }
    if (n) memcpy(t->bytes + *end, bytes, n);
    *end += n;
    return WEFT_OK;
}

/* The first id with a text, after which others are decoded as within a text, and its bytes, which
 * free() frees; -1: none. */
static weft_status find_before(const weft_token_bytes *t, int32_t *before, char **bytes, size_t *n,
                               weft_error *error)
{
    weft_status status = WEFT_OK;
    *n = 0;
    for (*before = 0; *before < t->size; ++*before) {
        if (weft_tokenizer_role(t->tokenizer, *before) == WEFT_PIECE_SPECIAL) continue;
        status = weft_tokenizer_decode_bytes(t->tokenizer, before, 1, bytes, n, error);
        if (status != WEFT_OK || *n) return status;
        free(*bytes);
        *bytes = NULL;
    }
    *before = -1;
    return status;
}

static weft_status fill(weft_token_bytes *t, weft_error *error)
{
    int32_t pair[2];
    char *first = NULL;
    size_t n_first = 0, end = 0;
    weft_status status = find_before(t, &pair[0], &first, &n_first, error);
    const size_t n = pair[0] >= 0;
    for (int32_t id = 0; id < t->size && status == WEFT_OK; id++) {
        char *both = NULL;
        size_t length = 0;
        t->ends[id] = end;
        if (weft_tokenizer_role(t->tokenizer, id) == WEFT_PIECE_SPECIAL) continue;
        pair[n] = id;
        status = weft_tokenizer_decode_bytes(t->tokenizer, pair, n + 1, &both, &length, error);
        if (status != WEFT_OK) break;
        /* An id that changes the text before it adds no bytes. */
        if (length > n_first && (!n_first || !memcmp(both, first, n_first)))
            status = append(t, both + n_first, length - n_first, &end, error);
        free(both);
    }
    if (status == WEFT_OK) t->ends[t->size] = end;
    free(first);
    return status;
}

weft_token_bytes *weft_token_bytes_new(const weft_tokenizer *tokenizer, weft_error *error)
{
    weft_error_clear(error);
    if (!tokenizer) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint", "the tokeniser is NULL");
        return NULL;
    }
    weft_token_bytes *t = calloc(1, sizeof *t);
    if (!t) {
        weft__constraint_no_memory(error);
        return NULL;
    }
    t->tokenizer = tokenizer;
    t->size = weft_tokenizer_info_of(tokenizer).size;
    t->ends = calloc((size_t)t->size + 1, sizeof *t->ends);
    if ((t->ends || weft__constraint_no_memory(error) == WEFT_OK) && fill(t, error) == WEFT_OK)
        return t;
    weft_token_bytes_free(t);
    return NULL;
}

void weft_token_bytes_free(weft_token_bytes *tokens)
{
    if (!tokens) return;
    free(tokens->ends);
    free(tokens->bytes);
    free(tokens);
}

const char *weft_token_bytes_of(const weft_token_bytes *tokens, int32_t id, size_t *length)
{
    const bool inside = tokens && id >= 0 && id < tokens->size;
    if (length) *length = inside ? tokens->ends[id + 1] - tokens->ends[id] : 0;
    return inside && tokens->bytes ? tokens->bytes + tokens->ends[id] : "";
}

const weft_tokenizer *weft__token_bytes_tokenizer(const weft_token_bytes *tokens)
{
    return tokens->tokenizer;
}
