/* Finds things in pictures by a detector from an ONNX file: prints a line for each box, and draws
 * frames.
 *
 *     cc main.c detector.c picture.c $(pkg-config --cflags --libs weft-formats libturbojpeg libpng) -lm -o detect
 *     ./detect FILE.onnx PICTURE [--OPTION=VALUE...]
 *
 *     --weights=FILE     reads the weights from this safetensors file, as train.c writes it, instead
 *                        of FILE.onnx
 *     --out=FILE.png     the picture with frames
 *     --labels=FILE      the names of the labels, one a line; the first is label 0
 *     --dim=NAME=N       a size that the file leaves open; up to 4 times
 *     --fit=letterbox    keeps the ratio of the sides; fill: does not (default)
 *     --mean=R,G,B       subtracted from channels in [0, 1] (default 0,0,0)
 *     --deviation=R,G,B  what they are then divided by (default 1,1,1)
 *     --threshold=P      the least score of a box (default 0.25)
 *     --overlap=P        for files without suppression in them (default 0.45)
 * The exit status is 1 after an error. */
#include "detector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LABELS = 1000, MAX_LABEL = 64 };

typedef struct arguments {
    detector_options detector;
    const char *picture, *out, *labels;
} arguments;

static bool read_three(const char *text, float to[3])
{
    char end;
    return sscanf(text, "%f,%f,%f%c", &to[0], &to[1], &to[2], &end) == 3;
}

static bool read_one(const char *text, float *to)
{
    char end;
    return sscanf(text, "%f%c", to, &end) == 1;
}

/* NAME=N; the text is cut at the second "=". */
static bool read_dim(detector_options *o, char *text)
{
    char *equals = strrchr(text, '='), end;
    long long size;
    if (!equals || o->n_dims == sizeof o->dims / sizeof *o->dims ||
        sscanf(equals + 1, "%lld%c", &size, &end) != 1)
        return false;
    *equals = 0;
    o->dims[o->n_dims++] = (weft_onnx_dim){.name = text, .size = size};
    return true;
}

static bool take_option(arguments *a, const char *name, char *value)
{
    detector_options *o = &a->detector;
    if (!strcmp(name, "weights")) return o->weights = value, true;
    if (!strcmp(name, "out")) return a->out = value, true;
    if (!strcmp(name, "labels")) return a->labels = value, true;
    if (!strcmp(name, "dim")) return read_dim(o, value);
    if (!strcmp(name, "mean")) return read_three(value, o->scaling.mean);
    if (!strcmp(name, "deviation")) return read_three(value, o->scaling.deviation);
    if (!strcmp(name, "threshold")) return read_one(value, &o->threshold);
    if (!strcmp(name, "overlap")) return read_one(value, &o->overlap);
    o->scaling.letterbox = !strcmp(value, "letterbox");
    return !strcmp(name, "fit") && (o->scaling.letterbox || !strcmp(value, "fill"));
}

static bool take(arguments *a, char *text)
{
    char *value = strchr(text, '=');
    if (strncmp(text, "--", 2) != 0) {
        const char **to = a->detector.file ? &a->picture : &a->detector.file;
        return !*to && (*to = text, true);
    }
    if (!value) return false;
    *value = 0;
    return take_option(a, text + 2, value + 1);
}

/* The names of labels, a line each; false if the file cannot be read, or a line is too long. */
static bool read_labels(const char *path, char names[MAX_LABELS][MAX_LABEL], weft_error *error)
{
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[MAX_LABEL + 2]; /* with the line's end and a zero */
    bool good = true;
    if (path && !file) return weft_error_set(error, WEFT_IO, path, "cannot be opened"), false;
    for (int i = 0; file && good && i < MAX_LABELS && fgets(line, sizeof line, file); i++) {
        const size_t n = strcspn(line, "\r\n");
        if ((good = n < MAX_LABEL))
            snprintf(names[i], MAX_LABEL, "%.*s", (int)n, line);
        else
            weft_error_set(error, WEFT_BAD_FILE, path, "line %d: expected at most %d bytes", i + 1,
                           MAX_LABEL - 1);
    }
    if (file) fclose(file);
    return good;
}

static void print(const found_box *b, char names[MAX_LABELS][MAX_LABEL])
{
    char number[16];
    const bool named = b->label >= 0 && b->label < MAX_LABELS && names[b->label][0];
    snprintf(number, sizeof number, "%d", b->label);
    printf("%-12s score %.3f  left %.1f  top %.1f  right %.1f  bottom %.1f\n",
           named ? names[b->label] : number, (double)b->score, (double)b->corners[0],
           (double)b->corners[1], (double)b->corners[2], (double)b->corners[3]);
}

static weft_status detect(const arguments *a, weft_error *error)
{
    static char names[MAX_LABELS][MAX_LABEL];
    picture p = {.pixels = NULL};
    found_box *boxes = NULL;
    size_t n = 0;
    detector *d = NULL;
    if (read_labels(a->labels, names, error) && picture_read(&p, a->picture, error) == WEFT_OK)
        d = detector_open(&a->detector, error);
    if (d && detector_find(d, &p, &boxes, &n, error) == WEFT_OK) {
        for (size_t i = 0; i < n; i++) {
            print(&boxes[i], names);
            picture_frame(&p, boxes[i].corners, boxes[i].label);
        }
        if (n == 0) puts("no boxes");
        if (a->out) picture_write(&p, a->out, error);
    }
    free(boxes), free(p.pixels);
    detector_close(d);
    return error->status;
}

int main(int argc, char **argv)
{
    weft_error error = WEFT_NO_ERROR;
    arguments a = {.detector = {.threshold = 0.25f, .overlap = 0.45f}};
    for (int c = 0; c < 3; c++) a.detector.scaling.deviation[c] = 1;
    for (int i = 1; i < argc; i++)
        if (!take(&a, argv[i])) return fprintf(stderr, "detect: %s: not understood\n", argv[i]), 2;
    if (!a.picture)
        return fputs("usage: detect FILE.onnx PICTURE [--OPTION=VALUE...]\n", stderr), 2;
    if (detect(&a, &error) == WEFT_OK) return 0;
    fprintf(stderr, "%s: %s\n", error.where, error.message);
    return 1;
}
