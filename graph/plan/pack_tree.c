/* A search for offsets with which no item ends above a given height. It may prove that there are
 * none.
 *
 * Items are dropped on a skyline, one height for each section of time. Any packing can be pushed
 * down until every item lies on the floor or on another one. So it is enough to branch on one
 * section of a valley (neighbouring sections of one height between higher ones): which item begins
 * there?
 *
 *           height|  ____         The candidates are the items that are alive in the section and
 *                 | |    |  ___   only inside the valley. If none begins, the section rises to the
 *                 | |    |_|_s_|  least height at which one can, and what it rises by is wasted.
 *       time ->   |
 *
 * The branches exclude each other and are complete. What prunes the tree:
 * - every item has a height that it cannot begin below, the skyline over its lifetime; the items
 *   of a section, taken in order of that height, must end in time one after the other (as jobs with
 *   release times on one machine), which also bounds the waste;
 * - intervals of time that no waiting item connects are solved one after the other; if one has no
 *   solution, neither is explored further;
 * - an item over the whole of such an interval goes first; equal items go in order of their index;
 * - the search branches on the section with the fewest candidates for its weight. The weight of a
 *   section grows whenever its bounds end a branch.
 * A trail holds what each change has overwritten, so that backtracking undoes it. A node takes
 * O(items alive x sections) at worst; memory is O(items x sections). */
#include "pack_tree.h"

#include "base/platform.h"

#include <math.h>
#include <stdlib.h>

/* ---- The state and its trail ---- */

static bool stop(search *s, pack_outcome why)
{
    if (!s->stopped) s->why = why;
    s->stopped = true;
    return false;
}

static void push_change(search *s, change c)
{
    if (s->n_changes == s->trail_capacity) {
        size_t capacity = s->trail_capacity ? 2 * s->trail_capacity : 1024;
        change *grown = realloc(s->trail, capacity * sizeof *grown);
        if (!grown) {
            stop(s, PACK_NO_MEMORY);
            return;
        }
        s->trail = grown;
        s->trail_capacity = capacity;
    }
    s->trail[s->n_changes++] = c;
}

void weft__tree_enqueue(search *s, uint32_t at)
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
    push_change(s, (change){CHANGE_HEIGHT, at, c->height, c->solid});
    c->height = height;
    c->solid = solid;
}

/* Raises sections to one height, and with them the items alive in them. The lifetimes of these
 * items cover an interval of time without a gap, whose bounds have to be checked. */
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
            push_change(s, (change){CHANGE_LOW, i, s->items[i].low, false});
            s->items[i].low = height;
            if (s->packed[i].first < from) from = s->packed[i].first;
            if (s->packed[i].last > to) to = s->packed[i].last;
        }
    }
    for (uint32_t t = from; t <= to; t++) {
        /* In the raised sections all lower items are now equal, so their order still holds. */
        if (t < first || t > last) s->sections[t].sorted = false;
        weft__tree_enqueue(s, t);
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

/* Undoes take_from_section. The last item taken is the first to return, and already lies there. */
static void return_to_section(section *c, const pack_item *item)
{
    c->waiting++;
    c->waiting_bytes += item->size;
}

static void place_item(search *s, uint32_t i)
{
    pack_item *item = &s->packed[i];
    item->offset = s->items[i].low;
    push_change(s, (change){CHANGE_PLACE, i, item->offset, false});
    s->items[i].low = PLACED;
    for (uint32_t t = item->first; t <= item->last; t++) {
        take_from_section(&s->sections[t], i, item);
        s->sections[t].crossing -= t < item->last;
    }
    raise_sections(s, item->first, item->last, item->offset + item->size, true);
}

void weft__tree_undo(search *s, size_t n_changes)
{
    uint32_t from = s->n_sections, to = 0;
    while (s->n_changes > n_changes) {
        const change *c = &s->trail[--s->n_changes];
        if (c->kind == CHANGE_HEIGHT) {
            s->sections[c->index].height = c->old;
            s->sections[c->index].solid = c->solid;
            continue;
        }
        const pack_item *item = &s->packed[c->index];
        s->items[c->index].low = c->old;
        if (item->first < from) from = item->first;
        if (item->last > to) to = item->last;
        for (uint32_t t = item->first; t <= item->last && c->kind == CHANGE_PLACE; t++) {
            return_to_section(&s->sections[t], item);
            s->sections[t].crossing += t < item->last;
        }
    }
    for (uint32_t t = from; t <= to && t < s->n_sections; t++) s->sections[t].sorted = false;
}

/* ---- Bounds ---- */

/* Sorts the items that wait in a section, and raises it to where the first of them can begin. */
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

/* Can all items that wait in the section still end below the height? */
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

/* Is item i a candidate: may it begin at the height of the section, in which it is alive? */
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

/* Sets, for each section of a valley, the least height at which an item of an earlier section
 * (before[]) or of a later one (after[]) can end. */
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
 * SIZE_MAX if that wastes too much. The lowest item that begins there later begins at its own low,
 * or lies on an item that is alive in a neighbouring section. */
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

/* Compares the branches at the sections of one valley with the best so far; false if one of them
 * has no candidate and cannot rise. */
static bool rate_valley(search *s, uint32_t first, uint32_t last, branch *best)
{
    measure_valley(s, first, last);
    for (uint32_t at = first; at <= last; at++) {
        section *c = &s->sections[at];
        branch b = {at, first, last, SIZE_MAX, 0};
        double limit = best->at == NONE ? INFINITY : best->cost * c->weight;
        uint32_t candidates = 0;
        for (uint32_t k = 0; k < c->waiting && s->items[c->items[k]].low == c->height; k++) {
            candidates += may_begin(s, c->items[k], c);
            if (candidates > 1 && candidates >= limit) break;
        }
        if (candidates > 1 && candidates >= limit) continue;
        if (c->height + c->waiting_bytes < s->height) b.next = next_height(s, at);
        candidates += b.next != SIZE_MAX;
        if (!candidates) {
            c->weight += 1;
            return false;
        }
        b.cost = candidates == 1 ? 0 : candidates / c->weight;
        if (best->at == NONE || b.cost < best->cost) *best = b;
        if (!b.cost) return true;
    }
    return true;
}

/* Finds the next valley from section *begin on; *end is its last section. A valley that has risen
 * when settled is another one, or none: then the caller starts again. */
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

/* Finds the branch with the fewest candidates in an interval; false if a section has none. */
static bool best_branch(search *s, uint32_t first, uint32_t last, branch *best)
{
    best->at = NONE;
    uint32_t begin = first, end;
    while (next_valley(s, first, last, &begin, &end)) {
        if (settle_valley(s, begin, end)) {
            best->at = NONE;
            begin = first;
            continue;
        }
        if (!rate_valley(s, begin, end, best)) return false;
        if (best->at != NONE && !best->cost) return true;
        begin = end + 1;
    }
    return best->at != NONE;
}

/* The candidate after `previous` (NONE: the first) in order of the keys, or NONE. */
static uint32_t next_candidate(const search *s, const section *c, uint32_t previous)
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

/* Opens a frame for an interval of time, unless its bounds show that it has no solution. */
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

/* Finds the next component in which items wait; false if there is none. */
static bool next_component(const search *s, frame *f)
{
    while (f->next <= f->last) {
        f->begin = f->end = f->next;
        while (f->end < f->last && s->sections[f->end].crossing) f->end++;
        f->next = f->end + 1;
        if (s->sections[f->begin].waiting) return true;
    }
    return false;
}

/* Chooses the branch of the frame's component; false if a section has no candidate, or the run
 * ends. */
static bool choose_branch(search *s, frame *f)
{
    if (s->nodes >= s->run_end) return stop(s, PACK_SPENT);
    if (s->limits->deadline > 0 && s->nodes % 64 == 0 && clock_seconds() >= s->limits->deadline)
        return stop(s, PACK_SPENT);
    s->nodes++;
    if (!best_branch(s, f->begin, f->end, &f->branch)) return false;
    f->candidate = NONE;
    f->final = false;
    f->n_changes = s->n_changes;
    return true;
}

/* The first candidate that is alive in the whole component, or NONE. */
static uint32_t item_over_whole(const search *s, const frame *f)
{
    const section *c = &s->sections[f->branch.at];
    if (f->branch.first != f->begin || f->branch.last != f->end) return NONE;
    for (uint32_t k = 0; k < c->waiting; k++) {
        const pack_item *item = &s->packed[c->items[k]];
        if (item->first == f->begin && item->last == f->end && may_begin(s, c->items[k], c))
            return c->items[k];
    }
    return NONE;
}

/* Places the next candidate, or at last raises the section. False if nothing is left to try. */
static bool try_candidate(search *s, frame *f)
{
    if (s->stopped || f->final) return false;
    if (f->candidate == NONE) {
        f->candidate = item_over_whole(s, f);
        f->final = f->candidate != NONE;
    }
    if (!f->final) f->candidate = next_candidate(s, &s->sections[f->branch.at], f->candidate);
    if (f->candidate != NONE) {
        place_item(s, f->candidate);
        return true;
    }
    f->final = true;
    if (f->branch.next == SIZE_MAX) return false;
    raise_sections(s, f->branch.at, f->branch.at, f->branch.next, false);
    return true;
}

/* Without recursion: the tree may be as deep as there are items. `good`: what was entered last is
 * not refuted. */
bool weft__tree_solve(search *s, uint32_t first, uint32_t last)
{
    s->n_frames = 0;
    bool good = enter(s, first, last);
    while (s->n_frames) {
        frame *f = &s->frames[s->n_frames - 1];
        bool open = true;
        if (good) {
            open = next_component(s, f);
            if (open) open = good = choose_branch(s, f);
        } else {
            empty_queue(s);
            weft__tree_undo(s, f->n_changes);
        }
        if (open) open = good = try_candidate(s, f);
        if (open)
            good = !s->stopped && enter(s, f->begin, f->end);
        else
            s->n_frames--;
    }
    return good;
}
