/* Every macro of the headers that makes a value, in expressions and as initialisers; in C and C++.
 */
#include <weft/ops.h>
#include <weft/session.h>
#include <weft/weft.h>

static int calls;

static weft_value counted(weft_value v)
{
    calls++;
    return v;
}

int main(void)
{
    const int rows = 3;
    const int64_t columns = 4;
    weft_graph *g = weft_graph_new();
    weft_error error = WEFT_NO_ERROR;
    weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(rows, columns), 2.0), none = WEFT_NO_VALUE;
    weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
    weft_param(g, "one", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ONES);
    weft_param(g, "xavier", WEFT_F32, WEFT_SHAPE((size_t)2, 3), WEFT_INIT_XAVIER);
    weft_value y = weft_matmul(g, x, weft_transpose(g, x, 0, 1));
    y = weft_sum(g, weft_sum(g, weft_add(g, y, w), WEFT_AXES(0, -1), true), WEFT_ALL_AXES, false);
    weft_optimizer adam = WEFT_ADAM_DEFAULT, adamw = WEFT_ADAMW_DEFAULT;
    weft_optimizer sgd = WEFT_DEFAULTS(weft_optimizer);
    weft_session_options one = WEFT_DEFAULTS(weft_session_options);
    one.threads = 1;
    adam = adamw;
    sgd.name = "sgd";
    adam.adam.beta1 = WEFT_ZERO;
    if (weft_is_value(none) || adam.kind != WEFT_ADAMW || error.status != WEFT_OK) return 1;
    weft_value step = weft_train_update(g, y, &w, 1, weft_scalar(g, WEFT_F32, 0), &sgd, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(y, counted(step)), NULL, &error);
    weft_params *store = weft_params_new();
    if (calls != 1 || weft_params_init(store, g, 1, &error) != WEFT_OK) return 1;
    weft_session *s = weft_session_new(plan, store, &one, &error);
    float sum = 0;
    if (weft_session_run(s, NULL) != WEFT_OK ||
        weft_session_fetch(s, y, &sum, sizeof sum, NULL) != WEFT_OK)
        return 1;
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return printf("%g\n", (double)sum) < 0;
}
