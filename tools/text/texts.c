/* See texts.h. */
#include "texts.h"

#include "streams.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *path;
    FILE *file;
    const spm *vocabulary;
    char *line;
    size_t size, length;
    int32_t *ids;
    size_t n, capacity;
    size_t lines, first_line; /* read; the first of the unit at hand */
    bool begun, no_memory;
    char *document; /* being gathered */
    size_t document_size, n_document;
} reader;

bool texts_read_line(FILE *file, char **line, size_t *capacity, size_t *length)
{
    ssize_t n = getline(line, capacity, file);
    if (n < 0) return false;
    *length = (size_t)n;
    if (*length && (*line)[*length - 1] == '\n') --*length;
    if (*length && (*line)[*length - 1] == '\r') --*length;
    (*line)[*length] = 0;
    return true;
}

bool texts_is_utf8(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + length;
    while (s < end) {
        size_t more = *s >= 0xF0 ? 3 : *s >= 0xE0 ? 2 : *s >= 0xC0 ? 1 : 0;
        if (!*s || (*s >= 0x80 && *s < 0xC2) || *s > 0xF4 || (size_t)(end - s) <= more)
            return false;
        for (size_t i = 1; i <= more; i++)
            if ((s[i] & 0xC0) != 0x80) return false;
        if ((*s == 0xE0 && s[1] < 0xA0) || (*s == 0xED && s[1] > 0x9F) ||
            (*s == 0xF0 && s[1] < 0x90) || (*s == 0xF4 && s[1] > 0x8F))
            return false;
        s += more + 1;
    }
    return true;
}

void texts_clean(char *text, bool lines)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        const unsigned char *c = (const unsigned char *)at;
        size_t bytes = 0; /* bytes of a character that becomes a space */
        if ((c[0] < ' ' && c[0] != '\t' && !(lines && c[0] == '\n')) || c[0] == 0x7F) bytes = 1;
        if (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) bytes = 2;
        if (c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9)) bytes = 3;
        *to = bytes ? ' ' : *at;
        at += bytes ? bytes : 1;
    }
    *to = 0;
}

void texts_number(texts_numbers *numbers, size_t line)
{
    if (numbers->n < TEXTS_LISTED) numbers->at[numbers->n] = line;
    numbers->n++;
}

const char *texts_numbers_text(const texts_numbers *numbers, char text[TEXTS_NUMBERS_TEXT])
{
    bool all = numbers->n <= TEXTS_LISTED;
    text[0] = 0;
    if (!all) tool_append(text, TEXTS_NUMBERS_TEXT, "%zu lines: ", numbers->n);
    if (all) tool_append(text, TEXTS_NUMBERS_TEXT, "line%s ", numbers->n == 1 ? "" : "s");
    for (size_t i = 0; i < numbers->n && i < TEXTS_LISTED; i++)
        tool_append(text, TEXTS_NUMBERS_TEXT, "%s%zu", i ? ", " : "", numbers->at[i]);
    if (!all) tool_append(text, TEXTS_NUMBERS_TEXT, ", ...");
    return text;
}

/* The next line, the first one without a byte order mark. */
static bool read_line(reader *r)
{
    if (!texts_read_line(r->file, &r->line, &r->size, &r->length)) return false;
    r->lines++;
    if (!r->begun && r->length >= 3 && !memcmp(r->line, "\xEF\xBB\xBF", 3)) {
        r->length -= 3;
        memmove(r->line, r->line + 3, r->length + 1);
    }
    r->begun = true;
    return true;
}

/* Appends the line to the current document; false when memory is out. */
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

/* The next line or document into r->line. False at the end, or when memory is out. */
static bool read_unit(reader *r, texts_unit unit)
{
    if (unit == TEXTS_LINE) {
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
    weft_status status = spm_encode(r->vocabulary, r->line, r->ids, r->capacity, &r->n, error);
    if (status != WEFT_OK || r->n <= r->capacity) return status;
    int32_t *grown = realloc(r->ids, 2 * r->n * sizeof *grown);
    if (!grown) return weft_error_set(error, WEFT_NO_MEMORY, r->path, "out of memory");
    r->ids = grown;
    r->capacity = 2 * r->n;
    return spm_encode(r->vocabulary, r->line, r->ids, r->capacity, &r->n, error);
}

static weft_status open_file(reader *r, weft_error *error)
{
    r->file = r->path ? stream_open(r->path, error) : NULL;
    return r->file || !r->path ? WEFT_OK : error->status;
}

static weft_status check_end(const reader *a, const reader *b, bool more_a, bool more_b,
                             texts_unit unit, const texts_counts *counts, weft_error *error)
{
    const size_t lines = counts->units;
    const reader *const both[2] = {a, b};
    for (int i = 0; i < 2; i++)
        if (both[i]->file && !(i ? more_b : more_a) &&
            !stream_at_end(both[i]->file, both[i]->path, error))
            return error->status;
    if (a->file && more_a != more_b)
        return weft_error_set(error, WEFT_BAD_FILE, more_a ? b->path : a->path,
                              "ends after %zu lines, but %s continues", lines,
                              more_a ? a->path : b->path);
    if (!lines) return weft_error_set(error, WEFT_BAD_FILE, b->path, "has no line");
    if (2 * counts->invalid.n > lines)
        return weft_error_set(error, WEFT_BAD_FILE, b->path,
                              "is not a text in UTF-8: %zu of %zu %s are not", counts->invalid.n,
                              lines, unit == TEXTS_LINE ? "lines" : "documents");
    return WEFT_OK;
}

static weft_status read_all(weft_corpus *corpus, reader *source, reader *target, texts_unit unit,
                            size_t max_tokens, texts_counts *counts, weft_error *error)
{
    for (;;) {
        bool more_a = source->file && read_unit(source, unit), more_b = read_unit(target, unit);
        if (source->no_memory || target->no_memory)
            return weft_error_set(error, WEFT_NO_MEMORY, target->path, "out of memory");
        if (!more_b || (source->file && !more_a))
            return check_end(source, target, more_a, more_b, unit, counts, error);
        counts->units++;
        if ((source->file && !texts_is_utf8(source->line, source->length)) ||
            !texts_is_utf8(target->line, target->length)) {
            texts_number(&counts->invalid, target->first_line);
            continue;
        }
        weft_status status = source->file ? encode(source, error) : WEFT_OK;
        if (status == WEFT_OK) status = encode(target, error);
        if (status != WEFT_OK) return status;
        status = weft_corpus_add(corpus, source->ids, source->n, target->ids, target->n);
        if (status != WEFT_OK)
            return weft_error_set(error, status, target->path, "%s", weft_status_text(status));
        if (!target->n || target->n > max_tokens) continue;
        size_t characters;
        status = spm_characters(target->vocabulary, target->line, &characters, error);
        if (status != WEFT_OK) return status;
        counts->characters += characters + 1;
    }
}

weft_status texts_read(weft_corpus *corpus, const char *source_path, const spm *source_vocabulary,
                       const char *target_path, const spm *target_vocabulary, texts_unit unit,
                       size_t max_tokens, texts_counts *counts, weft_error *error)
{
    reader both[2] = {{.path = source_path, .vocabulary = source_vocabulary},
                      {.path = target_path, .vocabulary = target_vocabulary}};
    *counts = (texts_counts){0};
    weft_status status = open_file(&both[0], error);
    if (status == WEFT_OK) status = open_file(&both[1], error);
    if (status == WEFT_OK)
        status = read_all(corpus, &both[0], &both[1], unit, max_tokens, counts, error);
    for (int i = 0; i < 2; i++) {
        stream_close(both[i].file);
        free(both[i].line);
        free(both[i].document);
        free(both[i].ids);
    }
    return status;
}
