/* What a tokeniser does with texts, for tests/real/compare_tokenizers.py. Usage: tokenizer_ids FILE <TEXTS,
 * each with its length before it, as 4 bytes in the machine's order. Prints for each text two lines
 * of `id begin end type` of each token, without and with special ids, and the text that the first
 * ids are decoded to, in hexadecimal digits; with --time SECONDS what it encodes a second. */
#include <weft/tokenizers.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void print_tokens(const weft_tokenizer *t, const char *text, bool special,
                         weft_encoding *encoding)
{
    weft_error error;
    const weft_encode_input input = {text, NULL, special, special};
    if (weft_tokenizer_encode_input(t, &input, encoding, &error) != WEFT_OK)
        printf("error %s", error.message);
    for (size_t i = 0; i < encoding->n; i++)
        printf("%d %zu %zu %d ", encoding->ids[i], encoding->spans[i].begin, encoding->spans[i].end,
               encoding->types[i]);
    printf("\n");
}

static void print_text(const weft_tokenizer *t, const weft_encoding *encoding)
{
    char *text = NULL;
    weft_tokenizer_decode(t, encoding->ids, encoding->n, &text, NULL, NULL);
    for (const char *at = text; at && *at; at++) printf("%02x", (unsigned)(unsigned char)*at);
    printf("\n");
    free(text);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Encodes standard input, line by line, again and again. */
static void measure(const weft_tokenizer *t, double least)
{
    char *line = NULL;
    size_t capacity = 0, bytes = 0, ids = 0, n;
    const double begin = seconds();
    while (seconds() - begin < least) {
        rewind(stdin);
        for (ssize_t got; (got = getline(&line, &capacity, stdin)) > 0; bytes += (size_t)got)
            if (weft_tokenizer_encode(t, line, NULL, NULL, 0, &n, NULL) == WEFT_OK) ids += n;
    }
    printf("%zu ids, %.1f MiB/s of one thread's time\n", ids,
           (double)bytes / (seconds() - begin) / 1048576);
    free(line);
}

int main(int argc, char **argv)
{
    weft_error error;
    uint32_t length;
    weft_tokenizer *t = weft_tokenizer_load_json(argc > 1 ? argv[1] : NULL, &error);
    if (!t) {
        fprintf(stderr, "%s: %s\n", error.where, error.message);
        return 1;
    }
    if (argc == 4 && !strcmp(argv[2], "--time")) measure(t, strtod(argv[3], NULL));
    while (argc == 2 && fread(&length, sizeof length, 1, stdin) == 1) {
        weft_encoding plain, special;
        char *text = calloc((size_t)length + 1, 1);
        if (!text || fread(text, 1, length, stdin) != length) return 1;
        print_tokens(t, text, false, &plain);
        print_tokens(t, text, true, &special);
        print_text(t, &plain);
        weft_encoding_free(&plain);
        weft_encoding_free(&special);
        free(text);
    }
    weft_tokenizer_free(t);
    return 0;
}
