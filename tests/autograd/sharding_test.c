/* Exchanges of a graph, and what training on several processes is made of: the order of sums, the
 * pieces of parameters, the norm of tensors in pieces. */
#include "ranks.h"
#include "tests.h"

#include "sharding.h"

#include <stdlib.h>
#include <string.h>

/* ---- Exchanges in a graph ---- */

/* Every rank sends its number to every other; a profile counts the waiting as such. */
static void run_exchange(rank *r)
{
    const weft_communicator *c = r->communicator;
    const weft_ranks ranks = {0, c->rank, c->size};
    double *sum = (double *)r->shared + c->rank, own = c->rank + 1;
    int64_t ones[MAX_RANKS];
    for (int k = 0; k < c->size; k++) ones[k] = 1;
    const weft_exchange_sizes sizes = {.receive = ones};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR);
    weft_flight f = weft_exchange_begin(g, ranks, WEFT_ALL_GATHER, &sizes, &x, 1);
    weft_value y = weft_sum(g, weft_exchange_end(g, f), WEFT_ALL_AXES, false);
    weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.verify = true}, &r->error);
    const weft_session_options o = {.communicators = &r->communicator, .n_communicators = 1};
    weft_session *s = plan ? weft_session_new(plan, NULL, &o, &r->error) : NULL;
    weft_profile_table *table = NULL;
    if (s && weft_session_profile(s, true, NULL, &r->error) == WEFT_OK &&
        weft_session_feed(s, x, &own, sizeof own, &r->error) == WEFT_OK &&
        weft_session_run(s, &r->error) == WEFT_OK &&
        weft_session_fetch(s, y, sum, sizeof *sum, &r->error) == WEFT_OK) {
        const weft_profile *p = weft_profile_of(s);
        const weft_profile_totals t = weft_profile_totals_of(p);
        const double parts = t.compute_seconds + t.waiting_seconds + t.start_seconds;
        /* Times are whole nanoseconds, so only the sum of the parts in f64 rounds. */
        if (fabs(parts - t.thread_seconds) > ROUNDING_F64 * t.thread_seconds) *sum = -1;
        size_t n;
        table = weft_profile_table_new(p, WEFT_PROFILE_BY_OP, 0, NULL, &r->error);
        const weft_profile_row *rows = weft_profile_table_rows(table, &n);
        for (size_t i = 0; i < n; i++)
            if (!strcmp(rows[i].op, "exchange_wait") && !(rows[i].waiting_seconds > 0)) *sum = -2;
    }
    weft_profile_table_free(table);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_exchange(void)
{
    rank ranks[MAX_RANKS];
    for (int size = 1; size <= 4; size++) {
        double sums[MAX_RANKS] = {0};
        run_ranks(size, run_exchange, sums, ranks);
        expect_good(ranks, size);
        for (int r = 0; r < size; r++) CU_ASSERT_EQUAL(sums[r], size * (size + 1) / 2);
    }
}

/* What cannot be exchanged, and a session without communicators. */
static void test_refused(void)
{
    const weft_ranks ranks = {0, 0, 2};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_error error;
    const int64_t counts[] = {1, 1}, negative[] = {-1, 1};
    const weft_exchange_sizes good = {.send = counts, .receive = counts};
    weft_flight f = weft_exchange_begin(g, ranks, WEFT_ALL_TO_ALL, &good, &x, 1);
    weft_value y = weft_exchange_end(g, f);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, NULL);
    weft_session *s = weft_session_new(plan, NULL, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, x, (float[]){1, 2}, 8, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no communicator 0"));
    weft_session_free(s);
    weft_communicator *self = weft_communicator_new_self();
    s = weft_session_new(
        plan, NULL, &(weft_session_options){.communicators = &self, .n_communicators = 1}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, x, (float[]){1, 2}, 8, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "has size 1, the graph expects 2"));
    weft_session_free(s);
    weft_communicator_free(self);
    weft_plan_free(plan);
    const weft_exchange_sizes bad = {.send = negative};
    weft_exchange_begin(g, ranks, WEFT_ALL_TO_ALL, &bad, &x, 1);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_TOO_LARGE);
    weft_graph_free(g);
    g = weft_graph_new();
    weft_exchange_begin(g, (weft_ranks){0, 2, 2}, WEFT_ALL_TO_ALL, &good, &x, 1);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
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
                const weft_sum_node batches = weft__rank_batches(n, r, size);
                CU_ASSERT_TRUE(batches.first == at && batches.end > at);
                const size_t count = weft__sum_nodes(n, batches, nodes);
                for (size_t k = 0; k < count; k++) {
                    CU_ASSERT_TRUE(nodes[k].first == at && nodes[k].end > at);
                    at = nodes[k].end;
                    stack[top++] = nodes[k];
                    for (; top > 1 && weft__sum_joins(n, stack[top - 2], stack[top - 1]); top--)
                        stack[top - 2].end = stack[top - 1].end;
                }
                CU_ASSERT_EQUAL(at, batches.end);
            }
            CU_ASSERT_TRUE(top == 1 && stack[0].first == 0 && stack[0].end == n);
        }
    weft_sum_node nodes[WEFT_SUM_NODES];
    CU_ASSERT_EQUAL(weft__sum_nodes(8, (weft_sum_node){2, 5}, nodes), 2);
    CU_ASSERT_TRUE(nodes[0].first == 2 && nodes[0].end == 4 && nodes[1].end == 5);
    CU_ASSERT_EQUAL(weft__sum_nodes(8, (weft_sum_node){4, 8}, nodes), 1);
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
                weft_shards *s =
                    weft__shards_new(g, params, 5, (weft_ranks){0, r, size},
                                     &(weft_shards_options){.bucket_bytes = (size_t)bytes}, NULL);
                CU_ASSERT_PTR_NOT_NULL_FATAL(s);
                for (int i = 0; i < 5; i++) {
                    int64_t first, end;
                    CU_ASSERT_TRUE(
                        weft__shards_piece(s, weft_name_of(g, params[i]), r, &first, &end));
                    CU_ASSERT_TRUE(first <= end && (first == end || first == covered[i]));
                    CU_ASSERT_TRUE(first == end || first % WEFT_TILE == 0);
                    covered[i] += end - first;
                    owned[r] += end - first;
                }
                CU_ASSERT_FALSE(weft__shards_piece(s, "other", r, &covered[0], &covered[0]));
                weft__shards_free(s);
            }
            for (int i = 0; i < 5; i++) CU_ASSERT_EQUAL(covered[i], sizes[i]);
            /* One bucket: no rank has more than its share and a tile. */
            for (int r = 0; bytes > 250000 && r < size; r++)
                CU_ASSERT_TRUE(owned[r] <= 126394 / size + 2 * WEFT_TILE);
        }
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_PTR_NULL(weft__shards_new(g, params, 5, (weft_ranks){0, 2, 2}, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

/* A parameter that is called like another state could not be distinguished from it. */
static void test_refused_names(void)
{
    static const char *const names[] = {"opt.m.w", "ema.w", "sum.w", "w[0:3]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_error error = WEFT_NO_ERROR;
        weft_graph *g = weft_graph_new();
        weft_value w = weft_param(g, names[i], WEFT_F32, WEFT_SHAPE(8), WEFT_INIT_ZEROS);
        const weft_ranks one = {0, 0, 1};
        CU_ASSERT_PTR_NULL(weft__shards_new(g, &w, 1, one, NULL, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
        CU_ASSERT_STRING_EQUAL(error.where, names[i]);
        weft_graph_free(g);
    }
}

/* The state of a part [rows, columns] of a [6, 10] whole, from its own shards. */
static weft_piece part_piece(weft_part part, int64_t rows, int64_t columns)
{
    weft_graph *g = weft_graph_new();
    weft_value w =
        weft_param_part(g, "w", WEFT_F32, WEFT_SHAPE(rows, columns), WEFT_INIT_ZEROS, part);
    weft_shards *s = weft__shards_new(g, &w, 1, (weft_ranks){0, 0, 1}, NULL, NULL);
    const weft_state_key key = weft__shards_key(s, "w"), other = weft__shards_key(s, "other");
    CU_ASSERT_TRUE(key.is_piece && key.piece.first == 0 && key.piece.end == rows * columns);
    CU_ASSERT_TRUE(!other.is_piece && !strcmp(other.param, "other"));
    weft__shards_free(s);
    weft_graph_free(g);
    return key.piece;
}

/* Copies between all pieces of parts by rows, by columns, and wholes. */
static void test_piece_copies(void)
{
    enum { ROWS = 6, COLUMNS = 10, N = ROWS * COLUMNS };
    const weft_piece parts[] = {part_piece((weft_part){0, 0, 0}, ROWS, COLUMNS),
                                part_piece((weft_part){0, 2, ROWS}, 3, COLUMNS),
                                part_piece((weft_part){1, 3, COLUMNS}, ROWS, 4),
                                part_piece((weft_part){1, 0, COLUMNS}, ROWS, 5)};
    for (size_t k = 0; k < 16 * N; k++) {
        weft_piece p[2] = {parts[k % 4], parts[k / 4 % 4]};
        int place[2][N], to[N];
        for (int i = 0; i < 2; i++) {
            p[i].first = (int64_t)(k / 16) % (p[i].end / 2);
            p[i].end -= (int64_t)(k / 16) % 7;
            for (int64_t e = p[i].first; e < p[i].end; e++)
                place[i][e - p[i].first] =
                    (int)(e / p[i].length * p[i].stride + p[i].offset + e % p[i].length);
        }
        int64_t common = 0;
        for (int e = 0; e < N; e++) to[e] = -1;
        const int64_t copied = weft__piece_copy(&p[0], to, &p[1], place[1], sizeof *to);
        for (int64_t e = 0; e < p[0].end - p[0].first; e++) {
            bool both = false;
            for (int64_t f = 0; f < p[1].end - p[1].first; f++) both |= place[1][f] == place[0][e];
            common += both;
            CU_ASSERT_EQUAL(to[e], both ? place[0][e] : -1);
        }
        CU_ASSERT_EQUAL(copied, common);
    }
}

/* A parameter in a bucket of its own is cut the same, whatever the other parameters are. */
static void test_alone(void)
{
    const int64_t others[2] = {90000, 20000};
    for (int alone = 0; alone < 2; alone++) {
        const bool list[3] = {false, alone, false};
        int different = 0;
        for (int r = 0; r < 3; r++) {
            int64_t first[2], end[2];
            for (int way = 0; way < 2; way++) {
                weft_graph *g = weft_graph_new();
                weft_value p[3];
                p[0] = weft_param(g, "a", WEFT_F32, WEFT_SHAPE(others[way]), WEFT_INIT_ZEROS);
                p[1] = weft_param(g, "tied", WEFT_F32, WEFT_SHAPE(70000), WEFT_INIT_ZEROS);
                p[2] = weft_param(g, "b", WEFT_F32, WEFT_SHAPE(77), WEFT_INIT_ZEROS);
                weft_shards *s = weft__shards_new(g, p, 3, (weft_ranks){0, r, 3},
                                                  &(weft_shards_options){.alone = list}, NULL);
                CU_ASSERT_TRUE(weft__shards_piece(s, "tied", r, &first[way], &end[way]));
                weft__shards_free(s);
                weft_graph_free(g);
            }
            different += first[0] != first[1] || end[0] != end[1];
        }
        CU_ASSERT_TRUE(alone ? different == 0 : different > 0);
    }
}

/* A step must have the parameters that were cut, and pieces of gradients. */
static void test_other_params(void)
{
    for (int way = 0; way < 3; way++) {
        weft_graph *g = weft_graph_new();
        weft_value params[2], lr = weft_scalar(g, WEFT_F32, 0.1), loss;
        params[0] = weft_param(g, "a", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
        params[1] = weft_param(g, "b", WEFT_F32, WEFT_SHAPE(4), WEFT_INIT_ZEROS);
        loss = weft_add(g, weft_sum(g, params[0], WEFT_ALL_AXES, false),
                        weft_sum(g, params[1], WEFT_ALL_AXES, false));
        weft_shards *s =
            weft__shards_new(g, params, way == 0 ? 1 : 2, (weft_ranks){0, 0, 1}, NULL, NULL);
        const weft_optimizer o = {.shards = s, .max_norm = 1};
        if (way == 2)
            weft_train_update(g, loss, params, 2, lr, &o, NULL);
        else
            weft_apply_gradients(g, &(weft_gradients){params, params, way == 0 ? 2 : 1, loss}, lr,
                                 &o, NULL, NULL);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "shards"));
        weft__shards_free(s);
        weft_graph_free(g);
    }
}

/* ---- A group of one process ---- */

typedef struct reduction {
    weft_reducer *reducer;
    weft_value params[2];
} reduction;

static void reduce(void *context, size_t i, weft_value gradient)
{
    reduction *r = context;
    weft__reducer_add(r->reducer, r->params[i], &gradient);
}

/* Three updates, with or without shards of one process; returns the store. */
static weft_params *train_alone(bool shards)
{
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    reduction r = {.reducer = NULL};
    weft_value grads[2], pieces[2], norm, lr = weft_scalar(g, WEFT_F32, 0.1);
    r.params[0] = weft_param(g, "a", WEFT_F32, WEFT_SHAPE(150, 200), WEFT_INIT_XAVIER);
    r.params[1] = weft_param(g, "b", WEFT_F32, WEFT_SHAPE(200, 3), WEFT_INIT_XAVIER);
    weft_value loss = weft_mean(g, weft_square(g, weft_matmul(g, r.params[0], r.params[1])),
                                WEFT_ALL_AXES, false);
    weft_optimizer o = WEFT_ADAMW_DEFAULT;
    o.max_norm = 1e-3;
    weft_shards *s = shards ? weft__shards_new(g, r.params, 2, (weft_ranks){0, 0, 1},
                                               &(weft_shards_options){.optimizer = &o}, NULL)
                            : NULL;
    const weft_grad_hooks ready = {.ready = reduce, .context = &r};
    if (shards) r.reducer = weft__reducer_new(g, s, 5);
    const weft_value one = weft_scalar(g, WEFT_F32, 1);
    weft_grad_each(g, &(weft_grad_values){&loss, &one, 1, r.params, 2}, grads,
                   shards ? &ready : NULL);
    weft__reducer_finish(r.reducer, r.params, 2, pieces);
    o.shards = s;
    weft_value targets[2];
    targets[0] = weft_apply_gradients(
        g, &(weft_gradients){r.params, shards ? pieces : grads, 2, loss}, lr, &o, &norm, NULL);
    targets[1] = norm;
    weft__reducer_free(r.reducer);
    weft__shards_free(s);
    weft_plan *plan = weft_plan_new(g, targets, 2, &(weft_plan_options){.verify = true}, NULL);
    for (size_t i = 0; i < weft_graph_node_count(g); i++)
        CU_ASSERT_PTR_NULL(strstr(weft_graph_node(g, i).op->name, "exchange"));
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, NULL), WEFT_OK);
    weft_session *session = weft_session_new(plan, store, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(session);
    for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(weft_session_run(session, NULL), WEFT_OK);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_graph_free(g);
    return store;
}

static void test_one_process(void)
{
    static const char *const names[][2] = {{"a", "a"},
                                           {"b", "b"},
                                           {"opt.step", "opt.step"},
                                           {"opt.m.a", "opt.m.a[0:30000]"},
                                           {"opt.v.b", "opt.v.b[0:600]"}};
    weft_params *without = train_alone(false), *with = train_alone(true);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_tensor a, b;
        CU_ASSERT_TRUE_FATAL(weft_params_find(without, names[i][0], &a) &&
                             weft_params_find(with, names[i][1], &b));
        CU_ASSERT_EQUAL(memcmp(a.data, b.data, (size_t)weft_shape_numel(a.shape) * 4), 0);
        CU_ASSERT_TRUE(*(float *)a.data != 0);
    }
    weft_params_free(without);
    weft_params_free(with);
}

/* ---- The norm in pieces ---- */

enum { WHOLE = 2 * WEFT_TILE + 77 };

/* The sums of squares of a tensor's tiles have the same bits wherever the tensor begins. */
static void test_offsets(void)
{
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_value x = weft_state(g, "x", WEFT_F32, WEFT_SHAPE(WHOLE), WEFT_INIT_ZEROS), sums[17];
    weft_value zeros = weft_state(g, "zeros", WEFT_F32, WEFT_SHAPE(16), WEFT_INIT_ZEROS);
    sums[16] = weft_square_sums(g, &x, 1);
    for (int64_t i = 0; i < 16; i++) {
        weft_value both[2] = {weft_slice(g, zeros, 0, 0, i, 1), x};
        weft_value moved = weft_slice(g, weft_concat(g, both, 2, 0), 0, i, i + WHOLE, 1);
        sums[i] = weft_square_sums(g, &moved, 1);
    }
    weft_plan *plan = weft_plan_new(g, sums, 17, NULL, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 1, NULL), WEFT_OK);
    weft_tensor t;
    weft_params_find(params, "x", &t);
    for (int i = 0; i < WHOLE; i++) ((float *)t.data)[i] = (float)(i % 97) * 0.01f - 0.3f;
    weft_session *s = weft_session_new(plan, params, NULL, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    double expected[3], moved[3];
    CU_ASSERT_EQUAL(weft_session_fetch(s, sums[16], expected, sizeof expected, NULL), WEFT_OK);
    CU_ASSERT_TRUE(expected[0] > 1 && expected[1] > 1 && expected[2] > 0);
    for (int i = 0; i < 16; i++) {
        CU_ASSERT_EQUAL(weft_session_fetch(s, sums[i], moved, sizeof moved, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(memcmp(moved, expected, sizeof moved), 0);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

void sharding_tests(void)
{
    CU_pSuite suite = CU_add_suite("sharding", NULL, NULL);
    CU_add_test(suite, "an exchange in a graph, profiled", test_exchange);
    CU_add_test(suite, "exchanges that are refused", test_refused);
    CU_add_test(suite, "sums in the order of a tree", test_tree);
    CU_add_test(suite, "pieces of parameters", test_pieces);
    CU_add_test(suite, "names that are refused", test_refused_names);
    CU_add_test(suite, "copies between pieces", test_piece_copies);
    CU_add_test(suite, "parameters in buckets of their own", test_alone);
    CU_add_test(suite, "a step on other parameters", test_other_params);
    CU_add_test(suite, "tiles that begin anywhere", test_offsets);
    CU_add_test(suite, "a group of one process", test_one_process);
}
