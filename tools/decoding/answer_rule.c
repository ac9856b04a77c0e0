/* See answer_rule.h. Without weft-tokenizers there are no rules, and the options are refused. */
#include "answer_rule.h"

#include "base/file.h"

#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/constraint.h>
#endif

#include <stdlib.h>

static void check(void *into, const tool_parser *parser)
{
    const answer_rule_args *a = into;
    if ((a->match != NULL) + (a->schema != NULL) + a->json > 1)
        tool_usage_error(parser, "--match, --json and --json-schema: give one");
}

#define FIELD(field) TOOL_FIELD(answer_rule_args, field)
static const tool_option options[] = {
    {"match", "REGEX", FIELD(match), "generate only texts that match REGEX as a whole"},
    {"json", NULL, FIELD(json), "generate only JSON objects"},
    {"json-schema", "FILE", FIELD(schema),
     "generate only JSON that is valid for the schema in FILE"},
    {0}};

const tool_command answer_rule_options = {.options = options, .check = check};

#ifdef WEFT_HAVE_TOKENIZERS
static weft_constraint *of_file(const char *path, weft_error *error)
{
    size_t bytes;
    char *text = weft__file_read(path, &bytes, error);
    weft_error why = WEFT_NO_ERROR;
    weft_constraint *constraint = text ? weft_constraint_new_json(text, &why) : NULL;
    if (text && !constraint) weft_error_set(error, why.status, path, "%s", why.message);
    free(text);
    return constraint;
}

static weft_constraint *of_pattern(const char *pattern, weft_error *error)
{
    weft_error why = WEFT_NO_ERROR;
    weft_constraint *constraint = weft_constraint_new_regex(pattern, &why);
    if (!constraint) weft_error_set(error, why.status, "--match", "%s", why.message);
    return constraint;
}

bool answer_rule_open(answer_rule *rule, const answer_rule_args *a, const trained_run *run,
                      weft_error *error)
{
    *rule = (answer_rule){.constraint = NULL};
    if (!a->match && !a->schema && !a->json) return true;
    rule->constraint = a->match    ? of_pattern(a->match, error)
                       : a->schema ? of_file(a->schema, error)
                                   : weft_constraint_new_json(NULL, error);
    if (rule->constraint) rule->tokens = weft_token_bytes_new(run->target, error);
    return rule->tokens != NULL;
}

void answer_rule_close(answer_rule *rule)
{
    weft_constraint_free(rule->constraint);
    weft_token_bytes_free(rule->tokens);
}

weft_constrained_text *answer_rule_begin(const answer_rule *rule, const trained_run *run,
                                         bool continues, weft_error *error)
{
    const weft_constrained_text_options o = {
        .ends = run->ends, .n_ends = run->n_ends, .continues = continues};
    return weft_constrained_text_new(rule->constraint, rule->tokens, &o, error);
}

void answer_rule_end(weft_constrained_text *text)
{
    weft_constrained_text_free(text);
}

weft_token_rule *answer_rule_allows(const answer_rule *rule)
{
    return rule->constraint ? weft_constrained_text_allows : NULL;
}

bool answer_rule_move(weft_constrained_text *text, const int32_t *tokens, size_t n,
                      weft_error *error)
{
    return !text || weft_constrained_text_move(text, tokens, n, error) == WEFT_OK;
}

bool answer_rule_check(weft_constrained_text *text, const int32_t *tokens, size_t n, bool stuck,
                       bool *whole, weft_error *error)
{
    weft_constraint_state state;
    *whole = true;
    if (!text) return true;
    if (weft_constrained_text_match(text, tokens, n, &state, error) != WEFT_OK) return false;
    *whole = state == WEFT_CONSTRAINT_WHOLE;
    if (*whole || !stuck) return true;
    weft_error_set(error, WEFT_NOT_FOUND, "--match, --json or --json-schema",
                   "no token of the vocabulary can continue the text so that it may match");
    return false;
}
#else
bool answer_rule_open(answer_rule *rule, const answer_rule_args *a, const trained_run *run,
                      weft_error *error)
{
    (void)run;
    *rule = (answer_rule){.constraint = NULL};
    if (!a->match && !a->schema && !a->json) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                   "weft was built without PCRE2 and utf8proc");
    return false;
}

void answer_rule_close(answer_rule *rule)
{
    (void)rule;
}

weft_constrained_text *answer_rule_begin(const answer_rule *rule, const trained_run *run,
                                         bool continues, weft_error *error)
{
    (void)rule, (void)run, (void)continues, (void)error;
    return NULL;
}

void answer_rule_end(weft_constrained_text *text)
{
    (void)text;
}

weft_token_rule *answer_rule_allows(const answer_rule *rule)
{
    (void)rule;
    return NULL;
}

bool answer_rule_move(weft_constrained_text *text, const int32_t *tokens, size_t n,
                      weft_error *error)
{
    (void)text, (void)tokens, (void)n, (void)error;
    return true;
}

bool answer_rule_check(weft_constrained_text *text, const int32_t *tokens, size_t n, bool stuck,
                       bool *whole, weft_error *error)
{
    (void)text, (void)tokens, (void)n, (void)stuck, (void)error;
    *whole = true;
    return true;
}
#endif
