/* Parsing and rendering templates: what a template sees. */
#include "chat/template.h"

#include "unicode.h"

#include <stdlib.h>
#include <string.h>

static const char where[] = "chat template";

void weft_chat_template_free(weft_chat_template *t)
{
    if (!t) return;
    weft__arena_free(&t->memory);
    free(t);
}

weft_chat_template *weft_chat_template_parse(const char *source, size_t bytes, weft_error *error)
{
    weft_error_clear(error);
    if (!source) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, where, "parsing needs a source");
        return NULL;
    }
    weft_chat_template *t = calloc(1, sizeof *t);
    if (!t) weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    if (!t || weft__ct_add_template(t, "default", source, bytes, error) == WEFT_OK) return t;
    weft_chat_template_free(t);
    return NULL;
}

/* ---- Variables ---- */

static void define(ct_render *r, const char *name, ct_value value)
{
    const ct_value text = ct_string(name, strlen(name));
    weft__ct_define(r, &text, &value);
}

/* A text of the program as UTF-8; None for NULL. */
static ct_value text_of(ct_render *r, const char *text)
{
    ct_buffer b = weft__ct_buffer();
    bool valid;
    if (!text) return ct_none();
    for (size_t at = 0, n = strlen(text), bytes; at < n; at += bytes) {
        bytes = weft__tk_part(text + at, n - at, &valid);
        if (valid)
            weft__ct_put(&b, text + at, bytes);
        else
            weft__ct_put_character(&b, 0xFFFD);
    }
    return weft__ct_take(r, &b);
}

/* The value of a JSON text, which must be of a type. */
static ct_value json_of(ct_render *r, const char *text, ct_type type, const char *what)
{
    const ct_value utf8 = text_of(r, text);
    if (r->status != WEFT_OK) return ct_none();
    const ct_value v = weft__ct_parse_json(r, weft__ct_zero_ended(r, &utf8), what);
    if (r->status == WEFT_OK && v.type != type)
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%s must be %s", what,
                      type == CT_LIST ? "an array" : "an object");
    return v;
}

static ct_value message_of(ct_render *r, const weft_chat_message *m)
{
    ct_items list = {NULL, 0, 0};
    weft__ct_add(r, &list, ct_string("role", 4));
    weft__ct_add(r, &list, text_of(r, m->role));
    weft__ct_add(r, &list, ct_string("content", 7));
    weft__ct_add(r, &list, text_of(r, m->content));
    const ct_value more = m->members ? json_of(r, m->members, CT_DICT, "the members of a message")
                                     : (ct_value){.type = CT_DICT};
    for (size_t i = 0; i < more.n && r->status == WEFT_OK; i++) {
        weft__ct_add(r, &list, more.as.pairs[i].key);
        weft__ct_add(r, &list, more.as.pairs[i].value);
    }
    return r->status == WEFT_OK ? weft__ct_dict(r, &list) : ct_none();
}

static void define_variables(ct_render *r, const weft_chat_template *t,
                             const weft_chat_message *messages, size_t n)
{
    const weft_chat_options *o = r->options;
    ct_items list = {NULL, 0, 0};
    weft__ct_define_functions(r);
    for (const ct_token_text *token = t->tokens; token; token = token->next)
        define(r, token->name, text_of(r, token->text));
    if (o->bos_token) define(r, "bos_token", text_of(r, o->bos_token));
    if (o->eos_token) define(r, "eos_token", text_of(r, o->eos_token));
    for (size_t i = 0; i < n && r->status == WEFT_OK; i++)
        weft__ct_add(r, &list, message_of(r, &messages[i]));
    define(r, "messages", ct_sequence(CT_LIST, list.items, list.n));
    define(r, "add_generation_prompt", ct_bool(o->add_generation_prompt));
    define(r, "documents", ct_none());
    define(r, "tools", o->tools ? json_of(r, o->tools, CT_LIST, "the tools") : ct_none());
    if (!o->variables || r->status != WEFT_OK) return;
    const ct_value more = json_of(r, o->variables, CT_DICT, "the variables");
    for (size_t i = 0; i < more.n && r->status == WEFT_OK; i++)
        weft__ct_define(r, &more.as.pairs[i].key, &more.as.pairs[i].value);
}

/* ---- Rendering ---- */

static const ct_template *find_template(const weft_chat_template *t, const char *name)
{
    for (const ct_template *at = t->templates; at; at = at->next)
        if (!strcmp(at->name, name)) return at;
    return NULL;
}

static const ct_template *choose_template(const weft_chat_template *t, const weft_chat_options *o,
                                          weft_error *error)
{
    const ct_template *found = NULL;
    if (!o->name && o->tools) found = find_template(t, "tool_use");
    if (!found) found = find_template(t, o->name ? o->name : "default");
    if (!found)
        weft_error_set(error, WEFT_NOT_FOUND, where,
                       "unknown template '%.60s'; the file has '%.60s'",
                       o->name ? o->name : "default", t->templates ? t->templates->name : "none");
    return found;
}

static char *render(ct_render *r, const weft_chat_template *t, const weft_chat_message *messages,
                    size_t n)
{
    ct_scope root = {NULL, NULL};
    ct_buffer out = weft__ct_buffer();
    char *text = NULL;
    r->context = weft__ct_alloc(r, r->of->n_names + 1, sizeof *r->context);
    r->scope = &root;
    r->out = &out;
    if (r->context) define_variables(r, t, messages, n);
    if (r->status == WEFT_OK) weft__ct_run(r, r->of->body);
    if (r->status == WEFT_OK) {
        text = weft_alloc(out.n + 1);
        if (text && out.n) memcpy(text, out.text, out.n);
        r->line = 0;
        if (!text) weft__ct_fail(r, WEFT_NO_MEMORY, "out of memory");
    }
    weft__ct_buffer_free(&out);
    weft__arena_free(&r->memory);
    return text;
}

char *weft_chat_template_render(const weft_chat_template *t, const weft_chat_message *messages,
                                size_t n, const weft_chat_options *options, weft_error *error)
{
    static const weft_chat_options defaults;
    weft_error_clear(error);
    if (!t || (!messages && n)) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, where, "rendering needs a template and messages");
        return NULL;
    }
    ct_render r = {.options = options ? options : &defaults, .error = error};
    r.memory.limit = CT_MAX_MEMORY;
    r.of = choose_template(t, r.options, error);
    return r.of ? render(&r, t, messages, n) : NULL;
}
