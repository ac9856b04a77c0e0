/* The bodies of loops as functions, one step of a loop each. A body is written as the plan of the file is, in an
 * arena of its own. The values that it reads and writes outside of it lie where a struct says, which the loop
 * sets (loop.c). What a body cannot write there itself is copied after its nodes, as run/loop.c does. Loops
 * whose bodies have the same text, such as those of equal layers, share one function. O(steps of all bodies)
 * and, to find equal ones, O(bodies) for each. */
#include "emit.h"

#include "base/text.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- Recording ---- */

/* Adds a member for a value of the body, which takes `bytes`. */
static void add_member(emit_text *to, const char *pointer, uint32_t index, const char *what,
                       const weft_type *type, size_t bytes)
{
    char shape[128];
    const bool narrow = bytes != weft_tensor_bytes(type->dtype, type->shape);
    weft__emit_text_print(to, "    %s%u; /* %s, %s %s */\n", pointer, index, what,
                          weft_dtype_name(narrow ? WEFT_BF16 : type->dtype),
                          weft_shape_text(type->shape, shape, sizeof shape));
}

static void write_members(const plan_loop *loop, emit_text *to)
{
    const scan_body *b = loop->scan->body;
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        if (loop->in[i])
            add_member(to, "const unsigned char *in", i,
                       i < b->n_carry               ? "a carry"
                       : i < b->n_carry + b->n_each ? "a slice"
                                                    : "what all steps share",
                       &b->graph->values[b->in[i]].type, loop->bytes[i]);
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        if (k >= b->n_carry || !loop->stacked[k])
            add_member(to, "unsigned char *out", k, k < b->n_carry ? "the next carry" : "a slice",
                       &b->graph->values[b->out[k]].type, loop->bytes[scan_inputs(b) + k]);
    if (!to->n) weft__emit_text_print(to, "    int none;\n");
}

/* Copies the outputs that no node writes where they belong. */
static void write_copies(emit_file *f, emit_text *to)
{
    const plan_loop *loop = f->loop;
    const uint32_t n_carry = loop->scan->body->n_carry, n_out = n_carry + loop->scan->body->n_out;
    for (uint32_t k = 0; k < n_out; k++) {
        const weft_value value = weft_value_from_id(f->g, loop->value[k]);
        const size_t bytes =
            weft_tensor_bytes(weft__emit_stored(f, value), weft_shape_of(f->g, value));
        if (loop->direct[k] || (k < n_carry && loop->stacked[k]) || !bytes) continue;
        weft__emit_text_print(to, "    memcpy(loop->out%u, ", k);
        weft__emit_bytes(f, value, to);
        weft__emit_text_print(to, ", %zu);\n", bytes);
    }
}

static bool same_text(const emit_text *a, const emit_text *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->text, b->text, a->n));
}

/* Adds a body, whose steps are the last of the file. They are dropped if an earlier body has them. */
static bool add_body(emit_file *f, emit_body *body)
{
    emit_body *grown = realloc(f->bodies, (f->n_bodies + 1) * sizeof *grown);
    if (grown) f->bodies = grown;
    if (!grown || body->members.failed || body->copies.failed) {
        weft__emit_text_free(&body->members);
        weft__emit_text_free(&body->copies);
        return emit_no_memory(f);
    }
    body->same = f->n_bodies;
    for (size_t i = 0; i < f->n_bodies && body->same == f->n_bodies; i++) {
        const emit_body *b = &f->bodies[i];
        if (b->same == i && b->n_steps == body->n_steps && same_text(&b->members, &body->members) &&
            same_text(&b->copies, &body->copies) &&
            weft__emit_steps_same(&f->steps, b->first_step, body->first_step, b->n_steps))
            body->same = i;
    }
    if (body->same < f->n_bodies) weft__emit_steps_drop(&f->steps, body->first_step);
    f->bodies[f->n_bodies++] = *body;
    return true;
}

static bool may_return(const emit_file *f, const emit_body *body)
{
    size_t n;
    bool returns = false;
    const emit_step *steps = weft__emit_steps_list(&f->steps, &n);
    for (size_t i = 0; i < body->n_steps; i++)
        returns = returns || weft__emit_step_returns(&f->steps, &steps[body->first_step + i]);
    return returns;
}

/* Makes the body of a loop the plan under way. */
static bool enter(emit_file *f, const plan_loop *loop)
{
    f->plan = loop->body;
    f->g = weft_plan_graph(loop->body);
    f->loop = loop;
    f->flags = calloc(f->g->n_values + 1, 1);
    if (!f->flags) return emit_no_memory(f);
    weft__emit_mark_storages(f);
    return true;
}

static bool record_body(emit_file *f, const plan_loop *loop)
{
    const emit_file outer = *f;
    bool good = enter(f, loop) && weft__emit_plan(f);
    if (good) {
        emit_body body = {.loop = loop, .first_step = f->first_step};
        weft_plan_steps(f->plan, &body.n_steps);
        body.returns = may_return(f, &body);
        write_members(loop, &body.members);
        write_copies(f, &body.copies);
        good = add_body(f, &body);
    }
    free(f->flags);
    f->plan = outer.plan;
    f->g = outer.g;
    f->loop = outer.loop;
    f->flags = outer.flags;
    return good;
}

bool weft__emit_plan(emit_file *f)
{
    for (size_t i = 0; i < f->plan->n_loops; i++)
        if (!record_body(f, &f->plan->loops[i])) return false;
    weft__emit_steps_list(&f->steps, &f->first_step);
    return weft__emit_nodes(f);
}

/* ---- Writing ---- */

static void write_body(emit_file *f, const emit_body *body, emit_text *to)
{
    static const char begin[] = "    (void)m;\n    (void)arena;\n    (void)loop;\n";
    char parameters[EMIT_NAME_BYTES + 80];
    emit_text steps = {0};
    const size_t number = body->same + 1;
    const emit_block block = {body->first_step, body->n_steps, parameters, "m, arena, loop", begin};
    weft__text_format(parameters, sizeof parameters,
                      "const %s *m, unsigned char *arena, const loop_%zu *loop", f->options->name,
                      number);
    weft__emit_text_print(to,
                          "/* Where a step of a loop reads and writes. */\n"
                          "typedef struct loop_%zu {\n",
                          number);
    weft__emit_text_append(to, &body->members);
    weft__emit_text_print(to, "} loop_%zu;\n\n", number);
    weft__emit_repeats(&f->steps, &block, to, &steps);
    weft__emit_text_print(to, "/* A step of a loop: %zu nodes. */\nstatic %s body_%zu(%s)\n{\n%s",
                          body->n_steps, body->returns ? "int" : "void", number, parameters, begin);
    weft__emit_text_append(to, &steps);
    weft__emit_text_append(to, &body->copies);
    weft__emit_text_print(to, body->returns ? "    return 0;\n}\n\n" : "}\n\n");
    weft__emit_text_free(&steps);
}

void weft__emit_write_bodies(emit_file *f, emit_text *to)
{
    for (size_t i = 0; i < f->n_bodies; i++)
        if (f->bodies[i].same == i) write_body(f, &f->bodies[i], to);
}

void weft__emit_free_bodies(emit_file *f)
{
    for (size_t i = 0; i < f->n_bodies; i++) {
        weft__emit_text_free(&f->bodies[i].members);
        weft__emit_text_free(&f->bodies[i].copies);
    }
    free(f->bodies);
}
