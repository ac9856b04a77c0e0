/* See exact_case.h: running the kernel and the reference of a case, and comparing them. */
#include "exact_case.h"

#include "base/platform.h"
#include "ir/isa.h"

#include <weft/ops.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t exact_cases, exact_elements;

static void *own(exact_case *c, void *memory)
{
    return c->owned[c->n_owned++] = memory;
}

/* ---- Outputs ---- */

/* The types of the outputs, as the op's shape rule has them; false if it refuses the inputs. */
static bool infer(const exact_case *c, weft_type *out)
{
    weft_graph *g = weft_graph_new();
    weft_value in[EXACT_INPUTS], value[EXACT_OUTPUTS];
    char name[24];
    for (size_t i = 0; i < c->n_in; i++) {
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = i < c->op->updates
                    ? weft_state(g, name, c->in[i].dtype, c->in[i].shape, (weft_init){0})
                    : weft_input(g, name, c->in[i].dtype, c->in[i].shape);
    }
    const bool good = weft_is_value(weft_apply(g, c->op, c->attr.bytes, in, c->n_in, value));
    for (size_t k = 0; good && k < c->op->n_out; k++)
        out[k] = (weft_type){weft_dtype_of(g, value[k]), weft_shape_of(g, value[k])};
    if (!good) fprintf(stderr, "\n    %s: %s\n", c->op->name, weft_graph_error(g)->message);
    weft_graph_free(g);
    return good;
}

/* Outputs without data, or copies of the states that they update. */
static void make_outputs(exact_case *c, const weft_type *type, weft_tensor *out)
{
    for (size_t k = 0; k < c->op->n_out; k++) {
        const size_t bytes = weft_tensor_bytes(type[k].dtype, type[k].shape);
        out[k] = weft_tensor_dense(own(c, malloc(bytes + 1)), type[k].dtype, type[k].shape);
        memset(out[k].data, 0xA5, bytes + 1);
        if (k < c->op->updates) memcpy(out[k].data, c->in[k].data, bytes);
    }
}

/* ---- The kernel ---- */

enum { TAG_BYTES = 64 }; /* before a thread's workspace: see weft_call_panel_tag */
enum { GUARD_BYTES = 1024, GUARD = 0x5A }; /* after it, and after scratch */

static weft_kernel kernel_of(const exact_case *c, const weft_tensor *in, const weft_tensor *out)
{
    const weft_op *op = c->op;
    const bool narrow = c->narrow_in | c->narrow_out;
    const weft_dtype dtype = narrow ? WEFT_BF16 : (op->key_output ? out : in)->dtype;
    for (int isa = (int)weft__isa_best(); isa >= 0; isa--)
        if (op->kernel[isa][dtype]) return op->kernel[isa][dtype];
    return NULL;
}

/* Memory of bytes that are NaN, and a guard. */
static char *guarded(size_t bytes)
{
    char *memory = weft__os_memory(64, (bytes + 63) / 64 * 64 + GUARD_BYTES);
    memset(memory, 0xFF, bytes);
    memset(memory + bytes, GUARD, GUARD_BYTES);
    return memory;
}

/* Frees such memory; returns whether its guard is as it was. */
static bool release(char *memory, size_t bytes)
{
    bool good = true;
    for (size_t i = 0; i < GUARD_BYTES; i++) good = good && memory[bytes + i] == GUARD;
    weft__os_memory_free(memory);
    return good;
}

/* Runs all tiles of all phases, forwards or backwards. Returns whether they wrote only into memory
 * that the op has asked for. */
static bool run_kernel(const exact_case *c, weft_tensor *out, bool backwards)
{
    weft_tensor in[EXACT_INPUTS];
    memcpy(in, c->in, sizeof in);
    for (size_t k = 0; k < c->op->updates; k++) in[k].data = out[k].data;
    weft_run_context run = {.seed = EXACT_SEED, .number = EXACT_RUN};
    weft_call call = {.attr = c->attr.bytes,
                      .in = in,
                      .out = out,
                      .n_in = c->n_in,
                      .n_out = c->op->n_out,
                      .run = &run};
    const weft_kernel kernel = kernel_of(c, in, out);
    const size_t scratch = c->op->scratch ? c->op->scratch(&call) : 0;
    const size_t space = TAG_BYTES + (c->op->workspace ? c->op->workspace(&call) : 0);
    call.scratch = guarded(scratch);
    run.workspace = guarded(space);
    for (call.phase = 0; call.phase < (c->op->phases ? c->op->phases : 1); call.phase++) {
        call.tiles = c->op->tiles ? c->op->tiles(&call)
                                  : (weft_shape_numel(out->shape) + WEFT_TILE - 1) / WEFT_TILE;
        memset(run.workspace, 0, TAG_BYTES);
        for (int64_t i = 0; i < call.tiles; i++) kernel(&call, backwards ? call.tiles - 1 - i : i);
    }
    const bool good = release(call.scratch, scratch);
    return release(run.workspace, space) && good;
}

static bool run_reference(exact_case *c, weft_tensor *out)
{
    weft_type type[EXACT_OUTPUTS];
    if (!infer(c, type)) return false;
    make_outputs(c, type, out);
    exact_mark_narrow(c, out);
    exact_find(c->op->name, c->dtype)(c->attr.bytes, c->in, c->n_in, out);
    return true;
}

bool exact_forward(exact_case *c, const char *op, weft_tensor *out)
{
    const weft_op *own_op = c->op;
    c->op = weft_op_find(op);
    const bool good = run_reference(c, out);
    c->op = own_op;
    return good;
}

/* ---- Comparing ---- */

static bool is_nan(weft_dtype dtype, const void *x)
{
    switch (dtype) {
    case WEFT_F32:
        return isnan(*(const float *)x);
    case WEFT_F64:
        return isnan(*(const double *)x);
    case WEFT_BF16:
        return (*(const uint16_t *)x & 0x7fff) > 0x7f80;
    default:
        return false;
    }
}

/* The first element that differs, or -1. All NaN are equal. */
static int64_t first_difference(const weft_tensor *a, const weft_tensor *b)
{
    const size_t bytes = weft_dtype_bytes(a->dtype);
    const int64_t n = weft_shape_numel(a->shape);
    for (int64_t i = 0; i < n; i++) {
        const char *x = (const char *)a->data + (size_t)i * bytes;
        const char *y = (const char *)b->data + (size_t)i * bytes;
        if (memcmp(x, y, bytes) != 0 && !(is_nan(a->dtype, x) && is_nan(b->dtype, y))) return i;
    }
    return -1;
}

static void show(const exact_case *c, uint64_t seed)
{
    char text[128];
    fprintf(stderr, "\n    %s %s (seed %" PRIu64 ", values of kind %d%s)", c->op->name,
            weft_dtype_name(c->dtype), seed, c->kind, c->specials ? " with special ones" : "");
    for (size_t i = 0; i < c->n_in && i < 8; i++) {
        const weft_tensor *t = &c->in[i];
        fprintf(stderr, "\n      in[%zu] %s, strides", i,
                weft_shape_text(t->shape, text, sizeof text));
        for (int d = 0; d < t->shape.rank; d++) fprintf(stderr, " %" PRId64, t->stride[d]);
    }
    fprintf(stderr, "\n");
}

static bool compare(const exact_case *c, uint64_t seed, const weft_tensor *got,
                    const weft_tensor *wanted)
{
    for (size_t k = 0; k < c->op->n_out; k++) {
        const int64_t i = first_difference(&got[k], &wanted[k]);
        exact_elements += (uint64_t)weft_shape_numel(got[k].shape);
        if (i < 0) continue;
        show(c, seed);
        fprintf(stderr, "      out[%zu] element %" PRId64 " is %a, expected %a\n", k, i,
                weft_tensor_element(&got[k], i), weft_tensor_element(&wanted[k], i));
        return false;
    }
    return true;
}

bool exact_compares(const weft_op *op, weft_dtype dtype)
{
    return dtype != WEFT_BF16 && op->kernel[WEFT_ISA_BASE][dtype];
}

void exact_draw_case(exact_case *c, const exact_op *drawn, weft_dtype dtype)
{
    static const double densities[] = {0.25, 0.01, 0.0002};
    c->op = weft_op_find(drawn->name);
    c->dtype = dtype;
    c->specials = exact_one_of(c, 6);
    c->density = densities[test_random(&c->state) % 3];
    c->kind = (int)(test_random(&c->state) % 8);
    c->shift = exact_one_of(c, 2) ? 8 : (int)(test_random(&c->state) % 12);
    drawn->draw(c);
}

void exact_free(exact_case *c)
{
    for (size_t i = 0; i < c->n_owned; i++) free(c->owned[i]);
    free(c);
}

static weft_dtype draw_dtype(exact_case *c, const weft_op *op)
{
    weft_dtype of[WEFT_DTYPES];
    size_t n = 0;
    for (int d = 0; d < WEFT_DTYPES; d++)
        if (exact_compares(op, (weft_dtype)d)) of[n++] = (weft_dtype)d;
    return of[test_random(&c->state) % n];
}

bool exact_holds(const random_case *r)
{
    const exact_op *list = r->data;
    exact_case *c = calloc(1, sizeof *c);
    size_t n = 0;
    while (list[n].name) n++;
    c->state = r->seed;
    c->size = r->size;
    const exact_op *drawn = &list[test_random(&c->state) % n];
    const weft_dtype dtype = draw_dtype(c, weft_op_find(drawn->name));
    exact_draw_case(c, drawn, dtype);
    weft_tensor got[EXACT_OUTPUTS], wanted[EXACT_OUTPUTS];
    weft_type type[EXACT_OUTPUTS];
    bool good = infer(c, type) && run_reference(c, wanted);
    if (good) {
        exact_store_narrow(c, wanted);
        for (size_t k = 0; k < c->op->n_out; k++) type[k].dtype = wanted[k].dtype;
        make_outputs(c, type, got);
        const bool inside = run_kernel(c, got, exact_one_of(c, 2));
        if (!inside) fprintf(stderr, "      it wrote beyond its scratch or workspace\n");
        good = compare(c, r->seed, got, wanted) && inside;
        exact_cases++;
    }
    if (r->show) show(c, r->seed);
    exact_free(c);
    return good;
}
