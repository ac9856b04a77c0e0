/* lex.h - the tokens of a template. Not installed. */
#ifndef WEFT_CHAT_LEX_H
#define WEFT_CHAT_LEX_H

#include <stdbool.h>
#include <stddef.h>

typedef enum ct_token_kind {
    CT_END,
    CT_DATA, /* text outside of tags */
    CT_OPEN_OUTPUT,
    CT_CLOSE_OUTPUT, /* {{ }} */
    CT_OPEN_BLOCK,
    CT_CLOSE_BLOCK, /* {% %} */
    CT_NAME,
    CT_QUOTED, /* with its quotes */
    CT_WHOLE,
    CT_NUMBER,
    CT_OPERATOR,
    CT_WRONG, /* text: a message */
} ct_token_kind;

/* An operator is its character, or this of its two. */
#define CT_TWO(a, b) ((a) << 8 | (b))

typedef struct ct_token {
    ct_token_kind kind;
    unsigned line;
    int op;
    const char *text;
    size_t bytes;
} ct_token;

#define CT_MAX_NESTING 100

typedef struct ct_lexer {
    const char *source; /* with \n as its only line ends */
    size_t bytes, at;
    unsigned line;
    ct_token_kind inside;        /* CT_DATA, CT_OPEN_OUTPUT or CT_OPEN_BLOCK */
    char opened[CT_MAX_NESTING]; /* brackets of the tag */
    size_t n_opened;
    ct_token pending; /* the tag's beginning, after text */
    bool has_pending;
} ct_lexer;

ct_token weft__ct_next_token(ct_lexer *l);

#endif
