/* What chat templates render, for tests/real/compare_chat_templates.py. Reads pairs of texts from
 * standard input, a template and a JSON object of its variables, each with its length before it, as
 * 4 bytes in the machine's order. Prints a line for each pair: "text " and the text in hexadecimal
 * digits, or "error " and the message. With --date DATE, strftime_now reads that. */
#include <weft/chat.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a text; NULL at the end. */
static char *read_text(size_t *bytes)
{
    uint32_t n;
    if (fread(&n, sizeof n, 1, stdin) != 1) return NULL;
    char *text = calloc(n + (size_t)1, 1);
    *bytes = n;
    if (text && fread(text, 1, n, stdin) == n) return text;
    free(text);
    return NULL;
}

static void render(const char *source, size_t bytes, const weft_chat_options *options)
{
    weft_error error;
    weft_chat_template *t = weft_chat_template_parse(source, bytes, &error);
    char *text = t ? weft_chat_template_render(t, NULL, 0, options, &error) : NULL;
    if (text) {
        printf("text ");
        for (const char *at = text; *at; at++) printf("%02x", (unsigned)(unsigned char)*at);
        printf("\n");
    } else {
        printf("error %s: %s\n", error.where, error.message);
    }
    weft_free(text);
    weft_chat_template_free(t);
}

int main(int argc, char **argv)
{
    weft_chat_options options = {.date = argc > 2 && !strcmp(argv[1], "--date") ? argv[2] : NULL};
    size_t bytes, more;
    for (char *source; (source = read_text(&bytes)) != NULL; free(source)) {
        char *variables = read_text(&more);
        options.variables = variables;
        render(source, bytes, &options);
        free(variables);
    }
    return fflush(stdout) != 0;
}
