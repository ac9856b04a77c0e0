/* Chat templates: errors with their lines, templates that do not end, sources that are nested
 * deeply, and failing allocations. */
#include "tests.h"

#include <weft/chat.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static weft_chat_template *parse(const char *source)
{
    weft_error error;
    weft_chat_template *t = weft_chat_template_parse(source, strlen(source), &error);
    if (!t) printf("%s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* ---- Errors ---- */

static void test_errors(void)
{
    static const struct {
        const char *source;
        weft_status status;
        const char *message;
    } cases[] = {
        {"a\n{{ x | foo }}", WEFT_BAD_FILE, "line 2: filter 'foo' is not known"},
        {"{{ x is foo }}", WEFT_BAD_FILE, "line 1: test 'foo' is not known"},
        {"\n\n{% include 'x' %}", WEFT_BAD_FILE,
         "line 3: the statement 'include' is not supported"},
        {"{% foo %}", WEFT_BAD_FILE, "line 1: 'foo' is not a statement here"},
        {"{% if true %}\n\nx", WEFT_BAD_FILE, "line 3: the end of the template before {% endif %}"},
        {"{{ a b }}", WEFT_BAD_FILE, "line 1: expected '}}', found 'b'"},
        {"{{ 'a", WEFT_BAD_FILE, "line 1: a text without its closing quote"},
        {"{{ a.b.c }}", WEFT_BAD_ARGUMENT, "line 1: 'a' is undefined"},
        {"{{ messages.b.c }}", WEFT_BAD_ARGUMENT, "line 1: a list has no attribute 'b'"},
        {"{%- set x = [] %}\n{{ x.append(1) }}", WEFT_BAD_FILE,
         "line 2: the method 'append' of a list is not supported"},
        {"{{ 1 +\n'a' }}", WEFT_BAD_ARGUMENT, "line 1: '+' cannot take a int and a str"},
        {"{% for m in [1, 2] %}\n{{ raise_exception('no ' ~ m) }}{% endfor %}", WEFT_BAD_ARGUMENT,
         "line 2: no 1"},
        {"{{ raise_exception('a\nb') }}", WEFT_BAD_ARGUMENT, "line 1: a\\nb"},
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         WEFT_TOO_LARGE, "the template needs more than 256 MiB"},
        {"{% set l = range(99999)|list %}{% for i in l %}{{ -1 in l }}{% endfor %}", WEFT_TOO_LARGE,
         "the template takes more than 20000000 steps"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", WEFT_TOO_LARGE,
         "line 1: more than 400 "},
        {"{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
         "{% endfor %}",
         WEFT_TOO_LARGE, "line 1: "},
        {"{% set x = 'x' * 9999999 %}{% for i in range(9) %}{{ x }}{% endfor %}", WEFT_TOO_LARGE,
         "line 1: a text of more than 64 MiB"},
        {"{{ [[0] * 9999] * 99999 }}", WEFT_TOO_LARGE, "line 1: "},
        {"{{ 'x' * 9999 * 9999999 }}", WEFT_TOO_LARGE, "more than 64 MiB"},
        {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor "
         "%}"
         "{{ ns.x }}",
         WEFT_TOO_LARGE, "nested too deeply"},
        {"{% set ns = namespace(x=()) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}"
         "{% endfor %}{{ ns.x in {} }}",
         WEFT_TOO_LARGE, "the template takes more than 20000000 steps"},
        {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns.x|tojson }}", WEFT_BAD_ARGUMENT,
         "a namespace cannot become JSON"},
        {"{{ 9223372036854775807 }}", WEFT_BAD_FILE, "a number with 19 digits"},
        {"{{ 999999999999999999 * 100 }}", WEFT_BAD_FILE, "an integer of more than 64 bits"},
        {"{{ strftime_now('%Q') }}", WEFT_BAD_FILE, "strftime_now does not support %Q"},
        {"{{ '\\x00' }}", WEFT_BAD_FILE, "an escape that is not a character"},
        {"{% for x in [1] recursive %}{% endfor %}", WEFT_BAD_FILE, "recursive loops"},
        {"\xFF", WEFT_BAD_FILE, "is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error;
        weft_chat_template *t =
            weft_chat_template_parse(cases[i].source, strlen(cases[i].source), &error);
        char *text = t ? weft_chat_template_render(t, NULL, 0, NULL, &error) : NULL;
        CU_ASSERT_PTR_NULL(text);
        CU_ASSERT_EQUAL(error.status, cases[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i].message));
        if (!strstr(error.message, cases[i].message))
            printf("%s: %s\n", cases[i].message, error.message);
        weft_free(text);
        weft_chat_template_free(t);
    }
}

/* Sources that are nested deeply, or large. */
static void test_large_sources(void)
{
    static const char *const units[][2] = {
        {"{{ (", "(1"},
        {"{{ [", "["},
        {"{{ not ", "not "},
        {"{{ -", "- "},
        {"{{ a", ".b"},
        {"{{ 1", " + 1"},
        {"{{ a", "|upper"},
        {"{{ a", " if 1 else a"},
        {"", "{% if 1 %}"},
        {"", "{% for a in b %}"},
        {"{{ f", "(a)"},
        {"{% set ", "("},
        {"{{ a", " is string is string"},
        {"", "{{ a }}"},
        {"{% if 0 %}", "{% elif 1 %}"},
    };
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        const size_t first = strlen(units[k][0]), n = strlen(units[k][1]), count = 40000;
        char *source = malloc(first + n * count + 1);
        weft_error error = WEFT_NO_ERROR;
        CU_ASSERT_PTR_NOT_NULL_FATAL(source);
        memcpy(source, units[k][0], first);
        for (size_t i = 0; i < count; i++) memcpy(source + first + i * n, units[k][1], n);
        weft_chat_template *t = weft_chat_template_parse(source, first + n * count, &error);
        if (t) weft_free(weft_chat_template_render(t, NULL, 0, NULL, &error));
        CU_ASSERT(k == 13 ? error.status == WEFT_OK
                          : error.status == WEFT_TOO_LARGE || error.status == WEFT_BAD_FILE);
        weft_chat_template_free(t);
        free(source);
    }
    char *large = calloc(2, 1 << 20);
    weft_error error;
    memset(large, ' ', (2 << 20) - 1);
    CU_ASSERT_PTR_NULL(weft_chat_template_parse(large, (1 << 20) + 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    free(large);
}

static void test_bad_arguments(void)
{
    static const struct {
        weft_chat_options options;
        weft_chat_message message;
        weft_status status;
        const char *part;
    } cases[] = {
        {{.tools = "{}"}, {0}, WEFT_BAD_ARGUMENT, "the tools must be an array"},
        {{.tools = "[1"}, {0}, WEFT_BAD_ARGUMENT, "the tools are not JSON at byte 1"},
        {{.variables = "{\"a\": -}"}, {0}, WEFT_BAD_ARGUMENT, "the variables are not JSON"},
        {{.variables = "{\"a\": \"\\ud800\"}"}, {0}, WEFT_BAD_ARGUMENT, "not JSON at byte"},
        {{.variables = "{} x"}, {0}, WEFT_BAD_ARGUMENT, "not JSON at byte 3"},
        {{.name = "other"}, {0}, WEFT_NOT_FOUND, "unknown template 'other'"},
        {{.date = "2025-02-29"}, {0}, WEFT_BAD_ARGUMENT, "the date '2025-02-29' is not like"},
        {{.date = "2025-01-31T1:00:00"}, {0}, WEFT_BAD_ARGUMENT, "is not like 2025-01-31"},
        {{0}, {"a", "b", "[]"}, WEFT_BAD_ARGUMENT, "the members of a message must be an object"},
    };
    weft_chat_template *t = parse("{{ strftime_now('%d.%m.%Y %a') }}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error;
        CU_ASSERT_PTR_NULL(
            weft_chat_template_render(t, &cases[i].message, 1, &cases[i].options, &error));
        CU_ASSERT_EQUAL(error.status, cases[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i].part));
        if (!strstr(error.message, cases[i].part)) printf("%s\n", error.message);
    }
    weft_chat_template_free(t);
}

/* ---- Memory ---- */

static weft_status load_file(const char *path)
{
    weft_error error;
    FILE *file = fopen(path, "w");
    if (!file) return WEFT_IO;
    fputs(
        "{\"bos_token\": \"a\", \"chat_template\": [{\"name\": \"default\", \"template\": \"b\"}]}",
        file);
    fclose(file);
    char with_end[300];
    snprintf(with_end, sizeof with_end, "%s.json", path);
    if (rename(path, with_end) != 0) return WEFT_IO;
    weft_chat_template *t = weft_chat_template_load(with_end, &error);
    unlink(with_end);
    weft_chat_template_free(t);
    /* The allocator that fails here does not set errno, so reading says that it failed. */
    return error.status == WEFT_IO ? WEFT_NO_MEMORY : error.status;
}

static weft_status load_and_render(const char *path)
{
    static const weft_chat_message messages[] = {
        {"system", "s", NULL},
        {"user", " b\n c", "{\"n\": {\"x\": [1.5, \"y\"]}}"},
        {"assistant", "d", NULL}};
    static const weft_chat_options options = {.tools = "[{\"k\": [1, 2]}]", .bos_token = "<s>"};
    static const char source[] =
        "{% macro m(a, b=[1]) %}{{ a ~ caller(b) if caller is defined else a }}{% endmacro %}"
        "{% set ns = namespace(x=0) %}{% for i in messages if i.role != 'q' %}{% set ns.x = "
        "loop.length %}"
        "{{ i|tojson(indent=2) }}{{ i.content.split()|join('-')|upper|indent }}{% endfor %}"
        "{% call(z) m('x', b=2) %}{{ z }}{{ m(1) }}{% endcall %}{{ tools|map(attribute='k')|list }}"
        "{% set t | trim %}{{ '%s' % ns.x }}{% endset %}{{ t }}{{ {'a': 1}.items()|list|tojson }}"
        "{{ messages|map(attribute='role')|sort|unique|reverse|list }}{{ 'abc'[::2] * 2 }}";
    weft_error error = WEFT_NO_ERROR;
    weft_chat_template *t = weft_chat_template_parse(source, sizeof source - 1, &error);
    char *text = t ? weft_chat_template_render(t, messages, 3, &options, &error) : NULL;
    weft_free(text);
    weft_chat_template_free(t);
    return error.status == WEFT_OK ? load_file(path) : error.status;
}

static void test_failing_allocations(void)
{
    test_fail_all(load_and_render);
}

static void render_deep(void *data)
{
    weft_error error;
    CU_ASSERT_PTR_NULL(weft_chat_template_render(data, NULL, 0, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
}

/* The deepest rendering fits the stack of a small thread. */
static void test_stack(void)
{
    weft_chat_template *t = parse(
        "{% macro m(a) %}{% for x in [1] %}{% if 1 %}{% filter upper %}{{ (m([[1]])|map('string')|"
        "list)[0].strip() ~ {'a': [m(1)]} }}{% endfilter %}{% endif %}{% endfor %}{% endmacro %}"
        "{{ m(1) }}");
    CU_ASSERT_TRUE(test_with_stack((size_t)256 << 10, render_deep, t));
    weft_chat_template_free(t);
}

void chat_errors_tests(void)
{
    CU_pSuite suite = CU_add_suite("chat_errors", NULL, NULL);
    CU_add_test(suite, "errors with their lines", test_errors);
    CU_add_test(suite, "large sources", test_large_sources);
    CU_add_test(suite, "bad arguments", test_bad_arguments);
    CU_add_test(suite, "every allocation fails once", test_failing_allocations);
    CU_add_test(suite, "the stack", test_stack);
}
