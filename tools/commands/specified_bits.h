/* The hashes that `weft check --bits` prints on every processor. After a change of
 * docs/arithmetic.md, these rows are those of
 *
 *     weft check --bits | awk '{ printf "    {\"%s\", \"%s\"},\n", $1, $2 }' */
#ifndef WEFT_SPECIFIED_BITS_H
#define WEFT_SPECIFIED_BITS_H

/* Model, hash of its parameters (weft_params_hash). */
static const char *const specified[][2] = {
    {"transformer", "8e75e16f7e04a5ba"},
    {"transformer-base", "4f49df048b005da6"},
    {"transformer-shared", "57b502924628666b"},
    {"encoder", "7d589909a01d2d00"},
    {"attention", "04365c13e03e8129"},
    {"feed-forward", "27388b7f81e5124a"},
    {"bert", "b2dd61010dfbbcc4"},
    {"gpt", "bb9083a089cf3970"},
    {"llama", "82e226116d95c7e9"},
    {"rnn", "1137e78d255ab6c7"},
    {"lstm", "7753d0620808f681"},
    {"gru", "3c4f091050b4f0d3"},
    {"seq2seq", "e68db8d60b4653b4"},
    {"resnet", "fd2f2504cd66b962"},
    {"mobilenet", "15d243bd0fa5a490"},
    {"vit", "484357eb66d6ee37"},
};

#endif
