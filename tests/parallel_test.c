/* Training on several processes, which are threads here: the same bits on any number of them, the
 * optimiser's states in pieces, failures that all of them notice. */
#include "tests.h"
#include "token_batches.h"

#include <weft/parallel.h>
#include <weft/sharding.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 8 };

/* ---- Ranks as threads ---- */

typedef struct rank {
    weft_communicator *communicator;
    void (*run)(struct rank *rank);
    void *shared;
    weft_error error;
} rank;

static void *run_rank(void *data)
{
    rank *r = data;
    r->run(r);
    weft_communicator_free(r->communicator);
    return NULL;
}

/* Runs a function on `size` ranks, which have the errors that it leaves. */
static void run_ranks(int size, void (*run)(rank *rank), void *shared, rank *ranks)
{
    pthread_t threads[MOST_RANKS];
    weft_communicator *all[MOST_RANKS];
    CU_ASSERT_EQUAL_FATAL(weft_communicator_threads(size, 60, all, NULL), WEFT_OK);
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank){.communicator = all[r], .run = run, .shared = shared};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
}

/* ---- Trees of sums ---- */

/* Whatever the ranges of the ranks, their nodes join to the whole tree. */
static void test_tree(void)
{
    for (uint32_t n = 1; n <= 33; n++)
        for (int size = 1; size <= (int)n && size <= 9; size++) {
            weft_sum_node stack[128], nodes[WEFT_SUM_NODES];
            size_t top = 0;
            uint32_t at = 0;
            for (int r = 0; r < size; r++) {
                const weft_sum_node batches = weft_rank_batches(n, r, size);
                CU_ASSERT_TRUE(batches.first == at && batches.end > at);
                const size_t count = weft_sum_nodes(n, batches, nodes);
                for (size_t k = 0; k < count; k++) {
                    CU_ASSERT_TRUE(nodes[k].first == at && nodes[k].end > at);
                    at = nodes[k].end;
                    stack[top++] = nodes[k];
                    for (; top > 1 && weft_sum_joins(n, stack[top - 2], stack[top - 1]); top--)
                        stack[top - 2].end = stack[top - 1].end;
                }
                CU_ASSERT_EQUAL(at, batches.end);
            }
            CU_ASSERT_TRUE(top == 1 && stack[0].first == 0 && stack[0].end == n);
        }
    weft_sum_node nodes[WEFT_SUM_NODES];
    CU_ASSERT_EQUAL(weft_sum_nodes(8, (weft_sum_node){2, 5}, nodes), 2);
    CU_ASSERT_TRUE(nodes[0].first == 2 && nodes[0].end == 4 && nodes[1].end == 5);
    CU_ASSERT_EQUAL(weft_sum_nodes(8, (weft_sum_node){4, 8}, nodes), 1);
}

/* ---- Pieces ---- */

static void test_pieces(void)
{
    weft_graph *g = weft_graph_new();
    const int64_t sizes[] = {70000, 10, 0, 40000, 16384};
    weft_value params[5];
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        params[i] = weft_state(g, name, WEFT_F32, WEFT_SHAPE(sizes[i]), WEFT_INIT_ZEROS);
    }
    for (int size = 1; size <= 8; size++)
        for (int bytes = 1; bytes <= 300000; bytes += 99999) {
            int64_t covered[5] = {0}, owned[8] = {0};
            for (int r = 0; r < size; r++) {
                weft_shards *s = weft_shards_new(g, params, 5, NULL, (weft_ranks){0, r, size},
                                                 (size_t)bytes, NULL);
                CU_ASSERT_PTR_NOT_NULL_FATAL(s);
                for (int i = 0; i < 5; i++) {
                    int64_t first, end;
                    CU_ASSERT_TRUE(
                        weft_shards_piece(s, weft_name_of(g, params[i]), r, &first, &end));
                    CU_ASSERT_TRUE(first <= end && (first == end || first == covered[i]));
                    CU_ASSERT_TRUE(first == end || first % WEFT_TILE == 0);
                    covered[i] += end - first;
                    owned[r] += end - first;
                }
                CU_ASSERT_FALSE(weft_shards_piece(s, "other", r, &covered[0], &covered[0]));
                weft_shards_free(s);
            }
            for (int i = 0; i < 5; i++) CU_ASSERT_EQUAL(covered[i], sizes[i]);
            /* One bucket: no rank has more than its share and a tile. */
            for (int r = 0; bytes > 250000 && r < size; r++)
                CU_ASSERT_TRUE(owned[r] <= 126394 / size + 2 * WEFT_TILE);
        }
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_PTR_NULL(weft_shards_new(g, params, 5, NULL, (weft_ranks){0, 2, 2}, 0, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    size_t length;
    int64_t first, end;
    CU_ASSERT_TRUE(weft_piece_parse("opt.m.a[3][16384:20000]", &length, &first, &end));
    CU_ASSERT_TRUE(length == 10 && first == 16384 && end == 20000);
    CU_ASSERT_FALSE(weft_piece_parse("opt.m.a[3]", &length, &first, &end));
    CU_ASSERT_FALSE(weft_piece_parse("opt.m.a[3:2]", &length, &first, &end));
    CU_ASSERT_FALSE(weft_piece_parse("opt.m.a[3:9]x", &length, &first, &end));
    weft_graph_free(g);
}

/* ---- Training ---- */

typedef struct job {
    weft_trainer_options o;
    int steps, threads;
    uint64_t hash[MOST_RANKS]; /* of the parameters, by rank */
    double loss[MOST_RANKS], norm[MOST_RANKS], metric[MOST_RANKS];
    size_t state_bytes[MOST_RANKS]; /* of moments and averages */
    weft_corpus *corpus;
    weft_batches *batches[MOST_RANKS]; /* made before, since only one thread may use CUnit */
} job;

static uint64_t hash_store(const weft_params *params, bool averaged, size_t *state_bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        const char *name = weft_params_name(params, i);
        weft_tensor t;
        weft_params_get(params, name, &t);
        const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        if (weft_is_training_state(name) && !averaged) {
            if (strncmp(name, "sum", 3) != 0) *state_bytes += bytes;
            continue;
        }
        for (size_t k = 0; k < bytes; k++)
            hash = (hash ^ ((unsigned char *)t.data)[k]) * 0x100000001b3u;
    }
    return hash;
}

static void train(rank *r)
{
    job *j = r->shared;
    const int me = r->communicator ? r->communicator->rank : 0;
    weft_trainer_options o = j->o;
    o.communicator = r->communicator;
    o.threads = j->threads;
    weft_params *params = weft_params_new();
    const weft_batch_source source = weft_batches_source(j->batches[me]);
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    weft_step_report report = {0};
    for (int i = 0; t && i < j->steps && r->error.status == WEFT_OK; i++)
        if (weft_trainer_step(t, 0, &report) != WEFT_OK) r->error = *weft_trainer_error(t);
    if (t && r->error.status == WEFT_OK) {
        j->loss[me] = report.loss;
        j->norm[me] = report.norm;
        j->hash[me] = hash_store(params, false, &j->state_bytes[me]);
        if (weft_trainer_evaluate(t, &source, 0, &j->metric[me], NULL) != WEFT_OK)
            r->error = *weft_trainer_error(t);
        const weft_params *model = weft_trainer_model(t);
        if (model) j->hash[me] ^= hash_store(model, true, NULL) << 1;
    }
    weft_trainer_free(t);
    weft_params_free(params);
}

/* Some parameters have several tiles, so that ranks own pieces of them. */
static const char *const sizes[] = {"vocab=2000", "d_model=24",       "heads=2",
                                    "d_ff=40",    "encoder_layers=1", "decoder_layers=1"};

static job make_job(weft_optimizer optimizer, uint32_t accumulate)
{
    const weft_batch_options rows = batch_options(WEFT_BATCH_PAIRS, 64);
    job j = {.o = {.builder = test_builder("transformer", sizes, 6),
                   .optimizer = optimizer,
                   .schedule = {.peak = 0.01},
                   .accumulate = accumulate,
                   .ema = 0.9,
                   .seed = 7,
                   .bucket_bytes = 100000},
             .steps = 3,
             .threads = 1,
             .corpus = make_corpus(60, 14, true, 5)};
    for (int r = 0; r < MOST_RANKS; r++) {
        j.batches[r] = weft_batches_new(j.corpus, &rows, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(j.batches[r]);
    }
    return j;
}

static void free_job(job *j)
{
    for (int r = 0; r < MOST_RANKS; r++) weft_batches_free(j->batches[r]);
    weft_corpus_free(j->corpus);
}

static void same_bits(weft_optimizer optimizer, uint32_t accumulate)
{
    job one = make_job(optimizer, accumulate);
    rank alone = {.shared = &one}, ranks[MOST_RANKS];
    train(&alone);
    CU_ASSERT_EQUAL_FATAL(alone.error.status, WEFT_OK);
    for (int size = 1; size <= MOST_RANKS && size <= (int)accumulate; size += size < 4 ? 1 : 4) {
        job j = make_job(optimizer, accumulate);
        j.threads = 1 + size % 2;
        run_ranks(size, train, &j, ranks);
        size_t states = 0;
        for (int r = 0; r < size; r++) {
            if (ranks[r].error.status != WEFT_OK)
                printf("\n    rank %d: %s: %s\n", r, ranks[r].error.where, ranks[r].error.message);
            CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_OK);
            CU_ASSERT_EQUAL(j.hash[r], one.hash[0]);
            CU_ASSERT_TRUE(j.loss[r] == one.loss[0] && j.norm[r] == one.norm[0] &&
                           j.metric[r] == one.metric[0]);
            states += j.state_bytes[r];
        }
        /* Together they have the states once, but for the counter of steps. */
        CU_ASSERT_TRUE(states <= one.state_bytes[0] + (size_t)size * sizeof(float));
        free_job(&j);
    }
    free_job(&one);
}

static void test_same_bits(void)
{
    weft_optimizer adam = WEFT_ADAMW_DEFAULT;
    weft_optimizer momentum = {.kind = WEFT_SGD, .sgd = {.momentum = 0.9, .nesterov = true}};
    static weft_param_group frozen = {.names = "*.bias", .frozen = true};
    same_bits(adam, 8);
    same_bits(adam, 3);
    momentum.groups = &frozen;
    momentum.n_groups = 1;
    same_bits(momentum, 5);
    same_bits((weft_optimizer){.max_norm = 0.5}, 6);
}

static void test_too_many(void)
{
    job j = make_job((weft_optimizer){.max_norm = 1}, 2);
    rank ranks[MOST_RANKS];
    run_ranks(3, train, &j, ranks);
    for (int r = 0; r < 3; r++) {
        CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(ranks[r].error.message, "not 3"));
    }
    free_job(&j);
}

void parallel_tests(void)
{
    CU_pSuite suite = CU_add_suite("parallel", NULL, NULL);
    CU_add_test(suite, "sums in the order of a tree", test_tree);
    CU_add_test(suite, "pieces of parameters", test_pieces);
    CU_add_test(suite, "the same bits on 1 to 8 ranks", test_same_bits);
    CU_add_test(suite, "more ranks than batches", test_too_many);
}
