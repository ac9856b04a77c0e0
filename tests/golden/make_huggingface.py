"""Makes the folders golden/huggingface/NAME: tiny transformers models with random
weights, and what they compute. Needs torch, transformers (4.45 or later) and numpy.

    python3 tests/golden/make_huggingface.py [FOLDER]

Each folder has config.json and the tensors as save_pretrained writes them, inputs/*.npy (target_in,
source, token_types) and outputs/*.npy (logits, hidden, pooled), computed in f64 from the stored
weights."""
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers as hf

hf.logging.set_verbosity_error()
LLAMA = dict(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4)
BERT = dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
            num_attention_heads=3, max_position_embeddings=16)
PAIR = dict(vocab_size=47, d_model=16, encoder_layers=2, decoder_layers=1, encoder_ffn_dim=24,
            decoder_ffn_dim=24, encoder_attention_heads=2, decoder_attention_heads=2,
            max_position_embeddings=16)


def rope(theta, partial=1.0, local=None, **scaling):
    """Arguments of a configuration, as version 5 of transformers has them or version 4."""
    if int(hf.__version__.split(".")[0]) < 5:
        keys = {"rope_theta": theta, "rope_scaling": scaling or None, "partial_rotary_factor": partial}
        return {**keys, "rope_local_base_freq": local} if local else keys
    keys = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": partial, **scaling}
    if partial == 1:
        keys.pop("partial_rotary_factor")
    if local:
        keys = {"full_attention": keys, "sliding_attention": {"rope_type": "default", "rope_theta": local}}
    return {"rope_parameters": keys}


def longrope(positions):
    """The same for LongRoPE, whose long factors are for more tokens than `positions`."""
    return {"original_max_position_embeddings": positions,
            **rope(100.0, rope_type="longrope", short_factor=[1.25, 2.0, 3.0], long_factor=[1.5, 4.0, 8.0],
                   original_max_position_embeddings=positions)}


# name: class, configuration, how it is stored
MODELS = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=59, n_embd=24, n_layer=2, n_head=3, n_positions=16, bos_token_id=58,
        eos_token_id=58), {}),
    "gpt2-untied": (hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=43, n_embd=16, n_layer=1, n_head=4, n_positions=12, n_inner=40,
        activation_function="gelu", layer_norm_epsilon=1e-3, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1, pad_token_id=2), {"dtype": "float16"}),
    "opt": (hf.OPTForCausalLM, hf.OPTConfig(
        vocab_size=41, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, word_embed_proj_dim=16), {}),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(num_key_value_heads=2, **LLAMA),
              {"shard": "16KB"}),
    "llama-tied": (hf.LlamaForCausalLM, hf.LlamaConfig(
        tie_word_embeddings=True, rope_theta=500.0, attention_bias=True, mlp_bias=True,
        rms_norm_eps=1e-3, hidden_act="gelu", pad_token_id=3, **LLAMA), {"dtype": "bfloat16"}),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(
        num_key_value_heads=1, sliding_window=None, **LLAMA), {}),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(
        num_key_value_heads=2, tie_word_embeddings=True, **LLAMA), {}),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(
        num_key_value_heads=2, head_dim=8, attention_bias=True, max_position_embeddings=256, **rope(
            10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=64), **LLAMA), {}),
    "llama3": (hf.LlamaForCausalLM, hf.LlamaConfig(
        num_key_value_heads=2, head_dim=8, max_position_embeddings=256, **rope(
            100.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=32), **LLAMA), {}),
    "llama-linear": (hf.LlamaForCausalLM, hf.LlamaConfig(
        num_key_value_heads=1, **rope(500.0, rope_type="linear", factor=2.5), **LLAMA), {}),
    "mistral-head": (hf.MistralForCausalLM, hf.MistralConfig(
        num_key_value_heads=2, head_dim=10, sliding_window=4, **LLAMA), {}),
    "phi3": (hf.Phi3ForCausalLM, hf.Phi3Config(
        num_key_value_heads=2, sliding_window=4, pad_token_id=3, eos_token_id=2,
        **rope(100.0, partial=0.7), **LLAMA), {}),
    "phi3-short": (hf.Phi3ForCausalLM, hf.Phi3Config(
        num_key_value_heads=2, pad_token_id=3, eos_token_id=2, max_position_embeddings=64, **longrope(16), **LLAMA), {}),
    "phi3-long": (hf.Phi3ForCausalLM, hf.Phi3Config(
        num_key_value_heads=2, pad_token_id=3, eos_token_id=2, max_position_embeddings=64, **longrope(5), **LLAMA),
                  {"context": 7}),
    "gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config(
        num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=5, sliding_window=3,
        attn_logit_softcapping=2.0, final_logit_softcapping=3.0, **LLAMA), {}),
    "gemma3": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(
        num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, sliding_window=3,
        layer_types=["sliding_attention", "full_attention"],
        **rope(1000.0, local=10.0, rope_type="linear", factor=8.0), **LLAMA), {}),
    "gemma3-local": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(
        num_key_value_heads=1, head_dim=6, sliding_window=4, tie_word_embeddings=False, **LLAMA), {}),
    "bert": (hf.BertForMaskedLM, hf.BertConfig(**BERT), {"padded": True}),
    "bert-encoder": (hf.BertModel, hf.BertConfig(type_vocab_size=3, hidden_act="relu", **BERT), {}),
    "roberta": (hf.RobertaForMaskedLM, hf.RobertaConfig(type_vocab_size=1, **BERT), {}),
    "distilbert": (hf.DistilBertForMaskedLM, hf.DistilBertConfig(
        vocab_size=53, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=16),
                   {}),
    "marian": (hf.MarianMTModel, hf.MarianConfig(
        scale_embedding=True, activation_function="swish", pad_token_id=46, eos_token_id=0,
        decoder_start_token_id=46, **PAIR), {"padded": True}),
    "pegasus": (hf.PegasusForConditionalGeneration, hf.PegasusConfig(scale_embedding=True, **PAIR),
                {}),
    "bart": (hf.BartForConditionalGeneration, hf.BartConfig(**PAIR), {"padded": True}),
    "mbart": (hf.MBartForConditionalGeneration, hf.MBartConfig(
        activation_function="relu", **PAIR), {}),
}
GOLDEN = ["gpt2", "gpt2-untied", "llama", "llama-tied", "bert", "bert-encoder", "marian", "bart",
          "qwen3", "gemma2", "gemma3", "phi3", "phi3-long"]


def make(name, seed):
    """A model with random weights that all matter: norms around 1, biases that are not 0."""
    cls, config, stored = MODELS[name]
    torch.manual_seed(seed)
    config._attn_implementation = "eager"  # that of PyTorch has no soft caps in version 4
    model = cls(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "embed_positions" in key and config.model_type in ("marian", "pegasus"):
                continue  # computed
            p.copy_(torch.randn(p.shape) * 0.3 + ("norm" in key.lower() or "ln_" in key) * (p.dim() == 1)
                    * key.endswith("weight"))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    dtype = getattr(torch, stored.get("dtype", "float32"))
    for p in model.parameters():  # but no buffers, such as the frequencies of rotary positions
        p.data = p.data.to(dtype)
    model.config.dtype = dtype
    return model


def save(model, name, folder):
    kwargs = {"max_shard_size": MODELS[name][2]["shard"]} if "shard" in MODELS[name][2] else {}
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **kwargs)


def run(model, name, seed):
    """Inputs and outputs, by their names in weft. The inputs depend on the name and the seed only."""
    config, padded = MODELS[name][1], MODELS[name][2].get("padded")
    rng = np.random.default_rng(seed)
    pad = config.pad_token_id if config.pad_token_id is not None else -1
    ids = lambda shape: rng.choice([i for i in range(config.vocab_size) if i != pad], shape)
    arrays = {"target_in": ids((2, 7))}
    if config.is_encoder_decoder:
        arrays["source"] = ids((2, 9))
    elif getattr(config, "type_vocab_size", 0):
        arrays["token_types"] = rng.integers(0, config.type_vocab_size, (2, 7))
    masked = arrays["source" if config.is_encoder_decoder else "target_in"]
    if padded:
        masked[1, -3:] = pad
    feed = {key: torch.tensor(a) for key, a in arrays.items()}
    mask = torch.tensor(masked != pad).long()
    wide = model.double()
    with torch.no_grad():
        if config.is_encoder_decoder:
            out = wide(input_ids=feed["source"], attention_mask=mask,
                       decoder_input_ids=feed["target_in"], output_hidden_states=True)
            hidden = out.decoder_hidden_states[-1]
        else:
            more = {"token_type_ids": feed["token_types"]} if "token_types" in feed else {}
            out = wide(input_ids=feed["target_in"], attention_mask=mask, output_hidden_states=True,
                       **more)
            hidden = out.hidden_states[-1]
    results = {"hidden": hidden}
    if hasattr(out, "logits"):
        results["logits"] = out.logits
    if getattr(out, "pooler_output", None) is not None:
        results["pooled"] = out.pooler_output
    arrays = {key: a.astype(np.int32) for key, a in arrays.items()}
    return arrays, {key: t.numpy().astype(np.float32) for key, t in results.items()}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                        pathlib.Path(__file__).parent / "huggingface")
    for seed, name in enumerate(GOLDEN, 1):
        model = make(name, seed)
        save(model, name, root / name)
        for path in (root / name).glob("generation_config.json"):
            path.unlink()
        inputs, outputs = run(model, name, seed)
        for kind, arrays in (("inputs", inputs), ("outputs", outputs)):
            (root / name / kind).mkdir()
            for key, array in arrays.items():
                np.save(root / name / kind / f"{key}.npy", array)
        print(name, {k: v.shape for k, v in {**inputs, **outputs}.items()},
              sum(f.stat().st_size for f in (root / name).rglob("*")), "bytes")


if __name__ == "__main__":
    main()
