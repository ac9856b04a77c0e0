/* The hashes that `weft check --bits` prints on every processor. After a change of
 * docs/arithmetic.md, these rows are those of
 *
 *     weft check --bits | awk '{ printf "    {\"%s\", \"%s\"},\n", $1, $2 }' */
#ifndef WEFT_SPECIFIED_BITS_H
#define WEFT_SPECIFIED_BITS_H

/* Model, hash of its parameters and of the optimiser's states. */
static const char *const specified[][2] = {
    {"transformer", "5adb04d5b9883754"},
    {"transformer-base", "ceeefccf9e4d6c4f"},
    {"transformer-shared", "8e0cdbc834423f8a"},
    {"encoder", "8275c667db8352ad"},
    {"attention", "c9a41751daabe511"},
    {"feed-forward", "d684f9eb6543a072"},
    {"bert", "33913f87cb3cc8e7"},
    {"gpt", "7dbe8b63f076a1c4"},
    {"llama", "e9ded3d989fddeec"},
    {"rnn", "4a55102b2cbd1793"},
    {"lstm", "3179f71c28ddbc58"},
    {"gru", "b124d833ac39585a"},
    {"seq2seq", "fc8d494df9701b98"},
    {"resnet", "bc6e2179a7a1628e"},
    {"mobilenet", "e930ea687abc80a6"},
    {"vit", "d8a7e5a278c290c5"},
};

#endif
