/* Pieces of tensors: their names, and what two of them have in common. O(runs). */
#include <weft/pieces.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_piece weft_piece_of(const weft_graph *graph, weft_value state)
{
    const weft_shape shape = weft_shape_of(graph, state);
    const weft_part part = weft_part_of(graph, state);
    const int64_t elements = weft_shape_numel(shape);
    int64_t inner = 1;
    if (!part.whole || !elements) return (weft_piece){0, elements, INT64_MAX, INT64_MAX, 0};
    for (int d = part.axis + 1; d < shape.rank; d++) inner *= shape.dim[d];
    return (weft_piece){0, elements, shape.dim[part.axis] * inner, part.whole * inner,
                        part.first * inner};
}

/* ---- Names ---- */

const char *weft_piece_name(const char *param, int64_t first, int64_t end, char *name, size_t size)
{
    snprintf(name, size, "%s[%" PRId64 ":%" PRId64 "]", param, first, end);
    return name;
}

/* Whether the elements of a piece have places in a whole. */
static bool is_sound(const weft_piece *p)
{
    return p->first >= 0 && p->end >= p->first && p->length > 0 && p->offset >= 0 &&
           p->stride >= p->length && p->offset <= p->stride - p->length &&
           p->end / p->length < INT64_MAX / p->stride;
}

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

bool weft_piece_parse(const char *name, size_t *length, weft_piece *piece)
{
    const char *bracket = name ? strrchr(name, '[') : NULL;
    weft_piece p = {.length = INT64_MAX, .stride = INT64_MAX};
    const char *at = read_number(read_number(bracket, '[', &p.first), ':', &p.end);
    if (!at || *at++ != ']') return false;
    if (*at == '@') {
        at = read_number(at, '@', &p.length);
        at = read_number(read_number(at, ',', &p.stride), ',', &p.offset);
    }
    if (!at || *at || !is_sound(&p)) return false;
    *length = (size_t)(bracket - name);
    *piece = p;
    return true;
}

/* ---- Elements of two pieces ---- */

/* The place of an element in the whole. */
static int64_t place_of(const weft_piece *p, int64_t e)
{
    return e / p->length * p->stride + p->offset + e % p->length;
}

/* How many elements of the piece lie side by side in the whole from e on. */
static int64_t rest_of(const weft_piece *p, int64_t e)
{
    const int64_t run = p->length - e % p->length, rest = p->end - e;
    return run < rest ? run : rest;
}

int64_t weft_piece_copy(const weft_piece *to, void *to_data, const weft_piece *from,
                        const void *from_data, size_t bytes)
{
    if (!to || !from) return 0;
    int64_t t = to->first, f = from->first, copied = 0;
    while (t < to->end && f < from->end) {
        const int64_t ahead = place_of(to, t) - place_of(from, f);
        const int64_t to_rest = rest_of(to, t), from_rest = rest_of(from, f);
        if (ahead > 0) {
            f += ahead < from_rest ? ahead : from_rest;
        } else if (ahead < 0) {
            t += -ahead < to_rest ? -ahead : to_rest;
        } else {
            const int64_t n = to_rest < from_rest ? to_rest : from_rest;
            if (to_data && from_data)
                memcpy((char *)to_data + (size_t)(t - to->first) * bytes,
                       (const char *)from_data + (size_t)(f - from->first) * bytes,
                       (size_t)n * bytes);
            t += n;
            f += n;
            copied += n;
        }
    }
    return copied;
}
