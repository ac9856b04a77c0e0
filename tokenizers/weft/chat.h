/* weft/chat.h - chat templates: a conversation as the text that a model was trained on. Part of the
 * library weft-tokenizers.
 *
 * A template is written in the part of Jinja that models on Hugging Face are published with, and is
 * rendered as the package transformers does: docs/tokenizers.md lists what there is. What is
 * missing is an error with the template's line when it is reached. Texts are UTF-8; a byte that is
 * not becomes U+FFFD.
 */
#ifndef WEFT_CHAT_H
#define WEFT_CHAT_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* It does not change, so any number of threads may share one. */
typedef struct weft_chat_template weft_chat_template;

typedef struct weft_chat_message {
    const char *role;    /* "system", "user", "assistant", "tool", or what the template expects */
    const char *content; /* NULL: none; the template sees None */
    /* A JSON object with further members, such as {"tool_calls": [...]}, and a `content` that is not
     * a text. They replace `role` and `content`. NULL: none. */
    const char *members;
} weft_chat_message;

typedef struct weft_chat_options {
    /* Ends the text with the beginning of an answer, for the model to continue. */
    bool add_generation_prompt;
    /* Which of several templates. NULL: "tool_use" if there are tools and the file has it, or else
     * "default". */
    const char *name;
    /* Special tokens; NULL: those of the file that the template was loaded from. A template sees a
     * token that neither names as undefined. */
    const char *bos_token, *eos_token;
    /* What functions the model may call: a JSON array, in the form that the template expects. NULL:
     * none. */
    const char *tools;
    /* Further variables of the template: a JSON object, such as {"enable_thinking": false}. NULL:
     * none. They replace the variables above. */
    const char *variables;
    /* What strftime_now reads: "2025-01-31" or "2025-01-31T12:34:56". NULL: the clock, in local
     * time. */
    const char *date;
} weft_chat_options;

/* A template from its source, which may be freed afterwards. Errors: WEFT_BAD_FILE with the line
 * for what is not a template, or has an unsupported statement; WEFT_TOO_LARGE for more than 1 MiB or
 * deep nesting. */
WEFT_API weft_chat_template *weft_chat_template_parse(const char *source, size_t bytes,
                                                      weft_error *error);
/* A template of a file of Hugging Face or of a folder with one: chat_template.jinja, or else
 * `chat_template` of chat_template.json or tokenizer_config.json, a text or a list of named ones.
 * Special tokens come from tokenizer_config.json in the same folder. Errors: those of
 * weft_chat_template_parse; WEFT_NOT_FOUND if none of the files has a template. */
WEFT_API weft_chat_template *weft_chat_template_load(const char *path, weft_error *error);
WEFT_API void weft_chat_template_free(weft_chat_template *chat_template);
/* A new text: the n messages as the template writes them, freed by weft_free. NULL on failure:
 * WEFT_BAD_ARGUMENT if the template refuses the messages (raise_exception) or expects other values,
 * and for malformed JSON; WEFT_BAD_FILE for what is unsupported of Jinja; WEFT_NOT_FOUND if there is
 * no template of that name; WEFT_TOO_LARGE for a template that does not end, or a text of
 * more than 64 MiB. */
WEFT_API char *weft_chat_template_render(const weft_chat_template *chat_template,
                                         const weft_chat_message *messages, size_t n,
                                         const weft_chat_options *options, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
