/* A variational autoencoder (Kingma & Welling 2013) of small images, which the program draws: a
 * disc of random position and radius. It learns to describe an image by LATENT numbers.
 *
 *     loss = -log p(x | z) + KL(q(z | x) || N(0, 1)),  z = mu + sigma eps,  eps ~ N(0, 1)
 *     KL = -1/2 sum(1 + log sigma^2 - mu^2 - sigma^2)             (appendix B there)
 * The loss is an upper bound of -log p(x) in nats. The graph makes eps: dropout of ones is a random
 * bit, 24 bits are a uniform number, and two of these a normal one (Box & Muller 1958).
 *
 *     cc vae.c $(pkg-config --cflags --libs weft-models) -lm -o vae
 *
 * Prints the loss on new images and that of a model of independent pixels, and draws images from
 * random numbers. The exit status is 1 unless the loss is less than half of the other. */
#include <weft/models.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { SIDE = 12, PIXELS = SIDE * SIDE, BATCH = 64, LATENT = 4, HIDDEN = 96 };
enum { BITS = 24, STEPS = 2000, TESTS = 20 };

/* Uniform in [0, 1), by a linear congruential generator (constants of Numerical Recipes). */
static float uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 16777216.0f;
}

static void draw_batch(float images[BATCH][PIXELS], uint32_t *state)
{
    for (int i = 0; i < BATCH; i++) {
        const float x = 3 + 5 * uniform(state), y = 3 + 5 * uniform(state);
        const float radius = 1.5f + 1.5f * uniform(state);
        for (int p = 0; p < PIXELS; p++) {
            const float distance = hypotf((float)(p % SIDE) - x, (float)(p / SIDE) - y);
            images[i][p] = fminf(1, fmaxf(0, radius - distance + 0.5f));
        }
    }
}

/* Standard normal numbers [BATCH, LATENT]. A bit is 0 or 2, so bit k counts 2^-(k + 2). */
static weft_value normal(weft_graph *g)
{
    float weight[BITS];
    for (int k = 0; k < BITS; k++) weight[k] = ldexpf(1, -k - 2);
    weft_value ones = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, BATCH, LATENT, BITS), 1);
    weft_value weights = weft_constant(g, WEFT_F32, WEFT_SHAPE(BITS), weight);
    weft_value bits = weft_mul(g, weft_dropout(g, ones, 0.5), weights);
    weft_value u[2], sum = weft_sum(g, bits, WEFT_AXES(-1), false); /* in [0, 1) */
    weft_chunk(g, sum, 0, 2, u);
    weft_value log = weft_log(g, weft_add_scalar(g, weft_neg(g, u[0]), 1));
    weft_value radius = weft_sqrt(g, weft_mul_scalar(g, log, -2));
    weft_value angle = weft_mul_scalar(g, u[1], 6.283185307179586);
    return weft_squeeze(g, weft_mul(g, radius, weft_cos(g, angle)), 0);
}

/* [BATCH, in] to [BATCH, out]. */
static weft_value network(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    weft_graph_push_scope(g, "%s", name);
    weft_value h = weft_relu(g, weft_nn_linear(g, "first", x, HIDDEN, true));
    h = weft_relu(g, weft_nn_linear(g, "second", h, HIDDEN, true));
    h = weft_nn_linear(g, "last", h, out, true);
    weft_graph_pop_scope(g);
    return h;
}

/* The loss of images [BATCH, PIXELS]: the mean over the batch, in nats an image. */
static weft_value bound(weft_graph *g, weft_value x)
{
    weft_value code[2]; /* mu and log sigma^2, [BATCH, LATENT] */
    weft_chunk(g, network(g, "encoder", x, 2 * LATENT), -1, 2, code);
    weft_value sigma = weft_exp(g, weft_mul_scalar(g, code[1], 0.5));
    weft_value z = weft_add(g, code[0], weft_mul(g, sigma, normal(g)));
    weft_value drawn =
        weft_bce_with_logits_loss(g, network(g, "decoder", z, PIXELS), x, WEFT_REDUCE_SUM);
    weft_value variance = weft_square(g, sigma);
    weft_value spread = weft_sub(g, variance, weft_add_scalar(g, code[1], 1));
    weft_value kl = weft_sum(g, weft_add(g, weft_square(g, code[0]), spread), WEFT_ALL_AXES, false);
    return weft_mul_scalar(g, weft_add(g, drawn, weft_mul_scalar(g, kl, 0.5)), 1.0 / BATCH);
}

/* -log p(x) of an image if every pixel were independent of the others, with its own mean. */
static double independent_pixels(void)
{
    enum { BATCHES = 20 };
    static float images[BATCHES * BATCH][PIXELS];
    uint32_t state = 3;
    double nats = 0;
    for (int n = 0; n < BATCHES; n++) draw_batch(images + n * BATCH, &state);
    for (int p = 0; p < PIXELS; p++) {
        double m = 0;
        for (int i = 0; i < BATCHES * BATCH; i++) m += images[i][p] / (BATCHES * BATCH);
        if (m > 0 && m < 1) nats -= m * log(m) + (1 - m) * log(1 - m);
    }
    return nats;
}

/* Runs the session on n batches of images; returns the mean loss. */
static double run(weft_session *s, weft_value x, weft_value loss, int n, uint32_t state,
                  weft_error *error)
{
    static float images[BATCH][PIXELS];
    float nats = 0;
    double sum = 0;
    for (int i = 0; s && i < n && error->status == WEFT_OK; i++) {
        draw_batch(images, &state);
        weft_session_feed(s, x, images, sizeof images, NULL);
        weft_session_run(s, error);
        weft_session_fetch(s, loss, &nats, sizeof nats, NULL);
        sum += nats;
    }
    return sum / n;
}

int main(void)
{
    static float pixels[BATCH][PIXELS];
    weft_graph *g = weft_graph_new();
    weft_graph_share(g, true); /* both decoders have the same weights */
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(BATCH, PIXELS));
    weft_value loss = bound(g, x), lr = weft_scalar(g, WEFT_F32, 1e-3);
    weft_value drawn = network(g, "decoder", normal(g), PIXELS); /* logits */
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *training = weft_plan_new(g, WEFT_VALUES(loss, update), NULL, &error);
    weft_plan *testing = training ? weft_plan_new(g, WEFT_VALUES(loss, drawn), NULL, &error) : NULL;
    if (testing) weft_params_init(store, g, 1, &error);
    weft_session *train = testing ? weft_session_new(training, store, NULL, &error) : NULL;
    weft_session *test = train ? weft_session_new(testing, store, NULL, &error) : NULL;
    const double before = run(test, x, loss, TESTS, 2, &error);
    run(train, x, loss, STEPS, 1, &error);
    const double after = run(test, x, loss, TESTS, 2, &error), pixelwise = independent_pixels();
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else {
        printf("nats an image: %.1f before training, %.1f after %d steps, %.1f by pixel\n", before,
               after, STEPS, pixelwise);
        weft_session_fetch(test, drawn, pixels, sizeof pixels, NULL);
        for (int row = 0; row < SIDE; row++, putchar('\n')) /* a likely pixel is a # */
            for (int i = 0; i < 5 * SIDE; i++)
                putchar(pixels[i / SIDE][row * SIDE + i % SIDE] > 0 ? '#' : '.');
    }
    weft_session_free(train), weft_session_free(test);
    weft_plan_free(training), weft_plan_free(testing), weft_params_free(store), weft_graph_free(g);
    return error.status == WEFT_OK && after < pixelwise / 2 ? 0 : 1;
}
