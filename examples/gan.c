/* A generative adversarial network (Goodfellow et al. 2014): a generator learns to draw points from
 * a ring of eight Gaussians, against a discriminator that learns to detect them. Both updates are
 * in one graph. Each has its own parameters, and one run does both.
 *
 *     loss of D = -mean log D(x) - mean log(1 - D(G(z)))
 *     loss of G = -mean log D(G(z))                        ("non-saturating", section 3 there)
 *
 *     cc gan.c $(pkg-config --cflags --libs weft-models) -lm -o gan
 *
 * Prints the share of generated points within three standard deviations of a mode, and how many
 * modes have at least 2 % of them. The exit status is 1 unless these are 70 % and all modes. */
#include <weft/models.h>
#include <weft/autograd.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>

enum { BATCH = 128, NOISE = 4, HIDDEN = 64, MODES = 8, STEPS = 4000, SAMPLES = 20 };
static const double deviation = 0.15, turn = 6.283185307179586;

/* Uniform in (0, 1), by a linear congruential generator (constants of Numerical Recipes). */
static double uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return ((double)(*state >> 8) + 0.5) / 16777216.0;
}

/* Standard normal (Box & Muller 1958). */
static double normal(uint32_t *state)
{
    const double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(turn * uniform(state));
}

static void real_points(float points[BATCH][2], uint32_t *state)
{
    for (int i = 0; i < BATCH; i++) {
        const double angle = turn * floor(MODES * uniform(state)) / MODES;
        points[i][0] = (float)(2 * cos(angle) + deviation * normal(state));
        points[i][1] = (float)(2 * sin(angle) + deviation * normal(state));
    }
}

/* [BATCH, in] to [BATCH, out]. The generator makes points of noise; the discriminator makes logits
 * of "this is real" of points. A second call of the same name reads the same parameters. */
static weft_value network(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    weft_graph_push_scope(g, "%s", name);
    weft_value h = weft_leaky_relu(g, weft_nn_linear(g, "first", x, HIDDEN, true), 0.2);
    h = weft_leaky_relu(g, weft_nn_linear(g, "second", h, HIDDEN, true), 0.2);
    h = weft_nn_linear(g, "last", h, out, true);
    weft_graph_pop_scope(g);
    return h;
}

/* -mean log D if `real` is 1, -mean log(1 - D) if it is 0. */
static weft_value adversarial_loss(weft_graph *g, weft_value logits, double real)
{
    weft_value target = weft_fill(g, WEFT_F32, weft_shape_of(g, logits), real);
    return weft_bce_with_logits_loss(g, logits, target, WEFT_REDUCE_MEAN);
}

/* Adds the training step of the parameters whose names match. */
static weft_value add_step(weft_graph *g, weft_value loss, weft_value lr, const char *name,
                           const char *pattern)
{
    weft_value mine[16];
    size_t n, n_mine = 0;
    const weft_value *all = weft_graph_params(g, &n);
    for (size_t i = 0; i < n && n_mine < 16; i++)
        if (weft_name_matches(pattern, weft_name_of(g, all[i]))) mine[n_mine++] = all[i];
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    adam.name = name;
    adam.adam.beta1 = 0.5; /* Radford et al. 2016 */
    return weft_train_update(g, loss, mine, n_mine, lr, &adam, NULL);
}

/* Draws SAMPLES batches. Returns the share of points within three standard deviations of a mode,
 * and sets *modes to the number of modes that have at least 2 % of the points. */
static double judge(weft_session *s, weft_value z, weft_value fake, int *modes, weft_error *error)
{
    static float noise[BATCH * NOISE], points[BATCH][2];
    int hits[MODES] = {0};
    uint32_t state = 12345;
    for (int n = 0; s && n < SAMPLES && error->status == WEFT_OK; n++) {
        for (int i = 0; i < BATCH * NOISE; i++) noise[i] = (float)normal(&state);
        weft_session_feed(s, z, noise, sizeof noise, NULL);
        weft_session_run(s, error);
        weft_session_fetch(s, fake, points, sizeof points, NULL);
        for (int i = 0; i < BATCH; i++)
            for (int m = 0; m < MODES; m++) {
                const double x = 2 * cos(turn * m / MODES), y = 2 * sin(turn * m / MODES);
                if (hypot(points[i][0] - x, points[i][1] - y) < 3 * deviation) hits[m]++;
            }
    }
    double share = *modes = 0;
    for (int m = 0; m < MODES; m++) {
        share += (double)hits[m] / (SAMPLES * BATCH);
        *modes += hits[m] >= SAMPLES * BATCH / 50;
    }
    return share;
}

int main(void)
{
    static float noise[BATCH * NOISE], points[BATCH][2];
    weft_graph *g = weft_graph_new();
    weft_graph_share(g, true);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(BATCH, 2));
    weft_value z = weft_input(g, "z", WEFT_F32, WEFT_SHAPE(BATCH, NOISE));
    weft_value lr = weft_scalar(g, WEFT_F32, 5e-4);
    weft_value fake = network(g, "g", z, 2);
    weft_value of_fake = network(g, "d", fake, 1), of_real = network(g, "d", x, 1);
    weft_value real_loss = adversarial_loss(g, of_real, 1);
    weft_value d_loss = weft_add(g, real_loss, adversarial_loss(g, of_fake, 0));
    weft_value d_step = add_step(g, d_loss, lr, "d_adam", "d.*");
    weft_value g_step = add_step(g, adversarial_loss(g, of_fake, 1), lr, "g_adam", "g.*");

    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *training = weft_plan_new(g, WEFT_VALUES(d_step, g_step), NULL, &error);
    weft_plan *sampling = training ? weft_plan_new(g, &fake, 1, NULL, &error) : NULL;
    if (sampling) weft_params_init(store, g, 1, &error);
    weft_session *train = sampling ? weft_session_new(training, store, NULL, &error) : NULL;
    weft_session *sample = train ? weft_session_new(sampling, store, NULL, &error) : NULL;
    int modes_before, modes;
    const double before = judge(sample, z, fake, &modes_before, &error);
    uint32_t state = 1;
    for (int i = 0; train && i < STEPS && error.status == WEFT_OK; i++) {
        real_points(points, &state);
        for (int k = 0; k < BATCH * NOISE; k++) noise[k] = (float)normal(&state);
        weft_session_feed(train, x, points, sizeof points, NULL);
        weft_session_feed(train, z, noise, sizeof noise, NULL);
        weft_session_run(train, &error);
    }
    const double after = judge(sample, z, fake, &modes, &error);
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else
        printf("before training: %d of %d modes, %2.0f %% of the points\n"
               "after %d steps: %d of %d modes, %2.0f %% of the points\n",
               modes_before, MODES, 100 * before, STEPS, modes, MODES, 100 * after);
    weft_session_free(train), weft_session_free(sample);
    weft_plan_free(training), weft_plan_free(sampling);
    weft_params_free(store), weft_graph_free(g);
    return error.status == WEFT_OK && modes == MODES && after >= 0.7 ? 0 : 1;
}
