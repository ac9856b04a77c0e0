/* What several suites do: threads with small stacks, models of the list, the trainer on batches of
 * tokens. */
#include "tests.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WEFT_COVERAGE
void __gcov_dump(void);
#endif

void test_exit(int status)
{
#ifdef WEFT_COVERAGE
    __gcov_dump();
#endif
    _exit(status);
}

typedef struct small_thread {
    void (*run)(void *data);
    void *data;
} small_thread;

static void *run_small(void *data)
{
    const small_thread *t = data;
    t->run(t->data);
    return NULL;
}

bool test_with_stack(size_t bytes, void (*run)(void *data), void *data)
{
    small_thread t = {run, data};
    pthread_attr_t attr;
    pthread_t thread;
    if (TEST_SANITIZED) bytes *= 8;
#ifdef _SC_THREAD_STACK_MIN
    const long least = sysconf(_SC_THREAD_STACK_MIN); /* 128 KiB on AArch64 */
    if (least > 0 && bytes < (size_t)least) bytes = (size_t)least;
#endif
    if (pthread_attr_init(&attr) != 0) return false;
    bool good = pthread_attr_setstacksize(&attr, bytes) == 0 &&
                pthread_create(&thread, &attr, run_small, &t) == 0;
    pthread_attr_destroy(&attr);
    if (good) pthread_join(thread, NULL);
    return good;
}

void test_build_model(weft_graph *graph, const char *text, bool training, weft_built *built)
{
    char copy[512], *rest = NULL;
    const char *options[WEFT_MODEL_OPTIONS];
    size_t n = 0;
    weft_error error = {0};
    CU_ASSERT_TRUE_FATAL(strlen(text) < sizeof copy);
    memcpy(copy, text, strlen(text) + 1);
    const weft_model *model = weft_model_find(strtok_r(copy, " ", &rest));
    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    for (char *o; (o = strtok_r(NULL, " ", &rest));) {
        CU_ASSERT_TRUE_FATAL(n < WEFT_MODEL_OPTIONS);
        options[n++] = o;
    }
    weft_status status = weft_model_build_text(graph, model, options, n, training, built, &error);
    if (status != WEFT_OK) printf("\n    %s: %s: %s\n", text, error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
}

weft_builder test_builder(const char *model, const char *const *texts, size_t n)
{
    static weft_model_config configs[16];
    static size_t next;
    weft_model_config *config = &configs[next++ % 16];
    weft_error error = {0};
    weft_status status = weft_model_parse(weft_model_find(model), texts, n, config, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    return weft_model_builder(config);
}

weft_trainer *test_new_trainer(const weft_trainer_options *options, weft_batches *batches,
                               weft_params *params, weft_error *error)
{
    const weft_batch_source source = weft_batches_source(batches);
    return weft_trainer_new(options, &source, params, error);
}

weft_status test_evaluate(weft_trainer *trainer, weft_batches *batches, size_t limit, double *nll,
                          size_t *tokens)
{
    const weft_batch_source source = weft_batches_source(batches);
    return weft_trainer_evaluate(trainer, &source, limit, nll, tokens, NULL);
}

size_t test_count_nodes(const weft_plan *plan, const char *op)
{
    size_t n = 0;
    const weft_graph *g = weft_plan_graph(plan);
    for (size_t i = 0; i < weft_graph_node_count(g); i++)
        n += !strcmp(weft_graph_node(g, i).op->name, op);
    return n;
}

static void add_line(void *context, weft_log_level level, const char *where, const char *text)
{
    test_log *log = context;
    const size_t at = strlen(log->text);
    snprintf(log->text + at, sizeof log->text - at, "%s: %s: %s\n",
             level == WEFT_LOG_WARNING ? "warning" : "info", where, text);
    log->n++;
}

void test_log_to(test_log *log)
{
    if (log) *log = (test_log){.n = 0};
    weft_log_set(log ? add_line : NULL, log);
}

bool test_skips_pass(const char *name)
{
    const char *skip = getenv("WEFT_SKIP");
    return skip && (strstr(skip, name) || strstr(skip, "all"));
}

size_t test_params(const weft_graph *graph, weft_value *params, size_t capacity)
{
    size_t n;
    const weft_value *list = weft_graph_params(graph, &n);
    CU_ASSERT_TRUE_FATAL(n <= capacity);
    if (n) memcpy(params, list, n * sizeof *params);
    return n;
}

size_t test_count_params(const weft_graph *graph)
{
    size_t n;
    weft_graph_params(graph, &n);
    return n;
}

size_t test_count_states(const weft_graph *graph)
{
    size_t n;
    weft_graph_states(graph, &n);
    return n;
}

size_t test_count_tracked(const weft_graph *graph)
{
    size_t n;
    weft_graph_tracked(graph, &n);
    return n;
}

void test_numbers_of(weft_graph *g, weft_value value, weft_params *store, double *out, size_t n)
{
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, &value, 1, NULL, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 5, &error) == WEFT_OK)
        s = weft_session_new(plan, store, NULL, &error);
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_session_fetch(s, value, out, n * sizeof *out, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
}
