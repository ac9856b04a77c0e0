/* Scopes of weft from names of an ONNX file. The components of "/encoder/layer.0/self/MatMul" lie
 * between slashes: its scope is "encoder.layer.0.self.MatMul". Names that weft's export has
 * generated end in "/OP_NUMBER" or "/OP_NUMBER/TYPE_NUMBER", which is not part of the scope.
 * PyTorch's exporter of torch.export writes the modules of a node, from the outermost on, in its
 * metadata: "['', 'encoder', 'encoder.layer.0', 'linear_3']" lies in "encoder.layer.0.linear_3".
 * O(length). */
#include "onnx/import.h"

#include "base/hash.h"
#include "base/text.h"

#include <string.h>

/* A longer scope is cut, and ends in a component of HASH_BYTES for the whole name. */
#define HASH_BYTES 18
#define KEPT_BYTES (ONNX_SCOPE_BYTES - 1 - HASH_BYTES)

/* Appends a component; false if it does not fit whole. */
static bool append(char *scope, const char *component, size_t length)
{
    char raw[KEPT_BYTES + 1] = "", safe[4 * KEPT_BYTES + 1];
    const size_t used = strlen(scope), n = length < KEPT_BYTES ? length : KEPT_BYTES;
    memcpy(raw, component, n);
    weft__text_printable(safe, sizeof safe, raw);
    const bool whole = n == length && used + (used > 0) + strlen(safe) <= KEPT_BYTES;
    weft__text_format(scope + used, KEPT_BYTES + 1 - used, "%s%s", used ? "." : "", safe);
    return whole;
}

/* A part of a text. */
typedef struct part {
    const char *text;
    size_t length;
} part;

/* Appends what lies between slashes; false if it does not fit whole. Components of dots alone, as
 * of a path, are left out. */
static bool append_path(char *scope, part path)
{
    bool whole = true;
    for (size_t at = 0; at < path.length && whole; at++) {
        const char *component = path.text + at;
        size_t n = 0;
        while (at < path.length && path.text[at] != '/') at++, n++;
        size_t dots = 0;
        while (dots < n && component[dots] == '.') dots++;
        if (dots < n) whole = append(scope, component, n);
    }
    return whole;
}

/* Joins the components of paths by dots. */
static void join(const part *paths, size_t n, char scope[ONNX_SCOPE_BYTES])
{
    bool whole = true;
    uint64_t hash = HASH_START;
    scope[0] = 0;
    for (size_t i = 0; i < n; i++) {
        whole = whole && append_path(scope, paths[i]);
        hash = hash_bytes(hash, paths[i].text, paths[i].length);
    }
    if (whole) return;
    const size_t used = strlen(scope);
    snprintf(scope + used, ONNX_SCOPE_BYTES - used, ".~%016llx", (unsigned long long)hash);
}

/* Whether a component is "OP_NUMBER" of an op of weft. */
static bool is_made_up(const char *component, size_t length)
{
    char op[64] = "";
    size_t digits = 0;
    while (digits < length && component[length - 1 - digits] >= '0' &&
           component[length - 1 - digits] <= '9')
        digits++;
    if (!digits || digits + 1 >= length || length - digits > sizeof op ||
        component[length - 1 - digits] != '_')
        return false;
    memcpy(op, component, length - digits - 1);
    return weft_op_find(op) || !strcmp(op, "scan"); /* which is not in the list of ops */
}

/* Where the component before `end` begins. */
static size_t component_before(const char *name, size_t end)
{
    while (end && name[end - 1] != '/') end--;
    return end;
}

/* The length of a name of weft's export without its generated part. */
static size_t without_made_up(const char *name)
{
    size_t end = strlen(name);
    for (int i = 0; i < 2 && end; i++) {
        const size_t begin = component_before(name, end);
        if (is_made_up(name + begin, end - begin)) return begin;
        end = begin ? begin - 1 : 0;
    }
    return strlen(name);
}

/* The last two strings of a list as Python prints it, the last one at [1]. The name of a module is
 * whole: what contains it is not repeated. Empty after anything else. */
static void last_two(const char *list, part last[2])
{
    while ((list += strcspn(list, "\"'"))[0]) {
        const char quote = *list++, *end = list;
        while (*end && *end != quote) end += *end == '\\' && end[1] ? 2 : 1;
        if (!*end) break;
        last[0] = last[1];
        last[1] = (part){list, (size_t)(end - list)};
        list = end + 1;
    }
}

/* Reads the scope of a node's metadata; "" if it has none. */
static void scope_of_metadata(const WeftOnnx__NodeProto *node, char scope[ONNX_SCOPE_BYTES])
{
    part last[2] = {{"", 0}, {"", 0}};
    for (size_t i = 0; i < node->n_metadata_props; i++)
        if (!strcmp(onnx_text(node->metadata_props[i]->key), "pkg.torch.onnx.name_scopes"))
            last_two(onnx_text(node->metadata_props[i]->value), last);
    join(last, 2, scope);
}

void weft__onnx_node_scope(const weft_onnx *m, const WeftOnnx__NodeProto *node,
                           char scope[ONNX_SCOPE_BYTES])
{
    const char *name = onnx_text(node->name), *op = onnx_text(node->op_type);
    scope_of_metadata(node, scope);
    if (!scope[0] && name[strspn(name, "./")])
        join(&(part){name, onnx_is_own(m) ? without_made_up(name) : strlen(name)}, 1, scope);
    else if (!scope[0])
        join(&(part){op, strlen(op)}, 1, scope);
}

void weft__onnx_weight_scope(const char *name, char scope[ONNX_SCOPE_BYTES])
{
    size_t end = strlen(name);
    while (end && name[end - 1] != '/' && name[end - 1] != '.') end--;
    join(&(part){name, end ? end - 1 : 0}, 1, scope);
}

void weft__import_label(onnx_import *import, const char *label)
{
    if (import->label[0]) weft_graph_pop_scope(import->graph);
    if (label != import->label) weft__text_format(import->label, sizeof import->label, "%s", label);
    if (import->label[0]) weft_graph_push_scope(import->graph, "%s", import->label);
}
