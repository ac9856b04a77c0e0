/* Notes: the text on the first node of an op that became several nodes, or that has attributes of
 * more digits than ONNX's. It names the op of weft that the nodes implement, so that an import can
 * find it again:
 *
 *     weft: rms_norm eps=1e-06 rms=true gamma=true nodes=6 inputs=0.0,5.1 outputs=0
 *
 * inputs: node and position at which each input of the op is read. outputs: those that are used. */
#include "onnx/export.h"

#include "base/text.h"

#include <weft/ops.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_BYTES 1024
static const char prefix[] = "weft: ";

/* ---- Writing ---- */

typedef struct note_text {
    char text[NOTE_BYTES];
    size_t length;
    bool full;
} note_text;

static void WEFT_PRINTF(2, 3) append(note_text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof t->text - t->length;
    const int n = weft__text_vformat(t->text + t->length, room, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= room)
        t->full = true;
    else
        t->length += (size_t)n;
}

/* The integers of an attribute of several; returns their number. */
static int list_of(const weft_attr_field *f, const char *at, int64_t values[WEFT_MAX_RANK])
{
    int32_t n;
    memcpy(&n, at, sizeof n);
    for (int i = 0; i < n && i < WEFT_MAX_RANK; i++) {
        if (f->kind == WEFT_ATTR_INTS) {
            int32_t value;
            memcpy(&value, at + sizeof n + (size_t)i * sizeof value, sizeof value);
            values[i] = value;
        } else {
            memcpy(&values[i], at + offsetof(weft_shape, dim) + (size_t)i * sizeof *values,
                   sizeof *values);
        }
    }
    return n;
}

static void append_field(note_text *t, const weft_attr_field *f, const void *attr)
{
    const char *at = (const char *)attr + f->offset;
    char number[TEXT_NUMBER_BYTES];
    int64_t values[WEFT_MAX_RANK];
    append(t, " %s=", f->name);
    switch (f->kind) {
    case WEFT_ATTR_INT:
        append(t, "%" PRId32, *(const int32_t *)(const void *)at);
        break;
    case WEFT_ATTR_INT64:
        append(t, "%lld", (long long)*(const int64_t *)(const void *)at);
        break;
    case WEFT_ATTR_BOOL:
        append(t, "%s", *(const bool *)at ? "true" : "false");
        break;
    case WEFT_ATTR_DOUBLE:
        append(t, "%s", weft__text_from_double(*(const double *)(const void *)at, number));
        break;
    case WEFT_ATTR_DTYPE:
        append(t, "%s", weft_dtype_name(*(const weft_dtype *)(const void *)at));
        break;
    case WEFT_ATTR_SHAPE:
    case WEFT_ATTR_INTS:
    case WEFT_ATTR_INT64S:
        for (int i = 0, n = list_of(f, at, values); i < n; i++)
            append(t, "%s%lld", i ? "," : "", (long long)values[i]);
        break;
    default: /* a text, of which the table does not say the size */
        t->full = true;
    }
}

/* Where the nodes read an operand; false if nowhere. */
static bool find_reader(const export_record *r, size_t first, weft_operand operand, size_t *node,
                        size_t *slot)
{
    for (*node = first; *node < r->n_nodes; (*node)++)
        for (*slot = 0; *slot < r->nodes[*node].n_in; (*slot)++)
            if (r->nodes[*node].in[*slot].id == operand.id) return true;
    return false;
}

bool weft__export_write_note(export_record *r, size_t first, const weft_node_info *node,
                             const weft_operand *in, const bool *wanted)
{
    note_text t = {.length = 0};
    size_t reader, slot;
    if (weft_op_find(node->op->name) != node->op || node->n_in > EXPORT_NOTE_INPUTS) return true;
    append(&t, "%s%s", prefix, node->op->name);
    for (const weft_attr_field *f = node->op->attrs; f && f->name; f++)
        append_field(&t, f, node->attr);
    append(&t, " nodes=%zu inputs=", r->n_nodes - first);
    for (size_t i = 0; i < node->n_in; i++) {
        if (!find_reader(r, first, in[i], &reader, &slot)) return true;
        append(&t, "%s%zu.%zu", i ? "," : "", reader - first, slot);
    }
    append(&t, " outputs=");
    for (size_t k = 0, n = 0; k < node->n_out; k++)
        if (wanted[k]) append(&t, "%s%zu", n++ ? "," : "", k);
    if (t.full) return true;
    r->nodes[first].note = weft__arena_text(&r->memory, t.text);
    if (!r->nodes[first].note)
        weft_error_set(r->error, WEFT_NO_MEMORY, "export", "no memory for the nodes");
    return r->nodes[first].note != NULL;
}

/* ---- Reading ---- */

/* Reads "N" up to a separator and skips that; false if there is none. */
static bool take_integer(const char **at, int64_t *value)
{
    char *end;
    if (**at != '-' && (**at < '0' || **at > '9')) return false;
    *value = strtoll(*at, &end, 10);
    const bool good = end != *at && strchr(",. ", *end);
    *at = *end == ',' || *end == '.' ? end + 1 : end;
    return good;
}

/* Reads a list of integers; -1 if it is malformed. */
static int take_list(const char *at, int64_t values[WEFT_MAX_RANK])
{
    int n = 0;
    while (*at && *at != ' ')
        if (n == WEFT_MAX_RANK || !take_integer(&at, &values[n++])) return -1;
    return n;
}

static bool take_field(const weft_attr_field *f, const char *text, char *attr)
{
    char *at = attr + f->offset, word[TEXT_NUMBER_BYTES] = "";
    int64_t values[WEFT_MAX_RANK] = {0};
    const size_t length = strcspn(text, " ");
    if (length < sizeof word) memcpy(word, text, length);
    if (f->kind == WEFT_ATTR_DOUBLE) return weft__text_to_double(word, (double *)(void *)at);
    if (f->kind == WEFT_ATTR_BOOL) {
        *(bool *)at = !strcmp(word, "true");
        return *(bool *)at || !strcmp(word, "false");
    }
    if (f->kind == WEFT_ATTR_DTYPE) {
        for (int d = 0; d < WEFT_DTYPES; d++)
            if (!strcmp(word, weft_dtype_name((weft_dtype)d)))
                return *(weft_dtype *)(void *)at = (weft_dtype)d, true;
        return false;
    }
    const int32_t n = take_list(text, values);
    if (f->kind == WEFT_ATTR_INT || f->kind == WEFT_ATTR_INT64) {
        const int32_t narrow = (int32_t)values[0];
        if (n != 1 || (f->kind == WEFT_ATTR_INT && narrow != values[0])) return false;
        memcpy(at, f->kind == WEFT_ATTR_INT ? (const void *)&narrow : (const void *)values,
               f->kind == WEFT_ATTR_INT ? sizeof narrow : sizeof *values);
        return true;
    }
    if (n < 0 || f->kind == WEFT_ATTR_TEXT) return false;
    memcpy(at, &n, sizeof n);
    for (int i = 0; i < n; i++) {
        const int32_t narrow = (int32_t)values[i];
        if (f->kind == WEFT_ATTR_INTS)
            memcpy(at + sizeof n + (size_t)i * sizeof narrow, &narrow, sizeof narrow);
        else
            memcpy(at + offsetof(weft_shape, dim) + (size_t)i * sizeof *values, &values[i],
                   sizeof *values);
    }
    return true;
}

/* Passes " NAME="; NULL if the text is another. */
static const char *pass(const char *text, const char *name)
{
    const size_t n = strlen(name);
    if (!text || text[0] != ' ' || strncmp(text + 1, name, n) != 0 || text[n + 1] != '=')
        return NULL;
    return text + n + 2;
}

static const char *skip_word(const char *text)
{
    return text + strcspn(text, " ");
}

/* The op of the first word. */
static const weft_op *take_op(const char **text)
{
    char name[64] = "";
    const size_t length = strcspn(*text, " ");
    if (length >= sizeof name) return NULL;
    memcpy(name, *text, length);
    *text += length;
    return weft_op_find(name);
}

bool weft__export_read_note(const char *text, arena *memory, export_note *note)
{
    int64_t a, b;
    if (!text || strncmp(text, prefix, sizeof prefix - 1) != 0) return false;
    text += sizeof prefix - 1;
    note->op = take_op(&text);
    if (!note->op) return false;
    note->attr = weft__arena_alloc(memory, note->op->attr_size + 1);
    note->no_memory = !note->attr;
    if (!note->attr) return false;
    for (const weft_attr_field *f = note->op->attrs; f && f->name; f++) {
        text = pass(text, f->name);
        if (!text || !take_field(f, text, note->attr)) return false;
        text = skip_word(text);
    }
    text = pass(text, "nodes");
    if (!text || !take_integer(&text, &a) || a < 1) return false;
    note->n_nodes = (size_t)a;
    text = pass(text, "inputs");
    while (text && *text && *text != ' ') {
        if (note->n_in == EXPORT_NOTE_INPUTS || !take_integer(&text, &a) ||
            !take_integer(&text, &b) || a < 0 || a > UINT32_MAX || b < 0 || b > UINT32_MAX)
            return false;
        note->node[note->n_in] = (uint32_t)a;
        note->slot[note->n_in++] = (uint32_t)b;
    }
    text = text ? pass(text, "outputs") : NULL;
    while (text && *text) {
        if (!take_integer(&text, &a) || a < 0 || a >= note->op->n_out) return false;
        note->wanted[a] = true;
    }
    return text && note->n_in >= note->op->min_in && note->n_in <= note->op->max_in;
}
