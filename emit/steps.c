/* The steps of a file as texts with holes. See steps.h. */
#include "steps.h"

#include <stdlib.h>
#include <string.h>

/* In a text, a hole is BEGIN, a letter for its kind, one for its dtype, its value, and END. In the text
 * of a shape the value is missing. */
#define BEGIN '\1'
#define END   '\2'
#define COMMA '\3'

/* ---- Recording ---- */

void weft__emit_hole_number(emit_text *to, emit_hole_kind kind, int64_t value)
{
    if (to->holes)
        weft__emit_text_print(to, "%c%c%c%lld%c", BEGIN, 'a' + (int)kind, 'a', (long long)value,
                              END);
    else if (kind == HOLE_KEY)
        weft__emit_text_print(to, "UINT64_C(0x%llx)", (unsigned long long)value);
    else
        weft__emit_text_print(to, "%lld", (long long)value);
}

void weft__emit_hole_text(emit_text *to, emit_hole_kind kind, weft_dtype dtype, const char *text)
{
    if (to->holes) weft__emit_text_print(to, "%c%c%c", BEGIN, 'a' + (int)kind, 'a' + (int)dtype);
    weft__emit_text_add(to, text, strlen(text));
    if (to->holes) weft__emit_text_print(to, "%c", END);
}

/* The number of a text in a list, which it joins if it is new. */
static size_t number_of(emit_steps *s, emit_text *list, name_table *numbers, const char *text)
{
    const size_t *known = weft__name_table_find(numbers, text);
    if (known) return *known;
    const size_t number = list->n / sizeof text;
    const char *copy = weft__arena_text(&s->memory, text);
    weft__emit_text_add(list, (const char *)&copy, sizeof copy);
    if (!copy || list->failed || !weft__name_table_put(numbers, copy, number)) s->failed = true;
    return number;
}

/* Takes the hole that begins at `at`, and whose value ends at `end`, which becomes a NUL. */
static void take_hole(emit_steps *s, const char *at, char *end)
{
    emit_hole hole = {.kind = (emit_hole_kind)(at[1] - 'a'), .dtype = (weft_dtype)(at[2] - 'a')};
    *end = 0;
    if (hole.kind == HOLE_INTS || hole.kind == HOLE_SHAPE)
        hole.value = (int64_t)number_of(s, &s->ints, &s->ints_numbers, at + 3);
    else if (hole.kind == HOLE_ARRAY)
        hole.value = (int64_t)number_of(s, &s->expressions, &s->expression_numbers, at + 3);
    else
        hole.value = strtoll(at + 3, NULL, 10);
    weft__emit_text_add(&s->holes, (const char *)&hole, sizeof hole);
}

void weft__emit_steps_add(emit_steps *s, const emit_text *comment, const emit_text *text)
{
    emit_text shape = {0};
    emit_step step = {.first_hole = s->holes.n / sizeof(emit_hole)};
    if (comment->failed || text->failed || !comment->n || !text->n) {
        s->failed = true;
        return;
    }
    for (char *at = text->text, *hole; at; at = hole) {
        hole = strchr(at, BEGIN);
        weft__emit_text_add(&shape, at, hole ? (size_t)(hole - at) + 3 : strlen(at));
        if (!hole) break;
        char *end = strchr(hole, END);
        take_hole(s, hole, end);
        weft__emit_text_print(&shape, "%c", END);
        hole = end + 1;
    }
    step.n_holes = s->holes.n / sizeof(emit_hole) - step.first_hole;
    step.comment = weft__arena_text(&s->memory, comment->text);
    step.shape = shape.failed ? 0 : number_of(s, &s->shapes, &s->shape_numbers, shape.text);
    weft__emit_text_add(&s->steps, (const char *)&step, sizeof step);
    s->failed |= shape.failed || !step.comment || s->holes.failed || s->steps.failed;
    weft__emit_text_free(&shape);
}

/* ---- Reading ---- */

const emit_step *weft__emit_steps_list(const emit_steps *s, size_t *n)
{
    *n = s->steps.n / sizeof(emit_step);
    return (const emit_step *)(const void *)s->steps.text;
}

const emit_hole *weft__emit_steps_holes(const emit_steps *s, const emit_step *step)
{
    return (const emit_hole *)(const void *)s->holes.text + step->first_hole;
}

static const char *text_in(const emit_text *list, size_t number)
{
    const char *text;
    memcpy(&text, list->text + number * sizeof text, sizeof text);
    return text;
}

bool weft__emit_steps_same(const emit_steps *s, size_t a, size_t b, size_t n)
{
    size_t n_steps;
    const emit_step *steps = weft__emit_steps_list(s, &n_steps);
    for (size_t i = 0; i < n; i++) {
        const emit_step *x = &steps[a + i], *y = &steps[b + i];
        if (x->shape != y->shape) return false;
        const emit_hole *p = weft__emit_steps_holes(s, x), *q = weft__emit_steps_holes(s, y);
        for (size_t k = 0; k < x->n_holes; k++)
            if (p[k].value != q[k].value && p[k].kind != HOLE_NODE) return false;
    }
    return true;
}

void weft__emit_steps_drop(emit_steps *s, size_t first)
{
    size_t n;
    const emit_step *steps = weft__emit_steps_list(s, &n);
    if (first >= n) return;
    s->holes.n = steps[first].first_hole * sizeof(emit_hole);
    s->steps.n = first * sizeof(emit_step);
}

bool weft__emit_step_returns(const emit_steps *s, const emit_step *step)
{
    return strstr(text_in(&s->shapes, step->shape), "return ") != NULL;
}

/* ---- Writing ---- */

/* Whether an array of ints has become an object of a struct: "NAME:{...}". */
static bool is_object(const char *array)
{
    const char *colon = strchr(array, ':');
    return colon && colon[1] == '{';
}

void weft__emit_hole_write(const emit_steps *s, const emit_hole *hole, emit_text *to)
{
    if (hole->kind == HOLE_INTS || hole->kind == HOLE_SHAPE)
        weft__emit_text_print(
            to, is_object(text_in(&s->ints, (size_t)hole->value)) ? "&shape_%lld" : "ints_%lld",
            (long long)hole->value);
    else if (hole->kind == HOLE_ARRAY)
        weft__emit_text_print(to, "%s", text_in(&s->expressions, (size_t)hole->value));
    else
        weft__emit_hole_number(to, hole->kind, hole->value);
}

void weft__emit_hole_member(emit_hole_kind kind, int number, emit_text *to)
{
    static const char letter[EMIT_HOLE_KINDS] = {'x', 'n', 'r', 'k', 'l', 's', 'c'};
    weft__emit_text_print(to, "%c%d", letter[kind], number);
}

/* Breaks lines at commas: a piece between two commas stays together. */
static void write_lines(const char *text, emit_text *to)
{
    enum { LINE = 100, INDENT = 8 };
    size_t column = 0;
    while (*text) {
        const char stop[] = {COMMA, '\n', 0};
        const size_t n = strcspn(text, stop);
        weft__emit_text_add(to, text, n);
        column += n;
        text += n;
        if (*text == COMMA) {
            const size_t next = strcspn(text + 1, stop);
            const bool fits = column + next + 3 < LINE;
            weft__emit_text_print(to, fits ? ", " : ",\n%*s", INDENT, "");
            column = fits ? column + 2 : INDENT;
        } else if (*text) {
            weft__emit_text_print(to, "\n");
            column = 0;
        }
        text += *text != 0;
    }
}

void weft__emit_step_write(const emit_steps *s, const emit_step *step, const int *member,
                           emit_text *to)
{
    emit_text text = {0};
    const emit_hole *hole = weft__emit_steps_holes(s, step);
    for (const char *at = text_in(&s->shapes, step->shape), *next; at; at = next) {
        next = strchr(at, BEGIN);
        weft__emit_text_add(&text, at, next ? (size_t)(next - at) : strlen(at));
        if (!next) break;
        if (member && *member >= 0) {
            weft__emit_text_print(&text, "at->");
            weft__emit_hole_member(hole->kind, *member, &text);
        } else {
            weft__emit_hole_write(s, hole, &text);
        }
        member += member != NULL;
        hole++;
        next = strchr(next, END) + 1;
    }
    if (!text.failed) write_lines(text.text, to);
    to->failed |= text.failed;
    weft__emit_text_free(&text);
}

const char *weft__emit_steps_array(const emit_steps *s, size_t i)
{
    return i < s->ints.n / sizeof(char *) ? text_in(&s->ints, i) : NULL;
}

void weft__emit_steps_set_array(emit_steps *s, size_t i, const emit_text *numbers)
{
    const char *copy = numbers->failed ? NULL : weft__arena_text(&s->memory, numbers->text);
    if (copy)
        memcpy(s->ints.text + i * sizeof copy, &copy, sizeof copy);
    else
        s->failed = true;
}

void weft__emit_steps_ints(const emit_steps *s, emit_text *to)
{
    for (size_t i = 0; i < s->ints.n / sizeof(char *); i++) {
        const char *numbers = text_in(&s->ints, i);
        if (is_object(numbers)) {
            const char *colon = strchr(numbers, ':');
            weft__emit_text_print(to, "static const %.*s shape_%zu = %s;\n\n",
                                  (int)(colon - numbers), numbers, i, colon + 1);
            continue;
        }
        weft__emit_text_print(to, "static const int ints_%zu[] = {", i);
        weft__emit_text_add(to, numbers, strlen(numbers));
        weft__emit_text_print(to, "};\n\n");
    }
}

void weft__emit_steps_free(emit_steps *s)
{
    weft__emit_text_free(&s->steps);
    weft__emit_text_free(&s->holes);
    weft__emit_text_free(&s->shapes);
    weft__emit_text_free(&s->ints);
    weft__emit_text_free(&s->expressions);
    weft__name_table_free(&s->shape_numbers);
    weft__name_table_free(&s->ints_numbers);
    weft__name_table_free(&s->expression_numbers);
    weft__arena_free(&s->memory);
}
