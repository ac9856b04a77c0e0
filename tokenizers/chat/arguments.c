/* Arguments of functions. */
#include "chat/template.h"

#include <string.h>

/* Whether one of the names "a b c" is a text. */
static bool has_parameter(const char *parameters, const ct_value *name)
{
    while (*parameters) {
        const size_t n = strcspn(parameters, " ");
        if (n == name->n && !memcmp(parameters, name->as.text, n)) return true;
        parameters += n + (parameters[n] == ' ');
    }
    return false;
}

static size_t count_parameters(const char *parameters)
{
    size_t n = *parameters != 0;
    for (; *parameters; parameters++) n += *parameters == ' ';
    return n;
}

const ct_function *weft__ct_find_function(const ct_function *all, size_t n, const ct_value *name)
{
    for (size_t i = 0; i < n; i++)
        if (weft__ct_is(name, all[i].name)) return &all[i];
    return NULL;
}

ct_value weft__ct_apply(ct_render *r, const ct_function *f, const ct_value *self,
                        const ct_args *args)
{
    if (r->status != WEFT_OK) return ct_none();
    if (*f->parameters != '*') {
        const size_t n = count_parameters(f->parameters);
        if (args->n > n)
            return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%s takes %zu arguments at most, not %zu",
                                 f->name, n, args->n);
        for (size_t i = 0; i < args->n_named; i++)
            if (!has_parameter(f->parameters, &args->named[i].key))
                return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%s has no argument '%.*s'", f->name,
                                     (int)args->named[i].key.n, args->named[i].key.as.text);
    }
    return f->call(r, self, args);
}

ct_value weft__ct_arg(const ct_args *args, size_t i, const char *name)
{
    if (i < args->n) return args->items[i];
    for (size_t k = 0; k < args->n_named; k++)
        if (weft__ct_is(&args->named[k].key, name)) return args->named[k].value;
    return ct_missing();
}

ct_value weft__ct_text_arg(ct_render *r, const ct_args *args, size_t i, const char *name,
                           const char *fallback)
{
    const ct_value v = weft__ct_arg(args, i, name);
    if (v.type == CT_STRING) return v;
    if (fallback && (v.type == CT_MISSING || v.type == CT_NONE))
        return ct_string(fallback, strlen(fallback));
    if (v.type == CT_UNDEFINED) return weft__ct_fail_undefined(r, &v), ct_string("", 0);
    weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'%s' must be a text, not a %s", name,
                  v.type == CT_MISSING ? "missing value" : weft__ct_type_name(&v));
    return ct_string("", 0);
}

int64_t weft__ct_int_arg(ct_render *r, const ct_args *args, size_t i, const char *name,
                         int64_t fallback)
{
    const ct_value v = weft__ct_arg(args, i, name);
    int64_t whole = fallback;
    if (v.type != CT_MISSING) weft__ct_index(r, &v, name, &whole);
    return whole;
}

bool weft__ct_bool_arg(const ct_args *args, size_t i, const char *name, bool fallback)
{
    const ct_value v = weft__ct_arg(args, i, name);
    return v.type == CT_MISSING ? fallback : weft__ct_truth(&v);
}
