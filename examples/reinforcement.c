/* Reinforcement learning by policy gradient: REINFORCE (Williams 1992) learns to balance a pole on
 * a cart (Barto, Sutton & Anderson 1983), which it may push to the left or to the right.
 *
 *     gradient = -mean of A_t d log pi(a_t | s_t),  A_t = (R_t - mean R) / deviation of R
 *
 * where R_t counts the remaining steps of the episode with discount 0.99. An episode ends when the
 * pole leans by 12 degrees, when the cart is 2.4 m away, or after LONGEST steps of 20 ms.
 * Two plans of a graph share the parameters: one chooses pushes, one trains.
 *
 *     cc reinforcement.c $(pkg-config --cflags --libs weft-models) -lm -o reinforcement
 *
 * Prints the mean steps of an episode before and after. The exit status is 1 if these are < 150. */
#include <weft/models.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CARTS = 16, LONGEST = 200, ROWS = CARTS * LONGEST, STATE = 4, HIDDEN = 32, UPDATES = 80 };

typedef struct cart {
    float state[STATE]; /* position, its velocity, angle, its velocity: m, m/s, rad, rad/s */
    int steps;
    bool fallen;
} cart;

/* What happened in one episode of each cart. A step that did not happen has advantage 0. */
static float states[LONGEST][CARTS][STATE], advantages[LONGEST][CARTS];
static int32_t pushes[LONGEST][CARTS];

/* Uniform in [0, 1), by a linear congruential generator (constants of Numerical Recipes). */
static float uniform(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 16777216.0f;
}

/* One step of 20 ms with a force of 10 N: equations of Barto, Sutton & Anderson without friction.
 */
static void push(cart *c, bool right)
{
    const float dt = 0.02f, mass = 1.1f, pole = 0.1f, half = 0.5f; /* s, kg, kg, m */
    float *s = c->state;
    const float sine = sinf(s[2]), cosine = cosf(s[2]);
    const float force = ((right ? 10 : -10) + pole * half * s[3] * s[3] * sine) / mass;
    const float turn =
        (9.8f * sine - cosine * force) / (half * (4.0f / 3 - pole * cosine * cosine / mass));
    const float acceleration = force - pole * half * turn * cosine / mass;
    s[0] += dt * s[1], s[1] += dt * acceleration, s[2] += dt * s[3], s[3] += dt * turn;
    c->steps++;
    c->fallen = fabsf(s[0]) > 2.4f || fabsf(s[2]) > 0.2095f;
}

/* The logits of left and right: [rows, STATE] to [rows, 2]. */
static weft_value policy(weft_graph *g, weft_value state)
{
    weft_value h = weft_tanh(g, weft_nn_linear(g, "hidden", state, HIDDEN, true));
    return weft_nn_linear(g, "out", h, 2, true);
}

/* An episode of each cart; returns their mean number of steps. */
static double play(weft_session *s, weft_value state, weft_value chances, uint32_t *random,
                   weft_error *error)
{
    cart carts[CARTS] = {{{0}, 0, false}};
    double sum = 0;
    for (int i = 0; i < CARTS; i++)
        for (int k = 0; k < STATE; k++) carts[i].state[k] = 0.1f * uniform(random) - 0.05f;
    for (int t = 0; s && t < LONGEST && error->status == WEFT_OK; t++) {
        float chance[CARTS][2];
        for (int i = 0; i < CARTS; i++) memcpy(states[t][i], carts[i].state, sizeof states[t][i]);
        weft_session_feed(s, state, states[t], sizeof states[t], NULL);
        weft_session_run(s, error);
        weft_session_fetch(s, chances, chance, sizeof chance, NULL);
        for (int i = 0; i < CARTS; i++) {
            advantages[t][i] = !carts[i].fallen; /* the reward, at first */
            pushes[t][i] = uniform(random) < chance[i][1];
            if (!carts[i].fallen) push(&carts[i], pushes[t][i] == 1);
        }
    }
    for (int i = 0; i < CARTS; i++) sum += carts[i].steps;
    return sum / CARTS;
}

/* Makes advantages of the rewards, divided by the number of steps. */
static void compare(void)
{
    double sum = 0, squares = 0;
    int n = 0;
    for (int i = 0; i < CARTS; i++) {
        float rest = 0;
        for (int t = LONGEST - 1; t >= 0; t--) {
            if (advantages[t][i] == 0) continue;
            advantages[t][i] = rest = 1 + 0.99f * rest;
            sum += rest, squares += (double)rest * rest, n++;
        }
    }
    const double mean = sum / n, deviation = sqrt(squares / n - mean * mean) + 1e-6;
    for (int i = 0; i < ROWS; i++) {
        float *a = &advantages[i / CARTS][i % CARTS];
        if (*a != 0) *a = (float)((*a - mean) / deviation / n);
    }
}

int main(void)
{
    weft_graph *g = weft_graph_new();
    weft_graph_share(g, true); /* both policies have the same weights */
    weft_value now = weft_input(g, "now", WEFT_F32, WEFT_SHAPE(CARTS, STATE));
    weft_value chances = weft_softmax(g, policy(g, now), -1);
    weft_value state = weft_input(g, "state", WEFT_F32, WEFT_SHAPE(ROWS, STATE));
    weft_value pushed = weft_input(g, "push", WEFT_I32, WEFT_SHAPE(ROWS, 1));
    weft_value weight = weft_input(g, "weight", WEFT_F32, WEFT_SHAPE(ROWS, 1));
    weft_value log = weft_gather(g, weft_log_softmax(g, policy(g, state), -1), pushed, -1);
    log = weft_mul(g, log, weight);
    weft_value loss = weft_neg(g, weft_sum(g, log, WEFT_ALL_AXES, false));
    weft_value lr = weft_scalar(g, WEFT_F32, 0.01);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *acting = weft_plan_new(g, &chances, 1, NULL, &error);
    weft_plan *learning = acting ? weft_plan_new(g, &update, 1, NULL, &error) : NULL;
    if (learning) weft_params_init(store, g, 1, &error);
    weft_session *act = learning ? weft_session_new(acting, store, NULL, &error) : NULL;
    weft_session *learn = act ? weft_session_new(learning, store, NULL, &error) : NULL;
    uint32_t random = 1;
    const double before = play(act, now, chances, &random, &error);
    for (int i = 0; i < UPDATES && error.status == WEFT_OK; i++) {
        play(act, now, chances, &random, &error);
        compare();
        weft_session_feed(learn, state, states, sizeof states, NULL);
        weft_session_feed(learn, pushed, pushes, sizeof pushes, NULL);
        weft_session_feed(learn, weight, advantages, sizeof advantages, NULL);
        weft_session_run(learn, &error);
    }
    const double after = play(act, now, chances, &random, &error);
    if (error.status != WEFT_OK)
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    else
        printf("mean steps of %d episodes: %.1f before, %.1f after %d updates\n", CARTS, before,
               after, UPDATES);
    weft_session_free(act), weft_session_free(learn), weft_plan_free(acting);
    weft_plan_free(learning), weft_params_free(store), weft_graph_free(g);
    return error.status == WEFT_OK && after >= 150 ? 0 : 1;
}
