/* Einsum of ONNX. Operands lose repeated letters (diagonals), then are contracted from left to
 * right, two at a time. An ellipsis means letters that the equation does not use. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <stdio.h>
#include <string.h>

#define MAX_OPERANDS 16
#define MAX_EQUATION 256

/* The subscripts of an operand or of the result. */
typedef struct term {
    char letters[WEFT_MAX_RANK + 1];
    int ellipsis; /* where it is among the letters; -1: nowhere */
} term;

typedef struct equation {
    char text[MAX_EQUATION];       /* without spaces */
    char spare[WEFT_MAX_RANK + 1]; /* letters for dimensions of an ellipsis, the last ones first */
    term operand[MAX_OPERANDS], result;
    size_t count;
    bool explicit;
} equation;

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool take_text(const onnx_node *n, equation *e)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, "equation");
    size_t length = 0;
    if (!a || !a->has_s) return false;
    for (size_t i = 0; i < a->s.len; i++) {
        const char c = (char)a->s.data[i];
        if (c == ' ') continue;
        if ((!is_letter(c) && c != ',' && c != '-' && c != '>' && c != '.') ||
            length + 1 == sizeof e->text)
            return false;
        e->text[length++] = c;
    }
    size_t n_spare = 0;
    for (char c = 'Z'; c >= 'A' && n_spare < WEFT_MAX_RANK; c--)
        if (!strchr(e->text, c)) e->spare[n_spare++] = c;
    return n_spare == WEFT_MAX_RANK;
}

static bool take_term(const char **at, term *t)
{
    size_t n = 0;
    t->ellipsis = -1;
    for (; **at; (*at)++) {
        if (!strncmp(*at, "...", 3) && t->ellipsis < 0) {
            t->ellipsis = (int)n;
            *at += 2;
        } else if (is_letter(**at) && n < WEFT_MAX_RANK) {
            t->letters[n++] = **at;
        } else {
            break;
        }
    }
    t->letters[n] = 0;
    return true;
}

static bool parse(const onnx_node *n, equation *e)
{
    *e = (equation){.count = 0};
    if (!take_text(n, e)) return false;
    const char *at = e->text;
    for (bool more = true; more; at += more) {
        if (e->count == MAX_OPERANDS || !take_term(&at, &e->operand[e->count++])) return false;
        more = *at == ',';
    }
    e->explicit = at[0] == '-' && at[1] == '>';
    if (e->explicit) at += 2;
    if (e->explicit && !take_term(&at, &e->result)) return false;
    return !*at && e->count == n->n_in;
}

/* Replaces an ellipsis by `count` letters; false above the largest rank. */
static bool spell_out(const equation *e, term *t, int count)
{
    const size_t n = strlen(t->letters);
    char rest[WEFT_MAX_RANK + 1];
    if (t->ellipsis < 0) return true;
    if (n + (size_t)count > WEFT_MAX_RANK) return false;
    memcpy(rest, t->letters + t->ellipsis, n - (size_t)t->ellipsis + 1);
    for (int i = 0; i < count; i++) t->letters[t->ellipsis + i] = e->spare[count - 1 - i];
    memcpy(t->letters + t->ellipsis + count, rest, n - (size_t)t->ellipsis + 1);
    return true;
}

/* The result that an equation implies: the ellipsis, then the letters that occur once, in
 * alphabetical order. */
static bool imply_result(equation *e, int ellipsis)
{
    size_t n = 0;
    for (int i = 0; i < ellipsis; i++) e->result.letters[n++] = e->spare[ellipsis - 1 - i];
    for (int letter = 'A'; letter <= 'z'; letter++) {
        const char c = (char)letter;
        int times = 0;
        if (!is_letter(c) || !strchr(e->text, c)) continue;
        for (size_t k = 0; k < e->count; k++)
            for (const char *at = e->operand[k].letters; *at; at++) times += *at == c;
        if (times == 1 && n == WEFT_MAX_RANK) return false;
        if (times == 1) e->result.letters[n++] = c;
    }
    return true;
}

/* Spells out all ellipses for the ranks of the operands. */
static bool expand_ellipses(onnx_node *n, equation *e)
{
    int most = 0;
    for (size_t k = 0; k < e->count; k++) {
        term *t = &e->operand[k];
        const int count = weft__in_shape(n, k).rank - (int)strlen(t->letters);
        if (count < 0 || (count > 0 && t->ellipsis < 0) || !spell_out(e, t, count)) return false;
        if (count > most) most = count;
    }
    return e->explicit ? spell_out(e, &e->result, most) : imply_result(e, most);
}

static void remove_letter(char *letters, int at)
{
    memmove(letters + at, letters + at + 1, strlen(letters + at));
}

/* The elements of x at equal indices of the axes i < j, which become the axis i. */
static weft_value diagonal(weft_graph *g, weft_value x, int i, int j)
{
    weft_shape s = weft_shape_of(g, x);
    weft_axes order = {.count = s.rank};
    int32_t next = 0;
    for (int k = 0; k < s.rank; k++)
        if (k != i && k != j) order.axis[next++] = k;
    order.axis[next] = i;
    order.axis[next + 1] = j;
    weft_shape flat = {.rank = s.rank - 1};
    for (int k = 0; k < s.rank - 2; k++) flat.dim[k] = s.dim[order.axis[k]];
    flat.dim[s.rank - 2] = s.dim[i] * s.dim[j];
    x = weft_reshape(g, weft_permute(g, x, order), flat);
    x = weft_slice(g, x, -1, 0, WEFT_END, s.dim[i] + 1);
    weft_axes back = {.count = s.rank - 1};
    for (int k = 0; k < s.rank - 1; k++) back.axis[k] = k < i ? k : k == i ? s.rank - 2 : k - 1;
    return weft_permute(g, x, back);
}

/* Operand k without repeated letters, and without dimensions of size 1 that an ellipsis has. */
static weft_value simplify(onnx_node *n, equation *e, size_t k)
{
    weft_graph *g = n->graph;
    char *letters = e->operand[k].letters;
    weft_value x = weft__widen(n, weft__in_value(n, k));
    for (int i = 0; letters[i]; i++)
        for (const char *same; (same = strchr(letters + i + 1, letters[i]));) {
            const int j = (int)(same - letters);
            if (weft_dim_of(g, x, i) != weft_dim_of(g, x, j) || weft_dim_of(g, x, i) < 1)
                return weft__node_fail(n, WEFT_BAD_SHAPE,
                                       "the letter '%c' has several sizes in operand %zu",
                                       letters[i], k);
            x = diagonal(g, x, i, j);
            remove_letter(letters, j);
        }
    for (int i = 0; letters[i];) {
        if (strchr(e->spare, letters[i]) && weft_dim_of(g, x, i) == 1) {
            x = weft_squeeze(g, x, i);
            remove_letter(letters, i);
        } else {
            i++;
        }
    }
    return x;
}

static bool is_needed(const equation *e, size_t after, char letter)
{
    bool needed = strchr(e->result.letters, letter) != NULL;
    for (size_t k = after; k < e->count; k++)
        needed |= strchr(e->operand[k].letters, letter) != NULL;
    return needed;
}

/* x times operand k, with the letters that the rest of the equation needs. */
static weft_value contract(onnx_node *n, equation *e, weft_value x, char *letters, size_t k,
                           weft_value operand)
{
    char kept[2 * WEFT_MAX_RANK + 1] = "", text[4 * WEFT_MAX_RANK + 8];
    const char *const lists[] = {letters, e->operand[k].letters};
    size_t count = 0;
    for (int i = 0; i < 2; i++)
        for (const char *at = lists[i]; *at; at++)
            if (is_needed(e, k + 1, *at) && !strchr(kept, *at)) kept[count++] = *at;
    if (count > WEFT_MAX_RANK)
        return weft__node_fail(n, WEFT_BAD_SHAPE, "its result has a rank above %d", WEFT_MAX_RANK);
    snprintf(text, sizeof text, "%s,%s->%s", letters, e->operand[k].letters, kept);
    memcpy(letters, kept, count + 1);
    return weft_einsum(n->graph, text, x, operand);
}

/* Sums over the letters that the result lacks, and permutes the others. Letters of an ellipsis
 * whose dimensions are all 1 become such dimensions. */
static weft_value arrange(onnx_node *n, const equation *e, weft_value x, char *letters)
{
    weft_graph *g = n->graph;
    weft_axes order = {.count = 0};
    for (int i = 0; letters[i];) {
        if (strchr(e->result.letters, letters[i])) {
            i++;
            continue;
        }
        x = weft_sum(g, x, WEFT_AXES(i), false);
        remove_letter(letters, i);
    }
    for (const char *at = e->result.letters; *at; at++) {
        const char *found = strchr(letters, *at);
        if (strchr(at + 1, *at) || (!found && !strchr(e->spare, *at)))
            return weft__node_fail(n, WEFT_BAD_FILE,
                                   "its result has '%c' twice, or no operand has it", *at);
        if (!found) {
            const size_t length = strlen(letters);
            x = weft_expand_dims(g, x, (int)length);
            letters[length] = *at;
            letters[length + 1] = 0;
        }
    }
    for (const char *at = e->result.letters; *at; at++)
        order.axis[order.count++] = (int32_t)(strchr(letters, *at) - letters);
    return order.count ? weft_permute(g, x, order) : x;
}

void weft__map_Einsum(onnx_node *n)
{
    equation e;
    char letters[2 * WEFT_MAX_RANK + 2];
    for (size_t i = 0; i < n->n_in; i++)
        if (!has_in(n, i)) {
            weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", i);
            return;
        }
    if (!parse(n, &e) || !expand_ellipses(n, &e)) {
        weft__node_fail(n, WEFT_BAD_FILE,
                        "its equation is malformed, or does not fit the ranks of its inputs");
        return;
    }
    weft_value operands[MAX_OPERANDS];
    for (size_t k = 0; k < e.count; k++) operands[k] = simplify(n, &e, k);
    if (weft__node_failed(n)) return;
    weft_value y = operands[0];
    memcpy(letters, e.operand[0].letters, sizeof e.operand[0].letters);
    for (size_t k = 1; k < e.count && !weft__node_failed(n); k++)
        y = contract(n, &e, y, letters, k, operands[k]);
    if (weft__node_failed(n)) return;
    y = arrange(n, &e, y, letters);
    if (weft_dtype_of(n->graph, weft__in_value(n, 0)) == WEFT_I32)
        y = weft__narrow(n, y, weft__in_type(n, 0));
    weft__set_typed(n, 0, y, weft__in_type(n, 0));
}
