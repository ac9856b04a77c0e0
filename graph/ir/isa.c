/* The instruction set that kernels are chosen for: the best that the processor has and weft was
 * built for, limited by WEFT_ISA. */
#include "ir/isa.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[WEFT_ISAS] = {"base", "v3", "v4", "v4_bf16"};

static weft_isa detect(void)
{
#ifdef WEFT_KERNEL_X86
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    if (v4 && __builtin_cpu_supports("avx512bf16")) return WEFT_ISA_V4_BF16;
    return v4 ? WEFT_ISA_V4 : v3 ? WEFT_ISA_V3 : WEFT_ISA_BASE;
#else
    return WEFT_ISA_BASE;
#endif
}

/* WEFT_ISA names an instruction set that the processor or the build lacks. */
static void report_missing(const char *wanted, weft_isa best)
{
    static atomic_bool done;
    if (weft__log_first(&done))
        weft__log(WEFT_LOG_WARNING, "WEFT_ISA",
                  "the processor, or this build of weft, lacks %s: kernels are those of %s", wanted,
                  names[best]);
}

weft_isa weft__isa_best(void)
{
    weft_isa best = detect();
    const char *wanted = getenv("WEFT_ISA");
    for (int i = 0; wanted && i < WEFT_ISAS; i++) {
        if (strcmp(wanted, names[i]) != 0) continue;
        if (i <= (int)best) return (weft_isa)i;
        report_missing(wanted, best);
    }
    return best;
}

weft_status weft__isa_check(weft_error *error)
{
    weft_error_clear(error);
    const char *wanted = getenv("WEFT_ISA");
    for (int i = 0; wanted && i < WEFT_ISAS; i++)
        if (!strcmp(wanted, names[i])) return WEFT_OK;
    if (!wanted || !*wanted) return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "WEFT_ISA",
                          "\"%s\" is an unknown instruction set; expected base, v3, v4 or v4_bf16",
                          wanted);
}

const char *weft__isa_name(weft_isa isa)
{
    return (size_t)isa < WEFT_ISAS ? names[isa] : "?";
}

weft_kernel weft__op_kernel(const weft_op *op, weft_isa isa, weft_dtype dtype)
{
    if (!op || (size_t)isa >= WEFT_ISAS || (size_t)dtype >= WEFT_DTYPES) return NULL;
    for (int i = (int)isa; i >= 0; i--)
        if (op->kernel[i][dtype]) return op->kernel[i][dtype];
    return NULL;
}
