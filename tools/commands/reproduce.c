/* weft reproduce: recomputes the worked examples of five introductions to attention and recurrent
 * networks, and compares every printed number. */
#include "reproduce/examples.h"

#include <string.h>

static const struct {
    const char *name;
    void (*run)(report *r);
} documents[] = {{"000", document_000},
                 {"001", document_001},
                 {"002", document_002},
                 {"003", document_003},
                 {"004", document_004}};
#define N_DOCUMENTS (sizeof documents / sizeof *documents)

typedef struct arguments {
    bool json, some, wanted[N_DOCUMENTS]; /* some: not all documents */
} arguments;

enum { KEY_JSON = 256 };

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    if (key == KEY_JSON) {
        a->json = true;
        return 0;
    }
    if (key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
    for (size_t i = 0; i < N_DOCUMENTS; i++)
        if (!strcmp(documents[i].name, text)) {
            a->some = a->wanted[i] = true;
            return 0;
        }
    tool_usage_error(state, "no document \"%s\": they are 000 to 004", text);
    return 0;
}

int cmd_reproduce(int argc, char **argv)
{
    static const struct argp_option options[] = {{"json", KEY_JSON, NULL, 0, "print JSON", 0}, {0}};
    arguments a = {0};
    struct argp argp = {
        options,
        parse,
        "[DOCUMENT...]",
        "Recomputes the worked examples of five introductions to attention and "
        "recurrent networks, and compares every number and shape that they "
        "print: the printed value, weft's (of the element with the largest error), the "
        "largest difference. A number is right if it agrees to the last printed "
        "digit.",
        NULL,
        NULL,
        NULL};
    tool_parse(&argp, argc, argv, &a);
    weft_error error = {0};
    report r;
    int status = EXIT_GOOD;
    if (report_open(&r, a.json, &error) != WEFT_OK) {
        report_close(&r);
        return tool_fail(&error);
    }
    for (size_t i = 0; i < N_DOCUMENTS; i++)
        if (!a.some || a.wanted[i]) documents[i].run(&r);
    if (a.json) {
        status = tool_print_json(r.rows);
        r.rows = NULL;
    } else {
        printf("%s\n", r.failures ? "some numbers differ" : "every number as in the documents");
    }
    int failures = r.failures;
    report_close(&r);
    if (failures) fprintf(stderr, "weft reproduce: %d numbers differ\n", failures);
    return failures ? EXIT_ERROR : status;
}
