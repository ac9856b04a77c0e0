/* base/float_env.h - the floating-point environment that results are specified for: numbers are
 * rounded to nearest, and subnormal ones are kept. A program may have set another: one that is
 * linked with -ffast-math does. Not installed.
 *
 * Products of bf16 are specified with subnormal numbers flushed to zero, as operands and as results
 * (docs/arithmetic.md). x86 has an environment for that, FLOAT_ENV_FLUSHES: a result is flushed if
 * it is subnormal after rounding to 24 bits. AArch64 decides before rounding, so kernels flush by
 * comparison there, as everywhere else. */
#ifndef WEFT_BASE_FLOAT_ENV_H
#define WEFT_BASE_FLOAT_ENV_H

#if defined(__SSE__)
#include <xmmintrin.h>

#define FLOAT_ENV_FLUSHES 1

typedef unsigned float_env;

/* Sets the environment of the calling thread, and returns the one it had. */
static inline float_env float_env_set(void)
{
    const float_env before = _mm_getcsr();
    _mm_setcsr(0x1f80); /* no exception traps, to nearest, nothing flushed to zero */
    return before;
}

/* The same, with subnormal numbers flushed. What computes with it is a function of its own, not
 * inlined: compilers move operations past a change of the environment. */
static inline float_env float_env_flush(void)
{
    const float_env before = _mm_getcsr();
    _mm_setcsr(0x1f80 | 0x8040);
    return before;
}

static inline void float_env_restore(float_env before)
{
    _mm_setcsr(before);
}

#elif defined(__aarch64__)
#include <stdint.h>

typedef uint64_t float_env;

static inline float_env float_env_set(void)
{
    float_env before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return before;
}

static inline void float_env_restore(float_env before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

#elif defined(__wasm__)

typedef char float_env; /* WebAssembly has no other */

static inline float_env float_env_set(void)
{
    return 0;
}

static inline void float_env_restore(float_env before)
{
    (void)before;
}

#else
#include <fenv.h>

typedef fenv_t float_env;

static inline float_env float_env_set(void)
{
    float_env before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

static inline void float_env_restore(float_env before)
{
    fesetenv(&before);
}

#endif

#ifndef FLOAT_ENV_FLUSHES
#define FLOAT_ENV_FLUSHES 0

static inline float_env float_env_flush(void)
{
    return float_env_set();
}
#endif

#endif
