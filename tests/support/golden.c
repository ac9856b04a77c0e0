/* Reading golden files, and comparing with them. */
#include "golden.h"

#include <math.h>
#include <string.h>

const golden_precision golden_precisions[GOLDEN_PRECISIONS] = {{WEFT_F32, 1e-4}, {WEFT_F64, 5e-7}};

double golden_element(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F32 ? (double)((const float *)t->data)[i]
                                : ((const double *)t->data)[i];
}

static double norm_of(const weft_tensor *t)
{
    double sum = 0;
    for (int64_t i = 0, n = weft_shape_numel(t->shape); i < n; i++)
        sum += golden_element(t, i) * golden_element(t, i);
    return sqrt(sum);
}

bool golden_agrees(const char *what, const weft_tensor *got, const weft_tensor *wanted,
                   double limit, double floor)
{
    double sum = 0;
    if (!weft_shape_equal(got->shape, wanted->shape)) {
        printf("\n    %s: the shapes differ\n", what);
        return false;
    }
    for (int64_t i = 0, n = weft_shape_numel(got->shape); i < n; i++) {
        double off = golden_element(got, i) - golden_element(wanted, i);
        sum += off * off;
    }
    double off = sqrt(sum), size = norm_of(wanted);
    bool good = off <= limit * size + floor;
    if (!good)
        printf("\n    %s (%s): off by %.3g of %.3g\n", what, weft_dtype_name(got->dtype), off,
               size);
    return good;
}

static weft_status copy_to(weft_params *store, const char *name, const weft_tensor *from,
                           weft_dtype dtype, weft_error *error)
{
    weft_tensor to;
    weft_dtype d = weft_dtype_is_float(from->dtype) ? dtype : from->dtype;
    weft_status status = weft_params_add(store, name, d, from->shape, &to, error);
    if (status != WEFT_OK) return status;
    size_t n = (size_t)weft_shape_numel(from->shape);
    if (d == from->dtype)
        memcpy(to.data, from->data, n * weft_dtype_bytes(d));
    else
        for (size_t k = 0; k < n; k++) ((double *)to.data)[k] = ((const float *)from->data)[k];
    return WEFT_OK;
}

weft_params *golden_load(const char *path, const char *prefix, weft_dtype dtype)
{
    weft_error error = {0};
    weft_params *file = weft_params_new(), *store = weft_params_new();
    weft_status status = weft_params_load(file, path, &error);
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(file); i++) {
        weft_tensor from;
        const char *name = weft_params_name(file, i);
        if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
        weft_params_find(file, name, &from);
        status = copy_to(store, name + strlen(prefix), &from, dtype, &error);
    }
    weft_params_free(file);
    if (status != WEFT_OK) printf("\n    %s: %s: %s\n", path, error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    return store;
}

void golden_target(weft_session *s, const weft_params *store, weft_value value, const char *name,
                   double limit, double floor)
{
    weft_tensor got, wanted;
    bool found = weft_params_find(store, name, &wanted) &&
                 weft_session_tensor(s, value, &got, NULL) == WEFT_OK;
    if (!found) printf("\n    %s is not there\n", name);
    CU_ASSERT_TRUE(found && golden_agrees(name, &got, &wanted, limit, floor));
}

bool golden_state(weft_graph *g, const weft_params *store, const char *name, weft_value *value)
{
    weft_tensor t;
    if (!weft_params_find(store, name, &t)) return false;
    *value = weft_state(g, name, t.dtype, t.shape, WEFT_INIT_ZEROS);
    return true;
}

double golden_gradient_norm(const weft_params *store, size_t n)
{
    double sum = 0;
    size_t in_file = 0;
    for (size_t i = 0; i < weft_params_count(store); i++) {
        weft_tensor t;
        const char *name = weft_params_name(store, i);
        if (strncmp(name, "grad.", 5) != 0 || !weft_params_find(store, name, &t)) continue;
        in_file++;
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++)
            sum += golden_element(&t, k) * golden_element(&t, k);
    }
    CU_ASSERT_EQUAL(in_file, n);
    return sqrt(sum);
}
