/* Trains a network of one hidden layer on images of 8 x 8 pixels:
 *
 *     logits = gelu(x / 16 W + b) V + c,  loss = mean -ln softmax(logits)[digit]
 *
 * The same source is compiled for processors (native.c) and for WebAssembly (build.sh), and has the
 * same bits on both: rows of a batch come from integers, and weft computes the rest. */
#include "digits.h"

#include <weft/graph.h>
#include <weft/store.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { HIDDEN = 128, BATCH = 64 };

static uint8_t images[DIGITS_TRAIN + DIGITS_VALID][DIGITS_PIXELS];
static uint8_t labels[DIGITS_TRAIN + DIGITS_VALID];

/* A plan for some rows, its session, its input, and the result that is read. */
typedef struct network {
    weft_plan *plan;
    weft_session *session;
    weft_value x, result;
} network;

static weft_graph *graph;
static weft_params *params;
static network trained, validated, single;
static weft_value y;    /* the digits of a batch */
static uint32_t chosen; /* the state of the generator that chooses rows */
static weft_error error;

uint8_t *digits_images(void)
{
    return images[0];
}

uint8_t *digits_labels(void)
{
    return labels;
}

const char *digits_error(void)
{
    static char text[sizeof error.where + sizeof error.message + 3];
    snprintf(text, sizeof text, "%s: %s", error.where, error.message);
    return text;
}

/* x W + b */
static weft_value linear(weft_graph *g, const char *name, weft_value x, int64_t features)
{
    weft_graph_push_scope(g, "%s", name);
    const weft_shape shape = WEFT_SHAPE(weft_dim_of(g, x, -1), features);
    weft_value w = weft_param(g, "weight", WEFT_F32, shape, WEFT_INIT_XAVIER);
    weft_value b = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(features), WEFT_INIT_ZEROS);
    weft_graph_pop_scope(g);
    return weft_add(g, weft_matmul(g, x, w), b);
}

/* The logits of `rows` images. The input is `name`. */
static weft_value declare(network *n, const char *name, int64_t rows)
{
    n->x = weft_input(graph, name, WEFT_F32, WEFT_SHAPE(rows, DIGITS_PIXELS));
    weft_value x = weft_mul_scalar(graph, n->x, 1.0 / 16);
    return linear(graph, "out", weft_gelu(graph, linear(graph, "hidden", x, HIDDEN)),
                  DIGITS_CLASSES);
}

static bool make_session(network *n, weft_value result, weft_value update)
{
    weft_value targets[] = {result, update};
    n->result = result;
    n->plan = weft_plan_new(graph, targets, weft_is_value(update) ? 2 : 1, NULL, &error);
    n->session = n->plan ? weft_session_new(n->plan, params, NULL, &error) : NULL;
    return n->session != NULL;
}

static void end(network *n)
{
    weft_session_free(n->session);
    weft_plan_free(n->plan);
    n->session = NULL;
    n->plan = NULL;
}

bool digits_start(uint32_t seed)
{
    end(&trained), end(&validated), end(&single);
    weft_params_free(params), weft_graph_free(graph);
    graph = weft_graph_new();
    params = weft_params_new();
    chosen = seed;
    weft_graph_share(graph, true); /* all three have the same parameters */
    y = weft_input(graph, "y", WEFT_I32, WEFT_SHAPE(BATCH));
    weft_value logits = declare(&trained, "batch", BATCH);
    weft_value loss = weft_cross_entropy_loss(graph, logits, y, NULL);
    weft_value rate = weft_scalar(graph, WEFT_F32, 2e-3);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(graph, loss, NULL, 0, rate, &adam, NULL);
    weft_value read = weft_argmax(graph, declare(&validated, "valid", DIGITS_VALID), -1, false);
    weft_value probabilities = weft_softmax(graph, declare(&single, "image", 1), -1);
    return weft_params_init(params, graph, seed, &error) == WEFT_OK &&
           make_session(&trained, loss, update) && make_session(&validated, read, WEFT_NO_VALUE) &&
           make_session(&single, probabilities, WEFT_NO_VALUE);
}

/* Runs a network on images; `result` becomes that of the run. */
static bool run(network *n, const float *x, size_t rows, void *result, size_t bytes)
{
    return weft_session_feed(n->session, n->x, x, rows * DIGITS_PIXELS * sizeof *x, &error) ==
               WEFT_OK &&
           weft_session_run(n->session, &error) == WEFT_OK &&
           weft_session_fetch(n->session, n->result, result, bytes, &error) == WEFT_OK;
}

static void copy_image(const uint8_t *image, float *x)
{
    for (int p = 0; p < DIGITS_PIXELS; p++) x[p] = image[p];
}

float digits_train(int n)
{
    float loss = NAN;
    for (int step = 0; step < n; step++) {
        float x[BATCH][DIGITS_PIXELS];
        int32_t digit[BATCH];
        for (int i = 0; i < BATCH; i++) {
            chosen = chosen * 1664525u + 1013904223u; /* constants of Numerical Recipes */
            const uint32_t row = (chosen >> 8) % DIGITS_TRAIN;
            copy_image(images[row], x[i]);
            digit[i] = labels[row];
        }
        if (weft_session_feed(trained.session, y, digit, sizeof digit, &error) != WEFT_OK ||
            !run(&trained, x[0], BATCH, &loss, sizeof loss))
            return NAN;
    }
    return loss;
}

float digits_accuracy(void)
{
    static float x[DIGITS_VALID][DIGITS_PIXELS];
    int32_t digit[DIGITS_VALID];
    int right = 0;
    for (int i = 0; i < DIGITS_VALID; i++) copy_image(images[DIGITS_TRAIN + i], x[i]);
    if (!run(&validated, x[0], DIGITS_VALID, digit, sizeof digit)) return NAN;
    for (int i = 0; i < DIGITS_VALID; i++) right += digit[i] == labels[DIGITS_TRAIN + i];
    return (float)right / DIGITS_VALID;
}

const float *digits_read(const uint8_t *image)
{
    static float probability[DIGITS_CLASSES];
    float x[DIGITS_PIXELS];
    copy_image(image, x);
    return run(&single, x, 1, probability, sizeof probability) ? probability : NULL;
}

const char *digits_hash(void)
{
    static char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)weft_params_hash(params));
    return text;
}
