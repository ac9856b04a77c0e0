/* Reads the texts to score, with their sources, as tokens. See logprob.h. */
#include "logprob.h"
#include "text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool logprob_no_memory(logprob *p)
{
    weft_error_set(&p->error, WEFT_NO_MEMORY, "logprob", "out of memory");
    return false;
}

/* The next line, the first one without a byte order mark; false at the end and on an error. */
static bool read_line(logprob *p, line_reader *r)
{
    if (!weft__text_read_line(r->file, &r->line, &r->capacity, &r->length)) {
        weft__text_at_end(r->file, r->path, &p->error);
        return false;
    }
    if (!r->lines++) weft__text_skip_mark(r->line, &r->length);
    return true;
}

/* A copy with zeros as spaces, which the caller frees; *whole becomes false if it is empty or not
 * UTF-8. */
static char *copy_line(logprob *p, const line_reader *r, bool *whole)
{
    char *copy = malloc(r->length + 1);
    if (!copy) {
        logprob_no_memory(p);
        return NULL;
    }
    bool valid = weft_text_is_utf8(r->line, r->length);
    if (!valid) weft__text_list_line(&p->invalid, r->lines);
    *whole = *whole && valid && r->length;
    for (size_t i = 0; i < r->length; i++) copy[i] = r->line[i] ? r->line[i] : ' ';
    copy[r->length] = 0;
    return copy;
}

/* Reads a document as the next line of the reader: the lines up to an empty one, with the line ends
 * between them, as texts_read does. */
static bool read_document(logprob *p, line_reader *r)
{
    char *all = NULL;
    size_t length = 0;
    while (read_line(p, r)) {
        if (!r->length && length) break;
        if (!r->length) continue;
        char *grown = realloc(all, length + r->length + 2);
        if (!grown) {
            free(all);
            return logprob_no_memory(p);
        }
        all = grown;
        if (length) all[length++] = '\n';
        memcpy(all + length, r->line, r->length + 1);
        length += r->length;
    }
    if (!all) return false;
    free(r->line);
    r->line = all;
    r->length = length;
    r->capacity = length + 2;
    return p->error.status == WEFT_OK;
}

/* Reads the number of a source and the text from LINE ||| TEXT ||| SCORE. */
static bool split_nbest(logprob *p, scored_text *t)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(t->line, &end, 10);
    bool begins = t->line[0] >= '0' && t->line[0] <= '9' && !errno &&
                  !strncmp(end, NBEST_SEPARATOR, strlen(NBEST_SEPARATOR));
    const char *text = begins ? end + strlen(NBEST_SEPARATOR) : NULL;
    const char *after = begins ? strstr(text, NBEST_SEPARATOR) : NULL;
    if (!after) {
        weft_error_set(&p->error, WEFT_BAD_FILE, p->input.path,
                       "line %zu is not LINE ||| TEXT ||| SCORE", p->input.lines);
        return false;
    }
    t->number = (size_t)number;
    t->text = malloc((size_t)(after - text) + 1);
    if (!t->text) return logprob_no_memory(p);
    snprintf(t->text, (size_t)(after - text) + 1, "%s", text);
    if (!p->has_source || (number >= 1 && number <= p->n_sources)) return true;
    weft_error_set(&p->error, WEFT_BAD_FILE, p->input.path,
                   "line %zu names source line %llu, but %s has %zu lines", p->input.lines, number,
                   p->source.path, p->n_sources);
    return false;
}

/* Whether the model has positions for the tokens of line `line` of a file. */
static bool fits(logprob *p, const char *path, size_t line, size_t tokens)
{
    if (!p->has_source || tokens <= (size_t)p->most) return true;
    weft_error_set(
        &p->error, WEFT_TOO_LARGE, path,
        "line %zu has %zu tokens, its end included, but %s has only %lld learned positions", line,
        tokens, p->run.model->name, (long long)p->most);
    return false;
}

static bool encode_text(logprob *p, scored_text *t, const char *source)
{
    size_t line = p->a->nbest ? t->number : p->source.lines;
    encoded_text target, from = {.ids = NULL};
    if (!trained_encode(&p->run, TEXT_TARGET, t->text, &target, &p->error)) return false;
    t->ids = target.ids;
    t->n_ids = target.n;
    t->ended = target.after > 0;
    if (!fits(p, p->input.path, p->input.lines, scored_tokens(t))) return false;
    if (source) {
        if (!trained_encode(&p->run, TEXT_SOURCE, source, &from, &p->error)) return false;
        t->source = from.ids;
        t->n_source = from.n;
        if (!fits(p, p->source.path, line, t->n_source)) return false;
    }
    size_t longest = t->n_source > scored_tokens(t) ? t->n_source : scored_tokens(t);
    size_t trained = (size_t)(p->has_source ? p->run.trained_len : p->context);
    p->beyond += trained && longest > trained;
    t->whole = t->whole && target.n > target.before + target.after &&
               (!source || from.n > from.before + from.after);
    t->scores = calloc(t->n_ids + 1, sizeof *t->scores);
    return t->scores || logprob_no_memory(p);
}

/* Reads the source of the line just read; NULL at the end and on an error. */
static char *next_source(logprob *p, bool *whole)
{
    if (read_line(p, &p->source)) return copy_line(p, &p->source, whole);
    if (p->error.status == WEFT_OK)
        weft_error_set(&p->error, WEFT_BAD_FILE, p->source.path,
                       "ends after %zu lines, but %s continues", p->source.lines, p->input.path);
    return NULL;
}

bool logprob_read(logprob *p)
{
    bool documents = p->run.documents && !p->has_source && !p->a->nbest;
    if (!(documents ? read_document(p, &p->input) : read_line(p, &p->input))) return false;
    scored_text *t = &p->texts[p->n++];
    *t = (scored_text){.number = ++p->read, .whole = true};
    t->text = t->line = copy_line(p, &p->input, &t->whole);
    if (!t->line || (p->a->nbest && !split_nbest(p, t))) return false;
    if (!p->has_source) return encode_text(p, t, NULL);
    if (p->a->nbest) return encode_text(p, t, p->sources[t->number - 1]);
    char *source = next_source(p, &t->whole);
    bool good = source && encode_text(p, t, source);
    free(source);
    return good;
}

void logprob_clear(logprob *p)
{
    for (size_t i = 0; i < p->n; i++) {
        scored_text *t = &p->texts[i];
        if (t->text != t->line) free(t->text);
        free(t->line);
        free(t->source);
        free(t->ids);
        free(t->scores);
    }
    p->n = 0;
}

bool logprob_sources(logprob *p)
{
    size_t capacity = 0;
    while (read_line(p, &p->source)) {
        if (p->n_sources == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            char **grown = realloc(p->sources, capacity * sizeof *grown);
            if (!grown) return logprob_no_memory(p);
            p->sources = grown;
        }
        bool whole = true;
        p->sources[p->n_sources] = copy_line(p, &p->source, &whole);
        if (!p->sources[p->n_sources]) return false;
        p->n_sources++;
    }
    return p->error.status == WEFT_OK;
}

bool logprob_check_end(logprob *p)
{
    if (p->source.file && !p->a->nbest && read_line(p, &p->source))
        weft_error_set(&p->error, WEFT_BAD_FILE, p->input.path,
                       "ends after %zu lines, but %s continues", p->input.lines, p->source.path);
    return p->error.status == WEFT_OK;
}
