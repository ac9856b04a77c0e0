/* See random_cases.h. */
#include "random_cases.h"

#include <weft/op.h>

#include <stdio.h>
#include <stdlib.h>

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* The smallest size at which a case that fails still does. */
static size_t shrink(random_case c, bool (*holds)(const random_case *))
{
    const size_t most = 1000;
    for (c.size = 1; c.size < most; c.size++)
        if (!holds(&c)) return c.size;
    return SIZE_MAX;
}

bool test_random_cases(const char *test, uint64_t n, bool (*holds)(const random_case *), void *data)
{
    random_case c = {.size = SIZE_MAX, .data = data};
    if (getenv("WEFT_TEST_SEED")) {
        c = (random_case){number_of("WEFT_TEST_SEED", 1), number_of("WEFT_TEST_SIZE", SIZE_MAX),
                          true, data};
        return holds(&c);
    }
    for (c.seed = 1; c.seed <= n; c.seed++) {
        if (holds(&c)) continue;
        const size_t size = shrink(c, holds);
        fprintf(stderr, "\n    the case of seed %llu fails", (unsigned long long)c.seed);
        if (size != SIZE_MAX) fprintf(stderr, ", and so does its beginning of size %zu", size);
        fprintf(stderr, ". Alone:\n      WEFT_TEST_SEED=%llu", (unsigned long long)c.seed);
        if (size != SIZE_MAX) fprintf(stderr, " WEFT_TEST_SIZE=%zu", size);
        fprintf(stderr, " build/tests/weft_tests -k '%s'\n", test);
        return false;
    }
    return true;
}

void test_show_graph(const weft_graph *graph)
{
    for (size_t i = 0; i < weft_graph_node_count(graph); i++) {
        const weft_node_info node = weft_graph_node(graph, i);
        char shape[128];
        for (size_t k = 0; k < node.n_out; k++) {
            const weft_value v = weft_value_from_id(graph, node.first_out + (uint32_t)k);
            fprintf(stderr, "    %u%s%s %s = %s(", v.id, *weft_name_of(graph, v) ? " " : "",
                    weft_name_of(graph, v),
                    weft_shape_text(weft_shape_of(graph, v), shape, sizeof shape), node.op->name);
            for (size_t j = 0; j < node.n_in; j++)
                fprintf(stderr, "%s%u", j ? ", " : "", node.in[j]);
            fprintf(stderr, ")\n");
        }
    }
}
