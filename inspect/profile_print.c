/* The table of a profile: a line for each row, as wide as the caller says. O(rows log rows). */
#include <weft/inspect.h>

#include "run/profile.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WIDTH 80
#define MIN_WIDTH     32
/* Columns are left out until a name has this many, or as many as the longest one. */
#define NAME_WIDTH 32

/* ---- Numbers ---- */

typedef struct table {
    const weft_profile_print_options *options;
    FILE *file;
    weft_profile_totals total;
    int name_width, text_width; /* text: op and shape, by node; 0: left out */
    unsigned shown;             /* bit i: column i */
} table;

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double seconds_of(const weft_profile_row *row)
{
    return row->compute_seconds + row->waiting_seconds;
}

/* Thread seconds of all runs as milliseconds of one run that all threads share. */
static double ms_a_run(const table *t, double seconds)
{
    return 1e3 * ratio(seconds, (double)t->total.runs * t->total.threads);
}

/* Work over the seconds that it took, on all threads. */
static double rate(const table *t, double work, const weft_profile_row *row)
{
    return 1e-9 * ratio(work * t->total.threads, row->compute_seconds);
}

static double get_calls(const table *t, const weft_profile_row *row)
{
    (void)t;
    return (double)row->calls;
}
static double get_time(const table *t, const weft_profile_row *row)
{
    return ms_a_run(t, seconds_of(row));
}
static double get_share(const table *t, const weft_profile_row *row)
{
    return 100 * ratio(seconds_of(row), t->total.thread_seconds);
}
static double get_compute(const table *t, const weft_profile_row *row)
{
    return ms_a_run(t, row->compute_seconds);
}
static double get_waiting(const table *t, const weft_profile_row *row)
{
    return ms_a_run(t, row->waiting_seconds);
}
static double get_work(const table *t, const weft_profile_row *row)
{
    return rate(t, row->flops, row);
}
static double get_memory(const table *t, const weft_profile_row *row)
{
    return rate(t, row->bytes, row);
}
static double get_roofline(const table *t, const weft_profile_row *row)
{
    return 100 * ratio(row->roofline_seconds * t->total.threads, row->compute_seconds);
}

/* The columns after the name, each with a space before it. A column of a lower rank is left out
 * before one of a higher rank. Decimals -1: as many as make three digits, up to three. */
static const struct column {
    const char *name, *unit;
    int width, rank, decimals;
    double (*get)(const table *t, const weft_profile_row *row);
} columns[] = {
    {"calls", "", 7, 2, 0, get_calls},
    {"time", "ms/run", 9, 7, -1, get_time},
    {"share", "%", 7, 7, 1, get_share},
    {"compute", "ms/run", 9, 1, -1, get_compute},
    {"waiting", "ms/run", 9, 4, -1, get_waiting},
    {"work", "GFLOP/s", 9, 6, 1, get_work},
    {"memory", "GB/s", 7, 3, 1, get_memory},
    {"roofline", "%", 10, 5, 1, get_roofline},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)
#define TOP_RANK  7 /* never left out */

/* ---- Layout ---- */

static int columns_width(unsigned shown)
{
    int width = 0;
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (shown >> i & 1) width += columns[i].width;
    return width;
}

static void row_text(const weft_profile_row *row, char *text, size_t size)
{
    snprintf(text, size, "  %s %s", row->op, row->shape);
}

/* Chooses the columns and the width of the names. */
static void lay_out(table *t, const weft_profile_row *const *rows, size_t n)
{
    const int width = t->options->width ? t->options->width : DEFAULT_WIDTH;
    int longest = 12;
    for (size_t i = 0; i < n; i++) {
        char text[256];
        if (weft__text_length(rows[i]->name) > longest) longest = weft__text_length(rows[i]->name);
        if (t->options->by != WEFT_PROFILE_BY_NODE) continue;
        row_text(rows[i], text, sizeof text);
        if (weft__text_length(text) > t->text_width) t->text_width = weft__text_length(text);
    }
    const int least = longest < NAME_WIDTH ? longest : NAME_WIDTH;
    t->shown = (1u << N_COLUMNS) - 1;
    if (!t->options->peaks) t->shown &= ~(1u << (N_COLUMNS - 1));
    if (least + columns_width(t->shown) + t->text_width > width) t->text_width = 0;
    for (int rank = 1; rank < TOP_RANK; rank++)
        for (size_t i = 0; i < N_COLUMNS && least + columns_width(t->shown) > width; i++)
            if (columns[i].rank == rank) t->shown &= ~(1u << i);
    t->name_width = width - columns_width(t->shown) - t->text_width;
    if (t->name_width > longest) t->name_width = longest;
}

/* ---- Lines ---- */

static void print_head(const table *t)
{
    static const char *const by[] = {"node", "op", "scope"};
    weft__text_print_left(t->file, by[t->options->by], t->name_width);
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (t->shown >> i & 1) fprintf(t->file, "%*s", columns[i].width, columns[i].name);
    fprintf(t->file, "\n%*s", t->name_width, "");
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (t->shown >> i & 1) fprintf(t->file, "%*s", columns[i].width, columns[i].unit);
    fputc('\n', t->file);
}

static void print_row(const table *t, const char *name, const weft_profile_row *row)
{
    char text[256];
    weft__text_print_left(t->file, name, t->name_width);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        const struct column *c = &columns[i];
        if (!(t->shown >> i & 1)) continue;
        const double x = c->get(t, row);
        weft__text_print(t->file, "%*.*f", c->width,
                         c->decimals < 0 ? weft__text_decimals(x) : c->decimals, x);
    }
    if (t->text_width && row->op && row->shape && row->shape[0]) {
        row_text(row, text, sizeof text);
        fputs(text, t->file);
    }
    fputc('\n', t->file);
}

static void add_row(weft_profile_row *sum, const weft_profile_row *row)
{
    sum->calls += row->calls;
    sum->compute_seconds += row->compute_seconds;
    sum->waiting_seconds += row->waiting_seconds;
    sum->flops += row->flops;
    sum->bytes += row->bytes;
    sum->roofline_seconds += row->roofline_seconds;
}

static void print_table(table *t, const weft_profile_row *const *rows, size_t n)
{
    const size_t most = t->options->max_rows, shown = most && n > most ? most : n;
    weft_profile_row total = {.name = NULL}, others = {.name = NULL};
    const weft_profile_row start = {.waiting_seconds = t->total.start_seconds};
    char text[64];
    lay_out(t, rows, n);
    print_head(t);
    for (size_t i = 0; i < n; i++) {
        const char *name = rows[i]->name[0] ? rows[i]->name : "(no scope)";
        add_row(&total, rows[i]);
        if (i < shown)
            print_row(t, name, rows[i]);
        else
            add_row(&others, rows[i]);
    }
    if (shown < n) {
        snprintf(text, sizeof text, "(%zu others)", n - shown);
        print_row(t, text, &others);
    }
    print_row(t, "(start)", &start);
    add_row(&total, &start);
    print_row(t, "total", &total);
}

/* The longest first; equal ones in the order of the schedule. */
static int compare_rows(const void *one, const void *other)
{
    const weft_profile_row *a = *(const weft_profile_row *const *)one,
                           *b = *(const weft_profile_row *const *)other;
    const double x = seconds_of(a), y = seconds_of(b);
    return x > y ? -1 : x < y ? 1 : (a > b) - (a < b);
}

weft_status weft_profile_print(const weft_profile *profile,
                               const weft_profile_print_options *options, FILE *file,
                               weft_error *error)
{
    weft_error own, *e = error ? error : &own;
    weft_error_clear(e);
    static const weft_profile_print_options defaults = {.width = 0};
    const weft_profile_print_options *o = options ? options : &defaults;
    size_t n;
    if (!file || (o->width && o->width < MIN_WIDTH))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "profile",
                              file ? "a table has at least %d columns" : "the file is NULL",
                              MIN_WIDTH);
    weft_profile_table *summed = weft_profile_table_new(profile, o->by, o->depth, o->peaks, e);
    const weft_profile_row *rows = weft_profile_table_rows(summed, &n);
    if (!summed) return e->status;
    const weft_profile_row **order = calloc(n + 1, sizeof *order);
    if (order) {
        table t = {.options = o, .file = file, .total = weft_profile_totals_of(profile)};
        for (size_t i = 0; i < n; i++) order[i] = &rows[i];
        if (!o->in_order) qsort(order, n, sizeof *order, compare_rows);
        print_table(&t, order, n);
    }
    const bool good = order != NULL;
    free(order);
    weft_profile_table_free(summed);
    if (!good) return weft_error_set(error, WEFT_NO_MEMORY, "profile", "no memory for the rows");
    /* A full disk shows only when the stream is flushed. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "profile", "the file cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}
