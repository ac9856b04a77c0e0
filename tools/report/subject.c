/* Subjects of a report. See subject.h. */
#include "subject.h"
#include "run_model.h"

#include "base/file.h"
#include "base/text.h"
#include "json/tree.h"
#include "base/platform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The command line ---- */

static bool is_folder(const char *path)
{
    os_facts facts;
    return weft__os_facts(path, &facts) && facts.kind == OS_FOLDER;
}

void report_take_arg(report_side *side, char *text, const tool_parser *parser)
{
    const bool first = !report_has_subject(side);
    if (side->saved) tool_usage_error(parser, "%s takes no option \"%s\"", side->saved, text);
    if (first && tool_ends_with(text, ".json")) {
        side->saved = text;
    } else if (side->n_runs || (first && !weft_model_find(text) && is_folder(text))) {
        if (!is_folder(text)) tool_usage_error(parser, "\"%s\" is not the folder of a run", text);
        if (side->n_runs == REPORT_MAX_RUNS)
            tool_usage_error(parser, "%d runs at most", REPORT_MAX_RUNS);
        side->runs[side->n_runs++] = text;
    } else {
        tool_take_model_arg(&side->model, text, parser);
    }
}

bool report_has_subject(const report_side *side)
{
    return side->saved || side->n_runs || tool_model_name(&side->model);
}

weft_status report_check_output(report_side *side, const char *out, weft_error *error)
{
    weft_status status = side->saved ? tool_check_output(out, side->saved, error) : WEFT_OK;
    for (size_t i = 0; i < side->n_runs && status == WEFT_OK; i++)
        status = tool_check_output(out, side->runs[i], error);
    side->model.onnx.out = out;
    return status;
}

const char *report_label(const report_side *side, char text[REPORT_LABEL_BYTES])
{
    const model_args *m = &side->model;
    const char *name = side->saved ? side->saved : tool_model_name(m);
    snprintf(text, REPORT_LABEL_BYTES, "%s", name ? name : side->runs[0]);
    for (size_t i = 1; i < side->n_runs; i++)
        tool_append(text, REPORT_LABEL_BYTES, " %s", side->runs[i]);
    for (size_t i = 0; i < m->n_options; i++)
        tool_append(text, REPORT_LABEL_BYTES, " %s", m->options[i]);
    for (size_t i = 0; i < m->onnx.n_dims; i++) {
        const weft_onnx_dim *d = &m->onnx.dims[i];
        if (d->name)
            tool_append(text, REPORT_LABEL_BYTES, " --dim %s=%lld", d->name, (long long)d->size);
        else
            tool_append(text, REPORT_LABEL_BYTES, " --dim %s:%d=%lld", d->input, d->axis,
                        (long long)d->size);
    }
    if (m->onnx.batch)
        tool_append(text, REPORT_LABEL_BYTES, " --batch %lld", (long long)m->onnx.batch);
    if (side->train) tool_append(text, REPORT_LABEL_BYTES, " --train");
    if (m->plan.fixed_states) tool_append(text, REPORT_LABEL_BYTES, " --fixed");
    if (m->plan.skip) tool_append(text, REPORT_LABEL_BYTES, " --skip %s", m->plan.skip);
    return text;
}

/* ---- Models ---- */

/* Runs the model of an opened trial, and adds its plan with the times. */
static weft_status add_timed(trial *t, const report_options *o, weft_report *report,
                             weft_error *error)
{
    weft_peaks peaks;
    weft_report_plan_options times = {.peaks = &peaks};
    weft_status status = trial_peaks(t, o->threads, &peaks, error);
    if (status == WEFT_OK) status = trial_profile(t, o->runs, 1, &times.seconds, error);
    if (status != WEFT_OK) return status;
    times.profile = weft_profile_of(t->session);
    return weft_report_add_plan(report, t->plan, &times, error);
}

static weft_status add_model(const model_args *model, bool train, bool timed,
                             const report_options *o, weft_report *report, weft_error *error)
{
    trial t = {.plan = NULL};
    weft_status status;
    if (timed) {
        status = trial_open(&t, model, train, o->threads, error);
        if (status == WEFT_OK) status = add_timed(&t, o, report, error);
    } else {
        status = tool_build_args(model, train, &t.m, error);
        if (status == WEFT_OK && !(t.plan = tool_plan(&t.m, error))) status = error->status;
        if (status == WEFT_OK) status = weft_report_add_plan(report, t.plan, NULL, error);
    }
    trial_close(&t);
    return status;
}

/* ---- Runs ---- */

/* Adds what the checkpoint says of the run: its updates. */
static weft_status add_checkpoint(const run_model *m, weft_report *report, weft_error *error)
{
    char text[TEXT_NUMBER_BYTES];
    const char *step = weft_params_meta(m->meta, "step");
    double updates;
    if (!step || !weft__text_to_double(step, &updates) || !isfinite(updates)) return WEFT_OK;
    return weft_report_add_json(report, "run.updates", weft__text_from_double(updates, text),
                                error);
}

static weft_status add_batch(const weft_batch_shape *shape, weft_report *report, weft_error *error)
{
    char text[128];
    if (!shape->rows) return WEFT_OK;
    snprintf(text, sizeof text, "{\"rows\":%lld,\"source_len\":%lld,\"target_len\":%lld}",
             (long long)shape->rows, (long long)shape->source_len, (long long)shape->target_len);
    return weft_report_add_json(report, "batch", text, error);
}

/* The recipe of a run; NULL if it has none, or after an error. */
static cJSON *read_recipe(const char *folder, weft_error *error)
{
    char path[FILE_PATH_BYTES];
    size_t bytes;
    const int n = snprintf(path, sizeof path, "%s/recipe.json", folder);
    if (n < 0 || (size_t)n >= sizeof path || !weft__file_exists(path)) return NULL;
    char *text = weft__file_read(path, &bytes, error);
    json_failure why;
    cJSON *recipe = text ? weft__json_parse(text, bytes, &why) : NULL;
    if (text && !recipe)
        weft_error_set(error, why.no_memory ? WEFT_NO_MEMORY : WEFT_BAD_FILE, path,
                       why.no_memory ? "out of memory" : "is not JSON");
    free(text);
    return recipe;
}

/* Adds the plan of a training step of the run's model, with the largest batch that its recipe
 * allows; without a recipe, with the batch that the model has by default. */
static weft_status add_run_plan(const char *folder, const cJSON *recipe, const report_side *side,
                                const report_options *o, weft_report *report, weft_error *error)
{
    run_model m;
    const bool found = run_model_open(&m, folder, recipe, error);
    const bool fixed = side->model.plan.fixed_states;
    weft_status status = error->status;
    if (found) {
        m.args.plan.fixed_states = fixed;
        m.args.plan.skip = side->model.plan.skip;
        if (fixed) m.args.plan.memory_budget = 0;
        status = add_checkpoint(&m, report, error);
        if (status == WEFT_OK) status = add_batch(&m.shape, report, error);
        if (status == WEFT_OK) status = add_model(&m.args, !fixed, o->runs_timed, o, report, error);
    }
    run_model_close(&m);
    return status;
}

static weft_status add_run(const char *folder, const report_side *side, const report_options *o,
                           weft_report *report, weft_error *error)
{
    weft_status status = report_add_run(report, folder, !side->model.plan.fixed_states, error);
    if (status != WEFT_OK) return status;
    cJSON *recipe = read_recipe(folder, error);
    status = error->status;
    if (status == WEFT_OK) status = report_add_attention(report, folder, recipe, o->threads, error);
    if (status == WEFT_OK) status = add_run_plan(folder, recipe, side, o, report, error);
    cJSON_Delete(recipe);
    return status;
}

weft_status report_add_run(weft_report *report, const char *folder, bool train, weft_error *error)
{
    char command[FILE_PATH_BYTES + 16];
    snprintf(command, sizeof command, "weft report %s", folder);
    const weft_report_subject subject = {
        .name = folder, .command = command, .kind = WEFT_REPORT_RUN, .train = train};
    const weft_status status = weft_report_add_subject(report, &subject, error);
    return status == WEFT_OK ? weft_report_add_run(report, folder, error) : status;
}

/* ---- Sides ---- */

weft_status report_add_side(const report_side *side, const report_options *o, weft_report *report,
                            weft_error *error)
{
    char label[REPORT_LABEL_BYTES], command[REPORT_LABEL_BYTES + 16];
    weft_status status = WEFT_OK;
    if (side->saved) return weft_report_add_saved(report, side->saved, error);
    for (size_t i = 0; i < side->n_runs && status == WEFT_OK; i++)
        status = add_run(side->runs[i], side, o, report, error);
    if (side->n_runs) return status;
    snprintf(command, sizeof command, "weft report %s", report_label(side, label));
    const weft_report_subject subject = {.name = tool_model_name(&side->model),
                                         .command = command,
                                         .kind = side->model.model ? WEFT_REPORT_MODEL
                                                                   : WEFT_REPORT_ONNX,
                                         .train = side->train};
    status = weft_report_add_subject(report, &subject, error);
    return status == WEFT_OK ? add_model(&side->model, side->train, o->timed, o, report, error)
                             : status;
}
