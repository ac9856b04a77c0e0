/* Linked into a copy of the program: makes one allocation of the whole process fail, whoever asks
 * for it. Where the environment has WEFT_FAIL_ALLOCATION, the process forks before main, once for
 * each allocation of the command, and the n-th child runs the command with its n-th allocation
 * failing. A fork saves the start of a program, which takes longer than most commands. One child
 * a processor runs at a time, each with files of its own for what it prints. The parent prints how
 * many allocations there are, and a line about each:
 *
 *     survived             the command succeeds, and prints what it should
 *     reported             its status is 1, and it prints "weft: ... memory ...", one line
 *     allocation N: ...    anything else
 *
 * Its status is 1 if the command fails with all its memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_CHILDREN = 64, MAX_SECONDS = 60 };

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long uncounted;
static atomic_long *allocations = &uncounted;
static long fails; /* 0: none */

/* ---- Files of children ---- */

/* Of the n-th child; text that differs from run to run is left out. Files are mapped, so that the
 * parent leaves the heap of the next child as it is. */
struct text {
    char *data;
    size_t bytes;
};

static void name_file(char name[32], const char *stream, long n)
{
    snprintf(name, 32, "%s.%ld", stream, n);
}

/* Removes `"seconds": ...,` from a text. */
static void remove_times(struct text *t)
{
    static const char key[] = "\"seconds\":";
    char *at = t->data, *end = t->data + t->bytes;
    while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
        char *comma = memchr(at, ',', (size_t)(end - at));
        if (!comma) break;
        memmove(at, comma + 1, (size_t)(end - comma - 1));
        end -= comma + 1 - at;
    }
    t->bytes = (size_t)(end - t->data);
}

static struct text map_output(long n)
{
    char name[32];
    struct stat about = {0};
    name_file(name, "out", n);
    int file = open(name, O_RDONLY);
    struct text t = {.data = NULL};
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        t.data = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        t.bytes = (size_t)about.st_size;
    }
    if (file >= 0) close(file);
    if (t.data == MAP_FAILED) _exit(9);
    if (t.data) remove_times(&t);
    return t;
}

/* Whether the n-th child printed what the first one did. */
static int same_output(long n, struct text wanted)
{
    struct text got = map_output(n);
    int same =
        got.bytes == wanted.bytes && (!got.bytes || !memcmp(got.data, wanted.data, got.bytes));
    if (got.data) munmap(got.data, got.bytes);
    return same;
}

/* The beginning of what the n-th child printed on standard error. */
static void read_errors(long n, char *text, size_t capacity)
{
    char name[32];
    name_file(name, "err", n);
    int file = open(name, O_RDONLY);
    ssize_t bytes = file >= 0 ? read(file, text, capacity - 1) : 0;
    if (file >= 0) close(file);
    text[bytes > 0 ? bytes : 0] = '\0';
}

static int is_one_line_on_memory(const char *text)
{
    const char *end = strchr(text, '\n');
    return !strncmp(text, "weft: ", 6) && end && !end[1] && strcasestr(text, "memory");
}

/* ---- Children ---- */

static void redirect(int stream, const char *name, int flags)
{
    int file = open(name, flags, 0666);
    if (file < 0 || dup2(file, stream) < 0) _exit(9);
    close(file);
}

/* Starts the child whose n-th allocation fails: 0 in the child, which goes on to main. */
static pid_t start(long n)
{
    char out[32], err[32];
    name_file(out, "out", n);
    name_file(err, "err", n);
    pid_t child = fork();
    if (child < 0) _exit(9);
    if (child > 0) return child;
    redirect(0, "/proc/self/fd/0", O_RDONLY); /* from its beginning */
    redirect(1, out, O_WRONLY | O_CREAT | O_TRUNC);
    redirect(2, err, O_WRONLY | O_CREAT | O_TRUNC);
    alarm(MAX_SECONDS); /* a child that hangs ends with a signal */
    fails = n;
    return 0;
}

static int status_of(int ended)
{
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
}

static void report(long n, int status, struct text wanted)
{
    char errors[4096], name[32];
    read_errors(n, errors, sizeof errors);
    if (status == 0 && same_output(n, wanted)) {
        dprintf(1, "survived\n");
    } else if (status == 1 && is_one_line_on_memory(errors)) {
        dprintf(1, "reported\n");
    } else {
        for (char *c = errors; *c; c++)
            if (*c == '\n') *c = ' ';
        dprintf(1, "allocation %ld: status %d: %.200s\n", n, status, errors);
    }
    name_file(name, "out", n), unlink(name);
    name_file(name, "err", n), unlink(name);
}

/* Waits for a child, reports on it, and returns its index. */
static int finish(pid_t *children, const long *numbers, int n, struct text wanted)
{
    int ended, i = 0;
    pid_t child = wait(&ended);
    while (i < n && children[i] != child) i++;
    if (i == n) _exit(9);
    report(numbers[i], status_of(ended), wanted);
    children[i] = 0;
    return i;
}

/* Runs the command without a failure, and sets `all` to its allocations; 0 in the child. */
static pid_t count(long *all)
{
    allocations =
        mmap(NULL, sizeof *allocations, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (allocations == MAP_FAILED) _exit(9);
    pid_t child = start(0);
    if (child == 0) return 0;
    int ended;
    char errors[4096];
    waitpid(child, &ended, 0);
    *all = atomic_load(allocations);
    allocations = &uncounted;
    if (ended == 0) return child;
    read_errors(0, errors, sizeof errors);
    dprintf(1, "%s\nstatus %d\n", errors, status_of(ended));
    _exit(1);
}

/* After the constructors of libraries: C++ ends the process if an allocation of those fails. */
__attribute__((constructor)) static void begin(void)
{
    pid_t children[MAX_CHILDREN] = {0};
    long numbers[MAX_CHILDREN], all = 0, processors = sysconf(_SC_NPROCESSORS_ONLN);
    int max_children = (int)(processors < 1              ? 1
                             : processors < MAX_CHILDREN ? processors
                                                         : MAX_CHILDREN);
    if (!getenv("WEFT_FAIL_ALLOCATION")) return;
    if (count(&all) == 0) return;
    dprintf(1, "%ld\n", all);
    struct text wanted = map_output(0);
    for (long n = 1; n <= all; n++) {
        int i = n <= max_children ? (int)n - 1 : finish(children, numbers, max_children, wanted);
        atomic_store(allocations, 0);
        numbers[i] = n;
        children[i] = start(n);
        if (children[i] == 0) return;
    }
    for (int i = 0; i < max_children; i++)
        if (i < all) finish(children, numbers, max_children, wanted);
    _exit(0);
}

/* ---- Allocations ---- */

static int may(void)
{
    if (atomic_fetch_add(allocations, 1) + 1 != fails) return 1;
    errno = ENOMEM;
    return 0;
}

/* Without this the shared libraries go on with the malloc of libc. */
#pragma GCC visibility push(default)

void *malloc(size_t bytes)
{
    return may() ? __libc_malloc(bytes) : NULL;
}
void *calloc(size_t n, size_t bytes)
{
    return may() ? __libc_calloc(n, bytes) : NULL;
}
void *realloc(void *old, size_t bytes)
{
    return may() ? __libc_realloc(old, bytes) : NULL;
}
void *aligned_alloc(size_t alignment, size_t bytes)
{
    return may() ? __libc_memalign(alignment, bytes) : NULL;
}
