/* The conversions between bf16 and f32, compiled for each instruction set, and their choice, which
 * is compiled without one. O(elements). */
#include "convert.h"

#include "base/half.h"

#define CONVERT_JOIN_(name, isa) name##_##isa
#define CONVERT_JOIN(name, isa)  CONVERT_JOIN_(name, isa)

#ifdef WEFT_KERNEL_ISA

void CONVERT_JOIN(weft__convert_widen, WEFT_KERNEL_ISA)(const convert_block *b,
                                                        const uint16_t *narrow, float *wide);
void CONVERT_JOIN(weft__convert_narrow, WEFT_KERNEL_ISA)(const convert_block *b, const float *wide,
                                                         uint16_t *narrow);

void CONVERT_JOIN(weft__convert_widen, WEFT_KERNEL_ISA)(const convert_block *b,
                                                        const uint16_t *narrow, float *wide)
{
    if (b->column == 1 && b->row == b->columns) {
        half_widen(narrow, wide, b->rows * b->columns);
        return;
    }
    for (int64_t r = 0; r < b->rows; r++, narrow += b->row, wide += b->columns)
        if (b->column == 1)
            half_widen(narrow, wide, b->columns);
        else
            for (int64_t c = 0; c < b->columns; c++)
                wide[c] = half_from_bf16(narrow[c * b->column]);
}

void CONVERT_JOIN(weft__convert_narrow, WEFT_KERNEL_ISA)(const convert_block *b, const float *wide,
                                                         uint16_t *narrow)
{
    if (b->column == 1 && b->row == b->columns) {
        half_narrow(wide, narrow, b->rows * b->columns);
        return;
    }
    for (int64_t r = 0; r < b->rows; r++, narrow += b->row, wide += b->columns)
        if (b->column == 1)
            half_narrow(wide, narrow, b->columns);
        else
            for (int64_t c = 0; c < b->columns; c++) narrow[c * b->column] = half_to_bf16(wide[c]);
}

#else

#define DECLARE(isa)                                                                               \
    void weft__convert_widen_##isa(const convert_block *, const uint16_t *, float *);              \
    void weft__convert_narrow_##isa(const convert_block *, const float *, uint16_t *)
#define ROW(isa)                                                                                   \
    {                                                                                              \
        weft__convert_widen_##isa, weft__convert_narrow_##isa                                      \
    }

DECLARE(base);
#ifdef WEFT_KERNEL_X86
DECLARE(v3);
DECLARE(v4);
#endif

convert weft__convert_for(weft_isa isa)
{
#ifdef WEFT_KERNEL_X86
    static const convert all[] = {ROW(base), ROW(v3), ROW(v4)};
    return all[isa < WEFT_ISA_V4 ? isa : WEFT_ISA_V4];
#else
    (void)isa;
    return (convert)ROW(base);
#endif
}

#endif
