"""Makes the files golden/gguf/*: GGUF files, and what the Python package `gguf` reads in them. Needs gguf,
numpy and sentencepiece.

    python3 tests/golden/make_gguf.py [FOLDER]

types.gguf has a tensor of three rows of random blocks for each type that weft reads, and types.safetensors the
numbers of gguf.quants.dequantize. llama.gguf has the weights of golden/huggingface/llama as convert_hf_to_gguf.py of llama.cpp
lays them out, in F32. vocab_gpt2.gguf is the vocabulary of golden/tokenizers/gpt2.json; vocab_llama.gguf is one of
SentencePiece, trained on a text of the project, and vocab_llama.txt has lines and, after each, the ids that SentencePiece
computes."""
import io
import json
import pathlib
import sys

import numpy as np
import sentencepiece
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

HERE = pathlib.Path(__file__).parent
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Offsets of the halves in a block.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
# Zeros, the smallest numbers, the largest subnormal, the smallest normal and the largest numbers.
SPECIAL = np.array([0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff], np.uint16)


def random_blocks(rng, kind):
    """Three rows of two or more blocks; no half is infinite or NaN."""
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = max(2, 64 // weights)
    if weights == 1:
        numbers = (rng.standard_normal((3, blocks)) * 10.0 ** rng.integers(-6, 5, (3, blocks))).astype(np.float32)
        if kind == "F32":
            return numbers.view(np.uint8)
        if kind == "F16":
            halves = numbers.astype(np.float16).view(np.uint16)
            halves[0, :len(SPECIAL)] = SPECIAL
            halves[1, :2] = [0x7c00, 0xfc00]
            return halves.view(np.uint8)
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    rows = rng.integers(0, 256, (3, blocks, size), dtype=np.uint8)
    for at in HALVES[kind]:
        halves = (rng.standard_normal((3, blocks)) * 10.0 ** rng.integers(-5, 4, (3, blocks))).astype(np.float16)
        halves = halves.view(np.uint16)
        halves[0, 0], halves[1, 0], halves[2, 0] = rng.choice(SPECIAL, 3, replace=False)
        rows[:, :, at:at + 2] = halves[..., None].view(np.uint8)
    return rows.reshape(3, -1)


def write_tensors(path, tensors):
    """Writes arrays of f32 as a safetensors file."""
    header, data = {}, b""
    for name, numbers in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(numbers.shape),
                        "data_offsets": [len(data), len(data) + numbers.nbytes]}
        data += numbers.astype("<f4").tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def make_types(folder):
    rng = np.random.default_rng(0)
    writer = GGUFWriter(folder / "types.gguf", "none")
    writer.add_uint8("kinds.u8", 200)
    writer.add_int8("kinds.i8", -100)
    writer.add_uint16("kinds.u16", 60000)
    writer.add_int16("kinds.i16", -30000)
    writer.add_uint32("kinds.u32", 4000000000)
    writer.add_int32("kinds.i32", -2000000000)
    writer.add_float32("kinds.f32", 0.1)
    writer.add_bool("kinds.bool", True)
    writer.add_string("kinds.text", "été")
    writer.add_uint64("kinds.u64", 2 ** 64 - 1)
    writer.add_int64("kinds.i64", -2 ** 63)
    writer.add_float64("kinds.f64", 0.1)
    writer.add_array("kinds.numbers", [3, -1, 4])
    writer.add_array("kinds.texts", ["a", "bc", "def"])
    writer.add_array("kinds.arrays", [[1, 2], [3]])
    wanted = {}
    for kind in TYPES:
        blocks = random_blocks(rng, kind)
        with np.errstate(all="ignore"):
            wanted[kind] = dequantize(blocks, GGMLQuantizationType[kind])
        writer.add_tensor(kind, blocks, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_tensors(folder / "types.safetensors", wanted)


def read_llama(folder):
    """The tensors of a folder of safetensors files, all F32."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + n])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + n + begin:8 + n + end], np.float32).reshape(entry["shape"])
    return tensors


NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def permute(weights, heads):
    """`permute` of convert_hf_to_gguf.py."""
    rows, columns = weights.shape
    return weights.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def make_llama(folder):
    source = HERE / "huggingface" / "llama"
    config = json.loads((source / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = GGUFWriter(folder / "llama.gguf", "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_eos_token_id(config["eos_token_id"])
    for name, numbers in read_llama(source).items():
        name = name.removesuffix(".weight")
        layer = ""
        if name.startswith("model.layers."):
            _, _, number, name = name.split(".", 3)
            layer = f"blk.{number}."
        if name.endswith("q_proj") or name.endswith("k_proj"):
            numbers = permute(numbers, heads if name.endswith("q_proj") else kv_heads)
        writer.add_tensor(f"{layer}{NAMES[name]}.weight", np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def make_gpt2_vocabulary(folder):
    source = json.loads((HERE / "tokenizers" / "gpt2.json").read_text())
    tokens = [piece for piece, _ in sorted(source["model"]["vocab"].items(), key=lambda item: item[1])]
    special = {token["content"] for token in source["added_tokens"]}
    writer = GGUFWriter(folder / "vocab_gpt2.gguf", "none")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge)
                             for merge in source["model"]["merges"]])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|endoftext|>"))
    writer.add_chat_template('{{ "a\\n" }}\n')
    finish(writer)


def make_llama_vocabulary(folder):
    text = HERE.parent.parent / "tools" / "data" / "bible-en-es" / "valid.en"
    lines = text.read_text(encoding="utf-8").splitlines()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=700, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(len(pieces))
    writer = GGUFWriter(folder / "vocab_llama.gguf", "none")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.id_to_piece(i) for i in ids])
    writer.add_token_scores([pieces.get_score(i) for i in ids])
    writer.add_token_types([2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else
                            6 if pieces.is_byte(i) else 1 for i in ids])
    writer.add_bos_token_id(pieces.bos_id())
    writer.add_eos_token_id(pieces.eos_id())
    writer.add_unk_token_id(pieces.unk_id())
    finish(writer)
    with open(folder / "vocab_llama.txt", "w", encoding="utf-8") as file:
        for line in lines[:120] + ["d\u00e9j\u00e0 vu", "\u4e2d\u6587 \U0001f44d", "  two  spaces   "]:
            print(line, " ".join(map(str, pieces.encode(line))), sep="\n", file=file)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "gguf"
    folder.mkdir(exist_ok=True)
    make_types(folder)
    make_llama(folder)
    make_gpt2_vocabulary(folder)
    make_llama_vocabulary(folder)


if __name__ == "__main__":
    main()
