/* What Frama-C's Eva analyses (emit_proofs_test.sh): one step of net_step.c from any states, on any example of INPUTS
 * floats, with any target and rate. Nothing was written to the arena before. The states are any after the step, so this
 * holds for all steps. */
#include "net_step.h"

static volatile float any_float; /* infinities and NaN as well */
static volatile int32_t any_int;

int main(void)
{
    union {
        double align;
        unsigned char bytes[NET_STEP_ARENA_BYTES];
    } arena;
    static union {
        double align;
        float numbers[NET_STEP_STATE_BYTES / sizeof(float)];
    } states;
    net_step m;
    net_step_io io;
    float x[INPUTS], loss;
    int32_t target = any_int;
    size_t i;
    m.arena = &arena;
    m.states = &states;
    net_step_init(&m);
    for (i = 0; i < NET_STEP_STATE_BYTES / sizeof(float); i++) states.numbers[i] = any_float;
    for (i = 0; i < INPUTS; i++) x[i] = any_float;
    io.x = x;
    io.fit_target = &target;
    io.loss = &loss;
    return net_step_step(&m, &io, any_float);
}
