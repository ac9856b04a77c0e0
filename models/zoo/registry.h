/* The models that registry.c lists, each declared in the file of its architecture. */
#ifndef WEFT_MODELS_REGISTRY_H
#define WEFT_MODELS_REGISTRY_H

#include "base/private.h"

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

/* Kinds of options: a number, 0 or 1, or choices that several models share, in the order of the
 * enums of models.h. */
#define NUMBER         .flag = false
#define FLAG           .flag = true
#define NUMBERS        .list = true
#define NORM_POSITIONS .choices = "pre|post|post-dropped|both"
#define POSITIONS      .choices = "none|sinusoidal|learned|sinusoidal-halves"
#define OUTPUT_BIASES  .choices = "untied|none|always"
#define ACTIVATIONS    .choices = "relu|gelu|gelu-tanh|silu"
#define ROTARY_RULES   .choices = "none|linear|llama3|yarn|longrope"

/* A row of a table of options: name, field of the struct `type`, default, kind, documentation. A
 * number is whole unless the field is a double. */
#define MODEL_OPTION(type, called, field, initial, kind, text)                                     \
    {                                                                                              \
        .name = #called, .doc = (text), .value = (initial), kind,                                  \
        .real = IS_DOUBLE(((type *)0)->field), .offset = offsetof(type, field),                    \
        .size = sizeof((type *)0)->field                                                           \
    }
#define IS_DOUBLE(field) _Generic((field), double : true, default : false)

/* Sizes of a batch. */
#define SIZE(called, field, value, text)                                                           \
    MODEL_OPTION(weft_batch_shape, called, field, value, NUMBER, text)
#define PAIR_SIZES(n, source, target)                                                              \
    {                                                                                              \
        SIZE(batch, rows, n, "sentences"),                                                         \
            SIZE(source_len, source_len, source, "tokens of a source sentence"),                   \
            SIZE(target_len, target_len, target, "tokens of a target sentence")                    \
    }
#define SEQUENCE_SIZES(n, tokens)                                                                  \
    {                                                                                              \
        SIZE(batch, rows, n, "sequences"),                                                         \
            SIZE(length, target_len, tokens, "tokens of a sequence")                               \
    }

/* Define functions of a listed model, from the one of its architecture. `configure` makes the
 * architecture's configuration of the model's options. */
#define LISTED_BUILD(name, config_type, configure, function)                                       \
    static weft_built name(weft_graph *graph, const void *values,                                  \
                           const weft_build_options *build_options)                                \
    {                                                                                              \
        const config_type config = configure(values);                                              \
        return function(graph, &config, build_options);                                            \
    }
#define LISTED_DECODE(name, config_type, configure, function)                                      \
    static weft_decode_io name(weft_graph *graph, const void *values, const weft_decode_io *sizes) \
    {                                                                                              \
        const config_type config = configure(values);                                              \
        return function(graph, &config, sizes);                                                    \
    }
#define FITS(type) _Static_assert(sizeof(type) <= WEFT_MODEL_BYTES, "options of a model")

#define DECLARE_MODEL(name) extern const weft_model weft__model_##name;
MODELS(DECLARE_MODEL)
#undef DECLARE_MODEL

/* Copies the field of an option between two structs of options. */
WEFT_PRIVATE_API void weft__option_copy(const weft_model_option *o, void *into, const void *from);

/* Splits "key=value key=value ..." in place into its words, at most `capacity`; returns how many. */
WEFT_PRIVATE_API size_t weft__options_split(char *text, const char **words, size_t capacity);

#endif
