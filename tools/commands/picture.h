/* Line plots and heat maps as SVG or PNG, drawn by the program gnuplot (Debian package
 * gnuplot-nox). */
#ifndef WEFT_TOOLS_PLOT_H
#define WEFT_TOOLS_PLOT_H

#include "options.h"

#include <stdbool.h>
#include <stddef.h>

/* The format that the extension of a file's name determines, in any case. */
typedef enum picture_kind {
    PICTURE_NONE, /* no known picture format */
    PICTURE_SVG,
    PICTURE_PNG,
    PICTURE_OTHER /* a format that weft does not write, such as .jpg or .pdf */
} picture_kind;
picture_kind picture_kind_of(const char *path);
/* Ends the program with a usage error if the option's PATH ends like a picture other than SVG or
 * PNG. */
void plot_check_name(const char *path, const char *option, const tool_parser *parser);

typedef struct plot_series {
    const char *name; /* in the legend */
    const double *x, *y;
    size_t n; /* points; one that is not finite is left out */
} plot_series;

typedef struct plot {
    const char *title, *x_label, *y_label; /* plain text, UTF-8 */
    const plot_series *series;
    size_t n_series;
} plot;

/* Draws into a file: PNG if its name ends in .png, else SVG; "-" is standard output. Afterwards the
 * file has the whole picture or is unchanged (base/file.h). Prints a failure, such as a missing
 * gnuplot, in one line on stderr. Returns the exit status. */
int plot_write(const plot *p, const char *path);

/* Numbers from 0 to 1 as shades; the first row is at the top. */
typedef struct heat_map {
    const char *title;
    const char *const *columns, *const *rows; /* labels, plain text, UTF-8 */
    size_t n_columns, n_rows;
    const double *values; /* [n_rows][n_columns] */
} heat_map;
/* As plot_write. */
int plot_write_heat(const heat_map *map, const char *path);

#endif
