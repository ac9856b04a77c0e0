/* What the libraries ask of the operating system (base/platform.h), and what they have in place of
 * what some systems lack: files, their names and locks, sorting, texts, threads. */
#include "tests.h"

#include <base/file.h>
#include <base/platform.h>
#include <base/sort.h>
#include <base/text.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name in Greek: paths are UTF-8 everywhere. */
static char folder[64], file[128], other[128];

static int make_folder(void)
{
    snprintf(folder, sizeof folder, "weft-platform-%llu", (unsigned long long)weft__os_process());
    snprintf(file, sizeof file, "%s/\xCF\x81", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    return !weft__os_make_folder(folder);
}

static void count_and_remove(void *context, const char *name)
{
    char path[512];
    if (!strcmp(name, ".") || !strcmp(name, "..")) return;
    ++*(size_t *)context;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    weft__os_remove(path);
}

static size_t empty_folder(void)
{
    size_t n = 0;
    weft__os_list(folder, count_and_remove, &n);
    return n;
}

static int remove_folder(void)
{
    empty_folder();
    return rmdir(folder);
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    CU_ASSERT_TRUE_FATAL(weft__file_replace(path, text, bytes));
}

/* No byte is changed on the way, not even the ends of lines. */
static void test_bytes(void)
{
    static const char text[] = "one\r\ntwo\n\x1A\0three";
    size_t bytes = 0;
    os_facts facts;
    CU_ASSERT_FALSE(weft__file_exists(file));
    CU_ASSERT_EQUAL(weft__os_open(file), -1);
    CU_ASSERT_EQUAL(errno, ENOENT);
    write_file(file, text, sizeof text);
    CU_ASSERT_TRUE(weft__file_exists(file));
    CU_ASSERT_TRUE_FATAL(weft__os_facts(file, &facts));
    CU_ASSERT_EQUAL(facts.kind, OS_FILE);
    CU_ASSERT_EQUAL(facts.bytes, sizeof text);
    char *got = weft__file_read(file, &bytes, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(got);
    CU_ASSERT_TRUE(bytes == sizeof text && !memcmp(got, text, sizeof text));
    free(got);
    const int descriptor = weft__os_open(file);
    CU_ASSERT_TRUE_FATAL(descriptor >= 0);
    char part[4] = "";
    CU_ASSERT_EQUAL(weft__os_read(descriptor, part, 3, 5), 3);
    CU_ASSERT_STRING_EQUAL(part, "two");
    CU_ASSERT_EQUAL(weft__os_read(descriptor, part, 3, sizeof text), 0);
    void *mapped = weft__os_map(descriptor, sizeof text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mapped);
    CU_ASSERT_EQUAL(memcmp(mapped, text, sizeof text), 0);
    weft__os_unmap(mapped, sizeof text);
    CU_ASSERT_TRUE(weft__os_close(descriptor));
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

/* A file is replaced while it is open; its reader keeps the old one. */
static void test_replacement(void)
{
    char part[4] = "";
    os_facts facts;
    write_file(file, "old", 3);
    const int descriptor = weft__os_open(file);
    CU_ASSERT_TRUE_FATAL(descriptor >= 0);
    const bool replaced = weft__file_replace(file, "newer", 5);
    if (!replaced && errno == EACCES)
        test_skip("replacing an open file", "the system cannot, as Windows before 2016 and Wine");
    else
        CU_ASSERT_TRUE(replaced);
    CU_ASSERT_EQUAL(weft__os_read(descriptor, part, 3, 0), 3);
    CU_ASSERT_STRING_EQUAL(part, "old");
    weft__os_close(descriptor);
    CU_ASSERT_TRUE(weft__os_facts(file, &facts) && facts.bytes == (replaced ? 5 : 3));
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

static void test_folders(void)
{
    os_facts facts;
    CU_ASSERT_TRUE_FATAL(weft__os_facts(folder, &facts));
    CU_ASSERT_EQUAL(facts.kind, OS_FOLDER);
    CU_ASSERT_FALSE(weft__os_make_folder(folder));
    CU_ASSERT_EQUAL(errno, EEXIST);
    CU_ASSERT_EQUAL(weft__file_open(folder), -1);
    CU_ASSERT_EQUAL(errno, EISDIR);
    CU_ASSERT_FALSE(weft__os_folder_is_locked(folder));
    char real[512], real_file[512];
    write_file(file, "", 0);
    CU_ASSERT_TRUE_FATAL(weft__os_real_path(folder, real, sizeof real));
    CU_ASSERT_TRUE_FATAL(weft__os_real_path(file, real_file, sizeof real_file));
    CU_ASSERT_EQUAL(strncmp(real, real_file, strlen(real)), 0);
    CU_ASSERT_STRING_EQUAL(real_file + strlen(real), "/\xCF\x81");
    CU_ASSERT_FALSE(weft__os_real_path(other, real, sizeof real));
    CU_ASSERT_FALSE(weft__os_list(other, count_and_remove, NULL));
    CU_ASSERT_EQUAL(errno, ENOENT);
    CU_ASSERT_STRING_EQUAL(weft__os_name("a/b"), "b");
    CU_ASSERT_STRING_EQUAL(weft__os_name("a/"), "");
    CU_ASSERT_STRING_EQUAL(weft__os_name("a"), "a");
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

/* A path is absolute or is below the current folder. */
static void test_names(void)
{
    char here[512], real[512], joined[1200];
    CU_ASSERT_FALSE(weft__os_is_absolute(file));
    CU_ASSERT_TRUE_FATAL(weft__os_current_folder(here, sizeof here));
    CU_ASSERT_FALSE(weft__os_current_folder(real, 1));
    CU_ASSERT_TRUE(weft__os_is_absolute(here));
    write_file(file, "x", 1);
    CU_ASSERT_TRUE_FATAL(weft__os_real_path(file, real, sizeof real));
    CU_ASSERT_TRUE(weft__os_is_absolute(real));
    snprintf(joined, sizeof joined, "%s/%s", here, file);
    CU_ASSERT_TRUE(weft__os_is_same(joined, file));
    CU_ASSERT_TRUE(weft__os_is_same(real, file));
    CU_ASSERT_FALSE(weft__os_is_same(folder, file));
    CU_ASSERT_FALSE(weft__os_is_same(other, file));
    if (weft__os_link(file, other)) {
        CU_ASSERT_TRUE(weft__os_is_same(other, file));
        CU_ASSERT_FALSE(weft__os_link(file, other));
        CU_ASSERT_EQUAL(errno, EEXIST);
    } else {
        test_skip("a second name", "the file system has none");
    }
    CU_ASSERT_TRUE(weft__os_is_separator('/') && !weft__os_is_separator('a'));
    empty_folder();
}

/* What is appended comes after what others have written meanwhile. */
static void test_appending(void)
{
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        const int descriptor = weft__os_open_to_append(file);
        CU_ASSERT_TRUE_FATAL(descriptor >= 0);
        if (i) {
            const int another = weft__os_open_to_append(file);
            CU_ASSERT_EQUAL(weft__os_write(another, "b\n", 2), 2);
            CU_ASSERT_TRUE(weft__os_close(another));
        }
        CU_ASSERT_EQUAL(weft__os_write(descriptor, i ? "c" : "a", 1), 1);
        CU_ASSERT_TRUE(weft__os_sync(descriptor));
        CU_ASSERT_TRUE(weft__os_close(descriptor));
    }
    char *got = weft__file_read(file, &bytes, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(got);
    CU_ASSERT_STRING_EQUAL(got, "ab\nc");
    free(got);
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

/* The lock of a folder is of one process, or of one descriptor; its files can be changed. */
static void test_folder_locks(void)
{
    CU_ASSERT_EQUAL(weft__os_lock_folder(other), -1);
    CU_ASSERT_NOT_EQUAL(errno, EWOULDBLOCK);
    const int lock = weft__os_lock_folder(folder);
    if (lock < 0) {
        test_skip("the lock of a folder", "the file system has none");
        return;
    }
    CU_ASSERT_TRUE(weft__os_folder_is_locked(folder));
    CU_ASSERT_EQUAL(weft__os_lock_folder(folder), -1);
    CU_ASSERT_EQUAL(errno, EWOULDBLOCK);
    write_file(file, "x", 1);
    CU_ASSERT_EQUAL(empty_folder(), 1);
    weft__os_close(lock);
    CU_ASSERT_FALSE(weft__os_folder_is_locked(folder));
}

/* The next writer of a name removes what a killed one has left, and nothing else. */
static void test_leftovers(void)
{
    char left[192];
    file_writer w;
    snprintf(left, sizeof left, "%s.0123456789ab.tmp", file);
    write_file(left, "left", 4);
    CU_ASSERT_TRUE_FATAL(weft__file_begin(&w, file));
    CU_ASSERT_FALSE(weft__file_exists(left));
    weft__file_remove_leftovers(folder, weft__os_name(file));
    CU_ASSERT_TRUE(weft__file_exists(w.temporary));
    weft__file_write(&w, "x", 1);
    CU_ASSERT_TRUE(weft__file_commit(&w));
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

static void test_lines(void)
{
    static const char text[] = "first\n\nwith \0 zero\nlast";
    static const ptrdiff_t lengths[] = {6, 1, 12, 4};
    char *line = NULL;
    size_t capacity = 0;
    write_file(file, text, sizeof text - 1);
    FILE *from = weft__file_open_stdio(file);
    CU_ASSERT_PTR_NOT_NULL_FATAL(from);
    const char *at = text;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        CU_ASSERT_EQUAL_FATAL(weft__os_read_line(&line, &capacity, from), lengths[i]);
        CU_ASSERT_EQUAL(memcmp(line, at, (size_t)lengths[i]), 0);
        CU_ASSERT_EQUAL(line[lengths[i]], 0);
        at += lengths[i];
    }
    CU_ASSERT_EQUAL(weft__os_read_line(&line, &capacity, from), -1);
    CU_ASSERT_TRUE(feof(from) && !ferror(from));
    free(line);
    fclose(from);
    CU_ASSERT_EQUAL(empty_folder(), 1);
}

static int by_key(const void *a, const void *b, void *context)
{
    const uint64_t *key = context, x = key[*(const int32_t *)a], y = key[*(const int32_t *)b];
    return (x > y) - (x < y);
}

static void test_sort(void)
{
    enum { MAX = 300 };
    uint64_t key[MAX], state = 1;
    int32_t order[MAX];
    for (size_t n = 0; n <= MAX; n = n < 20 ? n + 1 : n + 35) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            key[i] = test_random(&state) % (n % 2 ? 10 : UINT64_MAX);
            order[i] = (int32_t)i;
        }
        weft__sort(order, n, sizeof *order, by_key, key);
        for (size_t i = 0; i < n; i++) {
            if (i) CU_ASSERT_TRUE(key[order[i - 1]] <= key[order[i]]);
            sum += (uint64_t)order[i];
        }
        CU_ASSERT_EQUAL(sum, n * (n - !!n) / 2);
    }
}

static void test_texts(void)
{
    char number[TEXT_NUMBER_BYTES];
    double value = 0;
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(0.1, number), "0.1");
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(1e300, number), "1e+300");
    CU_ASSERT_TRUE(weft__text_to_double("0x1.8p-1", &value) && value == 0.75);
    weft__text_format(number, sizeof number, "%zu %g", SIZE_MAX, 1e-7);
    CU_ASSERT_STRING_EQUAL(number, SIZE_MAX == UINT32_MAX ? "4294967295 1e-07"
                                                          : "18446744073709551615 1e-07");
    CU_ASSERT_EQUAL(weft__os_lowercase('A'), 'a');
    CU_ASSERT_EQUAL(weft__os_lowercase(0x0394), 0x03B4);   /* Delta */
    CU_ASSERT_EQUAL(weft__os_lowercase(0x10400), 0x10428); /* a letter of Deseret */
    CU_ASSERT_EQUAL(weft__os_lowercase(0x4E2D), 0x4E2D);
}

static size_t runs;

static void count_run(void)
{
    runs++;
}

static void test_threads(void)
{
    static os_once once = OS_ONCE;
    os_mutex lock;
    CU_ASSERT_TRUE_FATAL(weft__os_mutex_init(&lock));
    CU_ASSERT_TRUE(weft__os_try_lock(&lock));
    weft__os_unlock(&lock);
    weft__os_mutex_free(&lock);
    weft__os_run_once(&once, count_run);
    weft__os_run_once(&once, count_run);
    CU_ASSERT_EQUAL(runs, 1);
    CU_ASSERT_TRUE(weft__os_processors() >= 1);
    CU_ASSERT_TRUE(weft__os_stack_left() > 65536);
    CU_ASSERT_TRUE(weft__os_has_space((size_t)1 << 20, true));
    const uint64_t begin = clock_ns();
    weft__os_pause(1000);
    weft__os_pause(0);
    CU_ASSERT_TRUE(clock_ns() > begin);
}

void platform_tests(void)
{
    CU_pSuite suite = CU_add_suite("platform", make_folder, remove_folder);
    CU_add_test(suite, "bytes of files", test_bytes);
    CU_add_test(suite, "files that are replaced while they are read", test_replacement);
    CU_add_test(suite, "folders and paths", test_folders);
    CU_add_test(suite, "names of files", test_names);
    CU_add_test(suite, "appending", test_appending);
    CU_add_test(suite, "locks of folders", test_folder_locks);
    CU_add_test(suite, "what a killed writer has left", test_leftovers);
    CU_add_test(suite, "lines", test_lines);
    CU_add_test(suite, "sorting", test_sort);
    CU_add_test(suite, "numbers and letters", test_texts);
    CU_add_test(suite, "threads and time", test_threads);
}
