/* Matching the beginnings of texts: PCRE2 reports a partial match where it reaches the end of a text
 * and could go on.
 *
 * A text that ends within a character begins a match if one of the characters that its last bytes
 * may become continues it. Trying all of them would take too long where one byte of four is known, so
 * these are tried: all where two bytes of three or three of four are known, and of others every 16th
 * or 256th and those that the pattern names. Characters that are tried for some bytes are also tried
 * for more of their bytes, so a text that was accepted can be continued. */
#include "pattern.h"

#include <stdlib.h>
#include <string.h>

/* Limits of a match. Patterns that match in one way take a few steps for each byte. */
#define BASE_STEPS 20000
#define BYTE_STEPS 200
#define CHEAP      32 /* a match that takes more than 1/32 of them counts as 33 */
#define HEAP_KB    (64 * 1024)
#define STACK_MAX  (1024 * 1024)

bool weft__constraint_open(constraint_matcher *m, const weft_constraint *constraint,
                           weft_error *error)
{
    *m = (constraint_matcher){.constraint = constraint};
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 * 1024, STACK_MAX, NULL); /* NULL without JIT */
    if (m->data && m->context) {
        pcre2_set_heap_limit(m->context, HEAP_KB);
        if (m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
        return true;
    }
    weft__constraint_close(m);
    weft__constraint_no_memory(error);
    return false;
}

void weft__constraint_close(constraint_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (constraint_matcher){.constraint = NULL};
}

/* Matches with 1 / `part` of the steps that a match may take. */
static int run(constraint_matcher *m, const char *bytes, size_t length, uint32_t options, int part)
{
    const pcre2_code *code = m->constraint->code;
    const size_t most = (UINT32_MAX - BASE_STEPS) / BYTE_STEPS;
    const uint32_t steps = BASE_STEPS + BYTE_STEPS * (uint32_t)(length < most ? length : most);
    pcre2_set_match_limit(m->context, steps / (uint32_t)part);
    int n = pcre2_match(code, (PCRE2_SPTR)bytes, length, 0, options, m->data, m->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(code, (PCRE2_SPTR)bytes, length, 0, options | PCRE2_NO_JIT, m->data,
                        m->context);
    return n;
}

/* Sets *found to whether whole characters match, or with PCRE2_PARTIAL_HARD may. */
static weft_status match(constraint_matcher *m, const char *bytes, size_t length, uint32_t options,
                         bool *found, weft_error *error)
{
    /* PCRE2 has no partial matches without a byte. */
    *found = !length && options;
    if (*found) return WEFT_OK;
    if (m->matches >= MAX_MATCHES)
        return weft_error_set(error, WEFT_TOO_LARGE, "constraint",
                              "the regular expression takes more than %d matches for the tokens "
                              "that may follow a text",
                              MAX_MATCHES);
    int n = run(m, bytes, length, options, CHEAP);
    m->matches++;
    if (n == PCRE2_ERROR_MATCHLIMIT) {
        n = run(m, bytes, length, options, 1);
        m->matches += CHEAP;
    }
    *found =
        n == PCRE2_ERROR_PARTIAL || (n >= 0 && pcre2_get_ovector_pointer(m->data)[1] == length);
    if (n >= 0 || n == PCRE2_ERROR_PARTIAL || n == PCRE2_ERROR_NOMATCH ||
        (n <= PCRE2_ERROR_UTF8_ERR1 && n >= PCRE2_ERROR_UTF8_ERR21))
        return WEFT_OK;
    if (n == PCRE2_ERROR_NOMEMORY) return weft__constraint_no_memory(error);
    return weft_error_set(error, WEFT_TOO_LARGE, "constraint",
                          "the regular expression takes too many steps on a text of %zu bytes: it "
                          "can match in too many ways",
                          length);
}

/* Bytes at the end of a text that begin a character of *whole bytes; 0 if there are none. */
static size_t begun(const char *bytes, size_t length, size_t *whole)
{
    size_t n = 1;
    while (n < CHARACTER_BYTES && n <= length && ((unsigned char)bytes[length - n] & 0xC0) == 0x80)
        n++;
    if (n > length) return 0;
    const unsigned char first = (unsigned char)bytes[length - n];
    *whole = first < 0xC2 || first > 0xF4 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return n < *whole ? n : 0;
}

static void write_character(uint32_t c, size_t bytes, char *to)
{
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = bytes; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(first[bytes] | c);
}

/* The range of characters of `whole` bytes that begin with n bytes. */
static void range_of(const char *bytes, size_t n, size_t whole, uint32_t *low, uint32_t *high)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = (unsigned char)bytes[0] & (0x7FU >> whole);
    for (size_t i = 1; i < n; i++) c = c << 6 | ((unsigned char)bytes[i] & 0x3F);
    const size_t shift = 6 * (whole - n);
    *low = c << shift;
    *high = *low + ((uint32_t)1 << shift) - 1;
    if (*low < smallest[whole]) *low = smallest[whole];
    if (*high > 0x10FFFF) *high = 0x10FFFF;
}

typedef struct completion {
    char *at; /* where the character begins */
    size_t whole, length;
} completion;

static weft_status try_character(constraint_matcher *m, const completion *k, uint32_t c,
                                 bool *begins, weft_error *error)
{
    write_character(c, k->whole, k->at);
    return match(m, k->at - k->length, k->length + k->whole, PCRE2_PARTIAL_HARD, begins, error);
}

static weft_status complete(constraint_matcher *m, const completion *k, size_t known, bool *begins,
                            weft_error *error)
{
    static const uint32_t steps[] = {1, 1, 16, 256};
    const weft_constraint *c = m->constraint;
    uint32_t low, high;
    char saved[CHARACTER_BYTES];
    weft_status status = WEFT_OK;
    memcpy(saved, k->at, known);
    range_of(k->at, known, k->whole, &low, &high);
    const uint32_t step = steps[k->whole - known];
    *begins = false;
    for (size_t i = 0; i < c->n_named && !*begins && status == WEFT_OK; i++)
        if (c->named[i] >= low && c->named[i] <= high)
            status = try_character(m, k, c->named[i], begins, error);
    for (uint32_t x = low; x <= high && !*begins && status == WEFT_OK; x += step)
        status = try_character(m, k, x, begins, error);
    memcpy(k->at, saved, known);
    return status;
}

weft_status weft__constraint_begins(constraint_matcher *m, char *bytes, size_t length, bool *begins,
                                    weft_error *error)
{
    size_t whole = 0;
    const size_t known = begun(bytes, length, &whole);
    const weft_status status = match(m, bytes, length - known, PCRE2_PARTIAL_HARD, begins, error);
    if (status != WEFT_OK || !*begins || !known) return status;
    const completion k = {bytes + length - known, whole, length - known};
    return complete(m, &k, known, begins, error);
}

weft_status weft__constraint_whole(constraint_matcher *m, const char *bytes, size_t length,
                                   bool *whole, weft_error *error)
{
    return match(m, bytes, length, 0, whole, error);
}

weft_status weft_constraint_match(const weft_constraint *constraint, const char *bytes,
                                  size_t length, weft_constraint_state *state, weft_error *error)
{
    constraint_matcher m;
    bool begins = false, whole = false;
    weft_error_clear(error);
    if (!constraint || (length && !bytes) || !state)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                              "matching needs a constraint, bytes and a state");
    *state = WEFT_CONSTRAINT_NEVER;
    if (!weft__constraint_open(&m, constraint, error)) return WEFT_NO_MEMORY;
    char *copy = malloc(length + CHARACTER_BYTES);
    weft_status status = WEFT_NO_MEMORY;
    if (copy) {
        if (length) memcpy(copy, bytes, length);
        status = weft__constraint_whole(&m, copy, length, &whole, error);
        if (status == WEFT_OK && !whole)
            status = weft__constraint_begins(&m, copy, length, &begins, error);
    } else {
        weft__constraint_no_memory(error);
    }
    if (status == WEFT_OK && (whole || begins))
        *state = whole ? WEFT_CONSTRAINT_WHOLE : WEFT_CONSTRAINT_MAYBE;
    free(copy);
    weft__constraint_close(&m);
    return status;
}
