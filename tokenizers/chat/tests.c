/* Tests: `is defined` and the others. */
#include "chat/template.h"

#include <string.h>

typedef bool test(ct_render *r, const ct_value *v, const ct_value *other);

static bool is_defined(ct_render *r, const ct_value *v, const ct_value *other)
{
    (void)r, (void)other;
    return v->type != CT_UNDEFINED;
}

static bool is_undefined(ct_render *r, const ct_value *v, const ct_value *other)
{
    return !is_defined(r, v, other);
}

#define IS(name, condition)                                                                        \
    static bool name(ct_render *r, const ct_value *v, const ct_value *other)                       \
    {                                                                                              \
        (void)r, (void)other;                                                                      \
        return condition;                                                                          \
    }
IS(is_none, v->type == CT_NONE)
IS(is_string, v->type == CT_STRING)
IS(is_mapping, v->type == CT_DICT)
IS(is_boolean, v->type == CT_BOOL)
IS(is_integer, v->type == CT_INT)
IS(is_float, v->type == CT_FLOAT)
IS(is_number, ct_is_number(v))
IS(is_true, v->type == CT_BOOL && v->as.truth)
IS(is_false, v->type == CT_BOOL && !v->as.truth)
IS(is_callable, v->type >= CT_MACRO || v->type == CT_UNDEFINED)
IS(is_sequence, v->type == CT_STRING || v->type == CT_LIST || v->type == CT_TUPLE ||
                    v->type == CT_RANGE || v->type == CT_DICT || v->type == CT_UNDEFINED)
IS(is_iterable, v->type == CT_STRING || v->type == CT_UNDEFINED ||
                    (v->type >= CT_LIST && v->type <= CT_DICT) || v->type == CT_LOOP)
#undef IS

static bool is_case(ct_render *r, const ct_value *v, ct_case of)
{
    const ct_value text = weft__ct_text(r, v);
    return weft__ct_work(r, 8 * text.n) && weft__ct_is_case(text.as.text, text.n, of);
}

static bool is_lower(ct_render *r, const ct_value *v, const ct_value *other)
{
    (void)other;
    return is_case(r, v, CT_LOWER);
}

static bool is_upper(ct_render *r, const ct_value *v, const ct_value *other)
{
    (void)other;
    return is_case(r, v, CT_UPPER);
}

static bool is_equal(ct_render *r, const ct_value *v, const ct_value *other)
{
    return weft__ct_equal(r, v, other);
}

static bool is_unequal(ct_render *r, const ct_value *v, const ct_value *other)
{
    return !weft__ct_equal(r, v, other);
}

static bool is_less(ct_render *r, const ct_value *v, const ct_value *other)
{
    return weft__ct_compare(r, v, other, "<") < 0;
}

static bool is_greater(ct_render *r, const ct_value *v, const ct_value *other)
{
    return weft__ct_compare(r, v, other, ">") > 0;
}

static bool is_at_most(ct_render *r, const ct_value *v, const ct_value *other)
{
    return weft__ct_compare(r, v, other, "<=") <= 0;
}

static bool is_at_least(ct_render *r, const ct_value *v, const ct_value *other)
{
    return weft__ct_compare(r, v, other, ">=") >= 0;
}

static bool is_in(ct_render *r, const ct_value *v, const ct_value *other)
{
    return weft__ct_contains(r, other, v);
}

static bool is_same(ct_render *r, const ct_value *v, const ct_value *other)
{
    return v->type == other->type && v->n == other->n && weft__ct_equal(r, v, other);
}

static bool is_divisible(ct_render *r, const ct_value *v, const ct_value *other)
{
    const ct_value zero = ct_int(0), rest = weft__ct_binary(r, '%', v, other);
    return weft__ct_equal(r, &rest, &zero);
}

static bool is_odd(ct_render *r, const ct_value *v, const ct_value *other)
{
    const ct_value one = ct_int(1), two = ct_int(2), rest = weft__ct_binary(r, '%', v, &two);
    (void)other;
    return weft__ct_equal(r, &rest, &one);
}

static bool is_even(ct_render *r, const ct_value *v, const ct_value *other)
{
    const ct_value two = ct_int(2);
    (void)other;
    return is_divisible(r, v, &two);
}

static const struct {
    const char *name;
    test *holds;
    size_t arguments;
} tests[] = {
    {"defined", is_defined, 0},   {"undefined", is_undefined, 0},
    {"none", is_none, 0},         {"string", is_string, 0},
    {"mapping", is_mapping, 0},   {"boolean", is_boolean, 0},
    {"integer", is_integer, 0},   {"float", is_float, 0},
    {"number", is_number, 0},     {"true", is_true, 0},
    {"false", is_false, 0},       {"callable", is_callable, 0},
    {"sequence", is_sequence, 0}, {"iterable", is_iterable, 0},
    {"lower", is_lower, 0},       {"upper", is_upper, 0},
    {"odd", is_odd, 0},           {"even", is_even, 0},
    {"equalto", is_equal, 1},     {"eq", is_equal, 1},
    {"==", is_equal, 1},          {"ne", is_unequal, 1},
    {"!=", is_unequal, 1},        {"lt", is_less, 1},
    {"lessthan", is_less, 1},     {"<", is_less, 1},
    {"gt", is_greater, 1},        {"greaterthan", is_greater, 1},
    {">", is_greater, 1},         {"le", is_at_most, 1},
    {"<=", is_at_most, 1},        {"ge", is_at_least, 1},
    {">=", is_at_least, 1},       {"in", is_in, 1},
    {"sameas", is_same, 1},       {"divisibleby", is_divisible, 1},
};

bool weft__ct_test(ct_render *r, const ct_value *name, const ct_value *in, const ct_args *args)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (!weft__ct_is(name, tests[i].name)) continue;
        if (args->n == tests[i].arguments && !args->n_named)
            return tests[i].holds(r, in, args->n ? &args->items[0] : NULL);
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the test '%s' takes %zu arguments, not %zu",
                      tests[i].name, tests[i].arguments, args->n + args->n_named);
        return false;
    }
    const int n = (int)(name->type == CT_STRING ? name->n < 60 ? name->n : 60 : 0);
    weft__ct_fail(r, WEFT_BAD_FILE, "test '%.*s' is not known", n, n ? name->as.text : "");
    return false;
}
