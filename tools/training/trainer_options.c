/* The trainer of a run: its options from the recipe, and its memory. */
#include "training.h"

#include "base/text.h"
#include "system.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A zero in a recipe means zero; a zero in the library's options would mean the default. */
static double exactly(double x)
{
    return x == 0 ? WEFT_ZERO : x;
}

/* What messages call the data. */
static void name_data(const training *t, weft_trainer_options *o)
{
    const recipe *r = &t->r;
    const bool pairs = t->mode == WEFT_BATCH_PAIRS;
    if (r->fits) {
        o->source_name = recipe_files_name(&r->fit_x);
        o->target_name = r->fit_y;
        return;
    }
    o->source_name = pairs ? recipe_files_name(&r->data_source) : NULL;
    o->target_name = recipe_files_name(pairs ? &r->data_target : &r->data_text);
}

uint64_t training_warmup(const recipe *r)
{
    const int64_t steps = r->schedule_steps, warmup = r->schedule_warmup;
    const int64_t most = (int64_t)ceil(WEFT_WARMUP_BUDGET * (double)steps);
    const bool scales = steps && r->schedule_kind != WEFT_SCHEDULE_INVERSE_SQRT;
    return (uint64_t)(scales && warmup > most ? most : warmup);
}

weft_trainer_options training_trainer_options(training *t)
{
    const recipe *r = &t->r;
    weft_trainer_options o = {.builder = t->builder,
                              .optimizer = {.kind = (weft_optimizer_kind)r->optimizer_kind,
                                            .sgd = {.momentum = r->optimizer_momentum,
                                                    .weight_decay = r->optimizer_weight_decay,
                                                    .nesterov = r->optimizer_nesterov,
                                                    .dampening = r->optimizer_dampening},
                                            .adam = {.beta1 = exactly(r->optimizer_beta1),
                                                     .beta2 = exactly(r->optimizer_beta2),
                                                     .eps = exactly(r->optimizer_eps),
                                                     .weight_decay = r->optimizer_weight_decay},
                                            .rms = {.alpha = exactly(r->optimizer_alpha),
                                                    .eps = exactly(r->optimizer_eps),
                                                    .momentum = r->optimizer_momentum,
                                                    .weight_decay = r->optimizer_weight_decay,
                                                    .centered = r->optimizer_centered},
                                            .max_norm = r->optimizer_clip,
                                            .no_decay = r->optimizer_no_decay,
                                            .groups = t->n_groups ? t->groups : NULL,
                                            .n_groups = t->n_groups},
                              .schedule = {(weft_schedule_kind)r->schedule_kind, r->schedule_lr,
                                           r->schedule_floor, training_warmup(r),
                                           (uint64_t)r->schedule_steps},
                              .accumulate = (uint32_t)r->batches_accumulate,
                              .ema = r->optimizer_ema,
                              .base = t->lora.base,
                              .seed = (uint64_t)r->run_seed,
                              .processes = &t->processes,
                              .checkpoint = t->validate ? t->validate : t->model_path,
                              .session.threads = (int)r->run_threads,
                              .precision = (weft_precision)r->run_precision,
                              .keep_f32 = r->run_keep_f32,
                              .retain_gradients = r->run_histograms > 0,
                              .stop = training_interrupted};
    t->processes = weft_trainer_processes_of(tool_world());
    t->processes.zero = (int)r->run_zero;
    t->processes.tensor = (int)r->run_tensor;
    t->processes.stages = (int)r->run_stages;
    name_data(t, &o);
    return o;
}

/* Reads run.memory. */
static bool set_memory(training *t, weft_trainer_options *o)
{
    const char *text = t->r.run_memory;
    if (!text[0] || tool_read_bytes(text, &o->memory_budget)) return true;
    weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "run.memory",
                   "\"%s\" is not a number of bytes, such as 500M or 2G", text);
    return false;
}

/* A process that holds parts of the parameters cannot hash them. */
static bool check_hash(training *t)
{
    const recipe *r = &t->r;
    if (!r->run_hash_every || (r->run_zero < 3 && r->run_tensor == 1 && r->run_stages == 1))
        return true;
    return training_fail(t, WEFT_BAD_ARGUMENT, "run.hash_every",
                         "needs whole parameters on each process: --zero below 3, without --tensor "
                         "and --stages");
}

bool training_make_trainer(training *t)
{
    weft_trainer_options o = training_trainer_options(t);
    if (!check_hash(t) || !set_memory(t, &o)) return false;
    if (o.schedule.peak == 0 && !t->r.fits)
        o.schedule.peak = weft_noam_peak(weft_model_traits_of(&t->config).d_model,
                                         (uint64_t)t->r.schedule_warmup);
    t->trainer = weft_trainer_new(&o, &t->train_source, t->params, &t->error);
    return t->trainer != NULL;
}

bool training_check_memory(training *t, const weft_builder *builder, weft_batch_shape shape,
                           const char *advice)
{
    weft_trainer_estimate *e = &t->estimate;
    weft_trainer_options o = training_trainer_options(t);
    char size[64], available[64] = "", needed[2][TEXT_SIZE_BYTES], left[TEXT_SIZE_BYTES];
    if (o.schedule.peak == 0) o.schedule.peak = 1; /* the paper's; any value does here */
    o.builder = *builder;
    if (!set_memory(t, &o)) return false;
    if (weft_trainer_estimate_of(&o, shape, e, &t->error) != WEFT_OK) return false;
    double states = (double)e->state_bytes, rest = system_memory_available();
    double computing = (double)e->arena_bytes + (double)e->workspace_bytes;
    weft__text_from_bytes(states, needed[0]);
    weft__text_from_bytes(computing, needed[1]);
    if (isfinite(rest))
        snprintf(available, sizeof available, "; %s are free", weft__text_from_bytes(rest, left));
    snprintf(size, sizeof size, shape.target_len ? "%lld x %lld tokens" : "%lld rows",
             (long long)shape.rows, (long long)shape.target_len);
    if (states + computing > rest) {
        weft_error_set(&t->error, WEFT_NO_MEMORY, builder->name,
                       "%.1f million parameters need %s with the optimiser's states, and steps "
                       "of %s %s%s; choose a smaller model, %s",
                       1e-6 * (double)e->parameters, needed[0], size, needed[1], available, advice);
        return false;
    }
    fprintf(stderr,
            "%.2f million parameters; memory: %s for them and the optimiser's states, %s for "
            "steps%s; %.3g GFLOP a step\n",
            1e-6 * (double)e->parameters, needed[0], needed[1], available, 1e-9 * e->flops);
    return true;
}

/* Says how the budget limits the warm-up. */
static void print_warmup(const recipe *r)
{
    const uint64_t warmup = training_warmup(r);
    if (warmup < (uint64_t)r->schedule_warmup)
        printf("the warm-up takes %" PRIu64 " steps instead of %lld, a quarter of the training\n",
               warmup, (long long)r->schedule_warmup);
    else if (warmup && training_is_timed(r) && r->schedule_kind != WEFT_SCHEDULE_INVERSE_SQRT)
        printf("the warm-up takes %" PRIu64 " steps, or a quarter of the time if that is less\n",
               warmup);
}

bool training_print_recipe(training *t)
{
    if (t->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddItemToObject(json, "recipe", recipe_json(&t->r, true));
        return tool_write_json_line(json, stdout, "output", &t->error);
    }
    recipe_print(&t->r, stdout);
    print_warmup(&t->r);
    return fflush(stdout) == 0 || training_fail(t, WEFT_IO, "output", strerror(errno));
}

bool training_open_watch(training *t)
{
    if (!t->watch_args.wanted || !tool_is_first()) return true;
    t->watch = watch_open(&t->watch_args, &t->error);
    return t->watch != NULL;
}

static bool begin_watch(training *t)
{
    if (!t->watch) return true;
    if (!watch_begin(t->watch, t->r.run_out, &t->error)) return false;
    FILE *out = t->json ? stderr : stdout;
    fprintf(out, "this run is shown at %s\n", watch_url(t->watch));
    fflush(out);
    return true;
}

bool training_open_run(training *t, bool ready)
{
    ready = ready && training_find_kept(t) && training_write_recipe(t) &&
            training_open_metrics(t, weft_trainer_progress_of(t->trainer).updates) &&
            begin_watch(t);
    return training_agree(t, ready);
}
