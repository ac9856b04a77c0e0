/* Chat templates: what Jinja2 was recorded to render (tests/golden/make_chat_templates.py), files,
 * messages and options, dates. */
#include "tests.h"

#include <weft/chat.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER WEFT_GOLDEN_DIR "/chat_templates/"

static weft_chat_template *parse(const char *source)
{
    weft_error error;
    weft_chat_template *t = weft_chat_template_parse(source, strlen(source), &error);
    if (!t) printf("%s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* ---- What was recorded ---- */

/* Reads a line, its hexadecimal part as a text: "KIND TEXT". */
static bool read_line(FILE *file, char **line, size_t *capacity, char kind[16])
{
    unsigned byte;
    size_t n = 0;
    if (getline(line, capacity, file) < 0 || sscanf(*line, "%15s", kind) != 1) return false;
    const char *at = *line + strlen(kind) + (strchr(*line, ' ') != NULL);
    if (!strcmp(kind, "file")) {
        memmove(*line, at, strcspn(at, "\n"));
        n = strcspn(at, "\n");
    } else {
        for (; sscanf(at, "%2x", &byte) == 1; at += 2) (*line)[n++] = (char)byte;
    }
    (*line)[n] = 0;
    return true;
}

static weft_chat_template *read_template(const char *kind, const char *text, weft_error *error)
{
    char path[1024];
    if (!strcmp(kind, "source")) return weft_chat_template_parse(text, strlen(text), error);
    snprintf(path, sizeof path, FOLDER "%s.jinja", text);
    return weft_chat_template_load(path, error);
}

static bool is_expected(const weft_chat_template *t, const weft_chat_options *options,
                        const char *kind, const char *wanted)
{
    weft_error error;
    char *text = t ? weft_chat_template_render(t, NULL, 0, options, &error) : NULL;
    const bool refused = !strcmp(kind, "refused");
    const bool good = text ? !refused && !strcmp(text, wanted) : refused;
    if (!good && text) printf("%s\n-- instead of\n%s\n", text, refused ? "an error" : wanted);
    if (!good && t && !text) printf("%s\n", error.message);
    weft_free(text);
    return good;
}

static void test_recorded(void)
{
    FILE *file = fopen(FOLDER "cases.txt", "r");
    char *line = NULL, *variables = NULL, *source = NULL, kind[16];
    size_t capacity = 0, n = 0;
    weft_chat_options options = {.date = "2025-01-31T12:34:56"};
    weft_chat_template *t = NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    while (read_line(file, &line, &capacity, kind)) {
        weft_error error = WEFT_NO_ERROR;
        if (!strcmp(kind, "variables")) {
            free(variables);
            options.variables = variables = strdup(line);
        } else if (!strcmp(kind, "file") || !strcmp(kind, "source")) {
            free(source);
            source = strdup(line);
            weft_chat_template_free(t);
            t = read_template(kind, source, &error);
            CU_ASSERT_EQUAL(t == NULL, error.status != WEFT_OK);
        } else {
            const bool good = is_expected(t, &options, kind, line);
            if (!good) printf("of %s\n", source);
            CU_ASSERT_TRUE(good);
            n++;
        }
    }
    CU_ASSERT_TRUE(n > 240);
    weft_chat_template_free(t);
    free(variables);
    free(source);
    free(line);
    fclose(file);
}

/* ---- Messages, options, files ---- */

static void expect_text(const weft_chat_template *t, const weft_chat_message *messages, size_t n,
                        const weft_chat_options *options, const char *wanted)
{
    weft_error error;
    char *text = weft_chat_template_render(t, messages, n, options, &error);
    CU_ASSERT_PTR_NOT_NULL(text);
    if (!text) printf("%s\n", error.message);
    if (text && strcmp(text, wanted) != 0) printf("%s\n-- instead of\n%s\n", text, wanted);
    CU_ASSERT(text && !strcmp(text, wanted));
    weft_free(text);
}

static void test_messages(void)
{
    weft_chat_template *t =
        parse("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.name }}"
              "{{ m.calls|tojson if m.calls }}{% endfor %}{{ '>' if add_generation_prompt }}"
              "{{ tools|tojson }}{{ style }}{{ eos_token is defined }}");
    const weft_chat_message messages[] = {
        {"user", "a\xFF\xC3\xA9", NULL},
        {"assistant", NULL,
         "{\"calls\": [1, 1.0, 1e2, 0.5, \"\\u00e9\\ud83d\\ude00\"], \"name\": \"x\"}"},
        {"user", "b", "{\"content\": [\"part\"], \"role\": \"r\"}"},
    };
    weft_chat_options options = {.bos_token = "<s>",
                                 .add_generation_prompt = true,
                                 .tools = "[{\"a\": null}]",
                                 .variables = "{\"style\": \"!\"}"};
    expect_text(t, messages, 3, &options,
                "<s><user>a\xEF\xBF\xBD\xC3\xA9<assistant>Nonex[1, 1, 100, 0.5, "
                "\"\xC3\xA9\xF0\x9F\x98\x80\"]<r>['part']>[{\"a\": null}]!False");
    expect_text(t, NULL, 0, NULL, "nullFalse");
    options = (weft_chat_options){.eos_token = "", .variables = "{\"messages\": [{}]}"};
    expect_text(t, messages, 3, &options, "<>nullTrue");
    weft_chat_template_free(t);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static void expect_loaded(const char *folder, const char *name, const weft_chat_options *options,
                          const char *wanted)
{
    char path[1024];
    weft_error error;
    snprintf(path, sizeof path, "%s%s%s", folder, *name ? "/" : "", name);
    weft_chat_template *t = weft_chat_template_load(path, &error);
    CU_ASSERT_PTR_NOT_NULL(t);
    if (!t) printf("%s: %s\n", error.where, error.message);
    if (t) expect_text(t, NULL, 0, options, wanted);
    weft_chat_template_free(t);
}

static void expect_not_loaded(const char *folder, weft_status status, const char *part)
{
    weft_error error;
    CU_ASSERT_PTR_NULL(weft_chat_template_load(folder, &error));
    CU_ASSERT_EQUAL(error.status, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, part));
    if (!strstr(error.message, part)) printf("%s, expected %s\n", error.message, part);
}

static void test_files(void)
{
    char folder[] = "/tmp/weft-chat-XXXXXX", path[512];
    static const weft_chat_options tools = {.tools = "[]"}, rag = {.name = "rag"};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    expect_not_loaded(folder, WEFT_NOT_FOUND, "");
    write_file(folder, "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    expect_not_loaded(folder, WEFT_NOT_FOUND, "has no chat_template");
    write_file(folder, "tokenizer_config.json", "{\"chat_template\": 3}");
    expect_not_loaded(folder, WEFT_BAD_FILE, "must be a text or an array");
    write_file(folder, "tokenizer_config.json", "{\"chat_template\": \"{{ x\"}");
    expect_not_loaded(folder, WEFT_BAD_FILE, "line 1: {{ without }}");
    write_file(folder, "tokenizer_config.json", "{\"chat_template\"");
    expect_not_loaded(folder, WEFT_BAD_FILE, "is not JSON");
    write_file(folder, "tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": null, \"chat_template\": "
               "[{\"name\": \"default\", \"template\": \"d{{ bos_token }}{{ eos_token }}\"}, "
               "{\"name\": \"tool_use\", \"template\": \"t{{ tools }}\"}]}");
    expect_loaded(folder, "", NULL, "d<s>");
    expect_loaded(folder, "tokenizer_config.json", &tools, "t[]");
    write_file(folder, "chat_template.json", "{\"chat_template\": \"j{{ bos_token }}\"}");
    expect_loaded(folder, "", &tools, "j<s>");
    write_file(folder, "chat_template.jinja", "f{{ bos_token }}\n");
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    CU_ASSERT_EQUAL(mkdir(path, 0777), 0);
    write_file(path, "rag.jinja", "rag");
    expect_loaded(folder, "", NULL, "f<s>");
    expect_loaded(folder, "chat_template.jinja", NULL, "f<s>");
    expect_loaded(folder, "", &rag, "rag");
    write_file(path, "tool_use.jinja", "use");
    expect_loaded(folder, "", &tools, "use");
    unlink(strcat(strcpy(path, folder), "/additional_chat_templates/rag.jinja"));
    unlink(strcat(strcpy(path, folder), "/additional_chat_templates/tool_use.jinja"));
    rmdir(strcat(strcpy(path, folder), "/additional_chat_templates"));
    unlink(strcat(strcpy(path, folder), "/chat_template.jinja"));
    unlink(strcat(strcpy(path, folder), "/chat_template.json"));
    unlink(strcat(strcpy(path, folder), "/tokenizer_config.json"));
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

static void test_dates(void)
{
    weft_chat_template *t = parse("{{ strftime_now('%d.%m.%Y %a') }}");
    expect_text(t, NULL, 0, &(weft_chat_options){.date = "2024-02-29"}, "29.02.2024 Thu");
    expect_text(t, NULL, 0, &(weft_chat_options){.date = "1999-12-31T23:59:59"}, "31.12.1999 Fri");
    expect_text(t, NULL, 0, &(weft_chat_options){.date = "0001-01-01"}, "01.01.1 Mon");
    char *now = weft_chat_template_render(t, NULL, 0, NULL, NULL);
    CU_ASSERT(now && strlen(now) == 14);
    weft_free(now);
    weft_chat_template_free(t);
}

static void test_threads(void)
{
    weft_chat_template *t = parse("{% for m in messages %}{{ m.content|upper }}{% endfor %}");
    const weft_chat_message messages[] = {{"a", "x", NULL}, {"b", "y", NULL}};
    int different = 0;
#pragma omp parallel for num_threads(4) reduction(+ : different)
    for (int i = 0; i < 400; i++) {
        char *text = weft_chat_template_render(t, messages, 1 + (size_t)i % 2, NULL, NULL);
        different += !text || strcmp(text, i % 2 ? "XY" : "X") != 0;
        weft_free(text);
    }
    CU_ASSERT_EQUAL(different, 0);
    weft_chat_template_free(t);
}

void chat_templates_tests(void)
{
    CU_pSuite suite = CU_add_suite("chat_templates", NULL, NULL);
    CU_add_test(suite, "what Jinja2 was recorded to render", test_recorded);
    CU_add_test(suite, "messages and options", test_messages);
    CU_add_test(suite, "files", test_files);
    CU_add_test(suite, "dates", test_dates);
    CU_add_test(suite, "threads", test_threads);
}
