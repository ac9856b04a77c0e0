/* The batcher: requests that come and go, against each of them alone. */
#include "subject.h"
#include "tests.h"

#include <weft/batch.h>

#include <stdlib.h>
#include <string.h>

#define VOCAB    29
#define MAX_LEN  160
#define REQUESTS 8

/* Quantises the matrices that can be, of 32 columns or more. */
static bool quantize_subject(subject *s)
{
    const weft_quantize_options o = {.bits = 8};
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_model_build(g, &s->config);
    weft_params *small = weft_params_quantize(s->params, g, &o, NULL, &error);
    weft_graph_free(g);
    CU_ASSERT_PTR_NOT_NULL(small);
    weft_params_free(s->params);
    s->params = small;
    return small != NULL;
}

/* ---- Requests and what they got ---- */

typedef struct asked {
    int32_t prompt[MAX_LEN];
    weft_search_input input;
    weft_sampling_options options;
    int stop_after; /* tokens after which the request ends itself; 0: never */
    uint64_t id;
    int32_t tokens[MAX_LEN];
    double log_probs[MAX_LEN];
    float rows[MAX_LEN][VOCAB]; /* log probabilities of all tokens */
    size_t n;                   /* tokens, without an end token */
    size_t events;
    bool over;
    weft_batcher_end end;
    weft_status status;
    char message[200];
} asked;

static bool take(void *context, const weft_batcher_event *event)
{
    asked *a = context;
    CU_ASSERT_EQUAL(event->request, a->id);
    CU_ASSERT_FALSE_FATAL(a->over);
    a->end = event->end;
    a->status = event->status;
    a->over = event->end != WEFT_BATCHER_GOES_ON;
    if (event->message) snprintf(a->message, sizeof a->message, "%s", event->message);
    if (event->token < 0) return true;
    CU_ASSERT_PTR_NOT_NULL_FATAL(event->log_probs);
    CU_ASSERT_EQUAL(event->log_probs->shape.rank, 1);
    memcpy(a->rows[a->events], event->log_probs->data, sizeof a->rows[0]);
    a->log_probs[a->events++] = event->log_prob;
    if (event->end != WEFT_BATCHER_ENDED) a->tokens[a->n++] = event->token;
    if (!a->stop_after || (int)a->n < a->stop_after) return true;
    a->over = true;
    return false;
}

static const int32_t ends[2] = {3, 5};
static const int32_t banned[2] = {0, 1};

/* Requests of random lengths and options; many begin with the same tokens. */
static void draw_request(asked *a, uint64_t *random)
{
    memset(a, 0, sizeof *a);
    const size_t length = 1 + test_random(random) % 100, same = test_random(random) % 90;
    for (size_t i = 0; i < length; i++)
        a->prompt[i] =
            i < same ? 2 + (int32_t)(i * i % 27) : (int32_t)(test_random(random) % VOCAB);
    a->input = (weft_search_input){a->prompt, length, 1 + (int64_t)(test_random(random) % 40),
                                   test_random(random)};
    a->options.greedy = test_random(random) % 3 == 0;
    a->options.seed = test_random(random);
    a->options.ends = ends;
    a->options.n_ends = test_random(random) % 3;
    a->options.min_len = (int64_t)(test_random(random) % 3);
    a->options.temperature = test_random(random) % 2 ? 0.8 : 0;
    a->options.top_k = test_random(random) % 2 ? 7 : 0;
    a->options.top_p = test_random(random) % 2 ? 0.9 : 0;
    a->options.min_p = test_random(random) % 2 ? 0.02 : 0;
    a->options.repetition_penalty = test_random(random) % 2 ? 1.3 : 0;
    a->options.no_repeat_ngram = test_random(random) % 4 ? 0 : 3;
    a->options.banned = banned;
    a->options.n_banned = test_random(random) % 3;
}

static weft_status add(weft_batcher *b, asked *a, weft_error *error)
{
    const weft_batcher_request request = {.prefix = a->input.prefix,
                                          .prefix_len = a->input.prefix_len,
                                          .max_len = a->input.max_len,
                                          .key = a->input.key,
                                          .options = &a->options,
                                          .take = take,
                                          .context = a};
    return weft_batcher_add(b, &request, &a->id, error);
}

/* Compares an answer with that of the searches, and all log probabilities with those of a decoder
 * that reads the tokens one by one. */
static void check_alone(const subject *s, weft_dtype cache, const asked *a)
{
    const weft_decoder_options o = {.max_len = MAX_LEN, .cache = cache, .session.threads = 1};
    weft_decoder *d = weft_decoder_new(&s->config, s->params, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    const weft_search_model model = weft_decoder_search_model(d);
    weft_error error = WEFT_NO_ERROR;
    weft_decoder_start(d, NULL, NULL, 1, NULL);
    const weft_sampling_options *p = &a->options;
    const weft_search_options options = {.banned = p->banned,
                                         .n_banned = p->n_banned,
                                         .min_len = p->min_len,
                                         .no_repeat_ngram = p->no_repeat_ngram,
                                         .repetition_penalty = p->repetition_penalty,
                                         .temperature = p->temperature,
                                         .top_k = p->top_k,
                                         .top_p = p->top_p,
                                         .min_p = p->min_p,
                                         .seed = p->seed,
                                         .ends = p->ends,
                                         .n_ends = p->n_ends};
    weft_search_result *r = (p->greedy ? weft_search_greedy : weft_search_sample)(
        &model, &a->input, 1, &options, &error);
    if (!r) CU_FAIL_FATAL(error.message);
    const weft_hypothesis *h = &r->hypotheses[0];
    const size_t n =
        a->stop_after && (size_t)a->stop_after < h->length ? (size_t)a->stop_after : h->length;
    double sum = 0;
    CU_ASSERT_EQUAL(n, a->n);
    CU_ASSERT(n == a->n && !memcmp(h->tokens, a->tokens, n * sizeof *a->tokens));
    for (size_t i = 0; i < a->events; i++) sum += a->log_probs[i];
    if (n == h->length && !a->stop_after) {
        EXPECT_SAME_BITS(WEFT_F64, &sum, &h->log_prob, 1);
        CU_ASSERT_EQUAL(h->ended, a->end == WEFT_BATCHER_ENDED);
    }
    weft_search_result_free(r);
    weft_decoder_start(d, NULL, NULL, 1, NULL);
    size_t wrong = 0;
    for (size_t i = 0; i < a->input.prefix_len + a->events - 1; i++) {
        const size_t at = i + 1 - a->input.prefix_len;
        const int32_t token =
            i < a->input.prefix_len ? a->prompt[i] : a->tokens[i - a->input.prefix_len];
        weft_tensor t;
        CU_ASSERT_EQUAL(weft_decoder_step(d, &token, NULL, NULL), WEFT_OK);
        if (i + 1 < a->input.prefix_len || !weft_decoder_log_probs(d, &t)) continue;
        wrong += memcmp(t.data, a->rows[at], sizeof a->rows[0]) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    weft_decoder_free(d);
}

/* ---- Requests that come and go ---- */

typedef struct batch_case {
    const char *model, *texts[16];
    weft_dtype cache;
    size_t prefix_bytes;
    int threads;
    bool quantized;
} batch_case;

static void run_case(const batch_case *c, uint64_t seed)
{
    static asked all[REQUESTS];
    size_t n_texts = 0, added = 0, over = 0;
    subject s;
    weft_error error = WEFT_NO_ERROR;
    while (n_texts < 16 && c->texts[n_texts]) n_texts++;
    if (!make_subject(&s, c->model, c->texts, n_texts) || (c->quantized && !quantize_subject(&s)))
        return;
    const weft_batcher_options o = {.slots = 5,
                                    .max_len = MAX_LEN,
                                    .prefix_bytes = c->prefix_bytes,
                                    .cache = c->cache,
                                    .session.threads = c->threads};
    weft_batcher *b = weft_batcher_new(&s.config, s.params, &o, &error);
    if (!b) CU_FAIL_FATAL(error.message);
    for (size_t i = 0; i < REQUESTS; i++) draw_request(&all[i], &seed);
    all[2].stop_after = 2;
    while (over < REQUESTS) {
        while (added < REQUESTS && test_random(&seed) % 3 == 0)
            CU_ASSERT_EQUAL_FATAL(add(b, &all[added++], NULL), WEFT_OK);
        CU_ASSERT_EQUAL_FATAL(weft_batcher_step(b, &error), WEFT_OK);
        over = 0;
        for (size_t i = 0; i < added; i++) over += all[i].over;
        const weft_batcher_info info = weft_batcher_info_of(b);
        CU_ASSERT_EQUAL(info.live + info.waiting, added - over);
        CU_ASSERT(info.live <= 5 && info.prefix_bytes <= c->prefix_bytes);
    }
    const weft_batcher_info info = weft_batcher_info_of(b);
    size_t prompts = 0;
    for (size_t i = 0; i < REQUESTS; i++) prompts += all[i].input.prefix_len;
    CU_ASSERT_EQUAL(info.read_tokens + info.reused_tokens, prompts);
    CU_ASSERT(info.reused_tokens > 0 && (info.prefixes > 0) == (c->prefix_bytes > 0));
    weft_batcher_free(b);
    for (size_t i = 0; i < REQUESTS; i++) check_alone(&s, c->cache, &all[i]);
    weft_params_free(s.params);
}

#define SIZES "vocab=29", "d_ff=40", "max_positions=160"
static void test_requests(void)
{
    static const batch_case cases[] = {
        {.model = "gpt", .texts = {SIZES, "d_model=32", "heads=4"}, .threads = 1},
        {.model = "gpt", .texts = {SIZES, "d_model=64", "heads=2"}, .prefix_bytes = 1 << 20},
        {.model = "gpt",
         .texts = {SIZES, "d_model=32", "heads=4", "positions=sinusoidal", "tied=0"},
         .prefix_bytes = 50000,
         .threads = 2},
        {.model = "llama",
         .texts = {SIZES, "d_model=64", "heads=4", "kv_heads=2"},
         .prefix_bytes = 1 << 20,
         .threads = 2},
        {.model = "llama",
         .texts = {SIZES, "d_model=64", "heads=4", "kv_heads=1", "window=20"},
         .cache = WEFT_U8,
         .prefix_bytes = 1 << 20,
         .threads = 1},
        {.model = "llama",
         .texts = {SIZES, "d_model=64", "heads=2", "kv_heads=1"},
         .cache = WEFT_BF16,
         .threads = 1},
        {.model = "llama",
         .texts = {SIZES, "d_model=64", "heads=4", "kv_heads=2", "head_dim=24", "norm_qk=1",
                   "norm=both", "window=20", "layers=3", "global_every=2", "local_rotary_base=100",
                   "gamma_plus_one=1"},
         .prefix_bytes = 1 << 20,
         .threads = 2},
        {.model = "llama",
         .texts = {SIZES, "d_model=64", "heads=4", "kv_heads=2", "score_cap=3", "logit_cap=5"},
         .prefix_bytes = 1 << 20,
         .threads = 1},
        {.model = "llama",
         .texts = {"vocab=29", "d_ff=64", "d_model=64", "heads=2", "kv_heads=1"},
         .prefix_bytes = 1 << 20,
         .threads = 2,
         .quantized = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 1; seed <= (TEST_SANITIZED ? 1 : 3); seed++)
            run_case(&cases[i], seed + 100 * i);
}

/* ---- Small cases ---- */

static const char *const small[] = {SIZES, "d_model=32", "heads=4"};

static weft_batcher *small_batcher(subject *s, int64_t slots, size_t prefix_bytes)
{
    const weft_batcher_options o = {
        .slots = slots, .max_len = MAX_LEN, .prefix_bytes = prefix_bytes, .session.threads = 1};
    weft_batcher *b = weft_batcher_new(&s->config, s->params, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    return b;
}

/* Requests of exactly max_len tokens, which no token ends. */
static void set_request(asked *a, size_t prompt, int64_t max_len, uint64_t key)
{
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < prompt; i++) a->prompt[i] = (int32_t)((i * 7 + key) % VOCAB);
    a->input = (weft_search_input){a->prompt, prompt, max_len, key};
}

static void test_cancel(void)
{
    static asked a[4];
    subject s;
    weft_error error = WEFT_NO_ERROR;
    if (!make_subject(&s, "llama", small, 5)) return;
    weft_batcher *b = small_batcher(&s, 2, 0);
    for (size_t i = 0; i < 4; i++) {
        set_request(&a[i], 10 + 30 * i, 20, i);
        CU_ASSERT_EQUAL(add(b, &a[i], NULL), WEFT_OK);
        CU_ASSERT_EQUAL(a[i].id, i + 1);
    }
    for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(weft_batcher_step(b, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_batcher_info_of(b).live, 2);
    CU_ASSERT_EQUAL(weft_batcher_cancel(b, 4, NULL), WEFT_OK); /* waits, the last of the queue */
    CU_ASSERT_EQUAL(weft_batcher_cancel(b, 4, &error), WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(error.message, "unknown request 4: it has ended, or was never added"));
    CU_ASSERT_EQUAL(weft_batcher_cancel(b, 1, NULL), WEFT_OK); /* has a slot */
    CU_ASSERT_EQUAL(weft_batcher_info_of(b).live, 1);
    set_request(&a[3], 5, 4, 9);
    CU_ASSERT_EQUAL(add(b, &a[3], NULL), WEFT_OK);
    CU_ASSERT_EQUAL(a[3].id, 5);
    for (int i = 0; i < 100; i++) CU_ASSERT_EQUAL(weft_batcher_step(b, NULL), WEFT_OK);
    CU_ASSERT_FALSE(a[0].over);
    CU_ASSERT(a[0].n < 20);
    for (int i = 1; i < 4; i++) {
        CU_ASSERT_EQUAL(a[i].end, WEFT_BATCHER_LENGTH);
        check_alone(&s, WEFT_F32, &a[i]);
    }
    weft_batcher_free(b);
    weft_params_free(s.params);
}

/* A request whose tokens have NaN embeddings fails alone, and leaves nothing to its successors. */
static void test_nan(void)
{
    static const char *const texts[] = {SIZES, "d_model=32", "heads=4", "tied=0"};
    static const int32_t poison = 28;
    static asked a[4];
    subject s;
    weft_tensor t;
    if (!make_subject(&s, "gpt", texts, 6)) return;
    CU_ASSERT_TRUE_FATAL(weft_params_find(s.params, "embedding", &t));
    weft_batcher *b = small_batcher(&s, 2, 1 << 20);
    ((float *)t.data)[poison * t.stride[0]] = INFINITY;
    for (size_t i = 0; i < 4; i++) {
        /* What the last leaves reaches further than the others. */
        set_request(&a[i], i == 3 ? 80 : 40, 12, i);
        for (size_t k = 0; k < 80; k++) a[i].prompt[k] %= poison;
        a[i].options.banned = &poison;
        a[i].options.n_banned = 1;
    }
    a[3].prompt[60] = poison;
    for (size_t i = 0; i < 4; i++) CU_ASSERT_EQUAL(add(b, &a[i], NULL), WEFT_OK);
    for (int i = 0; i < 60; i++) CU_ASSERT_EQUAL(weft_batcher_step(b, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(a[3].end, WEFT_BATCHER_FAILED);
    CU_ASSERT_EQUAL(a[3].status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(a[3].message, "nan"));
    for (size_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(a[i].end, WEFT_BATCHER_LENGTH);
        CU_ASSERT_EQUAL(a[i].status, WEFT_OK);
        check_alone(&s, WEFT_F32, &a[i]);
    }
    weft_batcher_free(b);
    weft_params_free(s.params);
}

static void test_refusals(void)
{
    static asked a;
    static const struct {
        const char *model, *message;
    } models[] = {{"transformer", "reads a source"},
                  {"bert", "not autoregressive"},
                  {"lstm", "not keys and values by position"}};
    subject s;
    weft_error error = WEFT_NO_ERROR;
    for (size_t i = 0; i < 3; i++) {
        if (!make_subject(&s, models[i].model, (const char *const[]){"vocab=29"}, 1)) return;
        CU_ASSERT_PTR_NULL(weft_batcher_new(&s.config, s.params, NULL, &error));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, models[i].message));
        weft_params_free(s.params);
    }
    if (!make_subject(&s, "gpt", small, 5)) return;
    const weft_batcher_options bad = {.slots = -1};
    CU_ASSERT_PTR_NULL(weft_batcher_new(&s.config, s.params, &bad, &error));
    weft_batcher *b = small_batcher(&s, 2, 0);
    set_request(&a, 4, 3, 0);
    a.prompt[2] = VOCAB;
    CU_ASSERT_EQUAL(add(b, &a, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "outside the vocabulary"));
    set_request(&a, 100, 62, 0);
    CU_ASSERT_EQUAL(add(b, &a, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "160 positions"));
    a.input.max_len = 61;
    a.options.top_p = 2;
    CU_ASSERT_EQUAL(add(b, &a, &error), WEFT_BAD_ARGUMENT);
    a.options = (weft_sampling_options){.n_ends = 2};
    CU_ASSERT_EQUAL(add(b, &a, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_batcher_add(b, NULL, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_batcher_info_of(b).waiting, 0);
    CU_ASSERT_EQUAL(weft_batcher_step(b, &error), WEFT_OK);
    weft_batcher_free(b);
    weft_params_free(s.params);
}

/* `take` must not call the batcher. */
static weft_batcher *calling;
static bool take_and_call(void *context, const weft_batcher_event *event)
{
    weft_error error = WEFT_NO_ERROR;
    (void)context;
    CU_ASSERT_EQUAL(weft_batcher_cancel(calling, event->request, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_batcher_step(calling, &error), WEFT_BAD_ARGUMENT);
    return false;
}

static void test_calls_inside(void)
{
    subject s;
    const int32_t prompt = 4;
    const weft_batcher_request request = {
        .prefix = &prompt, .prefix_len = 1, .max_len = 5, .take = take_and_call};
    if (!make_subject(&s, "gpt", small, 5)) return;
    calling = small_batcher(&s, 2, 0);
    CU_ASSERT_EQUAL(weft_batcher_add(calling, &request, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_batcher_step(calling, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_batcher_info_of(calling).live, 0);
    weft_batcher_free(calling);
    weft_params_free(s.params);
}

/* ---- Out of memory ---- */

static subject of_memory;

/* A batcher and two requests from beginning to end; the first failure ends it. */
static weft_status run_two(weft_error *error)
{
    static asked a[2];
    const weft_batcher_options o = {.slots = 2, .max_len = MAX_LEN, .session.threads = 1};
    weft_batcher *b = weft_batcher_new(&of_memory.config, of_memory.params, &o, error);
    weft_status status = b ? WEFT_OK : error->status;
    for (size_t i = 0; status == WEFT_OK && i < 2; i++) {
        set_request(&a[i], 40 + 10 * i, 3, i);
        status = add(b, &a[i], error);
    }
    while (status == WEFT_OK && !(a[0].over && a[1].over)) status = weft_batcher_step(b, error);
    weft_batcher_free(b);
    return status;
}

/* Steps that fail are repeated: the answers are the same, also with the prefix cache. */
static void test_memory(void)
{
    static asked a[3];
    if (!make_subject(&of_memory, "gpt", small, 5)) return;
    bool pending = false;
    for (long n = 1; !pending; n += 1 + n / 40) {
        weft_error error = WEFT_NO_ERROR;
        test_fail_allocation(n);
        const weft_status status = run_two(&error);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        /* Tables that only save time may be left out. */
        CU_ASSERT(status == WEFT_NO_MEMORY || (status == WEFT_OK && (pending || n < 200)));
        CU_ASSERT_EQUAL(status, error.status);
    }
    size_t failed = 0;
    for (long n = 1; n < 400; n += 7) {
        weft_batcher *b = small_batcher(&of_memory, 2, 1 << 20);
        for (size_t i = 0; i < 3; i++) {
            set_request(&a[i], 40 + 10 * i, 6, i);
            CU_ASSERT_EQUAL(add(b, &a[i], NULL), WEFT_OK);
        }
        test_fail_allocation(n);
        for (int i = 0; i < 40 && !(a[0].over && a[1].over && a[2].over); i++)
            failed += weft_batcher_step(b, NULL) != WEFT_OK;
        test_fail_allocation(0);
        for (size_t i = 0; i < 3 && n % 5 == 1; i++) check_alone(&of_memory, WEFT_F32, &a[i]);
        for (size_t i = 0; i < 3; i++) CU_ASSERT_EQUAL(a[i].end, WEFT_BATCHER_LENGTH);
        weft_batcher_free(b);
    }
    CU_ASSERT(failed > 5);
    weft_params_free(of_memory.params);
}

void batch_tests(void)
{
    CU_pSuite suite = CU_add_suite("batch", NULL, NULL);
    CU_add_test(suite, "requests that come and go have the bits of requests alone", test_requests);
    CU_add_test(suite, "cancelling", test_cancel);
    CU_add_test(suite, "a request with NaN fails alone", test_nan);
    CU_add_test(suite, "what is refused", test_refusals);
    CU_add_test(suite, "calls of the batcher from take", test_calls_inside);
    CU_add_test(suite, "out of memory", test_memory);
}
