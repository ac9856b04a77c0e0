/* The one list of ops: everything that needs all of them walks it. To add an op, copy an op's file,
 * add it to ops/meson.build and its name here. */
#define WEFT_OP_LIST(X)                                                                            \
    X(input) X(state) X(constant) X(group) X(contiguous)
