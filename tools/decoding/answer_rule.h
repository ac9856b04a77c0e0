/* What answers must match: the options of `weft generate` and `weft chat`, and what they and `weft
 * serve` share. */
#ifndef WEFT_TOOLS_ANSWER_RULE_H
#define WEFT_TOOLS_ANSWER_RULE_H

#include "options.h"
#include "run.h"

#include <weft/decode.h>

/* Those of <weft/constraint.h>, which a build without weft-tokenizers lacks. */
typedef struct weft_constraint weft_constraint;
typedef struct weft_constrained_text weft_constrained_text;
typedef struct weft_token_bytes weft_token_bytes;

typedef struct answer_rule_args {
    const char *match;  /* a regular expression */
    const char *schema; /* a file */
    bool json;
} answer_rule_args;
extern const tool_command answer_rule_options;

typedef struct answer_rule {
    weft_constraint *constraint; /* NULL: answers are free */
    weft_token_bytes *tokens;
} answer_rule;

/* Makes the rule of a command line. False after an error. Must be closed in any case. */
bool answer_rule_open(answer_rule *rule, const answer_rule_args *a, const trained_run *run,
                      weft_error *error);
void answer_rule_close(answer_rule *rule);

/* An answer of a run, which follows a prompt or, if not `continues`, begins a text; NULL after an
 * error. Without a rule there is none. */
weft_constrained_text *answer_rule_begin(const answer_rule *rule, const trained_run *run,
                                         bool continues, weft_error *error);
void answer_rule_end(weft_constrained_text *text);
/* The `allows` of options, whose context is such an answer; NULL without a rule. */
weft_token_rule *answer_rule_allows(const answer_rule *rule);
/* Moves the n tokens of a window to the beginning of the answer; an answer that is NULL has no rule. */
bool answer_rule_move(weft_constrained_text *text, const int32_t *tokens, size_t n,
                      weft_error *error);
/* Checks an answer that has no more tokens. *whole: it matches. Fails if it could not be continued,
 * `stuck`, and does not match. */
bool answer_rule_check(weft_constrained_text *text, const int32_t *tokens, size_t n, bool stuck,
                       bool *whole, weft_error *error);

#endif
