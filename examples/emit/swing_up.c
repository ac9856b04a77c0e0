/* The controller of ../pendulum.c without the library: this program moves a pendulum by it as that one does,
 * and prints the same, the hash of all torques included.
 *
 *     ./pendulum .
 *     cc -O2 swing_up.c controller.c -o swing_up && ./swing_up
 *
 * One run improves the plan of the next steps from where the pendulum is. In a device, `next` is not
 * needed: sensors measure the state. */
#include "controller.h"

#include <stdio.h>
#include <string.h>

enum { HORIZON = 40, STEPS = 180, PUSH = 130 };

static union {
    double align;
    unsigned char bytes[CONTROLLER_ARENA_BYTES];
} arena;

int main(void)
{
    static double plan[HORIZON][3], better[HORIZON][3];
    double state[3] = {3.14159265, 0, 1}, next[3], torque;
    uint64_t hash = 0, bits;
    controller m;
    controller_io io;
    int t;
    memset(&m, 0, sizeof m);
    m.arena = &arena;
    io.state = state;
    io.plan = plan[0];
    io.better = better[0];
    io.torque = &torque;
    io.next = next;
    for (t = 0; t < HORIZON; t++) plan[t][2] = 0.1;
    printf("  time    torque     turns      rate\n");
    for (t = 1; t <= STEPS; t++) {
        controller_run(&m, &io);
        memcpy(plan, better, sizeof plan);
        memcpy(state, next, sizeof state);
        memcpy(&bits, &torque, sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
        if (t % 10 == 0)
            printf("%6.2f %9.4f %9.4f %9.4f\n", t * 0.05, torque, state[0] / 6.2831853, state[1]);
        if (t == PUSH) state[1] += 1;
    }
    printf("hash of the torques: %016llx\n", (unsigned long long)hash);
    return 0;
}
