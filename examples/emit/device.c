/* A classifier that learns on the device, without an operating system: each class is a wave of its own
 * frequency in noise. Prints how many of 200 waves are recognised before and after 400 steps, and a
 * hash of the parameters, which is the same on every processor. Where there are files, writes the parameters
 * to learned.safetensors. Compile with -DINPUTS=16 -DSTEPS=100 -DNO_FILES for a network of 16 inputs, 100 steps,
 * and a C library without files.
 *
 * emit.c, or `weft emit`, writes net_step.c and net.c, which use the caller's memory and nothing else. */
#include "net.h"
#include "net_step.h"

#include <stdio.h>
#include <string.h>

#ifndef INPUTS
#define INPUTS 64
#endif
#ifndef STEPS
#define STEPS 400
#endif
enum { CLASSES = 4, TESTS = 200 };

/* One memory for both: they run one after the other. */
static union {
    double align;
    unsigned char step[NET_STEP_ARENA_BYTES], run[NET_ARENA_BYTES];
} arena;
static union {
    double align;
    unsigned char bytes[NET_STEP_STATE_BYTES];
} states;

static uint32_t seed = 1;

/* A number in [-1, 1): a linear congruential generator (Numerical Recipes). */
static float noise(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * (1.0f / 2147483648.0f);
}

/* A triangular wave of period 16, 11, 7 or 5 with a random phase, and noise. */
static int make_wave(float *x)
{
    static const int period[CLASSES] = {16, 11, 7, 5};
    int class_id, phase, i;
    seed = seed * 1664525u + 1013904223u;
    class_id = (int)(seed >> 24) % CLASSES;
    phase = (int)(seed >> 16 & 255);
    for (i = 0; i < INPUTS; i++) {
        const int at = (i + phase) % period[class_id], half = period[class_id] / 2;
        const int up = at < half ? at : period[class_id] - at;
        x[i] = (float)(2 * up - half) / (float)half + 0.5f * noise();
    }
    return class_id;
}

static int recognised(net *m)
{
    float x[INPUTS], logits[CLASSES];
    net_io io;
    int n = 0, i, c, best;
    io.x = x;
    io.logits = logits;
    for (i = 0; i < TESTS; i++) {
        const int class_id = make_wave(x);
        net_run(m, &io);
        best = 0;
        for (c = 1; c < CLASSES; c++)
            if (logits[c] > logits[best]) best = c;
        n += best == class_id;
    }
    return n;
}

/* FNV-1a over the bits of n floats, the lowest byte first on any processor. */
static unsigned long hash_of(const unsigned char *data, size_t n)
{
    uint32_t hash = 2166136261u, bits;
    size_t i;
    int shift;
    for (i = 0; i < n; i++) {
        memcpy(&bits, data + i * sizeof bits, sizeof bits);
        for (shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 255)) * 16777619u;
    }
    return hash;
}

#ifndef NO_FILES
static int save(const net_step *m)
{
    static unsigned char bytes[NET_STEP_FILE_BYTES];
    FILE *file = fopen("learned.safetensors", "wb");
    int good;
    if (!file) return 0;
    net_step_save(m, bytes);
    good = fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes;
    return fclose(file) == 0 && good;
}
#endif

int main(void)
{
    net_step trainer;
    net reader;
    net_step_io io;
    float x[INPUTS], loss;
    int32_t target;
    int i;
    trainer.arena = &arena;
    trainer.states = &states;
    net_step_init(&trainer);
    reader.arena = &arena;
    reader.states = &states;
    reader.seed = reader.runs = 0;
    io.x = x;
    io.fit_target = &target;
    io.loss = &loss;
    printf("recognised before: %d of %d\n", recognised(&reader), TESTS);
    for (i = 0; i < STEPS; i++) {
        target = make_wave(x);
        if (net_step_step(&trainer, &io, 0.05f)) {
            printf("step %d failed\n", i);
            return 1;
        }
    }
    printf("recognised after:  %d of %d\n", recognised(&reader), TESTS);
    printf("hash of the parameters: %08lx\n",
           hash_of(states.bytes, sizeof states.bytes / sizeof(float)));
#ifndef NO_FILES
    (void)save(&trainer); /* what a device without files has learned stays in memory */
#endif
    return 0;
}
