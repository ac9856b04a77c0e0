/* Without protobuf-c, ONNX files are refused with one clear error. */
#include "tests.h"

static void test_refused(void)
{
    weft_error error = {0};
    size_t n = 1;
    CU_ASSERT_PTR_NULL(weft_onnx_load("model.onnx", NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NO_BACKEND);
    CU_ASSERT_PTR_NULL(weft_onnx_params(NULL, &n));
    CU_ASSERT_EQUAL(n, 0);
}

void onnx_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx", NULL, NULL);
    CU_add_test(suite, "a build without protobuf-c", test_refused);
}

static void test_save_refused(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_scalar(g, WEFT_F32, 1);
    CU_ASSERT_EQUAL(weft_onnx_save(g, &x, 1, NULL, "model.onnx", NULL, &error), WEFT_NO_BACKEND);
    CU_ASSERT_EQUAL(error.status, WEFT_NO_BACKEND);
    weft_graph_free(g);
}

void onnx_export_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_export", NULL, NULL);
    CU_add_test(suite, "a build without protobuf-c", test_save_refused);
}

/* The other suites of ONNX files have nothing to test. */
void onnx_gradients_tests(void) {}
void onnx_images_tests(void) {}
void onnx_notes_tests(void) {}
void onnx_ops_tests(void) {}
void onnx_training_tests(void) {}
void onnx_values_tests(void) {}
