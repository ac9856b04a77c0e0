/* Writing of GGUF files. Not installed. */
#ifndef WEFT_FORMATS_GGUF_SAVE_H
#define WEFT_FORMATS_GGUF_SAVE_H

#include "file.h"
#include "model.h"

#include "base/file.h"

/* ---- header.c ---- */

/* Bytes that grow. When memory is out, functions do nothing. */
typedef struct gguf_bytes {
    uint8_t *at;
    size_t n, capacity;
    size_t values; /* of the metadata */
    bool no_memory;
} gguf_bytes;

void weft__gguf_add(gguf_bytes *b, const void *data, size_t n);
/* The `bytes` lowest bytes of a number, the lowest first. */
void weft__gguf_add_number(gguf_bytes *b, uint64_t number, size_t bytes);
void weft__gguf_add_f32(gguf_bytes *b, float number);
/* Its length, and its bytes. */
void weft__gguf_add_text(gguf_bytes *b, const char *text);
/* Zeros up to a multiple of GGUF_ALIGNMENT. */
void weft__gguf_align(gguf_bytes *b);
/* A value of the metadata without its contents, and with them. */
void weft__gguf_add_key(gguf_bytes *b, const char *key, weft_gguf_kind kind);
void weft__gguf_add_array(gguf_bytes *b, const char *key, weft_gguf_kind items, size_t n);
void weft__gguf_meta_u32(gguf_bytes *b, const char *key, uint64_t number);
void weft__gguf_meta_f32(gguf_bytes *b, const char *key, double number);
void weft__gguf_meta_bool(gguf_bytes *b, const char *key, bool flag);
void weft__gguf_meta_text(gguf_bytes *b, const char *key, const char *text);

/* ---- narrow.c ---- */

/* A type that weft writes. */
typedef struct gguf_written {
    const char *name;                                          /* as in an option */
    uint32_t number;                                           /* of the type */
    uint32_t file;                                             /* general.file_type */
    bool has_rule;                                             /* weft__gguf_narrow has it */
    bool (*narrow)(const float *x, uint8_t *blocks, size_t n); /* n numbers */
    void (*choose)(const float x[32], gguf_group *to);         /* a group of 32 floats */
    void (*join)(const gguf_group *from, uint8_t *block);
} gguf_written;

/* NULL if there is none. */
const gguf_written *weft__gguf_written_find(const char *name);
/* Rounds n numbers, whole blocks, to a type that has a rule; false if one is too large for it, or is
 * not finite where blocks need that. */
bool weft__gguf_narrow(const gguf_written *to, const float *x, uint8_t *blocks, size_t n);
/* Makes a block of a group, and returns whether it has exactly the group's numbers. */
bool weft__gguf_join(const gguf_written *to, const gguf_group *from, uint8_t *block);

/* ---- The saver ---- */

/* A tensor of the file, made of the parameters of its rows in the table. */
typedef struct gguf_entry {
    char name[GGUF_NAME_BYTES];
    const gguf_row *row; /* of its first parameter */
    weft_shape shape;    /* theirs */
    bool exact;          /* the blocks of the type have the bits of these */
    const gguf_written *type;
} gguf_entry;

typedef struct gguf_saver {
    const weft_params *params;
    const weft_model_config *config; /* without gamma_plus_one */
    bool plus_one;                   /* gammas of norms have their 1 in the file */
    const weft_save_gguf_options *options;
    const char *path;
    const gguf_written *type; /* that is asked for; NULL: as the store has them */
    const gguf_architecture *a;
    weft_graph *graph; /* declares the parameters */
    gguf_entry *entries;
    size_t n;
    gguf_bytes header;
    weft_error *error;
} gguf_saver;

/* ---- save_tensors.c ---- */

/* Lists the tensors of the file and chooses their types. */
weft_status weft__gguf_list_tensors(gguf_saver *s);
size_t weft__gguf_tensor_bytes(const gguf_entry *e);
/* Writes the data of all of them. */
weft_status weft__gguf_write_tensors(gguf_saver *s, file_writer *to);

/* ---- save_config.c ---- */

/* Adds the metadata of the model. */
weft_status weft__gguf_add_config(gguf_saver *s);
/* The divisors of rotary frequencies by Llama 3's rule or LongRoPE: one for each pair, and their
 * number; 0: the model has another rule. */
size_t weft__gguf_divisor_count(const gguf_saver *s);
float weft__gguf_divisor(const gguf_saver *s, size_t i);
/* The name of tensor `i` that has them; NULL beyond the last. Both lists of LongRoPE are the same. */
const char *weft__gguf_divisor_name(const gguf_saver *s, size_t i);

/* ---- save_vocabulary.c ---- */

/* Adds the metadata of the vocabulary, if the options have one. */
weft_status weft__gguf_add_vocabulary(gguf_saver *s);

#endif
