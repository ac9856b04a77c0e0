/* Line plots and heat maps as SVG files, drawn by the program gnuplot (Debian package gnuplot-nox).
 */
#ifndef WEFT_TOOLS_PLOT_H
#define WEFT_TOOLS_PLOT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct plot_series {
    const char *name; /* in the legend */
    const double *x, *y;
    size_t n; /* points; one that is not finite, or not positive on a log scale, is left out */
} plot_series;

typedef struct plot {
    const char *title, *x_label, *y_label; /* plain text, UTF-8 */
    bool log_y;
    const plot_series *series;
    size_t n_series;
} plot;

/* PATH is a whole file afterwards, or as it was (base/file.h). Returns the exit status; a failure,
 * also that gnuplot is not installed, is told on stderr in one line. */
int plot_svg(const plot *p, const char *path);

/* Numbers from 0 to 1 as shades; the first row is at the top. */
typedef struct heat_map {
    const char *title;
    const char *const *columns, *const *rows; /* labels, plain text, UTF-8 */
    size_t n_columns, n_rows;
    const double *values; /* [n_rows][n_columns] */
} heat_map;
/* As plot_svg. */
int plot_heat_svg(const heat_map *map, const char *path);

#endif
