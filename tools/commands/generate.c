/* weft generate: continues prompts with a language model. */
#include "decoding/decoding.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    decoding_args shared;
    const char *prompt;
    int64_t tokens, each, beams;
    stop_texts stops;
    answer_rule_args rule;
    bool stream, special, log_probs;
} arguments;

static void take_stop(const tool_option *option, void *into, char *text, const tool_parser *parser)
{
    stop_texts *stops = tool_field(option, into);
    char *given = strdup(text);
    const char *wrong = given ? stop_text_read(text) : "cannot be read: out of memory";
    if (wrong) tool_usage_error(parser, "--stop \"%s\" %s", given ? given : "", wrong);
    free(given);
    stops->text[stops->n++] = text;
}

static bool wants_batch(const decoding_args *shared)
{
    return (shared->batch_given && shared->batch > 1) || shared->chunk > 1;
}

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    const decoding_args *shared = &a->shared;
    if (a->beams && a->each > a->beams) tool_usage_error(parser, "--n is larger than --beam");
    if (a->beams && shared->sampling.draws)
        tool_usage_error(
            parser,
            "--beam samples nothing: temperature, top-k, top-p, min-p and seed do not apply");
    if (!a->beams && a->each > 1 && shared->sampling.temperature == 0)
        tool_usage_error(parser,
                         "--temperature 0 generates one text, not %lld (--beam generates more)",
                         (long long)a->each);
    if (a->beams && a->stops.n)
        tool_usage_error(
            parser,
            "--stop and --beam exclude each other: beam search has its texts only at the end");
    if (a->beams && (a->rule.match || a->rule.schema || a->rule.json))
        tool_usage_error(parser, "--beam excludes --match, --json and --json-schema");
    if (a->beams && a->stream)
        tool_usage_error(
            parser,
            "--stream and --beam exclude each other: beam search has its texts only at the end");
    if (a->stream && a->log_probs)
        tool_usage_error(parser, "--stream and --logprobs exclude each other");
    if (a->stream && (a->each > 1 || wants_batch(shared)))
        tool_usage_error(parser,
                         "--stream prints one text at a time: --n, --batch and --chunk must be 1");
    if (shared->sampling.min_length >= a->tokens)
        tool_usage_error(parser, "--min-length must be below --tokens");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"prompt", "TEXT", FIELD(prompt), "text to continue (default: each line of standard input)",
     .group = 1},
    {"special", NULL, FIELD(special),
     "special pieces in prompts, such as <|im_start|>, become their ids (with a tokenizer.json)",
     .group = 1},
    {"tokens", "N", FIELD(tokens), "maximum number of tokens to generate", 1, 1 << 20, .group = 1},
    {"n", "N", FIELD(each), "texts per prompt, one a line", 1, 1024, .group = 1},
    {"context", "N", FIELD(shared.context),
     "tokens that the model attends to, prompt included (default: as many as it was trained on); a "
     "longer text continues from the last half of them",
     4, 1 << 20, .group = 1},
    {"stop", "TEXT", TOOL_INTO(arguments, stops, take_stop),
     "end a text before the first TEXT after the prompt; \\n, \\t and \\\\ are a line end, a tab "
     "and a backslash; may be repeated",
     .group = 1},
    {"stream", NULL, FIELD(stream),
     "print a text as it is generated, one prompt at a time (default on a terminal, with --n 1 and "
     "without --beam, for --prompt or prompts typed in)",
     .group = 1},
    {"logprobs", NULL, FIELD(log_probs),
     "print each text as a line of JSON: text, tokens, the log probability of each, and why it "
     "ended (end, stop or length)",
     .group = 1},
    {"beam", "N", FIELD(beams), "beam search with N hypotheses instead of sampling", 1, 1024,
     .group = 1},
    {TOOL_INCLUDED(arguments, rule, answer_rule_options), .group = 1},
    {TOOL_INCLUDED(arguments, shared, decoding_options)},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "FOLDER",
    .doc = "Continues prompts with the language model in FOLDER: samples tokens by their "
           "probabilities; with temperature 0 it takes the most likely. The same seed makes the "
           "same text.",
    .check = check};

/* By default, a text is streamed if a user waits for it at a terminal. */
static bool streams(const arguments *a)
{
    if (a->stream || a->log_probs || a->beams || a->each > 1 || wants_batch(&a->shared))
        return a->stream;
    return system_is_terminal(stdout) && (a->prompt || system_is_terminal(stdin));
}

typedef struct generator {
    const arguments *a;
    decoding d;
} generator;

/* Maximum tokens of a prompt: the positions less those of the tokens to generate, but at least half
 * of the positions. */
static int64_t max_prompt(const generator *t)
{
    int64_t half = t->d.max_len / 2, rest = t->d.max_len - t->a->tokens;
    return rest > half ? rest : half;
}

/* Positions for the prompt: as many as the text to generate may have, 256 at least, --context or the
 * bytes of --prompt if that is more. The model's context limits them. */
static int64_t prompt_positions(const arguments *a)
{
    const int64_t sizes[] = {a->tokens, a->shared.context,
                             a->prompt ? (int64_t)strlen(a->prompt) + 8 : 0};
    int64_t most = 256;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

static bool load(generator *t)
{
    const arguments *a = t->a;
    decoding *d = &t->d;
    const int64_t max_len = a->tokens + prompt_positions(a);
    if (!decoding_open(d, &a->shared, a->beams ? a->beams : a->each, max_len, 1)) return false;
    bool greedy = a->shared.sampling.temperature == 0;
    d->way = a->beams ? DECODING_BEAM : greedy ? DECODING_GREEDY : DECODING_SAMPLE;
    d->options.nbest = d->way == DECODING_GREEDY ? 1 : a->each;
    d->stops = a->stops;
    d->stream = a->stream;
    d->log_probs = a->log_probs;
    const bool one_text = a->prompt || a->log_probs || (a->stream && system_is_terminal(stdin));
    d->keep_lines = d->run.documents || (d->run.published && one_text);
    d->run.parse_special = a->special;
    if (!weft_decoder_info_of(d->decoder).has_source)
        return answer_rule_open(&d->rule, &a->rule, &d->run, &d->error);
    return decoding_fail(d, WEFT_BAD_ARGUMENT, d->run.model->name,
                         "needs a source: it translates (see `weft translate`)");
}

/* A prompt that is too long loses its beginning, but not what begins every text. */
static bool encode(void *context, text_line *l)
{
    generator *t = context;
    const size_t max = (size_t)max_prompt(t) + 1;
    size_t whole;
    if (!text_line_encode(l, &t->d.run, TEXT_PROMPT, max, &whole, &t->d.error)) return false;
    t->d.counts.cut += whole > max;
    l->max_tokens = t->a->tokens;
    return true;
}

int cmd_generate(int argc, char **argv)
{
    arguments a = {.shared = DECODING_DEFAULT, .tokens = 64, .each = 1};
    a.stops.text = calloc((size_t)argc, sizeof *a.stops.text);
    if (!a.stops.text) return tool_fail_text("generate", "out of memory");
    tool_parse(&command, argc, argv, &a);
    a.stream = streams(&a);
    if (a.prompt || a.stream) a.shared.batch = 1;
    generator t = {.a = &a};
    const decoding_work work = {.context = &t, .encode = encode};
    bool good =
        load(&t) && (a.prompt ? decoding_text(&t.d, &work, a.prompt) : decoding_input(&t.d, &work));
    if (t.d.counts.cut)
        fprintf(stderr, "weft: %zu prompts had more than %lld tokens; their beginning was cut\n",
                t.d.counts.cut, (long long)max_prompt(&t));
    decoding_print_notes(&t.d);
    if (good && a.shared.stats) decoding_print_stats(&t.d);
    int status = good ? EXIT_GOOD : tool_fail(&t.d.error);
    decoding_close(&t.d);
    free(a.stops.text);
    return status;
}
