/* The arena as an SVG: time across, bytes up, a rectangle for each buffer. A buffer has the hue of
 * the scope whose node writes it, and is paler if that node is not of the forward pass.
 * O(nodes + intervals + buffers x scopes). */
#include <weft/inspect.h>

#include "plan/plan.h"

#include "base/text.h"
#include "node_names.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The picture's measures, in its own units. */
enum { WIDTH = 960, HEIGHT = 480, LEFT = 80, TOP = 52, LEGEND = 190, BOTTOM = 48, LINES = 24 };

/* Hues that colour-blind readers can distinguish, assigned to scopes in rotation. */
static const char *const strong[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                     "#66ccee", "#aa3377", "#ee8866", "#999933"};
static const char *const pale[] = {"#b3c6dc", "#f8cdd2", "#abd3b3", "#ebe5bd",
                                   "#c6ecf8", "#dfb3cb", "#f8d3c6", "#d9d9b1"};
#define N_COLORS (sizeof strong / sizeof *strong)
#define NOBODY   "#dddddd"

/* The prefix of a scope that has a colour. */
typedef struct scope_prefix {
    const char *text;
    size_t length;
} scope_prefix;

typedef struct picture {
    FILE *file;
    const weft_plan *plan;
    const weft_plan_buffer *buffers;
    size_t n_buffers;
    double intervals, bytes; /* the axes end there; at least 1 */
    node_names names;
    size_t *writer; /* by buffer: the first node that writes it; SIZE_MAX: none */
    scope_prefix *scopes;
    size_t n_scopes;
    size_t peak, live; /* the interval in which most bytes are alive, and how many */
} picture;

/* ---- What the buffers are ---- */

/* The first two components; gradients belong to the scope of what they are gradients of. */
static scope_prefix prefix_of(const char *scope)
{
    if (!strncmp(scope, "grad", 4) && (scope[4] == '.' || !scope[4]))
        scope += 4 + (scope[4] == '.');
    size_t length = weft__text_component(scope);
    if (scope[length]) length += 1 + weft__text_component(scope + length + 1);
    return (scope_prefix){scope, length};
}

/* Its index; n_scopes if it is not there. */
static size_t find_prefix(const picture *d, scope_prefix prefix)
{
    size_t i = 0;
    while (i < d->n_scopes && (d->scopes[i].length != prefix.length ||
                               memcmp(d->scopes[i].text, prefix.text, prefix.length) != 0))
        i++;
    return i;
}

/* A view has no buffer of its own; scratch is written by the step that has it. */
static void find_writers(picture *d)
{
    const weft_graph *g = d->plan->graph;
    size_t n;
    const weft_plan_step *steps = weft_plan_steps(d->plan, &n);
    for (size_t i = 0; i < d->n_buffers; i++) d->writer[i] = SIZE_MAX;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const weft_node_info node = weft_graph_node(g, i);
        for (size_t k = 0; k < node.n_out && !node.op->alias; k++) {
            const weft_value value = weft_value_from_id(g, node.first_out + (uint32_t)k);
            const size_t b = weft_plan_buffer_of(d->plan, value);
            if (b != SIZE_MAX && d->writer[b] == SIZE_MAX) d->writer[b] = i;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (steps[i].scratch != SIZE_MAX) d->writer[steps[i].scratch] = steps[i].node;
}

/* Scopes in the order of their nodes, so that neighbours have different colours. */
static void find_scopes(picture *d)
{
    const weft_graph *g = d->plan->graph;
    for (size_t b = 0; b < d->n_buffers; b++) {
        if (d->writer[b] == SIZE_MAX) continue;
        const scope_prefix prefix = prefix_of(g->nodes[d->writer[b]].scope);
        const size_t i = find_prefix(d, prefix);
        if (i == d->n_scopes) d->scopes[d->n_scopes++] = prefix;
    }
}

static bool find_peak(picture *d)
{
    const size_t intervals = (size_t)d->intervals;
    size_t *change = calloc(2 * (intervals + 2), sizeof *change), *down = change + intervals + 2,
           live = 0;
    if (!change) return false;
    for (size_t b = 0; b < d->n_buffers; b++) {
        const weft_plan_buffer *buffer = &d->buffers[b];
        change[buffer->first] += buffer->bytes;
        down[buffer->last < intervals ? buffer->last + 1 : intervals + 1] += buffer->bytes;
    }
    for (size_t i = 0; i < intervals; i++) {
        live += change[i] - down[i];
        if (live > d->live) {
            d->live = live;
            d->peak = i;
        }
    }
    free(change);
    return true;
}

/* ---- Drawing ---- */

static void escaped(FILE *file, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        const char c = text[i];
        const char *entity = c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : NULL;
        if (entity) fputs(entity, file);
        i += entity ? 1 : weft__text_put_character(file, text + i);
    }
}

static double across(const picture *d, double interval)
{
    return LEFT + WIDTH * interval / d->intervals;
}

static double up(const picture *d, double bytes)
{
    return TOP + HEIGHT * (1 - bytes / d->bytes);
}

static const char *color_of(const picture *d, size_t writer)
{
    if (writer == SIZE_MAX) return NOBODY;
    const node_record *node = &d->plan->graph->nodes[writer];
    const size_t i = find_prefix(d, prefix_of(node->scope)) % N_COLORS;
    return node->role.direction == WEFT_FORWARD ? strong[i] : pale[i];
}

static void draw_buffer(const picture *d, size_t index)
{
    const weft_plan_buffer *b = &d->buffers[index];
    const size_t writer = d->writer[index];
    const double last = b->last < d->intervals ? b->last + 1 : d->intervals;
    fprintf(d->file,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>",
            across(d, b->first), up(d, (double)(b->offset + b->bytes)),
            WIDTH * (last - b->first) / d->intervals, HEIGHT * (double)b->bytes / d->bytes,
            color_of(d, writer));
    if (writer != SIZE_MAX) {
        escaped(d->file, d->names.at[writer], strlen(d->names.at[writer]));
        fputs(", ", d->file);
    }
    fprintf(d->file, "%zu bytes at %zu, intervals %u to %.0f</title></rect>\n", b->bytes, b->offset,
            b->first, last - 1);
}

static void label(const picture *d, double x, double y, const char *anchor, const char *text)
{
    fprintf(d->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
            text);
}

static void draw_axes(const picture *d)
{
    char text[160], number[2][TEXT_SIZE_BYTES];
    /* 1, 2 or 5 times a power of ten, for about five marks. */
    double step = pow(10, floor(log10(d->bytes / 4)));
    step *= step * 5 <= d->bytes / 4 ? 5 : step * 2 <= d->bytes / 4 ? 2 : 1;
    for (int i = 0; i * step <= d->bytes; i++) {
        const double bytes = i * step;
        fprintf(d->file, "<path d=\"M%d %.2fh-5\" stroke=\"#555\"/>\n", LEFT, up(d, bytes));
        label(d, LEFT - 8, up(d, bytes) + 4, "end", weft__text_from_bytes(bytes, number[0]));
    }
    for (int i = 0; i <= 4; i++) {
        const double interval = (double)(size_t)(d->intervals * i / 4);
        fprintf(d->file, "<path d=\"M%.2f %dv5\" stroke=\"#555\"/>\n", across(d, interval),
                TOP + HEIGHT);
        snprintf(text, sizeof text, "%.0f", interval);
        label(d, across(d, interval), TOP + HEIGHT + 18, "middle", text);
    }
    label(d, LEFT + WIDTH / 2.0, TOP + HEIGHT + 36, "middle",
          "intervals of nodes, in the order in which they run");
    snprintf(text, sizeof text,
             "%zu buffers in an arena of %s; no packing of these buffers takes less than %s",
             d->n_buffers, weft__text_from_bytes((double)d->plan->stats.arena_bytes, number[0]),
             weft__text_from_bytes((double)d->plan->stats.lower_bound_bytes, number[1]));
    label(d, LEFT, TOP - 30, "start", text);
}

/* The bound as a line across, the peak as one from bottom to top. */
static void draw_marks(const picture *d)
{
    char text[96], number[TEXT_SIZE_BYTES];
    const double bound = up(d, (double)d->plan->stats.lower_bound_bytes);
    const double peak = across(d, (double)d->peak + 0.5);
    fprintf(d->file,
            "<path d=\"M%d %.2fh%d\" stroke=\"#cc3311\" stroke-dasharray=\"6 4\"/>\n"
            "<path d=\"M%.2f %dv%d\" stroke=\"#222\" stroke-dasharray=\"2 3\"/>\n",
            LEFT, bound, WIDTH, peak, TOP, HEIGHT);
    snprintf(text, sizeof text, "peak: %s alive in interval %zu",
             weft__text_from_bytes((double)d->live, number), d->peak);
    label(d, peak, TOP - 8, peak < LEFT + 100 ? "start" : "middle", text);
    fprintf(d->file, "<text x=\"%d\" y=\"%.1f\" fill=\"#cc3311\">lower bound</text>\n",
            LEFT + WIDTH + 8, bound + 4);
}

static void draw_legend(const picture *d)
{
    const int x = LEFT + WIDTH + 10;
    int y = TOP + 24;
    char text[64];
    for (size_t i = 0; i < d->n_scopes && i < LINES; i++, y += 18) {
        fprintf(d->file,
                "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>"
                "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"%d\">",
                x, y, strong[i % N_COLORS], x + 10, y, pale[i % N_COLORS], x + 26, y + 9);
        if (d->scopes[i].length)
            escaped(d->file, d->scopes[i].text, d->scopes[i].length);
        else
            fputs("(no scope)", d->file);
        fputs("</text>\n", d->file);
    }
    if (d->n_scopes > LINES) {
        snprintf(text, sizeof text, "and %zu more", d->n_scopes - LINES);
        label(d, x + 26, y + 9, "start", text);
        y += 18;
    }
    label(d, x, y + 14, "start", "pale: gradients, updates");
}

static void draw(picture *d)
{
    fprintf(d->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f4f4f2\"/>\n"
            "<g stroke=\"#fff\" stroke-width=\"0.4\">\n",
            LEFT + WIDTH + LEGEND, TOP + HEIGHT + BOTTOM, LEFT, TOP, WIDTH, HEIGHT);
    for (size_t i = 0; i < d->n_buffers; i++) draw_buffer(d, i);
    fputs("</g>\n", d->file);
    draw_axes(d);
    draw_marks(d);
    draw_legend(d);
    fputs("</svg>\n", d->file);
}

weft_status weft_plan_write_svg(const weft_plan *plan, FILE *file, weft_error *error)
{
    weft_error_clear(error);
    picture d = {.file = file, .plan = plan};
    if (!file) return weft_error_set(error, WEFT_BAD_ARGUMENT, "plan", "the file is NULL");
    d.buffers = weft_plan_buffers(plan, &d.n_buffers);
    d.intervals = plan->stats.intervals ? (double)plan->stats.intervals : 1;
    d.bytes = plan->stats.arena_bytes ? (double)plan->stats.arena_bytes : 1;
    d.writer = malloc((d.n_buffers + 1) * sizeof *d.writer);
    d.scopes = calloc(d.n_buffers + 1, sizeof *d.scopes);
    bool good = d.writer && d.scopes && weft__node_names_make(&d.names, plan->graph);
    if (good) find_writers(&d);
    good = good && find_peak(&d);
    if (good) {
        find_scopes(&d);
        draw(&d);
    }
    weft__node_names_free(&d.names);
    free(d.writer);
    free(d.scopes);
    if (!good) return weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for a picture");
    /* A full disk is noticed only when the file is flushed. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "plan", "the picture cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}
