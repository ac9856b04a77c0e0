/* template.h - a template as its source was parsed: a tree of statements and expressions. Not
 * installed. */
#ifndef WEFT_CHAT_TEMPLATE_H
#define WEFT_CHAT_TEMPLATE_H

#include "chat/lex.h"
#include "chat/value.h"

typedef enum ct_kind {
    /* Expressions */
    CT_K_CONST,     /* constant */
    CT_K_NAME,      /* name */
    CT_K_LIST,      /* list */
    CT_K_TUPLE,     /* list */
    CT_K_DICT,      /* list: keys and values in turn */
    CT_K_CONDITION, /* b if a else c; c may be NULL */
    CT_K_OR,
    CT_K_AND,
    CT_K_NOT,
    CT_K_COMPARE,   /* a, list: the right operands with their op */
    CT_K_BINARY,    /* a op b */
    CT_K_JOIN,      /* list: operands of ~ */
    CT_K_SIGN,      /* op a */
    CT_K_ATTRIBUTE, /* a.constant */
    CT_K_ITEM,      /* a[b] */
    CT_K_SLICE,     /* a[b:c:other]; each may be NULL */
    CT_K_CALL,      /* a(list) */
    CT_K_FILTER,    /* a | constant(list); a is NULL for the text of a block */
    CT_K_TEST,      /* a is constant(list) */
    /* Statements */
    CT_K_TEXT,         /* constant */
    CT_K_OUTPUT,       /* a */
    CT_K_IF,           /* a: list; else other: NULL, another CT_K_IF, or one whose a is NULL */
    CT_K_FOR,          /* a: target in b if c: list; else other: a list */
    CT_K_SET,          /* a = b */
    CT_K_SET_BLOCK,    /* a = list, through the filters b, which may be NULL */
    CT_K_FILTER_BLOCK, /* list through the filters b */
    CT_K_WITH,         /* other: a list of CT_K_SET; list */
    CT_K_MACRO,        /* name, list: parameters; other: body */
    CT_K_CALL_BLOCK,   /* a: the call, b: the block as a macro */
    CT_K_GENERATION,   /* list */
    CT_K_BREAK,
    CT_K_CONTINUE,
    /* Parts of others */
    CT_K_PARAMETER, /* name = a */
    CT_K_ARGUMENT, /* a; constant: its keyword; op: '*', CT_TWO('*', '*') for those of a list, a dict */
    CT_K_OPERAND, /* op a */
    CT_K_MEMBER,  /* a target: attribute `constant` of the namespace `name` */
} ct_kind;

typedef struct ct_node ct_node;
struct ct_node {
    ct_kind kind;
    unsigned line;
    int op; /* an operator, or the flags of a macro */
    uint32_t name;
    ct_value constant;
    ct_node *a, *b, *c;
    ct_node *list, *other;
    ct_node *next;
};

/* Whether the body of a macro names `varargs` and `kwargs`. */
enum { CT_HAS_VARARGS = 1, CT_HAS_KWARGS = 2 };

/* Names that rendering gives a meaning. */
typedef enum ct_special {
    CT_N_LOOP,
    CT_N_CALLER,
    CT_N_VARARGS,
    CT_N_KWARGS,
    CT_N_SPECIALS
} ct_special;

/* A template of a file, by its name. */
struct ct_template {
    ct_template *next;
    const char *name;
    const char **names; /* of variables; a node has an index */
    size_t n_names;
    uint32_t specials[CT_N_SPECIALS]; /* indices of names */
    ct_node *body;
};

/* A special token of tokenizer_config.json, such as bos_token. */
typedef struct ct_token_text {
    struct ct_token_text *next;
    const char *name, *text;
} ct_token_text;

struct weft_chat_template {
    arena memory;
    ct_template *templates;
    ct_token_text *tokens;
};

/* Adds a template of that name, which lives as long as *t. */
weft_status weft__ct_add_template(weft_chat_template *t, const char *name, const char *source,
                                  size_t bytes, weft_error *error);

/* ---- Rendering ---- */

/* A loop that runs. A test of its items, `if`, is asked when an item is needed. */
struct ct_loop {
    const ct_node *node;
    ct_scope *scope;                                                         /* around it */
    bool (*passes)(ct_render *r, const ct_loop *self, const ct_value *item); /* NULL: all do */
    const ct_value *items;
    size_t n, at;
    size_t index;                    /* from 0 */
    ct_value before, current, after; /* CT_MISSING: none */
    bool is_sized, is_counted;
    size_t length;
};

/* The next item, CT_MISSING at the end. */
ct_value weft__ct_loop_next(ct_render *r, ct_loop *loop);
/* loop.NAME; CT_MISSING for a name that a loop does not have. */
ct_value weft__ct_loop_attribute(ct_render *r, const ct_value *of, const ct_value *name);

/* The arguments of a call. */
typedef struct ct_args {
    const ct_value *items;
    size_t n;
    const ct_pair *named;
    size_t n_named;
} ct_args;

struct ct_macro {
    const ct_node *node;
    ct_scope *scope; /* in which it was defined */
    ct_value (*call)(ct_render *r, const ct_macro *self, const ct_args *args,
                     const ct_value *caller);
};

/* A function, filter, test or method. The names of its parameters have spaces between them; "*"
 * takes any arguments. `self` is what it is applied to. */
typedef ct_value ct_call(ct_render *r, const ct_value *self, const ct_args *args);
struct ct_function {
    const char *name, *parameters;
    ct_call *call;
};
struct ct_method {
    const ct_function *function;
    ct_value self;
};

/* The i-th argument or that of a name; CT_MISSING if there is none. */
ct_value weft__ct_arg(const ct_args *args, size_t i, const char *name);
/* The same as a text, or an integer; fails for another value. Without one: `fallback`. */
ct_value weft__ct_text_arg(ct_render *r, const ct_args *args, size_t i, const char *name,
                           const char *fallback);
int64_t weft__ct_int_arg(ct_render *r, const ct_args *args, size_t i, const char *name,
                         int64_t fallback);
bool weft__ct_bool_arg(const ct_args *args, size_t i, const char *name, bool fallback);
/* Calls a function with arguments that fit its parameters. */
ct_value weft__ct_apply(ct_render *r, const ct_function *f, const ct_value *self,
                        const ct_args *args);
/* A filter or test by its name; fails if there is none. */
ct_value weft__ct_filter(ct_render *r, const ct_value *name, const ct_value *in,
                         const ct_args *args);
bool weft__ct_test(ct_render *r, const ct_value *name, const ct_value *in, const ct_args *args);

/* The function, filter, method of that name; NULL if there is none. */
const ct_function *weft__ct_find_function(const ct_function *all, size_t n, const ct_value *name);
const ct_function *weft__ct_find_text_filter(const ct_value *name);
const ct_function *weft__ct_find_list_filter(const ct_value *name);
const ct_function *weft__ct_find_method(const ct_value *of, const ct_value *name);
/* Whether an object has an attribute in Python that templates cannot use here: it changes the
 * object, or is missing. */
bool weft__ct_is_refused_method(const ct_value *of, const ct_value *name);
/* Sets the variables that every template has. */
void weft__ct_define_functions(ct_render *r);
/* Sets the variable of that name, if the template has it. */
void weft__ct_define(ct_render *r, const ct_value *name, const ct_value *value);

/* The attribute of a path, "a.b.0": keys first. */
ct_value weft__ct_attribute_of(ct_render *r, const ct_value *item, const ct_value *path);
/* Looks up x.name and x[key] as Jinja does: an attribute or else an item, and the other way. */
ct_value weft__ct_attribute(ct_render *r, const ct_value *of, const ct_value *name);
ct_value weft__ct_item(ct_render *r, const ct_value *of, const ct_value *key);
ct_value weft__ct_slice(ct_render *r, const ct_value *of, const ct_value bounds[3]);
/* a op b */
ct_value weft__ct_binary(ct_render *r, int op, const ct_value *a, const ct_value *b);
/* text % values */
ct_value weft__ct_format(ct_render *r, const ct_value *text, const ct_value *values);
/* strftime of a date of weft_chat_options, or of now. */
ct_value weft__ct_strftime(ct_render *r, const ct_value *format);

ct_value weft__ct_evaluate(ct_render *r, const ct_node *n);
void weft__ct_run(ct_render *r, const ct_node *list);
/* The call of {% call %}, with the block as `caller`. */
ct_value weft__ct_call_block(ct_render *r, const ct_node *call, const ct_value *caller);

#endif
