/* Ensembles of decision trees (forest.c), for the ops that have them (trees.c).
 *
 * The nodes of all trees are rows of tables. Each row of the input and each tree have a place, which
 * begins at the root of the tree and moves to one of two children at each level; leaves are their
 * own children. So a forest takes a dozen nodes for each level. No gradient: a step is constant. */
#ifndef WEFT_ONNX_FOREST_H
#define WEFT_ONNX_FOREST_H

#include "onnx/import.h"

enum mode { LEQ, LESS, GEQ, GREATER, EQUAL, NOT_EQUAL, MEMBER, MODES };
enum aggregate { AVERAGE, SUM, SMALLEST, LARGEST };

/* Columns of the table of integers. */
enum { FEATURE, IF_TRUE, IF_FALSE, MODE, IF_MISSING, COLUMNS };

typedef struct forest {
    int64_t nodes, trees, targets, members, features;
    double *whole;   /* [nodes, COLUMNS] */
    double *values;  /* [nodes, members]: the number to compare with, or a set that NaN fills */
    double *weights; /* of leaves [nodes, targets] */
    double *roots;
    bool used[MODES], missing;
    int levels;
    enum aggregate aggregate;
} forest;

/* `count` copies of a value; NULL after a failure. */
double *weft__forest_numbers(onnx_node *n, int64_t count, double value);
/* Reads lists of one length, which is *count; -1 before the first one. Those whose name begins with
 * "?" may be missing, and are then NULL. False after a failure. */
bool weft__forest_lists(onnx_node *n, const char *const *names, size_t n_lists, double **lists,
                        int64_t *count);
/* Tables of leaves that lead to themselves. */
bool weft__forest_start(onnx_node *n, forest *f);
/* Sets an inner node. Numbers of files are checked here. */
bool weft__forest_node(onnx_node *n, forest *f, int64_t i, const double columns[COLUMNS]);
bool weft__forest_leaf(onnx_node *n, forest *f, int64_t leaf, double target, double weight);
/* The steps from the roots to the last leaf; fails if there are too many, as in a cycle. */
bool weft__forest_finish(onnx_node *n, forest *f);
/* The scores [rows, targets]. */
weft_value weft__forest_score(onnx_node *n, const forest *f, weft_value x);

#endif
