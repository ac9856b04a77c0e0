/* Vectors: several numbers side by side, each with its own chain of operations. */

#if defined(__AVX2__)
#define SIMD_BYTES 32
#else
#define SIMD_BYTES 16
#endif

typedef T simd_vector __attribute__((vector_size(SIMD_BYTES), aligned(sizeof(T)), may_alias));
/* Their bits. */
typedef uint32_t simd_bits __attribute__((vector_size(SIMD_BYTES), aligned(sizeof(T)), may_alias));

/* Bytes of a register, which holds two vectors with AVX-512 and gcc, and rows of a block of a matrix product. */
#if defined(__AVX512F__) && !defined(__clang__)
#define SIMD_REGISTER                          64
#define SIMD_ROWS                              8
#define simd_register_instruction_f32(x, y, z) __builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4)
#define simd_register_instruction_f64(x, y, z) __builtin_ia32_vfmaddpd512_mask(x, y, z, 0xff, 4)
#else
#define SIMD_REGISTER SIMD_BYTES
#define SIMD_ROWS     4
#endif

/* Numbers of a vector, of two (and rows of a block), and of a register. */
enum { simd_lanes = SIMD_BYTES / sizeof(T) };
enum { simd_width = 2 * SIMD_BYTES / sizeof(T), simd_rows = SIMD_ROWS };
enum { simd_register_lanes = SIMD_REGISTER / sizeof(T) };

typedef T simd_four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
typedef T simd_register __attribute__((vector_size(SIMD_REGISTER), aligned(sizeof(T)), may_alias));

/* The numbers from x on. */
static inline simd_register simd_at(const T *x)
{
    return *(const simd_register *)(const void *)x;
}

/* The instruction for x y + z with one rounding, where the compiler has it as a function. clang finds it
 * for a loop. */
#if defined(__FMA__) && !defined(__clang__) && SIMD_BYTES == 32
#define SIMD_FMA                      1
#define simd_instruction_f32(x, y, z) __builtin_ia32_vfmaddps256(x, y, z)
#define simd_instruction_f64(x, y, z) __builtin_ia32_vfmaddpd256(x, y, z)
#elif defined(__aarch64__) && !defined(__clang__)
#define SIMD_FMA                      1
#define simd_instruction_f32(x, y, z) __builtin_aarch64_fmav4sf(x, y, z)
#define simd_instruction_f64(x, y, z) __builtin_aarch64_fmav2df(x, y, z)
#else
#define SIMD_FMA 0
#endif

static inline simd_vector simd_fma(simd_vector x, simd_vector y, simd_vector z)
{
#if SIMD_FMA
    return simd_instruction(x, y, z);
#else
    int l;
    for (l = 0; l < simd_lanes; l++) z[l] = fma(x[l], y[l], z[l]);
    return z;
#endif
}

/* The same for a register. */
static inline simd_register simd_register_fma(simd_register x, simd_register y, simd_register z)
{
#if SIMD_ROWS == 8
    return simd_register_instruction(x, y, z);
#else
    return simd_fma(x, y, z);
#endif
}
