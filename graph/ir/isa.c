/* The instruction set that kernels are chosen for: the best that the processor has and weft was
 * built for, limited by WEFT_ISA. One whose results differ from those of the others is not chosen. */
#include "ir/isa.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_KERNEL_BF16
#include <immintrin.h>
#endif
#ifdef WEFT_KERNEL_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[WEFT_ISAS] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};

#ifdef WEFT_KERNEL_BF16

/* Whether vdpbf16ps computes what docs/arithmetic.md specifies. Processors may differ in the order
 * of its two products, in how often it rounds, and in what it flushes: each of the lanes fails for
 * one of these. They are a sum, pairs of bf16 that it multiplies and adds to it, and the result. */
__attribute__((target("avx512f,avx512bf16"))) static bool dots_fit(void)
{
    static const uint32_t lanes[4][16] = {
        {0x71800000, 0x71800000, 0x3f800000, 0x3f800001, 0x01000000, 0xff7fffff, 0x00400000,
         0x80000000, 0x00c00000, 0x80c00000, 0x00800000, 0x00800000, 0x00c00000, 0x7f7fffff,
         0x00000000, 0x3f91a280},
        {0xf1803f80, 0x3f80f180, 0x39803980, 0x39800000, 0x1c800000, 0x5f800000, 0x00000000,
         0x80408000, 0xa0000000, 0x20008000, 0x8d800000, 0x9a010000, 0xa0002000, 0x7f7fff7f,
         0xff803f80, 0x413bbb4d},
        {0x3f803f80, 0x3f803f80, 0x39803980, 0x39800000, 0x1c800000, 0x5f800000, 0x00000000,
         0x71803f80, 0x20000000, 0x20003f80, 0x0d800000, 0x19800000, 0x20002000, 0x3f803f80,
         0x3f803f80, 0xbeaf419e},
        {0x3f800000, 0x00000000, 0x3f800000, 0x3f800002, 0x01000100, 0x73800000, 0x00000000,
         0x80000000, 0x00000000, 0x80000000, 0x00800000, 0x00000000, 0x00800000, 0x7f800000,
         0xff800000, 0xc03accf0},
    };
    uint32_t got[16];
    _mm512_storeu_ps(got, _mm512_dpbf16_ps(_mm512_loadu_ps(lanes[0]),
                                           (__m512bh)_mm512_loadu_ps(lanes[1]),
                                           (__m512bh)_mm512_loadu_ps(lanes[2])));
    return !memcmp(got, lanes[3], sizeof got);
}

#endif

#ifdef WEFT_KERNEL_AMX

/* Whether the processor has tiles of bf16 and of bytes, and the system saves them: Linux does so for a process
 * that asks for it. */
static bool tiles_offered(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    const unsigned needed = 1u << 22 | 1u << 24 | 1u << 25; /* bf16, tiles, bytes */
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & needed) == needed &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* A random bf16 whose exponent, as it is stored, is at least `low` and below low + 8. */
static uint16_t draw(uint32_t *random, uint32_t low)
{
    *random = *random * 1664525u + 1013904223u;
    const uint32_t r = *random >> 8;
    return (uint16_t)((r & 0x807f) | (low + (r >> 16 & 7)) << 7);
}

/* Whether products of tiles are summed as docs/arithmetic.md specifies: as dots_fit, with a row of
 * 32 numbers of bf16 times 16 columns, in which sums in another order, fewer roundings or other ways
 * to flush have other bits. */
__attribute__((target("avx512f,amx-tile,amx-bf16"))) static bool tiles_fit(void)
{
    static const uint32_t sums[16] = {0xc305457e, 0xc38df550, 0xc193fe4e, 0xc339a728,
                                      0x4374ef4f, 0x428f9853, 0x40a5c1f4, 0xc3d710cf,
                                      0xc1b08cdc, 0x40862490, 0x4341145e, 0x43399e5e,
                                      0x04f776ae, 0x04ef922a, 0x037fdb50, 0x83d15e74};
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1, .bytes = {64, 64, 64}, .rows = {1, 1, 16}};
    uint16_t row[32], columns[16][16][2];
    uint32_t random = 1, sum[16];
    for (int k = 0; k < 32; k++) row[k] = draw(&random, 123);
    for (int j = 0; j < 16; j++) {
        for (int k = 0; k < 32; k++) columns[k / 2][j][k % 2] = draw(&random, j < 12 ? 123 : 0);
        sum[j] = (uint32_t)draw(&random, j < 12 ? 128 : 0) << 16;
    }
    _tile_loadconfig(&shape);
    _tile_loadd(0, sum, 64);
    _tile_loadd(1, row, 64);
    _tile_loadd(2, columns, 64);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, sum, 64);
    _tile_release();
    return !memcmp(sum, sums, sizeof sum);
}

#endif

static weft_isa detect(void)
{
#ifdef WEFT_KERNEL_X86
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
#ifdef WEFT_KERNEL_BF16
    const bool dots = v4 && __builtin_cpu_supports("avx512bf16") && dots_fit();
#ifdef WEFT_KERNEL_AMX
    if (dots && tiles_offered() && tiles_fit()) return WEFT_ISA_V4_AMX;
#endif
    if (dots) return WEFT_ISA_V4_BF16;
#endif
    return v4 ? WEFT_ISA_V4 : v3 ? WEFT_ISA_V3 : WEFT_ISA_BASE;
#else
    return WEFT_ISA_BASE;
#endif
}

/* The best of this processor, which is asked once. */
static weft_isa offered(void)
{
    static atomic_int found = -1;
    int isa = atomic_load_explicit(&found, memory_order_relaxed);
    if (isa < 0) {
        isa = (int)detect();
        atomic_store_explicit(&found, isa, memory_order_relaxed);
    }
    return (weft_isa)isa;
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

/* Whether dot products of bf16 take longer than fused multiply-adds of as many numbers, as on
 * Intel's processors: there v4 multiplies bf16 in less time. */
static bool dots_are_slow(void)
{
#ifdef WEFT_KERNEL_BF16
    __builtin_cpu_init();
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

weft_isa weft__isa_best(void)
{
    const weft_isa best = offered();
    const char *wanted = getenv("WEFT_ISA");
    for (int i = 0; wanted && i < WEFT_ISAS; i++) {
        if (strcmp(wanted, names[i]) != 0) continue;
        if (i <= (int)best) return (weft_isa)i;
        report_missing(wanted, best);
    }
    return best == WEFT_ISA_V4_BF16 && dots_are_slow() ? WEFT_ISA_V4 : best;
}

weft_status weft__isa_check(weft_error *error)
{
    weft_error_clear(error);
    const char *wanted = getenv("WEFT_ISA");
    for (int i = 0; wanted && i < WEFT_ISAS; i++)
        if (!strcmp(wanted, names[i])) return WEFT_OK;
    if (!wanted || !*wanted) return WEFT_OK;
    return weft_error_set(
        error, WEFT_BAD_ARGUMENT, "WEFT_ISA",
        "\"%s\" is an unknown instruction set; expected base, v3, v4, v4_bf16 or v4_amx", wanted);
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
