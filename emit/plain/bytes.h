/* Bytes of one scale and zero point, and convolutions of images of bytes whose channels are
 * innermost. Sums are of i32, which wraps around. */

static uint8_t byte_within(float x, float low, float high, int zero)
{
    x = x > low ? x : low;
    x = x < high ? x : high;
    return (uint8_t)((int)rint((double)x) + zero);
}

static uint8_t byte_of(float x, float scale, int zero)
{
    return byte_within(x / scale, (float)-zero, (float)(255 - zero), zero);
}

static float number_of_byte(uint8_t x, float scale, int zero)
{
    return scale * (float)(x - zero);
}

static uint8_t byte_of_sum(uint8_t a, uint8_t b, double a_scale, double b_scale, double scale,
                           int a_zero, int b_zero, int zero, int low, int high)
{
    const float x = (float)a_scale * (float)(a - a_zero), y = (float)b_scale * (float)(b - b_zero);
    const float sum = x + y;
    return byte_within(sum / (float)scale, (float)(low - zero), (float)(high - zero), zero);
}

/* Results are i32 (`kind` 0), bytes (1) or f32. */
typedef struct conv_bytes_shape {
    int images, in[2], out[2], channels, columns, kernel[2], stride[2], dilation[2], begin[2];
    int kind, x_zero, y_zero, bounded;
} conv_bytes_shape;

/* The pixel of image n that pixel [i, j] of the result reads at a tap; -1: padding. */
static int conv_bytes_pixel(const conv_bytes_shape *s, int n, int i, int j, int tap)
{
    const int row = i * s->stride[0] + tap / s->kernel[1] * s->dilation[0] - s->begin[0];
    const int column = j * s->stride[1] + tap % s->kernel[1] * s->dilation[1] - s->begin[1];
    if (row < 0 || row >= s->in[0] || column < 0 || column >= s->in[1]) return -1;
    return (n * s->in[0] + row) * s->in[1] + column;
}

/* The maxima of windows; `kind` and what follows it are not used. */
static void max_pool_bytes(const uint8_t *x, uint8_t *y, const void *shape)
{
    const conv_bytes_shape *s = (const conv_bytes_shape *)(const void *)shape;
    const int taps = s->kernel[0] * s->kernel[1];
    int n, i, j, c, t, at = 0;
    for (n = 0; n < s->images; n++)
        for (i = 0; i < s->out[0]; i++)
            for (j = 0; j < s->out[1]; j++)
                for (c = 0; c < s->channels; c++) {
                    uint8_t best = 0;
                    for (t = 0; t < taps; t++) {
                        const int pixel = conv_bytes_pixel(s, n, i, j, t);
                        const uint8_t byte = pixel < 0 ? 0 : x[pixel * s->channels + c];
                        best = byte > best ? byte : best;
                    }
                    y[at++] = best;
                }
}

static void conv_bytes_result(const conv_bytes_shape *s, uint32_t sum, float scale, void *y, int at,
                              double low, double high)
{
    const int32_t whole = (int32_t)sum;
    const float x = (float)whole * scale;
    if (s->kind == 0)
        ((int32_t *)y)[at] = whole;
    else if (s->kind == 1)
        ((uint8_t *)y)[at] = byte_within(x, (float)low - (float)s->y_zero,
                                         (float)high - (float)s->y_zero, s->y_zero);
    else
        ((float *)y)[at] = !s->bounded       ? x
                           : x < (float)low  ? (float)low
                           : x > (float)high ? (float)high
                                             : x;
}

/* One sum over taps and channels; w is the first weight of its column in panels of 32, of four bytes
 * for each column. */
static uint32_t conv_bytes_sum(const conv_bytes_shape *s, const uint8_t *x, const uint8_t *w, int n,
                               int i, int j, uint32_t sum)
{
    const int taps = s->kernel[0] * s->kernel[1], each = (s->channels + 3) / 4;
    int t, c;
    for (t = 0; t < taps; t++) {
        const int pixel = conv_bytes_pixel(s, n, i, j, t);
        for (c = 0; c < s->channels; c++) {
            const int at = (t * each + c / 4) * 128 + c % 4;
            const int byte = pixel < 0 ? s->x_zero : x[pixel * s->channels + c];
            sum += (uint32_t)(byte * (w[at] < 128 ? w[at] : w[at] - 256));
        }
    }
    return sum;
}

/* `scale` may be NULL. */
static void conv_bytes(const uint8_t *x, const uint8_t *w, const int32_t *bias, const float *scale,
                       void *y, const void *shape, double low, double high)
{
    const conv_bytes_shape *s = (const conv_bytes_shape *)(const void *)shape;
    const int panel = s->kernel[0] * s->kernel[1] * ((s->channels + 3) / 4) * 128;
    int n, i, j, c, at = 0;
    for (n = 0; n < s->images; n++)
        for (i = 0; i < s->out[0]; i++)
            for (j = 0; j < s->out[1]; j++)
                for (c = 0; c < s->columns; c++)
                    conv_bytes_result(s,
                                      conv_bytes_sum(s, x, w + c / 32 * panel + c % 32 * 4, n, i, j,
                                                     (uint32_t)bias[c]),
                                      scale ? scale[c] : 1, y, at++, low, high);
}

static void conv_bytes_depthwise(const uint8_t *x, const uint8_t *w, const int32_t *bias,
                                 const float *scale, void *y, const void *shape, double low,
                                 double high)
{
    const conv_bytes_shape *s = (const conv_bytes_shape *)(const void *)shape;
    const int taps = s->kernel[0] * s->kernel[1];
    int n, i, j, c, t, at = 0;
    for (n = 0; n < s->images; n++)
        for (i = 0; i < s->out[0]; i++)
            for (j = 0; j < s->out[1]; j++)
                for (c = 0; c < s->channels; c++) {
                    uint32_t sum = (uint32_t)bias[c];
                    for (t = 0; t < taps; t++) {
                        const int pixel = conv_bytes_pixel(s, n, i, j, t);
                        const int weight = w[t * s->channels + c];
                        const int byte = pixel < 0 ? s->x_zero : x[pixel * s->channels + c];
                        sum += (uint32_t)(byte * (weight < 128 ? weight : weight - 256));
                    }
                    conv_bytes_result(s, sum, scale ? scale[c] : 1, y, at++, low, high);
                }
}
