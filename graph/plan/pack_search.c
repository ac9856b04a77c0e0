/* A search for offsets with which no item ends above a given height. It may prove that there are
 * none.
 *
 * Items are dropped on a skyline, one height for each section of time. Any packing can be pushed
 * down until every item lies on the floor or on another one; so it is enough to look, in a valley
 * (neighbouring sections of one height between higher ones), at one section and ask which item
 * begins there:
 *
 *           height|  ____         one of the items that are alive in the section and only inside
 *                 | |    |  ___   the valley, or none: then the section rises to the least height
 *                 | |    |_|_s_|  at which one can begin, and what it rises by is wasted
 *       time ->   |
 *
 * These branches exclude each other and are complete. What cuts the tree:
 * - every item has a height that it cannot begin below, the skyline over its lifetime; the items
 *   of a section, taken by that height, must end in time one after the other (as jobs with release
 *   times on one machine), which also bounds the waste;
 * - stretches of time that no waiting item connects are solved one after the other, and one without
 *   a solution ends both;
 * - an item over the whole of such a stretch goes first; equal items go in order of their index;
 * - the section asked is the one with the fewest answers for its weight. A section's weight grows
 *   whenever it is where a branch dies;
 * - it starts anew after a number of nodes (Luby's sequence); the weights are kept, the answers
 *   tried in another order: by area, by lifetime or by size, later with some randomness, which
 *   comes from constants.
 * A node takes O(items alive x sections) at worst; memory is O(items x sections). */
#include "pack.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

#define RESTART_NODES 500
#define MAX_CELLS     (1u << 24) /* of items x the sections they live in */
#define PLACED        SIZE_MAX
#define NONE          UINT32_MAX

typedef struct search_item {
    size_t low;                     /* it cannot begin below this; or PLACED */
    double key;                     /* greater keys are tried first */
    uint32_t twin;                  /* the equal item that goes before this one, or NONE */
    uint32_t next_first, next_last; /* in the lists of its first and last section */
} search_item;

typedef struct section {
    uint32_t *items;   /* that are alive in it: those that wait, then the placed, last one first */
    uint32_t waiting;  /* number of items that are not placed yet */
    uint32_t crossing; /* of which live in the next section too */
    size_t waiting_bytes;
    size_t height;
    bool solid;  /* an item or the floor ends at this height: something may lie on it */
    bool queued; /* its bounds must be looked at */
    bool sorted; /* the waiting ones are in order of low */
    double weight;
    uint32_t firsts, lasts; /* lists of the items whose first, last section this is; end at NONE */
} section;

typedef enum change_kind { HEIGHT, LOW, PLACE } change_kind;

typedef struct change {
    change_kind kind;
    uint32_t index;
    size_t old;
    bool solid;
} change;

typedef struct question {
    uint32_t at;          /* the section */
    uint32_t first, last; /* its valley */
    size_t next;          /* where it rises to if no item begins, or SIZE_MAX: it may not */
    double cost;
} question;

/* A stretch of time that is being solved, part after part; the part of now is a stretch that
 * waiting items connect, and each answer to its question opens a frame of its own. */
typedef struct frame {
    uint32_t last, next; /* its last section; where the parts that are not solved yet begin */
    uint32_t begin, end; /* the part */
    question q;          /* asked of the part */
    uint32_t answer;     /* the item that was placed, or NONE */
    bool final;          /* no other answer follows */
    size_t n_changes;    /* before the answer */
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
    change *changes;        /* to be taken back */
    size_t n_changes, capacity;
    frame *frames; /* the branch that is searched, outermost first */
    size_t n_frames, frame_capacity;
    size_t height; /* that no item may end above */
    size_t top;    /* nothing waits that cannot begin there */
    const pack_limits *limits;
    uint64_t nodes, run_end; /* searched; at which the run ends */
    bool stopped;            /* the run, before its end, for this reason: */
    pack_outcome why;
} search;

/* ---- The state, and taking it back ---- */

static bool stop(search *s, pack_outcome why)
{
    if (!s->stopped) s->why = why;
    s->stopped = true;
    return false;
}

static void record(search *s, change c)
{
    if (s->n_changes == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 1024;
        change *grown = realloc(s->changes, capacity * sizeof *grown);
        if (!grown) {
            stop(s, PACK_NO_MEMORY);
            return;
        }
        s->changes = grown;
        s->capacity = capacity;
    }
    s->changes[s->n_changes++] = c;
}

/* Queues a section whose bounds may be hurt: not one whose items could all begin at the top. */
static void enqueue(search *s, uint32_t at)
{
    section *c = &s->sections[at];
    if (c->queued || !c->waiting || s->top + c->waiting_bytes <= s->height) return;
    c->queued = true;
    s->queue[s->n_queue++] = at;
}

static void empty_queue(search *s)
{
    while (s->n_queue) s->sections[s->queue[--s->n_queue]].queued = false;
}

static void set_height(search *s, uint32_t at, size_t height, bool solid)
{
    section *c = &s->sections[at];
    record(s, (change){HEIGHT, at, c->height, c->solid});
    c->height = height;
    c->solid = solid;
}

/* Raises sections to one height, and with them the items alive in them. Their lifetimes cover a
 * stretch of time without a gap, whose bounds may be hurt. */
static void raise_sections(search *s, uint32_t first, uint32_t last, size_t height, bool solid)
{
    uint32_t from = first, to = last;
    if (height > s->top) s->top = height;
    for (uint32_t at = first; at <= last; at++) {
        const section *c = &s->sections[at];
        set_height(s, at, height, solid);
        for (uint32_t k = 0; k < c->waiting; k++) {
            uint32_t i = c->items[k];
            if (s->items[i].low >= height) continue;
            record(s, (change){LOW, i, s->items[i].low, false});
            s->items[i].low = height;
            if (s->packed[i].first < from) from = s->packed[i].first;
            if (s->packed[i].last > to) to = s->packed[i].last;
        }
    }
    for (uint32_t t = from; t <= to; t++) {
        /* In the raised ones, all that was lower is now equal: their order holds. */
        if (t < first || t > last) s->sections[t].sorted = false;
        enqueue(s, t);
    }
}

static void take_from_section(section *c, uint32_t i, const pack_item *item)
{
    uint32_t at = 0;
    while (c->items[at] != i) at++;
    for (c->waiting--; at < c->waiting; at++) c->items[at] = c->items[at + 1];
    c->items[at] = i;
    c->waiting_bytes -= item->size;
}

/* Of all that were taken from the section the last is the first to come back, to where it is. */
static void give_to_section(section *c, const pack_item *item)
{
    c->waiting++;
    c->waiting_bytes += item->size;
}

static void place_item(search *s, uint32_t i)
{
    pack_item *item = &s->packed[i];
    item->offset = s->items[i].low;
    record(s, (change){PLACE, i, item->offset, false});
    s->items[i].low = PLACED;
    for (uint32_t t = item->first; t <= item->last; t++) {
        take_from_section(&s->sections[t], i, item);
        s->sections[t].crossing -= t < item->last;
    }
    raise_sections(s, item->first, item->last, item->offset + item->size, true);
}

static void take_back(search *s, size_t n_changes)
{
    uint32_t from = s->n_sections, to = 0;
    while (s->n_changes > n_changes) {
        const change *c = &s->changes[--s->n_changes];
        if (c->kind == HEIGHT) {
            s->sections[c->index].height = c->old;
            s->sections[c->index].solid = c->solid;
            continue;
        }
        const pack_item *item = &s->packed[c->index];
        s->items[c->index].low = c->old;
        if (item->first < from) from = item->first;
        if (item->last > to) to = item->last;
        for (uint32_t t = item->first; t <= item->last && c->kind == PLACE; t++) {
            give_to_section(&s->sections[t], item);
            s->sections[t].crossing += t < item->last;
        }
    }
    for (uint32_t t = from; t <= to && t < s->n_sections; t++) s->sections[t].sorted = false;
}

/* ---- Bounds ---- */

/* Sorts what waits in a section, and raises it to where the first item can begin. */
static void settle(search *s, uint32_t at)
{
    section *c = &s->sections[at];
    for (uint32_t k = 1; k < c->waiting && !c->sorted; k++) {
        uint32_t i = c->items[k], to = k;
        size_t low = s->items[i].low;
        for (; to > 0 && s->items[c->items[to - 1]].low > low; to--)
            c->items[to] = c->items[to - 1];
        c->items[to] = i;
    }
    c->sorted = true;
    size_t low = s->items[c->items[0]].low;
    if (low > c->height) set_height(s, at, low, false);
}

/* Can all that wait in the section still end in time? */
static bool section_holds(search *s, uint32_t at)
{
    const section *c = &s->sections[at];
    settle(s, at);
    size_t end = c->height;
    if (s->items[c->items[c->waiting - 1]].low + c->waiting_bytes <= s->height) return true;
    for (uint32_t k = 0; k < c->waiting; k++) {
        uint32_t i = c->items[k];
        if (s->items[i].low > end) end = s->items[i].low;
        end += s->packed[i].size;
    }
    return end <= s->height;
}

static bool all_hold(search *s)
{
    while (s->n_queue) {
        uint32_t at = s->queue[--s->n_queue];
        section *c = &s->sections[at];
        c->queued = false;
        if (!c->waiting || section_holds(s, at)) continue;
        c->weight += 1;
        empty_queue(s);
        return false;
    }
    return true;
}

/* ---- Branching ---- */

/* May item i begin at the height of the section that it is alive in? */
static bool may_begin(const search *s, uint32_t i, const section *c)
{
    if (s->items[i].low != c->height) return false;
    if (s->items[i].twin != NONE && s->items[s->items[i].twin].low != PLACED) return false;
    if (c->solid) return true;
    for (uint32_t t = s->packed[i].first; t <= s->packed[i].last; t++)
        if (s->sections[t].solid && s->sections[t].height == c->height) return true;
    return false;
}

static size_t min_end(const search *s, uint32_t i)
{
    return s->items[i].low == PLACED ? SIZE_MAX : s->items[i].low + s->packed[i].size;
}

/* For each section of a valley the least height at which an item that lives before it, or after it,
 * can end. */
static void measure_valley(search *s, uint32_t first, uint32_t last)
{
    size_t *before = s->before, *after = s->after;
    for (uint32_t t = first; t <= last + 1; t++) before[t] = after[t] = SIZE_MAX;
    const search_item *items = s->items;
    for (uint32_t t = first; t <= last; t++) {
        for (uint32_t i = s->sections[t].lasts; i != NONE; i = items[i].next_last) {
            size_t end = min_end(s, i);
            if (end < before[t + 1]) before[t + 1] = end;
        }
        for (uint32_t i = s->sections[t].firsts; i != NONE && t > first; i = items[i].next_first) {
            size_t end = min_end(s, i);
            if (end < after[t - 1]) after[t - 1] = end;
        }
    }
    for (uint32_t t = first; t < last; t++)
        if (before[t] < before[t + 1]) before[t + 1] = before[t];
    for (uint32_t t = last; t > first; t--)
        if (after[t] < after[t - 1]) after[t - 1] = after[t];
}

/* The least height at which an item can begin in the section if none does at its present height;
 * SIZE_MAX if the waste would be too much. The lowest that begins there later either begins at a
 * height that it cannot begin below now, or lies on an item that lives beside the section. */
static size_t next_height(const search *s, uint32_t at)
{
    const section *c = &s->sections[at];
    size_t next = SIZE_MAX;
    uint32_t k = 0;
    while (k < c->waiting && s->items[c->items[k]].low == c->height) k++;
    if (k < c->waiting) next = s->items[c->items[k]].low;
    if (k > 0 && s->before[at] < next) next = s->before[at];
    if (k > 0 && s->after[at] < next) next = s->after[at];
    return next == SIZE_MAX || next + c->waiting_bytes > s->height ? SIZE_MAX : next;
}

/* Looks at the sections of one valley; false if one has no answer. */
static bool ask_valley(search *s, uint32_t first, uint32_t last, question *best)
{
    measure_valley(s, first, last);
    for (uint32_t at = first; at <= last; at++) {
        section *c = &s->sections[at];
        question q = {at, first, last, SIZE_MAX, 0};
        double most = best->at == NONE ? INFINITY : best->cost * c->weight;
        uint32_t answers = 0;
        for (uint32_t k = 0; k < c->waiting && s->items[c->items[k]].low == c->height; k++) {
            answers += may_begin(s, c->items[k], c);
            if (answers > 1 && answers >= most) break;
        }
        if (answers > 1 && answers >= most) continue;
        if (c->height + c->waiting_bytes < s->height) q.next = next_height(s, at);
        answers += q.next != SIZE_MAX;
        if (!answers) {
            c->weight += 1;
            return false;
        }
        q.cost = answers == 1 ? 0 : answers / c->weight;
        if (best->at == NONE || q.cost < best->cost) *best = q;
        if (!q.cost) return true;
    }
    return true;
}

/* Finds the next valley from section *begin on; *end is its last section. What rises when it is
 * settled may be none, or less of one: then it is looked for again. */
static bool next_valley(search *s, uint32_t first, uint32_t last, uint32_t *begin, uint32_t *end)
{
    const section *c = s->sections;
    for (; *begin <= last; *begin = *end + 1) {
        uint32_t b = *begin, e = b;
        *end = e;
        if (!c[b].waiting) continue;
        while (e < last && c[e + 1].waiting && c[e + 1].height == c[b].height) e++;
        *end = e;
        bool left = b == first || !c[b - 1].waiting || c[b - 1].height > c[b].height;
        bool right = e == last || !c[e + 1].waiting || c[e + 1].height > c[b].height;
        if (left && right) return true;
    }
    return false;
}

/* True if a section of the valley has risen. */
static bool settle_valley(search *s, uint32_t first, uint32_t last)
{
    size_t height = s->sections[first].height;
    bool risen = false;
    for (uint32_t at = first; at <= last; at++) {
        settle(s, at);
        risen |= s->sections[at].height != height;
    }
    return risen;
}

/* The question with the fewest answers in the stretch; false if one has none. */
static bool choose(search *s, uint32_t first, uint32_t last, question *best)
{
    best->at = NONE;
    uint32_t begin = first, end;
    while (next_valley(s, first, last, &begin, &end)) {
        if (settle_valley(s, begin, end)) {
            best->at = NONE;
            begin = first;
            continue;
        }
        if (!ask_valley(s, begin, end, best)) return false;
        if (best->at != NONE && !best->cost) return true;
        begin = end + 1;
    }
    return best->at != NONE;
}

/* The answer that follows `previous` (NONE: the first) in order of the keys, or NONE. */
static uint32_t next_answer(const search *s, const section *c, uint32_t previous)
{
    uint32_t best = NONE;
    double limit = previous == NONE ? 0 : s->items[previous].key;
    for (uint32_t k = 0; k < c->waiting; k++) {
        uint32_t i = c->items[k];
        double key = s->items[i].key;
        if (previous != NONE && (key > limit || (key == limit && i <= previous))) continue;
        if (best != NONE && (key < s->items[best].key || (key == s->items[best].key && i > best)))
            continue;
        if (may_begin(s, i, c)) best = i;
    }
    return best;
}

/* ---- The tree ---- */

/* Opens a frame for a stretch of time, unless its bounds show that it has no solution. */
static bool enter(search *s, uint32_t first, uint32_t last)
{
    if (!all_hold(s)) return false;
    if (s->n_frames == s->frame_capacity) {
        size_t capacity = s->frame_capacity ? 2 * s->frame_capacity : 256;
        frame *grown = realloc(s->frames, capacity * sizeof *grown);
        if (!grown) return stop(s, PACK_NO_MEMORY);
        s->frames = grown;
        s->frame_capacity = capacity;
    }
    s->frames[s->n_frames++] = (frame){.last = last, .next = first};
    return true;
}

/* Goes to the next part in which items wait; false if there is none. */
static bool next_part(const search *s, frame *f)
{
    while (f->next <= f->last) {
        f->begin = f->end = f->next;
        while (f->end < f->last && s->sections[f->end].crossing) f->end++;
        f->next = f->end + 1;
        if (s->sections[f->begin].waiting) return true;
    }
    return false;
}

/* Chooses the question for the frame's part; false if one has no answer, or the run ends. */
static bool ask(search *s, frame *f)
{
    if (s->nodes >= s->run_end) return stop(s, PACK_SPENT);
    if (s->limits->deadline > 0 && s->nodes % 64 == 0 && clock_seconds() >= s->limits->deadline)
        return stop(s, PACK_SPENT);
    s->nodes++;
    if (!choose(s, f->begin, f->end, &f->q)) return false;
    f->answer = NONE;
    f->final = false;
    f->n_changes = s->n_changes;
    return true;
}

/* The first item over the whole part that may begin, or NONE. */
static uint32_t item_over_whole(const search *s, const frame *f)
{
    const section *c = &s->sections[f->q.at];
    if (f->q.first != f->begin || f->q.last != f->end) return NONE;
    for (uint32_t k = 0; k < c->waiting; k++) {
        const pack_item *item = &s->packed[c->items[k]];
        if (item->first == f->begin && item->last == f->end && may_begin(s, c->items[k], c))
            return c->items[k];
    }
    return NONE;
}

/* Gives the next answer: an item begins, or at last the section rises. False if none is left. */
static bool give_answer(search *s, frame *f)
{
    if (s->stopped || f->final) return false;
    if (f->answer == NONE) {
        f->answer = item_over_whole(s, f);
        f->final = f->answer != NONE;
    }
    if (!f->final) f->answer = next_answer(s, &s->sections[f->q.at], f->answer);
    if (f->answer != NONE) {
        place_item(s, f->answer);
        return true;
    }
    f->final = true;
    if (f->q.next == SIZE_MAX) return false;
    raise_sections(s, f->q.at, f->q.at, f->q.next, false);
    return true;
}

/* Depth first, without recursion: a branch may be as deep as there are items. `good`: what was
 * entered last is not refuted. */
static bool solve(search *s, uint32_t first, uint32_t last)
{
    s->n_frames = 0;
    bool good = enter(s, first, last);
    while (s->n_frames) {
        frame *f = &s->frames[s->n_frames - 1];
        bool open = true;
        if (good) {
            open = next_part(s, f);
            if (open) open = good = ask(s, f);
        } else {
            empty_queue(s);
            take_back(s, f->n_changes);
        }
        if (open) open = good = give_answer(s, f);
        if (open)
            good = !s->stopped && enter(s, f->begin, f->end);
        else
            s->n_frames--;
    }
    return good;
}

/* ---- Runs ---- */

/* Luby's sequence 1 1 2 1 1 2 4 1 1 2 ... of run 1, 2, ... */
static uint64_t luby(uint64_t run)
{
    uint64_t size = 1;
    while (size < run) size = 2 * size + 1;
    while (size != run) {
        size /= 2;
        if (run > size) run -= size;
    }
    return (size + 1) / 2;
}

static double random_unit(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void set_keys(search *s, uint64_t run, uint64_t *random)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        double size = (double)s->packed[i].size / (double)s->height;
        double length =
            (double)(s->packed[i].last - s->packed[i].first + 1) / (double)s->n_sections;
        const double keys[] = {size * length, length + size * 1e-6, size + length * 1e-6};
        double noise = run <= 3 ? 0 : 0.5 * (double)(run % 5) * random_unit(random);
        s->items[i].key = keys[(run - 1) % 3] * (1 + noise);
    }
}

static pack_outcome run_all(search *s)
{
    uint64_t random = 0;
    for (uint64_t run = 1;; run++) {
        set_keys(s, run, &random);
        uint64_t nodes = (RESTART_NODES + s->n_items) * luby(run);
        uint64_t left = s->limits->nodes - s->nodes;
        s->run_end = s->nodes + (nodes < left ? nodes : left);
        s->stopped = false;
        s->top = 0;
        for (uint32_t t = 0; t < s->n_sections; t++) enqueue(s, t);
        if (solve(s, 0, s->n_sections - 1)) return PACK_FOUND;
        if (!s->stopped) return PACK_IMPOSSIBLE;
        if (s->why == PACK_NO_MEMORY) return s->why;
        if (s->nodes >= s->limits->nodes) return PACK_SPENT;
        if (s->limits->deadline > 0 && clock_seconds() >= s->limits->deadline) return PACK_SPENT;
        take_back(s, 0);
    }
}

typedef struct shape {
    pack_item item;
    uint32_t index;
} shape;

static int compare_shapes(const void *a, const void *b)
{
    const shape *x = a, *y = b;
    if (x->item.first != y->item.first) return x->item.first < y->item.first ? -1 : 1;
    if (x->item.last != y->item.last) return x->item.last < y->item.last ? -1 : 1;
    if (x->item.size != y->item.size) return x->item.size < y->item.size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool find_twins(search *s)
{
    shape *shapes = calloc(s->n_items, sizeof *shapes);
    if (!shapes) return false;
    for (uint32_t i = 0; i < s->n_items; i++) shapes[i] = (shape){s->packed[i], i};
    qsort(shapes, s->n_items, sizeof *shapes, compare_shapes);
    for (uint32_t i = 0; i < s->n_items; i++) {
        const shape *a = &shapes[i ? i - 1 : 0], *b = &shapes[i];
        bool twins = i && a->item.first == b->item.first && a->item.last == b->item.last &&
                     a->item.size == b->item.size;
        s->items[b->index].twin = twins ? a->index : NONE;
    }
    free(shapes);
    return true;
}

static void fill_sections(search *s)
{
    for (uint32_t i = 0; i < s->n_items; i++)
        for (uint32_t t = s->packed[i].first; t <= s->packed[i].last; t++) s->sections[t].waiting++;
    uint32_t *cells = s->cells;
    for (uint32_t t = 0; t < s->n_sections; t++) {
        section *c = &s->sections[t];
        uint32_t n = c->waiting;
        *c = (section){.items = cells, .solid = true, .weight = 1, .firsts = NONE, .lasts = NONE};
        cells += n;
    }
    for (uint32_t i = 0; i < s->n_items; i++) {
        const pack_item *item = &s->packed[i];
        section *first = &s->sections[item->first], *last = &s->sections[item->last];
        s->items[i].next_first = first->firsts;
        s->items[i].next_last = last->lasts;
        first->firsts = last->lasts = i;
        for (section *c = first; c <= last; c++) {
            c->items[c->waiting++] = i;
            c->waiting_bytes += item->size;
            c->crossing += c < last;
        }
    }
}

pack_outcome pack_search(pack_item *items, size_t n, uint32_t sections, size_t height,
                         const pack_limits *limits, uint64_t *nodes)
{
    size_t cells = 0;
    for (size_t i = 0; i < n; i++) cells += items[i].last - items[i].first + 1;
    *nodes = 0;
    if (cells > MAX_CELLS) return PACK_SPENT;
    search s = {.packed = items,
                .items = calloc(n + 1, sizeof *s.items),
                .n_items = (uint32_t)n,
                .sections = calloc(sections + 1, sizeof *s.sections),
                .n_sections = sections,
                .cells = calloc(cells + 1, sizeof *s.cells),
                .queue = calloc(sections + 1, sizeof *s.queue),
                .before = calloc(sections + 1, sizeof *s.before),
                .after = calloc(sections + 1, sizeof *s.after),
                .height = height,
                .limits = limits};
    pack_outcome outcome = PACK_NO_MEMORY;
    if (s.items && s.sections && s.cells && s.queue && s.before && s.after && find_twins(&s)) {
        fill_sections(&s);
        outcome = run_all(&s);
    }
    *nodes = s.nodes;
    free(s.items);
    free(s.sections);
    free(s.cells);
    free(s.queue);
    free(s.before);
    free(s.after);
    free(s.changes);
    free(s.frames);
    return outcome;
}
