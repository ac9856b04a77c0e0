/* The table of architectures of GGUF files. Keys are those of gguf/constants.py in the Python package
 * `gguf`, without the name of the architecture before them; defaults, and what a file does not say,
 * are those of llama.cpp (src/llama-model.cpp). Names of tensors are those of gguf/tensor_mapping.py,
 * their layouts those of convert_hf_to_gguf.py. */
#include "model.h"

#include <string.h>

#define END_KEYS                                                                                   \
    {                                                                                              \
        GGUF_INERT, NULL, NULL, NULL                                                               \
    }
#define END_TENSORS                                                                                \
    {                                                                                              \
        NULL, NULL, GGUF_SAME                                                                      \
    }

/* ---- Keys ---- */

static const gguf_key common_keys[] = {
    {GGUF_OPTION, "block_count", "layers", NULL},
    {GGUF_OPTION, "context_length", "max_positions", NULL},
    {GGUF_OPTION, "embedding_length", "d_model", NULL},
    {GGUF_OPTION, "feed_forward_length", "d_ff", NULL},
    {GGUF_OPTION, "attention.head_count", "heads", NULL},
    {GGUF_OPTION, "attention.head_count_kv", "kv_heads", "0"},
    {GGUF_VOCAB, "vocab_size", NULL, NULL},
    {GGUF_EQUALS, "expert_count", NULL, "0"},
    {GGUF_EQUALS, "expert_used_count", NULL, "0"},
    END_KEYS,
};
static const gguf_key gpt2_keys[] = {
    {GGUF_OPTION, "attention.layer_norm_epsilon", "eps", NULL},
    END_KEYS,
};
static const gguf_key rotary_keys[] = {
    {GGUF_OPTION, "attention.layer_norm_rms_epsilon", "eps", NULL},
    {GGUF_HEAD_DIM, "attention.key_length", "head_dim", NULL},
    {GGUF_HEAD, "attention.value_length", NULL, NULL},
    {GGUF_OPTION, "rope.freq_base", "rotary_base", "10000"},
    {GGUF_ROTARY_DIM, "rope.dimension_count", "rotary_dim", NULL},
    {GGUF_SCALING, "rope.scaling.type", "rotary_scaling", NULL},
    {GGUF_SCALED, "rope.scaling.factor", "rotary_factor", "linear|yarn"},
    {GGUF_SCALED, "rope.scaling.original_context_length", "rotary_positions", "yarn"},
    {GGUF_SCALED, "rope.scaling.yarn_beta_fast", "rotary_fast", "yarn"},
    {GGUF_SCALED, "rope.scaling.yarn_beta_slow", "rotary_slow", "yarn"},
    {GGUF_EQUALS, "rope.scaling.yarn_ext_factor", NULL, "1"},
    {GGUF_EQUALS, "rope.scaling.yarn_attn_factor", NULL, "1"},
    {GGUF_FACTORED, "rope.scaling.attn_factor", "rotary_magnitude", "1"},
    {GGUF_EQUALS, "rope.scaling.yarn_log_multiplier", NULL, "0"},
    {GGUF_EQUALS, "rope.scale_linear", NULL, "1"},
    {GGUF_INERT, "rope.scaling.finetuned", NULL, NULL},
    END_KEYS,
};
static const gguf_key phi3_keys[] = {
    {GGUF_OPTION, "attention.sliding_window", "window", "0"},
    END_KEYS,
};
static const gguf_key gemma2_keys[] = {
    {GGUF_OPTION, "attention.sliding_window", "window", "4096"},
    {GGUF_OPTION, "attn_logit_softcapping", "score_cap", "50"},
    {GGUF_OPTION, "final_logit_softcapping", "logit_cap", "30"},
    {GGUF_EQUALS, "attention.sliding_window_pattern", NULL, "2"},
    END_KEYS,
};
static const gguf_key gemma3_keys[] = {
    {GGUF_OPTION, "attention.sliding_window", "window", NULL},
    {GGUF_OPTION, "attention.sliding_window_pattern", "global_every", "6"},
    {GGUF_OPTION, "final_logit_softcapping", "logit_cap", "0"},
    {GGUF_OPTION, "rope.freq_base_swa", "local_rotary_base", "10000"},
    END_KEYS,
};

/* ---- Tensors ---- */

#define LINEAR(theirs, ours, layout)                                                               \
    {theirs ".weight", ours ".weight", layout},                                                    \
    {                                                                                              \
        theirs ".bias", ours ".bias", layout == GGUF_TRANSPOSED ? GGUF_SAME : layout               \
    }
#define NORM(theirs, ours)                                                                         \
    {theirs ".weight", ours ".gamma", GGUF_SAME},                                                  \
    {                                                                                              \
        theirs ".bias", ours ".beta", GGUF_SAME                                                    \
    }

static const gguf_row common_tensors[] = {
    {"token_embd.weight", "embedding", GGUF_SAME},
    {"position_embd.weight", "positions", GGUF_SAME},
    NORM("blk.*.attn_norm", "layer.*.norm_attn"),
    LINEAR("blk.*.attn_output", "layer.*.attn.out", GGUF_TRANSPOSED),
    NORM("blk.*.ffn_norm", "layer.*.norm_ffn"),
    LINEAR("blk.*.ffn_down", "layer.*.ffn.out", GGUF_TRANSPOSED),
    NORM("output_norm", "layer.norm"),
    {"output.weight", "output.weight", GGUF_TRANSPOSED},
    END_TENSORS,
};
/* convert_hf_to_gguf.py moves the rows of queries and keys of this architecture only. */
static const gguf_row llama_tensors[] = {
    LINEAR("blk.*.attn_q", "layer.*.attn.q", GGUF_QUERY),
    LINEAR("blk.*.attn_k", "layer.*.attn.k", GGUF_KEY),
    LINEAR("blk.*.attn_v", "layer.*.attn.v", GGUF_TRANSPOSED),
    LINEAR("blk.*.ffn_gate", "layer.*.ffn.gate", GGUF_TRANSPOSED),
    LINEAR("blk.*.ffn_up", "layer.*.ffn.in", GGUF_TRANSPOSED),
    END_TENSORS,
};
static const gguf_row qwen_tensors[] = {
    LINEAR("blk.*.attn_q", "layer.*.attn.q", GGUF_TRANSPOSED),
    LINEAR("blk.*.attn_k", "layer.*.attn.k", GGUF_TRANSPOSED),
    LINEAR("blk.*.attn_v", "layer.*.attn.v", GGUF_TRANSPOSED),
    {"blk.*.attn_q_norm.weight", "layer.*.attn.norm_q.gamma", GGUF_SAME},
    {"blk.*.attn_k_norm.weight", "layer.*.attn.norm_k.gamma", GGUF_SAME},
    LINEAR("blk.*.ffn_gate", "layer.*.ffn.gate", GGUF_TRANSPOSED),
    LINEAR("blk.*.ffn_up", "layer.*.ffn.in", GGUF_TRANSPOSED),
    END_TENSORS,
};
static const gguf_row gemma_tensors[] = {
    {"blk.*.post_attention_norm.weight", "layer.*.norm_attn_out.gamma", GGUF_SAME},
    {"blk.*.post_ffw_norm.weight", "layer.*.norm_ffn_out.gamma", GGUF_SAME},
    END_TENSORS,
};
static const gguf_row fused_tensors[] = {
    LINEAR("blk.*.attn_qkv", "layer.*.attn.q", GGUF_TRANSPOSED),
    LINEAR("blk.*.attn_qkv", "layer.*.attn.k", GGUF_TRANSPOSED),
    LINEAR("blk.*.attn_qkv", "layer.*.attn.v", GGUF_TRANSPOSED),
    END_TENSORS,
};
static const gguf_row gpt2_tensors[] = {
    LINEAR("blk.*.ffn_up", "layer.*.ffn.in", GGUF_TRANSPOSED),
    END_TENSORS,
};
static const gguf_row phi3_tensors[] = {
    LINEAR("blk.*.ffn_up", "layer.*.ffn.gate", GGUF_TRANSPOSED),
    LINEAR("blk.*.ffn_up", "layer.*.ffn.in", GGUF_TRANSPOSED),
    END_TENSORS,
};

/* ---- The list ---- */

/* Norms have their 1 in the file. */
#define GEMMA_FIXED "norm=both scaled_embeddings=1 activation=gelu-tanh "

/* Files of Mistral, SmolLM2 and TinyLlama are of the architecture llama as well. */
static const gguf_architecture architectures[] = {
    {.name = "llama",
     .model = "llama",
     .keys = {common_keys, rotary_keys},
     .tensors = {common_tensors, llama_tensors}},
    {.name = "qwen2",
     .model = "llama",
     .keys = {common_keys, rotary_keys},
     .tensors = {common_tensors, qwen_tensors}},
    {.name = "qwen3",
     .model = "llama",
     .fixed = "norm_qk=1",
     .keys = {common_keys, rotary_keys},
     .tensors = {common_tensors, qwen_tensors}},
    /* llama.cpp ignores its window. */
    {.name = "phi3",
     .model = "llama",
     .by_name = true,
     .keys = {common_keys, rotary_keys, phi3_keys},
     .tensors = {common_tensors, fused_tensors, phi3_tensors}},
    {.name = "gemma2",
     .model = "llama",
     .fixed = GEMMA_FIXED "global_every=2",
     .divided_layers = 46,
     .keys = {common_keys, rotary_keys, gemma2_keys},
     .tensors = {common_tensors, qwen_tensors, gemma_tensors}},
    {.name = "gemma3",
     .model = "llama",
     .fixed = GEMMA_FIXED "norm_qk=1",
     .divided_layers = 62,
     .keys = {common_keys, rotary_keys, gemma3_keys},
     .tensors = {common_tensors, qwen_tensors, gemma_tensors}},
    {.name = "gpt2",
     .model = "gpt",
     .fixed = "activation=gelu-tanh",
     .keys = {common_keys, gpt2_keys},
     .tensors = {common_tensors, fused_tensors, gpt2_tensors}},
};

const gguf_architecture *weft__gguf_architecture_at(size_t index)
{
    return index < sizeof architectures / sizeof *architectures ? &architectures[index] : NULL;
}

const gguf_row *weft__gguf_row_at(const gguf_architecture *a, size_t index)
{
    for (int t = 0; t < GGUF_TABLES && a->tensors[t]; t++)
        for (const gguf_row *row = a->tensors[t]; row->theirs; row++)
            if (index-- == 0) return row;
    return NULL;
}

const gguf_key *weft__gguf_key_at(const gguf_architecture *a, size_t index)
{
    for (int t = 0; t < GGUF_TABLES && a->keys[t]; t++)
        for (const gguf_key *row = a->keys[t]; row->key; row++)
            if (index-- == 0) return row;
    return NULL;
}
