/* Builds and runs worked examples, and compares their values with the printed numbers. A value
 * agrees if it differs by at most half a unit of the printed number's last digit, plus a millionth
 * of that for ties. */
#include "examples.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIE (1 + 1e-6)

/* The JSON of a file; NULL if it cannot be read. */
static cJSON *read_json(const char *path)
{
    enum { MAX_BYTES = 1 << 20 };
    FILE *file = fopen(path, "r");
    char *text = malloc(MAX_BYTES + 1);
    const size_t n = file && text ? fread(text, 1, MAX_BYTES, file) : 0;
    cJSON *json = n ? cJSON_ParseWithLength(text, n) : NULL;
    free(text);
    if (file) fclose(file);
    return json;
}

weft_status report_open(report *r, const char *data, bool json, weft_error *error)
{
    *r = (report){.data = read_json(data), .rows = cJSON_CreateArray(), .json = json};
    if (!r->data || !r->rows) return weft_error_set(error, WEFT_IO, data, "cannot be read as JSON");
    if (!json)
        printf("%-34s %-34s %-20s %-20s %-11s\n", "system", "figure", "printed", "weft",
               "difference");
    return WEFT_OK;
}

void report_close(report *r)
{
    cJSON_Delete(r->data);
    cJSON_Delete(r->rows);
}

static void add_row(report *r, const char *system, const char *figure, const char *printed,
                    const char *ours, double difference, const char *verdict)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "system", system);
    cJSON_AddStringToObject(row, "figure", figure);
    cJSON_AddStringToObject(row, "printed", printed);
    cJSON_AddStringToObject(row, "weft", ours);
    if (isfinite(difference)) cJSON_AddNumberToObject(row, "difference", difference);
    cJSON_AddStringToObject(row, "verdict", verdict);
    cJSON_AddItemToArray(r->rows, row);
    if (r->json) return;
    char text[24] = "";
    if (isfinite(difference)) snprintf(text, sizeof text, "%.1e", difference);
    printf("%-34s %-34s %-20s %-20s %-11s %s\n", system, figure, printed, ours, text, verdict);
    fflush(stdout);
}

void report_row(report *r, const char *system, const char *figure, const char *printed,
                const char *ours, double difference, bool good)
{
    add_row(r, system, figure, printed, ours, difference, good ? "ok" : "FAILED");
    r->failures += !good;
}

void report_left_out(report *r, const char *system, const char *figure, const char *why)
{
    add_row(r, system, figure, "", "", NAN, why);
}

/* ---- A worked example ---- */

example example_open(report *r, const char *system, weft_dtype dtype)
{
    example ex = {.report = r, .system = system, .dtype = dtype, .input = WEFT_NO_VALUE};
    ex.g = weft_graph_new();
    ex.store = weft_params_new();
    if (!ex.g || !ex.store) weft_error_set(&ex.error, WEFT_NO_MEMORY, "reproduce", "no memory");
    return ex;
}

static const cJSON *entry(const example *ex, const char *kind, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(ex->report->data, kind), name);
}

/* The numbers of an input as a new array; NULL after failing. */
static double *numbers(example *ex, const char *name, size_t *n)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(entry(ex, "inputs", name), "data");
    *n = (size_t)cJSON_GetArraySize(list);
    double *data = *n ? calloc(*n, sizeof *data) : NULL;
    if (!data) {
        weft_error_set(&ex->error, WEFT_NOT_FOUND, name, "is not in the data");
        return NULL;
    }
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, list) data[i++] = item->valuedouble;
    return data;
}

weft_value example_input(example *ex, const char *name, weft_shape shape)
{
    size_t n;
    double *data = numbers(ex, name, &n);
    weft_value value = WEFT_NO_VALUE;
    if (data && (int64_t)n != weft_shape_numel(shape))
        weft_error_set(&ex->error, WEFT_BAD_SHAPE, name, "has %zu numbers", n);
    else if (data)
        value = weft_cast(ex->g, weft_constant(ex->g, WEFT_F64, shape, data), ex->dtype);
    free(data);
    return value;
}

weft_value example_normal(example *ex, const char *name, weft_shape shape)
{
    return weft_state(ex->g, name, ex->dtype, shape, (weft_init){WEFT_INIT_NORMAL, 0, 1});
}

static bool init(example *ex)
{
    return ex->error.status == WEFT_OK &&
           weft_params_init(ex->store, ex->g, 1, &ex->error) == WEFT_OK;
}

void example_load(example *ex, const char *parameter, const char *const *names, size_t n)
{
    weft_tensor t;
    if (!init(ex)) return;
    if (!weft_params_find(ex->store, parameter, &t) || t.dtype != WEFT_F64 || t.shape.rank != 2) {
        weft_error_set(&ex->error, WEFT_NOT_FOUND, parameter, "is not a matrix of f64 parameters");
        return;
    }
    int64_t rows = t.shape.dim[0], columns = t.shape.dim[1];
    for (size_t k = 0; k < n; k++) {
        size_t count, width = (size_t)columns / n;
        double *data = numbers(ex, names[k], &count);
        if (data && count != (size_t)rows * width)
            weft_error_set(&ex->error, WEFT_BAD_SHAPE, names[k], "has %zu numbers", count);
        else if (data)
            for (size_t row = 0; row < (size_t)rows; row++)
                memcpy((double *)t.data + row * (size_t)columns + k * width, data + row * width,
                       width * sizeof *data);
        free(data);
    }
}

/* ---- Expectations ---- */

static void expect(example *ex, expectation e)
{
    if (ex->n == MAX_EXPECTATIONS) {
        weft_error_set(&ex->error, WEFT_BAD_ARGUMENT, ex->system, "too many expectations");
        return;
    }
    e.value = weft_contiguous(ex->g, weft_dtype_of(ex->g, e.value) == WEFT_F64
                                         ? e.value
                                         : weft_cast(ex->g, e.value, WEFT_F64));
    ex->expected[ex->n++] = e;
}

void expect_figure(example *ex, const char *what, weft_value value, const char *figure)
{
    expect(ex, (expectation){.what = what, .value = value, .figure = figure});
}

void expect_shape(example *ex, const char *what, weft_value value, weft_shape shape)
{
    expect(ex, (expectation){.what = what, .value = value, .is_shape = true, .shape = shape});
}

void expect_number(example *ex, const char *what, weft_value value, double number, double tolerance)
{
    expect(ex,
           (expectation){.what = what, .value = value, .number = number, .tolerance = tolerance});
}

static double number(const char *text)
{
    return strtod(text, NULL);
}

/* Half a unit of the last digit of "1.25" or "6.12849101e-03". */
static double half_unit(const char *text)
{
    const char *point = strchr(text, '.'), *e = strchr(text, 'e');
    const char *end = e ? e : text + strlen(text);
    double decimals = point ? (double)(end - point - 1) : 0;
    return 0.5 * pow(10, (e ? number(e + 1) : 0) - decimals);
}

static void check_figure(example *ex, const expectation *e, const double *x, size_t n)
{
    const cJSON *figure = entry(ex, "figures", e->figure);
    const cJSON *texts = cJSON_GetObjectItemCaseSensitive(figure, "texts"), *item;
    if ((size_t)cJSON_GetArraySize(texts) != n || !n) {
        report_row(ex->report, ex->system, e->what, e->figure, "wrong number of elements", NAN,
                   false);
        return;
    }
    double worst = -1, largest = 0, shown = NAN; /* worst: in half units */
    const char *printed = "";
    size_t i = 0;
    cJSON_ArrayForEach(item, texts)
    {
        double off = fabs(x[i] - number(item->valuestring)), half = half_unit(item->valuestring);
        if (!(off / half <= worst)) {
            worst = off / half;
            printed = item->valuestring;
            shown = x[i];
        }
        if (!(off <= largest)) largest = off;
        i++;
    }
    char ours[40];
    snprintf(ours, sizeof ours, "%.13g", shown);
    report_row(ex->report, ex->system, e->what, printed, ours, largest, worst <= TIE);
}

static void check_shape(example *ex, const expectation *e, const double *x, size_t n)
{
    char printed[96], ours[96];
    weft_shape shape = weft_shape_of(ex->g, e->value);
    bool good = weft_shape_equal(shape, e->shape);
    weft_shape_text(e->shape, printed, sizeof printed);
    weft_shape_text(shape, ours, sizeof ours);
    for (size_t i = 0; i < n; i++) good = good && isfinite(x[i]);
    report_row(ex->report, ex->system, e->what, printed, ours, NAN, good);
}

static void check_number(example *ex, const expectation *e, const double *x, size_t n)
{
    char printed[40], ours[40];
    double largest = 0, shown = n ? x[0] : NAN;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(x[i] - e->number) <= largest)) {
            largest = fabs(x[i] - e->number);
            shown = x[i];
        }
    snprintf(printed, sizeof printed, "%.13g", e->number);
    snprintf(ours, sizeof ours, "%.13g", shown);
    report_row(ex->report, ex->system, e->what, printed, ours, largest,
               n > 0 && largest <= e->tolerance);
}

static void check_one(example *ex, weft_session *session, const expectation *e)
{
    size_t n = (size_t)weft_shape_numel(weft_shape_of(ex->g, e->value));
    double *x = calloc(n + 1, sizeof *x);
    if (!x || weft_session_fetch(session, e->value, x, n * sizeof *x, NULL) != WEFT_OK)
        report_row(ex->report, ex->system, e->what, "", "no value", NAN, false);
    else if (e->figure)
        check_figure(ex, e, x, n);
    else if (e->is_shape)
        check_shape(ex, e, x, n);
    else
        check_number(ex, e, x, n);
    free(x);
}

/* Feeds numbers in [-1, 1) to the input, if there is one, and runs the graph. */
static weft_status run(example *ex, weft_session *session)
{
    weft_status status = WEFT_OK;
    if (weft_is_value(ex->input)) {
        const weft_sample_input like = {ex->dtype, weft_shape_of(ex->g, ex->input), -1, 1, false};
        const size_t bytes = weft_tensor_bytes(like.dtype, like.shape);
        void *data = malloc(bytes);
        if (!data) return weft_error_set(&ex->error, WEFT_NO_MEMORY, ex->system, "no memory");
        weft_sample_input_fill(&like, like.dtype, 1, data);
        status = weft_session_feed(session, ex->input, data, bytes, &ex->error);
        free(data);
    }
    if (status == WEFT_OK) status = weft_session_run(session, &ex->error);
    return status;
}

void example_run(example *ex)
{
    weft_value targets[MAX_EXPECTATIONS];
    weft_plan *plan = NULL;
    weft_session *session = NULL;
    weft_status status = WEFT_NO_MEMORY;
    for (size_t i = 0; i < ex->n; i++) targets[i] = ex->expected[i].value;
    if (ex->g && weft_graph_status(ex->g) != WEFT_OK && ex->error.status == WEFT_OK)
        ex->error = *weft_graph_error(ex->g);
    if (init(ex)) plan = weft_plan_new(ex->g, targets, ex->n, NULL, &ex->error);
    if (plan) session = weft_session_new(plan, ex->store, NULL, &ex->error);
    if (session) status = run(ex, session);
    if (status != WEFT_OK)
        report_row(ex->report, ex->system, ex->error.where, "", ex->error.message, NAN, false);
    for (size_t i = 0; status == WEFT_OK && i < ex->n; i++)
        check_one(ex, session, &ex->expected[i]);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(ex->store);
    weft_graph_free(ex->g);
}

/* ---- Attention, as several documents define it ---- */

attended reproduce_attention(weft_graph *g, weft_value q, weft_value k, weft_value v,
                             weft_value hidden, double scale, double dropout)
{
    attended a = {.scores = weft_matmul(g, q, weft_transpose(g, k, -1, -2))};
    a.scaled = weft_mul_scalar(g, a.scores, scale);
    weft_value masked = a.scaled;
    if (weft_is_value(hidden)) masked = weft_masked_fill(g, masked, hidden, -INFINITY);
    a.weights = weft_softmax(g, masked, -1);
    a.dropped = weft_dropout(g, a.weights, dropout);
    a.context = weft_matmul(g, a.dropped, v);
    return a;
}

/* Largest |x| as a scalar. */
static weft_value largest(weft_graph *g, weft_value x)
{
    return weft_max(g, weft_abs(g, x), WEFT_ALL_AXES, false);
}

void expect_weights(example *ex, weft_value weights, weft_value dropped, weft_value hidden,
                    double p)
{
    weft_graph *g = ex->g;
    double rounding = ex->dtype == WEFT_F64 ? 1e-14 : 1e-6;
    expect_number(ex, "rows of weights sum to", weft_sum(g, weights, WEFT_AXES(-1), false), 1,
                  rounding);
    if (weft_is_value(hidden)) {
        weft_value zero = weft_fill(g, ex->dtype, WEFT_SCALAR, 0);
        expect_number(ex, "largest weight of a masked key",
                      largest(g, weft_where(g, hidden, weights, zero)), 0, 0);
    }
    if (p == 0) return;
    weft_value zero = weft_fill(g, ex->dtype, WEFT_SCALAR, 0);
    weft_value gone = weft_equal(g, dropped, zero);
    weft_value retained = weft_where(g, gone, zero, weft_mul_scalar(g, weights, 1 / (1 - p)));
    expect_number(ex, "retained weights less weight / (1 - p)",
                  largest(g, weft_sub(g, dropped, retained)), 0, rounding);
    weft_value all = weft_cast(g, gone, WEFT_F64);
    if (weft_is_value(hidden)) { /* masked weights are zero without dropout */
        weft_value seen = weft_logical_not(g, hidden);
        seen = weft_cast(g, weft_broadcast_to(g, seen, weft_shape_of(g, weights)), WEFT_F64);
        all = weft_sum(g, weft_mul(g, all, seen), WEFT_ALL_AXES, false);
        all = weft_div(g, all, weft_sum(g, seen, WEFT_ALL_AXES, false));
    } else {
        all = weft_mean(g, all, WEFT_ALL_AXES, false);
    }
    expect_number(ex, "share of dropped weights", all, p, 0.05);
}
