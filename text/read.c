/* Reads files of texts, unit by unit, as ids. */
#include "text_file.h"

#include <weft/text.h>

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    weft_text_input input;
    FILE *file; /* NULL: no such input */
    char *line;
    size_t size, length;
    int32_t *ids;
    size_t n, capacity;
    size_t lines, first_line; /* read; the first of the unit at hand */
    bool begun, no_memory;
    char *document; /* being gathered */
    size_t document_size, n_document;
} reader;

/* The next line, the first one without a byte order mark. */
static bool read_line(reader *r)
{
    if (!weft__text_read_line(r->file, &r->line, &r->size, &r->length)) return false;
    r->lines++;
    if (!r->begun) weft__text_skip_mark(r->line, &r->length);
    r->begun = true;
    return true;
}

/* Appends the line to the current document; false if out of memory. */
static bool gather(reader *r)
{
    size_t wanted = r->n_document + r->length + 2;
    if (wanted > r->document_size) {
        char *grown = realloc(r->document, 2 * wanted);
        if (!grown) return false;
        r->document = grown;
        r->document_size = 2 * wanted;
    }
    if (r->n_document) r->document[r->n_document++] = '\n';
    memcpy(r->document + r->n_document, r->line, r->length + 1);
    r->n_document += r->length;
    return true;
}

/* The next line or document into r->line. False at the end, or if out of memory. */
static bool read_unit(reader *r, weft_text_unit unit)
{
    if (unit == WEFT_TEXT_LINE) {
        r->first_line = r->lines + 1;
        return read_line(r);
    }
    r->n_document = 0;
    while (read_line(r)) {
        if (!r->length && r->n_document) break;
        if (!r->n_document) r->first_line = r->lines;
        if (r->length && !gather(r)) return !(r->no_memory = true);
    }
    if (!r->n_document) return false;
    char *line = r->line;
    size_t size = r->size;
    r->line = r->document;
    r->size = r->document_size;
    r->length = r->n_document;
    r->document = line;
    r->document_size = size;
    return true;
}

static weft_status encode(reader *r, weft_error *error)
{
    const weft_tokenizer *t = r->input.tokenizer;
    weft_status status = weft_tokenizer_encode(t, r->line, r->ids, NULL, r->capacity, &r->n, error);
    if (status != WEFT_OK || r->n <= r->capacity) return status;
    int32_t *grown = realloc(r->ids, 2 * r->n * sizeof *grown);
    if (!grown) return weft_error_set(error, WEFT_NO_MEMORY, r->input.path, "out of memory");
    r->ids = grown;
    r->capacity = 2 * r->n;
    return weft_tokenizer_encode(t, r->line, r->ids, NULL, r->capacity, &r->n, error);
}

static weft_status open_file(reader *r, weft_error *error)
{
    if (!r->input.path) return WEFT_OK;
    r->file = r->input.file ? r->input.file : weft__file_open_stdio(r->input.path);
    return r->file ? WEFT_OK
                   : weft_error_set(error, weft__file_status(errno), r->input.path,
                                    "cannot be opened: %s", weft__file_error(errno));
}

static void close_file(reader *r)
{
    if (r->file && !r->input.file) fclose(r->file);
    free(r->line);
    free(r->document);
    free(r->ids);
}

/* Checks that the files ended together and are texts; `more`: which has another unit. */
static weft_status check_end(reader *const both[2], const bool more[2], weft_text_unit unit,
                             const weft_text_counts *counts, weft_error *error)
{
    const size_t units = counts->units;
    const char *target = both[1]->input.path;
    for (int i = 0; i < 2; i++)
        if (both[i]->file && !more[i] &&
            !weft__text_at_end(both[i]->file, both[i]->input.path, error))
            return error->status;
    if (both[0]->file && more[0] != more[1])
        return weft_error_set(error, WEFT_BAD_FILE, both[more[0]]->input.path,
                              "ends after %zu lines, but %s continues", units,
                              both[more[1]]->input.path);
    if (!units) return weft_error_set(error, WEFT_BAD_FILE, target, "has no line");
    if (2 * counts->invalid.n > units)
        return weft_error_set(error, WEFT_BAD_FILE, target,
                              "is not a text in UTF-8: %zu of %zu %s are not", counts->invalid.n,
                              units, unit == WEFT_TEXT_LINE ? "lines" : "documents");
    return WEFT_OK;
}

/* Adds the code points of the target, if it has 1 to max_tokens ids. */
static weft_status count_characters(const reader *target, size_t max_tokens,
                                    weft_text_counts *counts, weft_error *error)
{
    size_t characters;
    if (!target->n || target->n > max_tokens) return WEFT_OK;
    const weft_status status =
        weft_tokenizer_characters(target->input.tokenizer, target->line, &characters, error);
    if (status == WEFT_OK) counts->characters += characters + 1;
    return status;
}

/* What is done with the units: the arguments of weft_text_read. */
typedef struct reading {
    const weft_text_files *files;
    weft_text_take *take;
    void *context;
    weft_text_counts *counts;
} reading;

static weft_status take_pair(const reading *o, reader *source, reader *target, weft_error *error)
{
    if ((source->file && !weft_text_is_utf8(source->line, source->length)) ||
        !weft_text_is_utf8(target->line, target->length)) {
        weft__text_list_line(&o->counts->invalid, target->first_line);
        return WEFT_OK;
    }
    weft_status status = source->file ? encode(source, error) : WEFT_OK;
    if (status == WEFT_OK) status = encode(target, error);
    if (status != WEFT_OK) return status;
    status = o->take(o->context, source->ids, source->n, target->ids, target->n);
    if (status != WEFT_OK)
        return weft_error_set(error, status, target->input.path, "%s", weft_status_text(status));
    return count_characters(target, o->files->max_tokens, o->counts, error);
}

static weft_status read_all(const reading *o, reader *source, reader *target, weft_error *error)
{
    reader *const both[2] = {source, target};
    const weft_text_unit unit = o->files->unit;
    for (;;) {
        const bool more[2] = {source->file && read_unit(source, unit), read_unit(target, unit)};
        if (source->no_memory || target->no_memory)
            return weft_error_set(error, WEFT_NO_MEMORY, target->input.path, "out of memory");
        if (!more[1] || (source->file && !more[0]))
            return check_end(both, more, unit, o->counts, error);
        o->counts->units++;
        const weft_status status = take_pair(o, source, target, error);
        if (status != WEFT_OK) return status;
    }
}

weft_status weft_text_read(const weft_text_files *files, weft_text_take *take, void *context,
                           weft_text_counts *counts, weft_error *error)
{
    weft_text_counts unused;
    weft_error own = {.status = WEFT_OK};
    if (!counts) counts = &unused;
    if (!error) error = &own;
    weft_error_clear(error);
    *counts = (weft_text_counts){.units = 0};
    if (!files || !take || !files->target.path || !files->target.tokenizer ||
        (files->source.path && !files->source.tokenizer))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "texts",
                              "reading needs a target, its tokeniser, and what takes the ids");
    const reading o = {files, take, context, counts};
    reader source = {.input = files->source}, target = {.input = files->target};
    weft_status status = open_file(&source, error);
    if (status == WEFT_OK) status = open_file(&target, error);
    if (status == WEFT_OK) status = read_all(&o, &source, &target, error);
    close_file(&source);
    close_file(&target);
    return status;
}
