/* Ids one by one to text. The tokeniser decodes a few ids together: the last ones whose text was
 * returned, since what a token begins with may depend on the one before it, and those after them.
 * What follows the text of the first is new. A call decodes these alone, which are few except in a
 * long run of ids that make no whole character. */
#include <weft/text.h>

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct weft_text_decoder {
    const weft_tokenizer *tokenizer;
    int32_t *ids; /* [n]: the last `returned` whose text was returned, then those that wait */
    size_t n, returned, capacity;
    char *before; /* the text of the first `returned` ids */
    char *text;   /* the text of the last call */
};

weft_text_decoder *weft_text_decoder_new(const weft_tokenizer *tokenizer, weft_error *error)
{
    weft_error_clear(error);
    weft_text_decoder *d = tokenizer ? calloc(1, sizeof *d) : NULL;
    if (d)
        d->tokenizer = tokenizer;
    else if (tokenizer)
        weft_error_set(error, WEFT_NO_MEMORY, "text decoder", "out of memory");
    else
        weft_error_set(error, WEFT_BAD_ARGUMENT, "text decoder", "decoding needs a tokeniser");
    return d;
}

void weft_text_decoder_free(weft_text_decoder *decoder)
{
    if (!decoder) return;
    free(decoder->ids);
    free(decoder->before);
    free(decoder->text);
    free(decoder);
}

/* Whether a text ends within a character, or with U+FFFD, which may stand for the beginning of
 * one. */
static bool is_incomplete(const char *text, size_t n)
{
    if (n >= 3 && !memcmp(text + n - 3, TEXT_REPLACEMENT, 3)) return true;
    size_t begin = n;
    while (begin > 0 && n - begin < 3 && ((unsigned char)text[begin - 1] & 0xC0) == 0x80) begin--;
    if (begin == 0) return false;
    const unsigned char first = (unsigned char)text[begin - 1];
    const size_t whole = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return first <= 0xF4 && n - begin + 1 < whole;
}

/* Bytes of whole characters with which both texts begin. Where later bytes turn earlier ones into
 * U+FFFD, that is less than what was returned. */
static size_t same_beginning(const char *text, const char *before)
{
    size_t n = 0;
    while (before && before[n] && text[n] == before[n]) n++;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    return n;
}

/* Makes the waiting ids those whose text was returned. They are enough to decode what follows them,
 * unless they have no text of their own, such as blanks that a vocabulary leaves out at the
 * beginning of a text. `whole` is the text of all ids. */
static weft_status move_on(weft_text_decoder *d, const char *whole, weft_error *error)
{
    const size_t waiting = d->n - d->returned;
    char *last;
    const weft_status status =
        weft_tokenizer_decode(d->tokenizer, d->ids + d->returned, waiting, &last, NULL, error);
    if (status != WEFT_OK) return status;
    if (*last) {
        memmove(d->ids, d->ids + d->returned, waiting * sizeof *d->ids);
        d->n = waiting;
    } else {
        free(last);
        last = strdup(whole);
        if (!last) return weft_error_set(error, WEFT_NO_MEMORY, "text decoder", "out of memory");
    }
    d->returned = d->n;
    free(d->before);
    d->before = last;
    return WEFT_OK;
}

/* Returns what the text of all ids has after that of the first ones; these are then those whose
 * text is new. */
static weft_status take(weft_text_decoder *d, bool all, const char **text, weft_error *error)
{
    char *whole;
    weft_status status = weft_tokenizer_decode(d->tokenizer, d->ids, d->n, &whole, NULL, error);
    if (status != WEFT_OK) return status;
    const size_t n = strlen(whole), before = same_beginning(whole, d->before);
    if (n <= before || (!all && is_incomplete(whole, n))) {
        free(whole);
        return WEFT_OK;
    }
    status = move_on(d, whole, error);
    if (status != WEFT_OK) {
        free(whole);
        return status;
    }
    free(d->text);
    d->text = whole;
    *text = whole + before;
    return WEFT_OK;
}

weft_status weft_text_decoder_add(weft_text_decoder *decoder, int32_t id, const char **text,
                                  weft_error *error)
{
    weft_text_decoder *d = decoder;
    weft_error_clear(error);
    if (text) *text = "";
    if (!d || !text)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "text decoder",
                              "adding an id needs a decoder and a text");
    if (weft_tokenizer_role(d->tokenizer, id) == WEFT_PIECE_SPECIAL) return WEFT_OK;
    if (d->n == d->capacity) {
        const size_t capacity = d->capacity ? 2 * d->capacity : 16;
        int32_t *ids = realloc(d->ids, capacity * sizeof *ids);
        if (!ids) return weft_error_set(error, WEFT_NO_MEMORY, "text decoder", "out of memory");
        d->ids = ids;
        d->capacity = capacity;
    }
    d->ids[d->n++] = id;
    const weft_status status = take(d, false, text, error);
    if (status != WEFT_OK) d->n--;
    return status;
}

weft_status weft_text_decoder_end(weft_text_decoder *decoder, const char **text, weft_error *error)
{
    weft_text_decoder *d = decoder;
    weft_error_clear(error);
    if (text) *text = "";
    if (!d || !text)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "text decoder",
                              "the end of a text needs a decoder and a text");
    const weft_status status = d->n ? take(d, true, text, error) : WEFT_OK;
    if (status != WEFT_OK) return status;
    d->n = d->returned = 0;
    free(d->before);
    d->before = NULL;
    return WEFT_OK;
}
