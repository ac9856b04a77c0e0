/* Files that are read or written whole (base/file.h): many writers of one path, and links, pipes,
 * folders or leftovers of killed processes in its place. */
#include "tests.h"

#include <base/file.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[128];

static int make_folder(void)
{
    strcpy(folder, "/tmp/weft-file-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    return 0;
}

/* The number of entries of the folder whose names contain `part`; removes them if `removing`. */
static size_t entries(const char *part, bool removing)
{
    size_t n = 0;
    DIR *list = opendir(folder);
    if (!list) return SIZE_MAX;
    for (const struct dirent *e = readdir(list); e; e = readdir(list)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (!strstr(e->d_name, part)) continue;
        n++;
        if (removing) unlinkat(dirfd(list), e->d_name, 0);
    }
    closedir(list);
    return n;
}

static int remove_folder(void)
{
    entries("", true);
    return rmdir(folder);
}

static void write_text(const char *to, const char *text)
{
    FILE *file = fopen(to, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static bool holds(const char *from, const char *text)
{
    char bytes[256];
    FILE *file = fopen(from, "rb");
    if (!file) return false;
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = 0;
    fclose(file);
    return !strcmp(bytes, text);
}

/* ---- Many writers ---- */

enum { SAVES = 40, NUMEL = 1 << 15 };

/* Saves a tensor of equal elements SAVES times; returns how many saves failed. */
static int save_often(int number)
{
    weft_params *p = weft_params_new();
    weft_tensor t;
    int failed = 0;
    if (!p || weft_params_add(p, "t", WEFT_I32, WEFT_SHAPE(NUMEL), &t, NULL) != WEFT_OK)
        return SAVES;
    for (int k = 0; k < SAVES; k++) {
        for (int i = 0; i < NUMEL; i++) ((int32_t *)t.data)[i] = number * SAVES + k;
        failed += weft_params_save(p, path, NULL, NULL) != WEFT_OK;
    }
    weft_params_free(p);
    return failed;
}

typedef struct saver {
    pthread_t thread;
    int number, failed;
    atomic_int *working;
} saver;

static void *save_in_thread(void *argument)
{
    saver *s = argument;
    s->failed = save_often(s->number);
    atomic_fetch_sub(s->working, 1);
    return NULL;
}

/* Loads until all writers are done; counts loads that failed or mixed the data of two writers. */
static long load_until(atomic_int *working, pid_t *processes, int n, long *mixed)
{
    long failed = 0;
    for (bool last = false; !last;) {
        weft_params *p = weft_params_new();
        weft_tensor t;
        bool all_ended = atomic_load(working) == 0;
        for (int i = 0; i < n; i++) {
            int status = 0;
            if (processes[i] > 0 && waitpid(processes[i], &status, WNOHANG) == processes[i]) {
                CU_ASSERT_EQUAL(status, 0);
                processes[i] = 0;
            }
            all_ended = all_ended && !processes[i];
        }
        last = all_ended;
        if (weft_params_load(p, path, NULL) != WEFT_OK || !weft_params_find(p, "t", &t)) {
            failed++;
        } else {
            const int32_t *x = t.data;
            for (int i = 1; i < NUMEL; i++)
                if (x[i] != x[0]) {
                    (*mixed)++;
                    break;
                }
        }
        weft_params_free(p);
    }
    return failed;
}

/* Two processes and two threads save one path while another reads it. Every save and every load
 * succeeds, and every load gets the data of one save. */
static void test_many_writers(void)
{
    pid_t processes[2];
    saver savers[2];
    atomic_int working = 2;
    long mixed = 0;
    CU_ASSERT_EQUAL_FATAL(save_often(0), 0);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        processes[i] = fork();
        if (processes[i] == 0) test_exit(save_often(i) != 0);
        CU_ASSERT_TRUE_FATAL(processes[i] > 0);
    }
    for (int i = 0; i < 2; i++) {
        savers[i] = (saver){.number = 2 + i, .working = &working};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&savers[i].thread, NULL, save_in_thread, &savers[i]),
                              0);
    }
    CU_ASSERT_EQUAL(load_until(&working, processes, 2, &mixed), 0);
    CU_ASSERT_EQUAL(mixed, 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(savers[i].thread, NULL);
        CU_ASSERT_EQUAL(savers[i].failed, 0);
    }
    CU_ASSERT_EQUAL(entries(".tmp", false), 0);
}

/* ---- Links, pipes and folders ---- */

static weft_params *one_tensor(void)
{
    weft_params *p = weft_params_new();
    weft_params_add(p, "t", WEFT_I32, WEFT_SHAPE(3), NULL, NULL);
    return p;
}

/* The status of a save in a process of its own, which an alarm ends if the save blocks. */
static int save_within_seconds(const char *to, unsigned seconds)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    CU_ASSERT_TRUE_FATAL(pid >= 0);
    if (pid == 0) {
        alarm(seconds);
        test_exit((int)weft_params_save(one_tensor(), to, NULL, NULL));
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A link or a pipe named PATH.tmp, an obvious name for a temporary file, is never opened. */
static void test_planted(void)
{
    char planted[160], victim[160];
    struct stat info;
    snprintf(planted, sizeof planted, "%s.tmp", path);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    write_text(victim, "precious");
    CU_ASSERT_EQUAL_FATAL(symlink(victim, planted), 0);
    CU_ASSERT_EQUAL(save_within_seconds(path, 60), WEFT_OK);
    CU_ASSERT_TRUE(holds(victim, "precious"));
    CU_ASSERT_TRUE(lstat(planted, &info) == 0 && S_ISLNK(info.st_mode));
    unlink(planted);
    CU_ASSERT_EQUAL_FATAL(mkfifo(planted, 0600), 0);
    CU_ASSERT_EQUAL(save_within_seconds(path, 60), WEFT_OK);
    CU_ASSERT_TRUE(lstat(path, &info) == 0 && S_ISREG(info.st_mode));
    unlink(planted);
    unlink(victim);
}

static void refuse(const char *to)
{
    weft_error error = {0};
    weft_params *p = one_tensor();
    CU_ASSERT_EQUAL(save_within_seconds(to, 60), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_params_save(p, to, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.where, to);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "is not a regular file"));
    weft_params_free(p);
}

/* Folders and pipes, directly or through links, are refused at once and not replaced. */
static void test_no_regular_file(void)
{
    char fifo[128], link[128];
    struct stat info;
    snprintf(fifo, sizeof fifo, "%s/pipe", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    CU_ASSERT_EQUAL_FATAL(mkfifo(fifo, 0600), 0);
    CU_ASSERT_EQUAL_FATAL(symlink("pipe", link), 0);
    refuse(fifo);
    refuse(link);
    refuse(folder);
    /* These are not saved to: a save that is not refused would replace them if tests run as root.
     */
    CU_ASSERT_TRUE(weft__file_is_stream("/dev/null"));
    CU_ASSERT_TRUE(weft__file_is_stream("/dev/stdout"));
    CU_ASSERT_TRUE(weft__file_is_stream("/proc/self/fd/1"));
    CU_ASSERT_FALSE(weft__file_is_stream("/dev/shm/x"));
    CU_ASSERT_FALSE(weft__file_is_stream("/no/such/file"));
    CU_ASSERT_TRUE(lstat(fifo, &info) == 0 && S_ISFIFO(info.st_mode));
    CU_ASSERT_TRUE(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
    CU_ASSERT_EQUAL(entries(".tmp", false), 0);
    unlink(fifo);
    unlink(link);
}

/* A link is replaced, symbolic or hard: the file that it named does not change. */
static void test_links(void)
{
    char target[128], link_path[128];
    struct stat info;
    snprintf(target, sizeof target, "%s/target", folder);
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    weft_params *p = one_tensor();
    for (int hard = 0; hard < 2; hard++) {
        write_text(target, "old");
        CU_ASSERT_EQUAL_FATAL(hard ? link(target, link_path) : symlink(target, link_path), 0);
        CU_ASSERT_EQUAL(weft_params_save(p, link_path, NULL, NULL), WEFT_OK);
        CU_ASSERT_TRUE(lstat(link_path, &info) == 0 && S_ISREG(info.st_mode));
        CU_ASSERT_TRUE(holds(target, "old"));
        unlink(link_path);
    }
    CU_ASSERT_EQUAL_FATAL(symlink("nowhere", link_path), 0);
    CU_ASSERT_EQUAL(weft_params_save(p, link_path, NULL, NULL), WEFT_OK);
    CU_ASSERT_TRUE(lstat(link_path, &info) == 0 && S_ISREG(info.st_mode));
    weft_params_free(p);
    unlink(target);
    unlink(link_path);
}

/* Only regular files are opened to be read, and nothing waits for the writer of a pipe. */
static void test_reading(void)
{
    char other[128];
    snprintf(other, sizeof other, "%s/other", folder);
    CU_ASSERT_EQUAL_FATAL(mkfifo(other, 0600), 0);
    alarm(60);
    CU_ASSERT_EQUAL(weft__file_open(other), -1);
    CU_ASSERT_EQUAL(errno, FILE_NOT_REGULAR);
    CU_ASSERT_EQUAL(weft__file_open_once(other), -1);
    CU_ASSERT_EQUAL(errno, FILE_NOT_REGULAR);
    CU_ASSERT_EQUAL(weft_safetensors_open(other, NULL), NULL);
    alarm(0);
    unlink(other);
    CU_ASSERT_EQUAL(weft__file_open("/dev/null"), -1);
    CU_ASSERT_EQUAL(errno, FILE_NOT_REGULAR);
    CU_ASSERT_EQUAL(weft__file_open(folder), -1);
    CU_ASSERT_EQUAL(errno, EISDIR);
    CU_ASSERT_EQUAL(weft__file_open_stdio(other), NULL);
    CU_ASSERT_EQUAL(errno, ENOENT);
    write_text(other, "text");
    FILE *file = weft__file_open_stdio(other);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fgetc(file), 't');
    fclose(file);
    /* A pipe that is open already is read once, and waited for. */
    int ends[2];
    char c = 0;
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    snprintf(other, sizeof other, "/dev/fd/%d", ends[0]);
    CU_ASSERT_EQUAL(weft__file_open(other), -1);
    const int again = weft__file_open_once(other);
    CU_ASSERT_EQUAL(fcntl(again, F_GETFL) & O_NONBLOCK, 0);
    CU_ASSERT_EQUAL(write(ends[1], "x", 1), 1);
    CU_ASSERT_EQUAL(read(again, &c, 1), 1);
    CU_ASSERT_EQUAL(c, 'x');
    close(again);
    close(ends[0]);
    close(ends[1]);
}

/* ---- The writer itself ---- */

/* The longest name of a file, in one-byte and in three-byte characters. */
static void test_long_names(void)
{
    char name[400];
    size_t before = strlen(folder) + 1;
    snprintf(name, sizeof name, "%s/%0255d", folder, 0);
    CU_ASSERT_TRUE(weft__file_replace(name, "a", 1));
    CU_ASSERT_TRUE(holds(name, "a"));
    unlink(name);
    for (size_t i = 0; i < 85; i++) memcpy(name + before + 3 * i, "\xe6\x97\xa5", 4);
    CU_ASSERT_TRUE(weft__file_replace(name, "b", 1));
    CU_ASSERT_TRUE(holds(name, "b"));
    unlink(name);
    memcpy(name + before + 255, "xy", 3);
    CU_ASSERT_FALSE(weft__file_replace(name, "c", 1));
    CU_ASSERT_EQUAL(errno, ENAMETOOLONG);
    char endless[5000];
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = 0;
    CU_ASSERT_FALSE(weft__file_replace(endless, "c", 1));
    CU_ASSERT_EQUAL(errno, ENAMETOOLONG);
    CU_ASSERT_FALSE(weft__file_replace("", "c", 1));
    CU_ASSERT_EQUAL(entries(".tmp", false), 0);
}

static void test_mode(void)
{
    struct stat info;
    mode_t before = umask(027);
    CU_ASSERT_TRUE(weft__file_replace(path, "a", 1));
    umask(before);
    CU_ASSERT_TRUE(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640);
}

/* weft__file_commit reports a write that failed, and PATH does not change. */
static void test_failures(void)
{
    file_writer w;
    CU_ASSERT_TRUE(weft__file_replace(path, "old", 3));
    CU_ASSERT_TRUE_FATAL(weft__file_begin(&w, path));
    weft__file_write(&w, "new", 3);
    weft__file_abandon(&w);
    CU_ASSERT_TRUE(holds(path, "old"));
    CU_ASSERT_TRUE_FATAL(weft__file_begin(&w, path));
    w.error = ENOSPC;
    weft__file_write(&w, "new", 3);
    CU_ASSERT_FALSE(weft__file_commit(&w));
    CU_ASSERT_EQUAL(errno, ENOSPC);
    CU_ASSERT_TRUE(holds(path, "old"));
    CU_ASSERT_EQUAL(entries(".tmp", false), 0);
    if (access("/dev/full", W_OK) != 0) {
        test_skip("a full device", "there is no /dev/full");
        return;
    }
    char link_path[128];
    snprintf(link_path, sizeof link_path, "%s/full", folder);
    CU_ASSERT_EQUAL_FATAL(symlink("/dev/full", link_path), 0);
    CU_ASSERT_FALSE(weft__file_replace(link_path, "new", 3));
    CU_ASSERT_EQUAL(errno, FILE_NOT_REGULAR);
    CU_ASSERT_FALSE(weft__file_replace_stream(link_path, "new", 3));
    CU_ASSERT_EQUAL(errno, ENOSPC);
    unlink(link_path);
}

/* A process that has begun to write PATH, and is stopped there. */
static pid_t begin_in_child(void)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        file_writer w;
        if (!weft__file_begin(&w, path)) test_exit(1);
        weft__file_write(&w, "half", 4);
        raise(SIGSTOP);
        test_exit(!weft__file_commit(&w));
    }
    CU_ASSERT_TRUE_FATAL(pid > 0);
    CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, WUNTRACED), pid);
    CU_ASSERT_TRUE_FATAL(WIFSTOPPED(status));
    return pid;
}

/* Temporary files of killed processes are recognised by name and lock; nothing else is removed. */
static void test_leftovers(void)
{
    char other[160];
    const pid_t killed = begin_in_child();
    kill(killed, SIGKILL);
    waitpid(killed, NULL, 0);
    CU_ASSERT_EQUAL(entries("x.safetensors.", false), 1);
    const char *const others[] = {"x.safetensors.tmp", "x.safetensors.0123456789ab",
                                  "x.safetensors.0123456789xx.tmp",
                                  "y.safetensors.0123456789ab.tmp"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, others[i]);
        write_text(other, "mine");
    }
    weft__file_remove_leftovers(folder, "x.safetensors");
    CU_ASSERT_EQUAL(entries("x.safetensors.", true), 3);
    CU_ASSERT_EQUAL(entries("y.safetensors.", true), 1);
}

/* Who writes a name removes what a killed writer of it left, and not what a living one writes. */
static void test_leftovers_of_the_living(void)
{
    int status = 1;
    const pid_t living = begin_in_child(), killed = begin_in_child();
    CU_ASSERT_EQUAL(entries("x.safetensors.", false), 2);
    kill(killed, SIGKILL);
    waitpid(killed, NULL, 0);
    CU_ASSERT_TRUE(weft__file_replace(path, "whole", 5));
    CU_ASSERT_EQUAL(entries("x.safetensors.", false), 1);
    kill(living, SIGCONT);
    CU_ASSERT_EQUAL(waitpid(living, &status, 0), living);
    CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CU_ASSERT_TRUE(holds(path, "half"));
    CU_ASSERT_EQUAL(entries("x.safetensors.", false), 0);
}

void file_tests(void)
{
    CU_pSuite suite = CU_add_suite("file", make_folder, remove_folder);
    CU_add_test(suite, "many writers", test_many_writers);
    CU_add_test(suite, "planted names", test_planted);
    CU_add_test(suite, "not a regular file", test_no_regular_file);
    CU_add_test(suite, "reading", test_reading);
    CU_add_test(suite, "links", test_links);
    CU_add_test(suite, "long names", test_long_names);
    CU_add_test(suite, "mode", test_mode);
    CU_add_test(suite, "failures", test_failures);
    CU_add_test(suite, "temporary files of killed processes", test_leftovers);
    CU_add_test(suite, "temporary files of running processes", test_leftovers_of_the_living);
}
