/* Decoding with a Llama of random weights in f32, 8 and 4 bits, one sentence, one token at a time:
 *
 *     decode_bench THREADS TOKENS BEFORE CACHE [OPTION=VALUE ...]
 *
 * BEFORE tokens are read first, as a prompt. CACHE is how keys and values are stored: f32, bf16 or
 * u8. Options are those of the model llama. Prints one
 * line of JSON: for each kind of weights the seconds of a token, mean and least, and the bytes of
 * the parameters and of the keys and values. tests/bench/decode_ggml.py does the same with
 * llama.cpp. Not a test: nothing here fails because it is slow. */
#include <weft/decode.h>
#include <weft/quantize.h>
#include <weft/weft.h>

#include "base/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const weft_error *error)
{
    fprintf(stderr, "decode_bench: %s: %s\n", error->where, error->message);
    return 1;
}

static double bytes_of(const weft_params *params)
{
    double bytes = 0;
    weft_tensor t;
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (weft_params_find(params, weft_params_name(params, i), &t))
            bytes += (double)weft_tensor_bytes(t.dtype, t.shape);
    return bytes;
}

/* Prints one kind. A first sentence makes the plans. */
static int measure(const char *kind, const weft_model_config *config, const weft_params *params,
                   const weft_decoder_options *options, const int32_t *prompt, int before)
{
    weft_error error = {0};
    const int32_t token = 5;
    const int tokens = (int)options->max_len - before - 1;
    double sum = 0, least = 1e30;
    weft_decoder *d = weft_decoder_new(config, params, options, &error);
    if (!d) return failed(&error);
    for (int round = 0; round < 2; round++) {
        if (weft_decoder_start(d, NULL, NULL, 0, &error) != WEFT_OK ||
            (before && weft_decoder_read(d, prompt, (size_t)before, &error) != WEFT_OK))
            return failed(&error);
        for (int i = 0; i < tokens; i++) {
            const double begin = clock_seconds();
            if (weft_decoder_step(d, &token, NULL, &error) != WEFT_OK) return failed(&error);
            const double seconds = clock_seconds() - begin;
            if (!round) continue;
            sum += seconds;
            least = seconds < least ? seconds : least;
        }
    }
    printf("%s\"%s\": {\"mean_seconds\": %.6g, \"min_seconds\": %.6g, \"bytes\": %.0f, "
           "\"cache_bytes\": %.0f}",
           kind[0] == 'f' ? "{" : ", ", kind, sum / tokens, least, bytes_of(params),
           (double)weft_decoder_info_of(d).state_bytes - bytes_of(params));
    weft_decoder_free(d);
    return 0;
}

int main(int argc, char **argv)
{
    weft_error error = {0};
    weft_model_config config;
    const int threads = argc > 4 ? atoi(argv[1]) : 0, tokens = argc > 4 ? atoi(argv[2]) : 0;
    const int before = argc > 4 ? atoi(argv[3]) : -1;
    const weft_dtype cache = argc <= 4                  ? WEFT_DTYPES
                             : !strcmp(argv[4], "f32")  ? WEFT_F32
                             : !strcmp(argv[4], "bf16") ? WEFT_BF16
                             : !strcmp(argv[4], "u8")   ? WEFT_U8
                                                        : WEFT_DTYPES;
    if (threads < 1 || tokens < 1 || before < 0 || cache == WEFT_DTYPES) {
        fprintf(stderr,
                "Usage: decode_bench THREADS TOKENS BEFORE f32|bf16|u8 [OPTION=VALUE ...]\n");
        return 2;
    }
    const weft_decoder_options options = {
        .max_len = before + tokens + 1, .session.threads = threads, .cache = cache};
    int32_t *prompt = calloc((size_t)before + 1, sizeof *prompt);
    if (!prompt || weft_model_parse(weft_model_find("llama"), (const char *const *)argv + 5,
                                    (size_t)argc - 5, &config, &error) != WEFT_OK)
        return failed(&error);
    for (int i = 0; i < before; i++) prompt[i] = i % 100;
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_model_build(g, &config);
    if (weft_params_init(params, g, 1, &error) != WEFT_OK) return failed(&error);
    int status = measure("f32", &config, params, &options, prompt, before);
    for (int bits = 8; bits >= 4 && !status; bits -= 4) {
        const weft_quantize_options o = {.bits = bits};
        weft_params *small = weft_params_quantize(params, g, &o, NULL, &error);
        status = small ? measure(bits == 8 ? "8" : "4", &config, small, &options, prompt, before)
                       : failed(&error);
        weft_params_free(small);
    }
    if (!status) puts("}");
    weft_params_free(params);
    weft_graph_free(g);
    free(prompt);
    return status;
}
