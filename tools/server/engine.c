/* The engine: one thread that owns the batcher or the embedder. It takes jobs, steps, and publishes
 * what each step has found; nobody else calls the model. */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EMBEDDED 64 /* texts between two looks whether they are still wanted */

/* ---- Waiting ---- */

static void wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, long ms)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    pthread_cond_timedwait(condition, lock, &at);
}

void engine_wait(server *s, job *j)
{
    wait_until(&j->changed, &s->lock, 100);
}

bool engine_submit(server *s, job *j)
{
    const size_t most = (size_t)(s->a->slots + s->a->queue);
    const size_t n = j->kind == JOB_EMBEDDING ? 1 : j->n_choices;
    pthread_mutex_lock(&s->lock);
    if (s->stopping) {
        answer_fail(&j->error, 503, NULL, "the server is stopping");
    } else if (s->pending + n > most) {
        answer_fail(&j->error, 429, NULL,
                    "the server has %zu answers to give, and takes at most %zu; try again later",
                    s->pending, most);
        j->error.code = "queue_full";
    } else {
        s->pending += n;
        *s->last = j;
        s->last = &j->next;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return !j->error.status;
}

void engine_cancel(server *s, job *j)
{
    pthread_mutex_lock(&s->lock);
    j->cancelled = true;
    pthread_cond_signal(&s->work);
    while (!j->released) engine_wait(s, j);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Tokens ---- */

static double log_prob_of(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[i]
                                : (double)((const float *)t->data)[i];
}

/* The most likely tokens, by falling log probability; of equals the lower id is first. */
static void find_top(const weft_tensor *all, size_t n, token_score *score)
{
    size_t count = 0;
    for (int64_t id = 0; n && id < all->shape.dim[0]; id++) {
        const double x = log_prob_of(all, id);
        if (count == n && !(x > score->top_log_probs[n - 1])) continue;
        size_t at = count < n ? count++ : n - 1;
        for (; at > 0 && x > score->top_log_probs[at - 1]; at--) {
            score->top[at] = score->top[at - 1];
            score->top_log_probs[at] = score->top_log_probs[at - 1];
        }
        score->top[at] = (int32_t)id;
        score->top_log_probs[at] = x;
    }
    for (; count < SERVER_TOP; count++) score->top[count] = -1;
}

/* Adds a token to the text of an answer. */
static bool add_token(job_choice *c, const weft_batcher_event *event, weft_error *error)
{
    job *j = c->job;
    if (growing_add(&c->growing, event->token, error) != WEFT_OK) return false;
    if (c->scores) {
        token_score *score = &c->scores[c->n_tokens];
        *score = (token_score){
            .token = event->token, .log_prob = event->log_prob, .end = c->growing.length};
        find_top(event->log_probs, (size_t)j->top, score);
    }
    c->n_tokens++;
    j->server->counts.new_tokens++;
    return true;
}

/* With the lock. */
static void end_choice(job_choice *c, const char *finish)
{
    if (c->over) return;
    c->over = true;
    c->finish = finish;
    c->job->n_over++;
    c->job->server->pending--;
}

/* With the lock. */
static void fail_job(job *j, unsigned status, const char *message)
{
    answer_fail(&j->error, status, NULL, "%s", message);
}

/* By the status of a function of weft; takes the lock. */
static void fail_by(job *j, const weft_error *error)
{
    pthread_mutex_lock(&j->server->lock);
    fail_job(j, error->status == WEFT_NO_MEMORY ? 500 : 400, error->message);
    pthread_mutex_unlock(&j->server->lock);
}

/* With the lock. A constraint that takes too many steps is the client's. */
static void fail_choice(job_choice *c, weft_status status, const char *message)
{
    fail_job(c->job, c->ruled && status == WEFT_TOO_LARGE ? 400 : 500, message);
}

/* Takes a token of the batcher. */
static bool take(void *context, const weft_batcher_event *event)
{
    static const char *const finishes[] = {[WEFT_BATCHER_ENDED] = "stop",
                                           [WEFT_BATCHER_LENGTH] = "length",
                                           [WEFT_BATCHER_NO_TOKEN] = "stop",
                                           [WEFT_BATCHER_FAILED] = "stop"};
    job_choice *c = context;
    server *s = c->job->server;
    weft_error error = WEFT_NO_ERROR;
    const char *finish = finishes[event->end];
    pthread_mutex_lock(&s->lock);
    bool good = event->end != WEFT_BATCHER_FAILED;
    if (!good) fail_choice(c, event->status, event->message);
    if (good && event->token >= 0 && event->end != WEFT_BATCHER_ENDED)
        good = add_token(c, event, &error);
    if (good && finish && !c->growing.stopped)
        good = growing_finish(&c->growing, &error) == WEFT_OK;
    if (error.status != WEFT_OK) fail_job(c->job, 500, error.message);
    if (good && event->end == WEFT_BATCHER_NO_TOKEN && !c->growing.stopped &&
        format_check(c, &error) != WEFT_OK) {
        good = false;
        fail_choice(c, error.status, error.message);
    }
    if (c->growing.stopped) finish = "stop";
    if (finish || !good) {
        c->id = 0;
        end_choice(c, finish);
    }
    const bool goes_on = !c->over;
    pthread_cond_signal(&c->job->changed);
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

/* ---- Jobs ---- */

typedef struct engine {
    server *s;
    job *active, **last;
} engine;

/* Begins the answers of a job. */
static void begin(server *s, job *j)
{
    weft_error error = WEFT_NO_ERROR;
    for (size_t i = 0; i < j->n_choices && error.status == WEFT_OK; i++) {
        job_choice *c = &j->choices[i];
        const encoded_text *p = &j->prompts[c->prompt];
        weft_sampling_options options = j->options;
        options.allows_context = c->ruled;
        const weft_batcher_request request = {.prefix = p->ids,
                                              .prefix_len = p->n,
                                              .max_len = j->max_tokens,
                                              .key = i / j->n,
                                              .sample = (int64_t)(i % j->n),
                                              .options = &options,
                                              .take = take,
                                              .context = c};
        if (weft_batcher_add(s->batcher, &request, &c->id, &error) != WEFT_OK) fail_by(j, &error);
    }
}

/* Whether a job that embeds many texts is to end early. */
static bool is_wanted(server *s, job *j)
{
    pthread_mutex_lock(&s->lock);
    if (s->quit) fail_job(j, 503, "the server is stopping");
    if (tool_seconds() > j->deadline)
        answer_fail(&j->error, 504, NULL, "the answer took more than %g s", s->a->timeout);
    const bool wanted = !j->cancelled && !j->error.status;
    pthread_mutex_unlock(&s->lock);
    return wanted;
}

static void embed(server *s, job *j)
{
    weft_error error = WEFT_NO_ERROR;
    weft_embedder_row *rows = calloc(j->n_prompts + 1, sizeof *rows);
    const size_t width = (size_t)weft_embedder_width(s->embedder);
    for (size_t i = 0; rows && i < j->n_prompts; i++)
        rows[i] = (weft_embedder_row){j->prompts[i].ids, j->prompts[i].n, j->vectors + i * width};
    if (!rows) weft_error_set(&error, WEFT_NO_MEMORY, "embed", "out of memory");
    for (size_t i = 0; rows && i < j->n_prompts && error.status == WEFT_OK; i += EMBEDDED) {
        const size_t n = j->n_prompts - i < EMBEDDED ? j->n_prompts - i : EMBEDDED;
        if (!is_wanted(s, j)) break;
        weft_embedder_run(s->embedder, rows + i, n, &error);
    }
    if (error.status != WEFT_OK) fail_by(j, &error);
    free(rows);
}

/* Ends the unfinished answers of a job, and lets go of it. */
static void release(server *s, job *j)
{
    for (size_t i = 0; i < j->n_choices; i++) {
        if (j->choices[i].id) weft_batcher_cancel(s->batcher, j->choices[i].id, NULL);
        j->choices[i].id = 0;
    }
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < j->n_choices; i++) end_choice(&j->choices[i], NULL);
    if (j->kind == JOB_EMBEDDING) s->pending--;
    j->released = true;
    pthread_cond_signal(&j->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Moves new jobs to the list, and waits for some if there are none. False: to end. */
static bool take_jobs(engine *e)
{
    server *s = e->s;
    pthread_mutex_lock(&s->lock);
    while (!s->submitted && !e->active && !s->quit) wait_until(&s->work, &s->lock, 1000);
    *e->last = s->submitted;
    s->submitted = NULL;
    s->last = &s->submitted;
    const bool quit = s->quit;
    pthread_mutex_unlock(&s->lock);
    job *first = *e->last;
    for (job *j = first; j; j = j->next) {
        e->last = &j->next;
        if (j->kind == JOB_EMBEDDING)
            embed(s, j);
        else
            begin(s, j);
    }
    return !quit;
}

/* Whether a job is to be released. */
static bool is_over(server *s, job *j, double now)
{
    pthread_mutex_lock(&s->lock);
    if (j->kind != JOB_EMBEDDING && j->n_over < j->n_choices && now > j->deadline)
        answer_fail(&j->error, 504, NULL, "the answer took more than %g s", s->a->timeout);
    const bool over = j->cancelled || j->error.status || j->n_over == j->n_choices;
    pthread_mutex_unlock(&s->lock);
    return over;
}

static void release_over(engine *e, bool all)
{
    const double now = tool_seconds();
    e->last = &e->active;
    for (job **at = &e->active; *at;) {
        job *j = *at;
        if (all) {
            pthread_mutex_lock(&e->s->lock);
            if (j->n_over < j->n_choices) fail_job(j, 503, "the server is stopping");
            pthread_mutex_unlock(&e->s->lock);
        }
        if (is_over(e->s, j, now)) {
            *at = j->next; /* before its thread frees it */
            release(e->s, j);
        } else {
            at = &j->next;
            e->last = at;
        }
    }
}

static void fail_all(engine *e, const weft_error *error)
{
    pthread_mutex_lock(&e->s->lock);
    for (job *j = e->active; j; j = j->next) fail_job(j, 500, error->message);
    pthread_mutex_unlock(&e->s->lock);
}

static void *run(void *context)
{
    engine e = {.s = context};
    server *s = context;
    e.last = &e.active;
    while (take_jobs(&e)) {
        weft_error error = WEFT_NO_ERROR;
        release_over(&e, false);
        if (!s->batcher) continue;
        if (weft_batcher_step(s->batcher, &error) != WEFT_OK) fail_all(&e, &error);
        release_over(&e, false);
        const weft_batcher_info info = weft_batcher_info_of(s->batcher);
        pthread_mutex_lock(&s->lock);
        s->info = info;
        pthread_mutex_unlock(&s->lock);
    }
    release_over(&e, true);
    return NULL;
}

bool engine_start(server *s, weft_error *error)
{
    s->last = &s->submitted;
    if (pthread_create(&s->engine, NULL, run, s) == 0) return true;
    weft_error_set(error, WEFT_NO_MEMORY, "serve", "cannot start a thread");
    return false;
}

void engine_join(server *s)
{
    pthread_join(s->engine, NULL);
}
