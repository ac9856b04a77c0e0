/* Steps that repeat: layers, time steps, updates of parameters. A block of steps is repeated where the
 * texts of the next steps are the same but for the values of holes. It is written once, as a function
 * of a row of values; a table has a row for each time. */
#include "steps.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Steps that a repetition must save; steps of a block, and places looked at where one may begin again. */
enum { MIN_SAVED = 4, MAX_STEPS = 4096, MAX_TRIES = 32 };

/* `times` blocks of n steps, one after another. */
typedef struct run {
    size_t first, n, times;
    uint64_t hash; /* of the shapes of a block */
    size_t same;   /* the first run with the same block: its own place, or one before it */
} run;

/* What repeats; and, of the block under way, its times in all runs and the members of its rows. */
typedef struct repeats {
    emit_steps *s;
    const emit_block *block;
    const emit_step *steps; /* of the block */
    size_t n_steps;
    run *runs;
    size_t n_runs;
    const emit_hole **times; /* [n_times]: the holes of each time */
    size_t n_times;
    int *member_of;    /* by hole; -1: its value is the same each time */
    size_t *hole_of;   /* by member: the first hole with its values */
    uint64_t *hash_of; /* by member: of its values */
    int *order;        /* members; those of one type stand together */
    size_t n_holes, n_members;
} repeats;

/* ---- Finding ---- */

/* How often the n steps from `first` on stand one after another. */
static size_t times_of(const repeats *r, size_t first, size_t n)
{
    size_t same = 0;
    while (first + n + same < r->n_steps &&
           r->steps[first + same].shape == r->steps[first + n + same].shape)
        same++;
    return 1 + same / n;
}

/* The repetition that begins at a step and saves most; times < 2: none. `next` has the next step with the
 * same shape. */
static run best_run(const repeats *r, const size_t *next, size_t first)
{
    run best = {0};
    size_t saved = MIN_SAVED - 1;
    int tries = 0;
    for (size_t again = next[first]; again < r->n_steps && again - first <= MAX_STEPS;
         again = next[again]) {
        const size_t n = again - first, times = times_of(r, first, n);
        if (tries++ == MAX_TRIES) break;
        if ((times - 1) * n <= saved) continue;
        saved = (times - 1) * n;
        best = (run){.first = first, .n = n, .times = times};
    }
    return best;
}

static bool same_block(const repeats *r, const run *a, const run *b)
{
    if (a->hash != b->hash || a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (r->steps[a->first + i].shape != r->steps[b->first + i].shape) return false;
    return true;
}

static void add_run(repeats *r, run found)
{
    found.hash = HASH_START;
    for (size_t i = 0; i < found.n; i++)
        found.hash = hash_number(found.hash, r->steps[found.first + i].shape);
    found.same = r->n_runs;
    for (size_t i = 0; i < found.same; i++)
        if (r->runs[i].same == i && same_block(r, &r->runs[i], &found)) found.same = i;
    r->runs[r->n_runs++] = found;
}

/* False: no memory. */
static bool find_runs(repeats *r)
{
    const size_t n = r->n_steps;
    size_t n_shapes = 0;
    for (size_t i = 0; i < n; i++)
        if (r->steps[i].shape >= n_shapes) n_shapes = r->steps[i].shape + 1;
    size_t *next = calloc(n + 1, sizeof *next), *last = calloc(n_shapes + 1, sizeof *last);
    r->runs = calloc(n / MIN_SAVED + 1, sizeof *r->runs);
    if (next && last && r->runs) {
        for (size_t i = n; i-- > 0;) {
            const size_t later = last[r->steps[i].shape];
            next[i] = later ? later : n;
            last[r->steps[i].shape] = i;
        }
        for (size_t i = 0; i < n;) {
            const run found = best_run(r, next, i);
            if (found.times) add_run(r, found);
            i += found.times ? found.n * found.times : 1;
        }
    }
    const bool done = next && last && r->runs;
    free(next);
    free(last);
    return done;
}

/* ---- Members ---- */

/* The holes of each time of a block. */
static void find_times(repeats *r, size_t block)
{
    r->n_times = 0;
    for (size_t i = block; i < r->n_runs; i++)
        for (size_t k = 0; r->runs[i].same == block && k < r->runs[i].times; k++) {
            const emit_step *step = &r->steps[r->runs[i].first + k * r->runs[i].n];
            r->times[r->n_times++] = weft__emit_steps_holes(r->s, step);
        }
}

static bool same_values(const repeats *r, size_t a, size_t b)
{
    for (size_t k = 0; k < r->n_times; k++)
        if (r->times[k][a].value != r->times[k][b].value) return false;
    return true;
}

/* Different types have different keys, below KEYS. */
enum { KEYS = EMIT_HOLE_KINDS * WEFT_DTYPES };
static int key_of(const emit_hole *hole)
{
    return (int)hole->kind * WEFT_DTYPES + (int)hole->dtype;
}

static void find_member(repeats *r, size_t hole)
{
    const emit_hole *first = &r->times[0][hole];
    uint64_t hash = hash_number(HASH_START, (uint64_t)key_of(first));
    bool differs = false;
    for (size_t k = 0; k < r->n_times; k++) {
        hash = hash_number(hash, (uint64_t)r->times[k][hole].value);
        differs = differs || r->times[k][hole].value != first->value;
    }
    r->member_of[hole] = -1;
    if (!differs) return;
    size_t m = 0;
    while (m < r->n_members && (r->hash_of[m] != hash || !same_values(r, r->hole_of[m], hole) ||
                                key_of(&r->times[0][r->hole_of[m]]) != key_of(first)))
        m++;
    r->member_of[hole] = (int)m;
    if (m < r->n_members) return;
    r->hash_of[m] = hash;
    r->hole_of[m] = hole;
    r->n_members++;
}

static void find_members(repeats *r, size_t block)
{
    const run *b = &r->runs[block];
    size_t n_holes = 0, n = 0;
    find_times(r, block);
    r->n_members = 0;
    for (size_t i = 0; i < b->n; i++) n_holes += r->steps[b->first + i].n_holes;
    for (size_t hole = 0; hole < n_holes; hole++) find_member(r, hole);
    for (int key = 0; key < KEYS; key++)
        for (size_t m = 0; m < r->n_members; m++)
            if (key_of(&r->times[0][r->hole_of[m]]) == key) r->order[n++] = (int)m;
}

/* ---- Writing ---- */

/* The number of a block's first node in names and comments. */
static size_t number_of(const repeats *r, const run *b)
{
    return r->block->first + b->first + 1;
}

static void write_type(const emit_hole *hole, emit_text *to)
{
    static const char *const types[EMIT_HOLE_KINDS] = {
        [HOLE_OFFSET] = "size_t", [HOLE_INT] = "int",        [HOLE_NODE] = "int",
        [HOLE_KEY] = "uint64_t",  [HOLE_INTS] = "const int", [HOLE_SHAPE] = "const void",
        [HOLE_ARRAY] = "const "};
    weft__emit_text_print(to, "    %s%s", types[hole->kind],
                          hole->kind == HOLE_ARRAY ? weft__emit_type(hole->dtype) : "");
}

/* The struct of a row: "size_t x0, x1;" and so on. */
static void write_struct(const repeats *r, const run *b, emit_text *to)
{
    weft__emit_text_print(to, "typedef struct row_%zu {", number_of(r, b));
    for (size_t i = 0; i < r->n_members; i++) {
        const emit_hole *hole = &r->times[0][r->hole_of[r->order[i]]];
        const bool same = i && key_of(hole) == key_of(&r->times[0][r->hole_of[r->order[i - 1]]]);
        const bool pointer = hole->kind >= HOLE_INTS;
        if (same) {
            weft__emit_text_print(to, i % 16 ? ", " : ",\n        ");
        } else {
            weft__emit_text_print(to, i ? ";\n" : "\n");
            write_type(hole, to);
            weft__emit_text_print(to, " ");
        }
        weft__emit_text_print(to, pointer ? "*" : "");
        weft__emit_hole_member(hole->kind, r->order[i], to);
    }
    weft__emit_text_print(to,
                          r->n_members ? ";\n} row_%zu;\n\n" : "\n    int none;\n} row_%zu;\n\n",
                          number_of(r, b));
}

/* Whether a step of the block may end its function. */
static bool block_returns(const repeats *r, const run *b)
{
    bool returns = false;
    for (size_t i = 0; i < b->n; i++)
        returns = returns || weft__emit_step_returns(r->s, &r->steps[b->first + i]);
    return returns;
}

/* The function that runs a block once. */
static void write_function(const repeats *r, const run *b, emit_text *to)
{
    const int *member = r->member_of;
    const bool returns = block_returns(r, b);
    const size_t number = number_of(r, b);
    weft__emit_text_print(to, "static %s nodes_%zu_to_%zu(%s, const row_%zu *at)\n{\n%s",
                          returns ? "int" : "void", number, number + b->n - 1, r->block->parameters,
                          number, r->block->begin);
    weft__emit_text_print(to, "    (void)at;\n");
    for (size_t i = 0; i < b->n; i++) {
        const emit_step *step = &r->steps[b->first + i];
        weft__emit_text_add(to, step->comment, strlen(step->comment));
        weft__emit_step_write(r->s, step, member, to);
        member += step->n_holes;
    }
    weft__emit_text_print(to, returns ? "    return 0;\n}\n\n" : "}\n\n");
}

/* The name of a step, which its comment has after the number of the node. */
static void write_name(const emit_step *step, emit_text *to)
{
    const char *name = strchr(step->comment, '*') + 2, *end = strstr(name, ": ");
    weft__emit_text_add(to, name, end ? (size_t)(end - name) : strlen(name));
}

/* The table of a run, whose times begin at r->times[time]. */
static void write_table(const repeats *r, const run *a, const run *b, size_t time, emit_text *to)
{
    weft__emit_text_print(to, "static const row_%zu rows_%zu[%zu] = {\n", number_of(r, b),
                          number_of(r, a), a->times);
    for (size_t k = 0; k < a->times; k++) {
        weft__emit_text_print(to, "    /* ");
        write_name(&r->steps[a->first + k * a->n], to);
        weft__emit_text_print(to, r->n_members ? " */\n    {" : " */\n    {0");
        for (size_t i = 0; i < r->n_members; i++) {
            weft__emit_text_print(to, !i ? "" : i % 10 ? ", " : ",\n     ");
            weft__emit_hole_write(r->s, &r->times[time + k][r->hole_of[r->order[i]]], to);
        }
        weft__emit_text_print(to, "},\n");
    }
    weft__emit_text_print(to, "};\n\n");
}

static void write_block(repeats *r, size_t block, emit_text *to)
{
    const run *b = &r->runs[block];
    size_t time = 0;
    find_members(r, block);
    write_struct(r, b, to);
    for (size_t i = block; i < r->n_runs; i++) {
        if (r->runs[i].same != block) continue;
        write_table(r, &r->runs[i], b, time, to);
        time += r->runs[i].times;
    }
    write_function(r, b, to);
}

static void write_loop(const repeats *r, const run *a, emit_text *to)
{
    const run *b = &r->runs[a->same];
    const bool returns = block_returns(r, b);
    const size_t number = number_of(r, a), function = number_of(r, b);
    weft__emit_text_print(to,
                          "\n    /* Nodes %zu to %zu: %zu times %zu. */\n    {\n"
                          "        int i;\n        for (i = 0; i < %zu; i++)",
                          number, number + a->times * a->n - 1, a->times, a->n, a->times);
    weft__emit_text_print(to, "%snodes_%zu_to_%zu(%s, &rows_%zu[i]);\n",
                          returns ? " {\n            const int failed = " : "\n            ",
                          function, function + b->n - 1, r->block->arguments, number);
    if (returns)
        weft__emit_text_print(
            to, "            if (failed)\n                return failed;\n        }\n");
    weft__emit_text_print(to, "    }\n");
}

static void write_steps(const repeats *r, emit_text *to)
{
    const run *a = r->runs, *end = r->runs + r->n_runs;
    for (size_t i = 0; i < r->n_steps;) {
        if (a < end && a->first == i) {
            write_loop(r, a, to);
            i += a->n * a->times;
            a++;
            continue;
        }
        weft__emit_text_add(to, r->steps[i].comment, strlen(r->steps[i].comment));
        weft__emit_step_write(r->s, &r->steps[i], NULL, to);
        i++;
    }
}

void weft__emit_repeats(emit_steps *s, const emit_block *block, emit_text *functions,
                        emit_text *body)
{
    const size_t n_holes = s->holes.n / sizeof(emit_hole) + 1;
    repeats r = {.s = s, .block = block};
    r.steps = weft__emit_steps_list(s, &r.n_steps);
    if (block->n) r.steps += block->first;
    r.n_steps = block->n;
    r.times = calloc(r.n_steps + 1, sizeof *r.times);
    r.member_of = calloc(n_holes, sizeof *r.member_of);
    r.hole_of = calloc(n_holes, sizeof *r.hole_of);
    r.hash_of = calloc(n_holes, sizeof *r.hash_of);
    r.order = calloc(n_holes, sizeof *r.order);
    if (r.times && r.member_of && r.hole_of && r.hash_of && r.order && find_runs(&r)) {
        for (size_t i = 0; i < r.n_runs; i++)
            if (r.runs[i].same == i) write_block(&r, i, functions);
        write_steps(&r, body);
    } else {
        s->failed = true;
    }
    free(r.runs);
    free(r.times);
    free(r.member_of);
    free(r.hole_of);
    free(r.hash_of);
    free(r.order);
}
