/* What a program sees of a file: the struct of inputs and outputs, and the header. */
#include "emit.h"

#include "base/text.h"
#include "ir/ir.h"

#include <weft/version.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- Inputs and outputs ---- */

static bool is_taken(const emit_file *f, const char *name)
{
    for (size_t i = 0; i < f->n_fields; i++)
        if (!strcmp(f->fields[i].name, name)) return true;
    return false;
}

/* Adds a field whose name no field before it has. */
static void add_field(emit_file *f, weft_value value, const char *name, bool output)
{
    emit_field *field = &f->fields[f->n_fields];
    const char *wanted = name && *name ? name : output ? "output" : "input";
    field->value = value;
    field->output = output;
    weft__emit_identifier(wanted, field->name);
    const size_t length = strnlen(field->name, EMIT_NAME_BYTES - 24);
    for (size_t i = 1; is_taken(f, field->name); i++)
        weft__text_format(field->name + length, 24, "_%zu", i);
    f->n_fields++;
}

bool weft__emit_find_fields(emit_file *f)
{
    const weft_emit_options *o = f->options;
    const size_t n = weft_graph_node_count(f->g);
    f->fields = calloc(n + o->n_outputs + 1, sizeof *f->fields);
    if (!f->fields) return emit_no_memory(f);
    f->rate = weft_plan_value(f->plan, o->rate);
    if (weft_is_value(o->rate) && !weft_is_value(f->rate)) {
        weft_error_set(f->error, WEFT_BAD_ARGUMENT, "weft_emit_options.rate",
                       "is not an input of the plan");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->g, i);
        const weft_value v = weft_value_from_id(f->g, node.first_out);
        if (node.op == &weft_op_input && weft_plan_buffer_of(f->plan, v) != SIZE_MAX &&
            v.id != f->rate.id)
            add_field(f, v, weft_name_of(f->g, v), false);
    }
    for (size_t i = 0; i < o->n_outputs; i++) {
        const weft_value v = weft_plan_value(f->plan, o->outputs[i].value);
        if (!weft_is_value(v)) {
            weft_error_set(f->error, WEFT_BAD_ARGUMENT, "weft_emit_options.outputs",
                           "output %zu is not a target of the plan", i);
            return false;
        }
        add_field(f, v, o->outputs[i].name ? o->outputs[i].name : weft_name_of(f->g, v), true);
    }
    return true;
}

/* The attributes of an input; NULL for an output. */
static const weft_input_attr *input_of(const emit_file *f, const emit_field *m)
{
    return m->output ? NULL : weft_graph_node(f->g, weft_producer_of(f->g, m->value)).attr;
}

void weft__emit_write_copies(emit_file *f, bool outputs, emit_text *to)
{
    char number[EMIT_NUMBER_BYTES], fill[64], copy[64];
    for (size_t i = 0; i < f->n_fields; i++) {
        const emit_field *m = &f->fields[i];
        const weft_input_attr *input = input_of(f, m);
        const weft_dtype dtype = weft_dtype_of(f->g, m->value);
        const weft_shape shape = weft_shape_of(f->g, m->value);
        if (m->output != outputs) continue;
        emit_function(f, "copy", dtype, copy, sizeof copy);
        weft__emit_text_print(to, "    if (io->%s)\n        %s(", m->name, copy);
        if (outputs) weft__emit_text_print(to, "io->%s, ", m->name);
        weft__emit_address(f, m->value, outputs, to);
        if (!outputs) weft__emit_text_print(to, ", io->%s", m->name);
        weft__emit_text_print(to, ", %lld);\n", (long long)weft_shape_numel(shape));
        if (!input || !input->has_default) continue;
        emit_function(f, "fill", dtype, fill, sizeof fill);
        weft__emit_text_print(to, "    else\n        %s(", fill);
        weft__emit_address(f, m->value, false, to);
        weft__emit_text_print(to, ", %s, %lld);\n", weft__emit_number(input->value, dtype, number),
                              (long long)weft_shape_numel(shape));
    }
}

/* ---- The header ---- */

static void write_fields(const emit_file *f, emit_text *to)
{
    char shape[128], number[EMIT_NUMBER_BYTES];
    for (size_t i = 0; i < f->n_fields; i++) {
        const emit_field *m = &f->fields[i];
        const weft_input_attr *input = input_of(f, m);
        const weft_dtype dtype = weft_dtype_of(f->g, m->value);
        weft__emit_text_print(to, "    %s%s *%s; /* %s", m->output ? "" : "const ",
                              weft__emit_type(dtype), m->name,
                              weft_shape_text(weft_shape_of(f->g, m->value), shape, sizeof shape));
        if (input && input->has_default)
            weft__emit_text_print(to, "; NULL: %s", weft__emit_number(input->value, dtype, number));
        weft__emit_text_print(to, " */\n");
    }
    if (!f->n_fields) weft__emit_text_print(to, "    int none;\n");
}

void weft__emit_prototype(const emit_file *f, emit_text *to)
{
    const char *name = f->options->name;
    const bool step = weft_is_value(f->rate);
    weft__emit_text_print(to, "int %s_%s(%s *m, const %s_io *io", name, step ? "step" : "run", name,
                          name);
    if (step) weft__emit_text_print(to, ", %s rate", weft__emit_type(weft_dtype_of(f->g, f->rate)));
    weft__emit_text_print(to, ")");
}

static void write_sizes(const emit_file *f, const char *big, emit_text *to)
{
    weft__emit_text_print(to, "#define %s_ARENA_BYTES %zu\n#define %s_STATE_BYTES %zu\n", big,
                          f->arena_bytes, big, f->state_bytes);
    if (f->state_bytes)
        weft__emit_text_print(to, "#define %s_FILE_BYTES  %zu\n", big, f->file_bytes);
}

/* Where inputs and outputs lie, for programs that fill and read the arena itself. */
static void write_offsets(const emit_file *f, const char *big, emit_text *to)
{
    bool any = false;
    for (size_t i = 0; i < f->n_fields; i++) {
        const emit_place at = weft__emit_place(f, f->fields[i].value);
        if (at.storage != EMIT_ARENA) continue;
        if (!any)
            weft__emit_text_print(
                to,
                "\n/* Bytes of the arena before an input or output. An input may be written there\n"
                " * before each run, and an output be read after it; its pointer is NULL then. "
                "*/\n");
        any = true;
        weft__emit_text_print(to, "#define %s_OFFSET_%s %lld\n", big, f->fields[i].name,
                              (long long)at.offset);
    }
}

static void write_types(const emit_file *f, const char *big, emit_text *to)
{
    const char *name = f->options->name;
    weft__emit_text_print(
        to,
        "\n/* The memory of one model. Both are the caller's, aligned to 8 bytes. The arena may\n"
        " * have other uses between two runs. Random numbers depend on the seed and on the number\n"
        " * of runs before. */\n"
        "typedef struct %s {\n"
        "    void *arena;  /* of %s_ARENA_BYTES */\n"
        "    void *states; /* of %s_STATE_BYTES */\n"
        "    uint64_t seed, runs;\n} %s;\n\n",
        name, big, big, name);
    weft__emit_text_print(
        to,
        "/* Inputs, which are read, and outputs, which are written. An input that is NULL has its\n"
        " * default; without one, what the last run left there. An output that is NULL is not\n"
        " * written. */\n"
        "typedef struct %s_io {\n",
        name);
    write_fields(f, to);
    weft__emit_text_print(to, "} %s_io;\n\n", name);
}

static void write_functions(const emit_file *f, const char *big, emit_text *to)
{
    const char *name = f->options->name;
    if (f->options->params)
        weft__emit_text_print(
            to,
            "/* Gives the states their first contents, and begins with run 0 and seed 0. */\n"
            "void %s_init(%s *m);\n\n",
            name, name);
    weft__emit_text_print(
        to, "/* %s Returns 0%s. */\n", weft_is_value(f->rate) ? "One update." : "One run.",
        f->can_fail ? ", or the number of the node in the .c file whose data are out of range or\n"
                      " * not finite: no parameter has changed then"
                    : "");
    weft__emit_prototype(f, to);
    weft__emit_text_print(to, ";\n\n");
    if (!f->state_bytes) return;
    weft__emit_text_print(
        to,
        "/* The states as a safetensors file of %s_FILE_BYTES, and back, from one of n bytes that\n"
        " * has all of them, in any order. Returns 0; 1 if it lacks one, or is damaged: then the\n"
        " * states do not change. */\n"
        "void %s_save(const %s *m, void *file);\n"
        "int %s_load(%s *m, const void *file, size_t n);\n\n",
        big, name, name, name, name);
}

void weft__emit_write_header(const emit_file *f, emit_text *to)
{
    char big[EMIT_NAME_BYTES];
    const char *name = f->options->name;
    size_t n = 0;
    for (; name[n]; n++) big[n] = (char)toupper((unsigned char)name[n]);
    big[n] = 0;
    weft__emit_text_print(to,
                          "/* %s: a plan of weft %s as C, with weft's arithmetic bit for bit. "
                          "Written by weft_emit. */\n"
                          "#ifndef %s_H\n#define %s_H\n\n"
                          "#include <stddef.h>\n#include <stdint.h>\n\n"
                          "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
                          name, WEFT_VERSION, big, big);
    write_sizes(f, big, to);
    write_offsets(f, big, to);
    write_types(f, big, to);
    write_functions(f, big, to);
    weft__emit_text_print(to, "#ifdef __cplusplus\n}\n#endif\n#endif\n");
}
