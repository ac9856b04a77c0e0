/* See texts.h. */
#include "texts.h"

#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

spm *texts_vocabulary(const char *path, weft_error *error)
{
    char message[256] = "";
    spm *s = spm_load(path, message, sizeof message);
    if (!s) weft_error_set(error, WEFT_BAD_FILE, path, "%s", message);
    return s;
}

typedef struct reader {
    const char *path;
    FILE *file;
    const spm *vocabulary;
    char *line;
    size_t size, length;
    int32_t *ids;
    size_t n, capacity;
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

/* Every byte of UTF-8 but those that go on with a character begins one. */
static size_t code_points(const reader *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->length; i++) n += ((unsigned char)r->line[i] & 0xC0) != 0x80;
    return n;
}

/* The next line, the first one without a byte order mark. */
static bool read_line(reader *r, bool first)
{
    if (!texts_read_line(r->file, &r->line, &r->size, &r->length)) return false;
    if (first && r->length >= 3 && !memcmp(r->line, "\xEF\xBB\xBF", 3)) {
        r->length -= 3;
        memmove(r->line, r->line + 3, r->length + 1);
    }
    return true;
}

static bool encode(reader *r)
{
    r->n = spm_encode(r->vocabulary, r->line, r->ids, r->capacity);
    if (r->n <= r->capacity) return true;
    int32_t *grown = realloc(r->ids, 2 * r->n * sizeof *grown);
    if (!grown) return false;
    r->ids = grown;
    r->capacity = 2 * r->n;
    r->n = spm_encode(r->vocabulary, r->line, r->ids, r->capacity);
    return true;
}

static weft_status open_file(reader *r, weft_error *error)
{
    r->file = r->path ? fopen(r->path, "r") : NULL;
    if (r->file || !r->path) return WEFT_OK;
    return weft_error_set(error, WEFT_IO, r->path, "cannot be opened: %s", strerror(errno));
}

static weft_status check_end(const reader *a, const reader *b, bool more_a, bool more_b,
                             size_t lines, weft_error *error)
{
    const reader *const both[2] = {a, b};
    for (int i = 0; i < 2; i++)
        if (both[i]->file && !(i ? more_b : more_a) &&
            !tool_at_end(both[i]->file, both[i]->path, error))
            return error->status;
    if (a->file && more_a != more_b)
        return weft_error_set(error, WEFT_BAD_FILE, more_a ? b->path : a->path,
                              "ends after %zu lines, %s goes on", lines,
                              more_a ? a->path : b->path);
    if (!lines) return weft_error_set(error, WEFT_BAD_FILE, b->path, "has no line");
    return WEFT_OK;
}

static weft_status read_all(weft_corpus *corpus, reader *source, reader *target, size_t most_tokens,
                            texts_counts *counts, weft_error *error)
{
    for (;;) {
        bool first = counts->lines == 0;
        bool more_a = source->file && read_line(source, first), more_b = read_line(target, first);
        if (!more_b || (source->file && !more_a))
            return check_end(source, target, more_a, more_b, counts->lines, error);
        counts->lines++;
        if ((source->file && !texts_is_utf8(source->line, source->length)) ||
            !texts_is_utf8(target->line, target->length)) {
            counts->invalid++;
            continue;
        }
        weft_status status = WEFT_NO_MEMORY;
        if ((!source->file || encode(source)) && encode(target))
            status = weft_corpus_add(corpus, source->ids, source->n, target->ids, target->n);
        if (status != WEFT_OK) return weft_error_set(error, status, target->path, "out of memory");
        if (target->n && target->n <= most_tokens) counts->characters += code_points(target) + 1;
    }
}

weft_status texts_read(weft_corpus *corpus, const char *source_path, const spm *source_vocabulary,
                       const char *target_path, const spm *target_vocabulary, size_t most_tokens,
                       texts_counts *counts, weft_error *error)
{
    reader both[2] = {{.path = source_path, .vocabulary = source_vocabulary},
                      {.path = target_path, .vocabulary = target_vocabulary}};
    *counts = (texts_counts){0, 0, 0};
    weft_status status = open_file(&both[0], error);
    if (status == WEFT_OK) status = open_file(&both[1], error);
    if (status == WEFT_OK)
        status = read_all(corpus, &both[0], &both[1], most_tokens, counts, error);
    for (int i = 0; i < 2; i++) {
        if (both[i].file) fclose(both[i].file);
        free(both[i].line);
        free(both[i].ids);
    }
    return status;
}
