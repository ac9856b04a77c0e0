/* Maps names and layouts between parameters of weft and tensors of transformers, both ways. O(rows)
 * for a name, O(elements) for a copy. */
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

static const hf_tensor *row_at(const hf_architecture *a, size_t index)
{
    for (int t = 0; t < HF_TABLES && a->tensors[t]; t++)
        for (const hf_tensor *row = a->tensors[t]; row->theirs; row++)
            if (index-- == 0) return row;
    return NULL;
}

/* Whether a name is the pattern with digits for `*`, which `layer` becomes; "" if it has none. */
static bool match(const char *pattern, const char *name, char layer[16])
{
    const size_t before = strcspn(pattern, "*");
    layer[0] = 0;
    if (strncmp(pattern, name, before) != 0) return false;
    if (!pattern[before]) return !name[before];
    const size_t digits = strspn(name + before, "0123456789");
    if (!digits || digits > 9) return false;
    snprintf(layer, 16, "%.*s", (int)digits, name + before);
    return !strcmp(pattern + before + 1, name + before + digits);
}

/* Writes the pattern with `layer` for `*`. */
static void fill(const char *pattern, const char *layer, const char *prefix,
                 char name[HF_NAME_BYTES])
{
    if (*pattern == '~') pattern++;
    const int before = (int)strcspn(pattern, "*");
    snprintf(name, HF_NAME_BYTES, "%s%.*s%s%s", prefix, before, pattern, layer,
             pattern[before] ? pattern + before + 1 : "");
}

hf_name weft__hf_name_of(const hf_architecture *a, const char *ours)
{
    char layer[16];
    hf_name n = {.row = NULL};
    for (size_t i = 0; (n.row = row_at(a, i)); i++) {
        if (!match(n.row->ours, ours, layer)) continue;
        fill(n.row->theirs, layer, *n.row->theirs == '~' ? a->prefix : "", n.full);
        fill(n.row->theirs, layer, "", n.bare);
        break;
    }
    return n;
}

const hf_tensor *weft__hf_param_of(const hf_architecture *a, const char *theirs, size_t *at,
                                   char ours[HF_NAME_BYTES])
{
    const size_t prefix = strlen(a->prefix);
    const bool prefixed = !strncmp(theirs, a->prefix, prefix);
    char layer[16];
    for (const hf_tensor *row; (row = row_at(a, *at));) {
        ++*at;
        const char *pattern = row->theirs + (*row->theirs == '~');
        if (!match(pattern, theirs, layer) &&
            !(*row->theirs == '~' && prefixed && match(pattern, theirs + prefix, layer)))
            continue;
        fill(row->ours, layer, "", ours);
        return row;
    }
    return NULL;
}

/* ---- Layouts ---- */

hf_place weft__hf_place_of(const hf_architecture *a, const weft_graph *graph, const char *ours)
{
    char layer[16], name[HF_NAME_BYTES];
    hf_place place = {0, 0};
    bool before = true;
    const hf_tensor *row = weft__hf_name_of(a, ours).row, *other;
    if (!row || !match(row->ours, ours, layer)) return place;
    for (size_t i = 0; (other = row_at(a, i)); i++) {
        if (strcmp(other->theirs, row->theirs) != 0) continue;
        fill(other->ours, layer, "", name);
        const weft_value value = weft_graph_find(graph, name);
        const int64_t columns = weft_is_value(value) ? weft_dim_of(graph, value, -1) : 0;
        before = before && other != row;
        if (before) place.first += columns;
        place.all += columns;
    }
    return place;
}

weft_shape weft__hf_their_shape(const hf_tensor *row, hf_place place, weft_shape s)
{
    switch (row->layout) {
    case HF_SAME:
        break;
    case HF_TRANSPOSED:
        return WEFT_SHAPE(s.dim[1], s.dim[0]);
    case HF_COLUMNS:
        s.dim[s.rank - 1] = place.all;
        break;
    case HF_ROWS:
        return WEFT_SHAPE(place.all, s.dim[0]);
    case HF_ROW:
        return WEFT_SHAPE(1, s.dim[0]);
    }
    return s;
}

/* A matrix in an array: its first element, and the distances of rows and of columns. */
typedef struct strided {
    float *at;
    int64_t row, column;
} strided;

/* Copies a [rows, columns] matrix in blocks that fit a cache. */
static void copy_matrix(int64_t rows, int64_t columns, strided to, strided from)
{
    enum { BLOCK = 64 };
    for (int64_t i = 0; i < rows; i += BLOCK)
        for (int64_t j = 0; j < columns; j += BLOCK)
            for (int64_t r = i; r < rows && r < i + BLOCK; r++)
                for (int64_t c = j; c < columns && c < j + BLOCK; c++)
                    to.at[r * to.row + c * to.column] = from.at[r * from.row + c * from.column];
}

void weft__hf_copy(const hf_tensor *row, hf_place place, hf_param ours, float *theirs, bool to_ours)
{
    const weft_shape shape = ours.shape;
    const int64_t columns = shape.rank ? shape.dim[shape.rank - 1] : 1;
    const int64_t rows = columns ? weft_shape_numel(shape) / columns : 0;
    const strided own = {ours.data, columns, 1};
    strided other = {theirs, columns, 1};
    if (row->layout == HF_TRANSPOSED || row->layout == HF_ROWS)
        other = (strided){theirs + (row->layout == HF_ROWS ? place.first * rows : 0), 1, rows};
    else if (row->layout == HF_COLUMNS)
        other = (strided){theirs + place.first, place.all, 1};
    copy_matrix(rows, columns, to_ours ? own : other, to_ours ? other : own);
}

/* ---- Parameters ---- */

weft_graph *weft__hf_graph(const weft_model_config *config, weft_error *error)
{
    weft_model_config one = *config;
    const bool source = weft_model_traits_of(config).source_vocab != 0;
    weft_graph *g = weft_graph_new();
    one.build = (weft_build_options){.shape = {.rows = 1, .source_len = source, .target_len = 1}};
    if (!g) {
        weft_error_set(error, WEFT_NO_MEMORY, one.model->name, "no memory for its graph");
        return NULL;
    }
    weft_model_build(g, &one);
    if (weft_graph_status(g) == WEFT_OK) return g;
    weft_error_copy(error, weft_graph_error(g));
    weft_graph_free(g);
    return NULL;
}
