/* What the answers of a request must match: JSON, or a regular expression. The names are those of
 * OpenAI (response_format) and of vLLM (guided_json, guided_regex). */
#include "server.h"

#include "json/tree.h"

#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/constraint.h>
#endif

#include <stdlib.h>
#include <string.h>

#ifdef WEFT_HAVE_TOKENIZERS
/* Makes the constraint of a schema, a text or JSON; NULL: of any object. */
static bool set_json(job *j, const cJSON *schema, const char *param)
{
    weft_error error = WEFT_NO_ERROR;
    char *text = schema && !cJSON_IsString(schema) ? weft__json_print(schema, false) : NULL;
    if (schema && !cJSON_IsString(schema) && !text)
        return answer_fail(&j->error, 500, NULL, "out of memory");
    j->constraint = weft_constraint_new_json(text || !schema ? text : schema->valuestring, &error);
    cJSON_free(text);
    return j->constraint || answer_fail(&j->error, error.status == WEFT_NO_MEMORY ? 500 : 400,
                                        param, "%s: %s", error.where, error.message);
}

static bool set_regex(job *j, const cJSON *pattern)
{
    weft_error error = WEFT_NO_ERROR;
    if (!cJSON_IsString(pattern))
        return answer_fail(&j->error, 400, "guided_regex", "guided_regex must be a text");
    j->constraint = weft_constraint_new_regex(pattern->valuestring, &error);
    return j->constraint || answer_fail(&j->error, error.status == WEFT_NO_MEMORY ? 500 : 400,
                                        "guided_regex", "%s", error.message);
}

static bool set_format(job *j, const cJSON *format)
{
    static const char param[] = "response_format";
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(format, "type");
    const char *name = cJSON_IsString(type) ? type->valuestring : "";
    if (!strcmp(name, "text")) return true;
    if (!strcmp(name, "json_object")) return set_json(j, NULL, param);
    if (strcmp(name, "json_schema") != 0)
        return answer_fail(&j->error, 400, param,
                           "the type of a format must be text, json_object or json_schema");
    const cJSON *in = cJSON_GetObjectItemCaseSensitive(format, "json_schema");
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(in, "schema");
    if (!cJSON_IsObject(schema))
        return answer_fail(&j->error, 400, param, "json_schema.schema must be an object");
    return set_json(j, schema, param);
}

/* The server's bytes of tokens, made by the first request that needs them. Bodies are read one at a
 * time. */
static bool make_tokens(job *j)
{
    weft_error error = WEFT_NO_ERROR;
    server *s = j->server;
    if (!s->tokens) s->tokens = weft_token_bytes_new(s->run.target, &error);
    j->options.allows = weft_constrained_text_allows;
    return s->tokens || answer_fail(&j->error, 500, NULL, "%s", error.message);
}

bool format_read(job *j, const cJSON *json)
{
    const cJSON *const items[] = {cJSON_GetObjectItemCaseSensitive(json, "response_format"),
                                  cJSON_GetObjectItemCaseSensitive(json, "guided_json"),
                                  cJSON_GetObjectItemCaseSensitive(json, "guided_regex")};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        if (!items[i] || cJSON_IsNull(items[i])) continue;
        if (j->constraint)
            return answer_fail(&j->error, 400, "response_format",
                               "response_format, guided_json and guided_regex exclude each other");
        const bool good = i == 0   ? set_format(j, items[i])
                          : i == 1 ? set_json(j, items[i], "guided_json")
                                   : set_regex(j, items[i]);
        if (!good) return false;
    }
    return !j->constraint || make_tokens(j);
}

bool format_begin(job_choice *c)
{
    weft_error error = WEFT_NO_ERROR;
    job *j = c->job;
    const answer_rule rule = {j->constraint, j->server->tokens};
    c->ruled = answer_rule_begin(&rule, &j->server->run, true, &error);
    return c->ruled || answer_fail(&j->error, 500, NULL, "%s", error.message);
}

weft_status format_check(const job_choice *c, weft_error *error)
{
    weft_constraint_state state = WEFT_CONSTRAINT_WHOLE;
    weft_status status = WEFT_OK;
    if (c->ruled)
        status = weft_constraint_match(c->job->constraint, c->growing.text, c->growing.length,
                                       &state, error);
    if (status != WEFT_OK || state == WEFT_CONSTRAINT_WHOLE) return status;
    return weft_error_set(
        error, WEFT_NOT_FOUND, "constraint",
        "no token of the vocabulary can continue the answer so that it may match");
}

void format_free(job *j)
{
    for (size_t i = 0; j->choices && i < j->n_choices; i++)
        weft_constrained_text_free(j->choices[i].ruled);
    weft_constraint_free(j->constraint);
}

void format_close(server *s)
{
    weft_token_bytes_free(s->tokens);
}
#else
bool format_read(job *j, const cJSON *json)
{
    static const char *const names[] = {"response_format", "guided_json", "guided_regex"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, names[i]);
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "type");
        const bool is_text = i == 0 && cJSON_IsString(type) && !strcmp(type->valuestring, "text");
        if (item && !cJSON_IsNull(item) && !is_text)
            return answer_fail(&j->error, 400, names[i],
                               "weft was built without PCRE2 and utf8proc");
    }
    return true;
}

bool format_begin(job_choice *c)
{
    (void)c;
    return true;
}

weft_status format_check(const job_choice *c, weft_error *error)
{
    (void)c, (void)error;
    return WEFT_OK;
}

void format_free(job *j)
{
    (void)j;
}

void format_close(server *s)
{
    (void)s;
}
#endif
