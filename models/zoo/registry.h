/* The models that registry.c lists, each declared in the file of its architecture. */
#ifndef WEFT_MODELS_REGISTRY_H
#define WEFT_MODELS_REGISTRY_H

#include <weft/models.h>

#include <stddef.h>

#define MODELS(X)                                                                                  \
    X(transformer)                                                                                 \
    X(transformer_base)                                                                            \
    X(transformer_shared)                                                                          \
    X(encoder)                                                                                     \
    X(attention)                                                                                   \
    X(feed_forward)                                                                                \
    X(bert)                                                                                        \
    X(gpt)                                                                                         \
    X(llama)                                                                                       \
    X(rnn)                                                                                         \
    X(lstm)                                                                                        \
    X(gru)                                                                                         \
    X(seq2seq)                                                                                     \
    X(resnet)                                                                                      \
    X(mobilenet)                                                                                   \
    X(vit)

/* Kinds of options: a whole number, 0 or 1, any number, or choices that several models share, in
 * the order of the enums of models.h. */
#define WHOLE          .real = false
#define FLAG           .flag = true
#define REAL           .real = true
#define NORM_POSITIONS .choices = "pre|post|post-dropped"
#define POSITIONS      .choices = "none|sinusoidal|learned|sinusoidal-halves"
#define OUTPUT_BIASES  .choices = "untied|none|always"
#define ACTIVATIONS    .choices = "relu|gelu|gelu-tanh|silu"

/* Sizes of a batch. */
#define SIZE(name, field, value, doc)                                                              \
    {                                                                                              \
        name, doc, offsetof(weft_batch_shape, field), value                                        \
    }
#define PAIR_SIZES(batch, source, target)                                                          \
    {                                                                                              \
        SIZE("batch", rows, batch, "sentences"),                                                   \
            SIZE("source_len", source_len, source, "tokens of a source sentence"),                 \
            SIZE("target_len", target_len, target, "tokens of a target sentence")                  \
    }
#define SEQUENCE_SIZES(batch, length)                                                              \
    {                                                                                              \
        SIZE("batch", rows, batch, "sequences"),                                                   \
            SIZE("length", target_len, length, "tokens of a sequence")                             \
    }

/* Define functions of a listed model. `configure` converts option values to the architecture's
 * configuration; `function` builds its graph. */
#define LISTED_BUILD(name, config_type, configure, function)                                       \
    static weft_status name(weft_graph *graph, const double *values,                               \
                            const weft_build_options *build_options, weft_model_io *io)            \
    {                                                                                              \
        const config_type config = configure(values);                                              \
        return function(graph, &config, build_options, io);                                        \
    }
#define LISTED_DECODE(name, config_type, configure, function)                                      \
    static weft_status name(weft_graph *graph, const double *values, weft_decode_io *io)           \
    {                                                                                              \
        const config_type config = configure(values);                                              \
        return function(graph, &config, io);                                                       \
    }

#define DECLARE_MODEL(name) extern const weft_model weft__model_##name;
MODELS(DECLARE_MODEL)
#undef DECLARE_MODEL

#endif
