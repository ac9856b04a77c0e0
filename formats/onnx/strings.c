/* Ops on strings. LabelEncoder looks up numbers of texts (texts.c) in a run; all others need
 * contents that are known during the import. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <stdio.h>
#include <string.h>

#define SPACES " \t\n\v\f\r"

/* ---- Known texts ---- */

/* The number of a new text, which counts as memory of the import; -1 after a failure. */
static int32_t number_of(onnx_node *n, const char *text, size_t bytes)
{
    if (bytes && memchr(text, 0, bytes)) {
        weft__node_fail(n, WEFT_BAD_FILE, "has a string with a NUL");
        return -1;
    }
    const int32_t number = weft__arena_count(&n->import->memory, bytes)
                               ? weft__texts_number(n->import->model->files.texts, text, bytes)
                               : -1;
    if (number < 0) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for strings");
    return number;
}

static const char *text_of(const onnx_node *n, int64_t number)
{
    const char *text = weft__texts_at(n->import->model->files.texts, number);
    return text ? text : "";
}

static int32_t *new_numbers(onnx_node *n, int64_t count)
{
    int32_t *numbers =
        count < 0 ? NULL
                  : weft__arena_alloc(&n->import->memory, ((size_t)count + 1) * sizeof *numbers);
    if (!numbers) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for strings");
    return numbers;
}

/* The numbers of the texts of an input; NULL after a failure. */
static const int32_t *texts_in(onnx_node *n, size_t i, weft_shape *shape)
{
    const onnx_tensor *t = weft__in_tensor(n, i, "strings");
    if (!t) return NULL;
    if (weft__in_type(n, i) != ONNX_STRING) {
        weft__node_fail(n, WEFT_BAD_DTYPE, "needs strings");
        return NULL;
    }
    *shape = t->shape;
    return t->data;
}

void weft__set_texts(onnx_node *n, size_t i, const ProtobufCBinaryData *texts, size_t count,
                     weft_shape shape)
{
    int32_t *numbers = new_numbers(n, (int64_t)count);
    for (size_t k = 0; numbers && k < count; k++)
        numbers[k] = number_of(n, (const char *)texts[k].data, texts[k].len);
    if (numbers) weft__set_known(n, i, ONNX_STRING, shape, numbers);
}

/* ---- StringConcat ---- */

/* The element of a tensor that is broadcast to element i of a shape. */
static int64_t broadcast_from(weft_shape from, weft_shape to, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int k = to.rank - 1, j = from.rank - 1; j >= 0; k--, j--) {
        if (from.dim[j] > 1) at += i % to.dim[k] * step;
        step *= from.dim[j];
        i /= to.dim[k];
    }
    return at;
}

void weft__map_StringConcat(onnx_node *n)
{
    weft_shape a_shape, b_shape, shape;
    const int32_t *a = texts_in(n, 0, &a_shape), *b = a ? texts_in(n, 1, &b_shape) : NULL;
    if (!b) return;
    if (!weft_shape_broadcast(a_shape, b_shape, &shape)) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "the shapes of its inputs do not broadcast");
        return;
    }
    int32_t *y = new_numbers(n, weft_shape_numel(shape));
    for (int64_t i = 0; y && !weft__node_failed(n) && i < weft_shape_numel(shape); i++) {
        const char *first = text_of(n, a[broadcast_from(a_shape, shape, i)]);
        const char *second = text_of(n, b[broadcast_from(b_shape, shape, i)]);
        const size_t head = strlen(first), tail = strlen(second);
        char *both = weft__arena_alloc(&n->import->memory, head + tail + 1);
        if (!both) {
            weft__node_fail(n, WEFT_NO_MEMORY, "no memory for strings");
            return;
        }
        memcpy(both, first, head + 1);
        memcpy(both + head, second, tail + 1);
        y[i] = number_of(n, both, head + tail);
    }
    if (y) weft__set_known(n, 0, ONNX_STRING, shape, y);
}

/* ---- StringSplit ---- */

/* The rest of a text, as Python's split cuts it. Without a delimiter, runs of spaces are one. */
typedef struct rest {
    const char *at, *delimiter;
    int64_t cuts; /* that may still be made; negative: any number */
    bool ended;
} rest;

static bool next_piece(rest *r, const char **piece, size_t *bytes)
{
    if (!r->ended && !r->delimiter[0]) {
        r->at += strspn(r->at, SPACES);
        r->ended = !*r->at;
    }
    if (r->ended) return false;
    const char *end = NULL;
    if (r->cuts && r->delimiter[0]) end = strstr(r->at, r->delimiter);
    if (r->cuts && !r->delimiter[0]) end = r->at + strcspn(r->at, SPACES);
    *piece = r->at;
    *bytes = end ? (size_t)(end - r->at) : strlen(r->at);
    r->ended = !end;
    if (end) r->at = end + strlen(r->delimiter);
    if (r->cuts > 0) r->cuts--;
    return true;
}

/* A copy of an attribute, "" without it; NULL after a failure. */
static const char *text_attribute(onnx_node *n, const char *name)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    if (!a || !a->has_s) return "";
    char *text = weft__arena_alloc(&n->import->memory, a->s.len + 1);
    if (!text)
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for strings");
    else if (a->s.len)
        memcpy(text, a->s.data, a->s.len);
    return text;
}

void weft__map_StringSplit(onnx_node *n)
{
    weft_shape shape;
    const int32_t *x = texts_in(n, 0, &shape);
    const char *delimiter = text_attribute(n, "delimiter"), *piece;
    const int64_t cuts = weft__attr_int(n, "maxsplit", -1);
    const int64_t count = x ? weft_shape_numel(shape) : 0;
    int32_t *counts = x ? new_numbers(n, count) : NULL;
    int64_t most = 0;
    size_t bytes;
    if (!counts || !delimiter) return;
    if (shape.rank == WEFT_MAX_RANK) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its result would have more than %d dimensions",
                        WEFT_MAX_RANK);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        rest r = {text_of(n, x[i]), delimiter, cuts, false};
        while (next_piece(&r, &piece, &bytes)) counts[i]++;
        if (counts[i] > most) most = counts[i];
    }
    weft__set_known(n, 1, ONNX_INT64, shape, counts);
    shape.dim[shape.rank++] = most;
    int32_t *pieces = new_numbers(n, weft_shape_numel(shape)); /* number 0 is "", which pads */
    for (int64_t i = 0; pieces && i < count; i++) {
        rest r = {text_of(n, x[i]), delimiter, cuts, false};
        for (int64_t k = 0; next_piece(&r, &piece, &bytes); k++)
            pieces[i * most + k] = number_of(n, piece, bytes);
    }
    if (pieces) weft__set_known(n, 0, ONNX_STRING, shape, pieces);
}

/* ---- StringNormalizer ---- */

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text > 127) return false;
    return true;
}

/* Whether a word is one of the attribute's; `folded`: upper and lower case are the same. */
static bool is_stopword(const WeftOnnx__AttributeProto *stopwords, const char *word, bool folded)
{
    for (size_t i = 0; stopwords && i < stopwords->n_strings; i++) {
        const ProtobufCBinaryData *s = &stopwords->strings[i];
        size_t k = 0;
        for (; k < s->len && word[k]; k++) {
            const char a = (char)s->data[k], b = word[k];
            const bool letters = folded && (a | 32) >= 'a' && (a | 32) <= 'z';
            if (a != b && !(letters && (a | 32) == (b | 32))) break;
        }
        if (k == s->len && !word[k]) return true;
    }
    return false;
}

/* A text in the case that is given, 'L' or 'U'. */
static int32_t in_case(onnx_node *n, const char *text, char to)
{
    const size_t bytes = strlen(text);
    char *copy = weft__arena_alloc(&n->import->memory, bytes + 1);
    if (!copy) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for strings");
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        const char low = text[i] | 32;
        const bool letter = low >= 'a' && low <= 'z';
        copy[i] = !letter ? text[i] : to == 'L' ? low : (char)(low & ~32);
    }
    return number_of(n, copy, bytes);
}

/* Removes stop words, and then changes the case. */
void weft__map_StringNormalizer(onnx_node *n)
{
    weft_shape shape;
    const int32_t *x = texts_in(n, 0, &shape);
    const WeftOnnx__AttributeProto *stopwords = weft__attr_find(n, "stopwords");
    const bool folded = !weft__attr_int(n, "is_case_sensitive", 0);
    const char to = weft__attr_is(n, "case_change_action", "LOWER", "NONE")   ? 'L'
                    : weft__attr_is(n, "case_change_action", "UPPER", "NONE") ? 'U'
                                                                              : 'N';
    if (!x) return;
    if (shape.rank < 1 || shape.rank > 2 || (shape.rank == 2 && shape.dim[0] != 1)) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its input must be [C] or [1, C]");
        return;
    }
    const int64_t count = shape.dim[shape.rank - 1];
    int32_t *y = new_numbers(n, count + 1);
    int64_t kept = 0;
    for (int64_t i = 0; y && i < count; i++) {
        const char *text = text_of(n, x[i]);
        if ((to != 'N' || (folded && stopwords)) && !is_ascii(text)) {
            weft__node_fail(n, WEFT_BAD_DTYPE,
                            "has the text \"%s\", but only ASCII letters have a case here", text);
            return;
        }
        if (!is_stopword(stopwords, text, folded))
            y[kept++] = to == 'N' ? x[i] : in_case(n, text, to);
    }
    shape.dim[shape.rank - 1] = kept ? kept : 1; /* "" if nothing is left */
    if (y) weft__set_known(n, 0, ONNX_STRING, shape, y);
}

/* ---- LabelEncoder ---- */

/* A list of keys or values: the attribute of that name, of any of its types. False without it, or
 * after a failure. */
static bool read_list(onnx_node *n, const char *what, onnx_tensor *t, int *type)
{
    static const char *const kinds[] = {"strings", "int64s", "floats", "tensor"};
    const WeftOnnx__AttributeProto *a = NULL;
    char name[32];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !a; i++) {
        snprintf(name, sizeof name, "%s_%s", what, kinds[i]);
        a = weft__attr_find(n, name);
    }
    if (!a) return false;
    const size_t count = a->n_strings ? a->n_strings : a->n_ints ? a->n_ints : a->n_floats;
    *t = (onnx_tensor){WEFT_I32, WEFT_SHAPE((int64_t)count), NULL};
    *type = a->t           ? a->t->data_type
            : a->n_strings ? ONNX_STRING
            : a->n_ints    ? ONNX_INT64
                           : ONNX_FLOAT;
    if (a->t) return weft__attr_tensor(n, a, name, t);
    if (*type == ONNX_FLOAT) {
        t->dtype = WEFT_F32;
        t->data = a->floats;
        return true;
    }
    int32_t *numbers = new_numbers(n, (int64_t)count);
    for (size_t i = 0; numbers && i < count; i++) {
        const bool text = a->n_strings != 0;
        numbers[i] = text ? number_of(n, (const char *)a->strings[i].data, a->strings[i].len)
                          : (int32_t)a->ints[i];
        if (!text && numbers[i] != a->ints[i])
            weft__node_fail(n, WEFT_BAD_DTYPE, "%s %lld does not fit i32", name,
                            (long long)a->ints[i]);
    }
    t->data = numbers;
    return numbers != NULL;
}

/* The positions of x among the keys, or the number of keys. */
static weft_value positions(onnx_node *n, weft_value x, const onnx_tensor *keys, int type)
{
    weft_graph *g = n->graph;
    const int64_t count = weft_shape_numel(keys->shape);
    const weft_value none = weft_scalar(g, WEFT_I32, (double)count);
    if (type == ONNX_STRING) {
        int64_t texts = 0; /* more than the number of any key */
        for (int64_t i = 0; i < count; i++) {
            const int32_t key = ((const int32_t *)keys->data)[i];
            if (key >= texts) texts = (int64_t)key + 1;
        }
        const weft_value end = weft_scalar(g, WEFT_I32, (double)texts);
        int32_t *at = new_numbers(n, texts + 1);
        if (!at) return WEFT_NO_VALUE;
        for (int64_t i = 0; i <= texts; i++) at[i] = (int32_t)count;
        for (int64_t i = count - 1; i >= 0; i--) at[((const int32_t *)keys->data)[i]] = (int32_t)i;
        /* Texts with larger numbers are not keys. */
        const weft_value index = weft_where(g, weft_less(g, x, end), x, end);
        return weft_gather(g, weft_constant(g, WEFT_I32, WEFT_SHAPE(texts + 1), at), index, 0);
    }
    const weft_value all = weft_constant(g, keys->dtype, WEFT_SHAPE(count), keys->data);
    const weft_value wide = weft_expand_dims(g, x, -1);
    weft_value same = weft_equal(g, wide, all);
    if (keys->dtype == WEFT_F32 || keys->dtype == WEFT_F64) { /* a NaN equals a NaN */
        const weft_value is_nan = weft_not_equal(g, wide, wide);
        const weft_value both = weft_logical_and(g, is_nan, weft_not_equal(g, all, all));
        same = weft_logical_or(g, same, both);
    }
    const weft_value at = weft_where(g, same, weft_arange(g, WEFT_I32, count, 0, 1), none);
    return weft_cast(g, weft_min(g, weft_cast(g, at, WEFT_F64), WEFT_AXES(-1), false), WEFT_I32);
}

/* The last element of a table of values: what other keys have. */
static void set_default(onnx_node *n, const onnx_tensor *values, int type, void *at)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, "default_tensor");
    const size_t bytes = weft_dtype_bytes(values->dtype);
    onnx_tensor one;
    if (a && a->t) {
        if (!weft__attr_tensor(n, a, "default_tensor", &one)) return;
        if (a->t->data_type != type || weft_shape_numel(one.shape) != 1)
            weft__node_fail(n, WEFT_BAD_FILE, "its default is not one number of its values' type");
        else
            memcpy(at, one.data, bytes);
    } else if (type == ONNX_STRING) {
        const char *text =
            weft__has_attr(n, "default_string") ? text_attribute(n, "default_string") : "_Unused";
        if (text) *(int32_t *)at = number_of(n, text, strlen(text));
    } else if (values->dtype == WEFT_F32) {
        *(float *)at = (float)weft__attr_float(n, "default_float", -0.0);
    } else if (values->dtype == WEFT_F64) {
        *(double *)at = weft__attr_float(n, "default_float", -0.0);
    } else if (values->dtype == WEFT_I32) {
        const int64_t other = weft__attr_int(n, "default_int64", -1);
        *(int32_t *)at = (int32_t)other;
        if (*(int32_t *)at != other)
            weft__node_fail(n, WEFT_BAD_DTYPE, "default_int64 %lld does not fit i32",
                            (long long)other);
    }
}

/* Keys and values: the attributes of these names or, before opset 2, classes and their positions,
 * one way or the other. False after a failure. */
static bool read_pairs(onnx_node *n, onnx_tensor *keys, int *key_type, onnx_tensor *values,
                       int *value_type)
{
    const bool texts = weft__in_type(n, 0) == ONNX_STRING;
    if (weft__has_attr(n, "classes_strings")) {
        onnx_tensor *classes = texts ? keys : values, *places = texts ? values : keys;
        *(texts ? value_type : key_type) = ONNX_INT64;
        if (!read_list(n, "classes", classes, texts ? key_type : value_type)) return false;
        if (*(texts ? key_type : value_type) != ONNX_STRING || !weft_shape_numel(classes->shape))
            return weft__node_fail(n, WEFT_BAD_FILE, "classes_strings is not a list of texts"),
                   false;
        int32_t *all = new_numbers(n, weft_shape_numel(classes->shape));
        for (int32_t i = 0; all && i < weft_shape_numel(classes->shape); i++) all[i] = i;
        *places = (onnx_tensor){WEFT_I32, classes->shape, all};
        return all != NULL;
    }
    if (read_list(n, "keys", keys, key_type) && read_list(n, "values", values, value_type) &&
        weft_shape_numel(keys->shape) == weft_shape_numel(values->shape) &&
        weft_shape_numel(keys->shape) > 0 && (*key_type == ONNX_STRING) == texts)
        return true;
    if (!weft__node_failed(n))
        weft__node_fail(n, WEFT_BAD_FILE,
                        "needs as many values as keys, and keys of its input's type");
    return false;
}

void weft__ml_LabelEncoder(onnx_node *n)
{
    weft_graph *g = n->graph;
    onnx_tensor keys, values;
    int key_type, value_type;
    const weft_value x = weft__in_value(n, 0);
    if (weft__node_failed(n) || !read_pairs(n, &keys, &key_type, &values, &value_type)) return;
    const int64_t count = weft_shape_numel(keys.shape);
    const size_t bytes = weft_dtype_bytes(values.dtype);
    char *table = weft__arena_alloc(&n->import->memory, ((size_t)count + 1) * bytes);
    if (!table) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for its values");
        return;
    }
    if (count) memcpy(table, values.data, (size_t)count * bytes);
    set_default(n, &values, value_type, table + (size_t)count * bytes);
    if (weft_dtype_of(g, x) != keys.dtype)
        weft__node_fail(n, WEFT_BAD_DTYPE, "its keys are not of its input's type");
    if (weft__node_failed(n)) return;
    const weft_value at = positions(n, x, &keys, key_type);
    const weft_value all = weft_constant(g, values.dtype, WEFT_SHAPE(count + 1), table);
    weft__set_typed(n, 0, weft_gather(g, all, at, 0), value_type);
}
