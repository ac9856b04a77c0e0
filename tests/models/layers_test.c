/* Layers: shared key heads, masked queries, positions, and what they refuse. */
#include "tests.h"

#include <weft/models.h>

#include <stdlib.h>
#include <string.h>

/* Copies the columns of each of the key heads of `from` to the two heads that share it in `to`. */
static void double_heads(weft_params *from, weft_params *to, const char *name, int heads, int width)
{
    weft_tensor a, b;
    CU_ASSERT_TRUE_FATAL(weft_params_find(from, name, &a) && weft_params_find(to, name, &b));
    int64_t columns = (int64_t)heads * width, rows = weft_shape_numel(a.shape) / columns;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < 2 * columns; c++)
            ((double *)b.data)[r * 2 * columns + c] =
                ((double *)a.data)[r * columns + c / (2 * width) * width + c % width];
}

/* Two query heads that share a key head are two heads with equal keys. */
static void test_shared_key_heads(void)
{
    enum { N = 2 * 3 * 16 };
    static const char *const projections[] = {"a.k.weight", "a.k.bias", "a.v.weight", "a.v.bias"};
    double shared[N], full[N];
    weft_graph *g[2];
    weft_value y[2];
    weft_params *store[2];
    for (int i = 0; i < 2; i++) {
        g[i] = weft_graph_new();
        store[i] = weft_params_new();
        weft_init normal = {WEFT_INIT_NORMAL, 0, 1};
        weft_value x = weft_param(g[i], "x", WEFT_F64, WEFT_SHAPE(2, 3, 16), normal);
        weft_nn_attention_options o = {
            .heads = 4, .kv_heads = i ? 0 : 2, .bias = true, .out_bias = true};
        y[i] = weft_nn_attention(g[i], "a", x, x, &o, NULL);
        CU_ASSERT_EQUAL_FATAL(weft_graph_status(g[i]), WEFT_OK);
    }
    test_numbers_of(g[0], y[0], store[0], shared, N);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store[1], g[1], 5, NULL), WEFT_OK);
    for (int i = 0; i < 4; i++) double_heads(store[0], store[1], projections[i], 2, 4);
    test_numbers_of(g[1], y[1], store[1], full, N);
    for (int i = 0; i < N; i++) CU_ASSERT_DOUBLE_EQUAL(shared[i], full[i], ROUNDING_F64);
    for (int i = 0; i < 2; i++) {
        weft_params_free(store[i]);
        weft_graph_free(g[i]);
    }
}

/* A query whose keys are all masked has a context of zeros, so the output is the bias, which starts
 * as zero. */
static void test_fully_masked_query(void)
{
    double y[3 * 8];
    static const uint8_t forbidden[3 * 2] = {0, 1, 1, 1, 0, 0};
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    weft_init normal = {WEFT_INIT_NORMAL, 0, 1};
    weft_value x = weft_param(g, "x", WEFT_F64, WEFT_SHAPE(1, 3, 8), normal);
    weft_value memory = weft_param(g, "memory", WEFT_F64, WEFT_SHAPE(1, 2, 8), normal);
    weft_nn_attention_options o = {.heads = 2,
                                   .bias = true,
                                   .out_bias = true,
                                   .mask =
                                       weft_constant(g, WEFT_BOOL, WEFT_SHAPE(3, 2), forbidden)};
    weft_value out = weft_nn_attention(g, "a", x, memory, &o, NULL);
    test_numbers_of(g, out, store, y, 3 * 8);
    for (int i = 0; i < 3 * 8; i++) {
        CU_ASSERT_TRUE(isfinite(y[i]));
        CU_ASSERT_EQUAL(y[i] == 0, i / 8 == 1);
    }
    weft_params_free(store);
    weft_graph_free(g);
}

static void test_sinusoidal_positions(void)
{
    double table[50 * 6];
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    test_numbers_of(g, weft_nn_sinusoidal_positions(g, WEFT_F64, 50, 6), store, table, 50 * 6);
    for (int at = 0; at < 50; at++)
        for (int i = 0; i < 6; i++) {
            double angle = at * exp(-log(10000.0) * (i / 2 * 2) / 6.0);
            CU_ASSERT_DOUBLE_EQUAL(table[at * 6 + i], i % 2 ? cos(angle) : sin(angle),
                                   ROUNDING_F64);
        }
    weft_params_free(store);
    weft_graph_free(g);
}

/* Shared angles of more positions than needed rotate like a layer's own angles. */
static void test_shared_angles(void)
{
    enum { N = 2 * 3 * 2 * 4 };
    double out[4][N];
    for (int i = 0; i < 4; i++) {
        weft_graph *g = weft_graph_new();
        weft_params *store = weft_params_new();
        weft_init normal = {WEFT_INIT_NORMAL, 0, 1};
        weft_value x = weft_param(g, "x", WEFT_F64, WEFT_SHAPE(2, 3, 2, 4), normal);
        weft_value at = weft_cast(g, weft_scalar(g, WEFT_F64, 2), WEFT_I32);
        weft_rotary angles = weft_nn_rotary_angles(g, WEFT_F64, 7, 4, 100);
        weft_value y = i == 0   ? weft_nn_rotary(g, x, 100)
                       : i == 1 ? weft_nn_rotate(g, x, &angles, WEFT_NO_VALUE)
                       : i == 2 ? weft_nn_rotary_at(g, x, 100, at, 5)
                                : weft_nn_rotate(g, x, &angles, at);
        test_numbers_of(g, y, store, out[i], N);
        weft_params_free(store);
        weft_graph_free(g);
    }
    CU_ASSERT_EQUAL(memcmp(out[0], out[1], sizeof *out), 0);
    CU_ASSERT_EQUAL(memcmp(out[2], out[3], sizeof *out), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(out[0], out[2], sizeof *out), 0);
    weft_graph *g = weft_graph_new();
    weft_rotary angles = weft_nn_rotary_angles(g, WEFT_F64, 7, 6, 100);
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2, 3, 2, 4));
    CU_ASSERT_FALSE(weft_is_value(weft_nn_rotate(g, x, &angles, WEFT_NO_VALUE)));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    weft_graph_free(g);
}

/* The frequency of pair i by the formulas of transformers, with libm. */
static double scaled_frequency(const weft_rotary_scaling *s, double width, double base, int i)
{
    const double f = pow(base, -2 * i / width), wavelength = 2 * M_PI / f;
    const double n = (double)s->positions, factor = s->factor;
    const double turns[2] = {s->fast != 0                  ? s->fast
                             : s->rule == WEFT_ROTARY_YARN ? 32
                                                           : 4,
                             s->slow != 0 ? s->slow : 1};
    if (s->rule == WEFT_ROTARY_PLAIN) return f;
    if (s->rule == WEFT_ROTARY_LINEAR) return f / factor;
    if (s->rule == WEFT_ROTARY_LONGROPE) return f / (double)s->factors[i];
    if (s->rule == WEFT_ROTARY_LLAMA3) {
        if (wavelength > n / turns[1]) return f / factor;
        if (wavelength < n / turns[0]) return f;
        const double smooth = (n / wavelength - turns[1]) / (turns[0] - turns[1]);
        return (1 - smooth) * f / factor + smooth * f;
    }
    double pairs[2];
    for (int k = 0; k < 2; k++) pairs[k] = width * log(n / (turns[k] * 2 * M_PI)) / (2 * log(base));
    const double first = fmax(floor(pairs[0]), 0), last = fmin(ceil(pairs[1]), width - 1);
    const double ramp = fmin(fmax((i - first) / (last == first ? 0.001 : last - first), 0), 1);
    return f / factor * ramp + f * (1 - ramp);
}

/* Rotary angles of each rule; the other elements of a wider head stay as they are. */
static void test_scaled_angles(void)
{
    enum { LENGTH = 50, WIDTH = 16, MORE = WIDTH + 3, N = LENGTH * MORE };
    static const weft_rotary_scaling scalings[] = {
        {.rule = WEFT_ROTARY_PLAIN, .factor = 7},
        {.rule = WEFT_ROTARY_LINEAR, .factor = 7},
        {.rule = WEFT_ROTARY_LLAMA3, .factor = 8, .positions = 100},
        {.rule = WEFT_ROTARY_LLAMA3, .factor = 4, .positions = 64, .slow = 0.5, .fast = 6},
        {.rule = WEFT_ROTARY_YARN, .factor = 4, .positions = 1000},
        {.rule = WEFT_ROTARY_YARN, .factor = 0.5, .positions = 64, .slow = 2, .fast = 4},
        {.rule = WEFT_ROTARY_YARN, .factor = 16, .positions = 3, .magnitude = 0.7},
        {.rule = WEFT_ROTARY_LONGROPE, .factors = {1, 1.5f, 0.5f, 2, 3, 4, 50, 64.25f}},
        {.rule = WEFT_ROTARY_LONGROPE,
         .positions = LENGTH,
         .magnitude = 1.25,
         .factors = {2, 2, 2, 2, 2, 2, 2, 7}},
    };
    static const double magnitudes[] = {1, 1, 1, 1, 1.1386294361119891, 1, 0.7, 1, 1.25};
    static double out[N];
    for (size_t k = 0; k < sizeof scalings / sizeof *scalings; k++) {
        weft_graph *g = weft_graph_new();
        weft_params *store = weft_params_new();
        weft_value x = weft_fill(g, WEFT_F64, WEFT_SHAPE(1, LENGTH, 1, MORE), 1);
        weft_rotary angles =
            weft_nn_scaled_rotary_angles(g, WEFT_F64, LENGTH, WIDTH, 500, &scalings[k]);
        test_numbers_of(g, weft_nn_rotate(g, x, &angles, WEFT_NO_VALUE), store, out, N);
        for (int at = 0; at < LENGTH; at++) {
            const double *row = out + at * MORE;
            for (int i = 0; i < WIDTH / 2; i++) {
                const double angle = at * scaled_frequency(&scalings[k], WIDTH, 500, i);
                const double c = magnitudes[k] * cos(angle), s = magnitudes[k] * sin(angle);
                CU_ASSERT_DOUBLE_EQUAL(row[i], c - s, ROUNDING_F64);
                CU_ASSERT_DOUBLE_EQUAL(row[i + WIDTH / 2], c + s, ROUNDING_F64);
            }
            for (int i = WIDTH; i < MORE; i++) CU_ASSERT_EQUAL(row[i], 1);
        }
        weft_params_free(store);
        weft_graph_free(g);
    }
}

static void test_refused_scalings(void)
{
    static const struct {
        weft_rotary_scaling scaling;
        const char *message;
    } cases[] = {
        {{.rule = (weft_rotary_rule)5}, "invalid rule"},
        {{.rule = WEFT_ROTARY_LONGROPE, .factors = {1}}, "a factor above 0 for each pair"},
        {{.rule = WEFT_ROTARY_LONGROPE, .factors = {1, 1, 1}}, "a factor above 0 for each pair"},
        {{.rule = WEFT_ROTARY_LONGROPE, .factors = {1, -1}}, "a factor above 0 for each pair"},
        {{.rule = WEFT_ROTARY_LONGROPE, .factors = {1, 1}, .magnitude = -1},
         "magnitude of 0 or more"},
        {{.rule = WEFT_ROTARY_LONGROPE, .factors = {1, 1}, .positions = 2}, "the length is above"},
        {{.rule = WEFT_ROTARY_LINEAR, .factor = -1}, "the factor of scaling must be above 0"},
        {{.rule = WEFT_ROTARY_LLAMA3, .factor = 2}, "needs the positions of the training"},
        {{.rule = WEFT_ROTARY_YARN, .positions = 8, .slow = 4, .fast = 4}, "must be more than"},
        {{.rule = WEFT_ROTARY_YARN, .positions = 8, .magnitude = -1}, "a magnitude of 0 or more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_graph *g = weft_graph_new();
        weft_nn_scaled_rotary_angles(g, WEFT_F32, 3, 4, 100, &cases[i].scaling);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, cases[i].message));
        weft_graph_free(g);
    }
}

/* Giant counts are refused before anything is allocated. */
static void test_giant_counts(void)
{
    static const char *const models[][3] = {
        {"gpt", "layers=1000000000", "1000000000 layers, expected at most 1000"},
        {"encoder", "layers=1001", "1001 layers, expected at most 1000"},
        {"transformer", "decoder_layers=1001", "1001 layers, expected at most 1000"},
        {"seq2seq", "target_len=1000000000", "target_len must be 1 to 1048576"},
        {"llama", "length=1000000000", "a table of [1000000000, 16]"},
        {"transformer", "source_len=1000000000", "a table of [1000000000, 256]"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        weft_error error = {0};
        weft_built built;
        weft_graph *g = weft_graph_new();
        weft_status status = weft_model_build_text(g, weft_model_find(models[i][0]), &models[i][1],
                                                   1, true, &built, &error);
        CU_ASSERT_EQUAL(status, WEFT_TOO_LARGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, models[i][2]));
        weft_graph_free(g);
    }
}

static void test_refusals(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 3, 10), 1);
    weft_nn_attention_options o = {.heads = 3};
    CU_ASSERT_FALSE(weft_is_value(weft_nn_attention(g, "a", x, x, &o, NULL)));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "3 heads"));
    weft_graph_free(g);

    g = weft_graph_new();
    CU_ASSERT_FALSE(weft_is_value(weft_nn_sinusoidal_positions(g, WEFT_F32, 4, 7)));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);

    g = weft_graph_new();
    weft_transformer_config c = {.text = {.tied = true}, .source_vocab = 5, .target_vocab = 6};
    const weft_build_options build = {.shape = {1, 1, 1}};
    weft_transformer_build(g, &c, &build);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_transformer_build(g, NULL, &build);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

void layers_tests(void)
{
    CU_pSuite suite = CU_add_suite("layers", NULL, NULL);
    CU_add_test(suite, "key heads shared by query heads", test_shared_key_heads);
    CU_add_test(suite, "a query whose keys are all masked", test_fully_masked_query);
    CU_add_test(suite, "sinusoidal positions", test_sinusoidal_positions);
    CU_add_test(suite, "rotary angles that layers share", test_shared_angles);
    CU_add_test(suite, "scaled rotary angles", test_scaled_angles);
    CU_add_test(suite, "scalings that are refused", test_refused_scalings);
    CU_add_test(suite, "giant counts", test_giant_counts);
    CU_add_test(suite, "layers refuse what does not fit", test_refusals);
}
