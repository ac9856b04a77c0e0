/* Ensembles of decision trees: TreeEnsemble (version 5 of ai.onnx.ml), and before it
 * TreeEnsembleRegressor and TreeEnsembleClassifier. */
#include "onnx/classic.h"
#include "onnx/forest.h"
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- TreeEnsemble ---- */

/* Sets of numbers, each ended by a NaN, in the order of the nodes of mode MEMBER. */
static bool read_members(onnx_node *n, forest *f, const double *modes, int64_t inner, bool measure)
{
    int64_t count, at = 0;
    const double *members = weft__attr_numbers(n, "membership_values", &count);
    for (int64_t i = 0; i < inner && !weft__node_failed(n); i++) {
        int64_t k = 0;
        if (modes[i] != MEMBER) continue;
        for (; at < count && !isnan(members[at]); at++, k++)
            if (!measure) f->values[i * f->members + k] = members[at];
        at++;
        if (measure && k > f->members) f->members = k;
    }
    if (at > count + 1)
        weft__node_fail(n, WEFT_BAD_FILE, "membership_values has fewer sets than nodes");
    return !weft__node_failed(n);
}

/* Inner nodes come first in the tables, then leaves. */
void weft__ml_TreeEnsemble(onnx_node *n)
{
    static const char *const names[] = {"nodes_featureids",   "nodes_truenodeids",
                                        "nodes_falsenodeids", "nodes_modes",
                                        "nodes_splits",       "nodes_trueleafs",
                                        "nodes_falseleafs",   "?nodes_missing_value_tracks_true"};
    static const char *const leaf_names[] = {"leaf_targetids", "leaf_weights"};
    forest f = {.members = 1, .targets = weft__attr_int(n, "n_targets", 1)};
    double *list[8], *leaf[2];
    int64_t inner = -1, leaves = -1;
    const int64_t aggregate = weft__attr_int(n, "aggregate_function", SUM);
    const int64_t transform = weft__attr_int(n, "post_transform", 0);
    const weft_value x = weft__classic_rows(n);
    f.features = weft_dim_of(n->graph, x, 1);
    if (weft__node_failed(n) || !weft__forest_lists(n, names, 8, list, &inner) ||
        !weft__forest_lists(n, leaf_names, 2, leaf, &leaves))
        return;
    f.roots = weft__attr_numbers(n, "tree_roots", &f.trees);
    f.aggregate = (enum aggregate)aggregate;
    f.nodes = inner + leaves;
    if (aggregate < 0 || aggregate > LARGEST || transform < 0 || transform >= CLASSIC_TRANSFORMS ||
        !f.roots)
        weft__node_fail(n, WEFT_BAD_FILE, "has no roots, or an unknown function");
    if (weft__node_failed(n) || !read_members(n, &f, list[3], inner, true) ||
        !weft__forest_start(n, &f))
        return;
    for (int64_t i = 0; i < inner; i++) {
        const double columns[COLUMNS] = {list[0][i],
                                         list[1][i] + (list[5][i] != 0 ? (double)inner : 0),
                                         list[2][i] + (list[6][i] != 0 ? (double)inner : 0),
                                         list[3][i], list[7] ? list[7][i] : 0};
        if (!weft__forest_node(n, &f, i, columns)) return;
        f.values[i * f.members] = list[3][i] == MEMBER ? NAN : list[4][i];
    }
    for (int64_t i = 0; i < leaves; i++)
        if (!weft__forest_leaf(n, &f, inner + i, leaf[0][i], leaf[1][i])) return;
    for (int64_t i = 0; i < f.trees; i++)
        if (!(f.roots[i] >= 0 && f.roots[i] < (double)f.nodes))
            weft__node_fail(n, WEFT_BAD_FILE, "a root is out of range");
    if (weft__node_failed(n) || !read_members(n, &f, list[3], inner, false) ||
        !weft__forest_finish(n, &f))
        return;
    weft__set_out(n, 0,
                  weft__classic_transform(n, weft__forest_score(n, &f, x),
                                          weft__classic_transforms[transform]));
}

/* ---- TreeEnsembleRegressor ---- */

/* A node by the numbers that the file gives its tree and itself. */
typedef struct label {
    double tree, node;
    int64_t index;
} label;

static int by_label(const void *a, const void *b)
{
    const label *x = a, *y = b;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The index of a node, -1 after a failure. */
static int64_t find(onnx_node *n, const label *labels, int64_t count, double tree, double node)
{
    const label wanted = {tree, node, 0};
    const label *found = bsearch(&wanted, labels, (size_t)count, sizeof *labels, by_label);
    if (!found) weft__node_fail(n, WEFT_BAD_FILE, "a tree does not have node %g", node);
    return found ? found->index : -1;
}

/* Nodes by their labels. The first node of a tree is its root. */
static label *find_roots(onnx_node *n, forest *f, const double *trees, const double *nodes)
{
    const size_t count = (size_t)f->nodes;
    label *labels = weft__arena_alloc(&n->import->memory, (count + 1) * sizeof *labels);
    f->roots = weft__forest_numbers(n, f->nodes, 0);
    if (!labels) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for nodes");
    if (weft__node_failed(n)) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (isnan(trees[i]) || isnan(nodes[i]))
            return weft__node_fail(n, WEFT_BAD_FILE, "node %zu has no number", i), NULL;
        labels[i] = (label){trees[i], nodes[i], (int64_t)i};
    }
    qsort(labels, count, sizeof *labels, by_label);
    for (size_t i = 0; i < count; i++) {
        if (i && !by_label(&labels[i - 1], &labels[i]))
            weft__node_fail(n, WEFT_BAD_FILE, "a tree has node %g twice", labels[i].node);
        if (!i || labels[i].tree != labels[i - 1].tree)
            f->roots[f->trees++] = (double)labels[i].index;
        else
            f->roots[f->trees - 1] = fmin(f->roots[f->trees - 1], (double)labels[i].index);
    }
    return weft__node_failed(n) ? NULL : labels;
}

/* The mode of node i, MODES for a leaf; -1 if it is unknown. */
static int mode_of(const WeftOnnx__AttributeProto *modes, int64_t i)
{
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "",           "LEAF"};
    const ProtobufCBinaryData text = modes->strings[i];
    for (int k = 0; k <= MODES; k++)
        if (text.len && text.len == strlen(names[k]) && !memcmp(text.data, names[k], text.len))
            return k;
    return -1;
}

static enum aggregate aggregate_of(onnx_node *n)
{
    static const char *const names[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    for (int i = 0; i < 4; i++)
        if (weft__attr_is(n, "aggregate_function", names[i], "SUM")) return (enum aggregate)i;
    weft__node_fail(n, WEFT_BAD_FILE, "has an unknown aggregate_function");
    return SUM;
}

/* Inner nodes from lists in the order of `columns`, which begin at the feature. */
static bool set_nodes(onnx_node *n, forest *f, const label *labels, double *const list[7])
{
    const WeftOnnx__AttributeProto *modes = weft__attr_find(n, "nodes_modes");
    if (!modes || modes->n_strings != (size_t)f->nodes)
        return weft__node_fail(n, WEFT_BAD_FILE, "nodes_modes is not a text for each node"), false;
    for (int64_t i = 0; i < f->nodes; i++) {
        const int mode = mode_of(modes, i);
        if (mode == MODES) continue;
        const int64_t yes = find(n, labels, f->nodes, list[0][i], list[3][i]);
        const int64_t no = find(n, labels, f->nodes, list[0][i], list[4][i]);
        const double columns[COLUMNS] = {list[2][i], (double)yes, (double)no, mode,
                                         list[6] ? list[6][i] : 0};
        if (!weft__forest_node(n, f, i, columns)) return false;
        f->values[i] = list[5][i];
    }
    return true;
}

/* The attributes of leaves begin with "target_" or "class_". Returns the base values, `bases` of
 * them, or NULL. */
static const double *read_older(onnx_node *n, forest *f, bool classes, int64_t *bases)
{
    const bool tensors = weft__has_attr(n, "nodes_values_as_tensor");
    const char *const names[] = {"nodes_treeids",
                                 "nodes_nodeids",
                                 "nodes_featureids",
                                 "nodes_truenodeids",
                                 "nodes_falsenodeids",
                                 tensors ? "nodes_values_as_tensor" : "nodes_values",
                                 "?nodes_missing_value_tracks_true"};
    const char *const weights = classes ? "class_weights_as_tensor" : "target_weights_as_tensor";
    const char *const leaf_names[] = {classes ? "class_treeids" : "target_treeids",
                                      classes ? "class_nodeids" : "target_nodeids",
                                      classes ? "class_ids" : "target_ids",
                                      weft__has_attr(n, weights) ? weights
                                      : classes                  ? "class_weights"
                                                                 : "target_weights"};
    double *list[7], *leaf[4];
    int64_t leaves = -1;
    f->nodes = -1;
    f->members = 1;
    if (!weft__forest_lists(n, names, 7, list, &f->nodes) ||
        !weft__forest_lists(n, leaf_names, 4, leaf, &leaves))
        return NULL;
    /* Two classes of which only one has weights: there is one score. */
    bool one = classes && f->targets == 2 && leaves > 0;
    for (int64_t i = 0; i < leaves; i++) one = one && leaf[2][i] == leaf[2][0];
    if (one) f->targets = 1;
    const label *labels = weft__forest_start(n, f) ? find_roots(n, f, list[0], list[1]) : NULL;
    if (!labels || !set_nodes(n, f, labels, list)) return NULL;
    for (int64_t i = 0; i < leaves; i++) {
        const int64_t at = find(n, labels, f->nodes, leaf[0][i], leaf[1][i]);
        if (at < 0 || !weft__forest_leaf(n, f, at, one ? 0 : leaf[2][i], leaf[3][i])) return NULL;
    }
    if (!weft__forest_finish(n, f)) return NULL;
    const char *const base =
        weft__has_attr(n, "base_values_as_tensor") ? "base_values_as_tensor" : "base_values";
    return weft__attr_numbers(n, base, bases);
}

/* The scores [rows, targets] and base values, of which there may be a pair for one score. */
static weft_value add_base(onnx_node *n, const forest *f, weft_value x, bool pair,
                           const double *base, int64_t bases)
{
    weft_graph *g = n->graph;
    if (!weft__node_failed(n) && base && bases != f->targets && !(pair && bases == 2))
        weft__node_fail(n, WEFT_BAD_FILE, "base_values has %lld numbers for %lld targets",
                        (long long)bases, (long long)f->targets);
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    const weft_value y = weft__forest_score(n, f, x), none = WEFT_NO_VALUE;
    const weft_dtype dtype = weft_dtype_of(g, y);
    const weft_value added =
        base ? weft__doubles_value(n, base, WEFT_SHAPE(f->targets), dtype) : none;
    return base ? weft_add(g, y, added) : y;
}

void weft__ml_TreeEnsembleRegressor(onnx_node *n)
{
    forest f = {.targets = weft__attr_int(n, "n_targets", 1), .aggregate = aggregate_of(n)};
    const weft_value x = weft__classic_rows(n);
    f.features = weft_dim_of(n->graph, x, 1);
    int64_t bases = 0;
    if (weft__node_failed(n)) return;
    const double *base = read_older(n, &f, false, &bases);
    weft_value y = add_base(n, &f, x, false, base, bases);
    if (weft__node_failed(n)) return;
    y = weft__classic_transform(n, y, weft__classic_transform_name(n));
    if (!weft__node_failed(n)) weft__set_out(n, 0, weft_cast(n->graph, y, WEFT_F32));
}

/* Outputs: the label, an integer of the file, and the scores of the classes. One score p is of two
 * classes: 1 - p and p without a transform, as in the onnx package's reference implementation, or -p
 * and p before it. Of two base values, the first one counts then. */
void weft__ml_TreeEnsembleClassifier(onnx_node *n)
{
    weft_graph *g = n->graph;
    int64_t count, bases = 0;
    const double *labels = weft__attr_numbers(n, "classlabels_int64s", &count);
    forest f = {.targets = count, .aggregate = SUM};
    const weft_value x = weft__classic_rows(n);
    f.features = weft_dim_of(g, x, 1);
    if (weft__node_failed(n)) return;
    if (!labels || count < 2) {
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "needs an integer as label of each of at least 2 classes");
        return;
    }
    const double *base = read_older(n, &f, true, &bases);
    const char *const transform = weft__classic_transform_name(n);
    weft_value y = add_base(n, &f, x, f.targets == 1, base, bases);
    if (weft__node_failed(n)) return;
    if (f.targets == 1) {
        weft_value other = weft_neg(g, y);
        if (!strcmp(transform, "NONE")) other = weft_add_scalar(g, other, 1);
        y = weft_concat(g, (weft_value[]){other, y}, 2, 1);
    }
    y = weft__classic_transform(n, y, transform);
    if (weft__node_failed(n)) return;
    weft__set_typed(n, 0, weft__classic_label(n, y, labels, count), ONNX_INT64);
    weft__set_out(n, 1, weft_cast(g, y, WEFT_F32));
}
