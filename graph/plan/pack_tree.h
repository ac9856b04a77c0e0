/* The search tree of the packer: what pack_tree.c searches, and pack_search.c sets up and restarts.
 */
#ifndef WEFT_GRAPH_PACK_TREE_H
#define WEFT_GRAPH_PACK_TREE_H

#include "pack.h"

#define PLACED SIZE_MAX
#define NONE   UINT32_MAX

typedef struct search_item {
    size_t low;                     /* it cannot begin below this; or PLACED */
    double key;                     /* candidates with greater keys are tried first */
    uint32_t twin;                  /* the equal item that is placed before this one, or NONE */
    uint32_t next_first, next_last; /* in the lists of its first and last section */
} search_item;

typedef struct section {
    uint32_t *items;   /* alive in it: first those that wait, then the placed ones, latest first */
    uint32_t waiting;  /* items that are not placed yet */
    uint32_t crossing; /* of these, alive in the next section as well */
    size_t waiting_bytes;
    size_t height;
    bool solid;  /* an item or the floor ends at this height, so another item can lie on it */
    bool queued; /* its bounds have to be checked */
    bool sorted; /* its waiting items are in order of low */
    double weight;
    uint32_t firsts, lasts; /* lists of the items whose first, last section this is; end at NONE */
} section;

typedef enum change_kind { CHANGE_HEIGHT, CHANGE_LOW, CHANGE_PLACE } change_kind;

/* An entry of the trail: what a change has overwritten. */
typedef struct change {
    change_kind kind;
    uint32_t index; /* of the section or item */
    size_t old;
    bool solid;
} change;

/* A choice: which item begins at the height of a section, or none. The candidates are the items
 * that may. */
typedef struct branch {
    uint32_t at;          /* the section */
    uint32_t first, last; /* its valley */
    size_t next;          /* the height that it rises to if no item begins; SIZE_MAX: one must */
    double cost;
} branch;

/* An interval of time that is being solved, component by component. A component is an interval
 * connected by waiting items; each candidate of its branch opens a frame of its own. */
typedef struct frame {
    uint32_t last, next; /* its last section; where the components that are not solved yet begin */
    uint32_t begin, end; /* the component */
    branch branch;       /* of the component */
    uint32_t candidate;  /* the item that was placed, or NONE */
    bool final;          /* no other candidate is left */
    size_t n_changes;    /* the length of the trail before the candidate */
} frame;

typedef struct search {
    pack_item *packed;
    search_item *items;
    uint32_t n_items;
    section *sections;
    uint32_t n_sections;
    uint32_t *cells;
    uint32_t *queue, n_queue;
    size_t *before, *after; /* by section: see measure_valley */
    change *trail;          /* every change since the root, to undo */
    size_t n_changes, trail_capacity;
    frame *frames; /* the path from the root to the node that is searched */
    size_t n_frames, frame_capacity;
    size_t height; /* that no item may end above */
    size_t top;    /* all that waits can begin here */
    const pack_limits *limits;
    uint64_t nodes, run_end; /* visited so far; at which the run ends */
    bool stopped;            /* the run, before its end, for this reason: */
    pack_outcome why;
} search;

/* Searches depth first for offsets of all items that wait in sections first..last. True when it has
 * found them. False: there are none, or s->stopped. */
bool weft__tree_solve(search *s, uint32_t first, uint32_t last);
/* Undoes the changes after the first n_changes of the trail. */
void weft__tree_undo(search *s, size_t n_changes);
/* Queues a section for a check of its bounds, unless all its items could begin at the top. */
void weft__tree_enqueue(search *s, uint32_t at);

#endif
