/* The stack of the program. weft's own library needs 64 KiB, but commands and the libraries that
 * they use need more. Under a smaller limit (ulimit -s) everything runs on a thread whose stack is
 * large enough. */
#include "tool.h"

#include <pthread.h>
#include <sys/resource.h>

#define ENOUGH ((size_t)1 << 20) /* bytes: a limit with which all commands work */
#define STACK  ((size_t)8 << 20) /* the usual limit */

typedef struct program {
    int (*run)(int argc, char **argv);
    int argc, status;
    char **argv;
} program;

static void *run_program(void *data)
{
    program *p = data;
    p->status = p->run(p->argc, p->argv);
    return NULL;
}

int tool_with_stack(int (*run)(int argc, char **argv), int argc, char **argv)
{
    program p = {.run = run, .argc = argc, .argv = argv};
    struct rlimit limit;
    pthread_attr_t attr;
    pthread_t thread;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= ENOUGH ||
        pthread_attr_init(&attr) != 0)
        return run(argc, argv);
    /* Threads that libraries create get as much. */
    bool made = pthread_attr_setstacksize(&attr, STACK) == 0 &&
                pthread_setattr_default_np(&attr) == 0 &&
                pthread_create(&thread, &attr, run_program, &p) == 0;
    pthread_attr_destroy(&attr);
    if (!made) return run(argc, argv);
    pthread_join(thread, NULL);
    return p.status;
}
