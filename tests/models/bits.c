/* Whether ops and listed models have the specified bits: for ports to processors and systems where the program weft has
 * not been built. */
#include <weft/autograd.h>
#include <weft/models.h>
#include <weft/ops.h>

#include <stdio.h>

int main(void)
{
    int differ = 0;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        uint64_t hash = 0;
        if (!op->n_samples ||
            (weft_op_bits(op, &hash, NULL) == WEFT_OK && hash == weft_op_specified_bits(op)))
            continue;
        printf("%-20s differs\n", op->name);
        differ++;
    }
    if (!differ) printf("ops as specified\n");
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *model = weft_model_at(i);
        const uint64_t wanted = weft_model_specified_bits(model);
        uint64_t hash = 0;
        weft_error error;
        if (weft_model_bits(model, NULL, 0, 0, &hash, &error) != WEFT_OK) {
            fprintf(stderr, "%s: %s\n", model->name, error.message);
            return 2;
        }
        printf("%-20s %016llx%s\n", model->name, (unsigned long long)hash,
               hash == wanted ? " as specified" : " differs");
        differ += hash != wanted;
    }
    return differ > 0;
}
