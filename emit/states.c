/* States: how they lie in memory, their first contents, and their file. The larger a dtype, the earlier
 * its states, so that all are aligned without gaps, and their memory is the data of a safetensors
 * file. */
#include "emit.h"

#include "base/text.h"
#include "plan/plan.h"
#include "store/safetensors.h"

#include <stdlib.h>
#include <string.h>

/* ---- Finding ---- */

/* O(operands). */
void weft__emit_mark_storages(emit_file *f)
{
    size_t n;
    const scan_body *body = f->loop ? f->loop->scan->body : NULL;
    const weft_plan_step *steps = weft_plan_steps(f->plan, &n);
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->g, steps[i].node);
        for (size_t k = 0; k < node.n_in; k++) {
            const weft_value in = weft_value_from_id(f->g, node.in[k]);
            f->flags[weft__emit_storage_of(f, in).id] |=
                EMIT_USED | (k < node.op->updates ? EMIT_UPDATED : 0);
        }
    }
    for (size_t i = 0; !body && i < f->n_fields; i++)
        f->flags[weft__emit_storage_of(f, f->fields[i].value).id] |= EMIT_USED;
    for (uint32_t k = 0; body && k < body->n_carry + body->n_out; k++) {
        const weft_value out = weft_value_from_id(f->g, f->loop->value[k]);
        f->flags[weft__emit_storage_of(f, out).id] |= EMIT_USED;
    }
}

static bool add_state(emit_file *f, weft_value value)
{
    weft_tensor have;
    emit_state *s = &f->states[f->n_states];
    *s = (emit_state){.id = value.id,
                      .type = {weft_dtype_of(f->g, value), weft_shape_of(f->g, value)},
                      .name = weft_name_of(f->g, value),
                      .updated = (f->flags[value.id] & EMIT_UPDATED) != 0};
    s->bytes = weft_tensor_bytes(s->type.dtype, s->type.shape);
    s->array = f->options->params && !s->updated;
    f->n_states++;
    if (!f->options->params) return true;
    if (!weft_params_find(f->options->params, s->name, &have)) {
        weft_error_set(f->error, WEFT_NOT_FOUND, s->name, "is not among the parameters given");
        return false;
    }
    if (have.dtype == s->type.dtype && weft_shape_equal(have.shape, s->type.shape)) return true;
    weft_error_set(f->error, WEFT_BAD_SHAPE, s->name,
                   "has another dtype or shape among the parameters given");
    return false;
}

bool weft__emit_find_states(emit_file *f)
{
    const size_t n = weft_graph_node_count(f->g);
    f->states = calloc(n + 1, sizeof *f->states);
    if (!f->states) return emit_no_memory(f);
    weft__emit_mark_storages(f);
    for (size_t bytes = 8; bytes; bytes /= 2)
        for (size_t i = 0; i < n; i++) {
            const weft_node_info node = weft_graph_node(f->g, i);
            const weft_value value = weft_value_from_id(f->g, node.first_out);
            if (node.op != &weft_op_state || !(f->flags[value.id] & EMIT_USED) ||
                weft_dtype_bytes(weft_dtype_of(f->g, value)) != bytes)
                continue;
            if (!add_state(f, value)) return false;
            emit_state *s = &f->states[f->n_states - 1];
            f->state_of[value.id] = (uint32_t)f->n_states;
            if (s->array) continue;
            s->offset = f->state_bytes;
            f->state_bytes += s->bytes;
        }
    return true;
}

/* ---- First contents ---- */

static bool are_zeros(const weft_tensor *t, size_t bytes)
{
    const unsigned char *data = t->data;
    for (size_t i = 0; i < bytes; i++)
        if (data[i]) return false;
    return true;
}

/* Whether the lower halves of all floats are 0, as of a model that was stored as bf16. */
static bool are_bf16(const weft_tensor *t, size_t bytes)
{
    uint32_t all = 0, one;
    if (t->dtype != WEFT_F32) return false;
    for (size_t i = 0; i < bytes; i += sizeof one) {
        memcpy(&one, (const unsigned char *)t->data + i, sizeof one);
        all |= one;
    }
    return (all & 0xffff) == 0;
}

/* Copies the constants `array`, which it writes, into the state. Those of bf16 take half the bytes. */
static void write_first(emit_file *f, const emit_state *s, const weft_tensor *t, const char *array,
                        emit_text *to)
{
    char widen[64];
    if (!are_bf16(t, s->bytes)) {
        weft__emit_array(&f->arrays, array, t);
        weft__emit_text_print(to, "    memcpy(states + %zu, %s, %zu);\n", s->offset, array,
                              s->bytes);
        return;
    }
    const size_t n = s->bytes / sizeof(float);
    weft__emit_text_print(&f->arrays, "static const uint16_t %s[%zu] = {", array, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (const float *)t->data + i, sizeof bits);
        weft__emit_text_print(&f->arrays, "%s0x%04x,", i % 12 ? " " : "\n    ",
                              (unsigned)(bits >> 16));
    }
    weft__emit_text_print(&f->arrays, "\n};\n\n");
    emit_function(f, "widen_bf16", WEFT_F32, widen, sizeof widen);
    weft__emit_text_print(to, "    %s(states + %zu, %s, %zu);\n", widen, s->offset, array, n);
}

static void write_init(emit_file *f, emit_text *to)
{
    char identifier[EMIT_NAME_BYTES], array[EMIT_NAME_BYTES + 32];
    weft_tensor tensor;
    weft__emit_text_print(to, "void %s_init(%s *m)\n{\n", f->options->name, f->options->name);
    if (f->state_bytes)
        weft__emit_text_print(to, "    unsigned char *states = (unsigned char *)m->states;\n");
    for (size_t i = 0; i < f->n_states; i++) {
        const emit_state *s = &f->states[i];
        if (s->array || !s->bytes || !weft_params_find(f->options->params, s->name, &tensor))
            continue;
        if (are_zeros(&tensor, s->bytes)) {
            weft__emit_text_print(to, "    memset(states + %zu, 0, %zu);\n", s->offset, s->bytes);
            continue;
        }
        weft__text_format(array, sizeof array, "first_%s_%zu",
                          weft__emit_identifier(s->name, identifier), i);
        write_first(f, s, &tensor, array, to);
    }
    weft__emit_text_print(to, "    m->seed = m->runs = 0;\n}\n\n");
}

/* ---- The file ---- */

/* Writes the bytes before the data of the file: the length of the header, and the header, padded. */
static bool write_file_header(emit_file *f)
{
    emit_text *to = &f->arrays;
    size_t n = 0;
    weft_file_tensor *tensors = calloc(f->n_states + 1, sizeof *tensors);
    for (size_t i = 0; tensors && i < f->n_states; i++)
        if (!f->states[i].array)
            tensors[n++] = (weft_file_tensor){f->states[i].name, f->states[i].type.dtype,
                                              f->states[i].type.shape, NULL};
    char *json = tensors ? weft__safetensors_header(&(safetensors_contents){
                               .tensors = tensors, .n = n, .metadata = f->options->params})
                         : NULL;
    free(tensors);
    if (!json) return emit_no_memory(f);
    const size_t length = strlen(json), padded = (length + 7) / 8 * 8;
    weft__emit_text_print(to, "static const unsigned char file_header[%zu] = {", padded + 8);
    for (size_t i = 0; i < padded + 8; i++) {
        const unsigned byte = i < 8            ? (unsigned)((uint64_t)padded >> (8 * i) & 255)
                              : i < length + 8 ? (unsigned char)json[i - 8]
                                               : ' ';
        weft__emit_text_print(to, i % 20 ? " %u," : "\n    %u,", byte);
    }
    weft__emit_text_print(to, "\n};\n\n");
    f->file_bytes = padded + 8 + f->state_bytes;
    free(json);
    return true;
}

static void write_save(emit_file *f, emit_text *to)
{
    const char *name = f->options->name;
    char load[64];
    emit_function(f, "file_load", WEFT_F32, load, sizeof load);
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
        "    return %s(file_header, sizeof file_header, (const unsigned char *)file, n,\n"
        "                     (unsigned char *)m->states);\n"
        "}\n\n",
        name, name, load);
}

bool weft__emit_write_states(emit_file *f, emit_text *to)
{
    if (f->options->params) write_init(f, to);
    if (!f->state_bytes) return true;
    if (!write_file_header(f)) return false;
    write_save(f, to);
    return true;
}
