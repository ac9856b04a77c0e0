#include <weft/weft.h>

#include <stdio.h>

/* x W + b, with `features` columns. */
static weft_value linear(weft_graph *g, const char *name, weft_value x, int64_t features)
{
    weft_graph_push_scope(g, "%s", name);
    weft_shape shape = WEFT_SHAPE(weft_dim_of(g, x, -1), features);
    weft_value w = weft_param(g, "weight", WEFT_F32, shape, WEFT_INIT_XAVIER);
    weft_value b = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(features), WEFT_INIT_ZEROS);
    weft_value y = weft_add(g, weft_matmul(g, x, w), b);
    weft_graph_pop_scope(g);
    return y;
}

int main(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 2));
    weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(4, 1));
    weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    weft_value h = weft_tanh(g, linear(g, "hidden", x, 8));
    weft_value out = linear(g, "out", h, 1);
    weft_value loss = weft_bce_with_logits_loss(g, out, y, WEFT_REDUCE_MEAN);

    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value update = weft_train_update(g, loss, NULL, 0, lr, &adam, NULL); /* all parameters */

    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(loss, update), NULL, &error);
    if (!plan || weft_params_init(store, g, 1, &error) != WEFT_OK)
        return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
    weft_session *s = weft_session_new(plan, store, NULL, &error);

    const float xs[] = {0, 0, 0, 1, 1, 0, 1, 1}, ys[] = {0, 1, 1, 0}, rate = 0.05f;
    weft_session_feed(s, x, xs, sizeof xs, NULL);
    weft_session_feed(s, y, ys, sizeof ys, NULL);
    weft_session_feed(s, lr, &rate, sizeof rate, NULL);
    float value = 0;
    for (int i = 0; i < 200 && weft_session_run(s, NULL) == WEFT_OK; i++)
        weft_session_fetch(s, loss, &value, sizeof value, NULL);
    printf("loss of XOR after 200 steps: %.4f\n", value);
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return value > 0.1f;
}
