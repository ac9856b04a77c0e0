/* A listed model with random parameters, for tests of decoding. */
#ifndef WEFT_TESTS_SUBJECT_H
#define WEFT_TESTS_SUBJECT_H

#include <weft/models.h>

typedef struct subject {
    weft_model_config config;
    weft_params *params; /* the caller frees them */
} subject;

/* Makes a model of these options; all parameters are random, biases and gains included. False after
 * a failed check. */
bool make_subject(subject *s, const char *name, const char *const *options, size_t n);

#endif
