/* The parameter store and its files: round trips, and malformed files. */
#include "tests.h"

#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[128];

static weft_params *small_store(void)
{
    weft_params *p = weft_params_new();
    weft_tensor t;
    weft_params_add(p, "enc.weight", WEFT_F32, WEFT_SHAPE(2, 3), &t, NULL);
    for (int i = 0; i < 6; i++) ((float *)t.data)[i] = (float)i * 0.1f;
    weft_params_add(p, "step", WEFT_F64, WEFT_SCALAR, &t, NULL);
    *(double *)t.data = M_PI;
    weft_params_add(p, "empty", WEFT_I32, WEFT_SHAPE(0, 4), &t, NULL);
    weft_params_set_meta(p, "model", "a \"quoted\" name\n", NULL);
    return p;
}

static void test_round_trip(void)
{
    weft_error error = {0};
    weft_params *p = small_store(), *q = weft_params_new();
    weft_tensor a, b;
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(q, path, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(q), 3);
    CU_ASSERT_STRING_EQUAL(weft_params_name(q, 0), "enc.weight");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(q, "model"), "a \"quoted\" name\n");
    CU_ASSERT_TRUE(weft_params_find(p, "enc.weight", &a) && weft_params_find(q, "enc.weight", &b));
    CU_ASSERT_EQUAL(memcmp(a.data, b.data, 24), 0);
    CU_ASSERT_TRUE(weft_params_find(q, "step", &b) && *(double *)b.data == M_PI);
    CU_ASSERT_FALSE(weft_params_find(q, "nothing", &b));
    weft_params_free(p);
    weft_params_free(q);
}

/* A file of this header and this many data bytes must be refused with a message that contains
 * `part`. */
static void refuse(uint64_t header_length, const char *header, size_t data_bytes, const char *part)
{
    weft_error error = {0};
    weft_params *p = weft_params_new();
    FILE *file = fopen(path, "wb");
    if (header_length == 0) header_length = strlen(header);
    fwrite(&header_length, 8, 1, file);
    fputs(header, file);
    for (size_t i = 0; i < data_bytes; i++) fputc(1, file);
    fclose(file);
    CU_ASSERT_EQUAL(weft_params_load(p, path, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, path);
    if (!strstr(error.message, part)) {
        fprintf(stderr, "\n    got \"%s\", expected \"%s\"\n", error.message, part);
        CU_FAIL("another message");
    }
    CU_ASSERT_EQUAL(weft_params_count(p), 0);
    weft_params_free(p);
}

/* Saves one f32 tensor in a format and loads it again; the number of elements is the shape's. */
static weft_status save_and_load(const float *x, int64_t n, weft_save_format format, float *y,
                                 weft_error *error)
{
    weft_params *p = weft_params_new(), *q = weft_params_new();
    weft_tensor t;
    CU_ASSERT_EQUAL_FATAL(weft_params_add(p, "x", WEFT_F32, WEFT_SHAPE(n), &t, NULL), WEFT_OK);
    memcpy(t.data, x, (size_t)n * sizeof *x);
    weft_status status = weft_params_save_as(p, path, NULL, format, error);
    if (status == WEFT_OK) {
        CU_ASSERT_EQUAL(weft_params_load(q, path, error), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_params_find(q, "x", &t) && t.dtype == WEFT_F32);
        memcpy(y, t.data, (size_t)n * sizeof *y);
    }
    weft_params_free(p);
    weft_params_free(q);
    return status;
}

/* All finite f16 from `bits` on, and the numbers around the middle of each and the next. */
static void test_half_files(void)
{
    enum { COUNT = 0x7bff };
    static float x[4 * COUNT], y[4 * COUNT];
    weft_error error = {0};
    for (int format = WEFT_SAVE_BF16; format <= WEFT_SAVE_F16; format++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            float pair[2];
            for (uint32_t k = 0; k < 2; k++) {
                const uint32_t bits = i + k, exponent = bits >> 10, fraction = bits & 1023;
                const uint32_t wide = bits << 16;
                memcpy(&pair[k], &wide, sizeof wide);
                if (format == WEFT_SAVE_F16)
                    pair[k] = ldexpf((float)(fraction + (exponent ? 1024 : 0)),
                                     (int)(exponent ? exponent : 1) - 25);
            }
            const float middle = (float)(((double)pair[0] + (double)pair[1]) / 2);
            const float numbers[4] = {pair[0], nextafterf(middle, 0), middle,
                                      nextafterf(middle, INFINITY)};
            memcpy(&x[4 * (size_t)i], numbers, sizeof numbers);
        }
        CU_ASSERT_EQUAL_FATAL(save_and_load(x, 4 * COUNT, (weft_save_format)format, y, &error),
                              WEFT_OK);
        size_t wrong = 0;
        for (size_t i = 0; i + 1 < COUNT; i++) {
            const float low = x[4 * i], high = x[4 * i + 4];
            wrong += y[4 * i] != low || y[4 * i + 1] != low || y[4 * i + 3] != high;
            wrong += y[4 * i + 2] != (i % 2 ? high : low);
        }
        CU_ASSERT_EQUAL(wrong, 0);
        const float signs[5] = {-1.5f, -0.0f, INFINITY, -INFINITY, NAN};
        CU_ASSERT_EQUAL(save_and_load(signs, 5, (weft_save_format)format, y, &error), WEFT_OK);
        CU_ASSERT_TRUE(y[0] == -1.5f && signbit(y[1]) && y[2] == INFINITY && y[3] == -INFINITY);
        CU_ASSERT_TRUE(isnan(y[4]));
    }
    CU_ASSERT_EQUAL(save_and_load(&(float){65519}, 1, WEFT_SAVE_F16, y, &error), WEFT_OK);
    CU_ASSERT_EQUAL(y[0], 65504);
    CU_ASSERT_EQUAL(save_and_load(&(float){65520}, 1, WEFT_SAVE_F16, y, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "x has 65520, which is out of the range of f16, -65504 to 65504");
    CU_ASSERT_EQUAL(save_and_load(&(float){1}, 1, (weft_save_format)3, y, &error),
                    WEFT_BAD_ARGUMENT);
    weft_params *p = small_store(), *q = weft_params_new();
    weft_tensor t;
    CU_ASSERT_EQUAL(weft_params_save_as(p, path, NULL, WEFT_SAVE_BF16, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(q, path, &error), WEFT_OK);
    CU_ASSERT_TRUE(weft_params_find(q, "step", &t) && *(double *)t.data == M_PI);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(q, "model"), "a \"quoted\" name\n");
    weft_params_free(p);
    weft_params_free(q);
}

static void test_malformed_files(void)
{
    refuse(1000, "{}", 0, "longer than the file");
    refuse(UINT64_MAX, "{}", 0, "longer than the file");
    refuse((uint64_t)2 << 56, "{}", 0, "its numbers have the highest byte first");
    refuse(0, "{nonsense", 0, "not JSON");
    refuse(0, "[]", 0, "not a JSON object");
    refuse(0, "{\"a\":3}", 0, "a: is not an object");
    refuse(0, "{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
           "a: its dtype");
    refuse(0, "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "a: its dtype is missing");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
           "a: its shape has an invalid size");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
           "a: its shape has an invalid size");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
           "a: the size of its data does not match");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4,
           "a: its data lie outside the file");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
           "a: its data lie outside the file");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
           "a: its data_offsets");
    refuse(0,
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
           4, "a: its shape overflows");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 9, "a gap");
    refuse(0,
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           8, "appears twice");
    refuse(0,
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
           4, "overlap");
    /* Two tensors share bytes, other bytes belong to none, but the sizes add up to the file's. */
    refuse(0,
           "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
           8, "b: its data overlap");
    refuse(0, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "leave a gap");
    refuse(0, "{\"__metadata__\":{\"k\":1}}", 0, "not text");
    refuse(0, "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__: appears twice");
    refuse(0, "{} more", 0, "not JSON");
    refuse(3, "{}", 1, "not JSON");
}

/* Every prefix of a good file, and every file with one byte changed, is either read or refused, and
 * then the store does not change. */
static void test_damaged_files(void)
{
    weft_params *p = small_store();
    weft_error error = {0};
    char bytes[2048];
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, &error), WEFT_OK);
    FILE *file = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t cut = 0; cut < 2 * n; cut++) {
        weft_params *q = weft_params_new();
        char changed[2048];
        memcpy(changed, bytes, n);
        if (cut >= n) changed[cut - n] ^= 0x15;
        file = fopen(path, "wb");
        fwrite(changed, 1, cut < n ? cut : n, file);
        fclose(file);
        weft_status status = weft_params_load(q, path, NULL);
        if (cut < n) CU_ASSERT_NOT_EQUAL(status, WEFT_OK);
        if (status != WEFT_OK) CU_ASSERT_EQUAL(weft_params_count(q), 0);
        weft_params_free(q);
    }
    weft_params_free(p);
}

/* On a full disk there is one error, the old file is complete, and no temporary file remains. */
static void test_full_disk(void)
{
    weft_error error = {0};
    weft_params *p = small_store(), *big = weft_params_new(), *back = weft_params_new();
    struct rlimit old, limit;
    char temporary[160];
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, &error), WEFT_OK);
    weft_params_add(big, "big", WEFT_F32, WEFT_SHAPE(1 << 16), NULL, NULL);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = old;
    limit.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    weft_status status = weft_params_save(big, path, NULL, &error);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    CU_ASSERT_EQUAL(status, WEFT_IO);
    CU_ASSERT_STRING_EQUAL(error.where, path);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "cannot be written: File too large"));
    snprintf(temporary, sizeof temporary, "%s.*", path);
    glob_t left = {0};
    CU_ASSERT_EQUAL(glob(temporary, 0, NULL, &left), GLOB_NOMATCH);
    globfree(&left);
    CU_ASSERT_EQUAL(weft_params_load(back, path, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(back), 3);
    memset(&error, 0, sizeof error);
    CU_ASSERT_EQUAL(weft_params_save(p, "/no/such/folder/x", NULL, &error), WEFT_IO);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "No such file"));
    memset(&error, 0, sizeof error);
    CU_ASSERT_EQUAL(weft_params_load(p, "/no/such/file", &error), WEFT_NOT_FOUND);
    weft_params_free(p);
    weft_params_free(big);
    weft_params_free(back);
}

/* A file that does not fit the store changes neither its contents nor its metadata. One that fits
 * replaces the contents at the same addresses, and adds the other tensors if they are allowed. */
static void test_load_into_store(void)
{
    weft_error error = {0};
    const weft_load_options lax = {.allow_missing = true, .allow_unexpected = true};
    weft_params *file = small_store(), *p = weft_params_new();
    weft_tensor step, weight, found;
    weft_params_add(p, "step", WEFT_F64, WEFT_SCALAR, &step, NULL);
    weft_params_add(p, "enc.weight", WEFT_F32, WEFT_SHAPE(3, 2), &weight, NULL);
    *(double *)step.data = 1;
    weft_params_set_meta(p, "model", "mine", NULL);
    CU_ASSERT_EQUAL(weft_params_save(file, path, NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load_with(p, path, &lax, NULL, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_STRING_EQUAL(error.where, path);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "enc.weight is f32 [2, 3] in the file"));
    CU_ASSERT_EQUAL(weft_params_count(p), 2);
    CU_ASSERT_EQUAL(*(double *)step.data, 1);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(p, "model"), "mine");
    weft_params_free(p);

    p = weft_params_new();
    weft_params_add(p, "step", WEFT_F64, WEFT_SCALAR, &step, NULL);
    weft_params_set_meta(p, "model", "mine", NULL);
    weft_params_set_meta(p, "other", "kept", NULL);
    CU_ASSERT_EQUAL(weft_params_load_with(p, path, &lax, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(p), 3);
    CU_ASSERT_TRUE(weft_params_find(p, "step", &found) && found.data == step.data);
    CU_ASSERT_EQUAL(*(double *)step.data, M_PI);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(p, "model"), "a \"quoted\" name\n");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(p, "other"), "kept");
    weft_params_free(p);
    weft_params_free(file);
}

/* Names that a file cannot contain are refused when they are added to the store. */
static void test_reserved_name(void)
{
    weft_error error = {0};
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_add(p, "__metadata__", WEFT_F32, WEFT_SHAPE(1), NULL, &error),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_params_add(p, "", WEFT_F32, WEFT_SHAPE(1), NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_params_count(p), 0);
    weft_params_free(p);
}

static void test_read_only_folder(void)
{
    weft_error error = {0};
    char folder[] = "/tmp/weft-folder-XXXXXX", inside[64];
    if (geteuid() == 0) {
        test_skip("saving into a read-only folder", "root may write anywhere");
        return;
    }
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(inside, sizeof inside, "%s/x", folder);
    chmod(folder, 0500);
    weft_params *p = small_store();
    CU_ASSERT_EQUAL(weft_params_save(p, inside, NULL, &error), WEFT_IO);
    CU_ASSERT_STRING_EQUAL(error.where, inside);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "Permission denied"));
    weft_params_free(p);
    rmdir(folder);
}

/* Initial contents have the right moments, and do not depend on the order of declarations. */
static void test_init(void)
{
    weft_error error = {0};
    weft_init normal = {WEFT_INIT_NORMAL, 2, 0.5};
    weft_graph *g = weft_graph_new(), *h = weft_graph_new();
    weft_params *a = weft_params_new(), *b = weft_params_new();
    weft_tensor x, y, z;
    weft_param(g, "n", WEFT_F64, WEFT_SHAPE(100, 100), normal);
    weft_param(g, "w", WEFT_F64, WEFT_SHAPE(100, 50), WEFT_INIT_XAVIER);
    weft_param(h, "w", WEFT_F64, WEFT_SHAPE(100, 50), WEFT_INIT_XAVIER);
    weft_param(h, "n", WEFT_F64, WEFT_SHAPE(100, 100), normal);
    CU_ASSERT_EQUAL(weft_params_init(a, g, 7, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_init(b, h, 7, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_params_find(a, "n", &x) && weft_params_find(b, "n", &y) &&
                         weft_params_find(a, "w", &z));
    CU_ASSERT_EQUAL(memcmp(x.data, y.data, 80000), 0);
    double sum = 0, square = 0, largest = 0;
    for (int i = 0; i < 10000; i++) {
        sum += ((double *)x.data)[i];
        square += pow(((double *)x.data)[i] - 2, 2);
    }
    /* Four standard errors of the mean, 0.5 / sqrt(10000) = 0.005, and more than five of the
     * deviation, 0.5 / sqrt(20000) = 0.0035. */
    CU_ASSERT_DOUBLE_EQUAL(sum / 10000, 2, 0.02);
    CU_ASSERT_DOUBLE_EQUAL(sqrt(square / 10000), 0.5, 0.02);
    /* Of 5000 uniform numbers none is above 0.99 of the bound with probability 0.99^5000 = e^-50.
     */
    for (int i = 0; i < 5000; i++) largest = fmax(largest, fabs(((double *)z.data)[i]));
    CU_ASSERT_TRUE(largest <= sqrt(6.0 / 150) && largest > 0.99 * sqrt(6.0 / 150));

    weft_param(h, "other", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
    weft_params_add(a, "other", WEFT_F32, WEFT_SHAPE(4), NULL, NULL);
    CU_ASSERT_EQUAL(weft_params_init(a, h, 7, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_STRING_EQUAL(error.where, "other");
    weft_params_free(a);
    weft_params_free(b);
    weft_graph_free(g);
    weft_graph_free(h);
}

/* The standard deviation, or of a uniform distribution the bound, of 40,000 numbers or more. */
/* States of few bits; numbers outside a dtype's range become its ends. */
static void test_init_narrow(void)
{
    static const struct {
        weft_init init;
        uint16_t bf16;
        uint8_t u8;
        int32_t i32;
    } rows[] = {{{WEFT_INIT_CONSTANT, 3, 0}, 0x4040, 3, 3},
                {{WEFT_INIT_NORMAL, -1e20, 0}, 0xE0AD, 0, INT32_MIN},
                {{WEFT_INIT_NORMAL, 1e20, 0}, 0x60AD, UINT8_MAX, INT32_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_graph *g = weft_graph_new();
        weft_params *p = weft_params_new();
        weft_tensor narrow, bytes, whole;
        weft_state(g, "narrow", WEFT_BF16, WEFT_SHAPE(3), rows[i].init);
        weft_state(g, "bytes", WEFT_U8, WEFT_SHAPE(3), rows[i].init);
        weft_state(g, "whole", WEFT_I32, WEFT_SHAPE(3), rows[i].init);
        CU_ASSERT_EQUAL_FATAL(weft_params_init(p, g, 7, NULL), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_params_find(p, "narrow", &narrow) &&
                             weft_params_find(p, "bytes", &bytes) &&
                             weft_params_find(p, "whole", &whole));
        CU_ASSERT_EQUAL(((uint16_t *)narrow.data)[2], rows[i].bf16);
        CU_ASSERT_EQUAL(((uint8_t *)bytes.data)[2], rows[i].u8);
        CU_ASSERT_EQUAL(((int32_t *)whole.data)[2], rows[i].i32);
        weft_params_free(p);
        weft_graph_free(g);
    }
}

static double spread_of(weft_init_kind kind, weft_shape shape, bool uniform)
{
    weft_graph *g = weft_graph_new();
    weft_params *p = weft_params_new();
    weft_tensor t;
    double sum = 0, largest = 0;
    weft_param(g, "w", WEFT_F64, shape, (weft_init){kind, 1, 0});
    CU_ASSERT_EQUAL_FATAL(weft_params_init(p, g, 3, NULL), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_params_find(p, "w", &t));
    const int64_t n = weft_shape_numel(shape);
    for (int64_t i = 0; i < n; i++) {
        const double x = ((const double *)t.data)[i];
        sum += x * x;
        largest = fmax(largest, fabs(x));
    }
    weft_params_free(p);
    weft_graph_free(g);
    return uniform ? largest : sqrt(sum / (double)n);
}

/* The fans that a kind takes from the layout of the weights. The expected numbers are those of
 * torch.nn.init on the same shapes (its matrices are [out, in]). Of 40,000 normal numbers the
 * deviation has a relative error of 1/sqrt(80000) = 0.0035, and the largest of as many uniform ones
 * is within 1e-3 of the bound except with probability e^-40. */
static void test_fans(void)
{
    static const struct {
        weft_init_kind kind;
        weft_shape shape;
        bool uniform;
        double fan; /* the sum for Xavier's */
    } cases[] = {
        {WEFT_INIT_KAIMING_NORMAL, {2, {400, 100}}, false, 400},
        {WEFT_INIT_XAVIER_UNIFORM, {2, {400, 100}}, true, 500},
        {WEFT_INIT_CONV_KAIMING_NORMAL, {4, {300, 16, 3, 3}}, false, 16 * 9},
        {WEFT_INIT_CONV_KAIMING_UNIFORM, {4, {300, 16, 3, 3}}, true, 16 * 9},
        {WEFT_INIT_CONV_XAVIER_NORMAL, {4, {300, 16, 3, 3}}, false, 316 * 9},
        {WEFT_INIT_CONV_XAVIER_UNIFORM, {4, {300, 16, 3, 3}}, true, 316 * 9},
        {WEFT_INIT_CONV_KAIMING_NORMAL,
         {3, {4000, 1, 10}},
         false,
         10}, /* a depthwise convolution */
        {WEFT_INIT_CONV_KAIMING_NORMAL, {5, {64, 32, 3, 3, 3}}, false, 32 * 27},
        {WEFT_INIT_CONV_KAIMING_NORMAL, {2, {1000, 64}}, false, 64}, /* a table of embeddings */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool kaiming = cases[i].kind == WEFT_INIT_KAIMING_NORMAL ||
                             cases[i].kind == WEFT_INIT_CONV_KAIMING_NORMAL ||
                             cases[i].kind == WEFT_INIT_CONV_KAIMING_UNIFORM;
        const double variance = (kaiming ? 1 : 2) / cases[i].fan;
        const double expected = sqrt(cases[i].uniform ? 3 * variance : variance);
        const double got = spread_of(cases[i].kind, cases[i].shape, cases[i].uniform);
        CU_ASSERT_DOUBLE_EQUAL(got / expected, 1, cases[i].uniform ? 1e-3 : 0.02);
        if (cases[i].uniform) CU_ASSERT_TRUE(got <= expected);
    }
}

static void expect_init_refused(weft_init_kind kind, weft_shape shape, weft_status status)
{
    weft_graph *g = weft_graph_new();
    CU_ASSERT_FALSE(weft_is_value(weft_param(g, "w", WEFT_F32, shape, (weft_init){kind, 1, 0})));
    CU_ASSERT_EQUAL(weft_graph_status(g), status);
    weft_graph_free(g);
}

/* Fans are never guessed from dimensions that the layout does not have. */
static void test_fans_refused(void)
{
    expect_init_refused(WEFT_INIT_KAIMING_NORMAL, WEFT_SHAPE(64, 16, 3, 3), WEFT_BAD_SHAPE);
    expect_init_refused(WEFT_INIT_XAVIER_UNIFORM, WEFT_SHAPE(8, 16, 3), WEFT_BAD_SHAPE);
    expect_init_refused(WEFT_INIT_CONV_KAIMING_NORMAL, WEFT_SHAPE(64), WEFT_BAD_SHAPE);
    expect_init_refused((weft_init_kind)(WEFT_INIT_CONV_KAIMING_NORMAL + 1), WEFT_SHAPE(4),
                        WEFT_BAD_ARGUMENT);
}

static int make_path(void)
{
    snprintf(path, sizeof path, "/tmp/weft-params-%ld.safetensors", (long)getpid());
    return 0;
}

static int remove_path(void)
{
    unlink(path);
    return 0;
}

void params_tests(void)
{
    CU_pSuite suite = CU_add_suite("params", make_path, remove_path);
    CU_add_test(suite, "round trip", test_round_trip);
    CU_add_test(suite, "files of 16-bit numbers, rounded to the nearest even", test_half_files);
    CU_add_test(suite, "malformed files", test_malformed_files);
    CU_add_test(suite, "damaged files", test_damaged_files);
    CU_add_test(suite, "full disk", test_full_disk);
    CU_add_test(suite, "loading into a store", test_load_into_store);
    CU_add_test(suite, "fans by layout", test_fans);
    CU_add_test(suite, "fans that a shape does not have", test_fans_refused);
    CU_add_test(suite, "reserved name", test_reserved_name);
    CU_add_test(suite, "read-only folder", test_read_only_folder);
    CU_add_test(suite, "first contents", test_init);
    CU_add_test(suite, "first contents of narrow states", test_init_narrow);
}
