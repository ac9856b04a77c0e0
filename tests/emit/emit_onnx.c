/* Writes the cases of ONNX's test data: each model that the library imports as a C file, and what the
 * library computes from the case's inputs. The reference's outputs are onnx_conformance's subject. */
#include "emit_onnx.h"

#include "onnx_case.h"

#include <weft/plan.h>
#include <weft/session.h>
#include <weft/weft.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS         2
#define OUTPUT_BYTES (1 << 22) /* the driver has room for as much */

typedef struct onnx_cases {
    const emit_writer *to;
    const char *root;
    size_t n_written, n_imported;
} onnx_cases;

/* A model of a case in a graph, planned. */
typedef struct planned {
    weft_graph *g;
    weft_params *params;
    weft_plan *plan;
    weft_session *session;
    weft_value inputs[ONNX_CASE_TENSORS], outputs[ONNX_CASE_TENSORS];
    size_t n_outputs;
} planned;

static bool plan_case(onnx_case *c, planned *p)
{
    *p = (planned){.g = weft_graph_new(), .params = weft_params_new()};
    weft_onnx_outputs(c->model, &p->n_outputs);
    if (weft_onnx_build(p->g, c->model, 0, p->inputs, p->outputs) != WEFT_OK)
        weft_error_copy(&c->error, weft_graph_error(p->g));
    else if (weft_onnx_copy_weights(c->model, p->params, &c->error) == WEFT_OK)
        p->plan = weft_plan_new(p->g, p->outputs, p->n_outputs, NULL, &c->error);
    if (p->plan) p->session = weft_session_new(p->plan, p->params, NULL, &c->error);
    return p->session != NULL;
}

static void free_planned(planned *p)
{
    weft_session_free(p->session);
    weft_plan_free(p->plan);
    weft_params_free(p->params);
    weft_graph_free(p->g);
}

/* ---- The driver ---- */

/* Declares the inputs of a run in the order of the struct's members, and the struct. */
static void write_io(const onnx_case *c, const planned *p, const char *name, const emit_writer *to)
{
    const weft_graph *g = weft_plan_graph(p->plan);
    size_t n = 0;
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node_info node = weft_graph_node(g, i);
        const weft_value v = weft_value_from_id(g, node.first_out);
        if (node.op != &weft_op_input || weft_plan_buffer_of(p->plan, v) == SIZE_MAX) continue;
        for (size_t k = 0, fed = 0; k < c->n_inputs; k++) {
            if (onnx_case_is_constant(c, k)) continue;
            if (weft_plan_value(p->plan, p->inputs[fed++]).id != v.id) continue;
            const size_t bytes = onnx_case_bytes(&c->inputs[k]);
            fwrite(c->inputs[k].data, 1, bytes, to->data);
            fprintf(to->calls, "      void *in%zu = next(%zu);\n", n++, bytes);
        }
    }
    fprintf(to->calls, "      %s_io io = {", name);
    for (size_t i = 0; i < n; i++) fprintf(to->calls, "in%zu, ", i);
    for (size_t i = 0; i < p->n_outputs; i++) fprintf(to->calls, "(void *)&got[%zu], ", i);
    fprintf(to->calls, "};\n");
}

/* Runs the plan; the driver does the same and compares the outputs. */
static void write_run(onnx_case *c, planned *p, const char *name, const emit_writer *to)
{
    const bool runs = onnx_case_feed(c, p->session, p->inputs) == WEFT_OK &&
                      weft_session_run(p->session, &c->error) == WEFT_OK;
    fprintf(to->calls, "      bad += (%s_run(&m, &io) != 0) != %d;\n", name, !runs);
    for (size_t i = 0; runs && i < p->n_outputs; i++) {
        weft_tensor t;
        weft_session_tensor(p->session, p->outputs[i], &t, &c->error);
        const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        char *dense = malloc(bytes + 1);
        onnx_case_copy(dense, &t);
        fwrite(dense, 1, bytes, to->data);
        free(dense);
        fprintf(to->calls, "      bad += !equal(&got[%zu], next(%zu), %zu, %d);\n", i, bytes, bytes,
                weft_dtype_is_float(t.dtype) ? (int)weft_dtype_bytes(t.dtype) : 0);
    }
}

static void write_driver(onnx_case *c, planned *p, const char *name, const emit_writer *to)
{
    char upper[128];
    size_t n = 0;
    for (; name[n]; n++) upper[n] = (char)toupper((unsigned char)name[n]);
    upper[n] = 0;
    fprintf(to->driver, "#include \"%s.h\"\n", name);
    fprintf(to->calls,
            "    { unsigned char *arena = new_arena(%s_ARENA_BYTES);\n"
            "      static union { double d; unsigned char b[%s_STATE_BYTES + 1]; } states;\n"
            "      %s m = {arena, &states, 0, 0};\n      int bad = 0;\n",
            upper, upper, name);
    write_io(c, p, name, to);
    fprintf(to->calls, "      %s_init(&m);\n", name);
    for (int i = 0; i < RUNS; i++) write_run(c, p, name, to);
    fprintf(to->calls, "      bad += end_arena(arena, %s_ARENA_BYTES);\n", upper);
    fprintf(to->calls, "      report(\"%s\", bad); }\n", name);
}

/* ---- Cases ---- */

/* "node_test_abs" of "ROOT/node/test_abs". */
static void name_case(const onnx_cases *all, const char *path, char name[96])
{
    size_t n = 0;
    for (const char *at = path + strlen(all->root) + 1; *at && n < 80; at++)
        name[n++] = isalnum((unsigned char)*at) ? *at : '_';
    name[n] = 0;
    if (n == 80) snprintf(name + n, 96 - n, "_%zu", all->n_imported % 1000000);
}

static bool write_planned(onnx_case *c, planned *p, const char *name, const emit_writer *to)
{
    char names[ONNX_CASE_TENSORS][24];
    weft_emit_value outputs[ONNX_CASE_TENSORS];
    for (size_t i = 0; i < p->n_outputs; i++) {
        const weft_dtype dtype = weft_dtype_of(p->g, p->outputs[i]);
        if (weft_tensor_bytes(dtype, weft_shape_of(p->g, p->outputs[i])) > OUTPUT_BYTES) {
            printf("refused: %s: output %zu: has no room in the driver\n", name, i);
            return false;
        }
        snprintf(names[i], sizeof names[i], "out%zu", i);
        outputs[i] = (weft_emit_value){p->outputs[i], names[i]};
    }
    if (!to->emit(p->plan, name, outputs, p->n_outputs, WEFT_NO_VALUE, p->params)) return false;
    write_driver(c, p, name, to);
    return true;
}

static void write_case(void *context, const char *path)
{
    onnx_cases *all = context;
    char name[96];
    for (int set = 0, present = 1; present; set++) {
        planned p = {0};
        onnx_case *c = calloc(1, sizeof *c);
        if (!c) return;
        present = onnx_case_read(c, path, set);
        if (present && c->error.status == WEFT_OK && onnx_case_load(c)) {
            all->n_imported++;
            name_case(all, path, name);
            if (!plan_case(c, &p))
                printf("refused: %s: cannot be planned: %s\n", name, c->error.message);
            else
                all->n_written += write_planned(c, &p, name, all->to);
            free_planned(&p);
        }
        onnx_case_free(c);
        free(c);
    }
}

size_t emit_onnx_write(const char *root, const emit_writer *to)
{
    static const char *const folders[] = {"node", "simple", "pytorch-converted",
                                          "pytorch-operator"};
    onnx_cases all = {.to = to, .root = root};
    int n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        n += onnx_case_each(root, folders[i], write_case, &all);
    printf("%zu of %d cases imported\n", all.n_imported, n);
    return all.n_written;
}
