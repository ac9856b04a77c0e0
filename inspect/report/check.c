/* Checks of documents: the kinds of members and all references, because the page relies on them.
 * O(length). */
#include "parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    report_check check;
    weft_error *error;
    int subject; /* its index, for messages */
    bool *nodes; /* by id: there is such a node */
    size_t n_ids, n_buffers;
} reader;

static bool fail(const reader *r, const char *what, const char *expected)
{
    weft_error_set(r->error, r->check.status, r->check.where, "subject %d: %s %s", r->subject + 1,
                   what, expected);
    return false;
}

/* ---- Kinds of members ---- */

typedef enum kind { TEXT, NUMBER, ARRAY, OBJECT } kind;

typedef struct member {
    const char *name;
    kind kind;
    bool required;
} member;

static bool is_kind(const cJSON *json, kind k)
{
    switch (k) {
    case TEXT:
        return cJSON_IsString(json);
    case NUMBER:
        return cJSON_IsNumber(json) && isfinite(json->valuedouble);
    case ARRAY:
        return cJSON_IsArray(json);
    case OBJECT:
        return cJSON_IsObject(json);
    }
    return false;
}

/* Checks the members of an object, `what` in messages. The list ends with a NULL name. */
static bool check_members(const reader *r, const cJSON *json, const char *what, const member *list)
{
    static const char *const kinds[] = {
        [TEXT] = "a text", [NUMBER] = "a number", [ARRAY] = "a list", [OBJECT] = "an object"};
    char expected[128];
    if (!cJSON_IsObject(json)) return fail(r, what, "is not an object");
    for (; list->name; list++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, list->name);
        if (item ? is_kind(item, list->kind) : !list->required) continue;
        snprintf(expected, sizeof expected, item ? "has a \"%s\" that is not %s" : "has no \"%s\"",
                 list->name, kinds[list->kind]);
        return fail(r, what, expected);
    }
    return true;
}

static const member subject_members[] = {
    {"name", TEXT, true},        {"kind", TEXT, true},      {"command", TEXT, true},
    {"summary", OBJECT, false},  {"layers", ARRAY, false},  {"nodes", ARRAY, false},
    {"ops", OBJECT, false},      {"buffers", ARRAY, false}, {"interval_seconds", ARRAY, false},
    {"timeline", OBJECT, false}, {"run", OBJECT, false},    {"batch", OBJECT, false},
    {NULL, TEXT, false}};
static const member batch_members[] = {{"rows", NUMBER, true},
                                       {"source_len", NUMBER, true},
                                       {"target_len", NUMBER, true},
                                       {NULL, TEXT, false}};
static const member layer_members[] = {{"scope", TEXT, true},      {"depth", NUMBER, true},
                                       {"ops", TEXT, false},       {"input", TEXT, false},
                                       {"output", TEXT, false},    {"parameters", NUMBER, true},
                                       {"flops", NUMBER, true},    {"bytes", NUMBER, true},
                                       {"seconds", NUMBER, false}, {NULL, TEXT, false}};
static const member node_members[] = {{"id", NUMBER, true},
                                      {"name", TEXT, true},
                                      {"op", TEXT, true},
                                      {"scope", TEXT, true},
                                      {"phase", TEXT, true},
                                      {"kind", TEXT, true},
                                      {"outputs", ARRAY, true},
                                      {"in", ARRAY, true},
                                      {"attrs", OBJECT, false},
                                      {"source", NUMBER, true},
                                      {"gradient_of", NUMBER, false},
                                      {"step", NUMBER, false},
                                      {"interval", NUMBER, false},
                                      {"head", NUMBER, false},
                                      {"seconds", NUMBER, false},
                                      {"waiting", NUMBER, false},
                                      {"flops", NUMBER, false},
                                      {"bytes", NUMBER, false},
                                      {"roofline", NUMBER, false},
                                      {NULL, TEXT, false}};
static const member output_members[] = {
    {"shape", TEXT, true}, {"bytes", NUMBER, true}, {"buffer", NUMBER, false}, {NULL, TEXT, false}};
static const member input_members[] = {
    {"node", NUMBER, true}, {"output", NUMBER, true}, {NULL, TEXT, false}};
static const member buffer_members[] = {{"offset", NUMBER, true}, {"bytes", NUMBER, true},
                                        {"first", NUMBER, true},  {"last", NUMBER, true},
                                        {"node", NUMBER, false},  {"reader", NUMBER, false},
                                        {"reason", TEXT, false},  {NULL, TEXT, false}};
static const member timeline_members[] = {{"threads", NUMBER, true},
                                          {"seconds", NUMBER, true},
                                          {"events", ARRAY, true},
                                          {NULL, TEXT, false}};
static const member run_members[] = {{"folder", TEXT, true},       {"updates", NUMBER, false},
                                     {"recipe", OBJECT, false},    {"log", ARRAY, false},
                                     {"histograms", ARRAY, false}, {"samples", ARRAY, false},
                                     {"attention", ARRAY, false},  {NULL, TEXT, false}};

/* ---- References ---- */

/* Whether a number counts something: whole, and below `end`. */
static bool is_index(const cJSON *json, size_t end)
{
    const double x = json->valuedouble;
    return x >= 0 && x < (double)end && floor(x) == x;
}

/* An object's member, if there is one, must be the id of a node. */
static bool check_node(const reader *r, const cJSON *json, const char *what, const char *name)
{
    char wrong[64];
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!id || (is_index(id, r->n_ids) && r->nodes[(size_t)id->valuedouble])) return true;
    snprintf(wrong, sizeof wrong, "has a \"%s\" that is not the id of a node", name);
    return fail(r, what, wrong);
}

/* Marks the ids of the nodes. */
static bool read_ids(reader *r, const cJSON *nodes)
{
    const cJSON *node;
    r->n_ids = WEFT_MAX_NODES;
    r->nodes = calloc(r->n_ids, sizeof *r->nodes);
    if (!r->nodes) {
        weft_error_set(r->error, WEFT_NO_MEMORY, r->check.where, "out of memory");
        return false;
    }
    cJSON_ArrayForEach(node, nodes)
    {
        if (!check_members(r, node, "a node", node_members)) return false;
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(node, "id");
        if (!is_index(id, r->n_ids) || r->nodes[(size_t)id->valuedouble])
            return fail(r, "a node", "has an id that is not an index, or that another node has");
        r->nodes[(size_t)id->valuedouble] = true;
    }
    return true;
}

static bool check_nodes(const reader *r, const cJSON *nodes)
{
    const cJSON *node, *item;
    cJSON_ArrayForEach(node, nodes)
    {
        const char *name = cJSON_GetObjectItemCaseSensitive(node, "name")->valuestring;
        if (!check_node(r, node, name, "head")) return false;
        cJSON_ArrayForEach(item,
                           cJSON_GetObjectItemCaseSensitive(
                               node, "in")) if (!check_members(r, item, name, input_members) ||
                                                !check_node(r, item, name, "node")) return false;
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(node, "outputs"))
        {
            if (!check_members(r, item, name, output_members)) return false;
            const cJSON *buffer = cJSON_GetObjectItemCaseSensitive(item, "buffer");
            if (buffer && !is_index(buffer, r->n_buffers))
                return fail(r, name, "has an output in a buffer that is not listed");
        }
    }
    return true;
}

static bool check_buffers(const reader *r, const cJSON *buffers)
{
    const cJSON *buffer;
    cJSON_ArrayForEach(buffer,
                       buffers) if (!check_members(r, buffer, "a buffer", buffer_members) ||
                                    !check_node(r, buffer, "a buffer", "node") ||
                                    !check_node(r, buffer, "a buffer", "reader")) return false;
    return true;
}

static bool check_timeline(const reader *r, const cJSON *timeline)
{
    const cJSON *event, *number;
    if (!timeline) return true;
    if (!check_members(r, timeline, "the timeline", timeline_members)) return false;
    cJSON_ArrayForEach(event, cJSON_GetObjectItemCaseSensitive(timeline, "events"))
    {
        bool good = cJSON_GetArraySize(event) == 4;
        cJSON_ArrayForEach(number, event) good = good && is_kind(number, NUMBER);
        const cJSON *node = good ? cJSON_GetArrayItem(event, 1) : NULL;
        if (!node || !is_index(node, r->n_ids) || !r->nodes[(size_t)node->valuedouble])
            return fail(r, "an event of the timeline",
                        "is not [thread, id of a node, microseconds, microseconds]");
    }
    return true;
}

static bool check_subject(reader *r, const cJSON *subject)
{
    const cJSON *layer, *run = cJSON_GetObjectItemCaseSensitive(subject, "run");
    const cJSON *batch = cJSON_GetObjectItemCaseSensitive(subject, "batch");
    if (!check_members(r, subject, "it", subject_members) ||
        (batch && !check_members(r, batch, "the batch", batch_members)))
        return false;
    const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(subject, "nodes");
    const cJSON *buffers = cJSON_GetObjectItemCaseSensitive(subject, "buffers");
    r->n_buffers = (size_t)cJSON_GetArraySize(buffers);
    cJSON_ArrayForEach(layer,
                       cJSON_GetObjectItemCaseSensitive(
                           subject, "layers")) if (!check_members(r, layer, "a layer",
                                                                  layer_members)) return false;
    const bool good = read_ids(r, nodes) && check_nodes(r, nodes) && check_buffers(r, buffers) &&
                      check_timeline(r, cJSON_GetObjectItemCaseSensitive(subject, "timeline")) &&
                      (!run || check_members(r, run, "the run", run_members));
    free(r->nodes);
    r->nodes = NULL;
    return good;
}

weft_status weft__report_check_subject(const report_check *check, const cJSON *subject, int index,
                                       weft_error *error)
{
    weft_error why = WEFT_NO_ERROR;
    reader r = {.check = *check, .error = &why, .subject = index};
    return check_subject(&r, subject) ? WEFT_OK : weft_error_copy(error, &why);
}

weft_status weft__report_check_document(const report_check *check, const cJSON *document,
                                        weft_error *error)
{
    const cJSON *subject, *format = cJSON_GetObjectItemCaseSensitive(document, "format");
    const cJSON *subjects = cJSON_GetObjectItemCaseSensitive(document, "subjects");
    weft_status status = WEFT_OK;
    int index = 0;
    if (!cJSON_IsString(format) || strcmp(format->valuestring, REPORT_FORMAT) != 0 ||
        !cJSON_IsArray(subjects) || !cJSON_GetArraySize(subjects))
        return weft_error_set(error, check->status, check->where,
                              "is not a report of `weft report --json` (format \"%s\")",
                              REPORT_FORMAT);
    cJSON_ArrayForEach(subject, subjects) if (status == WEFT_OK) status =
        weft__report_check_subject(check, subject, index++, error);
    return status;
}
