/* The text of a state's key, for graphs, stores and files: see weft/state_key.h. O(text). */
#include "ir/state_key.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What stands before the parameter, by kind. */
static const struct {
    bool of_optimizer; /* the optimiser's name comes first */
    const char *text;
} prefixes[] = {
    [WEFT_STATE_MODEL] = {false, ""},       [WEFT_STATE_MOMENT_1] = {true, ".m."},
    [WEFT_STATE_MOMENT_2] = {true, ".v."},  [WEFT_STATE_MOMENTUM] = {true, ".buf."},
    [WEFT_STATE_COUNTER] = {true, ".step"}, [WEFT_STATE_SUM] = {false, "sum"},
    [WEFT_STATE_AVERAGE] = {false, "ema."}, [WEFT_STATE_UNKNOWN] = {false, ""},
};

/* Texts that begin with one of these, and with nothing of the above, are of unknown kind. */
static const char *const reserved[] = {WEFT_OPTIMIZER_STATES ".", "sum.", "sum@", "ema."};

/* ---- Writing ---- */

enum { SLOT_BYTES = 16, PIECE_BYTES = 128 };

/* What follows the prefix of a sum. */
static size_t write_slot(int slot, char text[SLOT_BYTES])
{
    return (size_t)(slot < 0 ? snprintf(text, SLOT_BYTES, ".")
                             : snprintf(text, SLOT_BYTES, "@%d.", slot));
}

static void write_piece(const weft_piece *p, char text[PIECE_BYTES])
{
    const int n = snprintf(text, PIECE_BYTES, "[%" PRId64 ":%" PRId64 "]", p->first, p->end);
    if (p->length < INT64_MAX)
        snprintf(text + n, PIECE_BYTES - (size_t)n, "@%" PRId64 ",%" PRId64 ",%" PRId64, p->length,
                 p->stride, p->offset);
}

const char *weft_state_key_write(const weft_state_key *key, char *text, size_t size)
{
    char slot[SLOT_BYTES] = "", piece[PIECE_BYTES] = "";
    if (!text || !size) return text;
    text[0] = 0;
    if (!key || (unsigned)key->kind > WEFT_STATE_UNKNOWN) return text;
    const char *optimizer = key->optimizer ? key->optimizer : WEFT_OPTIMIZER_STATES;
    if (key->kind == WEFT_STATE_SUM) write_slot(key->slot, slot);
    if (key->is_piece) write_piece(&key->piece, piece);
    const int n = snprintf(
        text, size, "%s%s%s%.*s%s", prefixes[key->kind].of_optimizer ? optimizer : "",
        prefixes[key->kind].text, slot, (int)key->param_bytes, key->param ? key->param : "", piece);
    if (n < 0 || (size_t)n >= size) text[0] = 0;
    return text;
}

/* ---- Reading ---- */

/* Reads a number that follows the character `before`; returns what is after it, or NULL. */
static const char *read_number(const char *text, char before, int64_t *value)
{
    char *end;
    if (!text || *text != before) return NULL;
    errno = 0;
    const long long number = strtoll(text + 1, &end, 10);
    *value = number;
    return errno || end == text + 1 ? NULL : end;
}

/* Whether the elements of a piece have places in a whole. */
static bool is_sound(const weft_piece *p)
{
    return p->first >= 0 && p->end >= p->first && p->length > 0 && p->offset >= 0 &&
           p->stride >= p->length && p->offset <= p->stride - p->length &&
           p->end / p->length < INT64_MAX / p->stride;
}

/* Reads a text that is a piece and nothing else. */
static bool read_piece(const char *text, weft_piece *piece)
{
    char written[PIECE_BYTES];
    weft_piece p = {.length = INT64_MAX, .stride = INT64_MAX};
    const char *at = read_number(read_number(text, '[', &p.first), ':', &p.end);
    if (at && *at == ']' && at[1])
        read_number(read_number(read_number(at + 1, '@', &p.length), ',', &p.stride), ',',
                    &p.offset);
    if (!at || !is_sound(&p)) return false;
    write_piece(&p, written);
    if (strcmp(written, text) != 0) return false;
    *piece = p;
    return true;
}

/* Reads what follows the prefix of a sum; returns its bytes, 0 if it is not one. */
static size_t read_slot(const char *text, int *slot)
{
    char written[SLOT_BYTES];
    int64_t number = WEFT_RUNNING_SUM;
    read_number(text, '@', &number);
    if (number > INT_MAX) return 0;
    *slot = (int)number;
    const size_t n = write_slot(*slot, written);
    return strncmp(text, written, n) ? 0 : n;
}

/* The bytes before the parameter in a text of that kind; 0 if it is not of that kind. */
static size_t read_prefix(const char *text, weft_state_kind kind, int *slot)
{
    const char *optimizer = prefixes[kind].of_optimizer ? WEFT_OPTIMIZER_STATES : "";
    const size_t name = strlen(optimizer), prefix = strlen(prefixes[kind].text);
    if (strncmp(text, optimizer, name) != 0 ||
        strncmp(text + name, prefixes[kind].text, prefix) != 0)
        return 0;
    if (kind != WEFT_STATE_SUM) return name + prefix;
    const size_t n = read_slot(text + prefix, slot);
    return n ? prefix + n : 0;
}

static bool is_reserved(const char *text)
{
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strncmp(text, reserved[i], strlen(reserved[i]))) return true;
    return false;
}

/* Finds the kind; returns the bytes before the parameter. */
static size_t read_kind(const char *text, weft_state_key *key)
{
    for (weft_state_kind k = WEFT_STATE_MOMENT_1; k < WEFT_STATE_UNKNOWN; k++) {
        const size_t n = read_prefix(text, k, &key->slot);
        if (!n || !text[n] != (k == WEFT_STATE_COUNTER)) continue;
        key->kind = k;
        return n;
    }
    key->slot = 0;
    key->kind = is_reserved(text) ? WEFT_STATE_UNKNOWN : WEFT_STATE_MODEL;
    return 0;
}

weft_state_key weft_state_key_read(const char *text)
{
    weft_state_key key = {.piece = {0, INT64_MAX, INT64_MAX, INT64_MAX, 0}};
    if (!text) return key;
    key.param = text + read_kind(text, &key);
    key.param_bytes = strlen(key.param);
    const char *bracket = strrchr(key.param, '[');
    if (!bracket || bracket == key.param || key.kind == WEFT_STATE_UNKNOWN) return key;
    key.is_piece = read_piece(bracket, &key.piece);
    if (key.is_piece) key.param_bytes = (size_t)(bracket - key.param);
    return key;
}

bool weft__names_model_state(const char *name)
{
    const weft_state_key key = weft_state_key_read(name);
    return key.kind == WEFT_STATE_MODEL && !key.is_piece;
}

bool weft_state_key_same(const weft_state_key *a, const weft_state_key *b)
{
    return a && b && a->kind == b->kind && a->param_bytes == b->param_bytes &&
           (a->kind != WEFT_STATE_SUM || a->slot == b->slot) &&
           (!a->param_bytes || !memcmp(a->param, b->param, a->param_bytes));
}

/* ---- Declaring ---- */

weft_value weft__state_of_key(weft_graph *graph, const weft_state_key *key, weft_dtype dtype,
                              weft_shape shape)
{
    char name[WEFT_STATE_KEY_BYTES];
    return weft_state(graph, weft_state_key_write(key, name, sizeof name), dtype, shape,
                      WEFT_INIT_ZEROS);
}
