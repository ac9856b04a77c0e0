/* Subjects of a report. See subject.h. */
#include "subject.h"
#include "run_model.h"

#include "base/text.h"

#include <string.h>
#include <sys/stat.h>

/* ---- The command line ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

void report_take_arg(report_side *side, char *text, struct argp_state *state)
{
    const bool first = !report_has_subject(side);
    if (side->saved) tool_usage_error(state, "%s takes no option \"%s\"", side->saved, text);
    if (first && tool_ends_with(text, ".json")) {
        side->saved = text;
    } else if (side->n_runs || (first && !weft_model_find(text) && is_folder(text))) {
        if (!is_folder(text)) tool_usage_error(state, "\"%s\" is not the folder of a run", text);
        if (side->n_runs == REPORT_MAX_RUNS) argp_error(state, "%d runs at most", REPORT_MAX_RUNS);
        side->runs[side->n_runs++] = text;
    } else {
        tool_take_model_arg(&side->model, text, state);
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

/* Adds the plan of an opened trial, and its times if it has a session. */
static weft_status add_trial(trial *t, const report_options *o, cJSON *subject, weft_error *error)
{
    report_plan p;
    weft_status status = report_plan_open(&p, t->plan, error);
    if (status == WEFT_OK && t->session)
        status = report_measure(&p, t, o->runs, o->threads, subject, error);
    if (status == WEFT_OK) status = report_add_plan(&p, subject, error);
    report_plan_close(&p);
    return status;
}

static weft_status add_model(const model_args *model, bool train, bool timed,
                             const report_options *o, cJSON *subject, weft_error *error)
{
    trial t = {.plan = NULL};
    weft_status status;
    if (timed) {
        status = trial_open(&t, model, train, o->threads, error);
    } else {
        status = tool_build_args(model, train, &t.m, error);
        if (status == WEFT_OK && !(t.plan = tool_plan(&t.m, error))) status = error->status;
    }
    if (status == WEFT_OK) status = add_trial(&t, o, subject, error);
    trial_close(&t);
    return status;
}

/* ---- Runs ---- */

/* Adds what the checkpoint says of the run: its step. */
static void add_checkpoint(const run_model *m, cJSON *run)
{
    const char *step = weft_params_meta(m->meta, "step");
    double at;
    if (step && weft__text_to_double(step, &at)) cJSON_AddNumberToObject(run, "step", at);
}

static void add_batch(const weft_batch_shape *shape, cJSON *subject)
{
    if (!shape->rows) return;
    cJSON *batch = cJSON_AddObjectToObject(subject, "batch");
    cJSON_AddNumberToObject(batch, "rows", (double)shape->rows);
    cJSON_AddNumberToObject(batch, "source_len", (double)shape->source_len);
    cJSON_AddNumberToObject(batch, "target_len", (double)shape->target_len);
}

/* Adds the plan of a training step of the run's model, with the largest batch that its recipe
 * allows; without a recipe, with the batch that the model has by default. */
static weft_status add_run_plan(const char *folder, const report_side *side,
                                const report_options *o, cJSON *subject, weft_error *error)
{
    run_model m;
    cJSON *run = cJSON_GetObjectItemCaseSensitive(subject, "run");
    const bool found =
        run_model_open(&m, folder, cJSON_GetObjectItemCaseSensitive(run, "recipe"), error);
    const bool fixed = side->model.plan.fixed_states;
    weft_status status = error->status;
    if (found) {
        m.args.plan.fixed_states = fixed;
        m.args.plan.skip = side->model.plan.skip;
        if (fixed) m.args.plan.memory_budget = 0;
        add_checkpoint(&m, run);
        add_batch(&m.shape, subject);
        status = add_model(&m.args, !fixed, o->runs_timed, o, subject, error);
    }
    run_model_close(&m);
    return status;
}

static weft_status add_run(const char *folder, const report_side *side, const report_options *o,
                           cJSON *document, weft_error *error)
{
    char command[4096];
    snprintf(command, sizeof command, "weft report %s", folder);
    cJSON *subject = report_add_subject(document, folder, "run", command);
    cJSON_AddBoolToObject(subject, "train", !side->model.plan.fixed_states);
    weft_status status = report_add_run(folder, subject, error);
    if (status == WEFT_OK)
        status = report_add_attention(folder, o->threads,
                                      cJSON_GetObjectItemCaseSensitive(subject, "run"), error);
    if (status == WEFT_OK) status = add_run_plan(folder, side, o, subject, error);
    return status;
}

/* ---- Sides ---- */

/* Moves the only subject of a saved document to this one, with the machine that it is of. */
static weft_status add_saved(const char *path, cJSON *document, weft_error *error)
{
    cJSON *saved = report_load(path, error);
    if (!saved) return error->status;
    cJSON *from = cJSON_GetObjectItemCaseSensitive(saved, "subjects");
    if (cJSON_GetArraySize(from) == 1) {
        cJSON *subject = cJSON_DetachItemFromArray(from, 0);
        cJSON *machine = cJSON_DetachItemFromObjectCaseSensitive(saved, "machine");
        if (machine) cJSON_AddItemToObject(subject, "machine", machine);
        cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(document, "subjects"), subject);
    } else {
        weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                       "has %d subjects: a comparison needs a document of one",
                       cJSON_GetArraySize(from));
    }
    cJSON_Delete(saved);
    return error->status;
}

weft_status report_add_side(const report_side *side, const report_options *o, cJSON *document,
                            weft_error *error)
{
    char label[REPORT_LABEL_BYTES], command[REPORT_LABEL_BYTES + 16];
    weft_status status = WEFT_OK;
    if (side->saved) return add_saved(side->saved, document, error);
    for (size_t i = 0; i < side->n_runs && status == WEFT_OK; i++)
        status = add_run(side->runs[i], side, o, document, error);
    if (side->n_runs) return status;
    snprintf(command, sizeof command, "weft report %s", report_label(side, label));
    cJSON *subject = report_add_subject(document, tool_model_name(&side->model),
                                        side->model.model ? "model" : "onnx", command);
    cJSON_AddBoolToObject(subject, "train", side->train);
    return add_model(&side->model, side->train, o->timed, o, subject, error);
}
