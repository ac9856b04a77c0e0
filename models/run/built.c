/* The named inputs and outputs of a built graph. */
#include "run/built.h"

#include <string.h>

weft_value weft__built_add_input(weft_built *built, const char *name, weft_value input)
{
    if (!weft_is_value(input)) return input;
    built->input_names[built->n_inputs] = name;
    return built->inputs[built->n_inputs++] = input;
}

weft_value weft__built_add_output(weft_built *built, const char *name, weft_value output)
{
    if (!weft_is_value(output)) return output;
    built->output_names[built->n_outputs] = name;
    return built->outputs[built->n_outputs++] = output;
}

static weft_value find(const weft_value *values, const char *const *names, size_t n,
                       const char *name)
{
    for (size_t i = 0; name && i < n && i < WEFT_BUILT_VALUES; i++)
        if (names[i] && !strcmp(names[i], name)) return values[i];
    return WEFT_NO_VALUE;
}

weft_value weft_built_input(const weft_built *built, const char *name)
{
    if (!built) return WEFT_NO_VALUE;
    return find(built->inputs, built->input_names, built->n_inputs, name);
}

weft_value weft_built_output(const weft_built *built, const char *name)
{
    if (!built) return WEFT_NO_VALUE;
    return find(built->outputs, built->output_names, built->n_outputs, name);
}
