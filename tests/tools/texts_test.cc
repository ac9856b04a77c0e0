// The program's texts and vocabularies: what SentencePiece throws becomes a status, and files are read
// through. Usage: texts_test TEXT_FILE
#include "text/spm.h"
#include "text/streams.h"

#include "text_file.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

// Every allocation of the program and, through the program's operator new, of SentencePiece is
// counted; one can be made to fail, or all from one on. Linked with --wrap=malloc.
static long calls, fail_at;
static bool fail_rest;

extern "C" void *__real_malloc(std::size_t bytes);
extern "C" void *__wrap_malloc(std::size_t bytes)
{
    calls++;
    const bool fails = fail_at && (fail_rest ? calls >= fail_at : calls == fail_at);
    return fails ? nullptr : __real_malloc(bytes);
}

static int failures;

static void check(bool good, const char *what)
{
    if (good) return;
    std::printf("failed: %s\n", what);
    failures++;
}

// What a process of its own says that fails allocation `n` of `work`.
enum outcome { REACHED_NONE = 10, REPORTED, WRONG };

template <typename Work> static int fail_one(Work work, long n)
{
    weft_error error = {};
    calls = 0;
    fail_at = n;
    const weft_status status = work(&error);
    fail_at = 0;
    if (calls < n) return status == WEFT_OK ? REACHED_NONE : WRONG;
    return status == WEFT_NO_MEMORY && error.status == WEFT_NO_MEMORY ? REPORTED : WRONG;
}

// Calls `work` with its 1st, 2nd, ... allocation failing, until it makes no more.
template <typename Work> static void fail_each(const char *what, Work work)
{
    long n = 0, reported = 0, ended = 0, wrong = 0;
    for (int status = 0; !(WIFEXITED(status) && WEXITSTATUS(status) == REACHED_NONE);) {
        std::fflush(stdout);
        const pid_t child = fork();
        if (!child) {
            std::freopen("/dev/null", "w", stderr);
            alarm(10); // what it frees wrongly may also leave it waiting for ever
            _exit(fail_one(work, ++n));
        }
        if (child < 0 || waitpid(child, &status, 0) != child || n > 10000) std::exit(1);
        n++;
        reported += WIFEXITED(status) && WEXITSTATUS(status) == REPORTED;
        wrong += WIFEXITED(status) && WEXITSTATUS(status) == WRONG;
        ended += WIFSIGNALED(status);
    }
    std::printf("%s: of %ld failed allocations%s %ld are reported, %ld end the process\n", what,
                n - 1, fail_rest ? ", with all that follow," : "", reported, ended);
    check(reported > 0 && !wrong && !ended, what);
}

static void test_exceptions(const char *text_file)
{
    char path[] = "/tmp/weft-texts-XXXXXX";
    const int file = mkstemp(path);
    const spm_options options = {"bpe", 200, false, false};
    spm_counts counts;
    weft_error error = {};
    char *model = nullptr;
    size_t bytes = 0;
    check(spm_train(&text_file, 1, &options, &counts, &model, &bytes, &error) == WEFT_OK,
          "training");
    check(file >= 0 && write(file, model, bytes) == (ssize_t)bytes && close(file) == 0, "writing");
    std::free(model);
    weft_tokenizer *s = spm_load(path, &error);
    if (!s) {
        std::printf("failed: %s: %s\n", error.where, error.message);
        std::exit(1);
    }
    const char line[] = "In the beginning God created the heaven and the earth.";
    int32_t ids[sizeof line];
    size_t n = 0;
    char *text = nullptr;
    check(weft_tokenizer_encode(s, line, ids, NULL, sizeof line, &n, &error) == WEFT_OK && n > 5,
          "encoding");
    check(weft_tokenizer_decode(s, ids, n, &text, NULL, &error) == WEFT_OK &&
              !std::strcmp(text, line),
          "decoding");
    std::free(text);
    for (const bool rest : {false, true}) {
        fail_rest = rest;
        fail_each("loading", [&](weft_error *e) {
            weft_tokenizer *again = spm_load(path, e);
            weft_tokenizer_free(again);
            return again ? WEFT_OK : e->status;
        });
        fail_each("encoding", [&](weft_error *e) {
            return weft_tokenizer_encode(s, line, ids, NULL, sizeof line, &n, e);
        });
        fail_each("decoding",
                  [&](weft_error *e) { return weft_tokenizer_decode(s, ids, n, &text, NULL, e); });
    }
    weft_tokenizer_free(s);
    unlink(path);
    check(!spm_load(path, &error) && error.status == WEFT_IO, "a missing file");
}

// All that a path gives, or the error's message.
static std::string read_all(const char *path)
{
    char *line = nullptr;
    std::size_t capacity = 0, length;
    weft_error error = {};
    std::string all;
    std::FILE *file = stream_open(path, &error);
    if (!file) return error.message;
    while (weft__text_read_line(file, &line, &capacity, &length))
        all += std::string(line, length) + "|";
    if (!weft__text_at_end(file, path, &error)) all = error.message;
    std::free(line);
    stream_close(file);
    return all;
}

static void test_streams()
{
    char path[] = "/tmp/weft-gzip-XXXXXX";
    weft_error error = {};
    close(mkstemp(path));
    gzFile out = gzopen(path, "wb");
    std::string lines, wanted;
    for (int i = 0; i < 20000; i++) {
        lines += "line " + std::to_string(i * 7919) + "\n";
        wanted += "line " + std::to_string(i * 7919) + "|";
    }
    gzwrite(out, lines.data(), (unsigned)lines.size());
    gzclose(out);
    check(read_all(path) == wanted, "gzip is read through");
    check(stream_keep(path, &error) == WEFT_OK && read_all(path) == wanted, "a regular file");
    check(truncate(path, 20000) == 0 && read_all(path) == "is damaged or truncated",
          "gzip without its end");
    check(read_all("/nowhere/x") == "cannot be opened: No such file or directory", "no file");
    unlink(path);

    int ends[2];
    check(pipe(ends) == 0 && write(ends[1], "a\r\nb", 4) == 4, "a pipe");
    close(ends[1]);
    std::string name = "/dev/fd/" + std::to_string(ends[0]);
    check(stream_keep(name.c_str(), &error) == WEFT_OK, "a pipe is kept");
    close(ends[0]);
    check(read_all(name.c_str()) == "a|b|" && read_all(name.c_str()) == "a|b|",
          "and read any number of times");
    check(stream_keep("/nowhere/y", &error) == WEFT_IO, "nothing to keep");
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    test_exceptions(argv[1]);
    test_streams();
    if (!failures) std::printf("texts: all as expected\n");
    return failures > 0;
}
