/* weft_emit: puts together the two files. nodes.c writes the steps of the plan, which decide what
 * functions and arrays there are, bodies.c those of loops; states.c the states, interface.c what a
 * program sees. */
#include "emit.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

bool weft_emit_has_op(const weft_op *op)
{
    bool runs = false;
    for (int isa = 0; op && isa < WEFT_ISAS; isa++)
        for (int dtype = 0; dtype < WEFT_DTYPES; dtype++) runs = runs || op->kernel[isa][dtype];
    return op && (op->source || !runs);
}

/* What a compiler must not do, in its own words. */
static const char rules[] =
    "#include <stdbool.h>\n#include <string.h>\n\n"
    "/* Each operation rounds on its own; only calls of fma are fused. On x86-64 these are one "
    "instruction with\n"
    " * -mfma or -march=native, and several without. */\n"
    "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
    "#elif defined(__GNUC__)\n#pragma GCC optimize(\"fp-contract=off\")\n#endif\n"
    "#if defined(__FAST_MATH__) || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0)\n"
    "#error \"needs floats and doubles that round as IEEE 754 says: no -ffast-math, no x87\"\n"
    "#endif\n"
    "#ifndef INFINITY\n#define INFINITY __builtin_inff()\n#endif\n"
    "#ifndef NAN\n#define NAN __builtin_nanf(\"\")\n#endif\n\n";

/* Of files with functions that compute in doubles other than by the operations of plain/wide.h. */
static const char doubles_rules[] =
    "#if __SIZEOF_DOUBLE__ != 8\n#error \"needs a double of 64 bits\"\n#endif\n"
    "#undef WEFT_OWN_DOUBLES\n#define WEFT_OWN_DOUBLES 0\n\n";

/* With vectors: loops are to become vectors at any level of optimisation. Elements of a loop that
 * SIMD_LOOP precedes do not depend on each other. */
static const char simd_rules[] =
    "#if defined(__clang__)\n"
    "#pragma clang diagnostic ignored \"-Wpass-failed\"\n"
    "#define SIMD_LOOP _Pragma(\"clang loop vectorize(assume_safety)\")\n"
    "#elif defined(__GNUC__)\n"
    "#pragma GCC optimize(\"O3\", \"no-trapping-math\")\n"
    "#define SIMD_LOOP _Pragma(\"GCC ivdep\")\n"
    "#else\n#define SIMD_LOOP\n#endif\n\n";

/* The function that runs the plan. */
static void write_run(emit_file *f, emit_text *functions, emit_text *to)
{
    static const char begin[] = "    unsigned char *arena = (unsigned char *)m->arena;\n"
                                "    unsigned char *states = (unsigned char *)m->states;\n"
                                "    (void)arena;\n    (void)states;\n";
    emit_text in = {0}, out = {0}, steps = {0};
    char parameters[EMIT_NAME_BYTES + 16];
    emit_block block = {f->first_step, 0, parameters, "m", begin};
    weft_plan_steps(f->plan, &block.n);
    weft__text_format(parameters, sizeof parameters, "const %s *m", f->options->name);
    weft__emit_repeats(&f->steps, &block, functions, &steps);
    weft__emit_write_copies(f, false, &in);
    weft__emit_write_copies(f, true, &out);
    weft__emit_prototype(f, to);
    weft__emit_text_print(to, "\n{\n%s    (void)io;\n", begin);
    weft__emit_text_append(to, &in);
    if (weft_is_value(f->rate)) {
        weft__emit_text_print(to, "    *");
        weft__emit_address(f, f->rate, false, to);
        weft__emit_text_print(to, " = rate;\n");
    }
    weft__emit_text_append(to, &steps);
    weft__emit_text_print(to, "\n");
    weft__emit_text_append(to, &out);
    weft__emit_text_print(to, "    m->runs++;\n    return 0;\n}\n");
    weft__emit_text_free(&in);
    weft__emit_text_free(&out);
    weft__emit_text_free(&steps);
}

static bool deliver(const emit_file *f, bool header, const emit_text *t)
{
    if (t->failed) return emit_no_memory(f);
    if (!t->n || f->options->write(f->options->context, header, t->text, t->n)) return true;
    weft_error_set(f->error, WEFT_IO, "weft_emit", "the files could not be written");
    return false;
}

static void write_files(emit_file *f)
{
    const weft_emit_options *o = f->options;
    emit_text header = {0}, begin = {0}, bodies = {0}, repeats = {0}, states = {0}, run = {0};
    if (weft__emit_write_states(f, &states)) {
        weft__emit_fold_shapes(f);
        weft__emit_steps_ints(&f->steps, &f->arrays);
        weft__emit_write_bodies(f, &bodies);
        write_run(f, &repeats, &run);
        weft__emit_write_header(f, &header);
        weft__emit_text_print(&begin, o->header ? "#include \"%s\"\n\n" : "#include \"%s.h\"\n\n",
                              o->header ? o->header : o->name);
        weft__emit_text_add(&begin, rules, strlen(rules));
        if (f->items.doubles) weft__emit_text_add(&begin, doubles_rules, strlen(doubles_rules));
        if (f->options->kernels == WEFT_EMIT_SIMD)
            weft__emit_text_add(&begin, simd_rules, strlen(simd_rules));
        (void)(deliver(f, true, &header) && deliver(f, false, &begin) &&
               deliver(f, false, &f->functions) && deliver(f, false, &f->arrays) &&
               deliver(f, false, &bodies) && deliver(f, false, &repeats) &&
               deliver(f, false, &states) && deliver(f, false, &run));
    }
    weft__emit_text_free(&header);
    weft__emit_text_free(&begin);
    weft__emit_text_free(&bodies);
    weft__emit_text_free(&repeats);
    weft__emit_text_free(&states);
    weft__emit_text_free(&run);
}

/* Whether the plan and the options allow a file. */
static bool check(const weft_plan *plan, const weft_emit_options *o, weft_error *error)
{
    const weft_plan_stats stats = weft_plan_stats_of(plan);
    if (!plan || !o || !o->write || (o->n_outputs && !o->outputs))
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_emit",
                       "expected a plan, and options with a function that writes and a list of "
                       "outputs");
    else if (!weft__emit_is_identifier(o->name))
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_emit_options.name",
                       "\"%s\" is not an identifier of C and C++ of up to %d bytes",
                       o->name ? o->name : "", EMIT_NAME_BYTES - 33);
    else if (stats.fixed)
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_emit",
                       "the plan has fixed states, which cannot be written");
    return error->status == WEFT_OK;
}

weft_status weft_emit(const weft_plan *plan, const weft_emit_options *options, weft_error *error)
{
    weft_error none;
    size_t n_values = 1;
    if (!error) error = &none;
    weft_error_clear(error);
    if (!check(plan, options, error)) return error->status;
    emit_file f = {.plan = plan, .g = weft_plan_graph(plan), .options = options, .error = error};
    for (size_t i = 0; i < weft_graph_node_count(f.g); i++)
        n_values += weft_graph_node(f.g, i).n_out;
    f.plan_bytes = f.arena_bytes = weft_plan_stats_of(plan).arena_bytes;
    f.flags = calloc(n_values + 1, 1);
    f.state_of = calloc(n_values + 1, sizeof *f.state_of);
    if (options->kernels == WEFT_EMIT_SIMD) weft__emit_items_add(&f.items, weft__emit_simd);
    weft__emit_items_add(&f.items, weft__emit_library);
    if (!f.flags || !f.state_of)
        emit_no_memory(&f);
    else if (weft__emit_find_fields(&f) && weft__emit_find_states(&f) && weft__emit_plan(&f))
        write_files(&f);
    if (f.items.failed || f.steps.failed) emit_no_memory(&f);
    if (options->sizes) *options->sizes = (weft_emit_sizes){f.arena_bytes, f.state_bytes};
    weft__emit_items_free(&f.items);
    weft__emit_text_free(&f.functions);
    weft__emit_text_free(&f.arrays);
    weft__name_table_free(&f.constants);
    weft__name_table_free(&f.loops);
    weft__emit_steps_free(&f.steps);
    weft__emit_free_bodies(&f);
    free(f.fields);
    free(f.states);
    free(f.flags);
    free(f.state_of);
    return error->status;
}
