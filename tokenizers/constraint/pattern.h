/* pattern.h - a constraint inside: a compiled pattern. Not installed. */
#ifndef WEFT_TOKENIZERS_PATTERN_H
#define WEFT_TOKENIZERS_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "constraint.h"

#include <pcre2.h>

struct weft_constraint {
    char *pattern;
    pcre2_code *code;
    uint32_t *named; /* [n_named], increasing: characters beyond ASCII in the pattern */
    size_t n_named;
};

#endif
