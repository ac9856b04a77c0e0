/* Recomputes the worked examples of five introductions to attention and recurrent networks, 000 to
 * 004, and compares every number and shape that they print: the printed value, weft's (of the
 * element with the largest error), the largest difference. A number is right if it agrees to the
 * last printed digit. The status is 1 if one is wrong.
 *
 *     cc *.c $(pkg-config --cflags --libs weft-models libcjson) -lm -o reproduce
 *     ./reproduce [--json] [DOCUMENT...]      # reads examples.json
 */
#include "examples.h"

#include <string.h>

static const struct {
    const char *name;
    void (*run)(report *r);
} documents[] = {{"000", document_000},
                 {"001", document_001},
                 {"002", document_002},
                 {"003", document_003},
                 {"004", document_004}};
enum { N_DOCUMENTS = sizeof documents / sizeof *documents };

typedef struct arguments {
    bool json, some, wanted[N_DOCUMENTS]; /* some: not all documents */
} arguments;

static bool take(arguments *a, const char *text)
{
    if (!strcmp(text, "--json")) return a->json = true;
    for (int i = 0; i < N_DOCUMENTS; i++)
        if (!strcmp(documents[i].name, text)) return a->some = a->wanted[i] = true;
    fprintf(stderr, "no document \"%s\": they are 000 to 004\n", text);
    return false;
}

/* Prints the rows, or the result. */
static bool print(const report *r)
{
    if (!r->json)
        return printf("%s\n",
                      r->failures ? "some numbers differ" : "every number as in the documents") > 0;
    char *text = cJSON_Print(r->rows);
    const bool good = text && printf("%s\n", text) > 0;
    cJSON_free(text);
    return good;
}

int main(int argc, char **argv)
{
    arguments a = {.json = false};
    weft_error error = WEFT_NO_ERROR;
    report r;
    for (int i = 1; i < argc; i++)
        if (!take(&a, argv[i])) return 2;
    bool good = report_open(&r, "examples.json", a.json, &error) == WEFT_OK;
    if (!good) fprintf(stderr, "%s: %s\n", error.where, error.message);
    for (int i = 0; good && i < N_DOCUMENTS; i++)
        if (!a.some || a.wanted[i]) documents[i].run(&r);
    good = good && print(&r) && !r.failures;
    if (r.failures) fprintf(stderr, "reproduce: %d numbers differ\n", r.failures);
    report_close(&r);
    return good ? 0 : 1;
}
