"""Writes models of transformers as GGUF files in F32, as convert_hf_to_gguf.py of llama.cpp lays them out, with the names
of the Python package `gguf`. Needs gguf, numpy and safetensors.

    python3 tests/golden/make_gguf_models.py [FOLDER]

makes golden/gguf/NAME.gguf of golden/huggingface/NAME for the models that have one. tests/tools/gguf_models.py does it
with new models."""
import json
import math
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).parent
GOLDEN = ["gpt2", "qwen3", "phi3", "gemma3"]
ARCHITECTURES = {"gpt2": gguf.MODEL_ARCH.GPT2, "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA,
                 "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "phi3": gguf.MODEL_ARCH.PHI3,
                 "gemma2": gguf.MODEL_ARCH.GEMMA2, "gemma3_text": gguf.MODEL_ARCH.GEMMA3}


def permute(weights, heads):
    """`permute` of convert_hf_to_gguf.py."""
    rows = weights.shape[0]
    return weights.reshape(heads, 2, rows // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def llama3_divisors(rope, width):
    """`generate_extra_tensors` of LlamaModel there."""
    divisors = []
    for i in range(0, width, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / width)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = rope["original_max_position_embeddings"] / wavelength
        smooth = min(max((turns - low) / (high - low), 0), 1)
        divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, np.float32)


def write_rotary(writer, config, rope, width):
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1)))
    kind = rope.get("rope_type", "default")
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(rope, width))
    elif kind == "longrope":
        positions = rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(positions)
        ratio = config["max_position_embeddings"] / positions
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(ratio) / math.log(positions)))
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32))
    elif kind != "default":
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def write_keys(writer, config):
    """The metadata of all architectures but GPT-2."""
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("head_dim"):
        writer.add_key_length(width)
        writer.add_value_length(width)
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    rope = config["rope_parameters"]
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        every = [i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
        writer.add_sliding_window_pattern(every[0] + 1 if every else 6)
        rope = rope["full_attention"]
    write_rotary(writer, config, rope, width)


def write_gpt2_keys(writer, config):
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_ctx"] if "n_ctx" in config else config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config.get("n_inner") or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def layout(config, name, numbers):
    kind = config["model_type"]
    if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return numbers.T
    if kind in ("llama", "mistral") and ".q_proj." in name:
        return permute(numbers, config["num_attention_heads"])
    if kind in ("llama", "mistral") and ".k_proj." in name:
        return permute(numbers, config["num_key_value_heads"])
    return numbers + 1 if kind.startswith("gemma") and name.endswith("norm.weight") else numbers


def write(folder, path):
    """The model of a folder of transformers as the GGUF file `path`."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(architecture, layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    (write_gpt2_keys if config["model_type"] == "gpt2" else write_keys)(writer, config)
    if config.get("pad_token_id") is not None:
        writer.add_pad_token_id(config["pad_token_id"])
    if config.get("eos_token_id") is not None:
        writer.add_eos_token_id(config["eos_token_id"])
    for file in sorted(folder.glob("*.safetensors")):
        for name, numbers in load_file(file).items():
            if name == "lm_head.weight" and config.get("tie_word_embeddings", config["model_type"] == "gpt2"):
                continue
            theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert theirs, name
            writer.add_tensor(theirs, np.ascontiguousarray(layout(config, name, numbers.astype(np.float32))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    to = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "gguf"
    for name in GOLDEN:
        write(HERE / "huggingface" / name, to / f"{name}.gguf")


if __name__ == "__main__":
    main()
