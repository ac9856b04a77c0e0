/* A report of a model of your own: its plan with measured times as one page, or as JSON where weft
 * was built without the page.
 *
 *     cc report.c $(pkg-config --cflags --libs weft-inspect weft-models) -lm -o report
 *
 * Writes report.html or report.json. The exit status is 1 if that fails. */
#include <weft/measure.h>
#include <weft/models.h>
#include <weft/report.h>
#include <weft/weft.h>

#include <stdio.h>

enum { BATCH = 64, RUNS = 10 };

static weft_value classifier(weft_graph *g, weft_value x)
{
    weft_value h = weft_gelu(g, weft_nn_linear(g, "first", x, 128, true));
    h = weft_gelu(g, weft_nn_linear(g, "second", h, 128, true));
    return weft_nn_linear(g, "last", h, 10, true);
}

/* Runs once to warm up, and then RUNS times with a profile, which records the last run. */
static void measure(weft_session *session, weft_error *error)
{
    weft_profile_options record = WEFT_DEFAULTS(weft_profile_options);
    record.trace_runs = 1;
    weft_session_run(session, error);
    if (error->status == WEFT_OK) weft_session_profile(session, true, &record, error);
    for (int i = 0; i < RUNS && error->status == WEFT_OK; i++) weft_session_run(session, error);
}

/* A report of the plan and of what the session has measured; NULL on failure. */
static weft_report *describe(const weft_plan *plan, const weft_session *session, weft_error *error)
{
    weft_peaks peaks;
    if (weft_measure_peaks(WEFT_F32, 0, &peaks, error) != WEFT_OK) return NULL;
    weft_report_subject subject = WEFT_DEFAULTS(weft_report_subject);
    subject.name = "classifier";
    subject.train = true;
    weft_report_plan_options times = WEFT_DEFAULTS(weft_report_plan_options);
    times.profile = weft_profile_of(session);
    times.peaks = &peaks;
    weft_report *report = weft_report_new("A classifier", NULL, error);
    if (report) weft_report_add_subject(report, &subject, error);
    if (error->status == WEFT_OK) weft_report_add_plan(report, plan, &times, error);
    return report;
}

static void write(const weft_report *report, weft_error *error)
{
    const bool page = weft_report_has_page();
    FILE *file = fopen(page ? "report.html" : "report.json", "w");
    if (!file) {
        weft_error_set(error, WEFT_IO, "report", "cannot be written");
        return;
    }
    if (page)
        weft_report_write_page(report, file, error);
    else
        weft_report_write_json(report, file, error);
    fclose(file);
}

int main(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(BATCH, 64));
    weft_value labels = weft_input(g, "labels", WEFT_I32, WEFT_SHAPE(BATCH));
    weft_value loss = weft_cross_entropy_loss(g, classifier(g, x), labels, NULL);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value rate = weft_scalar(g, WEFT_F32, 1e-3);
    weft_value update = weft_train_update(g, loss, NULL, 0, rate, &adam, NULL);

    weft_params *store = weft_params_new();
    weft_plan *plan = weft_plan_new(g, &update, 1, NULL, &error);
    if (plan) weft_params_init(store, g, 1, &error);
    weft_session *session = plan ? weft_session_new(plan, store, NULL, &error) : NULL;
    static const float pixels[BATCH * 64] = {0};
    static const int32_t classes[BATCH] = {0};
    if (session) weft_session_feed(session, x, pixels, sizeof pixels, &error);
    if (session) weft_session_feed(session, labels, classes, sizeof classes, &error);
    if (session) measure(session, &error);
    weft_report *report = error.status == WEFT_OK ? describe(plan, session, &error) : NULL;
    if (report && error.status == WEFT_OK) write(report, &error);

    const weft_plan_stats stats = weft_plan_stats_of(plan);
    if (error.status == WEFT_OK)
        printf("a report of %zu nodes in %zu intervals\n", (size_t)stats.nodes,
               (size_t)stats.intervals);
    else
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_report_free(report);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return error.status != WEFT_OK;
}
