/* The table of a recipe's options, for the files that read and write it. */
#ifndef WEFT_TOOLS_RECIPE_TABLE_H
#define WEFT_TOOLS_RECIPE_TABLE_H

#include "recipe.h"

/* The commands that have a row. */
typedef enum recipe_of {
    RECIPE_OF_TRAIN = 1,
    RECIPE_OF_FIT = 2,
    RECIPE_OF_BOTH = RECIPE_OF_TRAIN | RECIPE_OF_FIT,
    RECIPE_OF_PLACE = 4 | RECIPE_OF_BOTH /* depends on the machine */
} recipe_of;

typedef struct recipe_row {
    const char *section, *key;
    recipe_of of;
    tool_option option; /* on the command line; its field is one of a recipe */
} recipe_row;

extern const recipe_row recipe_rows[];
extern const size_t n_recipe_rows;

/* Texts of a recipe that are not read: a remark, and the schema that an editor uses. */
#define RECIPE_IGNORED 2
extern const char *const recipe_ignored[RECIPE_IGNORED];

/* Bounds of batches.lengths. */
#define RECIPE_MIN_LENGTH 3
#define RECIPE_MAX_LENGTH (1 << 20)

/* Whether `weft fit`, or else `weft train`, has the row. */
static inline bool recipe_has(bool fits, const recipe_row *row)
{
    return row->of & (fits ? RECIPE_OF_FIT : RECIPE_OF_TRAIN);
}
/* Bytes of "INPUT=" before a file's name. */
size_t recipe_input_prefix(const recipe_row *row, const char *name);

/* Each takes a value; false if the row does not allow it, or out of memory. */
/* Adds a length to an ascending list. */
bool recipe_add_length(recipe_list *list, double x);
/* Adds a file to a list; "" empties it. */
bool recipe_add_file(recipe_files *list, const char *name);
/* Describes the allowed values of a row, for messages. */
const char *recipe_wanted(const recipe_row *row, char *text, size_t size);
/* A value as JSON; NULL if out of memory. */
cJSON *recipe_value_json(const recipe *r, const recipe_row *row);
/* FOLDER/NAME, or NAME alone if it is absolute, is standard input, or the folder is ""; the caller
 * frees it. NULL if out of memory. */
char *recipe_join(const char *folder, const char *name);
bool recipe_has_relative_file(recipe *r);
/* Makes relative file names relative to a folder; false if out of memory. */
bool recipe_place_files(recipe *r, const char *folder);

#endif
