/* Arrays in NumPy's files: what is written is read, every kind of element and order that NumPy
 * writes, and files that are damaged or hostile. */
#include "tests.h"

#include <weft/numpy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/weft-numpy-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(data, 1, n, file), n);
    fclose(file);
}

static size_t read_bytes(const char *path, char *data, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    const size_t n = fread(data, 1, capacity, file);
    fclose(file);
    return n;
}

/* A file with this literal and these elements; returns its bytes. */
static size_t make_array(char *file, int version, const char *literal, const void *data, size_t n)
{
    const size_t length = strlen(literal), prefix = version == 1 ? 10 : 12;
    memset(file, 0, prefix);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)version;
    file[8] = (char)(length & 255);
    file[9] = (char)(length >> 8);
    memcpy(file + prefix, literal, length);
    if (n) memcpy(file + prefix + length, data, n);
    return prefix + length + n;
}

static weft_status load_array(weft_params *params, int version, const char *literal,
                              const void *data, size_t n, weft_error *error)
{
    char file[1024];
    const char *path = path_of("a.npy");
    write_bytes(path, file, make_array(file, version, literal, data, n));
    return weft_npy_load(params, "a", path, error);
}

static int make_folder(void)
{
    return !mkdtemp(folder);
}

static int remove_folder(void)
{
    static const char *const names[] = {"a.npy", "b.npy", "a.npz", "b.npz"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(path_of(names[i]));
    return rmdir(folder);
}

/* ---- What is written is read ---- */

static weft_tensor add_random(weft_params *params, const char *name, weft_dtype dtype,
                              weft_shape shape)
{
    weft_tensor t = {.data = NULL};
    CU_ASSERT_EQUAL(weft_params_add(params, name, dtype, shape, &t, NULL), WEFT_OK);
    const size_t bytes = weft_tensor_bytes(dtype, shape);
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)t.data)[i] = (unsigned char)(dtype == WEFT_BOOL ? i % 2 : 3 * i + 1);
    return t;
}

static const weft_shape shapes[] = {
    {0, {0}}, {1, {5}}, {1, {0}}, {3, {2, 3, 4}}, {8, {1, 2, 1, 2, 1, 2, 1, 3}}};

/* Whether b is what an array that was written from a is read as. u8 becomes i32. */
static bool read_as(const weft_tensor *a, const weft_tensor *b)
{
    if (!weft_shape_equal(a->shape, b->shape)) return false;
    if (a->dtype != WEFT_U8)
        return a->dtype == b->dtype &&
               !memcmp(a->data, b->data, weft_tensor_bytes(a->dtype, a->shape));
    bool equal = b->dtype == WEFT_I32;
    for (int64_t i = 0; equal && i < weft_shape_numel(a->shape); i++)
        equal = weft_tensor_element(a, i) == weft_tensor_element(b, i);
    return equal;
}

static void test_written(void)
{
    for (int d = 0; d < WEFT_DTYPES; d++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            weft_params *params = weft_params_new(), *again = weft_params_new();
            weft_error error = WEFT_NO_ERROR;
            weft_tensor t = add_random(params, "x", (weft_dtype)d, shapes[i]), read;
            CU_ASSERT_EQUAL(weft_npy_save(&t, path_of("a.npy"), &error), WEFT_OK);
            /* As NumPy's format asks for, the elements begin at a multiple of 64. */
            static char file[1 << 16];
            const size_t length = read_bytes(path_of("a.npy"), file, sizeof file);
            CU_ASSERT_EQUAL((length - weft_tensor_bytes(t.dtype, t.shape)) % 64, 0);
            CU_ASSERT_EQUAL(weft_npy_load(again, "y", path_of("a.npy"), &error), WEFT_OK);
            CU_ASSERT_TRUE(weft_params_find(again, "y", &read) && read_as(&t, &read));
            weft_params_free(params);
            weft_params_free(again);
        }
}

static bool select_first(void *context, const char *name)
{
    (void)context;
    return !strcmp(name, "x0");
}

/* One array of a.npz, which has those of `params`, under another name. */
static void test_one_array(const weft_params *params)
{
    weft_error error = WEFT_NO_ERROR;
    weft_params *one = weft_params_new();
    weft_tensor a, b = {.data = NULL};
    CU_ASSERT_EQUAL(weft_npz_load_array(one, "it", path_of("a.npz"), "x1", &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(one), 1);
    CU_ASSERT_TRUE(weft_params_find(params, "x1", &a) && weft_params_find(one, "it", &b) &&
                   a.dtype == b.dtype && weft_shape_equal(a.shape, b.shape) &&
                   test_same_tensors("a", &a, &b));
    /* Again, and into a tensor that it does not fit. */
    CU_ASSERT_EQUAL(weft_npz_load_array(one, "it", path_of("a.npz"), "x1", &error), WEFT_OK);
    CU_ASSERT_NOT_EQUAL(weft_npz_load_array(one, "it", path_of("a.npz"), "x0", &error), WEFT_OK);
    error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL(weft_npz_load_array(one, "y", path_of("a.npz"), "y", &error), WEFT_NOT_FOUND);
    CU_ASSERT_TRUE(strstr(error.message, "has no array \"y\"") != NULL);
    CU_ASSERT_EQUAL(weft_npz_load_array(one, "y", path_of("none.npz"), "y", &error),
                    WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(weft_npz_load_array(one, NULL, "a.npz", "y", &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_params_count(one), 1);
    weft_params_free(one);
}

static void test_archive(void)
{
    weft_params *params = weft_params_new(), *again = weft_params_new();
    weft_error error = WEFT_NO_ERROR;
    for (int d = 0; d < WEFT_DTYPES; d++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", d);
        add_random(params, name, (weft_dtype)d, WEFT_SHAPE(7, 300));
    }
    const weft_status status = weft_npz_save(params, path_of("a.npz"), NULL, &error);
    if (status == WEFT_BAD_ARGUMENT) {
        test_skip("arrays in .npz files", "built without libzip");
    } else {
        CU_ASSERT_EQUAL(status, WEFT_OK);
        CU_ASSERT_EQUAL(weft_npz_load(again, path_of("a.npz"), &error), WEFT_OK);
        CU_ASSERT_EQUAL(weft_params_count(again), WEFT_DTYPES);
        for (size_t i = 0; i < weft_params_count(params); i++) {
            weft_tensor a, b = {.data = NULL};
            const char *name = weft_params_name(params, i);
            weft_params_find(params, name, &a);
            CU_ASSERT_TRUE(weft_params_find(again, name, &b) && read_as(&a, &b));
        }
        const weft_params_filter first = {.selects = select_first};
        weft_params *one = weft_params_new();
        CU_ASSERT_EQUAL(weft_npz_save(params, path_of("b.npz"), &first, &error), WEFT_OK);
        CU_ASSERT_EQUAL(weft_npz_load(one, path_of("b.npz"), &error), WEFT_OK);
        CU_ASSERT_EQUAL(weft_params_count(one), 1);
        weft_params_free(one);
        test_one_array(params);
    }
    weft_params_free(params);
    weft_params_free(again);
}

/* An archive of no arrays, and one of an array whose name is as long as names may be, or longer. */
static void test_archive_limits(void)
{
    char name[513];
    weft_error error = WEFT_NO_ERROR;
    weft_params *params = weft_params_new(), *again = weft_params_new();
    weft_status status = weft_npz_save(params, path_of("a.npz"), NULL, &error);
    if (status == WEFT_BAD_ARGUMENT) {
        test_skip("limits of .npz files", "built without libzip");
    } else {
        CU_ASSERT_EQUAL(status, WEFT_OK);
        CU_ASSERT_EQUAL(weft_npz_load(again, path_of("a.npz"), &error), WEFT_OK);
        CU_ASSERT_EQUAL(weft_params_count(again), 0);
        memset(name, 'n', sizeof name);
        name[511] = 0;
        add_random(params, name, WEFT_F32, WEFT_SHAPE(2));
        CU_ASSERT_EQUAL(weft_npz_save(params, path_of("a.npz"), NULL, &error), WEFT_OK);
        CU_ASSERT_EQUAL(weft_npz_load(again, path_of("a.npz"), &error), WEFT_OK);
        CU_ASSERT_TRUE(weft_params_find(again, name, NULL));
        name[511] = 'n';
        name[512] = 0;
        add_random(params, name, WEFT_F32, WEFT_SHAPE(2));
        CU_ASSERT_EQUAL(weft_npz_save(params, path_of("a.npz"), NULL, &error), WEFT_TOO_LARGE);
        CU_ASSERT_TRUE(strstr(error.message, "longer than 511 bytes") != NULL);
    }
    weft_params_free(params);
    weft_params_free(again);
}

/* ---- What NumPy writes ---- */

typedef struct kind {
    const char *descr;
    size_t bytes;
    unsigned char data[16]; /* two elements, as in the file */
    weft_dtype dtype;
    double values[2];
} kind;

static const kind kinds[] = {
    {"<f2", 4, {0x00, 0x3c, 0x01, 0x80}, WEFT_F32, {1, -5.9604644775390625e-08}},
    {">f2", 4, {0xc0, 0x00, 0x7b, 0xff}, WEFT_F32, {-2, 65504}},
    {"<f4", 8, {0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc1}, WEFT_F32, {1, -10}},
    {">f4", 8, {0x3f, 0x80, 0, 0, 0xc1, 0x20, 0, 0}, WEFT_F32, {1, -10}},
    {">f8", 16, {0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0}, WEFT_F64, {1, -2}},
    {"|i1", 2, {0x80, 0x7f}, WEFT_I32, {-128, 127}},
    {"|u1", 2, {0x80, 0xff}, WEFT_I32, {128, 255}},
    {"<i2", 4, {0xfe, 0xff, 0x01, 0x02}, WEFT_I32, {-2, 513}},
    {">u2", 4, {0xff, 0xfe, 0x00, 0x01}, WEFT_I32, {65534, 1}},
    {"=i4", 8, {0xff, 0xff, 0xff, 0xff, 7, 0, 0, 0}, WEFT_I32, {-1, 7}},
    {"<i8", 16, {0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 9}, WEFT_I32, {-2147483648.0, 9}},
    {">i8", 16, {0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}, WEFT_I32, {2147483647, 0}},
    {"<u4", 8, {1, 0, 0, 0, 2, 0, 0, 0}, WEFT_I32, {1, 2}},
    {"|b1", 2, {1, 0}, WEFT_BOOL, {1, 0}},
};

static void test_kinds(void)
{
    char literal[128];
    weft_error error = WEFT_NO_ERROR;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        weft_params *params = weft_params_new();
        weft_tensor t = {.data = NULL};
        snprintf(literal, sizeof literal,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }    \n", k->descr);
        CU_ASSERT_EQUAL(load_array(params, 1 + (int)(i % 3), literal, k->data, k->bytes, &error),
                        WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_params_find(params, "a", &t));
        CU_ASSERT_EQUAL(t.dtype, k->dtype);
        for (int e = 0; e < 2; e++) CU_ASSERT_EQUAL(weft_tensor_element(&t, e), k->values[e]);
        weft_params_free(params);
    }
}

static void test_fortran(void)
{
    static const int32_t columns[] = {0, 10, 1, 11, 2, 12}; /* [2, 3], column by column */
    weft_params *params = weft_params_new();
    weft_error error = WEFT_NO_ERROR;
    weft_tensor t = {.data = NULL};
    CU_ASSERT_EQUAL(load_array(params, 1,
                               "{\"shape\":(2,3),\"fortran_order\":True,\"descr\":\"<i4\"}\n",
                               columns, sizeof columns, &error),
                    WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_params_find(params, "a", &t));
    for (int i = 0; i < 6; i++) CU_ASSERT_EQUAL(weft_tensor_element(&t, i), 10 * (i / 3) + i % 3);
    weft_params_free(params);
}

/* ---- What is refused ---- */

static const struct {
    const char *literal;
    size_t bytes;
    weft_status status;
} refused[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 12, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", 24, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'shape': (2,)}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} 1", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", 8, WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 8,
     WEFT_BAD_FILE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}", 8,
     WEFT_BAD_FILE},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8, WEFT_BAD_DTYPE},
    {"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", 8, WEFT_BAD_DTYPE},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, WEFT_BAD_DTYPE},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 8, WEFT_BAD_FILE},
    {"{'descr': '<u4', 'fortran_order': False, 'shape': (2,)}", 8, WEFT_TOO_LARGE},
    {"{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", 8, WEFT_TOO_LARGE},
    {"", 0, WEFT_BAD_FILE},
};

static void test_refused(void)
{
    unsigned char data[64];
    memset(data, 0xf0, sizeof data);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        weft_params *params = weft_params_new();
        weft_error error = WEFT_NO_ERROR;
        CU_ASSERT_EQUAL(load_array(params, 1, refused[i].literal, data, refused[i].bytes, &error),
                        refused[i].status);
        CU_ASSERT_TRUE(error.status == refused[i].status && error.message[0]);
        CU_ASSERT_EQUAL(weft_params_count(params), 0);
        weft_params_free(params);
    }
    weft_params *params = weft_params_new();
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL(weft_npy_load(params, "a", path_of("none.npy"), &error), WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(weft_npy_load(params, "a", folder, &error), WEFT_IO);
    /* A tensor of another shape. */
    CU_ASSERT_EQUAL(weft_params_add(params, "a", WEFT_F32, WEFT_SHAPE(3), NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(load_array(params, 1, "{'descr':'<f4','fortran_order':False,'shape':(2,)}",
                               data, 8, &error),
                    WEFT_BAD_SHAPE);
    weft_params_free(params);
}

/* Every file that ends early, and every file with one other byte, is read or refused. */
static void damage(const char *name, bool archive)
{
    static char file[65536], other[65536];
    const size_t n = read_bytes(path_of(name), file, sizeof file);
    for (size_t i = 0; i < 2 * n; i++) {
        weft_params *params = weft_params_new();
        weft_error error = WEFT_NO_ERROR;
        memcpy(other, file, n);
        if (i >= n) other[i - n] ^= (char)(1 + i % 255);
        const char *path = path_of(archive ? "b.npz" : "b.npy");
        write_bytes(path, other, i < n ? i : n);
        const weft_status status = archive ? weft_npz_load(params, path, &error)
                                           : weft_npy_load(params, "x", path, &error);
        CU_ASSERT_TRUE((status == WEFT_OK) == (error.status == WEFT_OK));
        if (i < n) CU_ASSERT_NOT_EQUAL(status, WEFT_OK);
        if (status != WEFT_OK) CU_ASSERT_EQUAL(weft_params_count(params), 0);
        weft_params_free(params);
    }
}

static void test_damaged(void)
{
    weft_params *params = weft_params_new();
    weft_error error = WEFT_NO_ERROR;
    weft_tensor t = add_random(params, "x", WEFT_I32, WEFT_SHAPE(3, 5));
    add_random(params, "y", WEFT_F32, WEFT_SHAPE(40));
    CU_ASSERT_EQUAL(weft_npy_save(&t, path_of("a.npy"), &error), WEFT_OK);
    damage("a.npy", false);
    if (weft_npz_save(params, path_of("a.npz"), NULL, &error) == WEFT_OK) damage("a.npz", true);
    weft_params_free(params);
}

void numpy_tests(void)
{
    CU_pSuite suite = CU_add_suite("numpy", make_folder, remove_folder);
    CU_add_test(suite, "arrays that are written", test_written);
    CU_add_test(suite, "archives that are written", test_archive);
    CU_add_test(suite, "archives without arrays, and long names", test_archive_limits);
    CU_add_test(suite, "kinds of elements", test_kinds);
    CU_add_test(suite, "column-major arrays", test_fortran);
    CU_add_test(suite, "what is refused", test_refused);
    CU_add_test(suite, "damaged files", test_damaged);
}
