#include "huggingface_folders.h"

#include "golden.h"

#include <weft/huggingface.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char hf_scratch[64];

int hf_make_scratch(void)
{
    snprintf(hf_scratch, sizeof hf_scratch, "/tmp/weft-huggingface-XXXXXX");
    return mkdtemp(hf_scratch) == NULL;
}

const char *hf_scratch_path(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", hf_scratch, name);
    return path;
}

int hf_remove_scratch(void)
{
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json", "a.safetensors"};
    char path[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(hf_scratch_path(files[i], path));
    return rmdir(hf_scratch);
}

void hf_golden_folder(const char *name, char path[512])
{
    snprintf(path, 512, GOLDEN("huggingface") "/%s", name);
}

char *hf_read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    char *text = calloc(1, 1 << 16);
    CU_ASSERT_TRUE_FATAL(text && fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

void hf_write_bytes(const char *name, const void *data, size_t n)
{
    char path[256];
    FILE *file = fopen(hf_scratch_path(name, path), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(data, 1, n, file), n);
    fclose(file);
}

weft_params *hf_load_good(const char *folder, weft_model_config *config)
{
    weft_error error = {0};
    weft_params *p = weft_params_new();
    weft_status status = weft_huggingface_load(p, config, folder, &error);
    if (status != WEFT_OK) printf("\n    %s: %s: %s\n", folder, error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    return p;
}

void hf_check_equal(const weft_params *a, const weft_params *b)
{
    CU_ASSERT_EQUAL(weft_params_count(a), weft_params_count(b));
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor s, t;
        const char *name = weft_params_name(a, i);
        weft_params_find(a, name, &s);
        CU_ASSERT_TRUE_FATAL(weft_params_find(b, name, &t));
        CU_ASSERT_TRUE_FATAL(weft_shape_equal(s.shape, t.shape));
        CU_ASSERT_TRUE(test_same_tensors("s", &s, &t));
    }
}
