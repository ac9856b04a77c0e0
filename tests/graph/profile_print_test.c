/* The table of a profile: it fits its width, its rows are those of weft_profile_table_rows, and names of
 * nodes are distinct. */
#include "profile_bench.h"

#include <stdlib.h>
#include <string.h>

static char text[65536];

static const char *print(const weft_profile *p, const weft_profile_print_options *o)
{
    weft_error error = WEFT_NO_ERROR;
    FILE *file = fmemopen(text, sizeof text, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    memset(text, 0, sizeof text);
    CU_ASSERT_EQUAL(weft_profile_print(p, o, file, &error), WEFT_OK);
    fclose(file);
    return text;
}

/* The characters of the longest line; *lines becomes their number. */
static size_t widest(const char *table, size_t *lines)
{
    size_t most = 0;
    for (*lines = 0; *table; ++*lines) {
        const size_t n = strcspn(table, "\n");
        if (n > most) most = n;
        table += n + (table[n] == '\n');
    }
    return most;
}

static size_t rows_by(const weft_profile *p, weft_profile_by by)
{
    size_t n;
    weft_profile_table *table = weft_profile_table_new(p, by, 0, NULL, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
    weft_profile_table_free(table);
    return n;
}

/* Two lines of head, the rows, and those of the start and the total. */
static void test_width(void)
{
    bench b = bench_open(2);
    const weft_profile *p = profiled_runs(&b, 0);
    const weft_peaks peaks = {1e9, 2e9};
    static const int widths[] = {32, 50, 79, 80, 100, 132, 200};
    size_t lines, columns = 0;
    for (int by = WEFT_PROFILE_BY_NODE; by <= WEFT_PROFILE_BY_SCOPE; by++) {
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            const weft_profile_print_options o = {
                .by = (weft_profile_by)by, .peaks = &peaks, .width = widths[i]};
            const char *table = print(p, &o);
            CU_ASSERT_TRUE(widest(table, &lines) <= (size_t)widths[i]);
            CU_ASSERT_EQUAL(lines, rows_by(p, o.by) + 4);
            CU_ASSERT_PTR_NOT_NULL(strstr(table, "ms/run"));
            CU_ASSERT_PTR_NOT_NULL(strstr(table, "\ntotal "));
            CU_ASSERT_EQUAL(strstr(table, "roofline") != NULL, widths[i] > 60);
            if (widths[i] >= 100) CU_ASSERT_PTR_NOT_NULL(strstr(table, "compute"));
            if (widths[i] <= 50) CU_ASSERT_PTR_NULL(strstr(table, "compute"));
        }
        const weft_profile_print_options plain = {.by = (weft_profile_by)by};
        CU_ASSERT_TRUE(widest(print(p, &plain), &lines) <= 80);
        CU_ASSERT_PTR_NULL(strstr(text, "roofline"));
        columns += lines;
    }
    CU_ASSERT_TRUE(columns > 20);
    CU_ASSERT_TRUE(widest(print(p, NULL), &lines) <= 80);
    bench_close(&b);
}

/* The longest rows come first; others are added up, so that the total stays. */
static void test_rows(void)
{
    bench b = bench_open(2);
    const weft_profile *p = profiled_runs(&b, 0);
    char total[2][200] = {"", ""};
    double before = 1e9;
    size_t lines;
    for (size_t most = 0; most <= 3; most += 3) {
        const weft_profile_print_options o = {.by = WEFT_PROFILE_BY_OP, .max_rows = most};
        const char *line = strstr(print(p, &o), "\ntotal ");
        CU_ASSERT_PTR_NOT_NULL_FATAL(line);
        snprintf(total[most / 3], sizeof total[0], "%s", line);
        CU_ASSERT_EQUAL(strstr(text, " others)") != NULL, most > 0);
    }
    CU_ASSERT_STRING_EQUAL(total[0], total[1]);
    widest(text, &lines);
    CU_ASSERT_EQUAL(lines, 2 + 3 + 3);
    const char *line = text;
    for (int i = 0; i < 5; i++, line += strcspn(line, "\n") + 1) {
        unsigned long long calls;
        double ms;
        char op[64];
        if (i < 2) continue;
        CU_ASSERT_EQUAL(sscanf(line, "%63s %llu %lf", op, &calls, &ms), 3);
        CU_ASSERT_TRUE(ms <= before);
        CU_ASSERT_EQUAL(calls % RUNS, 0);
        before = ms;
    }
    bench_close(&b);
}

/* The first name stays as it is, later ones are numbered; the same in another session. */
static void test_names(void)
{
    size_t numbered = 0;
    weft_profile_table *tables[2];
    const weft_profile_row *rows[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        bench b = bench_open(1 + i);
        tables[i] =
            weft_profile_table_new(profiled_runs(&b, 0), WEFT_PROFILE_BY_NODE, 0, NULL, NULL);
        rows[i] = weft_profile_table_rows(tables[i], &n[i]);
        CU_ASSERT_PTR_NOT_NULL_FATAL(rows[i]);
        bench_close(&b);
    }
    CU_ASSERT_EQUAL_FATAL(n[0], n[1]);
    for (size_t i = 0; i < n[0]; i++) {
        const char *name = rows[0][i].name;
        CU_ASSERT_STRING_EQUAL(name, rows[1][i].name);
        numbered += strchr(name, '#') != NULL;
        for (size_t k = 0; k < i; k++) CU_ASSERT_STRING_NOT_EQUAL(name, rows[0][k].name);
    }
    CU_ASSERT_TRUE(numbered > 0 && numbered < n[0]);
    for (int i = 0; i < 2; i++) weft_profile_table_free(tables[i]);
}

static void test_failures(void)
{
    bench b = bench_open(1);
    const weft_profile *p = profiled_runs(&b, 0);
    weft_error error = WEFT_NO_ERROR;
    const weft_profile_print_options narrow = {.width = 31}, negative = {.depth = -1};
    CU_ASSERT_EQUAL(weft_profile_print(p, NULL, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_profile_print(NULL, NULL, stdout, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_profile_print(p, &negative, stdout, &error), WEFT_BAD_ARGUMENT);
    error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL(weft_profile_print(p, &narrow, stdout, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "32"));
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        CU_ASSERT_EQUAL(weft_profile_print(p, NULL, full, &error), WEFT_IO);
        fclose(full);
    } else {
        test_skip("a table to a full disk", "there is no /dev/full");
    }
    bench_close(&b);
}

void profile_print_tests(void)
{
    CU_pSuite suite = CU_add_suite("profile_print", NULL, NULL);
    CU_add_test(suite, "widths", test_width);
    CU_add_test(suite, "rows", test_rows);
    CU_add_test(suite, "names", test_names);
    CU_add_test(suite, "failures", test_failures);
}
