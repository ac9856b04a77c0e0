/* Runs a small plan on THREADS threads, and prints how many it had and a hash of the results: for
 * threads_test.sh, which runs it in hostile environments. Usage: thread_run THREADS [HOW]
 *
 *   here      in this process (the default)
 *   child     in a child of this process, which has one thread
 *   late      in a child of this process, after a parallel region of its own
 *   nested    on two threads of a parallel region of its own, which may open regions */
#include <weft/session.h>
#include <weft/weft.h>

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS    700
#define COLUMNS 300
#define RUNS    3
#define SECONDS 20 /* after which a child hangs */

typedef struct outcome {
    int threads;
    unsigned long long hash;
    weft_error error;
} outcome;

static float results[2][ROWS * COLUMNS];

static outcome run(int threads, float *y_data)
{
    outcome out = {.hash = 14695981039346656037u};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_param(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, 200), WEFT_INIT_XAVIER);
    weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(200, COLUMNS), WEFT_INIT_XAVIER);
    weft_value y = weft_softmax(g, weft_matmul(g, weft_gelu(g, x), w), -1);
    weft_params *store = weft_params_new();
    weft_session *s = NULL;
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &out.error);
    if (plan && weft_params_init(store, g, 1, &out.error) == WEFT_OK)
        s = weft_session_new(plan, store, &(weft_session_options){.threads = threads}, &out.error);
    if (s) weft_session_profile(s, true, NULL, NULL);
    for (int i = 0; s && i < RUNS && out.error.status == WEFT_OK; i++)
        weft_session_run(s, &out.error);
    if (s && out.error.status == WEFT_OK) {
        weft_session_fetch(s, y, y_data, sizeof results[0], NULL);
        for (size_t i = 0; i < sizeof results[0]; i++)
            out.hash = (out.hash ^ ((unsigned char *)y_data)[i]) * 1099511628211u;
        out.threads = weft_profile_totals_of(weft_profile_of(s)).threads;
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return out;
}

static int print(const outcome *o)
{
    if (o->error.status == WEFT_OK)
        printf("%llx on %d threads\n", o->hash, o->threads);
    else
        printf("%s: %s: %s\n", weft_status_text(o->error.status), o->error.where, o->error.message);
    fflush(stdout);
    return o->error.status != WEFT_OK;
}

static int run_in_child(int threads)
{
    pid_t child = fork();
    if (!child) {
        alarm(SECONDS);
        outcome o = run(threads, results[0]);
        _exit(print(&o));
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (WIFSIGNALED(status)) printf("the child was ended by signal %d\n", WTERMSIG(status));
    return status != 0;
}

static int run_nested(int threads)
{
    outcome o[2];
#pragma omp parallel num_threads(2)
    {
        int me = omp_get_thread_num();
        o[me] = run(threads, results[me]);
        if (omp_get_num_threads() == 1) o[1] = o[0];
    }
    return print(&o[0]) | print(&o[1]);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    const char *how = argc > 2 ? argv[2] : "here";
    if (!strcmp(how, "child")) return run_in_child(threads);
    if (!strcmp(how, "late")) {
        int team = 0;
#pragma omp parallel num_threads(2)
#pragma omp atomic
        team++;
        return team ? run_in_child(threads) : 1;
    }
    if (!strcmp(how, "nested")) return run_nested(threads);
    outcome o = run(threads, results[0]);
    return print(&o);
}
