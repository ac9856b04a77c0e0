/* weft vocab: makes SentencePiece vocabularies; prints them, or a tokenizer.json, and converts lines
 * of text to ids and back. */
#include "text/spm.h"
#include "text/streams.h"
#include "text/vocabulary.h"
#include "tool.h"

#include "base/file.h"
#include "base/text.h"
#include "text_file.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

#define STANDARD_INPUT "standard input"

/* ---- train ---- */

#define TYPES          "bpe|unigram|char"
#define NORMALIZATIONS "nfkc|identity"

typedef struct train_arguments {
    const char **files, *out;
    size_t n;
    bool force, mask;
    unsigned type, normalization; /* choices */
    int size;
} train_arguments;

static void take_text(void *into, char *path, const tool_parser *parser)
{
    train_arguments *a = into;
    for (size_t i = 0; i < a->n; i++)
        if (!strcmp(path, "-") && !strcmp(a->files[i], "-"))
            tool_usage_error(parser, "standard input can be one TEXT only");
    a->files[a->n++] = path;
}

static void check_train(void *into, const tool_parser *parser)
{
    const train_arguments *a = into;
    if (!a->n) tool_usage_error(parser, "TEXT is missing");
}

static int train(const train_arguments *a)
{
    weft_error error = {0};
    static const char *const types[] = {"bpe", "unigram", "char"};
    const spm_options o = {types[a->type], a->size, a->mask, a->normalization == 1};
    char *data = NULL;
    size_t bytes;
    if (!a->force && weft__file_exists(a->out) && !weft__file_is_stream(a->out))
        return tool_fail_text(a->out, "exists already: --force replaces it");
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < a->n && status == WEFT_OK; i++)
        status = tool_check_output(a->out, a->files[i], &error);
    if (status == WEFT_OK) status = vocabulary_make(a->files, a->n, &o, &data, &bytes, &error);
    weft_tokenizer *made = status == WEFT_OK ? spm_parse(data, bytes, a->out, &error) : NULL;
    bool good = made && tool_write_output(a->out, data, bytes, &error);
    if (good && spm_size(made) < a->size)
        tool_print_line(stderr, "%s: the text has only %d pieces, not %d", a->out, spm_size(made),
                        a->size);
    weft_tokenizer_free(made);
    free(data);
    return good ? EXIT_GOOD : tool_fail(&error);
}

#define FIELD(field) TOOL_FIELD(train_arguments, field)
static const tool_option train_options[] = {
    {"output", "FILE.model", FIELD(out), "file to write", .letter = 'o', .required = true},
    {"force", NULL, FIELD(force), "replace an existing file", .letter = 'f'},
    {"type", TYPES, FIELD(type), "kind of pieces"},
    {"size", "N", FIELD(size), "pieces, special ones included", 10, 1e6},
    {"normalization", NORMALIZATIONS, FIELD(normalization),
     "normalization of text; identity keeps every character"},
    {"mask", NULL, FIELD(mask), "add the piece " SPM_MASK ", for masked language models"},
    {0}};
#undef FIELD

static int cmd_vocab_train(int argc, char **argv)
{
    static const tool_command command = {
        .options = train_options,
        .usage = "TEXT...",
        .doc = "Makes a vocabulary of text files, the one that `weft train` makes of the same "
               "texts. Texts may be gzip; - is standard input.",
        .argument = take_text,
        .check = check_train};
    train_arguments a = {.files = calloc((size_t)argc + 1, sizeof *a.files), .size = 4000};
    if (!a.files) return tool_fail_text("vocab", "out of memory");
    tool_parse(&command, argc, argv, &a);
    int status = train(&a);
    free(a.files);
    return status;
}

/* ---- Common parts of encode, decode and show ---- */

typedef struct use_arguments {
    const char *path; /* of a vocabulary, or a run's folder */
    bool pieces, special, all, json;
} use_arguments;

#define FIELD(field) TOOL_FIELD(use_arguments, field)

/* Loads FILE, or FOLDER/vocab.model or else FOLDER/tokenizer.json. NULL after an error. */
static weft_tokenizer *open_vocabulary(const char *path, weft_error *error)
{
    os_facts facts;
    static const char *const names[] = {"vocab.model", "vocab.source.model", "tokenizer.json"};
    char file[3][FILE_PATH_BYTES];
    bool there[3];
    if (!weft__os_facts(path, &facts) || facts.kind != OS_FOLDER)
        return vocabulary_open(path, error);
    for (int i = 0; i < 3; i++) {
        if (snprintf(file[i], sizeof file[i], "%s/%s", path, names[i]) >= (int)sizeof file[i]) {
            weft_error_set(error, WEFT_TOO_LARGE, path, "the path is too long");
            return NULL;
        }
        there[i] = weft__file_exists(file[i]);
    }
    if (!there[0] && there[1]) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                       "has two vocabularies: name vocab.source.model or vocab.target.model in it");
        return NULL;
    }
    return vocabulary_open(file[!there[0] && there[2] ? 2 : 0], error);
}

/* Lines of standard input, and the ids of the current one. */
typedef struct filter {
    const use_arguments *a;
    const weft_tokenizer *vocabulary;
    char *line;
    size_t capacity, length, number;
    int32_t *ids;
    size_t n, room;
    weft_error error;
} filter;

static bool line_fails(filter *f, weft_status status, const char *format, ...) WEFT_PRINTF(3, 4);
static bool line_fails(filter *f, weft_status status, const char *format, ...)
{
    char what[1024];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    weft_error_set(&f->error, status, STANDARD_INPUT, "line %zu: %s", f->number, what);
    return false;
}

static bool make_room(filter *f, size_t n)
{
    if (n <= f->room) return true;
    int32_t *grown = realloc(f->ids, 2 * n * sizeof *grown);
    if (!grown) return line_fails(f, WEFT_NO_MEMORY, "out of memory");
    f->ids = grown;
    f->room = 2 * n;
    return true;
}

/* What a subcommand does with the current line; false after an error. */
typedef bool line_work(filter *f);

static int filter_lines(const use_arguments *a, line_work *work)
{
    filter f = {.a = a};
    weft_tokenizer *vocabulary = open_vocabulary(a->path, &f.error);
    bool good = vocabulary != NULL;
    FILE *in = good ? stream_open("-", &f.error) : NULL;
    f.vocabulary = vocabulary;
    good = in != NULL;
    while (good && weft__text_read_line(in, &f.line, &f.capacity, &f.length)) {
        f.number++;
        good = weft_text_is_utf8(f.line, f.length) ? work(&f)
                                                   : line_fails(&f, WEFT_BAD_FILE, "is not UTF-8");
        if (good && ferror(stdout)) break; /* main reports a failed flush */
    }
    if (good && !ferror(stdout)) good = weft__text_at_end(in, STANDARD_INPUT, &f.error);
    stream_close(in);
    weft_tokenizer_free(vocabulary);
    free(f.line);
    free(f.ids);
    return good ? EXIT_GOOD : tool_fail(&f.error);
}

/* ---- encode ---- */

static bool print_ids(const filter *f, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i) putchar(' ');
        if (f->a->pieces)
            fputs(weft_tokenizer_piece(f->vocabulary, ids[i]), stdout);
        else
            printf("%d", ids[i]);
    }
    putchar('\n');
    return true;
}

static bool encode_special(filter *f)
{
    const weft_encode_input input = {f->line, NULL, true, true};
    weft_encoding e;
    if (weft_tokenizer_encode_input(f->vocabulary, &input, &e, &f->error) != WEFT_OK) return false;
    print_ids(f, e.ids, e.n);
    weft_encoding_free(&e);
    return true;
}

static bool encode_line(filter *f)
{
    const weft_tokenizer *v = f->vocabulary;
    if (f->a->special) return encode_special(f);
    if (weft_tokenizer_encode(v, f->line, f->ids, NULL, f->room, &f->n, &f->error) != WEFT_OK)
        return false;
    if (f->n > f->room) {
        if (!make_room(f, f->n)) return false;
        if (weft_tokenizer_encode(v, f->line, f->ids, NULL, f->room, &f->n, &f->error) != WEFT_OK)
            return false;
    }
    return print_ids(f, f->ids, f->n);
}

static const tool_option encode_options[] = {
    {TOOL_ONE(use_arguments, path, "FILE or RUN"), .required = true},
    {"pieces", NULL, FIELD(pieces), "print pieces instead of ids"},
    {"special", NULL, FIELD(special),
     "print also the ids that the vocabulary puts around a text, such as [CLS] and [SEP]; special "
     "pieces in it become their ids"},
    {0}};

static int cmd_vocab_encode(int argc, char **argv)
{
    static const tool_command command = {
        .options = encode_options,
        .usage = "FILE|RUN",
        .doc = "Prints the ids of each line of standard input, separated by spaces, without those "
               "that begin and end a text."};
    use_arguments a = {.path = NULL};
    tool_parse(&command, argc, argv, &a);
    return filter_lines(&a, encode_line);
}

/* ---- decode ---- */

static bool id_of_number(filter *f, const char *word, int32_t *id)
{
    char *end;
    long number = strtol(word, &end, 10);
    if (end == word || *end)
        return line_fails(f, WEFT_BAD_FILE, "\"%s\" is not an id, a whole number", word);
    if (number < 0 || number >= spm_size(f->vocabulary))
        return line_fails(f, WEFT_BAD_FILE, "id %s is not in [0, %d), the ids of the vocabulary",
                          word, spm_size(f->vocabulary));
    *id = (int32_t)number;
    return true;
}

static bool id_of_piece(filter *f, const char *word, int32_t *id)
{
    if (weft_tokenizer_find(f->vocabulary, word, id, &f->error) != WEFT_OK) return false;
    return *id >= 0 ||
           line_fails(f, WEFT_BAD_FILE, "\"%s\" is not a piece of the vocabulary", word);
}

static bool decode_line(filter *f)
{
    char *rest = NULL, *text;
    f->n = 0;
    for (char *word = strtok_r(f->line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        int32_t id;
        if (!make_room(f, f->n + 1)) return false;
        if (!(f->a->pieces ? id_of_piece(f, word, &id) : id_of_number(f, word, &id))) return false;
        f->ids[f->n++] = id;
    }
    if (weft_tokenizer_decode(f->vocabulary, f->ids, f->n, &text, NULL, &f->error) != WEFT_OK)
        return false;
    weft_text_clean(text, false);
    puts(text);
    free(text);
    return true;
}

static const tool_option decode_options[] = {
    {TOOL_ONE(use_arguments, path, "FILE or RUN"), .required = true},
    {"pieces", NULL, FIELD(pieces), "the lines are of pieces, not ids"},
    {0}};

static int cmd_vocab_decode(int argc, char **argv)
{
    static const tool_command command = {
        .options = decode_options,
        .usage = "FILE|RUN",
        .doc = "Prints the text of each line of ids, separated by spaces, on standard input. "
               "Leaves out special ids, and prints control characters as spaces, so that a line "
               "stays one line."};
    use_arguments a = {.path = NULL};
    tool_parse(&command, argc, argv, &a);
    return filter_lines(&a, decode_line);
}

/* ---- show ---- */

static size_t count_bytes(const weft_tokenizer *s)
{
    size_t n = 0;
    for (int32_t id = 0; id < spm_size(s); id++) n += weft_tokenizer_role(s, id) == WEFT_PIECE_BYTE;
    return n;
}

/* The ids of the special tokens; -1: none. Returns how many roles there are. */
static size_t list_specials(const weft_tokenizer *s, const char *names[5], int32_t ids[5])
{
    const weft_tokenizer_info special = weft_tokenizer_info_of(s);
    int32_t mask = -1;
    weft_tokenizer_find(s, SPM_MASK, &mask, NULL);
    if (mask < 0) weft_tokenizer_find(s, "[MASK]", &mask, NULL);
    const struct {
        const char *name;
        int32_t id;
    } roles[] = {{"pad", special.pad},
                 {"unknown", special.unk},
                 {"begin", special.bos},
                 {"end", special.eos},
                 {"mask", mask}};
    for (size_t i = 0; i < 5; i++) {
        names[i] = roles[i].name;
        ids[i] = roles[i].id;
    }
    return 5;
}

static int show_json(const weft_tokenizer *s, bool all)
{
    const char *names[5];
    int32_t ids[5];
    const weft_tokenizer_info info = weft_tokenizer_info_of(s);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "pieces", spm_size(s));
    cJSON_AddStringToObject(json, "type", info.type);
    cJSON_AddStringToObject(json, "normalization", info.normalization);
    cJSON_AddNumberToObject(json, "byte_pieces", (double)count_bytes(s));
    cJSON *special = cJSON_AddObjectToObject(json, "special");
    for (size_t i = 0, n = list_specials(s, names, ids); i < n; i++)
        if (ids[i] >= 0) cJSON_AddNumberToObject(special, names[i], ids[i]);
    cJSON *list = all ? cJSON_AddArrayToObject(json, "list") : NULL;
    for (int32_t id = 0; list && id < spm_size(s); id++)
        cJSON_AddItemToArray(list, cJSON_CreateString(weft_tokenizer_piece(s, id)));
    return tool_print_json(json);
}

static void show(const weft_tokenizer *s)
{
    const char *names[5];
    int32_t ids[5];
    const weft_tokenizer_info info = weft_tokenizer_info_of(s);
    printf("%-13s %d (%zu of them bytes)\n", "pieces", spm_size(s), count_bytes(s));
    printf("%-13s %s\n", "type", info.type);
    printf("%-13s %s\n", "normalization", info.normalization);
    for (size_t i = 0, n = list_specials(s, names, ids); i < n; i++) {
        if (ids[i] < 0)
            printf("%-13s none\n", names[i]);
        else
            tool_print_line(stdout, "%-13s %d %s", names[i], ids[i],
                            weft_tokenizer_piece(s, ids[i]));
    }
}

static const tool_option show_options[] = {
    {TOOL_ONE(use_arguments, path, "FILE or RUN"), .required = true},
    {"all", NULL, FIELD(all), "print every piece, after its id"},
    {"json", NULL, FIELD(json), "print JSON"},
    {0}};

static int cmd_vocab_show(int argc, char **argv)
{
    static const tool_command command = {
        .options = show_options,
        .usage = "FILE|RUN",
        .doc = "Prints how many pieces a vocabulary has, its type and normalization, and the ids "
               "of its special tokens."};
    use_arguments a = {.path = NULL};
    weft_error error = {0};
    tool_parse(&command, argc, argv, &a);
    weft_tokenizer *s = open_vocabulary(a.path, &error);
    int status = EXIT_GOOD;
    if (!s) return tool_fail(&error);
    if (a.json)
        status = show_json(s, a.all);
    else if (!a.all)
        show(s);
    for (int32_t id = 0; a.all && !a.json && id < spm_size(s); id++)
        tool_print_line(stdout, "%d %s", id, weft_tokenizer_piece(s, id));
    weft_tokenizer_free(s);
    return status;
}

/* ---- The command ---- */

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} subcommands[] = {{"train", cmd_vocab_train},
                   {"encode", cmd_vocab_encode},
                   {"decode", cmd_vocab_decode},
                   {"show", cmd_vocab_show}};

/* Reached only if the first argument is not a subcommand. */
static void refuse(void *into, char *text, const tool_parser *parser)
{
    (void)into;
    tool_usage_error(parser, "unknown subcommand \"%s\"; expected train, encode, decode or show",
                     text);
}

static void check_named(void *into, const tool_parser *parser)
{
    (void)into;
    tool_usage_error(parser, "name a subcommand: train, encode, decode or show");
}

int cmd_vocab(int argc, char **argv)
{
    static const tool_command command = {
        .usage = "train TEXT... -o FILE.model\nencode FILE|RUN\n"
                 "decode FILE|RUN\nshow FILE|RUN",
        .doc =
            "Makes a vocabulary of text files, converts lines of text to ids and back, or "
            "prints a vocabulary: FILE.model of SentencePiece, a tokenizer.json, or that of a run. "
            "`weft vocab SUBCOMMAND --help` lists the options of each.",
        .argument = refuse,
        .check = check_named};
    for (size_t i = 0; argc > 1 && i < sizeof subcommands / sizeof *subcommands; i++) {
        if (strcmp(argv[1], subcommands[i].name) != 0) continue;
        char name[64];
        snprintf(name, sizeof name, "weft vocab %s", subcommands[i].name);
        argv[1] = name;
        return subcommands[i].run(argc - 1, argv + 1);
    }
    tool_parse(&command, argc, argv, NULL);
    return EXIT_USAGE;
}
