/* Rows, and how a value is held against what a document says. A printed number has a last digit;
 * ours agrees if it is off by no more than half a unit of it, and a millionth of that for ties. */
#include "examples.h"

#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const char examples_json[]; /* examples.json, put into the program by embed.c */

#define TIE (1 + 1e-6)

weft_status report_open(report *r, bool json, weft_error *error)
{
    *r = (report){.data = cJSON_Parse(examples_json), .rows = cJSON_CreateArray(), .json = json};
    if (!r->data || !r->rows)
        return weft_error_set(error, WEFT_NO_MEMORY, "reproduce", "the data cannot be read");
    if (!json)
        printf("%-34s %-34s %-20s %-20s %-11s\n", "system", "figure", "seed", "weft", "difference");
    return WEFT_OK;
}

void report_close(report *r)
{
    cJSON_Delete(r->data);
    cJSON_Delete(r->rows);
}

static void add_row(report *r, const char *system, const char *figure, const char *seed,
                    const char *ours, double difference, const char *verdict)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "system", system);
    cJSON_AddStringToObject(row, "figure", figure);
    cJSON_AddStringToObject(row, "seed", seed);
    cJSON_AddStringToObject(row, "weft", ours);
    if (isfinite(difference)) cJSON_AddNumberToObject(row, "difference", difference);
    cJSON_AddStringToObject(row, "verdict", verdict);
    cJSON_AddItemToArray(r->rows, row);
    if (r->json) return;
    char text[24] = "";
    if (isfinite(difference)) snprintf(text, sizeof text, "%.1e", difference);
    printf("%-34s %-34s %-20s %-20s %-11s %s\n", system, figure, seed, ours, text, verdict);
    fflush(stdout);
}

void report_row(report *r, const char *system, const char *figure, const char *seed,
                const char *ours, double difference, bool good)
{
    add_row(r, system, figure, seed, ours, difference, good ? "ok" : "FAILED");
    r->failures += !good;
}

void report_left_out(report *r, const char *system, const char *figure, const char *why)
{
    add_row(r, system, figure, "", "", NAN, why);
}

/* ---- A lab ---- */

lab lab_open(report *r, const char *system, weft_dtype dtype)
{
    lab l = {.report = r, .system = system, .dtype = dtype};
    l.g = weft_graph_new();
    l.store = weft_params_new();
    if (!l.g || !l.store) weft_error_set(&l.error, WEFT_NO_MEMORY, "reproduce", "no memory");
    return l;
}

static const cJSON *entry(const lab *l, const char *kind, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(l->report->data, kind),
                                            name);
}

/* The numbers of an input as a new array; NULL after failing. */
static double *numbers(lab *l, const char *name, size_t *n)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(entry(l, "inputs", name), "data");
    *n = (size_t)cJSON_GetArraySize(list);
    double *data = *n ? calloc(*n, sizeof *data) : NULL;
    if (!data) {
        weft_error_set(&l->error, WEFT_NOT_FOUND, name, "is not in the data");
        return NULL;
    }
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, list) data[i++] = item->valuedouble;
    return data;
}

weft_value lab_given(lab *l, const char *name, weft_shape shape)
{
    size_t n;
    double *data = numbers(l, name, &n);
    weft_value value = WEFT_NO_VALUE;
    if (data && (int64_t)n != weft_shape_numel(shape))
        weft_error_set(&l->error, WEFT_BAD_SHAPE, name, "has %zu numbers", n);
    else if (data)
        value = weft_cast(l->g, weft_constant_data(l->g, WEFT_F64, shape, data), l->dtype);
    free(data);
    return value;
}

weft_value lab_normal(lab *l, const char *name, weft_shape shape)
{
    return weft_state(l->g, name, l->dtype, shape, (weft_init){WEFT_INIT_NORMAL, 0, 1});
}

static bool init(lab *l)
{
    return l->error.status == WEFT_OK && weft_params_init(l->store, l->g, 1, &l->error) == WEFT_OK;
}

void lab_load(lab *l, const char *parameter, const char *const *names, size_t n)
{
    weft_tensor t;
    if (!init(l)) return;
    if (!weft_params_get(l->store, parameter, &t) || t.dtype != WEFT_F64 || t.shape.rank != 2) {
        weft_error_set(&l->error, WEFT_NOT_FOUND, parameter, "is no matrix of f64 parameters");
        return;
    }
    int64_t rows = t.shape.dim[0], columns = t.shape.dim[1];
    for (size_t k = 0; k < n; k++) {
        size_t count, width = (size_t)columns / n;
        double *data = numbers(l, names[k], &count);
        if (data && count != (size_t)rows * width)
            weft_error_set(&l->error, WEFT_BAD_SHAPE, names[k], "has %zu numbers", count);
        else if (data)
            for (size_t row = 0; row < (size_t)rows; row++)
                memcpy((double *)t.data + row * (size_t)columns + k * width, data + row * width,
                       width * sizeof *data);
        free(data);
    }
}

/* ---- What is expected ---- */

static void expect(lab *l, expectation e)
{
    if (l->n == LAB_EXPECTATIONS) {
        weft_error_set(&l->error, WEFT_BAD_ARGUMENT, l->system, "too many expectations");
        return;
    }
    e.value = weft_contiguous(l->g, weft_dtype_of(l->g, e.value) == WEFT_F64
                                        ? e.value
                                        : weft_cast(l->g, e.value, WEFT_F64));
    l->expected[l->n++] = e;
}

void lab_figure(lab *l, const char *what, weft_value value, const char *figure)
{
    expect(l, (expectation){.what = what, .value = value, .figure = figure});
}

void lab_shape(lab *l, const char *what, weft_value value, weft_shape shape)
{
    expect(l, (expectation){.what = what, .value = value, .is_shape = true, .shape = shape});
}

void lab_number(lab *l, const char *what, weft_value value, double number, double tolerance)
{
    expect(l,
           (expectation){.what = what, .value = value, .number = number, .tolerance = tolerance});
}

static double number(const char *text)
{
    double x = NAN;
    text_read_double(text, &x);
    return x;
}

/* Half a unit of the last digit of "1.25" or "6.12849101e-03". */
static double half_unit(const char *text)
{
    const char *point = strchr(text, '.'), *e = strchr(text, 'e');
    const char *end = e ? e : text + strlen(text);
    double decimals = point ? (double)(end - point - 1) : 0;
    return 0.5 * pow(10, (e ? number(e + 1) : 0) - decimals);
}

static void check_figure(lab *l, const expectation *e, const double *x, size_t n)
{
    const cJSON *figure = entry(l, "figures", e->figure);
    const cJSON *texts = cJSON_GetObjectItemCaseSensitive(figure, "texts"), *item;
    if ((size_t)cJSON_GetArraySize(texts) != n || !n) {
        report_row(l->report, l->system, e->what, e->figure, "another number of elements", NAN,
                   false);
        return;
    }
    double worst = -1, largest = 0, shown = NAN; /* worst: in half units */
    const char *seed = "";
    size_t i = 0;
    cJSON_ArrayForEach(item, texts)
    {
        double off = fabs(x[i] - number(item->valuestring)), half = half_unit(item->valuestring);
        if (!(off / half <= worst)) {
            worst = off / half;
            seed = item->valuestring;
            shown = x[i];
        }
        if (!(off <= largest)) largest = off;
        i++;
    }
    char ours[40];
    snprintf(ours, sizeof ours, "%.13g", shown);
    report_row(l->report, l->system, e->what, seed, ours, largest, worst <= TIE);
}

static void check_shape(lab *l, const expectation *e, const double *x, size_t n)
{
    char seed[96], ours[96];
    weft_shape shape = weft_shape_of(l->g, e->value);
    bool good = weft_shape_equal(shape, e->shape);
    weft_shape_text(e->shape, seed, sizeof seed);
    weft_shape_text(shape, ours, sizeof ours);
    for (size_t i = 0; i < n; i++) good = good && isfinite(x[i]);
    report_row(l->report, l->system, e->what, seed, ours, NAN, good);
}

static void check_number(lab *l, const expectation *e, const double *x, size_t n)
{
    char seed[40], ours[40];
    double largest = 0, shown = n ? x[0] : NAN;
    for (size_t i = 0; i < n; i++)
        if (!(fabs(x[i] - e->number) <= largest)) {
            largest = fabs(x[i] - e->number);
            shown = x[i];
        }
    snprintf(seed, sizeof seed, "%.13g", e->number);
    snprintf(ours, sizeof ours, "%.13g", shown);
    report_row(l->report, l->system, e->what, seed, ours, largest,
               n > 0 && largest <= e->tolerance);
}

static void check_one(lab *l, weft_session *session, const expectation *e)
{
    size_t n = (size_t)weft_shape_numel(weft_shape_of(l->g, e->value));
    double *x = calloc(n + 1, sizeof *x);
    if (!x || weft_fetch(session, e->value, x, n * sizeof *x) != WEFT_OK)
        report_row(l->report, l->system, e->what, "", "no value", NAN, false);
    else if (e->figure)
        check_figure(l, e, x, n);
    else if (e->is_shape)
        check_shape(l, e, x, n);
    else
        check_number(l, e, x, n);
    free(x);
}

/* Made-up data for the inputs of a model. */
static weft_status run(lab *l, weft_session *session)
{
    examples e = {NULL, 0};
    const built_model m = {.graph = l->g};
    weft_status status = tool_examples(&m, &e, &l->error);
    if (status == WEFT_OK) status = examples_feed(&e, session, &l->error);
    if (status == WEFT_OK && (status = weft_run(session)) != WEFT_OK)
        l->error = *weft_session_error(session);
    examples_free(&e);
    return status;
}

void lab_close(lab *l)
{
    weft_value targets[LAB_EXPECTATIONS];
    weft_plan *plan = NULL;
    weft_session *session = NULL;
    weft_status status = WEFT_NO_MEMORY;
    for (size_t i = 0; i < l->n; i++) targets[i] = l->expected[i].value;
    if (l->g && weft_graph_status(l->g) != WEFT_OK && l->error.status == WEFT_OK)
        l->error = *weft_graph_error(l->g);
    if (init(l)) plan = weft_plan_new(l->g, targets, l->n, NULL, &l->error);
    if (plan) session = weft_session_new(plan, l->store, NULL, &l->error);
    if (session) status = run(l, session);
    if (status != WEFT_OK)
        report_row(l->report, l->system, l->error.where, "", l->error.message, NAN, false);
    for (size_t i = 0; status == WEFT_OK && i < l->n; i++) check_one(l, session, &l->expected[i]);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(l->store);
    weft_graph_free(l->g);
}

/* ---- Attention, as several documents have it ---- */

attended reproduce_attention(weft_graph *g, weft_value q, weft_value k, weft_value v,
                             weft_value hidden, double scale, double dropout)
{
    attended a = {.scores = weft_matmul(g, q, weft_transpose(g, k, -1, -2))};
    a.scaled = weft_scale(g, a.scores, scale);
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

void lab_weights(lab *l, weft_value weights, weft_value dropped, weft_value hidden, double p)
{
    weft_graph *g = l->g;
    double rounding = l->dtype == WEFT_F64 ? 1e-14 : 1e-6;
    lab_number(l, "rows of weights sum to", weft_sum(g, weights, WEFT_AXES(-1), false), 1,
               rounding);
    if (weft_is_value(hidden)) {
        weft_value zero = weft_fill(g, l->dtype, WEFT_SCALAR, 0);
        lab_number(l, "largest weight of a masked key",
                   largest(g, weft_where(g, hidden, weights, zero)), 0, 0);
    }
    if (p == 0) return;
    weft_value zero = weft_fill(g, l->dtype, WEFT_SCALAR, 0);
    weft_value gone = weft_equal(g, dropped, zero);
    weft_value kept = weft_where(g, gone, zero, weft_scale(g, weights, 1 / (1 - p)));
    lab_number(l, "kept weights less weight / (1 - p)", largest(g, weft_sub(g, dropped, kept)), 0,
               rounding);
    weft_value all = weft_cast(g, gone, WEFT_F64);
    if (weft_is_value(hidden)) { /* masked ones are zero anyway */
        weft_value seen = weft_logical_not(g, hidden);
        seen = weft_cast(g, weft_broadcast_to(g, seen, weft_shape_of(g, weights)), WEFT_F64);
        all = weft_div(g, weft_sum(g, weft_mul(g, all, seen), WEFT_ALL_AXES, false),
                       weft_sum(g, seen, WEFT_ALL_AXES, false));
    } else {
        all = weft_mean(g, all, WEFT_ALL_AXES, false);
    }
    lab_number(l, "share of dropped weights", all, p, 0.05);
}
