/* Dtypes, shapes, layouts and tensors: names, sizes, and what fits what. O(rank). */
#include "ir/ir.h"

#include "base/half.h"
#include "base/platform.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define ROW(upper, lower, size, file) {#lower, size},
    WEFT_DTYPE_MAP(ROW)
#undef ROW
};

const char *weft_dtype_name(weft_dtype dtype)
{
    return (size_t)dtype < WEFT_DTYPES ? dtypes[dtype].name : "?";
}

size_t weft_dtype_bytes(weft_dtype dtype)
{
    return (size_t)dtype < WEFT_DTYPES ? dtypes[dtype].bytes : 0;
}

bool weft_shape_equal(weft_shape a, weft_shape b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank && i < WEFT_MAX_RANK; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

int64_t weft_shape_numel(weft_shape shape)
{
    if (shape.rank < 0 || shape.rank > WEFT_MAX_RANK) return -1;
    const int64_t limit = INT64_MAX / 64;
    /* The product of the other dimensions must fit too, because strides are products of them. */
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 0) return -1;
        if (shape.dim[i] == 0) {
            empty = true;
            continue;
        }
        if (product > limit / shape.dim[i]) return -1;
        product *= shape.dim[i];
    }
    return empty ? 0 : product;
}

const char *weft_shape_text(weft_shape shape, char *buffer, size_t size)
{
    size_t used = 0;
    if (!buffer || !size) return "";
    int rank = shape.rank < 0 ? 0 : shape.rank > WEFT_MAX_RANK ? WEFT_MAX_RANK : shape.rank;
    used += (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, i ? ", %lld" : "%lld",
                                 (long long)shape.dim[i]);
    if (used < size) snprintf(buffer + used, size - used, "]");
    return buffer;
}

bool weft_shape_broadcast(weft_shape a, weft_shape b, weft_shape *out)
{
    weft_shape r = {a.rank > b.rank ? a.rank : b.rank, {0}};
    for (int i = 1; i <= r.rank; i++) {
        int64_t x = i <= a.rank ? a.dim[a.rank - i] : 1, y = i <= b.rank ? b.dim[b.rank - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        r.dim[r.rank - i] = x == 1 ? y : x;
    }
    if (out) *out = r;
    return true;
}

weft_layout weft__layout_dense(weft_shape shape)
{
    weft_layout layout = {{0}, 0};
    int64_t stride = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        layout.stride[i] = stride;
        stride *= shape.dim[i] ? shape.dim[i] : 1;
    }
    return layout;
}

bool weft_layout_is_dense(const weft_layout *layout, weft_shape shape)
{
    return weft__layout_taken(WEFT_TAKES_DENSE, shape, layout);
}

/* The stride of a dimension of size 1 does not matter, because nothing steps along it. */
bool weft__layout_taken(weft_takes takes, weft_shape shape, const weft_layout *layout)
{
    if (takes == WEFT_TAKES_ANY || weft_shape_numel(shape) == 0) return true;
    int last = shape.rank - 1;
    if (takes == WEFT_TAKES_DENSE) {
        int64_t stride = 1;
        for (int i = last; i >= 0; i--) {
            if (shape.dim[i] != 1 && layout->stride[i] != stride) return false;
            stride *= shape.dim[i];
        }
        return true;
    }
    if (shape.rank == 0) return true;
    bool row = shape.dim[last] == 1 || layout->stride[last] == 1;
    if (takes == WEFT_TAKES_ROWS) return row;
    if (shape.rank == 1) return row;
    int64_t m = shape.dim[last - 1], n = shape.dim[last];
    int64_t sm = layout->stride[last - 1], sn = layout->stride[last];
    return (row && (m == 1 || sm >= n)) || ((m == 1 || sm == 1) && (n == 1 || sn >= m));
}

void weft__normalise_bools(weft_dtype dtype, void *data, size_t n)
{
    uint8_t *bytes = data;
    for (size_t i = 0; dtype == WEFT_BOOL && i < n; i++) bytes[i] = bytes[i] != 0;
}

double weft_tensor_element(const weft_tensor *tensor, int64_t i)
{
    if (!tensor || !tensor->data) return 0;
    switch (tensor->dtype) {
    case WEFT_F32:
        return (double)((const float *)tensor->data)[i];
    case WEFT_F64:
        return ((const double *)tensor->data)[i];
    case WEFT_I32:
        return ((const int32_t *)tensor->data)[i];
    case WEFT_BF16:
        return (double)half_from_bf16(((const uint16_t *)tensor->data)[i]);
    default:
        return ((const uint8_t *)tensor->data)[i];
    }
}

void *weft_alloc(size_t bytes)
{
    void *memory = weft__arena_memory(bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

void weft_free(void *memory)
{
    weft__os_memory_free(memory);
}

weft_tensor weft_tensor_dense(void *data, weft_dtype dtype, weft_shape shape)
{
    weft_tensor tensor = {data, dtype, shape, {0}};
    weft_layout layout = weft__layout_dense(shape);
    memcpy(tensor.stride, layout.stride, sizeof tensor.stride);
    return tensor;
}

size_t weft_tensor_bytes(weft_dtype dtype, weft_shape shape)
{
    const int64_t numel = weft_shape_numel(shape);
    return numel > 0 ? (size_t)numel * weft_dtype_bytes(dtype) : 0;
}
