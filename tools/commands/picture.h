/* Line plots and heat maps as SVG or PNG, drawn by the program gnuplot (Debian package
 * gnuplot-nox). */
#ifndef WEFT_TOOLS_PLOT_H
#define WEFT_TOOLS_PLOT_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

/* What the ending of a file's name promises, in capitals or not. */
typedef enum picture_kind {
    PICTURE_NONE, /* no picture that is known */
    PICTURE_SVG,
    PICTURE_PNG,
    PICTURE_OTHER /* one that weft does not write, such as .jpg or .pdf */
} picture_kind;
picture_kind picture_kind_of(const char *path);
/* Ends the program with a usage error if PATH, of the option, promises another picture than SVG or
 * PNG. */
void plot_check_name(const char *path, const char *option, struct argp_state *state);

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

/* Draws into a file: PNG if its name ends so, else SVG; "-" is standard output. PATH is a whole
 * picture afterwards, or as it was (base/file.h). Returns the exit status; a failure, also that
 * gnuplot is not installed, is printed on stderr in one line. */
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
