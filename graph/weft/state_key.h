/* weft/state_key.h - what a state is: part of a model, a moment of its optimiser, a sum of
 * gradients, ..., of which parameter, and which piece of it.
 *
 * Graphs, stores and files name states by text. weft_state_key_write makes the text when a state is
 * declared, and weft_state_key_read makes the key of a text; everything else compares keys. */
#ifndef WEFT_STATE_KEY_H
#define WEFT_STATE_KEY_H

#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name of an optimiser by default. */
#define WEFT_OPTIMIZER_STATES "opt"

typedef enum weft_state_kind {
    WEFT_STATE_MODEL,    /* PARAM: a parameter, or another state that a model declares */
    WEFT_STATE_MOMENT_1, /* OPTIMIZER.m.PARAM: a moving average of gradients */
    WEFT_STATE_MOMENT_2, /* OPTIMIZER.v.PARAM: of their squares */
    WEFT_STATE_MOMENTUM, /* OPTIMIZER.buf.PARAM: the buffer of SGD with momentum */
    WEFT_STATE_COUNTER,  /* OPTIMIZER.step: the number of updates done; it has no parameter */
    WEFT_STATE_SUM,      /* sum.PARAM, sum@SLOT.PARAM: a sum of gradients within an update */
    WEFT_STATE_AVERAGE,  /* ema.PARAM: a moving average of a parameter */
    WEFT_STATE_UNKNOWN   /* any other text that begins with "opt.", "sum.", "sum@" or "ema." */
} weft_state_kind;

/* Elements of a whole tensor: those from `first` to `end` of a part of it, which is runs of
 * `length` elements. Element e of the part is element e / length * stride + offset + e % length of
 * the whole. A part that is the whole has one run, of INT64_MAX elements. */
typedef struct weft_piece {
    int64_t first, end;
    int64_t length, stride, offset;
} weft_piece;

#define WEFT_RUNNING_SUM (-1)

typedef struct weft_state_key {
    weft_state_kind kind;
    const char *optimizer; /* of moments and counters; NULL: WEFT_OPTIMIZER_STATES */
    const char *param;     /* param_bytes of text without a NUL; a text of unknown kind is whole */
    size_t param_bytes;
    int slot;      /* of a sum: the slot that stores it, or WEFT_RUNNING_SUM */
    bool is_piece; /* followed by `[first:end]`, or `[first:end]@length,stride,offset` for a piece
                      of a part (weft_part) */
    weft_piece piece; /* of a key that was read: 0 to INT64_MAX if it is not a piece */
} weft_state_key;

/* Reads any text, NULL included; the key points into it. Only texts that weft_state_key_write can
 * make have another kind than WEFT_STATE_MODEL and WEFT_STATE_UNKNOWN, or pieces, so that writing
 * the key makes the same text again. States of an optimiser of another name than
 * WEFT_OPTIMIZER_STATES read as the model's, since their texts look like names of parameters. */
WEFT_API weft_state_key weft_state_key_read(const char *text);
/* Bytes for the text of a state that is trained, whatever its names. */
#define WEFT_STATE_KEY_BYTES 1024
/* Writes the text of a key and returns `text`, which is empty if it does not fit. */
WEFT_API const char *weft_state_key_write(const weft_state_key *key, char *text, size_t size);
/* Whether both are of the same kind, slot and parameter. Optimisers and pieces may differ. */
WEFT_API bool weft_state_key_same(const weft_state_key *a, const weft_state_key *b);

#ifdef __cplusplus
}
#endif

#endif
