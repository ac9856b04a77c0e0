/* The models that registry.c lists, each declared in the file of its architecture. */
#ifndef WEFT_MODELS_REGISTRY_H
#define WEFT_MODELS_REGISTRY_H

#include <weft/models.h>

#define MODELS(X)                                                                                  \
    X(transformer)                                                                                 \
    X(transformer_base)                                                                            \
    X(transformer_shared)                                                                          \
    X(encoder) X(attention) X(feed_forward) X(bert) X(gpt) X(llama) X(rnn) X(lstm) X(gru) X(seq2seq)

/* The kind of an option: a whole number, one that is 0 or 1, one that need not be whole, or the
 * choices of options that several models have, in the order of the enums of models.h. */
#define WHOLE       .real = false
#define FLAG        .flag = true
#define REAL        .real = true
#define NORM_PLACES .choices = "pre|post|post-dropped"
#define POSITIONS   .choices = "none|sinusoidal|learned"
#define ACTIVATIONS .choices = "relu|gelu|gelu-tanh|silu"

#define DECLARE_MODEL(name) extern const weft_model model_##name;
MODELS(DECLARE_MODEL)
#undef DECLARE_MODEL

#endif
