/* The list of models, with options as "key=value" texts. */
#include <weft/models.h>

#include <stdlib.h>
#include <string.h>

/* name, default of the demo's model, default of the paper's base model, documentation */
#define TRANSFORMER_OPTIONS(X)                                                                     \
    X(vocab, 4000, 8000, "tokens of the vocabulary that both languages share")                     \
    X(d_model, 256, 512, "width")                                                                  \
    X(heads, 4, 8, "attention heads")                                                              \
    X(d_ff, 1024, 2048, "width inside the feed-forward layers")                                    \
    X(encoder_layers, 3, 6, "layers of the encoder")                                               \
    X(decoder_layers, 3, 6, "layers of the decoder")                                               \
    X(dropout, 0.1, 0.1, "probability of dropping, while training")                                \
    X(label_smoothing, 0.1, 0.1, "share of the target spread over all tokens")                     \
    X(pre_norm, 1, 0, "1: norm before each sub-layer, 0: after it, as in the paper")               \
    X(tied, 1, 1, "1: one embedding table for source, target and output")                          \
    X(batch, 32, 16, "sentences")                                                                  \
    X(source_len, 32, 64, "tokens of a source sentence")                                           \
    X(target_len, 32, 64, "tokens of a target sentence")                                           \
    X(pad_id, 0, 0, "token that fills up")                                                         \
    X(f64, 0, 0, "1: in double precision")

enum {
#define ID(name, small, base, doc) AT_##name,
    TRANSFORMER_OPTIONS(ID)
#undef ID
        N_OPTIONS
};

static const weft_model_option small_options[] = {
#define ROW(name, small, base, doc) {#name, doc, small},
    TRANSFORMER_OPTIONS(ROW)
#undef ROW
};
static const weft_model_option base_options[] = {
#define ROW(name, small, base, doc) {#name, doc, base},
    TRANSFORMER_OPTIONS(ROW)
#undef ROW
};

static weft_status build_transformer(weft_graph *graph, const double *v, bool training,
                                     weft_model_io *io)
{
    weft_transformer_config config = {
        .dtype = v[AT_f64] != 0 ? WEFT_F64 : WEFT_F32,
        .source_vocab = (int64_t)v[AT_vocab],
        .target_vocab = (int64_t)v[AT_vocab],
        .tied = v[AT_tied] != 0,
        .d_model = (int64_t)v[AT_d_model],
        .heads = (int64_t)v[AT_heads],
        .d_ff = (int64_t)v[AT_d_ff],
        .encoder_layers = (int64_t)v[AT_encoder_layers],
        .decoder_layers = (int64_t)v[AT_decoder_layers],
        .dropout = v[AT_dropout],
        .label_smoothing = v[AT_label_smoothing],
        .pre_norm = v[AT_pre_norm] != 0,
        .batch = (int64_t)v[AT_batch],
        .source_len = (int64_t)v[AT_source_len],
        .target_len = (int64_t)v[AT_target_len],
        .pad_id = (int64_t)v[AT_pad_id],
        .training = training,
    };
    return weft_transformer(graph, &config, io);
}

static const weft_model models[] = {
    {"transformer", "encoder-decoder Transformer, small: 3+3 layers, width 256, pre-norm",
     small_options, N_OPTIONS, build_transformer},
    {"transformer-base", "encoder-decoder Transformer, the paper's base: 6+6 layers, width 512",
     base_options, N_OPTIONS, build_transformer},
};

size_t weft_model_count(void)
{
    return sizeof models / sizeof *models;
}

const weft_model *weft_model_at(size_t index)
{
    return index < weft_model_count() ? &models[index] : NULL;
}

const weft_model *weft_model_find(const char *name)
{
    for (size_t i = 0; name && i < weft_model_count(); i++)
        if (!strcmp(models[i].name, name)) return &models[i];
    return NULL;
}

weft_status weft_model_parse(const weft_model *model, const char *const *texts, size_t n,
                             double *values, weft_error *error)
{
    if (!model || !values || (n && !texts) || model->n_options > WEFT_MODEL_OPTIONS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "model", "the model or a list is NULL");
    for (size_t i = 0; i < model->n_options; i++) values[i] = model->options[i].value;
    for (size_t t = 0; t < n; t++) {
        const char *equals = strchr(texts[t], '=');
        size_t length = equals ? (size_t)(equals - texts[t]) : 0, i = 0;
        if (!length)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                                  "\"%s\" is not of the form option=number", texts[t]);
        while (i < model->n_options && (strlen(model->options[i].name) != length ||
                                        strncmp(model->options[i].name, texts[t], length) != 0))
            i++;
        if (i == model->n_options)
            return weft_error_set(error, WEFT_NOT_FOUND, model->name, "has no option \"%.*s\"",
                                  (int)length, texts[t]);
        char *end;
        values[i] = strtod(equals + 1, &end);
        if (end == equals + 1 || *end || !(values[i] >= 0 && values[i] <= 1e9))
            return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                                  "option %s: \"%s\" is not a number from 0 to 1e9",
                                  model->options[i].name, equals + 1);
    }
    return WEFT_OK;
}

weft_status weft_model_build_text(weft_graph *graph, const weft_model *model,
                                  const char *const *texts, size_t n, bool training,
                                  weft_model_io *io, weft_error *error)
{
    double values[WEFT_MODEL_OPTIONS];
    weft_status status = weft_model_parse(model, texts, n, values, error);
    if (status != WEFT_OK) return status;
    model->build(graph, values, training, io);
    const weft_error *e = weft_graph_error(graph);
    return e->status == WEFT_OK ? WEFT_OK
                                : weft_error_set(error, e->status, e->where, "%s", e->message);
}
