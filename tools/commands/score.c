/* weft score: BLEU and chrF of translations against references. */
#include "text/streams.h"
#include "tool.h"

#include <weft/text.h>

#include "text_file.h"
#include "base/platform.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REFERENCES 16
#define MAX_OTHERS     16
#define MAX_FILES      (1 + MAX_REFERENCES + MAX_OTHERS)

typedef struct arguments {
    const char *file[MAX_FILES]; /* hypotheses, references, then the others' hypotheses */
    const char *other[MAX_OTHERS];
    size_t n, n_references, n_others; /* n: of all files */
    bool lowercase, plus, json, sentences, samples_given, seed_given;
    long samples, seed;
} arguments;

static void take_file(arguments *a, const char *path, const tool_parser *parser)
{
    for (size_t i = 0; i < a->n; i++)
        if (!strcmp(path, "-") && !strcmp(a->file[i], "-"))
            tool_usage_error(parser, "standard input can be one file only");
    a->file[a->n++] = path;
}

static void take_argument(void *into, char *path, const tool_parser *parser)
{
    arguments *a = into;
    if (a->n == 1 + MAX_REFERENCES)
        tool_usage_error(parser, "at most %d references", MAX_REFERENCES);
    take_file(a, path, parser);
}

static void take_other(const tool_option *option, void *into, char *path, const tool_parser *parser)
{
    arguments *a = into;
    (void)option;
    if (a->n_others == MAX_OTHERS) tool_usage_error(parser, "at most %d --against", MAX_OTHERS);
    a->other[a->n_others++] = path;
}

static void check(void *into, const tool_parser *parser)
{
    arguments *a = into;
    if (a->n < 2)
        tool_usage_error(parser, "name a file of HYPOTHESES and at least one of REFERENCES");
    if (a->samples_given && !a->n_others) tool_usage_error(parser, "--samples needs --against");
    if (a->seed_given && !a->n_others) tool_usage_error(parser, "--seed needs --against");
    if (a->sentences && a->n_others)
        tool_usage_error(parser, "--sentences and --against exclude each other");
    a->n_references = a->n - 1;
    for (size_t i = 0; i < a->n_others; i++) take_file(a, a->other[i], parser);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"lowercase", NULL, FIELD(lowercase), "ignore case", .letter = 'l'},
    {"plus", NULL, FIELD(plus), "chrF++: also count n-grams of words"},
    {"sentences", NULL, FIELD(sentences), "print the scores of each line first"},
    {"against", "FILE", TOOL_BY(take_other),
     "compare with the hypotheses of another system, by paired bootstrap resampling; may be "
     "given several times"},
    {"samples", "N", FIELD(samples), "resamples of the comparison", 1, 1e6,
     TOOL_ALSO(arguments, samples_given)},
    {"seed", "N", FIELD(seed), "seed of the resamples", 0, 0x1p63,
     TOOL_ALSO(arguments, seed_given)},
    {"json", NULL, FIELD(json), "print JSON"},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "HYPOTHESES REFERENCES...",
    .doc = "BLEU (Papineni et al. 2002; tokens and smoothing as Post 2018) and chrF (Popovic 2015) "
           "of a file of translations, a line each, against one or more files of references. - is "
           "standard input.",
    .argument = take_argument,
    .check = check};

typedef struct scorer {
    const arguments *a;
    FILE *file[MAX_FILES];
    char *line[MAX_FILES];
    size_t capacity[MAX_FILES];
    size_t lines[MAX_FILES];
    weft_bleu bleu; /* of the first hypotheses */
    weft_chrf chrf;
    weft_sentence_counts *kept[1 + MAX_OTHERS]; /* of each system and line, where they are needed */
    size_t n_kept, kept_capacity;
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
        if (!weft__text_read_line(s->file[i], &s->line[i], &s->capacity[i], &length)) {
            all = false;
            weft__text_at_end(s->file[i], s->a->file[i], &s->error);
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
        char *lower = weft_text_lowercase(s->line[i]);
        if (!lower) return false;
        free(s->line[i]);
        s->line[i] = lower;
        s->capacity[i] = strlen(lower) + 1;
    }
    return true;
}

static size_t system_count(const scorer *s)
{
    return 1 + s->a->n_others;
}

/* Makes room for the counts of one more line; false if out of memory. */
static bool grow_kept(scorer *s)
{
    if (s->n_kept < s->kept_capacity) return true;
    size_t capacity = s->kept_capacity ? 2 * s->kept_capacity : 256;
    for (size_t k = 0; k < system_count(s); k++) {
        weft_sentence_counts *grown = realloc(s->kept[k], capacity * sizeof *grown);
        if (!grown) return false;
        s->kept[k] = grown;
    }
    s->kept_capacity = capacity;
    return true;
}

/* Counts the current lines; false if out of memory. */
static bool score_lines(scorer *s)
{
    const char *const *references = (const char *const *)s->line + 1;
    const size_t n = s->a->n_references;
    const bool keeps = s->a->sentences || s->a->n_others;
    if ((s->a->lowercase && !lower_lines(s)) || (keeps && !grow_kept(s))) return false;
    for (size_t k = 0; k < system_count(s); k++) {
        const char *line = s->line[k ? n + k : 0];
        weft_sentence_counts one = {.chrf = {.words = s->chrf.words}};
        if (weft_bleu_add(&one.bleu, line, references, n, &s->error) != WEFT_OK ||
            weft_chrf_add(&one.chrf, line, references, n, &s->error) != WEFT_OK)
            return false;
        if (keeps) s->kept[k][s->n_kept] = one;
        if (k) continue;
        weft_bleu_sum(&s->bleu, &one.bleu);
        weft_chrf_sum(&s->chrf, &one.chrf);
    }
    s->n_kept += keeps;
    return true;
}

static int score_all(scorer *s)
{
    while (read_lines(s))
        if (!score_lines(s)) return tool_fail_text("score", "out of memory");
    for (size_t i = 0; i < s->a->n && s->error.status == WEFT_OK; i++) {
        while (weft__os_read_line(&s->line[i], &s->capacity[i], s->file[i]) >= 0) s->lines[i]++;
        weft__text_at_end(s->file[i], s->a->file[i], &s->error);
    }
    if (s->error.status != WEFT_OK) return tool_fail(&s->error);
    for (size_t i = 1; i < s->a->n; i++)
        if (s->lines[i] != s->lines[0])
            return tool_fail_text(s->a->file[i], "has %zu lines, %s has %zu", s->lines[i],
                                  s->a->file[0], s->lines[0]);
    return s->lines[0] ? EXIT_GOOD : tool_fail_text(s->a->file[0], "has no lines");
}

/* ---- Output ---- */

static const char *chrf_key(const scorer *s)
{
    return s->a->plus ? "chrf2++" : "chrf2";
}

static const char *chrf_name(const scorer *s)
{
    return s->a->plus ? "chrF2++" : "chrF2";
}

/* The signature: everything the scores depend on, in the form of sacreBLEU. */
typedef struct signatures {
    char bleu[256], chrf[256];
} signatures;

static signatures sign(const scorer *s)
{
    signatures of;
    char shared[128], resampling[80] = "";
    if (s->a->n_others)
        snprintf(resampling, sizeof resampling, "bs:%ld|seed:%ld|", s->a->samples, s->a->seed);
    snprintf(shared, sizeof shared, "nrefs:%zu|%scase:%s|eff:", s->a->n_references, resampling,
             s->a->lowercase ? "lc" : "mixed");
    snprintf(of.bleu, sizeof of.bleu, "%sno|tok:13a|smooth:exp|version:weft-" WEFT_VERSION, shared);
    snprintf(of.chrf, sizeof of.chrf, "%syes|nc:6|nw:%d|space:no|version:weft-" WEFT_VERSION,
             shared, s->chrf.words);
    return of;
}

static void add_sentences(cJSON *json, const scorer *s)
{
    cJSON *list = cJSON_AddArrayToObject(json, "sentences");
    for (size_t i = 0; i < s->n_kept; i++) {
        const weft_sentence_counts *one = &s->kept[0][i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "bleu", weft_bleu_score_sentence(&one->bleu).score);
        cJSON_AddNumberToObject(item, chrf_key(s), weft_chrf_score(&one->chrf));
        cJSON_AddItemToArray(list, item);
    }
}

static int print_json(const scorer *s, const weft_bleu_result *r)
{
    const signatures signature = sign(s);
    cJSON *json = cJSON_CreateObject(), *precisions = cJSON_CreateArray();
    for (int k = 0; k < WEFT_BLEU_ORDER; k++)
        cJSON_AddItemToArray(precisions, cJSON_CreateNumber(r->precisions[k]));
    if (s->a->sentences) add_sentences(json, s);
    cJSON_AddNumberToObject(json, "bleu", r->score);
    cJSON_AddItemToObject(json, "precisions", precisions);
    cJSON_AddNumberToObject(json, "brevity", r->brevity);
    cJSON_AddNumberToObject(json, "length", (double)s->bleu.length);
    cJSON_AddNumberToObject(json, "reference_length", (double)s->bleu.reference_length);
    cJSON_AddStringToObject(json, "signature", signature.bleu);
    cJSON_AddNumberToObject(json, chrf_key(s), weft_chrf_score(&s->chrf));
    cJSON_AddStringToObject(json, "chrf_signature", signature.chrf);
    return tool_print_json(json);
}

static int print(const scorer *s)
{
    const weft_bleu_result r = weft_bleu_score(&s->bleu);
    const double *p = r.precisions;
    const signatures signature = sign(s);
    double ratio =
        s->bleu.reference_length ? (double)s->bleu.length / (double)s->bleu.reference_length : 0;
    if (s->a->json) return print_json(s, &r);
    for (size_t i = 0; i < s->n_kept; i++)
        printf("%zu: BLEU = %.2f %s = %.2f\n", i + 1,
               weft_bleu_score_sentence(&s->kept[0][i].bleu).score, chrf_name(s),
               weft_chrf_score(&s->kept[0][i].chrf));
    printf("BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %zu ref_len = %zu)\n"
           "  %s\n",
           r.score, p[0], p[1], p[2], p[3], r.brevity, ratio, s->bleu.length,
           s->bleu.reference_length, signature.bleu);
    printf("%s = %.2f\n  %s\n", chrf_name(s), weft_chrf_score(&s->chrf), signature.chrf);
    return EXIT_GOOD;
}

/* ---- Comparison of systems ---- */

static const char *system_name(const scorer *s, size_t system)
{
    return s->a->file[system ? s->a->n_references + system : 0];
}

static cJSON *resampled_json(const weft_resampled *r)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "score", r->score);
    cJSON_AddNumberToObject(json, "mean", r->mean);
    cJSON_AddNumberToObject(json, "low", r->low);
    cJSON_AddNumberToObject(json, "high", r->high);
    if (!isnan(r->p)) cJSON_AddNumberToObject(json, "p", r->p);
    return json;
}

static int print_systems_json(const scorer *s, const weft_system_scores *results)
{
    const signatures signature = sign(s);
    cJSON *json = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(json, "systems");
    for (size_t k = 0; k < system_count(s); k++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "hypotheses", system_name(s, k));
        cJSON_AddItemToObject(item, "bleu", resampled_json(&results[k].bleu));
        cJSON_AddItemToObject(item, chrf_key(s), resampled_json(&results[k].chrf));
        cJSON_AddItemToArray(list, item);
    }
    cJSON_AddStringToObject(json, "signature", signature.bleu);
    cJSON_AddStringToObject(json, "chrf_signature", signature.chrf);
    return tool_print_json(json);
}

static void print_score(const scorer *s, const weft_system_scores *results, bool chrf,
                        const char *name, const char *signature)
{
    printf("%s\n  %s\n", name, signature);
    for (size_t k = 0; k < system_count(s); k++) {
        const weft_resampled *r = chrf ? &results[k].chrf : &results[k].bleu;
        char p[32] = "";
        if (!isnan(r->p)) snprintf(p, sizeof p, "  p = %.4f", r->p);
        tool_print_line(stdout, "  %6.2f  mean %6.2f  95 %% %6.2f .. %6.2f%s  %s", r->score,
                        r->mean, r->low, r->high, k ? p : "            ", system_name(s, k));
    }
}

static int compare(const scorer *s)
{
    weft_system_scores results[1 + MAX_OTHERS];
    const signatures signature = sign(s);
    const weft_resampling resampling = {.counts = (const weft_sentence_counts *const *)s->kept,
                                        .n_systems = system_count(s),
                                        .n_sentences = s->n_kept,
                                        .samples = (size_t)s->a->samples,
                                        .seed = (uint64_t)s->a->seed};
    weft_error error;
    if (weft_score_resample(&resampling, results, &error) != WEFT_OK) return tool_fail(&error);
    if (s->a->json) return print_systems_json(s, results);
    print_score(s, results, false, "BLEU", signature.bleu);
    print_score(s, results, true, chrf_name(s), signature.chrf);
    return EXIT_GOOD;
}

int cmd_score(int argc, char **argv)
{
    arguments a = {.samples = 1000, .seed = 12345};
    tool_parse(&command, argc, argv, &a);
    scorer s = {.a = &a, .chrf = {.words = a.plus ? WEFT_CHRF_MAX_WORDS : 0}};
    int status = open_files(&s);
    if (status == EXIT_GOOD) status = score_all(&s);
    if (status == EXIT_GOOD) status = a.n_others ? compare(&s) : print(&s);
    for (size_t k = 0; k < system_count(&s); k++) free(s.kept[k]);
    for (size_t i = 0; i < a.n; i++) {
        free(s.line[i]);
        stream_close(s.file[i]);
    }
    return status;
}
