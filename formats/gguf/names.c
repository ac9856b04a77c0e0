/* Names of tensors in GGUF files and of parameters, and the order of rows, both ways. O(rows of the
 * tables) for a name. */
#include "model.h"

#include <stdio.h>
#include <string.h>

bool weft__gguf_translate(const char *from, const char *to, const char *name,
                          char out[GGUF_NAME_BYTES])
{
    const size_t before = strcspn(from, "*"), to_before = strcspn(to, "*");
    if (strncmp(from, name, before) != 0) return false;
    const size_t digits = from[before] ? strspn(name + before, "0123456789") : 0;
    if ((from[before] && !digits) || digits > 9 ||
        strcmp(from + before + (from[before] != 0), name + before + digits) != 0)
        return false;
    snprintf(out, GGUF_NAME_BYTES, "%.*s%.*s%s", (int)to_before, to, (int)digits, name + before,
             to + to_before + (to[to_before] != 0));
    return true;
}

const gguf_row *weft__gguf_row_of(const gguf_architecture *a, const char *ours,
                                  char theirs[GGUF_NAME_BYTES])
{
    const gguf_row *row;
    for (size_t i = 0; (row = weft__gguf_row_at(a, i)); i++)
        if (weft__gguf_translate(row->ours, row->theirs, ours, theirs)) return row;
    return NULL;
}

gguf_place weft__gguf_place_of(const gguf_architecture *a, const weft_graph *graph,
                               const gguf_row *row, const char *theirs)
{
    gguf_place p = {0, 0};
    const gguf_row *other;
    bool before = true;
    for (size_t i = 0; (other = weft__gguf_row_at(a, i)); i++) {
        char ours[GGUF_NAME_BYTES];
        if (!weft__gguf_translate(other->theirs, other->ours, theirs, ours)) continue;
        const weft_value value = weft_graph_find(graph, ours);
        const int64_t n = weft_is_value(value) ? weft_dim_of(graph, value, -1) : 0;
        before = before && other != row;
        if (before) p.first += n;
        p.all += n;
    }
    return p;
}

/* Half of the rows of a head; 0 if the layout keeps their order. */
static int64_t half_head(const weft_model_config *config, gguf_layout layout, int64_t n)
{
    if (layout != GGUF_QUERY && layout != GGUF_KEY) return 0;
    const double heads = weft__gguf_option(config, "heads"),
                 kv_heads = weft__gguf_option(config, "kv_heads");
    return n / (int64_t)(layout == GGUF_KEY && kv_heads > 0 ? kv_heads : heads) / 2;
}

/* llama.cpp rotates pairs of neighbours, where weft and transformers rotate halves of a head:
 * convert_hf_to_gguf.py, `permute`, moves element [j, k] of a head, [2, size / 2], to [k, j]. */
int64_t weft__gguf_their_row(const weft_model_config *config, gguf_layout layout, int64_t i,
                             int64_t n)
{
    const int64_t half = half_head(config, layout, n), in_head = half ? i % (2 * half) : 0;
    return half ? i - in_head + 2 * (in_head % half) + in_head / half : i;
}

int64_t weft__gguf_our_row(const weft_model_config *config, gguf_layout layout, int64_t i,
                           int64_t n)
{
    const int64_t half = half_head(config, layout, n), in_head = half ? i % (2 * half) : 0;
    return half ? i - in_head + in_head % 2 * half + in_head / 2 : i;
}
