/* NumPy arrays inside: see weft/numpy.h. */
#ifndef WEFT_GRAPH_NUMPY_H
#define WEFT_GRAPH_NUMPY_H

#include <weft/numpy.h>

/* Where the bytes of an array come from. */
typedef struct array_source {
    const char *where; /* for messages */
    uint64_t bytes;    /* all that there are */
    /* Reads exactly n bytes; false if that fails. */
    bool (*read)(void *context, void *data, size_t n);
    void *context;
} array_source;

/* The header of an array: its dtype and shape in weft, and how its elements lie in the file. */
typedef struct array_header {
    weft_dtype dtype;
    weft_shape shape;
    char kind; /* of an element in the file, as in NumPy: f i u b */
    int bytes; /* of one */
    bool swapped, fortran;
    uint64_t data_bytes;
} array_header;

/* Reads a header, and checks it against the bytes that follow. */
weft_status weft__array_read_header(const array_source *from, array_header *h, weft_error *error);
/* Reads the elements of an array into contiguous `data`. */
weft_status weft__array_read_data(const array_source *from, const array_header *h, void *data,
                                  weft_error *error);
/* Adds an array to a store as a tensor of that name. */
weft_status weft__array_read(weft_params *params, const char *name, const array_source *from,
                             weft_error *error);

#define ARRAY_HEADER_BYTES 512 /* enough for every header that is written */
/* Writes the header of a tensor to `text`; returns its bytes, a multiple of 64. */
size_t weft__array_make_header(const weft_tensor *tensor, char text[ARRAY_HEADER_BYTES]);

#endif
