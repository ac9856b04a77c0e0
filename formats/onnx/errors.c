/* The error of an import, and where it is. */
#include "onnx/import.h"

#include "base/text.h"

void weft__import_fail(onnx_import *import, weft_status status, const char *where,
                       const char *format, ...)
{
    char message[sizeof import->error.message];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(message, sizeof message, format, arguments);
    va_end(arguments);
    weft_error_copy(&import->error, weft_graph_error(import->graph));
    if (import->memory.limit && import->memory.counted == import->memory.limit)
        weft_error_set(&import->error, WEFT_TOO_LARGE, where,
                       "the import of the model takes more than %zu bytes", import->memory.limit);
    weft_error_set(&import->error, status, where, "%s", message);
    weft__import_failed(import);
}

/* The import's error and the graph's are the same, so that nothing is added after the first. */
bool weft__import_failed(onnx_import *import)
{
    const weft_error *e = &import->error;
    if (e->status == WEFT_OK) weft_error_copy(&import->error, weft_graph_error(import->graph));
    if (e->status == WEFT_OK) return false;
    if (weft_graph_status(import->graph) != WEFT_OK) return true;
    if (import->label[0]) weft_graph_pop_scope(import->graph);
    import->label[0] = 0;
    weft_graph_fail_in(import->graph, e->where, e->status, "%s", e->message);
    return true;
}

weft_value weft__node_fail(onnx_node *n, weft_status status, const char *format, ...)
{
    char message[300], where[sizeof n->import->error.where];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(message, sizeof message, format, arguments);
    va_end(arguments);
    const char *name = onnx_text(n->proto->name);
    if (!name[0] && n->proto->n_output) name = n->proto->output[0];
    weft__text_format(where, sizeof where, "%s (%s)", name, onnx_text(n->proto->op_type));
    /* An error of the graph came first, and is the cause. */
    const weft_error *cause = n->graph ? weft_graph_error(n->graph) : NULL;
    if (cause && cause->status != WEFT_OK)
        weft__import_fail(n->import, cause->status, where, "%s: %s", cause->where, cause->message);
    weft__import_fail(n->import, status, where, "%s", message);
    return WEFT_NO_VALUE;
}

bool weft__node_failed(const onnx_node *n)
{
    return n->import->error.status != WEFT_OK || weft_graph_status(n->graph) != WEFT_OK;
}
