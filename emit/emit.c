/* weft_emit: puts together the two files. nodes.c writes the steps of the plan, which decide what
 * functions and arrays there are; places.c says where values lie. */
#include "emit.h"

#include "base/text.h"

#include <weft/version.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool weft_emit_has_op(const weft_op *op)
{
    bool runs = false;
    for (int isa = 0; op && isa < WEFT_ISAS; isa++)
        for (int dtype = 0; dtype < WEFT_DTYPES; dtype++) runs = runs || op->kernel[isa][dtype];
    return op && (op->source || !runs);
}

/* ---- Names ---- */

/* The name of an input or output, unlike those of the fields before it. */
static const char *field_name(const char *name, const char *other, size_t index,
                              char buffer[EMIT_NAME_BYTES])
{
    char identifier[EMIT_NAME_BYTES];
    weft__emit_identifier(name ? name : "", identifier);
    if (name && *name)
        weft__text_format(buffer, EMIT_NAME_BYTES, "%s", identifier);
    else
        weft__text_format(buffer, EMIT_NAME_BYTES, index ? "%s%zu" : "%s", other, index);
    return buffer;
}

static const char *upper(const char *name, char buffer[EMIT_NAME_BYTES])
{
    size_t n = 0;
    for (; name[n] && n + 1 < EMIT_NAME_BYTES; n++)
        buffer[n] = (char)toupper((unsigned char)name[n]);
    buffer[n] = 0;
    return buffer;
}

static bool is_identifier(const char *name)
{
    if (!name || !(isalpha((unsigned char)*name) || *name == '_')) return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') return false;
    return strlen(name) < EMIT_NAME_BYTES - 32;
}

/* ---- Inputs and outputs ---- */

/* A member of the struct of inputs and outputs. */
typedef struct field {
    weft_value value; /* of the plan's graph */
    char name[EMIT_NAME_BYTES];
    bool output;
} field;

typedef struct fields {
    field *list;
    size_t n;
    weft_value rate; /* of the plan's graph */
} fields;

static bool find_fields(const emit_file *f, fields *all)
{
    const weft_emit_options *o = f->options;
    const size_t n = weft_graph_node_count(f->g);
    size_t unnamed = 0;
    all->list = calloc(n + o->n_outputs + 1, sizeof *all->list);
    if (!all->list) {
        weft_error_set(f->error, WEFT_NO_MEMORY, "weft_emit", "out of memory");
        return false;
    }
    if (weft_is_value(o->rate)) all->rate = weft_plan_value(f->plan, o->rate);
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->g, i);
        if (node.op != &weft_op_input) continue;
        const weft_value v = weft_value_from_id(f->g, node.first_out);
        if (weft_plan_buffer_of(f->plan, v) == SIZE_MAX || v.id == all->rate.id) continue;
        const char *name = weft_name_of(f->g, v);
        all->list[all->n].value = v;
        field_name(name, "input", name && *name ? 0 : unnamed++, all->list[all->n++].name);
    }
    for (size_t i = 0; i < o->n_outputs; i++) {
        const weft_value v = weft_plan_value(f->plan, o->outputs[i].value);
        if (!weft_is_value(v)) {
            weft_error_set(f->error, WEFT_BAD_ARGUMENT, "weft_emit_options.outputs",
                           "output %zu is not a target of the plan", i);
            return false;
        }
        const char *name = o->outputs[i].name ? o->outputs[i].name : weft_name_of(f->g, v);
        all->list[all->n].value = v;
        all->list[all->n].output = true;
        field_name(name, "output", i, all->list[all->n++].name);
    }
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(all->list[i].name, all->list[k].name)) {
                const size_t length = strlen(all->list[i].name);
                if (length + 24 < EMIT_NAME_BYTES)
                    weft__text_format(all->list[i].name + length, 24, "_%zu", i);
            }
    return true;
}

static size_t value_bytes(const emit_file *f, weft_value v)
{
    return weft_tensor_bytes(weft_dtype_of(f->g, v), weft_shape_of(f->g, v));
}

static void write_copies(emit_file *f, const fields *all, bool outputs, emit_text *to)
{
    for (size_t i = 0; i < all->n; i++) {
        const field *m = &all->list[i];
        if (m->output != outputs) continue;
        weft__emit_text_print(to, "    if (io->%s) memcpy(", m->name);
        if (outputs) weft__emit_text_print(to, "io->%s, ", m->name);
        weft__emit_address(f, m->value, outputs, to);
        if (!outputs) weft__emit_text_print(to, ", io->%s", m->name);
        weft__emit_text_print(to, ", %zu);\n", value_bytes(f, m->value));
    }
}

/* ---- States as a file ---- */

/* The header of a safetensors file whose data are the states in memory. */
static void write_file_header(const emit_file *f, emit_text *to)
{
    emit_text json = {0};
    char name[6 * EMIT_NAME_BYTES];
    weft__emit_text_print(&json, "{");
    for (size_t i = 0; i < f->n_states; i++) {
        const emit_state *s = &f->states[i];
        if (s->array) continue;
        const char *dtype = s->type.dtype == WEFT_F32   ? "F32"
                            : s->type.dtype == WEFT_F64 ? "F64"
                            : s->type.dtype == WEFT_I32 ? "I32"
                            : s->type.dtype == WEFT_U8  ? "U8"
                                                        : "BOOL";
        weft__text_format(name, sizeof name, "%s", s->name);
        weft__emit_text_print(&json, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                              json.n > 1 ? "," : "", name, dtype);
        for (int d = 0; d < s->type.shape.rank; d++)
            weft__emit_text_print(&json, d ? ",%lld" : "%lld", (long long)s->type.shape.dim[d]);
        weft__emit_text_print(&json, "],\"data_offsets\":[%zu,%zu]}", s->offset,
                              s->offset + s->bytes);
    }
    weft__emit_text_print(&json, "}");
    while (json.n % 8 && !json.failed) weft__emit_text_print(&json, " ");
    /* Eight bytes with the header's length, least significant first, then the header. */
    weft__emit_text_print(to, "static const unsigned char file_header[%zu] = {", json.n + 8);
    for (size_t i = 0; i < json.n + 8 && !json.failed; i++) {
        const unsigned byte =
            i < 8 ? (unsigned)((uint64_t)json.n >> (8 * i) & 255) : (unsigned char)json.text[i - 8];
        weft__emit_text_print(to, i % 20 ? " %u," : "\n    %u,", byte);
    }
    weft__emit_text_print(to, "\n};\n\n");
    to->failed |= json.failed;
    weft__emit_text_free(&json);
}

static void write_save(const emit_file *f, emit_text *to)
{
    const char *name = f->options->name;
    weft__emit_text_print(
        to,
        "void %s_save(const %s *m, void *file)\n{\n"
        "    memcpy(file, file_header, sizeof file_header);\n"
        "    memcpy((unsigned char *)file + sizeof file_header, m->states, %zu);\n"
        "}\n\n",
        name, name, f->state_bytes);
    weft__emit_text_print(
        to,
        "int %s_load(%s *m, const void *file, size_t n)\n{\n"
        "    if (n != sizeof file_header + %zu || memcmp(file, file_header, sizeof file_header))\n"
        "        return 1;\n"
        "    memcpy(m->states, (const unsigned char *)file + sizeof file_header, %zu);\n"
        "    return 0;\n"
        "}\n\n",
        name, name, f->state_bytes, f->state_bytes);
}

/* First contents of the updated states. */
static void write_init(emit_file *f, emit_text *to)
{
    char identifier[EMIT_NAME_BYTES], array[EMIT_NAME_BYTES + 32];
    weft_tensor tensor;
    weft__emit_text_print(to,
                          "void %s_init(%s *m)\n{\n"
                          "    unsigned char *states = (unsigned char *)m->states;\n"
                          "    (void)states;\n",
                          f->options->name, f->options->name);
    for (size_t i = 0; i < f->n_states && f->options->params; i++) {
        const emit_state *s = &f->states[i];
        if (s->array || !s->bytes || !weft_params_find(f->options->params, s->name, &tensor))
            continue;
        const unsigned char *data = tensor.data;
        bool zeros = true;
        for (size_t k = 0; k < s->bytes && zeros; k++) zeros = !data[k];
        if (zeros) {
            weft__emit_text_print(to, "    memset(states + %zu, 0, %zu);\n", s->offset, s->bytes);
            continue;
        }
        weft__text_format(array, sizeof array, "first_%s_%zu",
                          weft__emit_identifier(s->name, identifier), i);
        weft__emit_array(&f->arrays, array, &tensor);
        weft__emit_text_print(to, "    memcpy(states + %zu, %s, %zu);\n", s->offset, array,
                              s->bytes);
    }
    weft__emit_text_print(to, "    m->seed = m->runs = 0;\n}\n\n");
}

/* ---- The header ---- */

static void write_fields(const emit_file *f, const fields *all, emit_text *to)
{
    char shape[128];
    for (size_t i = 0; i < all->n; i++) {
        const field *m = &all->list[i];
        weft__emit_text_print(to, "    %s%s *%s; /* %s */\n", m->output ? "" : "const ",
                              weft__emit_type(weft_dtype_of(f->g, m->value)), m->name,
                              weft_shape_text(weft_shape_of(f->g, m->value), shape, sizeof shape));
    }
    if (!all->n) weft__emit_text_print(to, "    int none;\n");
}

static void write_header(emit_file *f, const fields *all, size_t file_bytes, emit_text *to)
{
    char big[EMIT_NAME_BYTES];
    const char *name = f->options->name;
    const bool step = weft_is_value(all->rate);
    const bool states = f->state_bytes > 0;
    upper(name, big);
    weft__emit_text_print(
        to,
        "/* %s: a plan of weft %s as C. Written by weft_emit; its arithmetic is that of "
        "weft, bit for bit. */\n"
        "#ifndef %s_H\n#define %s_H\n\n"
        "#include <stddef.h>\n#include <stdint.h>\n\n"
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
        name, WEFT_VERSION, big, big);
    weft__emit_text_print(to, "#define %s_ARENA_BYTES %zu\n#define %s_STATE_BYTES %zu\n", big,
                          weft_plan_stats_of(f->plan).arena_bytes, big, f->state_bytes);
    if (states)
        weft__emit_text_print(to, "#define %s_FILE_BYTES  %zu /* of %s_save */\n", big, file_bytes,
                              name);
    weft__emit_text_print(
        to,
        "\n/* The memory of one model. Both are the caller's, aligned to 16 bytes; the arena "
        "holds\n"
        " * nothing between two runs. Random numbers depend on the seed and on the number of runs\n"
        " * before. */\n"
        "typedef struct %s {\n"
        "    void *arena;  /* of %s_ARENA_BYTES */\n"
        "    void *states; /* of %s_STATE_BYTES */\n"
        "    uint64_t seed, runs;\n} %s;\n\n",
        name, big, big, name);
    weft__emit_text_print(
        to,
        "/* Inputs, which are read, and outputs, which are written. An input that is\n"
        " * NULL keeps what it had in the arena; an output that is NULL is left out. */\n"
        "typedef struct %s_io {\n",
        name);
    write_fields(f, all, to);
    weft__emit_text_print(to, "} %s_io;\n\n", name);
    if (f->options->params)
        weft__emit_text_print(
            to,
            "/* Gives the states their first contents, and begins with run 0 and seed 0. */\n"
            "void %s_init(%s *m);\n\n",
            name, name);
    weft__emit_text_print(
        to, "/* %s Returns 0%s. */\nint %s_%s(%s *m, const %s_io *io%s);\n\n",
        step ? "One update." : "One run.",
        f->can_fail
            ? ", or the number of the node in the .c file whose data are out of range or not\n"
              " * finite; states are then as before"
            : "",
        name, step ? "step" : "run", name, name, step ? ", float rate" : "");
    if (states)
        weft__emit_text_print(
            to,
            "/* The states as a safetensors file of %s_FILE_BYTES, and back: 1 if it has other\n"
            " * states than these. */\n"
            "void %s_save(const %s *m, void *file);\nint %s_load(%s *m, const void *file, size_t "
            "n);\n\n",
            big, name, name, name, name);
    weft__emit_text_print(to, "#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

/* ---- The source ---- */

static void write_run(emit_file *f, const fields *all, emit_text *to)
{
    const char *name = f->options->name;
    const bool step = weft_is_value(all->rate);
    weft__emit_text_print(to,
                          "int %s_%s(%s *m, const %s_io *io%s)\n{\n"
                          "    unsigned char *arena = (unsigned char *)m->arena;\n"
                          "    unsigned char *states = (unsigned char *)m->states;\n",
                          name, step ? "step" : "run", name, name, step ? ", float rate" : "");
    if (f->uses_seed)
        weft__emit_text_print(to, "    const uint64_t seed = m->seed, number = m->runs;\n");
    weft__emit_text_print(to, "    (void)arena;\n    (void)states;\n    (void)io;\n");
    write_copies(f, all, false, to);
    if (step) {
        weft__emit_text_print(to, "    *");
        weft__emit_address(f, all->rate, false, to);
        weft__emit_text_print(to, " = rate;\n");
    }
    if (f->body.n) weft__emit_text_add(to, f->body.text, f->body.n);
    weft__emit_text_print(to, "\n");
    write_copies(f, all, true, to);
    weft__emit_text_print(to, "    m->runs++;\n    return 0;\n}\n");
}

/* What a compiler must not do, in its own words. */
static const char rules[] =
    "/* Each operation rounds on its own; only calls of fma are fused. */\n"
    "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
    "#elif defined(__GNUC__)\n#pragma GCC optimize(\"fp-contract=off\")\n#endif\n"
    "#if defined(__FAST_MATH__) || (defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0)\n"
    "#error \"needs floats and doubles that round as IEEE 754 says: no -ffast-math, no x87\"\n"
    "#endif\n"
    "#if __SIZEOF_DOUBLE__ != 8\n#error \"needs a double of 64 bits\"\n#endif\n\n";

static bool deliver(emit_file *f, bool header, const emit_text *t)
{
    if (t->failed) {
        weft_error_set(f->error, WEFT_NO_MEMORY, "weft_emit", "out of memory");
        return false;
    }
    if (!t->n || f->options->write(f->options->context, header, t->text, t->n)) return true;
    weft_error_set(f->error, WEFT_IO, "weft_emit", "the files could not be written");
    return false;
}

static bool write_files(emit_file *f)
{
    fields all = {0};
    emit_text header = {0}, source = {0}, init = {0}, run = {0}, save = {0};
    bool good = find_fields(f, &all);
    if (good) {
        write_run(f, &all, &run);
        if (f->options->params) write_init(f, &init);
        if (f->state_bytes) {
            write_file_header(f, &f->arrays);
            write_save(f, &save);
        }
        size_t json = 0; /* the length of the header stands in its array */
        const char *at = f->arrays.text ? strstr(f->arrays.text, "file_header[") : NULL;
        if (at) json = (size_t)strtoull(at + 12, NULL, 10);
        write_header(f, &all, json + f->state_bytes, &header);
        weft__emit_text_print(&source,
                              "/* %s: see %s.h. */\n#include \"%s.h\"\n\n#include <stdbool.h>\n"
                              "#include <string.h>\n\n%s",
                              f->options->name, f->options->name, f->options->name, rules);
        good = deliver(f, true, &header) && deliver(f, false, &source) &&
               deliver(f, false, &f->functions) && deliver(f, false, &f->arrays) &&
               deliver(f, false, &init) && deliver(f, false, &save) && deliver(f, false, &run);
    }
    free(all.list);
    weft__emit_text_free(&header);
    weft__emit_text_free(&source);
    weft__emit_text_free(&init);
    weft__emit_text_free(&run);
    weft__emit_text_free(&save);
    return good;
}

weft_status weft_emit(const weft_plan *plan, const weft_emit_options *options, weft_error *error)
{
    weft_error none;
    if (!error) error = &none;
    weft_error_clear(error);
    if (!plan || !options || !options->write)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_emit",
                              "expected a plan, and options with a function that writes");
    if (!is_identifier(options->name))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_emit_options.name",
                              "\"%s\" is not an identifier of C",
                              options->name ? options->name : "");
    const weft_plan_stats stats = weft_plan_stats_of(plan);
    if (stats.fixed || stats.narrow)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_emit",
                              "the plan has %s, which cannot be written",
                              stats.fixed ? "fixed states" : "values stored as bf16");
    emit_file f = {.plan = plan, .g = weft_plan_graph(plan), .options = options, .error = error};
    size_t n_values = 1;
    for (size_t i = 0; i < weft_graph_node_count(f.g); i++)
        n_values += weft_graph_node(f.g, i).n_out;
    f.has_array = calloc(n_values + 1, 1);
    weft__emit_items_add(&f.items, weft__emit_library);
    if (!f.has_array || f.items.failed)
        weft_error_set(error, WEFT_NO_MEMORY, "weft_emit", "out of memory");
    else if (weft__emit_find_states(&f) && weft__emit_nodes(&f))
        write_files(&f);
    if (f.items.failed) weft_error_set(error, WEFT_NO_MEMORY, "weft_emit", "out of memory");
    weft__emit_items_free(&f.items);
    weft__emit_text_free(&f.functions);
    weft__emit_text_free(&f.arrays);
    weft__emit_text_free(&f.body);
    free(f.states);
    free(f.has_array);
    return error->status;
}
