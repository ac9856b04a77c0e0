/* weft embed: embeddings of the lines of standard input, and the nearest lines. */
#include "decoding/run.h"
#include "system.h"
#include "text/line_numbers.h"
#include "text/nearest.h"
#include "text_file.h"

#include "base/file.h"

#include <weft/embed.h>
#include <weft/huggingface.h>
#include <weft/numpy.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024 /* lines that are embedded at a time */

/* In the order of weft_pooling. */
#define POOLINGS "mean|first|max|root"

typedef struct arguments {
    const char *folder, *checkpoint, *out, *query;
    long nearest, max_len, batch;
    int threads;
    weft_pooling pooling;
    bool pooling_given, normalize;
} arguments;

static void take_pooling(const tool_option *option, void *into, char *text,
                         const tool_parser *parser)
{
    static const char *const names[] = {"mean", "first", "max", "root"};
    arguments *a = into;
    (void)option;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], text) != 0) continue;
        a->pooling = (weft_pooling)i;
        a->pooling_given = true;
        return;
    }
    tool_usage_error(parser, "--pooling \"%s\" is invalid; expected one of " POOLINGS, text);
}

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->query && !a->nearest) tool_usage_error(parser, "--query needs --nearest");
    if (a->out && !tool_ends_with(a->out, ".npy"))
        tool_usage_error(parser, "-o %s: expected a name that ends with .npy", a->out);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {TOOL_ONE(arguments, folder, "FOLDER"), .required = true},
    {"output", "FILE.npy", FIELD(out),
     "write the embeddings as an array [lines, width], not as JSON", .letter = 'o', .group = 1},
    {"nearest", "N", FIELD(nearest),
     "print the N nearest of the other lines for each line: line, line, cosine and text, separated "
     "by tabs",
     1, 1 << 20, .group = 1},
    {"query", "TEXT", FIELD(query), "print those nearest to TEXT only: line, cosine and text",
     .group = 1},
    {"pooling", POOLINGS, TOOL_INTO(arguments, pooling, take_pooling),
     "of the vectors of all tokens: their mean, the first, the largest elements, or the sum "
     "divided by the root of their number (default: as the model was published, or mean)",
     .group = 2},
    {"normalize", NULL, FIELD(normalize),
     "to a length of 1 (default: as the model was published, or not)", .group = 2},
    {"max-length", "N", FIELD(max_len),
     "cut texts after N tokens (default: as the model was published, or its positions)", 1, 1 << 20,
     .group = 2},
    {"checkpoint", "FILE", FIELD(checkpoint), "parameters (default: those of FOLDER)", .group = 3},
    {"batch", "N", FIELD(batch), "maximum number of lines in a batch", 1, 65536, .group = 3},
    {"threads", "N", FIELD(threads), "threads (default: all)", 0, 1024, .group = 3},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "FOLDER",
    .doc = "Prints the embedding of each line of standard input as a line of JSON: a vector, by an "
           "encoder such as BERT that `weft convert` has converted, whose cosine with that of "
           "another line says how near their meanings are. An empty line is a text too.",
    .check = check};

/* ---- Texts ---- */

typedef struct embedding {
    const arguments *a;
    trained_run run;
    weft_embedder *embedder;
    size_t width, max_len;
    char **texts;                  /* [n] */
    float *vectors;                /* [n][width] */
    size_t n, capacity, done, cut; /* done: those that have vectors */
    weft_text_lines invalid;
    weft_error error;
} embedding;

static bool no_memory(embedding *e)
{
    weft_error_set(&e->error, WEFT_NO_MEMORY, "embed", "out of memory");
    return false;
}

/* Reads how the model was published, in the folder that has its vocabulary. */
static bool read_published(embedding *e, weft_huggingface_embedding *published)
{
    char folder[FILE_PATH_BYTES];
    return trained_folder(&e->run, folder, &e->error) &&
           weft_huggingface_read_embedding(folder, published, &e->error) == WEFT_OK;
}

static bool load(embedding *e)
{
    const arguments *a = e->a;
    weft_huggingface_embedding published;
    if (!trained_open(&e->run, a->folder, a->checkpoint, &e->error) ||
        !read_published(e, &published))
        return false;
    const int64_t positions = e->run.traits.max_positions;
    weft_embedder_options o = {.pooling = published.pooling,
                               .normalize = published.normalize,
                               .max_len = published.max_len,
                               .rows = a->batch,
                               .session.threads = a->threads};
    if (o.max_len > positions) o.max_len = positions;
    if (a->max_len) o.max_len = a->max_len;
    if (a->pooling_given) o.pooling = a->pooling;
    o.normalize |= a->normalize;
    e->embedder = weft_embedder_new(&e->run.config, e->run.params, &o, &e->error);
    e->width = (size_t)weft_embedder_width(e->embedder);
    e->max_len = (size_t)weft_embedder_max_len(e->embedder);
    return e->embedder != NULL;
}

/* Makes room for one more text; takes `text`. */
static bool add_text(embedding *e, char *text)
{
    if (e->n == e->capacity) {
        const size_t capacity = e->capacity ? 2 * e->capacity : 64;
        char **texts = realloc(e->texts, capacity * sizeof *texts);
        if (texts) e->texts = texts;
        float *vectors = texts ? realloc(e->vectors, capacity * e->width * sizeof *vectors) : NULL;
        if (vectors) e->vectors = vectors;
        if (!vectors) {
            free(text);
            return no_memory(e);
        }
        e->capacity = capacity;
    }
    e->texts[e->n++] = text;
    return true;
}

/* The ids of a text, which loses its end if it is too long. */
static bool encode(embedding *e, const char *text, weft_embedder_row *row)
{
    encoded_text ids;
    if (!trained_encode(&e->run, TEXT_TARGET, text, &ids, &e->error)) return false;
    row->tokens = ids.ids;
    row->length = ids.n;
    if (ids.n <= e->max_len) return true;
    const size_t around = ids.before + ids.after, extra = ids.n - e->max_len;
    const size_t cut = extra < ids.n - around ? extra : ids.n - around;
    memmove(ids.ids + ids.n - ids.after - cut, ids.ids + ids.n - ids.after,
            ids.after * sizeof *ids.ids);
    row->length -= cut;
    e->cut++;
    return true;
}

/* Computes the vectors of the texts that have none. */
static bool embed(embedding *e)
{
    const size_t n = e->n - e->done;
    weft_embedder_row *rows = calloc(n + 1, sizeof *rows);
    bool good = rows || no_memory(e);
    for (size_t i = 0; good && i < n; i++) {
        rows[i].embedding = e->vectors + (e->done + i) * e->width;
        good = encode(e, e->texts[e->done + i], &rows[i]);
    }
    good = good && weft_embedder_run(e->embedder, rows, n, &e->error) == WEFT_OK;
    for (size_t i = 0; rows && i < n; i++) free((void *)(uintptr_t)rows[i].tokens);
    free(rows);
    e->done = e->n;
    return good;
}

/* ---- Output ---- */

/* A line of JSON, with as many digits as a float needs. */
static bool print_json(embedding *e, const char *text, const float *vector)
{
    const bool valid = weft_text_is_utf8(text, strlen(text));
    cJSON *string = valid ? cJSON_CreateString(text) : cJSON_CreateNull();
    char *quoted = tool_json_text(string, false);
    if (!quoted) return no_memory(e);
    printf("{\"text\":%s,\"embedding\":[", quoted);
    cJSON_free(quoted);
    for (size_t i = 0; i < e->width; i++) printf("%s%.9g", i ? "," : "", (double)vector[i]);
    if (printf("]}\n") > 0 && fflush(stdout) == 0) return true;
    weft_error_set(&e->error, WEFT_IO, "output", "cannot be written: %s", strerror(errno));
    return false;
}

/* Reads all lines. Those that are printed as JSON are forgotten. */
static bool read_all(embedding *e)
{
    const bool json = !e->a->out && !e->a->nearest;
    const size_t chunk = system_is_terminal(stdin) && json ? 1 : CHUNK;
    char *line = NULL;
    size_t capacity = 0, length, number = 0;
    bool good = true, more = true;
    while (good && more) {
        while (good && e->n - e->done < chunk &&
               (more = weft__text_read_line(stdin, &line, &capacity, &length))) {
            if (!weft_text_is_utf8(line, length)) weft__text_list_line(&e->invalid, number + 1);
            number++;
            for (size_t i = 0; i < length; i++)
                if (!line[i]) line[i] = ' ';
            good = add_text(e, line);
            line = NULL;
            capacity = 0;
        }
        good = good && embed(e);
        for (size_t i = 0; json && i < e->n; i++) {
            good = good && print_json(e, e->texts[i], e->vectors + i * e->width);
            free(e->texts[i]);
        }
        if (json) e->n = e->done = 0;
    }
    free(line);
    return good && weft__text_at_end(stdin, "input", &e->error);
}

static void print_text(const char *text)
{
    char safe[TOOL_NAME_BYTES];
    printf("\t%s\n", tool_printable(text, safe));
}

/* Prints the nearest of a vector; `line` is its own, or n for the query. */
static bool print_nearest(embedding *e, const float *vector, size_t line, near_line *found)
{
    const size_t n =
        nearest_find(e->vectors, e->n, e->width, vector, line, found, (size_t)e->a->nearest);
    for (size_t i = 0; i < n; i++) {
        if (line < e->n) printf("%zu\t", line + 1);
        printf("%zu\t%.6f", found[i].line + 1, found[i].cosine);
        print_text(e->texts[found[i].line]);
    }
    return true;
}

static bool print_all_nearest(embedding *e)
{
    const size_t most = (size_t)e->a->nearest < e->n ? (size_t)e->a->nearest : e->n;
    near_line *found = calloc(most + 1, sizeof *found);
    float *vector = calloc(e->width + 1, sizeof *vector);
    bool good = (found && vector) || no_memory(e);
    if (good && e->a->query) {
        weft_embedder_row row = {.embedding = vector};
        good = encode(e, e->a->query, &row) &&
               weft_embedder_run(e->embedder, &row, 1, &e->error) == WEFT_OK &&
               print_nearest(e, vector, e->n, found);
        free((void *)(uintptr_t)row.tokens);
    }
    for (size_t i = 0; good && !e->a->query && i < e->n; i++)
        good = print_nearest(e, e->vectors + i * e->width, i, found);
    free(found);
    free(vector);
    return good;
}

static bool write_results(embedding *e)
{
    const weft_tensor all =
        weft_tensor_dense(e->vectors, WEFT_F32, WEFT_SHAPE((int64_t)e->n, (int64_t)e->width));
    if (e->a->out && (tool_check_output(e->a->out, e->a->folder, &e->error) != WEFT_OK ||
                      weft_npy_save(&all, e->a->out, &e->error) != WEFT_OK))
        return false;
    return !e->a->nearest || print_all_nearest(e);
}

static void close_all(embedding *e)
{
    for (size_t i = 0; i < e->n; i++) free(e->texts[i]);
    free(e->texts);
    free(e->vectors);
    weft_embedder_free(e->embedder);
    trained_close(&e->run);
}

int cmd_embed(int argc, char **argv)
{
    arguments a = {.batch = 32};
    char list[LINE_NUMBERS_TEXT];
    tool_parse(&command, argc, argv, &a);
    embedding e = {.a = &a};
    const bool good = load(&e) && read_all(&e) && write_results(&e);
    if (e.invalid.n)
        fprintf(stderr, "weft: not UTF-8 (invalid bytes were read as unknown): %s\n",
                line_numbers_text(&e.invalid, list));
    if (e.cut)
        fprintf(stderr, "weft: %zu texts had more than %zu tokens; their end was cut\n", e.cut,
                e.max_len);
    const int status = good ? EXIT_GOOD : tool_fail(&e.error);
    close_all(&e);
    return status;
}
