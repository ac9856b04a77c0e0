/* Filling the lists of a weft_built. */
#ifndef WEFT_MODELS_BUILT_H
#define WEFT_MODELS_BUILT_H

#include <weft/build.h>

/* Append a value to the list, unless it is WEFT_NO_VALUE, and return it. */
weft_value weft__built_add_input(weft_built *built, const char *name, weft_value input);
weft_value weft__built_add_output(weft_built *built, const char *name, weft_value output);

#endif
