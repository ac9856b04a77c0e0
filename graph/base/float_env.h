/* base/float_env.h - the floating-point environment that results are specified for: numbers are
 * rounded to nearest, and subnormal ones are kept. A program may have set another: one that is
 * linked with -ffast-math does. Not installed. */
#ifndef WEFT_BASE_FLOAT_ENV_H
#define WEFT_BASE_FLOAT_ENV_H

#if defined(__SSE__)
#include <xmmintrin.h>

typedef unsigned float_env;

/* Sets the environment of the calling thread, and returns the one it had. */
static inline float_env float_env_set(void)
{
    const float_env before = _mm_getcsr();
    _mm_setcsr(0x1f80); /* no exception traps, to nearest, nothing flushed to zero */
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
#endif
