/* Arithmetic on numbers, texts and lists, as Python's, with integers of 64 bits. */
#include "chat/template.h"

#include <math.h>
#include <string.h>

static ct_value too_large(ct_render *r)
{
    return weft__ct_fail(r, WEFT_BAD_FILE, "an integer of more than 64 bits");
}

static ct_value by_zero(ct_render *r)
{
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a division by zero");
}

static ct_value integer_power(ct_render *r, int64_t a, int64_t b)
{
    int64_t power = 1;
    if (b < 0 && a == 0) return by_zero(r);
    if (b < 0) return ct_float(pow((double)a, (double)b));
    if (a == 1 || (a == 0 && b > 0)) return ct_int(a);
    if (a == -1) return ct_int(b % 2 ? -1 : 1);
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(power, a, &power)) return too_large(r);
    return ct_int(power);
}

static ct_value integers(ct_render *r, int op, int64_t a, int64_t b)
{
    int64_t result = 0;
    switch (op) {
    case '+':
        return __builtin_add_overflow(a, b, &result) ? too_large(r) : ct_int(result);
    case '-':
        return __builtin_sub_overflow(a, b, &result) ? too_large(r) : ct_int(result);
    case '*':
        return __builtin_mul_overflow(a, b, &result) ? too_large(r) : ct_int(result);
    case CT_TWO('*', '*'):
        return integer_power(r, a, b);
    default:
        break;
    }
    if (b == 0) return by_zero(r);
    if (op == '/') return ct_float((double)a / (double)b);
    if (b == -1) return op == '%' ? ct_int(0) : integers(r, '-', 0, a);
    /* The remainder has the sign of b. */
    const int64_t rest = a % b, moved = rest != 0 && (rest < 0) != (b < 0);
    return ct_int(op == '%' ? rest + (moved ? b : 0) : a / b - moved);
}

static ct_value floats(ct_render *r, int op, double a, double b)
{
    switch (op) {
    case '+':
        return ct_float(a + b);
    case '-':
        return ct_float(a - b);
    case '*':
        return ct_float(a * b);
    case CT_TWO('*', '*'):
        if (a == 0 && b < 0) return by_zero(r);
        if (a < 0 && b != floor(b))
            return weft__ct_fail(r, WEFT_BAD_FILE, "a power that is not real");
        return ct_float(pow(a, b));
    default:
        break;
    }
    if (b == 0) return by_zero(r);
    if (op == '/') return ct_float(a / b);
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
    }
    if (rest == 0) rest = copysign(0, b);
    if (op == '%') return ct_float(rest);
    if (quotient == 0) return ct_float(copysign(0, a / b));
    const double whole = floor(quotient);
    return ct_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

static ct_value join(ct_render *r, const ct_value *a, const ct_value *b)
{
    if (a->type == CT_STRING) {
        ct_buffer text = weft__ct_buffer();
        weft__ct_print(r, &text, a);
        weft__ct_print(r, &text, b);
        return weft__ct_take(r, &text);
    }
    const size_t n = a->n + b->n;
    ct_value *items = weft__ct_work(r, 64 * n) ? weft__ct_alloc(r, n, sizeof *items) : NULL;
    if (!items) return ct_none();
    if (a->n) memcpy(items, a->as.items, a->n * sizeof *items);
    if (b->n) memcpy(items + a->n, b->as.items, b->n * sizeof *items);
    return ct_sequence(a->type, items, n);
}

static ct_value repeat(ct_render *r, const ct_value *of, int64_t times)
{
    ct_value v = *of;
    if (times < 1 || !of->n) {
        v.n = 0;
        return v;
    }
    if (of->type == CT_STRING) {
        ct_buffer b = weft__ct_buffer();
        for (int64_t i = 0; i < times && !b.failed && weft__ct_work(r, of->n); i++)
            weft__ct_put(&b, of->as.text, of->n);
        return weft__ct_take(r, &b);
    }
    if (times > (int64_t)(CT_MAX_MEMORY / of->n))
        return weft__ct_fail(r, WEFT_TOO_LARGE, "a list that is too long");
    const size_t n = of->n * (size_t)times;
    ct_value *items = weft__ct_work(r, 64 * n) ? weft__ct_alloc(r, n, sizeof *items) : NULL;
    if (!items) return v;
    for (size_t i = 0; i < n; i++) items[i] = of->as.items[i % of->n];
    return ct_sequence(of->type, items, n);
}

static bool can_repeat(const ct_value *v)
{
    return v->type == CT_STRING || v->type == CT_LIST || v->type == CT_TUPLE;
}

ct_value weft__ct_binary(ct_render *r, int op, const ct_value *a, const ct_value *b)
{
    const char text[] = {(char)(op > 255 ? op >> 8 : op), op > 255 ? (char)(op & 255) : (char)0, 0};
    if (op == '%' && a->type == CT_STRING) return weft__ct_format(r, a, b);
    if (a->type == CT_UNDEFINED || b->type == CT_UNDEFINED)
        return weft__ct_fail_undefined(r, a->type == CT_UNDEFINED ? a : b);
    if (ct_is_whole(a) && ct_is_whole(b)) return integers(r, op, ct_whole(a), ct_whole(b));
    if (ct_is_number(a) && ct_is_number(b)) return floats(r, op, ct_number(a), ct_number(b));
    if (op == '+' && a->type == b->type && can_repeat(a)) return join(r, a, b);
    if (op == '*' && can_repeat(a) && ct_is_whole(b)) return repeat(r, a, ct_whole(b));
    if (op == '*' && can_repeat(b) && ct_is_whole(a)) return repeat(r, b, ct_whole(a));
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'%s' cannot take a %s and a %s", text,
                         weft__ct_type_name(a), weft__ct_type_name(b));
}
