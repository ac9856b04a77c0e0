/* Folders of models of transformers: those of tests/golden/huggingface, and a scratch folder of the suite. */
#ifndef WEFT_TESTS_HUGGINGFACE_FOLDERS_H
#define WEFT_TESTS_HUGGINGFACE_FOLDERS_H

#include <weft/models.h>
#include <weft/store.h>

#define FOLDER(name) GOLDEN("huggingface/" name)

extern char hf_scratch[64];

int hf_make_scratch(void);
int hf_remove_scratch(void);
/* The path of a file in the scratch folder; returns `path`. */
const char *hf_scratch_path(const char *name, char path[256]);
/* Writes a file of the scratch folder. */
void hf_write_bytes(const char *name, const void *data, size_t n);
void hf_golden_folder(const char *name, char path[512]);
/* A text file of less than 64 kB; the caller frees it. */
char *hf_read_text(const char *path);
/* Loads a folder that must be good. */
weft_params *hf_load_good(const char *folder, weft_model_config *config);
/* Both stores must have the same tensors, bit for bit. */
void hf_check_equal(const weft_params *a, const weft_params *b);

#endif
