/* The hashes of weft_model_bits on every processor. After a change of docs/arithmetic.md, these rows
 * are those of
 *
 *     weft check --bits | awk '{ printf "    {\"%s\", 0x%su},\n", $1, $2 }' */
#ifndef WEFT_ZOO_SPECIFIED_BITS_H
#define WEFT_ZOO_SPECIFIED_BITS_H

#include <stdint.h>

static const struct {
    const char *model;
    uint64_t hash;
} specified[] = {
    {"transformer", 0x8e75e16f7e04a5bau},
    {"transformer-base", 0x4f49df048b005da6u},
    {"transformer-shared", 0x57b502924628666bu},
    {"encoder", 0x7d589909a01d2d00u},
    {"attention", 0x04365c13e03e8129u},
    {"feed-forward", 0x27388b7f81e5124au},
    {"bert", 0xb2dd61010dfbbcc4u},
    {"gpt", 0xbb9083a089cf3970u},
    {"llama", 0x82e226116d95c7e9u},
    {"rnn", 0x1137e78d255ab6c7u},
    {"lstm", 0x7753d0620808f681u},
    {"gru", 0x3c4f091050b4f0d3u},
    {"seq2seq", 0xe68db8d60b4653b4u},
    {"resnet", 0xfd2f2504cd66b962u},
    {"mobilenet", 0x15d243bd0fa5a490u},
    {"vit", 0x484357eb66d6ee37u},
};

#endif
