/* What the files of attention share: the attribute, the inputs, and the sizes of blocks, chunks and
 * workspaces, from the shapes alone. */
#ifndef WEFT_OPS_ATTENTION_H
#define WEFT_OPS_ATTENTION_H

#include "kernels/kernel.h"
#include "quantize/narrow_rows.h"

typedef struct sdpa_attr {
    double scale, p; /* p: of dropout */
    uint64_t key;    /* of dropout */
    int64_t window;  /* a query attends to the last `window` positions, itself included; 0: all */
    bool causal, mask, dlse;
} sdpa_attr;

/* Inputs of sdpa_grad; mask, then dlse, follow where the attribute says so. */
enum { Q, K, V, OUT, LSE, LSE_LOW, DOUT, REST };

#define LANE_BYTES 256 /* of a row of a block: 64 queries of f32, 32 of f64 */
#define KEY_BLOCK  64
#define DRAW_KEYS  32 /* whose random words are held at a time */
#define WORD_ROWS  (DRAW_KEYS + 4)
/* Forward, up to MAX_GROUP blocks of queries of a head pass over the keys together, where that
 * leaves MIN_TILES tiles: each block of keys and values is read and copied once for all of them. */
#define MAX_GROUP 4
#define MIN_TILES 16
/* Forward, a block of at most this many queries has its keys in the lanes of vectors, on processors
 * whose vectors are twice as wide; otherwise most lanes would be idle in token steps. */
#define MAX_FEW 8
/* Backward cuts the keys of a head into chunks where there are few heads; each chunk has its own
 * dQ, and a second phase adds them. */
#define FEW_HEADS     16
#define WANTED_CHUNKS 32
#define MIN_CHUNK     512

/* Backward, keys whose rows of k, v, dk and dv stay in the second-level cache while all queries pass
 * over them; a multiple of KEY_BLOCK. */
#define PIECE 512

typedef struct sizes {
    int64_t batch, queries, heads, keys, kv_heads, dim, value_dim;
    int64_t lanes, blocks; /* queries a block, blocks of queries */
    int64_t group;         /* blocks of a tile, forward */
    int64_t chunks, chunk; /* of keys, backward */
} sizes;

/* The elements of a row of keys or values, which may be one of narrow_rows. */
static inline int64_t elements_of_row(weft_dtype dtype, weft_shape shape)
{
    return shape.dim[3] - (dtype == WEFT_U8 ? NARROW_SCALE : 0);
}

static inline sizes sizes_of(const weft_call *call)
{
    const int64_t *q = call->in[Q].shape.dim, *k = call->in[K].shape.dim;
    sizes z = {.batch = q[0],
               .queries = q[1],
               .heads = q[2],
               .dim = q[3],
               .keys = k[1],
               .kv_heads = k[2],
               .value_dim = elements_of_row(call->in[V].dtype, call->in[V].shape),
               .chunks = 1};
    z.lanes = LANE_BYTES / (call->in[Q].dtype == WEFT_F64 ? 8 : 4);
    z.blocks = ceil_div(z.queries, z.lanes);
    const int64_t groups = z.batch * z.heads * z.blocks / MIN_TILES;
    z.group = groups < 1 ? 1 : groups < MAX_GROUP ? groups : MAX_GROUP;
    const int64_t pairs = z.batch * z.kv_heads;
    if (pairs > 0 && pairs < FEW_HEADS && z.keys >= 2 * MIN_CHUNK) {
        const int64_t wanted = ceil_div(WANTED_CHUNKS, pairs), max_chunks = z.keys / MIN_CHUNK;
        z.chunks = wanted < max_chunks ? wanted : max_chunks;
    }
    z.chunk = ceil_div(ceil_div(z.keys, z.chunks), KEY_BLOCK) * KEY_BLOCK;
    if (z.chunk) z.chunks = ceil_div(z.keys, z.chunk);
    return z;
}

/* A tile is a group of blocks of queries of a head; in backward a chunk of keys of a head of keys.
 */
static inline int64_t tiles_forward(const sizes *z)
{
    return z->batch * z->heads * ceil_div(z->blocks, z->group);
}

static inline int64_t tiles_backward(const sizes *z)
{
    return z->batch * z->kv_heads * z->chunks;
}

/* Rows of LANE_BYTES that a tile works in: transposed blocks of q, out, dout or dq and three
 * statistics, of each block of queries, one or two blocks of scores, a few queries as they lie, and
 * the random words of a block. Blocks in f32 of operands that are stored as bf16 follow: see
 * wide_rows. */
static inline int64_t rows_of_work(const sizes *z, const sdpa_attr *attr, bool backward)
{
    const int64_t words = attr->p > 0 ? WORD_ROWS : 0;
    return backward ? 2 * z->dim + z->value_dim + 2 * KEY_BLOCK + 3 + words
                    : z->group * (z->dim + z->value_dim + 3) + KEY_BLOCK +
                          ceil_div(MAX_FEW * z->dim, z->lanes) + words;
}

/* Rows for blocks of q and dout in f32, and for k and v: forward a block of each, backward a piece. A
 * block has as many rows as a row of LANE_BYTES has f32. */
static inline int64_t wide_rows(const sizes *z, bool backward)
{
    const int64_t piece = z->chunk < PIECE ? z->chunk : PIECE;
    const int64_t blocks = backward ? ceil_div(piece, KEY_BLOCK) : 1;
    return (z->dim + z->value_dim) * (1 + blocks);
}

/* Elements of the dq of all chunks. */
static inline int64_t partial_elements(const sizes *z)
{
    return z->chunks > 1 ? z->chunks * z->batch * z->queries * z->heads * z->dim : 0;
}

#endif
