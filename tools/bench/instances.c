/* weft plan --instances: packs lists of buffers from CSV files, a row for each. */
#include "tool.h"

#include "base/file.h"
#include "base/platform.h"
#include "text_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Without a time limit: about ten seconds on a hard list. */
#define NODE_BUDGET 2000000

enum { LOWER, UPPER, SIZE, COLUMNS };
static const char *const column_names[COLUMNS] = {"lower", "upper", "size"};

typedef struct instance {
    weft_pack_item *items;
    size_t n, capacity; /* of items[]; */
    size_t bytes; /* height that the items must fit, from the file's name; 0: the lower bound */
} instance;

/* Splits the text at commas in place; returns the number of cells and stores up to `max` of them.
 */
static size_t split(char *text, char **cells, size_t max)
{
    size_t n = 0;
    text[strcspn(text, "\r\n")] = '\0';
    for (bool more = true; more; n++) {
        const size_t length = strcspn(text, ",");
        if (n < max) cells[n] = text;
        more = text[length] == ',';
        text[length] = '\0';
        text += length + more;
    }
    return n;
}

#define MAX_CELLS 64

/* Finds the three columns in the header. */
static bool read_header(const char *path, char *line, size_t *columns, size_t *n_cells)
{
    char *cells[MAX_CELLS];
    *n_cells = split(line, cells, MAX_CELLS);
    if (*n_cells > MAX_CELLS) return tool_fail_text(path, "more than %d columns", MAX_CELLS), false;
    for (int c = 0; c < COLUMNS; c++) {
        columns[c] = SIZE_MAX;
        for (size_t i = 0; i < *n_cells; i++)
            if (!strcmp(cells[i], column_names[c])) columns[c] = i;
        if (columns[c] == SIZE_MAX)
            return tool_fail_text(path, "has no column \"%s\"", column_names[c]), false;
    }
    return true;
}

static bool read_row(const char *path, size_t line_number, char *line, const size_t *columns,
                     size_t n_cells, weft_pack_item *item)
{
    char *cells[MAX_CELLS];
    int64_t values[COLUMNS];
    size_t n = split(line, cells, MAX_CELLS);
    if (n != n_cells) {
        tool_fail_text(path, "line %zu: %zu cells, the header has %zu", line_number, n, n_cells);
        return false;
    }
    for (int c = 0; c < COLUMNS; c++) {
        const char *text = cells[columns[c]];
        char *end;
        errno = 0;
        long long value = strtoll(text, &end, 10);
        if (end == text || *end || errno || value < 0) {
            tool_fail_text(path, "line %zu: %s is \"%s\", expected a whole number from 0",
                           line_number, column_names[c], text);
            return false;
        }
        values[c] = value;
    }
    if (values[LOWER] >= values[UPPER]) {
        tool_fail_text(path, "line %zu: upper is %" PRId64 ", not above lower, %" PRId64,
                       line_number, values[UPPER], values[LOWER]);
        return false;
    }
    *item = (weft_pack_item){values[LOWER], values[UPPER], (size_t)values[SIZE], 0};
    return true;
}

static bool add_item(instance *in, weft_pack_item item)
{
    if (in->n == in->capacity) {
        size_t capacity = in->capacity ? 2 * in->capacity : 256;
        weft_pack_item *grown = realloc(in->items, capacity * sizeof *grown);
        if (!grown) return false;
        in->items = grown;
        in->capacity = capacity;
    }
    in->items[in->n++] = item;
    return true;
}

/* A zero byte would hide the rest of its line from the parser. */
static bool is_text(const char *path, size_t line_number, const char *line, ptrdiff_t length)
{
    if (strlen(line) == (size_t)length) return true;
    return tool_fail_text(path, "line %zu: a zero byte, expected text", line_number), false;
}

static bool read_lines(const char *path, FILE *file, instance *in)
{
    char *line = NULL;
    size_t room = 0, columns[COLUMNS], n_cells = 0;
    weft_error error = {0};
    bool good = true;
    ptrdiff_t length = weft__os_read_line(&line, &room, file);
    if (length < 0) {
        good = false;
        if (weft__text_at_end(file, path, &error)) tool_fail_text(path, "empty");
    }
    good = good && is_text(path, 1, line, length) && read_header(path, line, columns, &n_cells);
    for (size_t number = 2; good && (length = weft__os_read_line(&line, &room, file)) >= 0;
         number++) {
        weft_pack_item item;
        good = is_text(path, number, line, length);
        if (!good || !line[strspn(line, "\r\n")]) continue;
        good = read_row(path, number, line, columns, n_cells, &item);
        if (good && !add_item(in, item)) good = (tool_fail_text(path, "out of memory"), false);
    }
    if (good) good = weft__text_at_end(file, path, &error);
    if (error.status != WEFT_OK) tool_fail(&error);
    free(line);
    return good;
}

/* The capacity in NAME.CAPACITY.csv, the form of the published instances; 0 for any other name.
 * False if it overflows. */
static bool capacity_of(const char *name, size_t *capacity)
{
    const char *digits = name + strlen(name) - strlen(".csv");
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
    bool has = digits > name && digits[-1] == '.';
    errno = 0;
    *capacity = has ? (size_t)strtoull(digits, NULL, 10) : 0;
    return !errno;
}

static void print_row(const char *name, const instance *in, const weft_pack_result *r,
                      double seconds, cJSON *list)
{
    size_t bytes = in->bytes ? in->bytes : r->lower_bound_bytes;
    double ratio = r->lower_bound_bytes ? (double)r->arena_bytes / (double)r->lower_bound_bytes : 1;
    bool fits = r->arena_bytes <= bytes;
    if (!list) {
        tool_print_line(stdout, "%-20s %6zu %12zu %12zu %12zu %9.6f  %-4s %8.3f %9" PRIu64 "  %s",
                        name, in->n, r->lower_bound_bytes, bytes, r->arena_bytes, ratio,
                        fits ? "yes" : "no", seconds, r->nodes, weft_pack_end_text(r->end));
        fflush(stdout);
        return;
    }
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "name", name);
    cJSON_AddNumberToObject(row, "items", (double)in->n);
    cJSON_AddNumberToObject(row, "lower_bound_bytes", (double)r->lower_bound_bytes);
    cJSON_AddNumberToObject(row, "capacity_bytes", (double)bytes);
    cJSON_AddNumberToObject(row, "arena_bytes", (double)r->arena_bytes);
    cJSON_AddNumberToObject(row, "ratio", ratio);
    cJSON_AddBoolToObject(row, "fits", fits);
    cJSON_AddNumberToObject(row, "seconds", seconds);
    cJSON_AddNumberToObject(row, "nodes", (double)r->nodes);
    cJSON_AddStringToObject(row, "end", weft_pack_end_text(r->end));
    cJSON_AddItemToArray(list, row);
}

/* Packs one file and prints its row. *fits becomes false if it does not fit. */
static bool pack_file(const char *folder, const char *name, double seconds, cJSON *list, bool *fits)
{
    char path[4096];
    instance in = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!capacity_of(name, &in.bytes))
        return tool_fail_text(path, "the capacity in its name overflows"), false;
    FILE *file = weft__file_open_stdio(path);
    if (!file) return tool_fail_text(path, "cannot be read: %s", weft__file_error(errno)), false;
    bool good = read_lines(path, file, &in);
    fclose(file);
    weft_pack_options options = {0};
    weft_pack_result result;
    weft_error error = {0};
    options.capacity = in.bytes;
    options.seconds = seconds;
    options.node_budget = seconds > 0 ? UINT64_MAX : NODE_BUDGET;
    double start = tool_seconds();
    if (good && weft_pack(in.items, in.n, &options, &result, &error) != WEFT_OK)
        good = (tool_fail_text(path, "%s", error.message), false);
    if (good) {
        print_row(name, &in, &result, tool_seconds() - start, list);
        *fits &= result.arena_bytes <= (in.bytes ? in.bytes : result.lower_bound_bytes);
    }
    free(in.items);
    return good;
}

/* The names of a folder's .csv files. */
typedef struct csv_names {
    char **at;
    size_t n, capacity;
    bool out_of_memory;
} csv_names;

static void add_name(void *context, const char *name)
{
    csv_names *names = context;
    if (names->out_of_memory || !tool_ends_with(name, ".csv")) return;
    if (names->n == names->capacity) {
        const size_t capacity = names->capacity ? 2 * names->capacity : 64;
        char **grown = realloc(names->at, capacity * sizeof *grown);
        names->out_of_memory = !grown;
        if (!grown) return;
        names->at = grown;
        names->capacity = capacity;
    }
    names->at[names->n] = strdup(name);
    names->out_of_memory = !names->at[names->n];
    names->n += !names->out_of_memory;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the files, sorted. False after an error, which is printed. */
static bool list_files(const char *folder, csv_names *names)
{
    errno = 0;
    weft__os_list(folder, add_name, names);
    if (names->out_of_memory) return tool_fail_text(folder, "out of memory"), false;
    if (!names->n && errno)
        return tool_fail_text(folder, "cannot be read: %s", strerror(errno)), false;
    if (!names->n) return tool_fail_text(folder, "has no .csv files"), false;
    qsort(names->at, names->n, sizeof *names->at, compare_names);
    return true;
}

int tool_pack_instances(const char *folder, double seconds, bool json)
{
    csv_names names = {0};
    bool good = list_files(folder, &names), fits = true;
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    if (good && !json)
        printf("%-20s %6s %12s %12s %12s %9s  %-4s %8s %9s\n", "name", "items", "lower bound",
               "capacity", "arena", "ratio", "fits", "seconds", "nodes");
    for (size_t i = 0; i < names.n; i++) {
        good = good && pack_file(folder, names.at[i], seconds, list, &fits);
        free(names.at[i]);
    }
    free(names.at);
    if (json && good && tool_print_json(list) != EXIT_GOOD) return EXIT_ERROR;
    if (json && !good) cJSON_Delete(list);
    return good && fits ? EXIT_GOOD : EXIT_ERROR;
}
