/* Kinds of files that weft reads, for the fuzzers and the suite `hostile`: each has a function that
 * reads bytes as such a file and checks what every reader promises. */
#ifndef WEFT_TESTS_FUZZ_KINDS_H
#define WEFT_TESTS_FUZZ_KINDS_H

#include <weft/types.h>

#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_kind {
    const char *name;
    /* NULL, or the promise that was broken: a failure sets the status and a message of one line and
     * changes nothing; what was read can be used, written and read again. `folder` holds the file
     * while it is read. */
    const char *(*check)(const char *folder, const uint8_t *data, size_t bytes);
} fuzz_kind;

/* The kind of that name; NULL if there is none, or weft was built without it. */
const fuzz_kind *fuzz_kind_find(const char *name);

/* Makes a folder, in memory if possible, and writes its name to folder[capacity]. 0 on success. */
int fuzz_make_folder(char *folder, size_t capacity);
void fuzz_remove_folder(const char *folder);

/* ---- For the kinds ---- */

/* The path of a file of the folder, which has these bytes. */
const char *fuzz_put(const char *folder, const char *name, const void *data, size_t bytes,
                     char path[256]);
/* NULL, or what is wrong with the error of a call that succeeded if `good`. */
const char *fuzz_check_error(const weft_error *error, bool good);

/* Kinds of kinds_text.c. */
const char *fuzz_check_tokenizer(const char *folder, const uint8_t *data, size_t bytes);
const char *fuzz_check_chat(const char *folder, const uint8_t *data, size_t bytes);
const char *fuzz_check_schema(const char *folder, const uint8_t *data, size_t bytes);

#endif
