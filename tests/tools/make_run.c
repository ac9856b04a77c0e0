/* Writes a checkpoint of a model with its first, random parameters: make_run FILE MODEL
 * [option=value...]. For tests of what reads checkpoints. */
#include <weft/models.h>
#include <weft/weft.h>

#include <string.h>

int main(int argc, char **argv)
{
    char options[1024] = "";
    weft_error error = {0};
    weft_built built;
    const weft_model *model = argc > 2 ? weft_model_find(argv[2]) : NULL;
    if (!model) return fprintf(stderr, "make_run FILE MODEL [option=value...]\n"), 2;
    for (int i = 3; i < argc; i++) {
        if (i > 3) strncat(options, " ", sizeof options - strlen(options) - 1);
        strncat(options, argv[i], sizeof options - strlen(options) - 1);
    }
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    bool good = weft_model_build_text(g, model, (const char *const *)argv + 3, (size_t)argc - 3,
                                      false, &built, &error) == WEFT_OK &&
                weft_params_init(params, g, 1, &error) == WEFT_OK &&
                weft_params_set_meta(params, "model", model->name, NULL) == WEFT_OK &&
                weft_params_set_meta(params, "model_options", options, NULL) == WEFT_OK &&
                weft_params_save(params, argv[1], NULL, &error) == WEFT_OK;
    if (!good) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_params_free(params);
    weft_graph_free(g);
    return !good;
}
