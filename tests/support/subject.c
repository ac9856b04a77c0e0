/* The model of subject.h. */
#include "subject.h"
#include "tests.h"

#include <string.h>

static void randomize(weft_params *params, uint64_t seed)
{
    for (size_t i = 0; i < weft_params_count(params); i++) {
        weft_tensor t;
        const char *name = weft_params_name(params, i);
        weft_params_find(params, name, &t);
        bool gain = strstr(name, "gamma") != NULL;
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++) {
            double x = test_uniform(&seed, -0.5, 0.5) + (gain ? 1 : 0);
            if (t.dtype == WEFT_F64)
                ((double *)t.data)[k] = x;
            else if (t.dtype == WEFT_F32)
                ((float *)t.data)[k] = (float)x;
        }
    }
}

bool make_subject(subject *s, const char *name, const char *const *options, size_t n)
{
    weft_error error = {0};
    memset(s, 0, sizeof *s);
    if (weft_model_parse(weft_model_find(name), options, n, &s->config, &error) != WEFT_OK) {
        CU_FAIL(error.message);
        return false;
    }
    weft_graph *g = weft_graph_new();
    s->params = weft_params_new();
    s->config.build.shape.target_len = 8;
    if (s->config.build.shape.source_len) s->config.build.shape.source_len = 8;
    weft_model_build(g, &s->config);
    bool good = weft_params_init(s->params, g, 7, &error) == WEFT_OK;
    weft_graph_free(g);
    randomize(s->params, 11);
    CU_ASSERT_TRUE(good);
    return good;
}
