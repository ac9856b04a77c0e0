/* A detector from an ONNX file: a picture in, boxes out. */
#ifndef DETECT_DETECTOR_H
#define DETECT_DETECTOR_H

#include "picture.h"

#include <weft/onnx.h>

typedef struct detector_options {
    const char *file; /* with one input of f32, [3, height, width] or [1, 3, height, width] */
    const char
        *weights; /* a safetensors file with other weights, as a training writes it; or NULL */
    weft_onnx_dim dims[4]; /* sizes that the file leaves open */
    size_t n_dims;
    picture_scaling scaling;
    float threshold; /* the least score of a box */
    float overlap;   /* see detector_find */
} detector_options;

typedef struct found_box {
    float corners[4]; /* left, top, right, bottom, in pixels of the picture */
    float score;
    int label;
} found_box;

typedef struct detector detector;
/* NULL after an error. */
detector *detector_open(const detector_options *options, weft_error *error);
void detector_close(detector *d);

/* The boxes of a picture, best first. The outputs of a file are either "boxes" [n, 4], "scores" [n]
 * and "labels" [n], as torchvision writes them; n is decided by the picture. Or the file has one
 * output [1, 4 + classes, n], as YOLOv8 writes it: centre, width and height, and a score for each
 * class. Then a box has its best class, and is left out if its overlap with a better one (the area
 * of their intersection over that of their union) is above the option. The array is the caller's. */
weft_status detector_find(detector *d, const picture *p, found_box **boxes, size_t *n,
                          weft_error *error);

/* The overlap of two boxes. */
float overlap_of(const float a[4], const float b[4]);

#endif
