/* Pieces of tensors, and what two of them have in common. O(runs). */
#include "pieces.h"

#include <string.h>

weft_piece weft__piece_of(const weft_graph *graph, weft_value state)
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

int64_t weft__piece_copy(const weft_piece *to, void *to_data, const weft_piece *from,
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
