/* Gradients of larger values than the samples and random calls of ops have: rows of several ranges of terms,
 * several blocks of queries and keys, more channels than a block has, rows of images that vectors cut, images with
 * fewer pixels than a vector, and one with longer rows than a slab, products of small numbers, and of single rows. */
#include "emit_cases.h"

#include <weft/autograd.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

/* A case under way, whose inputs are numbered. */
typedef struct wide {
    test_case c;
    weft_dtype dtype;
    size_t inputs;
} wide;

static weft_value input(wide *w, weft_dtype dtype, weft_shape shape)
{
    char name[16];
    snprintf(name, sizeof name, "x%zu", w->inputs++);
    return weft_input(w->c.g, name, dtype, shape);
}

/* y, and its gradients by `wrt` for a cotangent that is an input, become targets. */
static void add(wide *w, weft_value y, const weft_value *wrt, size_t n)
{
    const weft_value dy = input(w, w->dtype, weft_shape_of(w->c.g, y));
    w->c.targets[w->c.n_targets++] = y;
    weft_grad_of(w->c.g, &y, &dy, 1, wrt, n, w->c.targets + w->c.n_targets);
    w->c.n_targets += n;
}

static void add_attention(wide *w, const weft_sdpa_options *o)
{
    const weft_value qkv[] = {input(w, w->dtype, WEFT_SHAPE(1, 70, 4, 136)),
                              input(w, w->dtype, WEFT_SHAPE(1, 135, 2, 136)),
                              input(w, w->dtype, WEFT_SHAPE(1, 135, 2, 20))};
    add(w, weft_sdpa(w->c.g, qkv[0], qkv[1], qkv[2], o), qkv, 3);
}

static void add_conv(wide *w, weft_shape image, weft_shape kernel, const weft_conv_options *o)
{
    const weft_value xw[] = {input(w, w->dtype, image), input(w, w->dtype, kernel)};
    add(w, weft_conv(w->c.g, xw[0], xw[1], WEFT_NO_VALUE, o), xw, 2);
}

/* A product of more rows, columns and terms than a block has, whose sums are about as small as the smallest
 * normal number. */
static void add_small_product(wide *w)
{
    const weft_value ab[] = {input(w, w->dtype, WEFT_SHAPE(40, 301)),
                             input(w, w->dtype, WEFT_SHAPE(301, 70))};
    add(w,
        weft_matmul(w->c.g, weft_mul_scalar(w->c.g, ab[0], 0x1p-62),
                    weft_mul_scalar(w->c.g, ab[1], 0x1p-62)),
        ab, 2);
}

static void add_norms(wide *w)
{
    weft_graph *g = w->c.g;
    const weft_value rows[] = {input(w, w->dtype, WEFT_SHAPE(70, 600)),
                               input(w, w->dtype, WEFT_SHAPE(600)),
                               input(w, w->dtype, WEFT_SHAPE(600))};
    const weft_value images[] = {input(w, w->dtype, WEFT_SHAPE(3, 4, 30, 20)),
                                 input(w, w->dtype, WEFT_SHAPE(4)),
                                 input(w, w->dtype, WEFT_SHAPE(4))};
    const weft_value points[] = {input(w, w->dtype, WEFT_SHAPE(700, 4)), images[1], images[2]};
    add(w, weft_layer_norm(g, rows[0], rows[1], rows[2], 1e-5), rows, 3);
    add(w, weft_rms_norm(g, rows[0], rows[1], 1e-5), rows, 2);
    add(w, weft_batch_norm(g, images[0], images[1], images[2], 1e-5, NULL, NULL), images, 3);
    add(w, weft_batch_norm(g, points[0], points[1], points[2], 1e-5, NULL, NULL), points, 3);
    add(w, weft_softmax(g, rows[0], -1), rows, 1);
    add(w, weft_log_softmax(g, rows[0], 0), rows, 1);
}

/* Writes the case, whose targets are its outputs. */
static void write_and_free(wide *w)
{
    weft_graph *g = w->c.g;
    w->c.n_outputs = w->c.n_targets;
    if (weft_graph_status(g) != WEFT_OK)
        printf("refused: %s: %s: %s\n", w->c.name, weft_graph_error(g)->where,
               weft_graph_error(g)->message);
    emit_write_case(&w->c, 1);
    weft_params_free(w->c.params);
    weft_graph_free(g);
}

static void write_wide(weft_dtype dtype, int64_t min_narrow)
{
    const weft_conv_options around = {.pad_begin = {1, 1}, .pad_end = {1, 1}},
                            depthwise = {.pad_begin = {1, 1}, .pad_end = {1, 1}, .groups = 4},
                            strided = {.stride = {2, 2},
                                       .dilation = {1, 2},
                                       .pad_begin = {1, 3},
                                       .pad_end = {0, 2},
                                       .groups = 4},
                            pairs = {.groups = 2}, apart = {.stride = {3, 2}, .pad_end = {2, 1}};
    wide w = {.c = {.g = weft_graph_new(),
                    .params = weft_params_new(),
                    .vocab = 600,
                    .min_narrow = min_narrow},
              .dtype = dtype};
    weft_graph *g = w.c.g;
    snprintf(w.c.name, sizeof w.c.name, "wide_%s", weft_dtype_name(dtype));
    add_attention(&w, &(weft_sdpa_options){.causal = true, .window = 60});
    add_attention(&w, &(weft_sdpa_options){.dropout = 0.25});
    add_conv(&w, WEFT_SHAPE(2, 4, 20, 37), WEFT_SHAPE(4, 1, 3, 3), &depthwise);
    add_conv(&w, WEFT_SHAPE(2, 4, 20, 37), WEFT_SHAPE(8, 1, 3, 3), &strided);
    add_conv(&w, WEFT_SHAPE(1, 4, 70, 70), WEFT_SHAPE(4, 1, 2, 3), &depthwise);
    add_conv(&w, WEFT_SHAPE(2, 18, 9, 9), WEFT_SHAPE(70, 18, 3, 3), &around);
    add_conv(&w, WEFT_SHAPE(1, 2, 2, 5000), WEFT_SHAPE(2, 1, 1, 4), &pairs);
    add_conv(&w, WEFT_SHAPE(7, 12, 2, 2), WEFT_SHAPE(10, 6, 1, 1), &pairs);
    add_conv(&w, WEFT_SHAPE(5, 12, 3, 3), WEFT_SHAPE(10, 6, 2, 3), &pairs);
    add_conv(&w, WEFT_SHAPE(3, 6, 7, 6), WEFT_SHAPE(9, 6, 3, 3), &apart);
    add_small_product(&w);
    add_norms(&w);
    const weft_value logits = input(&w, dtype, WEFT_SHAPE(5, 600)),
                     classes = input(&w, WEFT_I32, WEFT_SHAPE(5));
    const weft_value loss = weft_cross_entropy_loss(g, logits, classes, NULL);
    add(&w, loss, &logits, 1);
    write_and_free(&w);
}

/* Products of single rows: fewer columns than vectors hold, and some that the last vector shares with the one before;
 * terms of one chain, of whole chains, and one less and one more. */
static void write_rows(weft_dtype dtype)
{
    static const int64_t terms[] = {1, 127, 128, 129, 300, 784};
    static const int64_t columns[] = {8, 10, 16, 24, 32, 40, 76};
    wide w = {.c = {.g = weft_graph_new(), .params = weft_params_new()}, .dtype = dtype};
    weft_graph *g = w.c.g;
    snprintf(w.c.name, sizeof w.c.name, "wide_rows_%s", weft_dtype_name(dtype));
    for (size_t k = 0; k < sizeof terms / sizeof *terms; k++) {
        const weft_value a = input(&w, dtype, WEFT_SHAPE(1, terms[k]));
        for (size_t n = 0; n < sizeof columns / sizeof *columns; n++) {
            const weft_value ab[] = {a, input(&w, dtype, WEFT_SHAPE(terms[k], columns[n]))};
            const weft_value y = weft_matmul(g, ab[0], ab[1]);
            if (terms[k] == 129)
                add(&w, y, ab, 2);
            else
                w.c.targets[w.c.n_targets++] = y;
        }
    }
    write_and_free(&w);
}

void emit_write_wide(int64_t min_narrow)
{
    write_wide(WEFT_F32, min_narrow);
    if (min_narrow) return;
    write_wide(WEFT_F64, 0);
    write_rows(WEFT_F32);
    write_rows(WEFT_F64);
}
