/* weft serve: answers requests of OpenAI's API over HTTP. */
#include "server/serve.h"

static void check(void *into, const tool_parser *parser)
{
    const serve_args *a = into;
    if (a->key && a->key_file) tool_usage_error(parser, "--api-key and --api-key-file: give one");
    if (a->key && !*a->key) tool_usage_error(parser, "--api-key is empty");
}

#define FIELD(field) TOOL_FIELD(serve_args, field)
static const tool_option options[] = {
    {TOOL_ONE(serve_args, folder, "FOLDER"), .required = true},
    {"port", "N", FIELD(port), "port (0: any free one, which is printed)", 0, 65535,
     .shows_zero = true},
    {"host", "ADDRESS", FIELD(host),
     "listen at this numeric address, such as 0.0.0.0, so that others can reach it (default: "
     "127.0.0.1, for this machine alone)"},
    {"api-key", "KEY", FIELD(key),
     "ask for this key; other users of this machine can see it in the list of processes"},
    {"api-key-file", "FILE", FIELD(key_file), "ask for the key in the first line of FILE"},
    {"name", "NAME", FIELD(name), "name of the model in requests (default: that of FOLDER)"},
    {"slots", "N", FIELD(slots), "answers that are computed at a time", 1, 4096, .group = 1},
    {"queue", "N", FIELD(queue), "answers that wait for a slot; more are refused", 0, 1 << 20,
     .group = 1, .shows_zero = true},
    {"context", "N", FIELD(context),
     "tokens of a prompt and its answer (default: as many as the model was trained on, at most "
     "2048)",
     4, 1 << 24, .group = 1},
    {"max-tokens", "N", FIELD(max_tokens),
     "limit of the tokens of an answer (default: the context)", 1, 1 << 24, .group = 1},
    {"max-body", "BYTES", TOOL_SIZE(serve_args, body), "limit of the bytes of a request",
     .group = 1},
    {"timeout", "SECONDS", FIELD(timeout), "limit of the time of an answer", 1, 1e6, .group = 1},
    {"grace", "SECONDS", FIELD(grace), "after a signal to stop, the time for answers in progress",
     0, 1e6, .group = 1},
    {"prefix-cache", "BYTES", TOOL_SIZE(serve_args, prefixes),
     "memory for keys and values of earlier requests", .group = 2},
    {"cache", "f32|bf16|u8", FIELD(cache),
     "how keys and values are stored: bf16 in half the bytes, u8 in a quarter", .group = 2},
    {"checkpoint", "FILE", FIELD(checkpoint), "parameters (default: those of FOLDER)", .group = 3},
    {"chat-template", "FILE", FIELD(template_file),
     "how a conversation becomes text (default: the template in FOLDER)", .group = 3},
    {"threads", "N", FIELD(threads), "threads (default: all)", 0, 1024, .group = 3},
    {"check", NULL, FIELD(check), "load the model, listen at the port, print the address, and end",
     .group = 3},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "FOLDER",
    .doc =
        "Answers requests over HTTP as OpenAI's API does: completions, chats and streams of a "
        "language model, or embeddings of an encoder. An answer has the bits of the same request "
        "alone, whatever other requests there are. Ends after SIGINT or SIGTERM, once the "
        "answers in progress are given.",
    .check = check};

int cmd_serve(int argc, char **argv)
{
    serve_args a = {.port = 8080,
                    .slots = 8,
                    .queue = 64,
                    .body = 1000000,
                    .prefixes = 256000000,
                    .timeout = 600,
                    .grace = 30};
    tool_parse(&command, argc, argv, &a);
#ifdef WEFT_HAVE_MICROHTTPD
    weft_error error = WEFT_NO_ERROR;
    return serve_run(&a, &error) ? EXIT_GOOD : tool_fail(&error);
#else
    return tool_fail_text("serve", "weft was built without libmicrohttpd (meson option watch)");
#endif
}
