/* value.h - values of templates, and the rendering that they belong to. Values do not change and
 * live as long as their rendering. Not installed. */
#ifndef WEFT_CHAT_VALUE_H
#define WEFT_CHAT_VALUE_H

#include "base/arena.h"
#include "chat/text.h"

#include <weft/chat.h>

#include <stdint.h>

typedef enum ct_type {
    CT_MISSING, /* no value at all: an argument that was not passed */
    CT_UNDEFINED,
    CT_NONE,
    CT_BOOL,
    CT_INT,
    CT_FLOAT,
    CT_STRING,
    /* Items in an array. */
    CT_LIST,
    CT_TUPLE,
    CT_RANGE,
    CT_KEYS,
    CT_VALUES,
    CT_ITEMS,
    CT_GENERATOR, /* can be read once */
    CT_DICT,
    CT_NAMESPACE,
    CT_LOOP,
    CT_MACRO,
    CT_FUNCTION,
    CT_METHOD,
} ct_type;

typedef struct ct_value ct_value;
typedef struct ct_pair ct_pair;
typedef struct ct_attribute ct_attribute;
typedef struct ct_loop ct_loop;
typedef struct ct_macro ct_macro;
typedef struct ct_method ct_method;
typedef struct ct_function ct_function;
typedef struct ct_generator ct_generator;

struct ct_value {
    ct_type type;
    ct_type
        of;   /* CT_UNDEFINED: the type of what lacks an attribute `text`; CT_MISSING: a variable */
    size_t n; /* bytes, items or pairs */
    union {
        bool truth;
        int64_t whole;
        double number;
        const char *text; /* [n] */
        const ct_value *items;
        const ct_pair *pairs;
        ct_generator *generator;
        ct_attribute **attributes; /* CT_NAMESPACE */
        ct_loop *loop;
        const ct_macro *macro;
        const ct_function *function;
        const ct_method *method;
    } as;
};

struct ct_pair {
    ct_value key, value;
};

struct ct_generator {
    const ct_value *items;
    size_t n;
    bool is_read;
};

struct ct_attribute {
    ct_attribute *next;
    ct_value name, value;
};

/* The value of a variable. */
typedef struct ct_binding {
    struct ct_binding *next;
    uint32_t name;
    ct_value value;
} ct_binding;

typedef struct ct_scope {
    struct ct_scope *parent;
    ct_binding *first;
} ct_scope;

typedef enum ct_flow { CT_GO, CT_BREAK, CT_CONTINUE } ct_flow;

typedef struct ct_template ct_template;

/* A rendering. Functions that fail set its status and return an undefined value; after that they
 * may be called and do nothing that matters. */
typedef struct ct_render {
    const ct_template *of;
    const weft_chat_options *options;
    arena memory;
    ct_buffer *out;
    ct_scope *scope;
    ct_value captured; /* the text of a block that filters are applied to */
    ct_value *context; /* [names of the template] */
    size_t steps;
    int depth;
    unsigned line;
    ct_flow flow;
    weft_status status;
    weft_error *error;
} ct_render;

/* How much a rendering may do: steps, each an expression or 64 bytes of a text; bytes of its
 * memory, and of its text; expressions within each other, those of called macros included. */
#define CT_MAX_STEPS  ((size_t)20000000)
#define CT_MAX_MEMORY ((size_t)256 << 20)
#define CT_MAX_TEXT   ((size_t)64 << 20)
#define CT_MAX_DEPTH  400

/* Records the first failure as "line N: ...". Returns an undefined value. */
ct_value weft__ct_fail(ct_render *r, weft_status status, const char *format, ...) WEFT_PRINTF(3, 4);
/* Zeroed memory; NULL after a failure. */
void *weft__ct_alloc(ct_render *r, size_t n, size_t size);
/* Counts the work of n bytes or items; false after a failure. */
bool weft__ct_work(ct_render *r, size_t n);
/* The text of a buffer, which is emptied. */
ct_value weft__ct_take(ct_render *r, ct_buffer *b);
ct_buffer weft__ct_buffer(void);

/* ---- Making values ---- */

static inline ct_value ct_bool(bool truth)
{
    return (ct_value){.type = CT_BOOL, .as.truth = truth};
}
static inline ct_value ct_int(int64_t whole)
{
    return (ct_value){.type = CT_INT, .as.whole = whole};
}
static inline ct_value ct_float(double number)
{
    return (ct_value){.type = CT_FLOAT, .as.number = number};
}
static inline ct_value ct_none(void)
{
    return (ct_value){.type = CT_NONE};
}
static inline ct_value ct_missing(void)
{
    return (ct_value){.type = CT_MISSING};
}
/* Does not copy the text. */
static inline ct_value ct_string(const char *text, size_t bytes)
{
    return (ct_value){.type = CT_STRING, .n = bytes, .as.text = text};
}
static inline ct_value ct_sequence(ct_type type, const ct_value *items, size_t n)
{
    return (ct_value){.type = type, .n = n, .as.items = items};
}
static inline ct_value ct_undefined(ct_type of, const char *name, size_t bytes)
{
    return (ct_value){.type = CT_UNDEFINED, .of = of, .n = bytes, .as.text = name};
}
ct_value weft__ct_generator(ct_render *r, const ct_value *items, size_t n);
/* An array of growing length in the memory of a rendering. */
typedef struct ct_items {
    ct_value *items;
    size_t n, capacity;
} ct_items;
void weft__ct_add(ct_render *r, ct_items *list, ct_value item);

/* A dict of a list of keys and values in turn. Of equal keys the last one counts, at the place of
 * the first. */
ct_value weft__ct_dict(ct_render *r, const ct_items *list);

/* ---- Reading values ---- */

static inline bool ct_is_sequence(const ct_value *v)
{
    return v->type >= CT_LIST && v->type <= CT_ITEMS;
}
static inline bool ct_is_number(const ct_value *v)
{
    return v->type >= CT_BOOL && v->type <= CT_FLOAT;
}
static inline bool ct_is_whole(const ct_value *v)
{
    return v->type == CT_BOOL || v->type == CT_INT;
}
static inline int64_t ct_whole(const ct_value *v)
{
    return v->type == CT_BOOL ? v->as.truth : v->as.whole;
}
static inline double ct_number(const ct_value *v)
{
    return v->type == CT_FLOAT ? v->as.number : (double)ct_whole(v);
}
bool weft__ct_is(const ct_value *v, const char *text);
bool weft__ct_truth(const ct_value *v);
/* Python's name of a type, for messages. */
const char *weft__ct_type_name(const ct_value *v);
/* Fails: an undefined value is used. */
ct_value weft__ct_fail_undefined(ct_render *r, const ct_value *v);
bool weft__ct_equal(ct_render *r, const ct_value *a, const ct_value *b);
/* Negative, zero or positive; fails for values without an order. */
int weft__ct_compare(ct_render *r, const ct_value *a, const ct_value *b, const char *what);
/* Whether `item` is in a value (the operator `in`). */
bool weft__ct_contains(ct_render *r, const ct_value *in, const ct_value *item);
/* The items that a loop over a value visits; fails if there are none. Reads a generator. */
const ct_value *weft__ct_items_of(ct_render *r, const ct_value *v, size_t *n);
/* len(); fails for a value without. */
size_t weft__ct_length(ct_render *r, const ct_value *v);
/* Whether a value can be a key of a dict, as lists cannot; a failure if not. */
bool weft__ct_can_be_key(ct_render *r, const ct_value *v);
/* The value of a key; NULL if there is none. */
const ct_value *weft__ct_find_key(ct_render *r, const ct_value *dict, const ct_value *key);
/* Sets *index to an integer of a value; fails with `what` otherwise. */
bool weft__ct_index(ct_render *r, const ct_value *v, const char *what, int64_t *index);

/* ---- Values as text (print.c) ---- */

/* str() of a value, and repr(). */
void weft__ct_print(ct_render *r, ct_buffer *b, const ct_value *v);
void weft__ct_print_repr(ct_render *r, ct_buffer *b, const ct_value *v);
ct_value weft__ct_text(ct_render *r, const ct_value *v);
/* A text with a zero byte after it. */
const char *weft__ct_zero_ended(ct_render *r, const ct_value *text);

/* ---- JSON (json.c, json_read.c) ---- */

typedef struct ct_json_style {
    const char *indent; /* NULL: on one line */
    const char *item, *key;
    bool sort, ascii;
} ct_json_style;
void weft__ct_print_json(ct_render *r, ct_buffer *b, const ct_value *v, const ct_json_style *style);
/* The value of a JSON text; fails with `what` for malformed ones. */
ct_value weft__ct_parse_json(ct_render *r, const char *text, const char *what);

#endif
