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

static void take_document(void *into, char *text, struct argp_state *state)
{
    arguments *a = into;
    size_t i = 0;
    while (i < N_DOCUMENTS && strcmp(documents[i].name, text) != 0) i++;
    if (i == N_DOCUMENTS)
        tool_usage_error(state, "no document \"%s\": they are 000 to 004", text);
    else
        a->some = a->wanted[i] = true;
}

static const tool_option options[] = {{"json", NULL, TOOL_FIELD(arguments, json), "print JSON"},
                                      {0}};

static const tool_command command = {
    .options = options,
    .usage = "[DOCUMENT...]",
    .doc = "Recomputes the worked examples of five introductions to attention and recurrent "
           "networks, and compares every number and shape that they print: the printed value, "
           "weft's (of the element with the largest error), the largest difference. A number is "
           "right if it agrees to the last printed digit.",
    .argument = take_document};

int cmd_reproduce(int argc, char **argv)
{
    arguments a = {0};
    tool_parse(&command, argc, argv, &a);
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
