/* Constraints: which texts may continue under regular expressions and JSON schemas, what is refused,
 * steps that are limited, bytes of tokens, and texts that grow token by token. */
#include "tests.h"

#include <weft/constraint.h>
#include <weft/tokenizers.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Matching ---- */

typedef struct text_case {
    const char *pattern, *text;
    char state; /* W: whole, M: maybe, N: never */
} text_case;

/* The state of a text; ? after an error. */
static char state_of(const weft_constraint *c, const char *text)
{
    weft_constraint_state state;
    weft_error error;
    if (weft_constraint_match(c, text, strlen(text), &state, &error) != WEFT_OK) return '?';
    return "NMW"[state];
}

static void check_cases(const text_case *cases, size_t n, bool json)
{
    for (size_t i = 0; i < n; i++) {
        weft_error error;
        weft_constraint *c = json ? weft_constraint_new_json(cases[i].pattern, &error)
                                  : weft_constraint_new_regex(cases[i].pattern, &error);
        if (!c) printf("%s: %s\n", cases[i].pattern, error.message);
        CU_ASSERT_PTR_NOT_NULL_FATAL(c);
        const char got = state_of(c, cases[i].text);
        if (got != cases[i].state)
            printf("%s on %s: %c, expected %c\n", cases[i].pattern, cases[i].text, got,
                   cases[i].state);
        CU_ASSERT_EQUAL(got, cases[i].state);
        weft_constraint_free(c);
    }
}

static void test_regexes(void)
{
    static const text_case cases[] = {
        {"abc", "", 'M'},
        {"abc", "ab", 'M'},
        {"abc", "abc", 'W'},
        {"abc", "abcd", 'N'},
        {"abc", "b", 'N'},
        {"a*", "", 'W'},
        {"a|bc", "b", 'M'},
        {"a|bc", "ab", 'N'},
        {"a|bc", "bc", 'W'},
        {"^a$", "a", 'W'},
        {"(a)|b\\1?", "b", 'W'},
        {"\\d+ (yes|no)", "12 y", 'M'},
        {"\\d+ (yes|no)", "12 yn", 'N'},
        {"\\w+", "\xC3\xA9", 'W'},
        {".", "\xF0\x9F\x98\x80", 'W'},
        {".", "\n", 'N'},
        {"(?s).", "\n", 'W'},
        {"(?i)AB", "aB", 'W'},
        {"(?<n>x(?&n)?y)", "xx", 'M'},
        {"(?<n>x(?&n)?y)", "xxyy", 'W'},
        {"(?<n>x(?&n)?y)", "xyy", 'N'},
        {"a$", "a", 'W'},
        {"(?x)a # b", "a", 'W'},
        {"(?x)a # b", "ab", 'N'},
        {"a\\Qb+", "ab+", 'W'},
        {"a\\Qb+", "ab+c", 'N'},
        {"(?m)a|b", "a\nb", 'N'},
        {"a|a\\n", "a\n", 'W'},
        {"(a\\g<1>?b)+", "aabbab", 'W'},
        {"\\((?:\\?R)", "(?R", 'W'},
        {"(?!ab)[a-z]+", "ac", 'W'},
        {"(?!ab)[a-z]+", "ab", 'N'},
    };
    check_cases(cases, sizeof cases / sizeof *cases, false);
    weft_constraint *c = weft_constraint_new_regex("a|bc", NULL);
    CU_ASSERT_STRING_EQUAL(weft_constraint_pattern(c), "a|bc");
    weft_constraint_free(c);
}

/* Texts that end within a character: its last bytes decide. */
static void test_cut_characters(void)
{
    static const text_case cases[] = {
        {"[a-z]+", "a\xC3", 'N'},
        {"[a-z]+", "a\xE2", 'N'},
        {"[a-z]+", "a\xF0", 'N'},
        {"[^x]", "\xC3", 'M'},
        {"[^x]", "\xE2\x82", 'M'},
        {"[^x]", "\xF4", 'M'},
        {"[^x]", "\xF4\x90", 'N'}, /* over U+10FFFF */
        {"[^x]", "\xED\xA0", 'N'}, /* a surrogate */
        {"[^x]", "\xE0\x80", 'N'}, /* overlong */
        {"[^x]", "\xC0", 'N'},     /* overlong */
        {"[^x]", "\x80", 'N'},
        {"\xE2\x82\xAC", "\xE2", 'M'}, /* the euro sign */
        {"\xE2\x82\xAC", "\xE2\x82", 'M'},
        {"\xE2\x82\xAC", "\xE2\x83", 'N'},
        {"\xE2\x82\xAC", "\xE3", 'N'},
        {"\\x{20ac}", "\xE2\x82", 'M'},
        {"\\x{20ac}", "\xE2\x81", 'N'},
        {"\xF0\x9F\x98\x81", "\xF0", 'M'}, /* an emoji */
        {"\xF0\x9F\x98\x81", "\xF0\x9F\x98", 'M'},
        {"\xF0\x9F\x98\x81", "\xF0\x9F\x99", 'N'},
        {"[\xCE\xB1-\xCF\x89]+", "\xCE", 'M'}, /* Greek */
        {"[\xCE\xB1-\xCF\x89]+", "\xC3", 'N'},
        {"\\p{Thai}+", "\xE0\xB8", 'M'},
        {"\\p{Thai}+", "\xE0", 'M'},
        {"\\p{Thai}+", "\xE1", 'N'},
        {"a?", "a\xC3", 'N'},
    };
    check_cases(cases, sizeof cases / sizeof *cases, false);
}

static void test_refused_regexes(void)
{
    static const char *const patterns[] = {
        "(",         "a)|(b",     "[a",        "\\C",         "a{2,1}",           "(?<x>a)(?&y)",
        "\xFF",      "*",         "(?#",       "a(?R)?b",     "a(?0)?b",          "a(?00)?b",
        "a\\g<0>?b", "a\\g'0'?b", "\\\\(?R)?", "a(*ACCEPT)b", "(a(*ACCEPT:x)|b)c"};
    weft_error error;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        CU_ASSERT_PTR_NULL(weft_constraint_new_regex(patterns[i], &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
        CU_ASSERT_STRING_EQUAL(error.where, "regular expression");
    }
    CU_ASSERT_PTR_NULL(weft_constraint_new_regex(NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
}

/* Patterns that match in very many ways end with an error, and others may be long. */
static void test_steps(void)
{
    static const char *const patterns[] = {"(a+)+b", "(a|a)*b", "(?:a?){40}a{40}b", "(a|aa)+c",
                                           "(?<x>a(?&x)?(?&x)?b?)+c"};
    weft_constraint_state state;
    weft_error error;
    char *text = malloc(100001);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memset(text, 'a', 100000);
    text[100000] = 'x';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        weft_constraint *c = weft_constraint_new_regex(patterns[i], &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(c);
        CU_ASSERT_EQUAL(weft_constraint_match(c, text + 99940, 61, &state, &error), WEFT_TOO_LARGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "too many ways"));
        weft_constraint_free(c);
    }
    weft_constraint *c = weft_constraint_new_regex("a+|(?:a|b)*|([^b]|bb)+x", &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    CU_ASSERT_EQUAL(weft_constraint_match(c, text, 100000, &state, &error), WEFT_OK);
    CU_ASSERT_EQUAL(state, WEFT_CONSTRAINT_WHOLE);
    CU_ASSERT_EQUAL(weft_constraint_match(c, text, 100001, &state, &error), WEFT_OK);
    CU_ASSERT_EQUAL(state, WEFT_CONSTRAINT_WHOLE);
    weft_constraint_free(c);
    free(text);
}

/* A pattern that names n characters from U+4E00 on, twice each. */
static weft_constraint *named(uint32_t n, const char *end, weft_error *error)
{
    char *pattern = malloc(6 * (size_t)n + 20), *to = pattern;
    CU_ASSERT_PTR_NOT_NULL_FATAL(pattern);
    *to++ = '[';
    for (uint32_t i = 0; i < 2 * n; i++) {
        const uint32_t c = 0x4E00 + i % n;
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    snprintf(to, 20, "]%s", end);
    weft_constraint *c = weft_constraint_new_regex(pattern, error);
    free(pattern);
    return c;
}

static void test_named_characters(void)
{
    weft_error error;
    weft_constraint *c = named(4096, "", &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    CU_ASSERT_EQUAL(state_of(c, "\xE4\xB8"), 'M');
    CU_ASSERT_EQUAL(state_of(c, "\xE4\xB7"), 'N');
    weft_constraint_free(c);
    CU_ASSERT_PTR_NULL(named(4097, "", &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    CU_ASSERT_STRING_EQUAL(error.message, "names 4097 different characters beyond ASCII, at most "
                                          "4096 are supported");
}

/* ---- Schemas ---- */

#define LIST                                                                                       \
    "{\"$defs\":{\"list\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":["     \
    "{\"$ref\":\"#/$defs/list\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},"          \
    "\"$ref\":\"#/$defs/list\"}"
#define PERSON                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":"            \
    "\"integer\"},\"c\":{\"type\":\"boolean\"}},\"required\":[\"b\"],\"additionalProperties\":"    \
    "false}"

static void test_schemas(void)
{
    static const text_case cases[] = {
        {NULL, "{", 'M'},
        {NULL, "{}", 'W'},
        {NULL, "{ ", 'N'},
        {NULL, "[", 'N'},
        {NULL, "{\"a\": [1, {\"b\": null}, -1.5e-3]}", 'W'},
        {NULL, "{\"a\":  ", 'N'},
        {NULL, "{\"a\",", 'N'},
        {NULL, "{\"a\": 01", 'N'},
        {NULL, "{\"a\": 1.}", 'N'},
        {NULL, "{\"a\\", 'M'},
        {NULL, "{\"a\\x", 'N'},
        {NULL, "{\"\\u00", 'M'},
        {NULL, "{\"\\u0000", 'N'},
        {NULL, "{\"\\uD83D\\uDE", 'M'},
        {NULL, "{\"\\uD83Da", 'N'},
        {NULL, "{\"\\uDE00", 'N'},
        {NULL, "{\"a\nb", 'N'},
        {"{}", "[1, \"a\", true]", 'W'},
        {"true", "null", 'W'},
        {PERSON, "{\"b\":1}", 'W'},
        {PERSON, "{\"b\": 1, \"c\": true}", 'W'},
        {PERSON, "{\"a\":\"x\",\"b\":1}", 'W'},
        {PERSON, "{\"a\":\"x\"}", 'N'},
        {PERSON, "{\"c\"", 'N'},
        {PERSON, "{\"b\":1,\"d", 'N'},
        {PERSON, "{,", 'N'},
        {PERSON, "{}", 'N'},
        {"{\"properties\":{\"a\":{},\"b\":{}}}", "{}", 'W'},
        {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":{}}", 'W'},
        {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"a\":{},\"b\":[]}", 'W'},
        {"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"b\":1,\"a", 'N'},
        {"{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":1,\"y\": 2}", 'W'},
        {"{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":\"", 'N'},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":true}", "{\"ab\":1}",
         'W'},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":true}",
         "{\"b\":1,\"a\"", 'N'},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":true}",
         "{\"b\":1,\"a", 'M'},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":true}", "{\"\\",
         'N'},
        {"{\"enum\":[\"a\",1,1.5,null],\"type\":\"integer\"}", "1", 'W'},
        {"{\"enum\":[\"a\",1,1.5,null],\"type\":\"integer\"}", "1.", 'N'},
        {"{\"enum\":[\"a\",1,1.5,null],\"type\":[\"string\",\"number\"]}", "1.5", 'W'},
        {"{\"enum\":[\"a\",1,1.5,null],\"type\":[\"string\",\"number\"]}", "n", 'N'},
        {"{\"const\":\"a\",\"type\":\"string\"}", "\"a\"", 'W'},
        {"{\"type\":\"string\",\"pattern\":\"^[[:alpha:]\\\\]]+$\"}", "\"a]\"", 'W'},
        /* Not a POSIX class: the dot is outside. */
        {"{\"pattern\":\"^[[:].:]b]$\"}", "\"[x:]b]\"", 'W'},
        {"{\"pattern\":\"^[[:].:]b]$\"}", "\"[\":]b]\"", 'N'},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1, 2,3]", 'W'},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1]", 'N'},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         "[1,2,3,", 'N'},
        {"{\"type\":\"array\",\"maxItems\":0}", "[]", 'W'},
        {"{\"type\":\"array\",\"maxItems\":0}", "[1", 'N'},
        {"{\"items\":{\"type\":\"null\"}}", "[]", 'W'},
        {"{\"items\":{\"type\":\"null\"}}", "[null,null,null]", 'W'},
        {"{\"enum\":[\"a\",1,null,{\"x\":[1]}]}", "{\"x\":[1]}", 'W'},
        {"{\"enum\":[\"a\",\"a.c\"]}", "\"abc\"", 'N'},
        {"{\"const\":\"q\\\"\"}", "\"q\\\"\"", 'W'},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", 'N'},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xC3\xA9\\n\"", 'W'},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abcd", 'N'},
        {"{\"type\":\"string\",\"minLength\":2}", "\"abcdef\"", 'W'},
        {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}.$\"}", "\"ABc\"", 'W'},
        {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}.$\"}", "\"AB\"", 'N'},
        {"{\"type\":\"string\",\"pattern\":\"[!-~]+\"}", "\"a\\\"", 'N'},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", "\"abc\"", 'W'},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", "\"ac\"", 'N'},
        {"{\"type\":\"string\",\"pattern\":\"^(a|b)\"}", "\"bzz\"", 'W'},
        {"{\"format\":\"date\"}", "\"2026-11-27\"", 'W'},
        {"{\"format\":\"date\"}", "\"2026-13", 'N'},
        {"{\"type\":\"integer\"}", "-12", 'W'},
        {"{\"type\":\"integer\"}", "1.", 'N'},
        {"{\"type\":\"number\"}", "-0.5E+1", 'W'},
        {"{\"type\":\"number\",\"minimum\":0}", "-", 'N'},
        {"{\"type\":[\"string\",\"null\"]}", "nul", 'M'},
        {"{\"type\":[\"string\",\"null\"]}", "true", 'N'},
        {"{\"allOf\":[{\"type\":\"null\"}]}", "null", 'W'},
        {LIST, "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}", 'W'},
        {LIST, "{\"v\":1,\"next\":{\"v\":2,\"next\":null}", 'M'},
        {LIST, "{\"v\":1,\"next\":{\"v\":2}", 'N'},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
         "[[],[null,[null]]]", 'W'},
        {"{\"definitions\":{\"a/b~\":{\"type\":\"null\"}},\"$ref\":\"#/definitions/a~1b~0\"}",
         "null", 'W'},
    };
    check_cases(cases, sizeof cases / sizeof *cases, true);
}

/* Whole numbers within bounds, against every number near them. */
static void test_bounds(void)
{
    static const int bounds[][2] = {{0, 0},   {0, 9},    {1, 10},     {0, 255},     {-7, 7},
                                    {-1, 0},  {99, 101}, {-120, -9},  {1900, 2026}, {10, 99},
                                    {-5, -5}, {7, 1234}, {1000, 1000}};
    char schema[80], text[16];
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}",
                 bounds[i][0], bounds[i][1]);
        weft_constraint *c = weft_constraint_new_json(schema, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(c);
        for (int x = -2500; x <= 2500; x++) {
            const bool inside = x >= bounds[i][0] && x <= bounds[i][1];
            snprintf(text, sizeof text, "%d", x);
            if ((state_of(c, text) == 'W') != inside) {
                printf("%s: %d\n", schema, x);
                CU_FAIL("a number and its bounds");
            }
        }
        CU_ASSERT_EQUAL(state_of(c, "00"), 'N');
        weft_constraint_free(c);
    }
    static const text_case cases[] = {
        {"{\"type\":\"integer\",\"minimum\":5}", "4", 'M'}, /* 40 */
        {"{\"type\":\"integer\",\"minimum\":5}", "9999999999999999", 'W'},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0}", "0", 'N'},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":2.5}", "2", 'W'},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":2.5}", "3", 'N'},
    };
    check_cases(cases, sizeof cases / sizeof *cases, true);
}

static void test_refused_schemas(void)
{
    static const struct {
        const char *schema, *message;
        weft_status status;
    } cases[] = {
        {"{", "is not JSON, near byte", WEFT_BAD_ARGUMENT},
        {"[]", "#: a schema must be an object", WEFT_BAD_ARGUMENT},
        {"false", "#: the schema false allows nothing", WEFT_BAD_ARGUMENT},
        {"{\"not\":{}}", "#: the keyword \"not\" is unsupported", WEFT_BAD_ARGUMENT},
        {"{\"properties\":{\"a\":{\"items\":{\"uniqueItems\":true}}}}",
         "#/properties/a/items: the keyword \"uniqueItems\" is unsupported", WEFT_BAD_ARGUMENT},
        {"{\"anyOf\":[{},{\"type\":\"text\"}]}", "#/anyOf/1: the type \"text\" is unknown",
         WEFT_BAD_ARGUMENT},
        {"{\"anyOf\":[]}", "expected a list", WEFT_BAD_ARGUMENT},
        {"{\"anyOf\":[{}],\"properties\":{}}", "properties next to anyOf is unsupported",
         WEFT_BAD_ARGUMENT},
        {"{\"allOf\":[{},{}]}", "allOf of other than one", WEFT_BAD_ARGUMENT},
        {"{\"required\":[\"a\"]}", "required names \"a\"", WEFT_BAD_ARGUMENT},
        {"{\"properties\":[]}", "properties must be an object", WEFT_BAD_ARGUMENT},
        {"{\"$ref\":\"#/a\"}", "$ref \"#/a\" is not a place", WEFT_BAD_ARGUMENT},
        {"{\"$ref\":\"http://x\"}", "$ref \"http://x\" is not a place", WEFT_BAD_ARGUMENT},
        {"{\"$ref\":\"#\"}", "#: the schema refers to itself", WEFT_BAD_ARGUMENT},
        {"{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"$ref\":"
         "\"#/$defs/a\"}},\"items\":{\"$ref\":\"#/$defs/a\"}}",
         "#/$defs/a: the schema refers to itself", WEFT_BAD_ARGUMENT},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "maxItems is below minItems",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"minLength\":-1}", "minLength must be a whole number",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"maxLength\":60000}", "regular expression is too large",
         WEFT_TOO_LARGE},
        {"{\"type\":\"string\",\"pattern\":\"a\\\\b\"}", "#/pattern: \"\\b\" is unsupported",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", "must be in brackets", WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"pattern\":\"\\\"\"}", "is unsupported in a pattern",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "is unsupported in a pattern",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"pattern\":\"(\"}",
         "#/pattern: missing closing parenthesis, at byte 1", WEFT_BAD_ARGUMENT},
        {"{\"properties\":{\"x\":{\"pattern\":\"^a)|(b\"}}}",
         "#/properties/x/pattern: unmatched closing parenthesis, at byte 2", WEFT_BAD_ARGUMENT},
        {"{\"pattern\":\"^*$\"}", "#/pattern: quantifier does not follow", WEFT_BAD_ARGUMENT},
        {"{\"pattern\":\"[\\\\Qa]\\\\E]\"}", "is unsupported in a pattern", WEFT_BAD_ARGUMENT},
        {"{\"type\":[\"null\",\"null\",\"null\",\"null\",\"null\",\"null\",\"null\",\"null\"]}",
         "type must be a name or a list of at most 7 names", WEFT_BAD_ARGUMENT},
        {"{\"type\":[]}", "type must be a name", WEFT_BAD_ARGUMENT},
        {"{\"properties\":{\"a\":{}},\"required\":[\"a\",\"a\"]}", "required has a name twice",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"object\",\"anyOf\":[{}]}", "type next to anyOf is unsupported",
         WEFT_BAD_ARGUMENT},
        {"{\"$ref\":\"#/$defs/a\",\"type\":\"object\",\"$defs\":{\"a\":{}}}",
         "type next to $ref is unsupported", WEFT_BAD_ARGUMENT},
        {"{\"enum\":[1,\"a\"],\"type\":\"null\"}", "#: no value has the type", WEFT_BAD_ARGUMENT},
        {"{\"const\":1,\"type\":\"text\"}", "the type \"text\" is unknown", WEFT_BAD_ARGUMENT},
        {"{\"enum\":[]}", "enum must be a list", WEFT_BAD_ARGUMENT},
        {"{\"title\":\"\xFF\"}", "is not UTF-8", WEFT_BAD_ARGUMENT},
        {"{\"type\":\"integer\",\"minimum\":9999999999999999}", "no whole number",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"integer\",\"maximum\":-9999999999999999}", "no whole number",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"string\",\"format\":\"uri\"}", "format \"uri\" is unsupported",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no whole number",
         WEFT_BAD_ARGUMENT},
        {"{\"type\":\"number\",\"maximum\":2}", "bounds of a number", WEFT_BAD_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error;
        weft_constraint *c = weft_constraint_new_json(cases[i].schema, &error);
        const bool good = !c && error.status == cases[i].status &&
                          strstr(error.message, cases[i].message) != NULL;
        if (!good) printf("%s: %s\n", cases[i].schema, c ? "compiled" : error.message);
        CU_ASSERT_TRUE(good);
        weft_constraint_free(c);
    }
}

/* Comparisons of names are limited. */
static void test_many_names(void)
{
    enum { NAMES = 4000 };
    char *schema = malloc(NAMES * 20 + 60), *to = schema;
    weft_error error;
    CU_ASSERT_PTR_NOT_NULL_FATAL(schema);
    to += sprintf(to, "{\"properties\":{\"n\":{}");
    for (int i = 1; i < NAMES; i++) to += sprintf(to, ",\"%d\":{}", i);
    to += sprintf(to, "},\"required\":[\"n\"");
    for (int i = 1; i < NAMES; i++) to += sprintf(to, ",\"%d\"", i);
    sprintf(to, "]}");
    CU_ASSERT_PTR_NULL(weft_constraint_new_json(schema, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "#: the schema has too many names and references");
    free(schema);
}

/* ---- Tokens ---- */

static weft_tokenizer *load(const char *name)
{
    char path[512];
    weft_error error;
    snprintf(path, sizeof path, WEFT_GOLDEN_DIR "/tokenizers/%s.json", name);
    weft_tokenizer *t = weft_tokenizer_load_json(path, &error);
    if (!t) printf("%s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* The bytes of the ids of a text are the text, also those of parts of characters. */
static void check_bytes(const weft_tokenizer *t, const char *text)
{
    int32_t ids[256];
    size_t n, length, at = 0;
    char *bytes, joined[1024];
    weft_token_bytes *all = weft_token_bytes_new(t, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, ids, NULL, 256, &n, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_tokenizer_decode_bytes(t, ids, n, &bytes, &length, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(length, strlen(text));
    CU_ASSERT_STRING_EQUAL(bytes, text);
    free(bytes);
    for (size_t i = 0; i < n; i++) {
        const char *of = weft_token_bytes_of(all, ids[i], &length);
        memcpy(joined + at, of, length);
        at += length;
    }
    joined[at] = 0;
    /* Some begin a text without the blank that its first piece has. */
    CU_ASSERT_STRING_EQUAL(joined + (*joined == ' ' && *text != ' '), text);
    weft_token_bytes_of(all, -1, &length);
    CU_ASSERT_EQUAL(length, 0);
    weft_token_bytes_of(all, weft_tokenizer_info_of(t).size, &length);
    CU_ASSERT_EQUAL(length, 0);
    weft_token_bytes_free(all);
}

static void test_token_bytes(void)
{
    static const char *const names[] = {"gpt2", "llama3"};
    static const char text[] =
        "In the  beginning \xE2\x98\x83 \xF0\x9F\x91\x8D\xC3\xA9, don't\n{\"a\": 1}";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_tokenizer *t = load(names[i]);
        check_bytes(t, text);
        weft_tokenizer_free(t);
    }
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    check_bytes(t, text);
    weft_tokenizer_free(t);
    t = load("unigram_bytes");
    check_bytes(t, "The\xE2\x98\x83\xF0\x9F\x91\x8D\xC3\xA9,don't");
    weft_tokenizer_free(t);
    /* In this file the pieces of bytes are special. */
    t = load("llama2");
    check_bytes(t, "In the beginning");
    weft_tokenizer_free(t);
}

/* Random walks over the ids that are allowed: every step has one, and texts that end are JSON. */
static void test_random_texts(void)
{
    static const char *const names[] = {"gpt2", "llama3", "unigram_bytes", NULL};
    static const char schema[] =
        "{\"properties\":{\"\xC3\xBC\":{\"enum\":[\"\xE2\x98\x83\",\"\xF0\x9F\x91\x8D\"]},"
        "\"b\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},\"maxItems\":2},"
        "\"c\":{\"type\":\"number\"}},\"required\":[\"\xC3\xBC\",\"c\"]}";
    weft_constraint *c = weft_constraint_new_json(schema, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    uint32_t random = 1;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        weft_tokenizer *t = names[k] ? load(names[k]) : weft_tokenizer_new_bytes(NULL);
        const weft_tokenizer_info info = weft_tokenizer_info_of(t);
        weft_token_bytes *all = weft_token_bytes_new(t, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(all);
        const int32_t end = info.eos >= 0 ? info.eos : info.size - 1;
        size_t ended = 0;
        for (int round = 0; round < 20; round++) {
            const weft_constrained_text_options o = {&end, 1, round % 2};
            weft_constrained_text *text = weft_constrained_text_new(c, all, &o, NULL);
            int32_t ids[400];
            size_t n = 0;
            bool over = false;
            CU_ASSERT_PTR_NOT_NULL_FATAL(text);
            while (!over && n < 400) {
                bool allowed = false;
                for (int32_t i = 0; i < 50 * info.size && !allowed; i++) {
                    random = random * 1664525 + 1013904223;
                    ids[n] = i % 8 ? (int32_t)(random >> 8) % info.size : end;
                    CU_ASSERT_EQUAL(
                        weft_constrained_text_allows(text, ids, n, ids[n], &allowed, NULL),
                        WEFT_OK);
                }
                if (!allowed)
                    printf("%s, round %d: no id is allowed after %zu: %s\n",
                           names[k] ? names[k] : "bytes", round, n,
                           weft_tokenizer_piece(t, n ? ids[n - 1] : 0));
                if (!allowed) CU_FAIL("no id is allowed");
                if (!allowed) break;
                over = ids[n] == end;
                n += !over;
            }
            ended += over;
            weft_constraint_state state;
            CU_ASSERT_EQUAL(weft_constrained_text_match(text, ids, n, &state, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(state, over ? WEFT_CONSTRAINT_WHOLE : WEFT_CONSTRAINT_MAYBE);
            char *found = NULL;
            CU_ASSERT_EQUAL(weft_tokenizer_decode(t, ids, n, &found, NULL, NULL), WEFT_OK);
            cJSON *json = over ? cJSON_Parse(found) : NULL;
            if (over && !json) printf("%s\n", found);
            CU_ASSERT_TRUE(!over || cJSON_GetObjectItemCaseSensitive(json, "c") != NULL);
            cJSON_Delete(json);
            free(found);
            weft_constrained_text_free(text);
        }
        CU_ASSERT_TRUE(ended > 10);
        weft_token_bytes_free(all);
        weft_tokenizer_free(t);
    }
    weft_constraint_free(c);
}

/* A tokeniser of words, the first of which is unknown. `decoder` is JSON. */
static weft_tokenizer *words(const char *decoder)
{
    char json[300];
    weft_error error;
    const int n =
        snprintf(json, sizeof json,
                 "{\"decoder\":%s,\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"<unk>\":0,"
                 "\"x\":1,\"\xE2\x80\x99\":2,\"y\":3},\"unk_token\":\"<unk>\"}}",
                 decoder);
    weft_tokenizer *t = weft_tokenizer_load_json_from_memory(json, (size_t)n, &error);
    if (!t) printf("%s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* Words after others have a blank, also if the vocabulary lacks most characters. */
static void test_bytes_of_words(void)
{
    weft_tokenizer *t = words("null");
    weft_token_bytes *all = weft_token_bytes_new(t, NULL);
    size_t n;
    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    CU_ASSERT_FALSE(memcmp(weft_token_bytes_of(all, 3, &n), " y", 2));
    CU_ASSERT_EQUAL(n, 2);
    weft_token_bytes_free(all);
    weft_tokenizer_free(t);
}

/* A character that the pattern does not name is allowed, however many ids were refused before. */
static void test_after_refused_ids(void)
{
    weft_tokenizer *t = words("{\"type\":\"Fuse\"}");
    weft_token_bytes *all = weft_token_bytes_new(t, NULL);
    weft_constraint *c = weft_constraint_new_regex("\\N{U+2019}", NULL);
    weft_constrained_text *text = weft_constrained_text_new(c, all, NULL, NULL);
    bool allowed;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (int i = 0; i < 60; i++) {
        const int32_t id = i % 2 ? 2 : 3;
        CU_ASSERT_EQUAL(weft_constrained_text_allows(text, NULL, 0, id, &allowed, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(allowed, id == 2);
    }
    weft_constrained_text_free(text);
    weft_constraint_free(c);
    weft_token_bytes_free(all);
    weft_tokenizer_free(t);
}

/* Ids that need many matches each fail once there were too many, until the text goes on. */
static void test_too_many_matches(void)
{
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    weft_token_bytes *all = weft_token_bytes_new(t, NULL);
    weft_constraint *c = named(4096, "{2}", NULL);
    weft_constrained_text *text = weft_constrained_text_new(c, all, NULL, NULL);
    const int32_t character[] = {0xE4 + 4, 0xB8 + 4, 0x80 + 4};
    weft_error error;
    weft_status status = WEFT_OK;
    bool allowed;
    int calls = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (; status == WEFT_OK && calls < 600; calls++) {
        /* A byte of four: 1024 characters are tried. */
        status = weft_constrained_text_allows(text, NULL, 0, 0xF1 + 4, &allowed, &error);
        CU_ASSERT_FALSE(allowed);
    }
    CU_ASSERT_EQUAL(status, WEFT_TOO_LARGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "more than 524288 matches"));
    CU_ASSERT_EQUAL(calls, 513);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, character, 3, 0xE4 + 4, &allowed, &error),
                    WEFT_OK);
    CU_ASSERT_TRUE(allowed);
    weft_constrained_text_free(text);
    weft_constraint_free(c);
    weft_token_bytes_free(all);
    weft_tokenizer_free(t);
}

/* Tokens that begin again or move to the beginning. */
static void test_windows(void)
{
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    weft_token_bytes *all = weft_token_bytes_new(t, NULL);
    weft_constraint *c = weft_constraint_new_regex("abcd?", NULL);
    weft_constrained_text *text = weft_constrained_text_new(c, all, NULL, NULL);
    const int32_t a = 'a' + 4, b = 'b' + 4, z = 'c' + 4, d = 'd' + 4;
    const int32_t ab[] = {a, b}, bc[] = {b, z}, zb[] = {z, b};
    bool allowed;
    weft_constraint_state state;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, ab, 2, z, &allowed, NULL), WEFT_OK);
    CU_ASSERT_TRUE(allowed);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, zb, 2, z, &allowed, NULL), WEFT_OK);
    CU_ASSERT_FALSE(allowed);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, ab, 1, b, &allowed, NULL), WEFT_OK);
    CU_ASSERT_TRUE(allowed);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, ab, 1, z, &allowed, NULL), WEFT_OK);
    CU_ASSERT_FALSE(allowed);
    CU_ASSERT_EQUAL(weft_constrained_text_move(text, ab, 1, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, NULL, 0, b, &allowed, NULL), WEFT_OK);
    CU_ASSERT_TRUE(allowed);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, bc, 2, d, &allowed, NULL), WEFT_OK);
    CU_ASSERT_TRUE(allowed);
    CU_ASSERT_EQUAL(weft_constrained_text_match(text, bc, 2, &state, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(state, WEFT_CONSTRAINT_WHOLE);
    CU_ASSERT_EQUAL(weft_constrained_text_allows(text, NULL, 0, 0, &allowed, NULL), WEFT_OK);
    CU_ASSERT_FALSE(allowed);
    weft_constrained_text_free(text);
    weft_constraint_free(c);
    weft_token_bytes_free(all);
    weft_tokenizer_free(t);
}

static weft_status make_text(const char *path)
{
    weft_error error;
    bool allowed;
    weft_constraint_state state;
    const int32_t ids[] = {'{' + 4};
    (void)path;
    weft_tokenizer *t = weft_tokenizer_new_bytes(&error);
    weft_token_bytes *all = t ? weft_token_bytes_new(t, &error) : NULL;
    weft_constraint *c = all ? weft_constraint_new_json(PERSON, &error) : NULL;
    weft_status status = c ? weft_constraint_match(c, "{\"b", 3, &state, &error) : error.status;
    weft_constrained_text *text =
        status == WEFT_OK ? weft_constrained_text_new(c, all, NULL, &error) : NULL;
    if (status == WEFT_OK)
        status = text ? weft_constrained_text_allows(text, ids, 1, '"' + 4, &allowed, &error)
                      : error.status;
    weft_constrained_text_free(text);
    weft_constraint_free(c);
    weft_token_bytes_free(all);
    weft_tokenizer_free(t);
    return status;
}

static void test_failing_allocations(void)
{
    test_fail_all(make_text);
}

void constraint_tests(void)
{
    CU_pSuite suite = CU_add_suite("constraint", NULL, NULL);
    CU_add_test(suite, "regular expressions", test_regexes);
    CU_add_test(suite, "texts that end within a character", test_cut_characters);
    CU_add_test(suite, "regular expressions that are refused", test_refused_regexes);
    CU_add_test(suite, "steps are limited", test_steps);
    CU_add_test(suite, "characters that a pattern names", test_named_characters);
    CU_add_test(suite, "schemas", test_schemas);
    CU_add_test(suite, "bounds of whole numbers", test_bounds);
    CU_add_test(suite, "schemas that are refused", test_refused_schemas);
    CU_add_test(suite, "schemas of many names", test_many_names);
    CU_add_test(suite, "bytes of tokens", test_token_bytes);
    CU_add_test(suite, "random texts are JSON", test_random_texts);
    CU_add_test(suite, "bytes of words", test_bytes_of_words);
    CU_add_test(suite, "a character after refused ids", test_after_refused_ids);
    CU_add_test(suite, "too many matches at one place", test_too_many_matches);
    CU_add_test(suite, "tokens that begin again", test_windows);
    CU_add_test(suite, "every allocation fails once", test_failing_allocations);
}
