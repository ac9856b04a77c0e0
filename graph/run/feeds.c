/* What each input of a session holds: nothing yet, its default, or data of the program. A feed
 * takes O(1); a run one comparison, unless defaults must be written again into a shared arena. */
#include "feeds.h"

#include "store/init.h"

#include <stdlib.h>

enum { NOTHING, DEFAULT, FED };

static const weft_input_attr *input_attr(const weft_plan *plan, uint32_t id)
{
    return plan->graph->nodes[plan->graph->values[id].node].attr;
}

bool feeds_init(feeds *f, const weft_plan *plan)
{
    const weft_graph *g = plan->graph;
    *f = (feeds){.state = calloc(g->n_values, 1)};
    for (uint32_t v = 1; f->state && v < g->n_values; v++) {
        if (g->nodes[g->values[v].node].op != &weft_op_input) continue;
        if (!weft_shape_numel(g->values[v].type.shape)) /* nothing to feed */
            f->state[v] = FED;
        else if (input_attr(plan, v)->has_default)
            f->state[v] = DEFAULT;
        f->n_missing += f->state[v] == NOTHING;
        f->n_default += f->state[v] == DEFAULT;
    }
    return f->state != NULL;
}

static void fill_default(const weft_plan *plan, uint32_t id, char *memory)
{
    const weft_input_attr *attr = input_attr(plan, id);
    const weft_init value = {WEFT_INIT_CONSTANT, attr->value, 0};
    char *data = memory + plan->buffers[plan->buffer_of[id] - 1].offset;
    weft_init_fill(&value, attr->dtype, attr->shape, NULL, 0, "", data);
}

void feeds_fill_defaults(const feeds *f, const weft_plan *plan, char *memory)
{
    for (uint32_t v = 1; f->n_default && v < plan->graph->n_values; v++)
        if (f->state[v] == DEFAULT) fill_default(plan, v, memory);
}

void feeds_mark_fed(feeds *f, const weft_plan *plan, uint32_t id, char *memory)
{
    if (f->state[id] == DEFAULT) fill_default(plan, id, memory);
    f->n_missing -= f->state[id] == NOTHING;
    f->n_default -= f->state[id] == DEFAULT;
    f->state[id] = FED;
}

weft_status feeds_check(const feeds *f, const weft_plan *plan, weft_error *error)
{
    const weft_graph *g = plan->graph;
    if (!f->n_missing) return WEFT_OK;
    uint32_t v = 1;
    while (g->nodes[g->values[v].node].op != &weft_op_input || f->state[v] != NOTHING) v++;
    char text[128];
    return weft_error_set(error, WEFT_NOT_FOUND, g->values[v].name,
                          "the input was never fed: expected %s %s by weft_feed before the run, or "
                          "a weft_input_default",
                          weft_dtype_name(g->values[v].type.dtype),
                          weft_shape_text(g->values[v].type.shape, text, sizeof text));
}
