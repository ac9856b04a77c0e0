/* weft score: BLEU and chrF of translations against references. */
#include "score.h"
#include "streams.h"
#include "texts.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>

#define MOST_REFERENCES 16

typedef struct arguments {
    const char *file[1 + MOST_REFERENCES]; /* hypotheses, then references */
    size_t n;
    bool lowercase, plus, json;
} arguments;

enum { KEY_JSON = 256, KEY_PLUS };

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'l':
        a->lowercase = true;
        return 0;
    case KEY_PLUS:
        a->plus = true;
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->n == 1 + MOST_REFERENCES)
            argp_error(state, "at most %d references", MOST_REFERENCES);
        for (size_t i = 0; i < a->n; i++)
            if (!strcmp(text, "-") && !strcmp(a->file[i], "-"))
                argp_error(state, "standard input can be one file only");
        a->file[a->n++] = text;
        return 0;
    case ARGP_KEY_END:
        if (a->n < 2)
            argp_error(state, "HYPOTHESES and at least one file of REFERENCES are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct scorer {
    const arguments *a;
    FILE *file[1 + MOST_REFERENCES];
    char *line[1 + MOST_REFERENCES];
    size_t capacity[1 + MOST_REFERENCES];
    size_t lines[1 + MOST_REFERENCES];
    bleu bleu;
    chrf chrf;
    weft_error error; /* of reading */
} scorer;

static int open_files(scorer *s)
{
    for (size_t i = 0; i < s->a->n; i++) {
        s->file[i] = stream_open(s->a->file[i], &s->error);
        if (!s->file[i]) return tool_fail(&s->error);
    }
    return EXIT_GOOD;
}

/* Reads a line of each file; false at the end of any. */
static bool read_lines(scorer *s)
{
    bool all = true;
    for (size_t i = 0; i < s->a->n; i++) {
        size_t length;
        if (!texts_read_line(s->file[i], &s->line[i], &s->capacity[i], &length)) {
            all = false;
            stream_at_end(s->file[i], s->a->file[i], &s->error);
            continue;
        }
        for (size_t k = 0; k < length; k++)
            if (!s->line[i][k]) s->line[i][k] = ' ';
        s->lines[i]++;
    }
    return all;
}

static bool lower_lines(scorer *s)
{
    for (size_t i = 0; i < s->a->n; i++) {
        char *lower = score_lowercase(s->line[i]);
        if (!lower) return false;
        free(s->line[i]);
        s->line[i] = lower;
        s->capacity[i] = strlen(lower) + 1;
    }
    return true;
}

static int score_all(scorer *s)
{
    const char *const *lines = (const char *const *)s->line;
    while (read_lines(s)) {
        if ((s->a->lowercase && !lower_lines(s)) ||
            !bleu_add(&s->bleu, lines[0], lines + 1, s->a->n - 1) ||
            !chrf_add(&s->chrf, lines[0], lines + 1, s->a->n - 1))
            return tool_fail_text("score", "out of memory");
    }
    for (size_t i = 0; i < s->a->n && s->error.status == WEFT_OK; i++) {
        while (getline(&s->line[i], &s->capacity[i], s->file[i]) >= 0) s->lines[i]++;
        stream_at_end(s->file[i], s->a->file[i], &s->error);
    }
    if (s->error.status != WEFT_OK) return tool_fail(&s->error);
    for (size_t i = 1; i < s->a->n; i++)
        if (s->lines[i] != s->lines[0])
            return tool_fail_text(s->a->file[i], "has %zu lines, %s has %zu", s->lines[i],
                                  s->a->file[0], s->lines[0]);
    return s->lines[0] ? EXIT_GOOD : tool_fail_text(s->a->file[0], "has no lines");
}

static int print_json(const scorer *s, const bleu_result *r, const char *bleu_signature,
                      const char *chrf_signature)
{
    cJSON *json = cJSON_CreateObject(), *precisions = cJSON_CreateArray();
    for (int k = 0; k < BLEU_ORDER; k++)
        cJSON_AddItemToArray(precisions, cJSON_CreateNumber(r->precisions[k]));
    cJSON_AddNumberToObject(json, "bleu", r->score);
    cJSON_AddItemToObject(json, "precisions", precisions);
    cJSON_AddNumberToObject(json, "brevity", r->brevity);
    cJSON_AddNumberToObject(json, "length", (double)s->bleu.length);
    cJSON_AddNumberToObject(json, "reference_length", (double)s->bleu.reference_length);
    cJSON_AddStringToObject(json, "signature", bleu_signature);
    cJSON_AddNumberToObject(json, s->a->plus ? "chrf2++" : "chrf2", chrf_of(&s->chrf));
    cJSON_AddStringToObject(json, "chrf_signature", chrf_signature);
    return tool_print_json(json);
}

static int print(const scorer *s)
{
    const bleu_result r = bleu_of(&s->bleu);
    const double *p = r.precisions;
    char shared[64], of_bleu[256], of_chrf[256];
    double ratio =
        s->bleu.reference_length ? (double)s->bleu.length / (double)s->bleu.reference_length : 0;
    snprintf(shared, sizeof shared, "nrefs:%zu|case:%s|eff:", s->a->n - 1,
             s->a->lowercase ? "lc" : "mixed");
    snprintf(of_bleu, sizeof of_bleu, "%sno|tok:13a|smooth:exp|version:weft-" TOOL_VERSION, shared);
    snprintf(of_chrf, sizeof of_chrf, "%syes|nc:6|nw:%d|space:no|version:weft-" TOOL_VERSION,
             shared, s->chrf.words);
    if (s->a->json) return print_json(s, &r, of_bleu, of_chrf);
    printf("BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %zu ref_len = %zu)\n"
           "  %s\n",
           r.score, p[0], p[1], p[2], p[3], r.brevity, ratio, s->bleu.length,
           s->bleu.reference_length, of_bleu);
    printf("chrF2%s = %.2f\n  %s\n", s->a->plus ? "++" : "", chrf_of(&s->chrf), of_chrf);
    return EXIT_GOOD;
}

int cmd_score(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"lowercase", 'l', NULL, 0, "compare in lower case", 0},
        {"plus", KEY_PLUS, NULL, 0, "chrF++: with n-grams of words, too", 0},
        {"json", KEY_JSON, NULL, 0, "print JSON", 0},
        {0}};
    arguments a = {{NULL}, 0, false, false, false};
    struct argp argp = {options,
                        parse,
                        "HYPOTHESES REFERENCES...",
                        "BLEU (Papineni et al. 2002; tokens and smoothing as Post 2018) and chrF "
                        "(Popovic 2015) of a file of translations, a line each, against one or "
                        "more files of references. - is standard input.",
                        NULL,
                        NULL,
                        NULL};
    tool_parse(&argp, argc, argv, &a);
    scorer s = {.a = &a, .chrf = {.words = a.plus ? CHRF_MOST_WORDS : 0}};
    int status = open_files(&s);
    if (status == EXIT_GOOD) status = score_all(&s);
    if (status == EXIT_GOOD) status = print(&s);
    for (size_t i = 0; i < a.n; i++) {
        free(s.line[i]);
        stream_close(s.file[i]);
    }
    return status;
}
