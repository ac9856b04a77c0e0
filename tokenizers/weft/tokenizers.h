/* weft/tokenizers.h - tokenisers of Hugging Face's tokenizer.json: all of the library
 * weft-tokenizers.
 *
 * They are tokenisers of <weft/text.h> that compute the ids, and the spans, of the package
 * `tokenizers`. A text that is not UTF-8 is read with U+FFFD for each maximal invalid part, as
 * Python's errors="replace" does. Any number of threads may share one.
 */
#ifndef WEFT_TOKENIZERS_H
#define WEFT_TOKENIZERS_H

#include <weft/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tokeniser of a tokenizer.json. Its fields `truncation` and `padding` are not used. The ids of
 * `bos`, `eos` and `pad` are those that tokenizer_config.json in the same folder names; without
 * this file, or a name in it, those of pieces with customary names, such as <s>. Errors:
 * WEFT_NOT_FOUND or WEFT_IO for a file that cannot be read; WEFT_BAD_FILE for one that is not a
 * tokeniser, or has an unsupported component. The message has the place in the file, such as
 * `pre_tokenizer.pretokenizers[1]`. */
WEFT_API weft_tokenizer *weft_tokenizer_load_json(const char *path, weft_error *error);
/* The same of `bytes` bytes of JSON in memory, which may be freed afterwards. */
WEFT_API weft_tokenizer *weft_tokenizer_load_json_from_memory(const char *json, size_t bytes,
                                                              weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
