/* weft seeds: the systems of the seed documents as models, held against the documents' numbers. */
#include "seeds/seeds.h"

typedef struct arguments {
    bool json;
} arguments;

enum { KEY_JSON = 256 };

static error_t parse(int key, char *text, struct argp_state *state)
{
    (void)text;
    if (key != KEY_JSON) return ARGP_ERR_UNKNOWN;
    ((arguments *)state->input)->json = true;
    return 0;
}

int cmd_seeds(int argc, char **argv)
{
    static const struct argp_option options[] = {{"json", KEY_JSON, NULL, 0, "print JSON", 0}, {0}};
    arguments a = {0};
    struct argp argp = {options,
                        parse,
                        NULL,
                        "Builds each system of the five seed documents, runs it, and holds it "
                        "against the numbers and shapes of the document: what the seed says, what "
                        "weft gives (of the element that fits worst), the largest difference. A "
                        "number is right if it agrees to the last printed digit.",
                        NULL,
                        NULL,
                        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    weft_error error = {0};
    report r;
    int status = EXIT_GOOD;
    if (report_open(&r, a.json, &error) != WEFT_OK) {
        report_close(&r);
        return tool_fail(&error);
    }
    seeds_000(&r);
    seeds_001(&r);
    seeds_002(&r);
    seeds_003(&r);
    seeds_004(&r);
    if (a.json) {
        status = tool_print_json(r.rows);
        r.rows = NULL;
    } else {
        printf("%s\n", r.failures ? "some figures differ" : "every figure as in the documents");
    }
    int failures = r.failures;
    report_close(&r);
    if (failures) fprintf(stderr, "weft seeds: %d figures differ\n", failures);
    return failures ? EXIT_ERROR : status;
}
