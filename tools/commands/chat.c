/* weft chat: a conversation in the terminal, or with the lines of standard input. */
#include "decoding/conversation.h"
#include "system.h"
#include "text_file.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    conversation_args shared;
    const char *system, *message;
} arguments;

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->shared.sampling.min_length >= a->shared.tokens)
        tool_usage_error(parser, "--min-length must be below --tokens");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {TOOL_ONE(arguments, shared.folder, "FOLDER"), .required = true},
    {"system", "TEXT", FIELD(system), "the system's message, which comes before all others",
     .group = 1},
    {"message", "TEXT", FIELD(message), "print the answer to TEXT only", .group = 1},
    {"template", "FILE", FIELD(shared.chat_template),
     "chat template: a file .jinja, or one of JSON with a chat_template (default: that of FOLDER)",
     .group = 1},
    {"tokens", "N", FIELD(shared.tokens), "maximum number of tokens of an answer", 1, 1 << 20,
     .group = 1},
    {"context", "N", FIELD(shared.context),
     "tokens of a conversation that the model sees (default: as many as it was trained on, at most "
     "4096)",
     16, 1 << 20, .group = 1},
    {TOOL_INCLUDED(arguments, shared.rule, answer_rule_options), .group = 1},
    {TOOL_INCLUDED(arguments, shared.sampling, sampling_options), .group = 1},
    {"checkpoint", "FILE", FIELD(shared.checkpoint), "parameters (default: those of FOLDER)",
     .group = 4},
    {"threads", "N", FIELD(shared.threads), "threads (default: all)", 0, 1024, .group = 4},
    {"cache", CACHE_DTYPES, TOOL_INTO(arguments, shared.cache, take_cache_dtype),
     "how keys and values of earlier tokens are stored: bf16 in half the bytes, u8 in a quarter "
     "(default f32)",
     .group = 4},
    {0}};

static const char commands_help[] =
    "/help         this list\n"
    "/system TEXT  sets the system's message; without TEXT there is none\n"
    "/retry        answers the last message again\n"
    "/undo         removes the last message and its answer\n"
    "/reset        removes all messages but the system's\n"
    "/save FILE    writes the messages as lines of JSON\n"
    "/load FILE    reads such messages instead of those so far\n"
    "/stats        prints the numbers of tokens and the speed\n"
    "/quit         ends the program, as Ctrl-D does\n"
    "A message that begins with / is written with //. Ctrl-C ends an answer.\n";

static const tool_command command = {
    .options = options,
    .usage = "FOLDER",
    .doc = "Converses with the language model in FOLDER, which has a tokenizer.json and a chat "
           "template: each line of standard input is a message, and standard output has the "
           "answers. Lines that begin with / are commands; /help lists them.",
    .check = check};

/* ---- Interrupts ---- */

static volatile bool interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = true;
}

/* Answers. At a terminal Ctrl-C ends the answer, not the program. A message that gets no answer is
 * removed. */
static bool answer(conversation *c)
{
    const size_t n = c->n;
    const bool typed = system_is_terminal(stdin);
    interrupted = false;
    if (typed) system_take_interrupt(on_interrupt);
    const bool good = conversation_answer(c);
    if (typed) system_take_interrupt(NULL);
    if (c->n > n) return good;
    conversation_cut(c, n - 1);
    if (good) fprintf(stderr, "weft: no answer; the message is removed\n");
    return good;
}

/* ---- Commands ---- */

/* Whether a message is the model's. */
static bool is_answer(const conversation_message *m)
{
    return !strcmp(m->role, "assistant");
}

/* The number of messages before the user's last one. */
static size_t before_last(const conversation *c)
{
    size_t n = c->n;
    while (n > 0 && is_answer(&c->messages[n - 1])) n--;
    return n ? n - 1 : 0;
}

static bool help(conversation *c, const char *text)
{
    (void)c, (void)text;
    fputs(commands_help, stderr);
    return true;
}

static bool set_system(conversation *c, const char *text)
{
    return conversation_set_system(c, text);
}

static bool retry(conversation *c, const char *text)
{
    (void)text;
    if (!c->n) {
        fprintf(stderr, "weft: no message to answer yet\n");
        return true;
    }
    conversation_cut(c, before_last(c) + 1);
    return answer(c);
}

static bool undo(conversation *c, const char *text)
{
    (void)text;
    conversation_cut(c, before_last(c));
    return true;
}

static bool reset(conversation *c, const char *text)
{
    (void)text;
    conversation_cut(c, 0);
    return true;
}

static bool save(conversation *c, const char *path)
{
    return conversation_save(c, path);
}

static bool load(conversation *c, const char *path)
{
    return conversation_load(c, path);
}

static double rate(size_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

static bool print_stats(conversation *c, const char *text)
{
    (void)text;
    const conversation_stats *s = &c->stats;
    const weft_decoder_info info = weft_decoder_info_of(c->decoder);
    char size[TEXT_SIZE_BYTES];
    fprintf(stderr, "%zu messages, %zu of %lld tokens of the context; parameters and caches %s\n",
            c->n, c->n_read, (long long)c->context,
            weft__text_from_bytes((double)info.state_bytes, size));
    fprintf(stderr,
            "the last answer: %zu tokens were known, %zu read at %.0f tokens/s, %zu found at %.1f "
            "tokens/s; log probability %.17g\n",
            s->reused, s->read, rate(s->read, s->read_seconds), s->found,
            rate(s->found, s->found_seconds), s->log_prob);
    return true;
}

static const struct {
    const char *name;
    bool (*run)(conversation *c, const char *text);
    bool needs_text;
} commands[] = {{"help", help, false}, {"system", set_system, false}, {"retry", retry, false},
                {"undo", undo, false}, {"reset", reset, false},       {"save", save, true},
                {"load", load, true},  {"stats", print_stats, false}};

/* Runs "NAME TEXT"; false after an error. */
static bool run_command(conversation *c, const char *line)
{
    const size_t length = strcspn(line, " \t");
    const char *text = line + length + strspn(line + length, " \t");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strlen(commands[i].name) != length || strncmp(commands[i].name, line, length) != 0)
            continue;
        if (*text || !commands[i].needs_text) return commands[i].run(c, text);
        fprintf(stderr, "weft: /%s expects the name of a file\n", commands[i].name);
        return true;
    }
    tool_print_line(stderr,
                    "weft: no command /%.*s (/help lists them; // begins a message with a slash)",
                    (int)length, line);
    return true;
}

/* ---- Lines ---- */

static bool say(conversation *c, const char *text)
{
    return conversation_add(c, "user", text) && answer(c);
}

/* A line of the user: false after an error. */
static bool take_line(conversation *c, const char *line)
{
    if (!line[strspn(line, " \t")]) return true;
    if (line[0] != '/') return say(c, line);
    return line[1] == '/' ? say(c, line + 1) : run_command(c, line + 1);
}

/* At a terminal an error does not end the conversation. */
static bool converse(conversation *c)
{
    const bool typed = system_is_terminal(stdin);
    char *line = NULL;
    size_t capacity = 0, length;
    bool good = true;
    if (typed) fputs("/help lists commands, Ctrl-D ends the conversation\n", stderr);
    while (good) {
        if (typed) fputs("> ", stderr);
        if (!weft__text_read_line(stdin, &line, &capacity, &length)) break;
        for (size_t i = 0; i < length; i++)
            if (!line[i]) line[i] = ' ';
        if (!strcmp(line, "/quit")) break;
        good = weft_text_is_utf8(line, length);
        if (!good) weft_error_set(&c->error, WEFT_BAD_ARGUMENT, "message", "is not UTF-8");
        good = good && take_line(c, line);
        if (good || !typed) continue;
        tool_fail(&c->error);
        weft_error_clear(&c->error);
        good = true;
    }
    free(line);
    if (typed) fputs("\n", stderr);
    return good;
}

int cmd_chat(int argc, char **argv)
{
    arguments a = {.shared = {.tokens = 512, .sampling = SAMPLING_DEFAULT}};
    a.shared.sampling.temperature = 0.7;
    a.shared.sampling.top_p = 0.95;
    tool_parse(&command, argc, argv, &a);
    conversation c;
    bool good = conversation_open(&c, &a.shared, &interrupted) &&
                conversation_set_system(&c, a.system) &&
                (a.message ? say(&c, a.message) : converse(&c));
    const int status = good ? EXIT_GOOD : tool_fail(&c.error);
    conversation_close(&c);
    return status;
}
