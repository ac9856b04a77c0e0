/* The server from loading the model to the end. */
#include "server.h"
#include "system.h"

#include "base/file.h"

#include <weft/huggingface.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_CONTEXT 2048
#define FLUSH_NAPS      100 /* of 0.05 s */

/* ---- The model ---- */

static bool no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "serve", "out of memory");
    return false;
}

/* A model without a chat template still completes texts. */
static bool load_template(server *s, const char *folder, weft_error *error)
{
#ifdef WEFT_HAVE_TOKENIZERS
    weft_error why = WEFT_NO_ERROR;
    const char *path = s->a->template_file;
    s->chat = weft_chat_template_load(path ? path : folder, &why);
    snprintf(s->chat_problem, sizeof s->chat_problem, "%s", why.message);
    if (s->chat || (!path && why.status == WEFT_NOT_FOUND)) return true;
    weft_error_set(error, why.status, path ? "--chat-template" : why.where, "%s: %s",
                   path ? why.where : "chat template", why.message);
    return false;
#else
    (void)folder;
    (void)error;
    snprintf(s->chat_problem, sizeof s->chat_problem, "weft was built without weft-tokenizers");
    return true;
#endif
}

static bool load_language(server *s, const char *folder, weft_error *error)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_U8};
    const serve_args *a = s->a;
    s->context = trained_context(&s->run, a->context, DEFAULT_CONTEXT, error);
    if (!s->context) return false;
    const weft_batcher_options o = {.slots = a->slots,
                                    .max_len = s->context,
                                    .prefix_bytes = a->prefixes,
                                    .cache = dtypes[a->cache],
                                    .session.threads = a->threads};
    s->banned = trained_banned(&s->run, &s->n_banned);
    if (!s->banned) return no_memory(error);
    if (!load_template(s, folder, error)) return false;
    s->batcher = weft_batcher_new(&s->run.config, s->run.params, &o, error);
    s->info = weft_batcher_info_of(s->batcher);
    return s->batcher != NULL;
}

static bool load_encoder(server *s, const char *folder, weft_error *error)
{
    weft_huggingface_embedding published;
    if (weft_huggingface_read_embedding(folder, &published, error) != WEFT_OK) return false;
    const int64_t positions = s->run.traits.max_positions;
    const weft_embedder_options o = {.pooling = published.pooling,
                                     .normalize = published.normalize,
                                     .max_len = published.max_len < positions ? published.max_len
                                                                              : positions,
                                     .session.threads = s->a->threads};
    s->embedder = weft_embedder_new(&s->run.config, s->run.params, &o, error);
    return s->embedder != NULL;
}

/* The name that requests use: the last part of the folder's. */
static bool set_name(server *s, weft_error *error)
{
    const char *name = s->a->name ? s->a->name : s->a->folder;
    size_t n = strlen(name);
    while (!s->a->name && n > 1 && name[n - 1] == '/') n--;
    size_t from = n;
    while (!s->a->name && from > 0 && name[from - 1] != '/') from--;
    if (s->a->name) from = 0;
    s->name = strndup(name + from, n - from);
    return s->name || no_memory(error);
}

static bool read_key(server *s, weft_error *error)
{
    size_t bytes;
    if (s->a->key) {
        s->key = strdup(s->a->key);
        return s->key || no_memory(error);
    }
    if (!s->a->key_file) return true;
    s->key = weft__file_read(s->a->key_file, &bytes, error);
    if (!s->key) return false;
    s->key[strcspn(s->key, "\r\n")] = 0;
    if (*s->key) return true;
    weft_error_set(error, WEFT_BAD_FILE, s->a->key_file, "its first line is empty");
    return false;
}

static bool load(server *s, weft_error *error)
{
    char folder[FILE_PATH_BYTES];
    if (!set_name(s, error) || !read_key(s, error) ||
        !trained_open(&s->run, s->a->folder, s->a->checkpoint, error))
        return false;
    if (!trained_folder(&s->run, folder, error)) return false;
    return s->run.traits.decodable ? load_language(s, folder, error)
                                   : load_encoder(s, folder, error);
}

static void close_all(server *s)
{
    weft_batcher_free(s->batcher);
    format_close(s);
    weft_embedder_free(s->embedder);
#ifdef WEFT_HAVE_TOKENIZERS
    weft_chat_template_free(s->chat);
#endif
    trained_close(&s->run);
    free(s->banned);
    free(s->key);
    free((void *)(uintptr_t)s->name);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->reading);
    pthread_cond_destroy(&s->work);
}

/* ---- Running ---- */

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
    asked_to_stop = number;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* Refuses new requests, and waits for those in progress. */
static void drain(server *s, http *h)
{
    const double end = tool_seconds() + s->a->grace;
    bool busy = true;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    while (busy && tool_seconds() < end) {
        nap();
        pthread_mutex_lock(&s->lock);
        busy = s->pending > 0;
        pthread_mutex_unlock(&s->lock);
        busy |= http_busy(h);
    }
}

static bool serve(server *s, weft_error *error)
{
    /* Signals stay with this thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = engine_start(s, error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) return false;
    http *h = http_open(s, error);
    if (h) {
        system_take_signals(on_signal, false);
        tool_print_line(stdout, "%s is served at %s", s->name, http_url(h));
        fflush(stdout);
        while (!asked_to_stop && !s->a->check) {
            nap();
            http_tend(h);
        }
        drain(s, h);
    }
    pthread_mutex_lock(&s->lock);
    s->stopping = s->quit = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    engine_join(s);
    /* What is finished, or has failed, is still sent. */
    for (int i = 0; h && http_busy(h) && i < FLUSH_NAPS; i++) nap();
    http_close(h);
    return h != NULL;
}

bool serve_run(const serve_args *a, weft_error *error)
{
    server s = {.a = a, .started = (long long)time(NULL)};
    pthread_mutex_init(&s.lock, NULL);
    pthread_mutex_init(&s.reading, NULL);
    pthread_cond_init(&s.work, NULL);
    const bool good = load(&s, error) && serve(&s, error);
    close_all(&s);
    return good;
}
