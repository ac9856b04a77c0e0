/* Safetensors files in memory: 8 bytes with the length of the header, a header of JSON, the data. */

/* The rest of a text. */
typedef struct file_text {
    const unsigned char *at, *end;
} file_text;

/* A tensor of a header; texts are as they stand between their quotes. Its data are the bytes from
 * offset[0] to offset[1] after the header. */
typedef struct file_tensor {
    file_text name, dtype;
    int rank;
    size_t dim[8], offset[2];
} file_tensor;

static void file_skip_spaces(file_text *t)
{
    while (t->at < t->end && (*t->at == ' ' || (*t->at >= 9 && *t->at <= 13))) t->at++;
}

/* Takes a character, which spaces may precede; 0 if another one comes next. */
static int file_takes(file_text *t, unsigned char c)
{
    file_skip_spaces(t);
    if (t->at == t->end || *t->at != c) return 0;
    t->at++;
    return 1;
}

static int file_is(const file_text *t, const void *word, size_t n)
{
    return (size_t)(t->end - t->at) == n && !memcmp(t->at, word, n);
}

/* Takes a text in quotes. */
static int file_string(file_text *t, file_text *string)
{
    if (!file_takes(t, '"')) return 0;
    for (string->at = t->at; t->at < t->end && *t->at >= ' '; t->at++) {
        if (*t->at == '"') {
            string->end = t->at++;
            return 1;
        }
        if (*t->at == '\\' && t->end - t->at > 1) t->at++;
    }
    return 0;
}

/* Takes a list of up to `most` whole numbers. Returns how many, or -1. */
static int file_numbers(file_text *t, size_t *numbers, int most)
{
    int n = 0;
    if (!file_takes(t, '[')) return -1;
    if (file_takes(t, ']')) return 0;
    do {
        const unsigned char *begin;
        size_t number = 0;
        file_skip_spaces(t);
        begin = t->at;
        for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
            if (number > (SIZE_MAX - 9) / 10) return -1;
            number = number * 10 + (size_t)(*t->at - '0');
        }
        if (t->at == begin || (*begin == '0' && t->at - begin > 1) || n == most) return -1;
        numbers[n++] = number;
    } while (file_takes(t, ','));
    return file_takes(t, ']') ? n : -1;
}

/* Takes {"dtype": ..., "shape": ..., "data_offsets": ...}, in any order. */
static int file_entry(file_text *t, file_tensor *x)
{
    int known = 0;
    if (!file_takes(t, '{')) return 0;
    do {
        file_text key;
        int bit = 0;
        if (!file_string(t, &key) || !file_takes(t, ':')) return 0;
        if (file_is(&key, "dtype", 5)) {
            if (file_string(t, &x->dtype)) bit = 1;
        } else if (file_is(&key, "shape", 5)) {
            x->rank = file_numbers(t, x->dim, 8);
            if (x->rank >= 0) bit = 2;
        } else if (file_is(&key, "data_offsets", 12)) {
            if (file_numbers(t, x->offset, 2) == 2) bit = 4;
        }
        if (!bit || known & bit) return 0;
        known |= bit;
    } while (file_takes(t, ','));
    return known == 7 && file_takes(t, '}');
}

/* Takes an object of texts. */
static int file_metadata(file_text *t)
{
    file_text string;
    if (!file_takes(t, '{')) return 0;
    if (file_takes(t, '}')) return 1;
    do {
        if (!file_string(t, &string) || !file_takes(t, ':') || !file_string(t, &string)) return 0;
    } while (file_takes(t, ','));
    return file_takes(t, '}');
}

/* Takes the end of the header, after which t->at is a null pointer. */
static int file_ends(file_text *t)
{
    if (!file_takes(t, '}')) return 0;
    file_skip_spaces(t);
    if (t->at != t->end) return 0;
    t->at = 0;
    return 1;
}

/* Begins with the header of a file of n bytes, whose data are at t->end; 0 if it has none. */
static int file_open(const unsigned char *bytes, size_t n, file_text *t)
{
    uint64_t length = 0;
    int i;
    if (n < 8) return 0;
    for (i = 8; i-- > 0;) length = length << 8 | bytes[i];
    if (length > n - 8) return 0;
    t->at = bytes + 8;
    t->end = t->at + (size_t)length;
    if (!file_takes(t, '{')) return 0;
    file_ends(t);
    return 1;
}

/* Takes the next tensor: 1; 0: there are no more; -1: the header is damaged. */
static int file_next(file_text *t, file_tensor *x)
{
    int metadata;
    do {
        if (!t->at) return 0;
        if (!file_string(t, &x->name) || !file_takes(t, ':')) return -1;
        metadata = file_is(&x->name, "__metadata__", 12);
        if (!(metadata ? file_metadata(t) : file_entry(t, x))) return -1;
        if (!file_takes(t, ',') && !file_ends(t)) return -1;
    } while (metadata);
    return 1;
}

/* Floats of bf16, their upper halves. */
static void widen_bf16(void *floats, const uint16_t *halves, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy((unsigned char *)floats + 4 * i, &bits, sizeof bits);
    }
}

/* Copies a tensor of `size` bytes; if `half`, from floats without the lower halves. */
static void file_copy(unsigned char *to, const unsigned char *from, size_t size, int half)
{
    size_t i;
    if (!half)
        memcpy(to, from, size);
    else
        for (i = 0; i < size; i++) to[i] = i % 4 < 2 ? 0 : *from++;
}

/* Finds the tensor of a file that is like x, and its data, *half: as bf16; null if there is not
 * exactly one of the name, or it does not fit. */
static const unsigned char *file_find(const unsigned char *bytes, size_t n, const file_tensor *x,
                                      int *half)
{
    const size_t size = x->offset[1] - x->offset[0];
    const unsigned char *data = 0;
    file_text t;
    file_tensor y;
    int found = 0, more;
    if (!file_open(bytes, n, &t)) return 0;
    while ((more = file_next(&t, &y)) > 0) {
        if (!file_is(&y.name, x->name.at, (size_t)(x->name.end - x->name.at))) continue;
        *half = file_is(&y.dtype, "BF16", 4) && file_is(&x->dtype, "F32", 3);
        if (found++ ||
            !(*half || file_is(&y.dtype, x->dtype.at, (size_t)(x->dtype.end - x->dtype.at))) ||
            y.rank != x->rank || memcmp(y.dim, x->dim, (size_t)x->rank * sizeof *x->dim) ||
            y.offset[1] > n - (size_t)(t.end - bytes) || y.offset[0] > y.offset[1] ||
            y.offset[1] - y.offset[0] != size >> *half)
            return 0;
        data = t.end + y.offset[0];
    }
    return more < 0 ? 0 : data;
}

/* Copies the tensors that `header` names from a file of n bytes: 0. If one lacks, or is of another
 * dtype or shape: 1, and nothing is copied. */
static int file_load(const unsigned char *header, size_t header_bytes, const unsigned char *bytes,
                     size_t n, unsigned char *states)
{
    int copies;
    for (copies = 0; copies < 2; copies++) {
        file_text t;
        file_tensor x;
        if (!file_open(header, header_bytes, &t)) return 1;
        while (file_next(&t, &x) > 0) {
            int half = 0;
            const unsigned char *data = file_find(bytes, n, &x, &half);
            if (!data) return 1;
            if (copies) file_copy(states + x.offset[0], data, x.offset[1] - x.offset[0], half);
        }
    }
    return 0;
}
