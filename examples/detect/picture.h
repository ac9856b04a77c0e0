/* Pictures of 8 bits: reading JPEG and PNG files (libjpeg-turbo, libpng), writing PNG files, as the
 * input of a network, and with frames drawn around what it found. */
#ifndef DETECT_PICTURE_H
#define DETECT_PICTURE_H

#include <weft/graph.h>
#include <weft/weft.h>

typedef struct picture {
    int width, height;
    uint8_t *pixels; /* [height, width, 3]: red, green, blue */
} picture;

/* A file is JPEG if it begins as one, else PNG; at most 2^26 pixels. The pixels are the caller's,
 * who frees them. */
weft_status picture_read(picture *p, const char *path, weft_error *error);
weft_status picture_write(const picture *p, const char *path, weft_error *error);

/* How the pixels of a picture become numbers. */
typedef struct picture_scaling {
    float mean[3], deviation[3]; /* a channel c in [0, 1] becomes (c - mean) / deviation */
    bool
        letterbox; /* keeps the ratio of the sides: the picture is at the top left, the rest black */
} picture_scaling;

/* The picture in another size, [3, height, width]; each new pixel is a weighted mean of those below
 * it (triangular weights). *across and *down become its columns and rows per old one. */
void picture_scale(const picture *p, const picture_scaling *how, int width, int height, float *into,
                   float *across, float *down);

/* A frame whose sides, of a few pixels, lie inside of the corners; `kind` selects the colour. */
void picture_frame(picture *p, const float corners[4], int kind);

#endif
