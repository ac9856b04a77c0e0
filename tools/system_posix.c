/* Streams, terminals, signals and other programs on POSIX systems: see system.h. */
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* glibc declares it, POSIX does not. NOLINTNEXTLINE(readability-redundant-declaration) */
extern char **environ;

/* ---- The stack ---- */

#define ENOUGH ((size_t)1 << 20) /* bytes: a limit with which all commands work */
#define STACK  ((size_t)8 << 20) /* the usual limit */

typedef struct running {
    int (*run)(int argc, char **argv);
    int argc, status;
    char **argv;
} running;

static void *run_program(void *data)
{
    running *p = data;
    p->status = p->run(p->argc, p->argv);
    return NULL;
}

/* weft's own library needs 64 KiB of stack, but commands and the libraries that they use need more.
 * Under a smaller limit (ulimit -s) everything runs on a thread whose stack is large enough. */
int system_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
    running p = {.run = run, .argc = argc, .argv = argv};
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

/* ---- The process ---- */

/* Standard input is opened for writing and the others for reading. */
bool system_open_streams(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[i]) != i)
            return false;
    return true;
}

static const struct sigaction ignore = {.sa_handler = SIG_IGN};

void system_limit_files(void)
{
    sigaction(SIGXFSZ, &ignore, NULL);
}

void system_take_signals(void (*take)(int number), bool launched)
{
    const struct sigaction once = {.sa_handler = take, .sa_flags = SA_RESETHAND | SA_RESTART};
    struct sigaction hangup;
    sigaction(SIGINT, &once, NULL);
    sigaction(SIGTERM, &once, NULL);
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &once, NULL); /* nohup ignores it */
    /* mpirun passes it on to all ranks, and nothing else in time. */
    if (launched) sigaction(SIGUSR1, &once, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

void system_take_interrupt(void (*take)(int number))
{
    const struct sigaction action = {.sa_handler = take ? take : SIG_DFL, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
}

/* ---- Streams ---- */

bool system_is_terminal(FILE *file)
{
    return isatty(fileno(file)) == 1;
}

int system_columns(FILE *file)
{
    struct winsize size;
    return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int system_unnamed_file(void)
{
    FILE *file = tmpfile();
    if (!file) return -1;
    const int descriptor = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
    const int problem = errno;
    fclose(file);
    errno = problem;
    return descriptor;
}

int system_open_input(const char *path)
{
    return strcmp(path, "-") != 0 ? open(path, O_RDONLY | O_CLOEXEC)
                                  : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
}

FILE *system_open_source(const stream_source *source)
{
    const cookie_io_functions_t functions = {.read = source->read, .close = source->close};
    FILE *stream = fopencookie(source->context, "r", functions);
    if (!stream) source->close(source->context);
    return stream;
}

bool text_stream_open(text_stream *s)
{
    *s = (text_stream){0};
    s->file = open_memstream(&s->text, &s->bytes);
    return s->file != NULL;
}

bool text_stream_close(text_stream *s)
{
    return fclose(s->file) == 0 && s->text; /* glibc may lose the text when memory is out */
}

/* ---- Other programs ---- */

/* Starts a program with these descriptors; returns an error number. */
static int spawn(pid_t *pid, const char *program, int in, int out)
{
    char *argv[] = {(char *)(uintptr_t)program, NULL};
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed) return failed;
    failed = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!failed)
        failed =
            posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!failed) failed = posix_spawnp(pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

int system_start(system_child *child, const char *program)
{
    int in[2], out[2];
    pid_t pid;
    if (pipe2(in, O_CLOEXEC) != 0) return errno;
    if (pipe2(out, O_CLOEXEC) != 0) {
        const int why = errno;
        close(in[0]);
        close(in[1]);
        return why;
    }
    const int failed = spawn(&pid, program, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    if (failed) {
        close(in[1]);
        close(out[0]);
        return failed;
    }
    *child = (system_child){in[1], out[0], pid};
    return 0;
}

/* If the program ends early, the write fails instead of ending this program. */
bool system_send(system_child *child, void (*write)(void *context, FILE *to), void *context)
{
    struct sigaction before;
    sigaction(SIGPIPE, &ignore, &before);
    FILE *to = fdopen(child->to, "w");
    bool sent = false;
    if (to) {
        write(context, to);
        sent = fclose(to) == 0;
    } else {
        close(child->to);
    }
    sigaction(SIGPIPE, &before, NULL);
    return sent;
}

ptrdiff_t system_receive(const system_child *child, char *buffer, size_t bytes)
{
    ptrdiff_t n;
    do n = read(child->from, buffer, bytes);
    while (n < 0 && errno == EINTR);
    return n;
}

int system_wait(system_child *child)
{
    int status = 0;
    close(child->from);
    while (waitpid((pid_t)child->process, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}
