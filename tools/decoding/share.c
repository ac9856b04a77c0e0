/* See share.h. A rank that fails alone need not notify the others: when its program ends, all
 * processes end. */
#include "share.h"

#include "parallel.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "decoding", "out of memory");
    return false;
}

bool share_agree(weft_error *error)
{
    weft_error first = WEFT_NO_ERROR;
    if (tool_world()) {
        weft_communicator_agree(tool_world(), error, &first);
        *error = first;
    }
    return error->status == WEFT_OK;
}

/* Sends send_bytes[r] of `sent` to each rank r and receives receive_bytes[r]. */
static bool send_all(const void *sent, const size_t *send_bytes, void *received,
                     const size_t *receive_bytes, weft_error *error)
{
    const weft_exchange x = {.kind = WEFT_ALL_TO_ALL,
                             .send = sent,
                             .receive = received,
                             .send_bytes = send_bytes,
                             .receive_bytes = receive_bytes};
    return weft_communicator_run(tool_world(), &x, error) == WEFT_OK;
}

/* ---- Lines ---- */

/* The lines of a rank, as texts with their zeros. */
typedef struct text_range {
    size_t first, lines; /* of those that rank 0 has read */
    size_t number;       /* of the first line */
    size_t bytes;
} text_range;

/* Divides the lines among the ranks; the first ones get one more. */
static void divide(const text_lines *lines, text_range *of, size_t ranks)
{
    size_t first = 0;
    for (size_t r = 0; r < ranks; r++) {
        of[r] = (text_range){.first = first, .lines = lines->n / ranks + (r < lines->n % ranks)};
        if (of[r].lines) of[r].number = lines->line[first].number;
        for (size_t i = 0; i < of[r].lines; i++)
            of[r].bytes += strlen(lines->line[first + i].text) + 1;
        first += of[r].lines;
    }
}

/* Packs the texts of the other ranks and removes these lines. NULL on failure. */
static char *pack(text_lines *lines, const text_range *of, size_t ranks)
{
    size_t bytes = 0, at = 0;
    for (size_t r = 1; r < ranks; r++) bytes += of[r].bytes;
    char *texts = malloc(bytes + 1);
    if (!texts) return NULL;
    for (size_t i = of[0].lines; i < lines->n; i++) {
        const size_t length = strlen(lines->line[i].text) + 1;
        memcpy(texts + at, lines->line[i].text, length);
        at += length;
        free(lines->line[i].text);
    }
    lines->n = of[0].lines;
    return texts;
}

/* Makes lines of the texts. */
static bool unpack(text_lines *lines, const text_range *own, const char *texts)
{
    lines->line = calloc(own->lines + 1, sizeof *lines->line);
    lines->capacity = own->lines + 1;
    while (lines->line && lines->n < own->lines) {
        char *text = strdup(texts);
        if (!text) return false;
        lines->line[lines->n] = (text_line){.text = text, .number = own->number + lines->n};
        lines->n++;
        texts += strlen(texts) + 1;
    }
    return lines->line != NULL;
}

/* Sends each rank but the first the texts of its share. */
static bool send_texts(text_lines *lines, const text_range *of, weft_error *error)
{
    const size_t ranks = (size_t)tool_world()->size, rank = (size_t)tool_world()->rank;
    size_t *bytes = calloc(2 * ranks, sizeof *bytes);
    char *sent = rank == 0 ? pack(lines, of, ranks) : NULL;
    char *received = rank == 0 ? NULL : malloc(of[rank].bytes + 1);
    bool good = (bytes && (sent || received)) || no_memory(error);
    for (size_t r = 1; good && rank == 0 && r < ranks; r++) bytes[r] = of[r].bytes;
    if (good && rank) bytes[ranks] = of[rank].bytes;
    good = good && send_all(sent, bytes, received, bytes + ranks, error) &&
           (rank == 0 || unpack(lines, &of[rank], received) || no_memory(error));
    free(bytes);
    free(sent);
    free(received);
    return good;
}

bool share_lines(text_lines *lines, size_t *all, weft_error *error)
{
    weft_communicator *world = tool_world();
    *all = lines->n;
    if (!world) return error->status == WEFT_OK;
    const size_t ranks = (size_t)world->size;
    text_range *of = calloc(2 * ranks, sizeof *of), *sent = of ? of + ranks : NULL;
    if (!of) no_memory(error);
    if (of && world->rank == 0) divide(lines, sent, ranks);
    const weft_exchange x = {
        .kind = WEFT_BROADCAST, .send = sent, .receive = of, .bytes = ranks * sizeof *of};
    bool good = share_agree(error) && weft_communicator_run(world, &x, error) == WEFT_OK;
    *all = 0;
    for (size_t r = 0; good && r < ranks; r++) *all += of[r].lines;
    good = good && (!*all || send_texts(lines, of, error));
    free(of);
    return good;
}

/* ---- Results ---- */

/* Exchanges the text for those of all ranks, concatenated, of x->receive_bytes. */
static bool gather_text(char **text, size_t *bytes, weft_exchange *x, weft_error *error)
{
    weft_communicator *world = tool_world();
    *bytes = 0;
    for (int r = 0; r < world->size; r++) *bytes += x->receive_bytes[r];
    char *whole = malloc(*bytes + 1);
    if (!whole) return no_memory(error);
    x->send = *text;
    x->receive = whole;
    const bool good = weft_communicator_run(world, x, error) == WEFT_OK;
    free(*text);
    *text = whole;
    return good;
}

bool share_text(char **text, size_t *bytes, bool everyone, weft_error *error)
{
    weft_communicator *world = tool_world();
    if (!world) return error->status == WEFT_OK;
    const size_t ranks = (size_t)world->size;
    size_t *of = calloc(2 * ranks, sizeof *of), *sent = of ? of + ranks : NULL;
    if (!of) no_memory(error);
    bool good = share_agree(error) &&
                weft_communicator_gather(world, bytes, sizeof *bytes, of, error) == WEFT_OK;
    if (good) {
        weft_exchange x = {.kind = everyone ? WEFT_ALL_GATHER : WEFT_ALL_TO_ALL,
                           .send_bytes = sent,
                           .receive_bytes = of};
        sent[0] = *bytes;
        if (!everyone && world->rank) memset(of, 0, ranks * sizeof *of);
        good = gather_text(text, bytes, &x, error);
    }
    free(of);
    return good;
}

int share_first(bool has, weft_error *error)
{
    weft_communicator *world = tool_world();
    if (!world) return has ? 0 : -1;
    bool *all = calloc((size_t)world->size, sizeof *all);
    int first = -1;
    if (!all) no_memory(error);
    if (all && weft_communicator_gather(world, &has, sizeof has, all, error) == WEFT_OK)
        for (int r = world->size; r-- > 0;)
            if (all[r]) first = r;
    free(all);
    return first;
}

bool share_counts(decoding *d)
{
    weft_communicator *world = tool_world();
    if (!world) return true;
    decoding_counts *all = calloc((size_t)world->size, sizeof *all);
    if (!all) return no_memory(&d->error);
    const bool good =
        weft_communicator_gather(world, &d->counts, sizeof d->counts, all, &d->error) == WEFT_OK;
    if (good) d->counts = (decoding_counts){0};
    for (int r = 0; good && r < world->size; r++) {
        d->counts.cut += all[r].cut;
        d->counts.stopped += all[r].stopped;
        d->counts.tokens += all[r].tokens;
        d->counts.unmatched += all[r].unmatched;
        if (all[r].seconds > d->counts.seconds) d->counts.seconds = all[r].seconds;
    }
    free(all);
    return good;
}
