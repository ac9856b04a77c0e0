/* What each input of a session holds: its default, data of the program, or nothing (never fed,
 * refused or lost). A feed searches its input, O(log inputs); a run takes one comparison, unless
 * defaults must be written again into a shared arena. */
#include "feeds.h"

#include "store/init.h"

#include <stdlib.h>

static const weft_input_attr *input_attr(const weft_plan *plan, uint32_t id)
{
    return plan->graph->nodes[plan->graph->values[id].node].attr;
}

static bool is_input(const weft_graph *g, uint32_t id)
{
    return g->nodes[g->values[id].node].op == &weft_op_input;
}

static bool holds_nothing(uint8_t state)
{
    return state < FEED_DEFAULT;
}

static void set_state(feeds *f, size_t i, feed_state state)
{
    f->n_missing += holds_nothing((uint8_t)state) - holds_nothing(f->state[i]);
    f->n_default += (state == FEED_DEFAULT) - (f->state[i] == FEED_DEFAULT);
    f->state[i] = (uint8_t)state;
}

static bool is_empty(const weft_plan *plan, uint32_t id)
{
    return !weft_shape_numel(plan->graph->values[id].type.shape);
}

static feed_state initial_state(const weft_plan *plan, uint32_t id)
{
    if (is_empty(plan, id)) return FEED_DATA; /* nothing to feed */
    return input_attr(plan, id)->has_default ? FEED_DEFAULT : FEED_NONE;
}

bool weft__feeds_init(feeds *f, const weft_plan *plan)
{
    const weft_graph *g = plan->graph;
    *f = (feeds){.n = 0};
    for (uint32_t v = 1; v < g->n_values; v++) f->n += is_input(g, v);
    f->inputs = calloc(f->n + 1, sizeof *f->inputs);
    f->state = calloc(f->n + 1, 1);
    if (!f->inputs || !f->state) return false;
    f->n_missing = f->n;
    size_t i = 0;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (!is_input(g, v)) continue;
        f->inputs[i] = v;
        set_state(f, i++, initial_state(plan, v));
    }
    return true;
}

void weft__feeds_free(feeds *f)
{
    free(f->inputs);
    free(f->state);
}

static void fill_default(const weft_plan *plan, uint32_t id, char *memory)
{
    const weft_input_attr *attr = input_attr(plan, id);
    const weft_init value = {.kind = WEFT_INIT_CONSTANT, .a = attr->value};
    char *data = memory + plan->buffers[plan->buffer_of[id] - 1].offset;
    weft_init_fill(&value, attr->dtype, attr->shape, NULL, 0, "", data);
}

void weft__feeds_fill_defaults(const feeds *f, const weft_plan *plan, char *memory)
{
    for (size_t i = 0; f->n_default && i < f->n; i++)
        if (f->state[i] == FEED_DEFAULT) fill_default(plan, f->inputs[i], memory);
}

/* The index of an input. */
static size_t index_of(const feeds *f, uint32_t id)
{
    size_t low = 0, high = f->n;
    while (low + 1 < high) {
        const size_t middle = (low + high) / 2;
        if (f->inputs[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void weft__feeds_mark_fed(feeds *f, const weft_plan *plan, uint32_t id, char *memory)
{
    const size_t i = index_of(f, id);
    if (f->state[i] == FEED_DEFAULT) fill_default(plan, id, memory);
    set_state(f, i, FEED_DATA);
}

void weft__feeds_mark_refused(feeds *f, uint32_t id)
{
    set_state(f, index_of(f, id), FEED_REFUSED);
}

void weft__feeds_lose(feeds *f, const weft_plan *plan)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->state[i] == FEED_DATA && !is_empty(plan, f->inputs[i])) set_state(f, i, FEED_LOST);
}

weft_status weft__feeds_check(const feeds *f, const weft_plan *plan, uint32_t id, weft_error *error)
{
    static const char *const reasons[] = {
        [FEED_NONE] = "the input was never fed",
        [FEED_REFUSED] = "the input's last feed was refused",
        [FEED_LOST] = "another session has used the shared arena since the input was fed"};
    if (!f->n_missing) return WEFT_OK;
    size_t i = id ? index_of(f, id) : 0;
    while (!id && !holds_nothing(f->state[i])) i++;
    if (!holds_nothing(f->state[i])) return WEFT_OK;
    const value_record *v = &plan->graph->values[f->inputs[i]];
    char text[128];
    return weft_error_set(error, WEFT_NOT_FOUND, v->name,
                          "%s: expected %s %s by weft_session_feed before the run, or a "
                          "weft_input_default",
                          reasons[f->state[i]], weft_dtype_name(v->type.dtype),
                          weft_shape_text(v->type.shape, text, sizeof text));
}
