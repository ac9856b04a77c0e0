/* weft/call.h - what a kernel sees: the tensors of one node, the tile to compute, and the run.
 *
 * Kernels need no graph. Files that hold only kernels include this header, or <weft/kernel.h> for
 * the iterator over strided operands; <weft/op.h> includes it for those who write a descriptor.
 */
#ifndef WEFT_CALL_H
#define WEFT_CALL_H

#include <weft/communicator.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of a tile of an elementwise op: 64 KiB of f32, which stays in the second-level cache. */
#define WEFT_TILE 16384

/* One call of a node's kernel. Functions that size the call (tiles, scratch, workspace, cost)
 * receive it too, and must not read the data of its tensors, which may be NULL then. */
typedef struct weft_call {
    const void *attr;
    const weft_tensor *in, *out; /* [n_in], [n_out] */
    size_t n_in, n_out;
    void *scratch; /* of scratch() bytes, 64-byte aligned, shared by all tiles and phases */
    int64_t tiles; /* of this phase */
    int64_t first; /* index of out[0]'s first element in the whole tensor. It differs from 0 only in
                      a fused elementwise op, whose in and out are blocks of the whole tensors */
    int phase;     /* 0 .. phases-1 */
    const struct weft_run_context *run;
    uint32_t node; /* index of the step in the schedule */
} weft_call;

/* What changes from run to run. Kernels read seed and number; the rest is the executor's. */
typedef struct weft_run_context {
    uint64_t seed, number;       /* of the run: see weft_session_set_run_number */
    void *fault;                 /* see weft_call_fail */
    struct exchanges *exchanges; /* see weft_call_start_exchange; NULL: the plan has none */
    char *workspace;             /* of all threads: see weft_call_workspace */
    size_t workspace_bytes;      /* of each thread */
} weft_run_context;

/* A block of a tensor, seen as the matrix [product of the leading dimensions, last dimension]. */
typedef struct weft_block {
    int64_t row, rows, column, columns;
} weft_block;

/* Computes tile `tile` of call->tiles. Tiles run in any order and on any thread. Each writes
 * elements of its own, and their number depends on shapes only, so results do not depend on
 * threads. */
typedef void (*weft_kernel)(const weft_call *call, int64_t tile);

/* Reports that a kernel found an index outside [0, limit) in its data. The run ends at the next
 * barrier and returns WEFT_BAD_INDEX with the node's name. The kernel must write its outputs
 * nevertheless, and its op must declare can_fail. */
WEFT_API void weft_call_fail(const weft_call *call, int64_t index, int64_t limit);

/* Reports that the scalar input number `input` is not finite although it must be. The run returns
 * WEFT_NOT_FINITE with that input's name. */
WEFT_API void weft_call_not_finite(const weft_call *call, size_t input);

/* For ops that declare `exchanges`. Begins an exchange in the session's communicator `group`, which
 * must have `size` ranks, as the arrays of the exchange; its buffers are the node's own, and the
 * node that waits for it must read them. Returns the number by which that node names it. A failure
 * ends the run. */
WEFT_API int32_t weft_call_start_exchange(const weft_call *call, int group, int size,
                                          const weft_exchange *exchange);
/* Waits until exchange `number` is done. */
WEFT_API void weft_call_wait_exchange(const weft_call *call, int32_t number);

/* The calling thread's own memory: at least the bytes that the op's workspace() returns, 64-byte
 * aligned. Its contents last while the thread goes from tile to tile of one phase. So does the
 * packed-panel tag, a number that begins as 0: a kernel records in it what it left in the workspace
 * for the thread's next tile. */
WEFT_API void *weft_call_workspace(const weft_call *call);
WEFT_API int64_t *weft_call_panel_tag(const weft_call *call);

/* Philox4x32-10 (Salmon et al. 2011): four random 32-bit words from a 128-bit counter and a 64-bit
 * key. The only source of randomness: any element's number can be computed on its own. */
static inline void weft_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* A uniform number in [0, 1) with 53 random bits, from two words of weft_philox. */
static inline double weft_uniform(const uint32_t words[2])
{
    return (double)(((uint64_t)words[0] << 21) ^ (words[1] >> 11)) * 0x1p-53;
}

#ifdef __cplusplus
}
#endif
#endif
