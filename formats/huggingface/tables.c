/* The table of architectures. Their configurations and tensors are those of the library
 * transformers (versions 4 and 5), models/ARCHITECTURE/{configuration,modeling}_ARCHITECTURE.py. */
#include "tables.h"

#include "base/text.h"

#include <string.h>

/* ---- Rows ---- */

#define NUMBER(key, option, value)                                                                 \
    {                                                                                              \
        HF_NUMBER, key, option, value, NULL, 0, 0                                                  \
    }
#define REQUIRED(key, option)                                                                      \
    {                                                                                              \
        HF_NUMBER, key, option, NULL, NULL, 0, 0                                                   \
    }
#define DERIVED(key, option, times, of)                                                            \
    {                                                                                              \
        HF_NUMBER, key, option, NULL, of, times, 0                                                 \
    }
#define FLAG(key, option, value)                                                                   \
    {                                                                                              \
        HF_FLAG, key, option, value, NULL, 0, 0                                                    \
    }
#define FIXED(key, value)                                                                          \
    {                                                                                              \
        HF_FIXED, key, NULL, value, NULL, 0, 0                                                     \
    }
#define END_KEYS                                                                                   \
    {                                                                                              \
        HF_FIXED, NULL, NULL, NULL, NULL, 0, 0                                                     \
    }

#define SAME(theirs, ours)                                                                         \
    {                                                                                              \
        theirs, ours, HF_SAME                                                                      \
    }
#define TRANSPOSED(theirs, ours)                                                                   \
    {                                                                                              \
        theirs, ours, HF_TRANSPOSED                                                                \
    }
/* nn.Linear: [out, in]. */
#define LINEAR(theirs, ours)                                                                       \
    TRANSPOSED(theirs ".weight", ours ".weight"), SAME(theirs ".bias", ours ".bias")
/* Conv1D of GPT-2: [in, out], as ours. */
#define CONV1D(theirs, ours)                                                                       \
    SAME(theirs ".weight", ours ".weight"), SAME(theirs ".bias", ours ".bias")
#define NORM(theirs, ours) SAME(theirs ".weight", ours ".gamma"), SAME(theirs ".bias", ours ".beta")
/* Parts of a fused layer. */
#define CONV1D_PART(theirs, ours)                                                                  \
    {theirs ".weight", ours ".weight", HF_COLUMNS},                                                \
    {                                                                                              \
        theirs ".bias", ours ".bias", HF_COLUMNS                                                   \
    }
#define LINEAR_PART(theirs, ours)                                                                  \
    {                                                                                              \
        theirs ".weight", ours ".weight", HF_ROWS                                                  \
    }
#define END_TENSORS                                                                                \
    {                                                                                              \
        NULL, NULL, HF_SAME                                                                        \
    }

/* ---- All architectures ---- */

/* By what they are about. A key of an architecture's rows is read, whatever is here: pad_token_id,
 * or OPT's _remove_final_layer_norm. */
const char weft__hf_inert[] =
    /* the file, and who wrote it */
    "_*|name_or_path|architectures|model_type|*_version|torch_dtype|dtype|transformers.js_config|"
    "torchscript|use_bfloat16|tokenizer_class|unsloth_*|auto_map|"
    /* ids of tokens */
    "*_token_id|*_token_ids|forced_*|begin_suppress_tokens|suppress_tokens|bad_words_ids|prefix|"
    "force_bos_token_to_be_generated|"
    /* training and the head of a classifier */
    "initializer_*|init_std|*dropout*|*pdrop|*layerdrop|gradient_checkpointing|summary_*|id2label|"
    "label2id|num_labels|problem_type|finetuning_task|task_specific_params|tf_legacy_loss|"
    "pooler_*|save_step|"
    /* how texts are generated */
    "num_beams|num_beam_groups|diversity_penalty|max_length|min_length|max_new_tokens|"
    "length_penalty|early_stopping|no_repeat_ngram_size|encoder_no_repeat_ngram_size|do_sample|"
    "temperature|top_k|top_p|typical_p|repetition_penalty|num_return_sequences|"
    "remove_invalid_values|exponential_decay_length_penalty|"
    /* what a forward pass returns, and how it is computed */
    "output_*|return_dict*|use_cache|chunk_size_feed_forward|reorder_and_upcast_attn|"
    "pretraining_tp|"
    /* what the architecture implies */
    "is_encoder_decoder|n_ctx|num_hidden_layers|normalize_before|normalize_embedding|"
    "add_final_layer_norm|add_bias_logits|static_position_embeddings|extra_pos_embeddings|"
    "max_window_layers|directionality|attention_types|is_llama_config";

static const hf_key common_keys[] = {
    FIXED("is_decoder", "false"),          FIXED("add_cross_attention", "false"),
    FIXED("tie_encoder_decoder", "false"), FIXED("pruned_heads", "{}"),
    FIXED("quantization_config", "null"),  END_KEYS,
};

/* ---- GPT-2 ---- */

static const hf_key gpt2_keys[] = {
    NUMBER("vocab_size", "vocab", "50257"),
    NUMBER("n_embd", "d_model", "768"),
    NUMBER("n_layer", "layers", "12"),
    NUMBER("n_head", "heads", "12"),
    NUMBER("n_positions", "max_positions", "1024"),
    DERIVED("n_inner", "d_ff", 4, "d_model"),
    {HF_ACTIVATION, "activation_function", "activation", "\"gelu_new\"", NULL, 0, 0},
    NUMBER("layer_norm_epsilon", "eps", "1e-5"),
    NUMBER("resid_pdrop", "dropout", "0.1"),
    FLAG("tie_word_embeddings", "tied", "true"),
    {HF_PAD, "pad_token_id", "pad_id", "", NULL, 0, 0},
    FIXED("scale_attn_weights", "true"),
    FIXED("scale_attn_by_inverse_layer_idx", "false"),
    END_KEYS,
};
static const hf_tensor gpt2_tensors[] = {
    SAME("~wte.weight", "embedding"),
    SAME("~wpe.weight", "positions"),
    NORM("~h.*.ln_1", "layer.*.norm_attn"),
    CONV1D_PART("~h.*.attn.c_attn", "layer.*.attn.q"),
    CONV1D_PART("~h.*.attn.c_attn", "layer.*.attn.k"),
    CONV1D_PART("~h.*.attn.c_attn", "layer.*.attn.v"),
    CONV1D("~h.*.attn.c_proj", "layer.*.attn.out"),
    NORM("~h.*.ln_2", "layer.*.norm_ffn"),
    CONV1D("~h.*.mlp.c_fc", "layer.*.ffn.in"),
    CONV1D("~h.*.mlp.c_proj", "layer.*.ffn.out"),
    NORM("~ln_f", "layer.norm"),
    TRANSPOSED("lm_head.weight", "output.weight"),
    END_TENSORS,
};

/* ---- OPT ---- */

static const hf_key opt_keys[] = {
    NUMBER("vocab_size", "vocab", "50272"),
    NUMBER("hidden_size", "d_model", "768"),
    NUMBER("num_hidden_layers", "layers", "12"),
    NUMBER("num_attention_heads", "heads", "12"),
    NUMBER("max_position_embeddings", "max_positions", "2048"),
    NUMBER("ffn_dim", "d_ff", "3072"),
    NUMBER("word_embed_proj_dim", "d_model", ""),
    {HF_ACTIVATION, "activation_function", "activation", "\"relu\"", NULL, 0, 0},
    NUMBER("dropout", "dropout", "0.1"),
    FLAG("tie_word_embeddings", "tied", "true"),
    {HF_PAD, "pad_token_id", "pad_id", "1", NULL, 0, 0},
    FIXED("do_layer_norm_before", "true"),
    FIXED("_remove_final_layer_norm", "false"),
    FIXED("enable_bias", "true"),
    FIXED("layer_norm_elementwise_affine", "true"),
    END_KEYS,
};
static const hf_tensor opt_tensors[] = {
    SAME("~embed_tokens.weight", "embedding"),
    SAME("~embed_positions.weight", "positions"),
    NORM("~layers.*.self_attn_layer_norm", "layer.*.norm_attn"),
    LINEAR("~layers.*.self_attn.q_proj", "layer.*.attn.q"),
    LINEAR("~layers.*.self_attn.k_proj", "layer.*.attn.k"),
    LINEAR("~layers.*.self_attn.v_proj", "layer.*.attn.v"),
    LINEAR("~layers.*.self_attn.out_proj", "layer.*.attn.out"),
    NORM("~layers.*.final_layer_norm", "layer.*.norm_ffn"),
    LINEAR("~layers.*.fc1", "layer.*.ffn.in"),
    LINEAR("~layers.*.fc2", "layer.*.ffn.out"),
    NORM("~final_layer_norm", "layer.norm"),
    TRANSPOSED("lm_head.weight", "output.weight"),
    END_TENSORS,
};

/* ---- LLaMA, Mistral, Qwen 2 and 3, Phi 3, Gemma 2 and 3 ---- */

/* Keys of rotary positions: version 5 has them in the object `in`, version 4 in rope_scaling or on
 * top. */
#define ROPE_KEY(in, key) in "." key "|rope_scaling." key
#define ROPE_NUMBER(in, key, option, rules, usual)                                                 \
    {                                                                                              \
        HF_ROPE_NUMBER, ROPE_KEY(in, key), option, "", NULL, rules, usual                          \
    }
#define ROPE_POSITIONS(in, rules)                                                                  \
    {                                                                                              \
        HF_ROPE_NUMBER,                                                                            \
            ROPE_KEY(in, "original_max_position_embeddings") "|original_max_position_embeddings",  \
            "rotary_positions", "", "max_positions", rules, 0                                      \
    }
#define ROPE_FACTORS(in, key)                                                                      \
    {                                                                                              \
        HF_ROPE_FACTORS, ROPE_KEY(in, key), "rotary_factors", "", NULL, ROPE(LONGROPE), 0          \
    }
#define ROTARY_DIM(in)                                                                             \
    {                                                                                              \
        HF_ROTARY_DIM, in ".partial_rotary_factor|partial_rotary_factor", "rotary_dim", "", NULL,  \
            0, 0                                                                                   \
    }
#define ROPE_KEYS(in, base)                                                                        \
    NUMBER(in ".rope_theta|rope_theta", "rotary_base", base), ROTARY_DIM(in),                      \
        {HF_ROPE_TYPE,                                                                             \
         "rope_scaling.type|" ROPE_KEY(in, "rope_type"),                                           \
         "rotary_scaling",                                                                         \
         "",                                                                                       \
         NULL,                                                                                     \
         0,                                                                                        \
         0},                                                                                       \
        ROPE_NUMBER(in, "factor", "rotary_factor", ROPE(LINEAR) | ROPE(LLAMA3) | ROPE(YARN), 1),   \
        ROPE_NUMBER(in, "factor", NULL, ROPE(LONGROPE), 0),                                        \
        ROPE_NUMBER(in, "low_freq_factor", "rotary_slow", ROPE(LLAMA3), 1),                        \
        ROPE_NUMBER(in, "high_freq_factor", "rotary_fast", ROPE(LLAMA3), 4),                       \
        ROPE_NUMBER(in, "beta_slow", "rotary_slow", ROPE(YARN), 1),                                \
        ROPE_NUMBER(in, "beta_fast", "rotary_fast", ROPE(YARN), 32),                               \
        ROPE_NUMBER(in, "attention_factor", "rotary_magnitude", ROPE(YARN), 0),                    \
        ROPE_NUMBER(in, "attention_factor", "rotary_magnitude", ROPE(LONGROPE), 1),                \
        ROPE_POSITIONS(in, ROPE(LLAMA3) | ROPE(YARN)), ROPE_POSITIONS(in, ROPE(LONGROPE)),         \
        ROPE_FACTORS(in, "short_factor"), ROPE_FACTORS(in, "long_factor"),                         \
        FIXED(ROPE_KEY(in, "truncate"), "true"), FIXED("rope_interleaved", "false")
#define HEAD_DIM(usual)                                                                            \
    {                                                                                              \
        HF_HEAD_DIM, "head_dim", "head_dim", usual, NULL, 0, 0                                     \
    }
#define LLAMA_KEYS(vocab, positions, width, inner, epsilon)                                        \
    NUMBER("vocab_size", "vocab", vocab), NUMBER("hidden_size", "d_model", width),                 \
        NUMBER("num_hidden_layers", "layers", "32"), NUMBER("num_attention_heads", "heads", "32"), \
        NUMBER("intermediate_size", "d_ff", inner),                                                \
        NUMBER("max_position_embeddings", "max_positions", positions),                             \
        {HF_ACTIVATION, "hidden_act", "activation", "\"silu\"", NULL, 0, 0},                       \
        NUMBER("rms_norm_eps", "eps", epsilon), FLAG("tie_word_embeddings", "tied", "false"),      \
    {                                                                                              \
        HF_PAD, "pad_token_id", "pad_id", "", NULL, 0, 0                                           \
    }

static const hf_key llama_keys[] = {
    LLAMA_KEYS("32000", "2048", "4096", "11008", "1e-6"),
    HEAD_DIM(""),
    ROPE_KEYS("rope_parameters", "10000"),
    DERIVED("num_key_value_heads", "kv_heads", 1, "heads"),
    FLAG("attention_bias", "qkv_bias", "false"),
    FLAG("attention_bias", "out_bias", "false"),
    FLAG("mlp_bias", "ffn_bias", "false"),
    END_KEYS,
};
static const hf_key mistral_keys[] = {
    LLAMA_KEYS("32000", "131072", "4096", "14336", "1e-6"),
    HEAD_DIM(""),
    ROPE_KEYS("rope_parameters", "10000"),
    NUMBER("num_key_value_heads", "kv_heads", "8"),
    {HF_NULLABLE, "sliding_window", "window", "4096", NULL, 0, 0},
    END_KEYS,
};
static const hf_key qwen2_keys[] = {
    LLAMA_KEYS("151936", "32768", "4096", "22016", "1e-6"),
    HEAD_DIM(""),
    ROPE_KEYS("rope_parameters", "10000"),
    NUMBER("num_key_value_heads", "kv_heads", "32"),
    FIXED("use_sliding_window", "false"),
    FIXED("use_mrope", "false"),
    {HF_EACH, "layer_types", NULL, "\"full_attention\"", NULL, 0, 0},
    END_KEYS,
};
static const hf_key qwen3_keys[] = {
    LLAMA_KEYS("151936", "32768", "4096", "22016", "1e-6"),
    HEAD_DIM("128"),
    ROPE_KEYS("rope_parameters", "10000"),
    NUMBER("num_key_value_heads", "kv_heads", "32"),
    FLAG("attention_bias", "qkv_bias", "false"),
    FLAG("attention_bias", "out_bias", "false"),
    FIXED("use_sliding_window", "false"),
    {HF_EACH, "layer_types", NULL, "\"full_attention\"", NULL, 0, 0},
    END_KEYS,
};

#define GEMMA_KEYS(vocab, positions, in, base)                                                     \
    NUMBER("vocab_size", "vocab", vocab), NUMBER("hidden_size", "d_model", "2304"),                \
        NUMBER("num_hidden_layers", "layers", "26"), NUMBER("num_attention_heads", "heads", "8"),  \
        NUMBER("num_key_value_heads", "kv_heads", "4"),                                            \
        NUMBER("intermediate_size", "d_ff", "9216"),                                               \
        NUMBER("max_position_embeddings", "max_positions", positions),                             \
        {HF_ACTIVATION, "hidden_activation", "activation", "\"gelu_pytorch_tanh\"", NULL, 0, 0},   \
        NUMBER("rms_norm_eps", "eps", "1e-6"), FLAG("tie_word_embeddings", "tied", "true"),        \
        HEAD_DIM("256"), ROPE_KEYS(in, base), FLAG("attention_bias", "qkv_bias", "false"),         \
        FLAG("attention_bias", "out_bias", "false"),                                               \
        NUMBER("query_pre_attn_scalar", "score_width", "256"),                                     \
        {HF_NULLABLE, "sliding_window", "window", "4096", NULL, 0, 0},                             \
        FIXED("use_bidirectional_attention", "false"),                                             \
    {                                                                                              \
        HF_PAD, "pad_token_id", "pad_id", "0", NULL, 0, 0                                          \
    }

static const hf_key gemma2_keys[] = {
    GEMMA_KEYS("256000", "8192", "rope_parameters", "10000"),
    {HF_LAYERS, "layer_types", "global_every", "", NULL, 0, 0},
    {HF_NULLABLE, "attn_logit_softcapping", "score_cap", "50", NULL, 0, 0},
    {HF_NULLABLE, "final_logit_softcapping", "logit_cap", "30", NULL, 0, 0},
    END_KEYS,
};
static const hf_key gemma3_keys[] = {
    GEMMA_KEYS("262208", "131072", "rope_parameters.full_attention", "1000000"),
    NUMBER("_sliding_window_pattern|sliding_window_pattern", "global_every", "6"),
    {HF_LAYERS, "layer_types", "global_every", "", NULL, 0, 0},
    {HF_NULLABLE, "attn_logit_softcapping", "score_cap", "", NULL, 0, 0},
    {HF_NULLABLE, "final_logit_softcapping", "logit_cap", "", NULL, 0, 0},
    NUMBER("rope_parameters.sliding_attention.rope_theta|rope_local_base_freq", "local_rotary_base",
           "10000"),
    FIXED("rope_parameters.sliding_attention.rope_type", "\"default\""),
    END_KEYS,
};

static const hf_key phi3_keys[] = {
    LLAMA_KEYS("32064", "4096", "3072", "8192", "1e-5"),
    HEAD_DIM(""),
    DERIVED("num_key_value_heads", "kv_heads", 1, "heads"),
    ROPE_KEYS("rope_parameters", "10000"),
    FIXED("attention_bias", "false"),
    {HF_NULLABLE, "sliding_window", "window", "", NULL, 0, 0},
    END_KEYS,
};

static const hf_tensor llama_tensors[] = {
    SAME("~embed_tokens.weight", "embedding"),
    SAME("~layers.*.input_layernorm.weight", "layer.*.norm_attn.gamma"),
    LINEAR("~layers.*.self_attn.q_proj", "layer.*.attn.q"),
    LINEAR("~layers.*.self_attn.k_proj", "layer.*.attn.k"),
    LINEAR("~layers.*.self_attn.v_proj", "layer.*.attn.v"),
    LINEAR("~layers.*.self_attn.o_proj", "layer.*.attn.out"),
    SAME("~layers.*.self_attn.q_norm.weight", "layer.*.attn.norm_q.gamma"),
    SAME("~layers.*.self_attn.k_norm.weight", "layer.*.attn.norm_k.gamma"),
    LINEAR("~layers.*.mlp.gate_proj", "layer.*.ffn.gate"),
    LINEAR("~layers.*.mlp.up_proj", "layer.*.ffn.in"),
    LINEAR("~layers.*.mlp.down_proj", "layer.*.ffn.out"),
    SAME("~norm.weight", "layer.norm.gamma"),
    TRANSPOSED("lm_head.weight", "output.weight"),
    END_TENSORS,
};
static const hf_tensor phi3_tensors[] = {
    SAME("~embed_tokens.weight", "embedding"),
    SAME("~layers.*.input_layernorm.weight", "layer.*.norm_attn.gamma"),
    LINEAR_PART("~layers.*.self_attn.qkv_proj", "layer.*.attn.q"),
    LINEAR_PART("~layers.*.self_attn.qkv_proj", "layer.*.attn.k"),
    LINEAR_PART("~layers.*.self_attn.qkv_proj", "layer.*.attn.v"),
    LINEAR("~layers.*.self_attn.o_proj", "layer.*.attn.out"),
    LINEAR_PART("~layers.*.mlp.gate_up_proj", "layer.*.ffn.gate"),
    LINEAR_PART("~layers.*.mlp.gate_up_proj", "layer.*.ffn.in"),
    LINEAR("~layers.*.mlp.down_proj", "layer.*.ffn.out"),
    SAME("~norm.weight", "layer.norm.gamma"),
    TRANSPOSED("lm_head.weight", "output.weight"),
    END_TENSORS,
};
static const hf_tensor llama_norms[] = {
    SAME("~layers.*.post_attention_layernorm.weight", "layer.*.norm_ffn.gamma"),
    END_TENSORS,
};
static const hf_tensor gemma_norms[] = {
    SAME("~layers.*.post_attention_layernorm.weight", "layer.*.norm_attn_out.gamma"),
    SAME("~layers.*.pre_feedforward_layernorm.weight", "layer.*.norm_ffn.gamma"),
    SAME("~layers.*.post_feedforward_layernorm.weight", "layer.*.norm_ffn_out.gamma"),
    END_TENSORS,
};

/* ---- BERT, RoBERTa, DistilBERT ---- */

#define BERT_KEYS(positions, extra, types)                                                         \
    NUMBER("vocab_size", "vocab", "30522"), NUMBER("hidden_size", "d_model", "768"),               \
        NUMBER("num_hidden_layers", "layers", "12"), NUMBER("num_attention_heads", "heads", "12"), \
        NUMBER("intermediate_size", "d_ff", "3072"),                                               \
        {HF_NUMBER, "max_position_embeddings", "max_positions", positions, NULL, 0, extra},        \
        NUMBER("type_vocab_size", "token_types", types), NUMBER("layer_norm_eps", "eps", "1e-12"), \
        NUMBER("hidden_dropout_prob", "dropout", "0.1"),                                           \
        FIXED("position_embedding_type", "\"absolute\"")

static const hf_key bert_keys[] = {
    BERT_KEYS("512", 0, "2"),
    {HF_PAD, "pad_token_id", "pad_id", "0", NULL, 0, 0},
    END_KEYS,
};
/* Positions are counted from pad_token_id + 1. */
static const hf_key roberta_keys[] = {
    BERT_KEYS("512", 2, "2"),
    FIXED("pad_token_id", "1"),
    END_KEYS,
};
static const hf_key distilbert_keys[] = {
    NUMBER("vocab_size", "vocab", "30522"),
    NUMBER("dim", "d_model", "768"),
    NUMBER("n_layers", "layers", "6"),
    NUMBER("n_heads", "heads", "12"),
    NUMBER("hidden_dim", "d_ff", "3072"),
    NUMBER("max_position_embeddings", "max_positions", "512"),
    NUMBER("dropout", "dropout", "0.1"),
    FIXED("activation", "\"gelu\""),
    FIXED("sinusoidal_pos_embds", "false"),
    FIXED("tie_weights_", "true"),
    FLAG("tie_word_embeddings", "tied", "true"),
    {HF_PAD, "pad_token_id", "pad_id", "0", NULL, 0, 0},
    END_KEYS,
};
/* The head's activation is GELU in weft; so it must be in the layers, which have the same key. */
static const hf_key masked_keys[] = {
    FIXED("hidden_act", "\"gelu\""),
    FLAG("tie_word_embeddings", "tied", "true"),
    END_KEYS,
};
static const hf_key encoder_keys[] = {
    {HF_ACTIVATION, "hidden_act", "activation", "\"gelu\"", NULL, 0, 0},
    FIXED("tie_word_embeddings", "true"),
    END_KEYS,
};

static const hf_tensor bert_tensors[] = {
    SAME("~embeddings.word_embeddings.weight", "embedding"),
    SAME("~embeddings.position_embeddings.weight", "positions"),
    SAME("~embeddings.token_type_embeddings.weight", "token_type_embedding"),
    NORM("~embeddings.LayerNorm", "norm_embedding"),
    LINEAR("~encoder.layer.*.attention.self.query", "layer.*.attn.q"),
    LINEAR("~encoder.layer.*.attention.self.key", "layer.*.attn.k"),
    LINEAR("~encoder.layer.*.attention.self.value", "layer.*.attn.v"),
    LINEAR("~encoder.layer.*.attention.output.dense", "layer.*.attn.out"),
    NORM("~encoder.layer.*.attention.output.LayerNorm", "layer.*.norm_attn"),
    LINEAR("~encoder.layer.*.intermediate.dense", "layer.*.ffn.in"),
    LINEAR("~encoder.layer.*.output.dense", "layer.*.ffn.out"),
    NORM("~encoder.layer.*.output.LayerNorm", "layer.*.norm_ffn"),
    LINEAR("~pooler.dense", "pooler"),
    END_TENSORS,
};
static const hf_tensor bert_head_tensors[] = {
    LINEAR("cls.predictions.transform.dense", "head.linear"),
    NORM("cls.predictions.transform.LayerNorm", "head.norm"),
    TRANSPOSED("cls.predictions.decoder.weight", "output.weight"),
    SAME("cls.predictions.bias", "output.bias"),
    END_TENSORS,
};
static const hf_tensor roberta_head_tensors[] = {
    LINEAR("lm_head.dense", "head.linear"),
    NORM("lm_head.layer_norm", "head.norm"),
    TRANSPOSED("lm_head.decoder.weight", "output.weight"),
    SAME("lm_head.bias", "output.bias"),
    END_TENSORS,
};

static const hf_tensor distilbert_tensors[] = {
    SAME("~embeddings.word_embeddings.weight", "embedding"),
    SAME("~embeddings.position_embeddings.weight", "positions"),
    NORM("~embeddings.LayerNorm", "norm_embedding"),
    LINEAR("~transformer.layer.*.attention.q_lin", "layer.*.attn.q"),
    LINEAR("~transformer.layer.*.attention.k_lin", "layer.*.attn.k"),
    LINEAR("~transformer.layer.*.attention.v_lin", "layer.*.attn.v"),
    LINEAR("~transformer.layer.*.attention.out_lin", "layer.*.attn.out"),
    NORM("~transformer.layer.*.sa_layer_norm", "layer.*.norm_attn"),
    LINEAR("~transformer.layer.*.ffn.lin1", "layer.*.ffn.in"),
    LINEAR("~transformer.layer.*.ffn.lin2", "layer.*.ffn.out"),
    NORM("~transformer.layer.*.output_layer_norm", "layer.*.norm_ffn"),
    LINEAR("vocab_transform", "head.linear"),
    NORM("vocab_layer_norm", "head.norm"),
    TRANSPOSED("vocab_projector.weight", "output.weight"),
    SAME("vocab_projector.bias", "output.bias"),
    END_TENSORS,
};

/* ---- Marian, Pegasus, BART, mBART ---- */

static const hf_key seq2seq_keys[] = {
    NUMBER("vocab_size", "vocab", "50265"),
    NUMBER("decoder_vocab_size", "vocab", ""),
    NUMBER("d_model", "d_model", "1024"),
    NUMBER("encoder_layers", "encoder_layers", "12"),
    NUMBER("decoder_layers", "decoder_layers", "12"),
    NUMBER("encoder_attention_heads", "heads", "16"),
    NUMBER("decoder_attention_heads", "heads", "16"),
    NUMBER("encoder_ffn_dim", "d_ff", "4096"),
    NUMBER("decoder_ffn_dim", "d_ff", "4096"),
    NUMBER("max_position_embeddings", "max_positions", "1024"),
    {HF_ACTIVATION, "activation_function", "activation", "\"gelu\"", NULL, 0, 0},
    FLAG("scale_embedding", "scaled_embeddings", "false"),
    NUMBER("dropout", "dropout", "0.1"),
    {HF_PAD, "pad_token_id", "pad_id", NULL, NULL, 0, 0},
    FIXED("tie_word_embeddings", "true"),
    FIXED("share_encoder_decoder_embeddings", "true"),
    END_KEYS,
};

#define SEQ2SEQ_LAYER(theirs, ours)                                                                \
    LINEAR(theirs ".self_attn.q_proj", ours ".attn.q"),                                            \
        LINEAR(theirs ".self_attn.k_proj", ours ".attn.k"),                                        \
        LINEAR(theirs ".self_attn.v_proj", ours ".attn.v"),                                        \
        LINEAR(theirs ".self_attn.out_proj", ours ".attn.out"),                                    \
        NORM(theirs ".self_attn_layer_norm", ours ".norm_attn"),                                   \
        LINEAR(theirs ".fc1", ours ".ffn.in"), LINEAR(theirs ".fc2", ours ".ffn.out"),             \
        NORM(theirs ".final_layer_norm", ours ".norm_ffn")

static const hf_tensor seq2seq_tensors[] = {
    SAME("~shared.weight", "embedding"),
    SEQ2SEQ_LAYER("~encoder.layers.*", "enc.*"),
    SEQ2SEQ_LAYER("~decoder.layers.*", "dec.*"),
    LINEAR("~decoder.layers.*.encoder_attn.q_proj", "dec.*.cross.q"),
    LINEAR("~decoder.layers.*.encoder_attn.k_proj", "dec.*.cross.k"),
    LINEAR("~decoder.layers.*.encoder_attn.v_proj", "dec.*.cross.v"),
    LINEAR("~decoder.layers.*.encoder_attn.out_proj", "dec.*.cross.out"),
    NORM("~decoder.layers.*.encoder_attn_layer_norm", "dec.*.norm_cross"),
    {"final_logits_bias", "output.bias", HF_ROW},
    END_TENSORS,
};
/* mBART and Pegasus: a norm at the end of each stack. */
static const hf_tensor pre_norm_tensors[] = {
    NORM("~encoder.layer_norm", "enc.norm"),
    NORM("~decoder.layer_norm", "dec.norm"),
    END_TENSORS,
};
static const hf_tensor bart_tensors[] = {
    SAME("~encoder.embed_positions.weight", "source_positions"),
    SAME("~decoder.embed_positions.weight", "target_positions"),
    NORM("~encoder.layernorm_embedding", "source_norm_embedding"),
    NORM("~decoder.layernorm_embedding", "target_norm_embedding"),
    END_TENSORS,
};

#define SEQ2SEQ_FIXED                                                                              \
    "tied=1 eps=1e-5 output_bias=always projection=separate score_scale=head-width "               \
    "attention_bias=1 "
#define SINUSOIDAL_FIXED "positions=sinusoidal-halves norm_embeddings=0 position_offset=0 "
#define BART_FIXED       "positions=learned norm_embeddings=1 position_offset=2 "
#define SEQ2SEQ_COMPUTED "lm_head.weight|*coder.embed_tokens.weight"

/* ---- The list ---- */

#define GPT_FIXED                                                                                  \
    "norm=pre positions=learned rotary_base=0 qkv_bias=1 out_bias=1 ffn_bias=1 output_bias=none "  \
    "kv_heads=0 token_types=0 transform_head=0 pooler=0 window=0 head_dim=0 norm_qk=0 "
#define LLAMA_FIXED                                                                                \
    "norm=pre positions=none output_bias=none token_types=0 transform_head=0 pooler=0 "
#define GEMMA_FIXED                                                                                \
    "norm=both positions=none output_bias=none token_types=0 transform_head=0 pooler=0 "           \
    "ffn_bias=0 gamma_plus_one=1 scaled_embeddings=1 "
#define BERT_FIXED                                                                                 \
    "norm=post positions=learned rotary_base=0 qkv_bias=1 out_bias=1 ffn_bias=1 kv_heads=0 "       \
    "window=0 head_dim=0 norm_qk=0 "

/* transformers reads hidden_activation. */
#define GEMMA_INERT "hidden_act|cache_implementation"

static const hf_architecture architectures[] = {
    {.name = "GPT2LMHeadModel",
     .aliases = "GPT2Model|GPT2DoubleHeadsModel",
     .type = "gpt2",
     .model = "gpt",
     .fixed = GPT_FIXED "position_offset=0",
     .prefix = "transformer.",
     .keys = {gpt2_keys, common_keys},
     .tensors = {gpt2_tensors},
     .computed = "*.attn.bias|*.attn.masked_bias|lm_head.weight",
     .left_out = "multiple_choice_head.*"},
    {.name = "OPTForCausalLM",
     .aliases = "OPTModel",
     .type = "opt",
     .model = "gpt",
     .fixed = GPT_FIXED "position_offset=2 eps=1e-5",
     .prefix = "model.decoder.",
     .keys = {opt_keys, common_keys},
     .tensors = {opt_tensors},
     .computed = "lm_head.weight"},
    {.name = "LlamaForCausalLM",
     .aliases = "LlamaModel|LLaMAForCausalLM",
     .type = "llama",
     .model = "llama",
     .fixed = LLAMA_FIXED "window=0 norm_qk=0",
     .prefix = "model.",
     .keys = {llama_keys, common_keys},
     .tensors = {llama_tensors, llama_norms},
     .computed = "*rotary_emb.inv_freq|lm_head.weight"},
    {.name = "Qwen2ForCausalLM",
     .aliases = "Qwen2Model",
     .type = "qwen2",
     .model = "llama",
     .fixed = LLAMA_FIXED "window=0 norm_qk=0 qkv_bias=1 out_bias=0 ffn_bias=0",
     .prefix = "model.",
     .keys = {qwen2_keys, common_keys},
     .tensors = {llama_tensors, llama_norms},
     .inert = "sliding_window",
     .computed = "*rotary_emb.inv_freq|lm_head.weight"},
    {.name = "Qwen3ForCausalLM",
     .aliases = "Qwen3Model",
     .type = "qwen3",
     .model = "llama",
     .fixed = LLAMA_FIXED "window=0 norm_qk=1 ffn_bias=0",
     .prefix = "model.",
     .keys = {qwen3_keys, common_keys},
     .tensors = {llama_tensors, llama_norms},
     .inert = "sliding_window",
     .computed = "*rotary_emb.inv_freq|lm_head.weight"},
    {.name = "MistralForCausalLM",
     .aliases = "MistralModel",
     .type = "mistral",
     .model = "llama",
     .fixed = LLAMA_FIXED "norm_qk=0 qkv_bias=0 out_bias=0 ffn_bias=0",
     .prefix = "model.",
     .keys = {mistral_keys, common_keys},
     .tensors = {llama_tensors, llama_norms},
     .computed = "*rotary_emb.inv_freq|lm_head.weight"},
    {.name = "Phi3ForCausalLM",
     .aliases = "Phi3Model",
     .type = "phi3",
     .model = "llama",
     .fixed = LLAMA_FIXED "norm_qk=0 qkv_bias=0 out_bias=0 ffn_bias=0",
     .prefix = "model.",
     .keys = {phi3_keys, common_keys},
     .tensors = {phi3_tensors, llama_norms},
     .inert = "original_max_position_embeddings",
     .computed = "*rotary_emb.inv_freq|lm_head.weight"},
    {.name = "Gemma2ForCausalLM",
     .aliases = "Gemma2Model",
     .type = "gemma2",
     .model = "llama",
     .fixed = GEMMA_FIXED "norm_qk=0 global_every=2",
     .prefix = "model.",
     .keys = {gemma2_keys, common_keys},
     .tensors = {llama_tensors, gemma_norms},
     .inert = GEMMA_INERT,
     .computed = "*rotary_emb.inv_freq|lm_head.weight"},
    {.name = "Gemma3ForCausalLM",
     .aliases = "Gemma3TextModel",
     .type = "gemma3_text",
     .model = "llama",
     .fixed = GEMMA_FIXED "norm_qk=1",
     .prefix = "model.",
     .keys = {gemma3_keys, common_keys},
     .tensors = {llama_tensors, gemma_norms},
     .inert = GEMMA_INERT,
     .computed = "*rotary_emb.inv_freq|*rotary_emb_local.inv_freq|lm_head.weight"},
    {.name = "BertForMaskedLM",
     .aliases = "BertForPreTraining",
     .type = "bert",
     .model = "bert",
     .fixed = BERT_FIXED "position_offset=0 output_bias=always transform_head=1 activation=gelu",
     .prefix = "bert.",
     .keys = {bert_keys, masked_keys, common_keys},
     .tensors = {bert_tensors, bert_head_tensors},
     .computed = "*embeddings.position_ids|cls.predictions.decoder.*",
     .left_out = "cls.seq_relationship.*"},
    {.name = "BertModel",
     .type = "bert",
     .model = "bert",
     .fixed = BERT_FIXED "position_offset=0 output_bias=none transform_head=0 tied=1",
     .prefix = "bert.",
     .headless = true,
     .keys = {bert_keys, encoder_keys, common_keys},
     .tensors = {bert_tensors},
     .computed = "*embeddings.position_ids",
     .left_out = "cls.*"},
    {.name = "RobertaForMaskedLM",
     .type = "roberta",
     .model = "bert",
     .fixed = BERT_FIXED "position_offset=2 output_bias=always transform_head=1 activation=gelu "
                         "pad_id=1",
     .prefix = "roberta.",
     .keys = {roberta_keys, masked_keys, common_keys},
     .tensors = {bert_tensors, roberta_head_tensors},
     .computed = "*embeddings.position_ids|lm_head.decoder.*"},
    {.name = "DistilBertForMaskedLM",
     .type = "distilbert",
     .model = "bert",
     .fixed = BERT_FIXED "position_offset=0 output_bias=always transform_head=1 activation=gelu "
                         "token_types=0 eps=1e-12",
     .prefix = "distilbert.",
     .keys = {distilbert_keys, common_keys},
     .tensors = {distilbert_tensors},
     .computed = "vocab_projector.weight"},
    {.name = "MarianMTModel",
     .aliases = "MarianModel",
     .type = "marian",
     .model = "transformer",
     .fixed = SEQ2SEQ_FIXED SINUSOIDAL_FIXED "norm=post",
     .prefix = "model.",
     .keys = {seq2seq_keys, common_keys},
     .tensors = {seq2seq_tensors},
     .computed = SEQ2SEQ_COMPUTED "|*coder.embed_positions.weight"},
    {.name = "PegasusForConditionalGeneration",
     .aliases = "PegasusModel",
     .type = "pegasus",
     .model = "transformer",
     .fixed = SEQ2SEQ_FIXED SINUSOIDAL_FIXED "norm=pre",
     .prefix = "model.",
     .keys = {seq2seq_keys, common_keys},
     .tensors = {seq2seq_tensors, pre_norm_tensors},
     .computed = SEQ2SEQ_COMPUTED "|*coder.embed_positions.weight"},
    {.name = "BartForConditionalGeneration",
     .aliases = "BartModel",
     .type = "bart",
     .model = "transformer",
     .fixed = SEQ2SEQ_FIXED BART_FIXED "norm=post",
     .prefix = "model.",
     .keys = {seq2seq_keys, common_keys},
     .tensors = {seq2seq_tensors, bart_tensors},
     .computed = SEQ2SEQ_COMPUTED},
    {.name = "MBartForConditionalGeneration",
     .aliases = "MBartModel",
     .type = "mbart",
     .model = "transformer",
     .fixed = SEQ2SEQ_FIXED BART_FIXED "norm=pre",
     .prefix = "model.",
     .keys = {seq2seq_keys, common_keys},
     .tensors = {seq2seq_tensors, bart_tensors, pre_norm_tensors},
     .computed = SEQ2SEQ_COMPUTED},
};

const hf_architecture *weft__hf_architecture_at(size_t index)
{
    return index < sizeof architectures / sizeof *architectures ? &architectures[index] : NULL;
}

bool weft_huggingface_at(size_t index, weft_huggingface_architecture *architecture)
{
    const hf_architecture *a = weft__hf_architecture_at(index);
    if (a && architecture) *architecture = (weft_huggingface_architecture){a->name, a->model};
    return a != NULL;
}

bool weft__hf_is_one_of(const char *patterns, const char *text)
{
    for (const char *p = patterns; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (weft__text_match(p, strcspn(p, "|"), text)) return true;
    }
    return false;
}
