/* weft logprob: the log probabilities of the lines of standard input under a model.
 *
 * Lines are read in chunks, so that lines of similar length share a pass of the model
 * (weft_scorer). They are printed in the order of the input. */
#include "decoding/logprob.h"
#include "text/line_numbers.h"
#include "text/streams.h"
#include "system.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024 /* texts to read before the first is printed; 1 from a terminal */

static void check(void *into, const tool_parser *parser)
{
    const logprob_args *a = into;
    if (a->nbest && a->tokens) tool_usage_error(parser, "--nbest and --tokens exclude each other");
    if (a->source && !strcmp(a->source, "-"))
        tool_usage_error(parser, "--source cannot be standard input, which has the lines to score");
}

#define FIELD(field) TOOL_FIELD(logprob_args, field)
static const tool_option options[] = {
    {TOOL_ONE(logprob_args, folder, "FOLDER"), .required = true},
    {"source", "FILE", FIELD(source),
     "sources of the lines, line by line, for a model that translates"},
    {"nbest", NULL, FIELD(nbest),
     "lines are LINE ||| TEXT ||| SCORE, where LINE counts those of --source from 1; print each "
     "again, followed by ||| and the log probability of TEXT"},
    {"tokens", NULL, FIELD(tokens),
     "print a line for each token: line number, piece, log probability", .group = 1},
    {"json", NULL, FIELD(json), "print lines of JSON, the last of them the total", .group = 1},
    {"checkpoint", "FILE", FIELD(checkpoint),
     "parameters (default: FOLDER/best.safetensors if it exists, else FOLDER/model.safetensors)",
     .group = 2},
    {"batch", "N", FIELD(batch), "maximum number of lines in a batch", 1, 65536, .group = 2},
    {"threads", "N", FIELD(threads), "threads (default: all)", 0, 1024, .group = 2},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "FOLDER",
    .doc = "Prints three columns for each line of standard input, separated by tabs: its log "
           "probability in nats under the model in FOLDER, the number of its tokens, and the line. "
           "With a vocabulary of `weft train` a text ends with the end token, which counts; with a "
           "tokenizer.json it has the tokens that this file puts around it, and the first of all "
           "tokens has no probability. Prints the total on standard error.",
    .check = check};

/* ---- Scoring and printing ---- */

static bool score_texts(logprob *p)
{
    weft_scorer_row *rows = calloc(p->n + 1, sizeof *rows);
    if (!rows) return logprob_no_memory(p);
    for (size_t i = 0; i < p->n; i++) {
        const scored_text *t = &p->texts[i];
        rows[i] = (weft_scorer_row){t->source, t->n_source, t->ids, t->n_ids, t->scores};
    }
    weft_status status = weft_scorer_run(p->scorer, rows, p->n, &p->error);
    free(rows);
    return status == WEFT_OK;
}

static double sum_of(const scored_text *t)
{
    double sum = 0;
    for (size_t i = 0; i < scored_tokens(t); i++) sum += t->scores[i];
    return sum;
}

/* Adds a text to the total if `weft train` would validate with it. */
static bool count(logprob *p, const scored_text *t)
{
    size_t characters = 0;
    if (!t->whole) return true;
    if (!p->has_source &&
        weft_tokenizer_characters(p->run.target, t->text, &characters, &p->error) != WEFT_OK)
        return false;
    p->lines++;
    p->tokens += scored_tokens(t);
    p->characters += characters + t->ended;
    p->log_prob += sum_of(t);
    return true;
}

static bool print_tokens(logprob *p, const scored_text *t)
{
    char buffer[TOOL_NAME_BYTES];
    for (size_t i = 0; i < scored_tokens(t); i++) {
        const char *piece =
            tool_printable(weft_tokenizer_piece(p->run.target, t->ids[i + 1]), buffer);
        if (!p->a->json) {
            if (printf("%zu\t%s\t%.6f\n", t->number, piece, t->scores[i]) < 0) return false;
            continue;
        }
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "line", (double)t->number);
        cJSON_AddStringToObject(json, "token", piece);
        cJSON_AddNumberToObject(json, "log_prob", t->scores[i]);
        if (!tool_write_json_line(json, stdout, "output", &p->error)) return false;
    }
    return true;
}

static bool print_text(logprob *p, scored_text *t)
{
    if (p->a->tokens) return print_tokens(p, t);
    bool valid = weft_text_is_utf8(t->text, strlen(t->text));
    weft_text_clean(t->line, false);
    if (!p->a->json && p->a->nbest)
        return printf("%s" NBEST_SEPARATOR "%.6f\n", t->line, sum_of(t)) > 0;
    if (!p->a->json) return printf("%.6f\t%zu\t%s\n", sum_of(t), scored_tokens(t), t->line) > 0;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "line", (double)t->number);
    cJSON_AddNumberToObject(json, "log_prob", sum_of(t));
    cJSON_AddNumberToObject(json, "tokens", (double)(scored_tokens(t)));
    if (valid)
        cJSON_AddStringToObject(json, "text", t->text);
    else
        cJSON_AddNullToObject(json, "text");
    return tool_write_json_line(json, stdout, "output", &p->error);
}

static bool score_input(logprob *p)
{
    size_t chunk = system_is_terminal(stdin) ? 1 : CHUNK;
    p->texts = calloc(chunk, sizeof *p->texts);
    if (!p->texts) return logprob_no_memory(p);
    bool good = true, more = true;
    while (good && more) {
        while (more && p->n < chunk) more = logprob_read(p);
        good = p->error.status == WEFT_OK && score_texts(p);
        for (size_t i = 0; good && i < p->n; i++)
            good = print_text(p, &p->texts[i]) && count(p, &p->texts[i]);
        good = good && fflush(stdout) == 0;
        logprob_clear(p);
    }
    if (!good && p->error.status == WEFT_OK)
        weft_error_set(&p->error, WEFT_IO, "output", "%s", strerror(errno));
    return good && logprob_check_end(p);
}

/* --nbest has no total: a sum over hypotheses of one sentence has no meaning. */
static bool print_total(logprob *p)
{
    const double nats = p->tokens ? -p->log_prob / (double)p->tokens : NAN;
    const double bits = nats * (double)p->tokens / (double)p->characters / log(2);
    if (p->a->nbest) return true;
    if (p->a->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "lines", (double)p->lines);
        cJSON_AddNumberToObject(json, "tokens", (double)p->tokens);
        cJSON_AddNumberToObject(json, "log_prob", p->log_prob);
        cJSON_AddNumberToObject(json, "nats_per_token", nats);
        cJSON_AddNumberToObject(json, "perplexity", exp(nats));
        if (!p->has_source) cJSON_AddNumberToObject(json, "bits_per_character", bits);
        return tool_write_json_line(json, stdout, "output", &p->error);
    }
    fprintf(stderr, "%zu lines, %zu tokens", p->lines, p->tokens);
    if (p->tokens) fprintf(stderr, ": %.3f nats a token, perplexity %.3f", nats, exp(nats));
    if (p->tokens && !p->has_source) fprintf(stderr, ", %.3f bits a character", bits);
    fputc('\n', stderr);
    return true;
}

static void print_notes(const logprob *p)
{
    char list[LINE_NUMBERS_TEXT];
    if (p->invalid.n)
        fprintf(stderr, "weft: not UTF-8 (invalid bytes were read as unknown): %s\n",
                line_numbers_text(&p->invalid, list));
    if (!p->a->nbest && p->read > p->lines)
        fprintf(stderr,
                "weft: %zu of %zu lines are empty or not UTF-8; the total leaves them out\n",
                p->read - p->lines, p->read);
    if (p->beyond && p->has_source)
        fprintf(stderr,
                "weft: %zu lines are longer than %lld tokens, the longest line that the "
                "model was trained on\n",
                p->beyond, (long long)p->run.trained_len);
    else if (p->beyond)
        fprintf(stderr,
                "weft: %zu texts are longer than the %lld tokens that the model attends to; "
                "they were read in windows, each from the last half of the one before\n",
                p->beyond, (long long)p->context);
}

/* ---- The run ---- */

static bool refuse(logprob *p, const char *why)
{
    p->error = (weft_error){.status = WEFT_OK};
    weft_error_set(&p->error, WEFT_BAD_ARGUMENT, p->run.model->name, "%s", why);
    return false;
}

static bool load(logprob *p)
{
    bool opened = trained_open(&p->run, p->a->folder, p->a->checkpoint, &p->error);
    const weft_model_traits *traits = &p->run.traits;
    if (p->run.model && !traits->vocab)
        return refuse(p, "is a model of vectors and has no probabilities of tokens");
    if (!opened) return false;
    if (!traits->causal)
        return refuse(p, "predicts masked tokens, not the next ones: lines have no probability");
    p->has_source = traits->source_vocab > 0;
    if (p->has_source && !p->a->source) return refuse(p, "translates: --source FILE is missing");
    if (!p->has_source && p->a->source)
        return refuse(p, "is a language model and takes no --source");
    p->most = traits->max_positions;
    bool slides = !p->has_source && !traits->recurrent && p->run.trained_len;
    p->context = slides && p->run.trained_len < p->most ? p->run.trained_len : p->most;
    weft_scorer_options o = {.rows = p->a->batch,
                             .session.threads = p->a->threads,
                             .context = p->context < INT64_MAX ? p->context : 0};
    p->scorer = weft_scorer_new(&p->run.config, p->run.params, &o, &p->error);
    return p->scorer != NULL;
}

static bool open_files(logprob *p)
{
    p->input = (line_reader){.path = "input", .file = stdin};
    if (!p->a->source) return true;
    p->source = (line_reader){.path = p->a->source, .file = stream_open(p->a->source, &p->error)};
    return p->source.file && (!p->a->nbest || logprob_sources(p));
}

static void close_all(logprob *p)
{
    logprob_clear(p);
    free(p->texts);
    for (size_t i = 0; i < p->n_sources; i++) free(p->sources[i]);
    free(p->sources);
    free(p->input.line);
    free(p->source.line);
    stream_close(p->source.file);
    weft_scorer_free(p->scorer);
    trained_close(&p->run);
}

int cmd_logprob(int argc, char **argv)
{
    logprob_args a = {.batch = 16};
    tool_parse(&command, argc, argv, &a);
    logprob p = {.a = &a};
    bool good = load(&p) && open_files(&p) && score_input(&p);
    if (good) print_notes(&p);
    good = good && print_total(&p);
    int status = good ? EXIT_GOOD : tool_fail(&p.error);
    close_all(&p);
    return status;
}
