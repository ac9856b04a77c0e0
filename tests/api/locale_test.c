/* A program that has set a locale with a decimal comma: what is parsed, saved, drawn and said is
 * what it is in the C locale. The locale de_DE.UTF-8 is the system's, or made in a folder of the
 * test by localedef (Debian package locales). */
#include "tests.h"

#include <json/tree.h>
#include <base/text.h>

#include <dirent.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static bool has_german;

static int make_locale(void)
{
    char command[256];
    strcpy(folder, "/tmp/weft-locale-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    has_german = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    if (!has_german) {
        snprintf(command, sizeof command,
                 "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
        has_german = system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 &&
                     setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    }
    has_german = has_german && !strcmp(localeconv()->decimal_point, ",");
    setlocale(LC_ALL, "C");
    return 0;
}

static int remove_locale(void)
{
    char command[128];
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Skips a test where there is no such locale. */
static bool german_is_there(const char *what)
{
    if (!has_german) test_skip(what, "no locale de_DE.UTF-8, and localedef cannot make it");
    return has_german;
}

/* Switches the whole process over, as a program does. */
static void speak(bool german)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(setlocale(LC_ALL, german ? "de_DE.UTF-8" : "C"));
}

/* ---- Numbers ---- */

static void test_numbers(void)
{
    char text[64];
    double x = 0;
    weft_model_config config;
    weft_error error = {0};
    const weft_model *model = weft_model_find("transformer");
    if (!german_is_there("numbers")) return;
    speak(true);
    snprintf(text, sizeof text, "%.1f", 0.5);
    CU_ASSERT_STRING_EQUAL(text, "0,5"); /* the locale is at work */
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(0.1, text), "0.1");
    CU_ASSERT_TRUE(weft__text_to_double("2.5e-3", &x) && x == 2.5e-3);
    CU_ASSERT_FALSE(weft__text_to_double("2,5", &x));
    weft__text_format(text, sizeof text, "%g %.2f %a", 0.5, 1.25, 1.5);
    CU_ASSERT_STRING_EQUAL(text, "0.5 1.25 0x1.8p+0");

    size_t i = 0;
    while (i < model->n_options && strcmp(model->options[i].name, "dropout") != 0) i++;
    CU_ASSERT_TRUE_FATAL(i < model->n_options);
    CU_ASSERT_EQUAL(
        weft_model_parse(model, (const char *const[]){"dropout=0.1"}, 1, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_model_value(&config, i), 0.1);
    CU_ASSERT_STRING_EQUAL(weft_model_value_text(model, i, 0.1, text, sizeof text), "0.1");
    CU_ASSERT_NOT_EQUAL(
        weft_model_parse(model, (const char *const[]){"dropout=0,1"}, 1, &config, NULL), WEFT_OK);
    speak(false);
}

static void test_json(void)
{
    if (!german_is_there("JSON")) return;
    speak(true);
    cJSON *json = weft__json_parse("[0.1,1e-3,2.5]", 14, NULL);
    char *text = json ? weft__json_print(json, false) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_STRING_EQUAL(text, "[0.1,0.001,2.5]");
    CU_ASSERT_EQUAL(cJSON_GetNumberValue(cJSON_GetArrayItem(json, 1)), 1e-3);
    cJSON_free(text);
    cJSON_Delete(json);
    speak(false);
}

/* ---- Messages ---- */

/* What a graph says that is asked for the impossible. */
static weft_error wrong(int what)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4));
    weft_cross_entropy_loss_options smooth = {.label_smoothing = 1.5};
    switch (what) {
    case 0:
        weft_dropout(g, x, 1.5);
        break;
    case 1:
        weft_cross_entropy_loss(g, weft_reshape(g, x, WEFT_SHAPE(1, 4)),
                                weft_input(g, "t", WEFT_I32, WEFT_SHAPE(1)), &smooth);
        break;
    case 2:
        weft_graph_fail(g, WEFT_BAD_ARGUMENT, "%g is not %.3f", 1.5, 2.5);
        break;
    default:
        weft_graph_push_scope(g, "layer%.1f", 1.5);
        weft_graph_fail(g, WEFT_BAD_ARGUMENT, "in a scope");
    }
    error = *weft_graph_error(g);
    weft_graph_free(g);
    return error;
}

static void test_messages(void)
{
    if (!german_is_there("messages")) return;
    for (int i = 0; i < 4; i++) {
        weft_error plain = wrong(i);
        speak(true);
        weft_error german = wrong(i);
        speak(false);
        CU_ASSERT_NOT_EQUAL(plain.status, WEFT_OK);
        CU_ASSERT_STRING_EQUAL(german.where, plain.where);
        CU_ASSERT_STRING_EQUAL(german.message, plain.message);
    }
}

/* ---- Pictures and traces ---- */

static char *text_of(weft_status (*write)(const void *, FILE *), const void *what)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(write(what, file), WEFT_OK);
    fclose(file);
    return text;
}

static weft_status write_dot(const void *graph, FILE *file)
{
    return weft_graph_write_dot(graph, NULL, file, NULL);
}

static weft_status write_times(const void *profile, FILE *file)
{
    return weft_profile_write_dot(profile, file, NULL);
}

static weft_status write_trace(const void *profile, FILE *file)
{
    return weft_profile_write_trace(profile, file, NULL);
}

/* Whether a digit, a comma and a digit follow each other before `end`. */
static bool has_comma(const char *text, const char *end)
{
    for (; (text = strstr(text, ",")) != NULL && strstr(text, end); text++)
        if (text[-1] >= '0' && text[-1] <= '9' && text[1] >= '0' && text[1] <= '9') return true;
    return false;
}

static void test_pictures(void)
{
    if (!german_is_there("pictures")) return;
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 8));
    x = weft_dropout(g, weft_layer_norm(g, x, WEFT_NO_VALUE, WEFT_NO_VALUE, 1e-5), 0.25);
    char *plain = text_of(write_dot, g);
    CU_ASSERT_PTR_NOT_NULL(strstr(plain, "0.25"));
    weft_plan *plan = weft_plan_new(g, &x, 1, NULL, &error);
    weft_params *params = weft_params_new();
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    const float zeros[32] = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_profile(s, true, &(weft_profile_options){.trace_runs = 2}, NULL),
                    WEFT_OK);
    weft_session_feed(s, weft_graph_find(g, "x"), zeros, sizeof zeros, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    speak(true);
    char *german = text_of(write_dot, g);
    CU_ASSERT_STRING_EQUAL(german, plain);
    free(german);
    german = text_of(write_times, weft_profile_of(s));
    CU_ASSERT_PTR_NOT_NULL(strstr(german, " ms, "));
    CU_ASSERT_FALSE(has_comma(german, " ms, "));
    free(german);
    german = text_of(write_trace, weft_profile_of(s));
    speak(false);
    cJSON *json = cJSON_Parse(german);
    CU_ASSERT_PTR_NOT_NULL(json);
    cJSON_Delete(json);
    free(german);
    free(plain);
    weft_session_free(s);
    weft_params_free(params);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Checkpoints ---- */

enum { STEPS = 3 };

/* A training of `steps` steps, from the checkpoint `from` if it is not NULL, saved as `to`. Returns
 * where it stood before its first step. */
static weft_trainer_progress train(int steps, const char *from, const char *to)
{
    static const char *const tiny[] = {"vocab=20",   "d_model=8",        "heads=2",
                                       "d_ff=8",     "encoder_layers=1", "decoder_layers=1",
                                       "dropout=0.1"};
    weft_error error = {0};
    weft_corpus *corpus = weft_corpus_new();
    for (int32_t i = 0; i < 12; i++) {
        const int32_t ids[3] = {4 + i, 5 + i, 6 + i};
        weft_corpus_add(corpus, ids, 3, ids, 2, NULL);
    }
    weft_batch_options b = {.mode = WEFT_BATCH_PAIRS,
                            .tokens = 16,
                            .lengths = {8},
                            .n_lengths = 1,
                            .bos = 2,
                            .eos = 3,
                            .vocab = 20,
                            .seed = 7};
    weft_trainer_options o = {.builder =
                                  test_builder("transformer", tiny, sizeof tiny / sizeof *tiny),
                              .optimizer = WEFT_ADAM_DEFAULT,
                              .schedule = {WEFT_SCHEDULE_INVERSE_SQRT, 1e-2, 0, 4, 0},
                              .seed = 3};
    weft_batches *batches = weft_batches_new(corpus, &b, &error);
    weft_params *params = weft_params_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(batches);
    if (from) CU_ASSERT_EQUAL(weft_params_load(params, from, &error), WEFT_OK);
    weft_trainer *t = test_new_trainer(&o, batches, params, &error);
    if (!t) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    weft_trainer_progress before = weft_trainer_progress_of(t);
    for (int i = 0; i < steps; i++) CU_ASSERT_EQUAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
    if (!from) weft_trainer_judge(t, 2.9330001);
    CU_ASSERT_EQUAL(weft_trainer_save(t, to, NULL), WEFT_OK);
    weft_trainer_free(t);
    weft_params_free(params);
    weft_batches_free(batches);
    weft_corpus_free(corpus);
    return before;
}

static bool same_files(const char *a, const char *b)
{
    char command[300];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    return system(command) == 0;
}

static void test_checkpoints(void)
{
    char first[2][96], second[2][96];
    weft_trainer_progress states[2][2];
    if (!german_is_there("checkpoints")) return;
    for (int i = 0; i < 2; i++) {
        snprintf(first[i], sizeof first[i], "%s/first-%d", folder, i);
        snprintf(second[i], sizeof second[i], "%s/second-%d", folder, i);
        speak(i == 1);
        train(STEPS, NULL, first[i]);
    }
    CU_ASSERT_TRUE(same_files(first[0], first[1]));
    /* From either of them, in either locale. */
    for (int from = 0; from < 2; from++) {
        for (int i = 0; i < 2; i++) {
            speak(i == 1);
            states[from][i] = train(STEPS, first[from], second[i]);
            weft_trainer_progress s = states[from][i];
            CU_ASSERT_TRUE(s.smoothed > 1.5 && s.smoothed != floor(s.smoothed));
            CU_ASSERT_EQUAL(s.best, 2.9330001);
            CU_ASSERT_EQUAL(s.smoothed, states[0][0].smoothed);
        }
        CU_ASSERT_TRUE(same_files(second[0], second[1]));
    }
    speak(false);
}

void locale_tests(void)
{
    CU_pSuite suite = CU_add_suite("locale", make_locale, remove_locale);
    CU_add_test(suite, "numbers", test_numbers);
    CU_add_test(suite, "JSON", test_json);
    CU_add_test(suite, "messages", test_messages);
    CU_add_test(suite, "pictures and traces", test_pictures);
    CU_add_test(suite, "checkpoints", test_checkpoints);
}
