/* weft/gguf.h - GGUF files, in which most language models are handed on: metadata, tensors in blocks
 * of quantised numbers, and models.
 *
 * The format is docs/gguf.md of github.com/ggml-org/ggml, versions 2 and 3, with the lowest byte of
 * a number first. A file is mapped, not copied: a program that writes to it, or shortens it, must
 * wait for weft_gguf_close. */
#ifndef WEFT_GGUF_H
#define WEFT_GGUF_H

#include <weft/models.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open file. Any number of threads may share one. */
typedef struct weft_gguf weft_gguf;

/* Opens a file and checks all of it but the numbers of the tensors: every length and offset lies in
 * the file, names are unique, and tensors do not overlap. Errors: WEFT_NOT_FOUND or WEFT_IO for a
 * file that cannot be read, WEFT_BAD_FILE for one that is malformed. NULL on failure.
 * weft_gguf_close accepts NULL. */
WEFT_API weft_gguf *weft_gguf_open(const char *path, weft_error *error);
/* The same for a file in memory, whose bytes must stay as they are until weft_gguf_close. */
WEFT_API weft_gguf *weft_gguf_from_memory(weft_memory_file from, weft_error *error);
WEFT_API void weft_gguf_close(weft_gguf *file);
/* 2 or 3; 0 without a file. */
WEFT_API uint32_t weft_gguf_version(const weft_gguf *file);

/* ---- Metadata -------------------------------------------------------------------------------- */

/* Columns: constant, number in the file, name, bytes of a value (0: it says its length itself). */
#define WEFT_GGUF_KIND_MAP(X)                                                                      \
    X(U8, 0, "u8", 1)                                                                              \
    X(I8, 1, "i8", 1)                                                                              \
    X(U16, 2, "u16", 2)                                                                            \
    X(I16, 3, "i16", 2)                                                                            \
    X(U32, 4, "u32", 4)                                                                            \
    X(I32, 5, "i32", 4)                                                                            \
    X(F32, 6, "f32", 4)                                                                            \
    X(BOOL, 7, "bool", 1)                                                                          \
    X(TEXT, 8, "text", 0)                                                                          \
    X(ARRAY, 9, "array", 0)                                                                        \
    X(U64, 10, "u64", 8)                                                                           \
    X(I64, 11, "i64", 8)                                                                           \
    X(F64, 12, "f64", 8)

typedef enum weft_gguf_kind {
#define WEFT_GGUF_KIND_ENUM(upper, number, name, bytes) WEFT_GGUF_##upper = number,
    WEFT_GGUF_KIND_MAP(WEFT_GGUF_KIND_ENUM)
#undef WEFT_GGUF_KIND_ENUM
        WEFT_GGUF_KINDS
} weft_gguf_kind;

/* A value of the metadata, or an item of an array. */
typedef struct weft_gguf_value {
    const char *key; /* "" for an item */
    weft_gguf_kind kind;
    double number;     /* of a number; a bool is 0 or 1 */
    int64_t integer;   /* the same, exact. A u64 above INT64_MAX is INT64_MAX; 0 for f32, f64 */
    const char *text;  /* the bytes of a TEXT, not followed by a zero; any bytes */
    size_t text_bytes; /* how many */
    weft_gguf_kind items_kind; /* of an ARRAY: what its items are */
    size_t n_items;            /* how many */
    const void *items;         /* weft_gguf_value_item reads them */
} weft_gguf_value;

WEFT_API size_t weft_gguf_meta_count(const weft_gguf *file);
/* Value `index`, in the order of the file, or the one of that key; NULL if there is none. The file
 * owns it. O(1). */
WEFT_API const weft_gguf_value *weft_gguf_meta_at(const weft_gguf *file, size_t index);
WEFT_API const weft_gguf_value *weft_gguf_meta_find(const weft_gguf *file, const char *key);
/* Sets *item to an item of an array, which is valid as long as the file is open; false if the value
 * is not an array, or is shorter. O(1). */
WEFT_API bool weft_gguf_value_item(const weft_gguf_value *array, size_t index,
                                   weft_gguf_value *item);
/* The name of a kind, such as "u32"; "?" for another number. */
WEFT_API const char *weft_gguf_kind_name(weft_gguf_kind kind);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* A tensor of a file. */
typedef struct weft_gguf_tensor {
    const char *name;
    const char *type; /* "F32", "Q4_K", ... */
    bool readable;    /* whether weft_gguf_read has the type */
    weft_shape
        shape; /* the outermost dimension first, as in weft; the file has the innermost first */
    const void *data; /* its blocks in the file */
    size_t bytes;
} weft_gguf_tensor;

WEFT_API size_t weft_gguf_count(const weft_gguf *file);
/* Tensor `index`, in the order of the file, or the one of that name; NULL if there is none. The
 * file owns it. O(1). */
WEFT_API const weft_gguf_tensor *weft_gguf_at(const weft_gguf *file, size_t index);
WEFT_API const weft_gguf_tensor *weft_gguf_find(const weft_gguf *file, const char *name);
/* Computes the numbers of a tensor of this file into `data`, weft_shape_numel(shape) of them: those
 * of gguf.quants.dequantize in the Python package `gguf`, bit for bit; a NaN may be another NaN.
 * Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K; WEFT_BAD_DTYPE for any
 * other. O(elements). */
WEFT_API weft_status weft_gguf_read(const weft_gguf *file, const weft_gguf_tensor *tensor,
                                    float *data, weft_error *error);

/* ---- Models ---------------------------------------------------------------------------------- */

/* Metadata of a store that weft_gguf_load sets, besides `model` and `model_options`: the name of the
 * file's architecture. */
#define WEFT_GGUF_ARCHITECTURE "gguf.architecture"

typedef struct weft_gguf_options {
    bool widen; /* all parameters in f32, as training needs them */
    /* Tokens of the longest text, of which only a file with two lists of factors of rotary positions
     * (Phi 3) depends: as in weft_huggingface_options. */
    int64_t context;
} weft_gguf_options;
/* Reads the model of a file into an empty store, and sets *config to the model and its options.
 * Matrices of the types Q4_0, Q4_1, Q4_K, in 4 bits, and Q5_0, Q5_1, Q5_K, Q8_0, in 8 bits, stay
 * quantised unless options->widen (docs/quantize.md): weft_quantized_pass uses them, and no number
 * of theirs is rounded. All else is in f32. `options` may be NULL. Architectures
 * (general.architecture): `llama`, `qwen2`, `qwen3`, `phi3`, `gemma2`, `gemma3`, `gpt2`. Nothing
 * that changes the results is ignored. The rotary positions of `phi3` may be scaled by lists of factors.
 * Memory is needed for the store and 64 rows of a matrix. Errors: WEFT_NOT_FOUND if a key
 * or a tensor is missing; WEFT_BAD_FILE for a tensor that the architecture lacks; WEFT_BAD_ARGUMENT
 * if no model of weft has this architecture, or the value of a key; WEFT_BAD_SHAPE if a tensor has
 * another shape than the metadata say; WEFT_BAD_DTYPE for a type that weft_gguf_read lacks. On
 * failure the store may have some of the tensors. */
WEFT_API weft_status weft_gguf_load(const weft_gguf *file, const weft_gguf_options *options,
                                    weft_params *params, weft_model_config *config,
                                    weft_error *error);

/* What weft_params_save_gguf writes besides a model's parameters. */
typedef struct weft_save_gguf_options {
    /* Of matrices: "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1". NULL: as the store has them, where a
     * type of GGUF files has their bits, or else f32. Norms, biases and learned positions are f32. */
    const char *type;
    const char *architecture; /* NULL: that of WEFT_GGUF_ARCHITECTURE or of
                                 WEFT_HUGGINGFACE_CONFIG, or else the first with all options of the
                                 model */
    const char *name;         /* general.name; NULL: none */
    /* The texts of files of Hugging Face: the vocabulary, the names of its special pieces, and a
     * chat template that replaces the one in tokenizer_config. NULL: none. */
    const char *tokenizer_json, *tokenizer_config, *chat_template;
} weft_save_gguf_options;
/* Writes a model as a GGUF file, version 3, which weft_gguf_load and llama.cpp read: the inverse of
 * weft_gguf_load. A file that is there is replaced when the new one is complete. `options` may be
 * NULL.
 *
 * A store in f32 is rounded to options->type: f16 and bf16 to the nearest, ties to even; blocks of 32
 * numbers by the rules of quantize_row_*_ref in ggml/src/ggml-quants.c, as the package `gguf`
 * computes them. If 32 does not divide the rows of a matrix, it becomes f16. A quantised matrix keeps its
 * bits if the type (NULL: Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0) has them; otherwise its numbers are rounded
 * as those of f32 are. The vocabulary is a byte-level BPE or one of SentencePiece; of added pieces
 * the file does not say whether they include the spaces next to them. Without one,
 * tokenizer.ggml.model is "none". Memory is needed for the header and 64 rows of a matrix.
 *
 * Errors: WEFT_BAD_ARGUMENT for any other model than gpt and llama, an option or a component of the
 * tokeniser that such files cannot say, a type that is not listed, a number that is too large for its
 * type, or a tensor that the model lacks; WEFT_NOT_FOUND for an unknown architecture, or a parameter
 * that is missing; WEFT_BAD_SHAPE for one of another shape or dtype; WEFT_BAD_FILE for a text that is
 * not JSON; WEFT_NO_MEMORY; WEFT_IO. */
WEFT_API weft_status weft_params_save_gguf(const weft_params *params,
                                           const weft_model_config *config, const char *path,
                                           const weft_save_gguf_options *options,
                                           weft_error *error);

/* ---- Vocabularies ---------------------------------------------------------------------------- */

/* The vocabulary of a file as the text of a tokenizer.json, which weft_tokenizer_load_json
 * (weft/tokenizers.h) and the package `tokenizers` read, and that of the tokenizer_config.json
 * next to it: the names of special pieces, and the chat template. The caller frees them.
 *
 * Kinds (tokenizer.ggml.model): `gpt2`, a byte-level BPE with its merges, where weft knows what
 * tokenizer.ggml.pre means (smollm, gpt-2, llama-bpe, qwen2 and others); `llama`, a SentencePiece
 * vocabulary, whose merges follow from the scores. NULL on failure: WEFT_NOT_FOUND if the file has
 * no vocabulary, WEFT_BAD_ARGUMENT for another kind, WEFT_BAD_FILE for a malformed one. */
WEFT_API char *weft_gguf_tokenizer_json(const weft_gguf *file, weft_error *error);
WEFT_API char *weft_gguf_tokenizer_config(const weft_gguf *file, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
