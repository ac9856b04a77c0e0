/* See picture.h. */
#include "picture.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

enum { MAX_PIXELS = 1 << 26, MAX_FILE = 1 << 28 };

/* ---- Files ---- */

static weft_status allocate(picture *p, int64_t width, int64_t height, const char *path,
                            weft_error *error)
{
    if (width < 1 || height < 1 || width > MAX_PIXELS / height)
        return weft_error_set(error, WEFT_BAD_FILE, path,
                              "expected 1 to %d pixels, not %lld x %lld", MAX_PIXELS,
                              (long long)width, (long long)height);
    p->width = (int)width, p->height = (int)height;
    p->pixels = (uint8_t *)malloc((size_t)(3 * width * height));
    return p->pixels ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
}

static weft_status read_jpeg(picture *p, const char *path, const uint8_t *data, size_t bytes,
                             weft_error *error)
{
    int width, height, sampling, space;
    tjhandle jpeg = tjInitDecompress();
    if (!jpeg) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    weft_status status = WEFT_OK;
    bool good = !tjDecompressHeader3(jpeg, data, bytes, &width, &height, &sampling, &space);
    if (good) status = allocate(p, width, height, path, error);
    if (good && status == WEFT_OK)
        good = !tjDecompress2(jpeg, data, bytes, p->pixels, width, 0, height, TJPF_RGB, 0);
    if (!good) status = weft_error_set(error, WEFT_BAD_FILE, path, "%s", tjGetErrorStr2(jpeg));
    tjDestroy(jpeg);
    return status;
}

static weft_status read_png(picture *p, const char *path, const uint8_t *data, size_t bytes,
                            weft_error *error)
{
    const png_color black = {0, 0, 0}; /* where the picture is transparent */
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    weft_status status = WEFT_OK;
    bool good = png_image_begin_read_from_memory(&png, data, bytes);
    png.format = PNG_FORMAT_RGB;
    if (good) status = allocate(p, png.width, png.height, path, error);
    if (good && status == WEFT_OK) good = png_image_finish_read(&png, &black, p->pixels, 0, NULL);
    if (!good)
        status = weft_error_set(error, WEFT_BAD_FILE, path, "expected a JPEG or PNG file: %s",
                                png.message);
    png_image_free(&png);
    return status;
}

/* The whole file; NULL after an error. */
static uint8_t *read_file(const char *path, size_t *bytes, weft_error *error)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    if (!file) {
        weft_error_set(error, WEFT_IO, path, "cannot be opened");
        return NULL;
    }
    const long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    rewind(file);
    if (size > 0 && size <= MAX_FILE) data = (uint8_t *)malloc((size_t)size);
    if (!data || fread(data, 1, (size_t)size, file) != (size_t)size) {
        weft_error_set(error, WEFT_IO, path, "expected a file of 1 to %d bytes", MAX_FILE);
        free(data), data = NULL;
    }
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

weft_status picture_read(picture *p, const char *path, weft_error *error)
{
    size_t bytes;
    p->pixels = NULL;
    uint8_t *data = read_file(path, &bytes, error);
    if (!data) return WEFT_IO;
    const bool jpeg = bytes > 2 && data[0] == 0xff && data[1] == 0xd8;
    const weft_status status = (jpeg ? read_jpeg : read_png)(p, path, data, bytes, error);
    free(data);
    if (status != WEFT_OK) free(p->pixels), p->pixels = NULL;
    return status;
}

weft_status picture_write(const picture *p, const char *path, weft_error *error)
{
    png_image png;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    png.width = (png_uint_32)p->width, png.height = (png_uint_32)p->height;
    png.format = PNG_FORMAT_RGB;
    if (png_image_write_to_file(&png, path, 0, p->pixels, 0, NULL)) return WEFT_OK;
    return weft_error_set(error, WEFT_IO, path, "cannot be written: %s", png.message);
}

/* ---- Pixels ---- */

/* Columns or rows of the old picture that a new one is a mean of. */
typedef struct window {
    int first, end;
    float centre, radius;
} window;

/* `ratio`: new ones per old one. A picture that grows is interpolated. */
static window window_of(int at, float ratio, int size)
{
    window w = {.centre = ((float)at + 0.5f) / ratio - 0.5f, .radius = fmaxf(1, 1 / ratio)};
    w.centre = fminf(fmaxf(w.centre, 0), (float)size - 1);
    w.first = (int)fmaxf(ceilf(w.centre - w.radius), 0);
    w.end = (int)fminf(floorf(w.centre + w.radius), (float)size - 1) + 1;
    return w;
}

static float weight(const window *w, int at)
{
    return fmaxf(1 - fabsf((float)at - w->centre) / w->radius, 0);
}

static void mean_of(const picture *p, window x, window y, float mean[3])
{
    float total = 0, sum[3] = {0, 0, 0};
    for (int row = y.first; row < y.end; row++)
        for (int column = x.first; column < x.end; column++) {
            const float part = weight(&y, row) * weight(&x, column);
            const uint8_t *pixel =
                p->pixels + 3 * ((size_t)row * (size_t)p->width + (size_t)column);
            for (int c = 0; c < 3; c++) sum[c] += part * (float)pixel[c];
            total += part;
        }
    for (int c = 0; c < 3; c++) mean[c] = sum[c] / total / 255;
}

void picture_scale(const picture *p, const picture_scaling *how, int width, int height, float *into,
                   float *across, float *down)
{
    *across = (float)width / (float)p->width, *down = (float)height / (float)p->height;
    if (how->letterbox) *across = *down = fminf(*across, *down);
    const size_t plane = (size_t)width * (size_t)height;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            float rgb[3] = {0, 0, 0};
            if ((float)x < *across * (float)p->width && (float)y < *down * (float)p->height)
                mean_of(p, window_of(x, *across, p->width), window_of(y, *down, p->height), rgb);
            for (int c = 0; c < 3; c++)
                into[(size_t)c * plane + (size_t)y * (size_t)width + (size_t)x] =
                    (rgb[c] - how->mean[c]) / how->deviation[c];
        }
}

void picture_frame(picture *p, const float corners[4], int kind)
{
    static const uint8_t colours[][3] = {{255, 64, 64}, {64, 255, 64}, {80, 144, 255},
                                         {255, 224, 0}, {255, 0, 255}, {0, 240, 240}};
    const int n = (int)(sizeof colours / sizeof *colours), wide = 1 + p->width / 256;
    const uint8_t *colour = colours[(kind % n + n) % n];
    const float right = (float)p->width - 1, bottom = (float)p->height - 1;
    if (!(corners[0] <= right && corners[1] <= bottom && corners[2] >= 0 && corners[3] >= 0))
        return;
    const int x0 = (int)fmaxf(corners[0], 0), x1 = (int)fminf(corners[2], right);
    const int y0 = (int)fmaxf(corners[1], 0), y1 = (int)fminf(corners[3], bottom);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++)
            if (x < x0 + wide || x > x1 - wide || y < y0 + wide || y > y1 - wide)
                memcpy(p->pixels + 3 * ((size_t)y * (size_t)p->width + (size_t)x), colour, 3);
}
