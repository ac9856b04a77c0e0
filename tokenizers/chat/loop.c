/* Loops. Items are tested, and looked at ahead, only when they are needed, as a test may read what
 * the body sets. */
#include "chat/template.h"

#include <string.h>

static ct_value find_next(ct_render *r, ct_loop *loop)
{
    while (loop->at < loop->n && weft__ct_work(r, 0)) {
        const ct_value *item = &loop->items[loop->at++];
        if (loop->is_counted || !loop->passes || loop->passes(r, loop, item)) return *item;
    }
    return ct_missing();
}

ct_value weft__ct_loop_next(ct_render *r, ct_loop *loop)
{
    const bool first = loop->current.type == CT_MISSING;
    const ct_value item = loop->after.type != CT_MISSING ? loop->after : find_next(r, loop);
    if (item.type == CT_MISSING || r->status != WEFT_OK) return ct_missing();
    loop->index += !first;
    loop->before = loop->current;
    loop->current = item;
    loop->after = ct_missing();
    return item;
}

static ct_value look_ahead(ct_render *r, ct_loop *loop)
{
    if (loop->after.type == CT_MISSING) loop->after = find_next(r, loop);
    return loop->after;
}

/* The number of items; with a test, the rest of them are tested now. */
static size_t length_of(ct_render *r, ct_loop *loop)
{
    if (loop->is_sized) return loop->n;
    if (loop->is_counted) return loop->length;
    ct_items rest = {NULL, 0, 0};
    for (;;) {
        const ct_value item = find_next(r, loop);
        if (item.type == CT_MISSING || r->status != WEFT_OK) break;
        weft__ct_add(r, &rest, item);
    }
    loop->items = rest.items;
    loop->n = rest.n;
    loop->at = 0;
    loop->is_counted = true;
    loop->length = rest.n + loop->index + 1 + (loop->after.type != CT_MISSING);
    return loop->length;
}

static ct_value cycle(ct_render *r, const ct_value *self, const ct_args *args)
{
    if (args->n) return args->items[self->as.loop->index % args->n];
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "loop.cycle needs values");
}

ct_value weft__ct_loop_attribute(ct_render *r, const ct_value *of, const ct_value *name)
{
    static const ct_function cycling = {"cycle", "*", cycle};
    ct_loop *loop = of->as.loop;
    const int64_t index = (int64_t)loop->index;
    if (weft__ct_is(name, "index")) return ct_int(index + 1);
    if (weft__ct_is(name, "index0")) return ct_int(index);
    if (weft__ct_is(name, "first")) return ct_bool(index == 0);
    if (weft__ct_is(name, "last")) return ct_bool(look_ahead(r, loop).type == CT_MISSING);
    if (weft__ct_is(name, "length")) return ct_int((int64_t)length_of(r, loop));
    if (weft__ct_is(name, "revindex")) return ct_int((int64_t)length_of(r, loop) - index);
    if (weft__ct_is(name, "revindex0")) return ct_int((int64_t)length_of(r, loop) - index - 1);
    if (weft__ct_is(name, "depth")) return ct_int(1);
    if (weft__ct_is(name, "depth0")) return ct_int(0);
    if (weft__ct_is(name, "previtem"))
        return index > 0 ? loop->before : ct_undefined(CT_MISSING, "loop.previtem", 13);
    if (weft__ct_is(name, "nextitem")) {
        const ct_value next = look_ahead(r, loop);
        return next.type != CT_MISSING ? next : ct_undefined(CT_MISSING, "loop.nextitem", 13);
    }
    ct_method *method = weft__ct_is(name, "cycle") ? weft__ct_alloc(r, 1, sizeof *method) : NULL;
    if (!method) return ct_missing();
    *method = (ct_method){&cycling, *of};
    return (ct_value){.type = CT_METHOD, .as.method = method};
}
