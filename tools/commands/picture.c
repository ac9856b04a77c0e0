/* Draws pictures with gnuplot. The script and its data go to gnuplot's standard input. This program
 * writes the picture from gnuplot's standard output, because gnuplot reports success even if the
 * disk is full. Only the last line of a script draws, so all of it is sent before anything is read.
 */
#include "picture.h"

#include "tool.h"

#include "base/file.h"
#include "base/text.h"
#include "base/platform.h"
#include "system.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A text in gnuplot's double quotes, with special characters escaped. (Single quotes lose a text
 * that is a single quote.) Labels of an axis are number formats, so % is doubled in them. */
static void quote(FILE *f, const char *text, bool is_format)
{
    char shown[TOOL_NAME_BYTES];
    fputc('"', f);
    for (const char *at = tool_printable(text, shown); *at; at++) {
        if (*at == '"' || *at == '\\') fputc('\\', f);
        if (*at == '%' && is_format) fputc('%', f);
        fputc(*at, f);
    }
    fputc('"', f);
}

static void set(FILE *f, const char *what, const char *text)
{
    fprintf(f, "set %s ", what);
    quote(f, text ? text : "", false);
    fputc('\n', f);
}

static void write_lines(const void *picture, const char *terminal, FILE *f)
{
    const plot *p = picture;
    fprintf(f,
            "set encoding utf8\n"
            "set terminal %s size 800,500 noenhanced background rgb 'white'\n"
            "set grid\nset tics nomirror\nset key outside bottom center horizontal\n",
            terminal);
    set(f, "title", p->title);
    set(f, "xlabel", p->x_label);
    set(f, "ylabel", p->y_label);
    for (size_t i = 0; i < p->n_series; i++) {
        const plot_series *s = &p->series[i];
        fprintf(f, "$series%zu << END\n", i);
        for (size_t k = 0; k < s->n; k++)
            if (isfinite(s->x[k]) && isfinite(s->y[k]))
                weft__text_print(f, "%.9g %.9g\n", s->x[k], s->y[k]);
        fprintf(f, "END\n");
    }
    for (size_t i = 0; i < p->n_series; i++) {
        fprintf(f, "%s$series%zu with lines linewidth 2 title ", i ? ", " : "plot ", i);
        quote(f, p->series[i].name, false);
    }
    fputc('\n', f);
}

static void write_labels(FILE *f, const char *axis, const char *const *labels, size_t n)
{
    fprintf(f, "set %s (", axis);
    for (size_t i = 0; i < n; i++) {
        if (i) fputs(", ", f);
        quote(f, labels[i], true);
        fprintf(f, " %zu", i);
    }
    fputs(")\n", f);
}

static void write_heat(const void *picture, const char *terminal, FILE *f)
{
    const heat_map *m = picture;
    fprintf(f,
            "set encoding utf8\n"
            "set terminal %s size %zu,%zu noenhanced background rgb 'white'\n"
            "set palette defined (0 'white', 0.5 '#6baed6', 1 '#08306b')\nset cbrange [0:*]\n"
            "set xrange [-0.5:%zu.5]\nset yrange [%zu.5:-0.5]\n"
            "set tics scale 0\nset xtics rotate by 90 right\nunset key\n",
            terminal, 220 + 22 * m->n_columns, 200 + 18 * m->n_rows, m->n_columns - 1,
            m->n_rows - 1);
    set(f, "title", m->title);
    write_labels(f, "xtics", m->columns, m->n_columns);
    write_labels(f, "ytics", m->rows, m->n_rows);
    fprintf(f, "$cells << END\n");
    for (size_t r = 0; r < m->n_rows; r++)
        for (size_t c = 0; c < m->n_columns; c++)
            weft__text_print(f, "%zu %zu %.6g\n", c, r, m->values[r * m->n_columns + c]);
    fprintf(f, "END\nplot $cells using 1:2:(0.5):(0.5):3 with boxxyerror fillcolor palette "
               "fillstyle solid noborder\n");
}

/* Writes the script of a picture. */
typedef void script(const void *picture, const char *terminal, FILE *f);

typedef struct drawing {
    script *write;
    const void *picture;
    const char *terminal;
} drawing;

static void write_script(void *context, FILE *to)
{
    const drawing *d = context;
    d->write(d->picture, d->terminal, to);
}

/* Copies the output of gnuplot into the file, which records its own errors. */
static bool receive(const system_child *gnuplot, file_writer *file)
{
    char block[65536];
    ptrdiff_t n;
    while ((n = system_receive(gnuplot, block, sizeof block)) > 0)
        weft__file_write(file, block, (size_t)n);
    return n == 0;
}

/* Runs gnuplot into the open file; prints a failure. Its standard error is discarded: remarks about
 * the script do not help the user. */
static int draw(script *write, const void *picture, const char *path, file_writer *file)
{
    system_child gnuplot;
    const int failed = system_start(&gnuplot, "gnuplot");
    if (failed == ENOENT)
        return tool_fail_text(path, "cannot be drawn: gnuplot is not installed (Debian package "
                                    "gnuplot-nox)");
    if (failed) return tool_fail_text(path, "gnuplot does not start: %s", strerror(failed));
    drawing d = {write, picture, picture_kind_of(path) == PICTURE_PNG ? "pngcairo" : "svg"};
    const bool sent = system_send(&gnuplot, write_script, &d);
    const bool received = receive(&gnuplot, file);
    const int status = system_wait(&gnuplot);
    if (sent && received && status == 0) return EXIT_GOOD;
    return tool_fail_text(path, "gnuplot failed (status %d)", status);
}

static int draw_file(script *write, const void *picture, const char *path)
{
    file_writer file;
    bool standard = !strcmp(path, "-");
    if (standard)
        file = (file_writer){.path = path, .descriptor = weft__os_duplicate(fileno(stdout))};
    if (standard ? file.descriptor < 0 : !weft__file_begin_stream(&file, path))
        return tool_fail_text(path, "cannot be written: %s", strerror(errno));
    int status = draw(write, picture, path, &file);
    if (status != EXIT_GOOD)
        weft__file_abandon(&file);
    else if (!weft__file_commit(&file))
        status =
            tool_fail_text(standard ? "output" : path, "cannot be written: %s", strerror(errno));
    return status;
}

int plot_write(const plot *p, const char *path)
{
    return draw_file(write_lines, p, path);
}

int plot_write_heat(const heat_map *map, const char *path)
{
    return draw_file(write_heat, map, path);
}

/* ---- Names ---- */

picture_kind picture_kind_of(const char *path)
{
    static const char *const others[] = {".jpg", ".jpeg", ".pdf",  ".gif", ".eps",
                                         ".ps",  ".tif",  ".tiff", ".bmp", ".webp"};
    const char *dot = strrchr(path, '.');
    if (!dot) return PICTURE_NONE;
    if (!strcasecmp(dot, ".svg")) return PICTURE_SVG;
    if (!strcasecmp(dot, ".png")) return PICTURE_PNG;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcasecmp(dot, others[i])) return PICTURE_OTHER;
    return PICTURE_NONE;
}

void plot_check_name(const char *path, const char *option, const tool_parser *parser)
{
    if (picture_kind_of(path) == PICTURE_OTHER)
        tool_usage_error(parser,
                         "%s %s: name the picture .svg or .png, the two formats that weft draws",
                         option, path);
}
