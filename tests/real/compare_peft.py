"""Holds adapters of `weft` against the library PEFT, next to the random models of
tests/golden/make_huggingface.py: adapters that PEFT makes are read by weft, written again and merged;
adapters that weft trains are read by PEFT. Outputs may differ by 1e-4.

    python3 tests/real/compare_peft.py WEFT WORK"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
import make_huggingface as make

LIMIT = 1e-4
# By name: those whose adapters weft trains, and more options of PEFT.
TRAINED = "llama", "llama-tied", "qwen2", "qwen3", "mistral", "phi3", "gemma2", "gemma3", "gpt2", "gpt2-untied"
OPTIONS = {"llama": {"use_rslora": True},
           "qwen2": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}},
           "mistral": {"target_modules": ["q_proj", "layers.1.mlp.down_proj"]}}
OTHERS = "opt", "bert", "marian"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def weft(*args):
    result = subprocess.run([WEFT, *map(str, args)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"weft {' '.join(map(str, args))}: {result.stderr}")


def write_tokeniser(folder):
    """WordPiece of letters: few enough for the models."""
    pieces = ["[UNK]", "[END]", *LETTERS]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [
            {"id": 1, "content": "[END]", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {p: i for i, p in enumerate(pieces)}}}))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "[END]"}')


def write_text(path):
    random = np.random.default_rng(1)
    with open(path, "w") as f:
        for _ in range(200):
            print(*random.choice(list(LETTERS[:6]), 6), file=f)


def outputs(run, folder, feeds):
    weft("run", run, *feeds, "--out", folder)
    return {p.stem: np.load(p) for p in folder.glob("*.npy")}


def difference(got, want):
    return float(np.max([np.abs(got[k] - v).max() for k, v in want.items()]))  # NaN if one is


def prepare(name, folder):
    """A model as a run, and what `weft run` needs to compute its outputs."""
    model = make.make(name, 1)
    make.save(model, name, folder / "hf")
    weft("convert", folder / "hf", "-o", folder / "run")
    inputs, plain = make.run(model, name, 1)
    feeds = []
    for key, array in inputs.items():
        np.save(folder / f"{key}.npy", array)
        feeds += ["--input", f"{key}={folder / key}.npy"]
    return make.make(name, 1), feeds, plain


def from_peft(name, folder):
    """Differences of the outputs in weft, and merged; whether the tensors come back."""
    model, feeds, plain = prepare(name, folder)
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 6, "target_modules": "all-linear", "init_lora_weights": False,
                                "fan_in_fan_out": name.startswith("gpt2"), **OPTIONS.get(name, {})})
    adapted = peft.get_peft_model(model, config).eval()
    adapted.save_pretrained(folder / "peft")
    want = make.run(adapted, name, 1)[1]
    weft("convert", folder / "peft", "--base", folder / "run", "-o", folder / "adapted")
    weft("convert", folder / "adapted", "--merge", "-o", folder / "merged")
    weft("convert", folder / "adapted", "--to", "peft", "-o", folder / "again")
    before, after = (load_file(folder / f / "adapter_model.safetensors") for f in ("peft", "again"))
    exact = "alpha_pattern" not in OPTIONS.get(name, {})  # else the factor is in B
    same = before.keys() == after.keys() and all(torch.equal(v, after[k]) or (not exact and "lora_B" in k)
                                                 for k, v in before.items())
    again = peft.PeftModel.from_pretrained(make.make(name, 1), folder / "again").eval()
    return {"moved": difference(plain, want),
            "in weft": difference(outputs(folder / "adapted", folder / "out", feeds), want),
            "merged": difference(outputs(folder / "merged", folder / "out2", feeds), want),
            "in PEFT": difference(make.run(again, name, 1)[1], want)}, same


def to_peft(name, folder):
    """Trains adapters by weft; the differences of the outputs in PEFT."""
    model, feeds, plain = prepare(name, folder)
    write_tokeniser(folder / "run")
    write_text(folder / "text")
    weft("train", "--from", folder / "run", "--lora", "3", "--lora-alpha", "5", "dropout=0", "--text", folder / "text",
         "--steps", "20", "--lr", "1e-1", "--warmup", "1", "--lengths", "12", "--batch-tokens", "192", "--measure=false", "--out",
         folder / "adapted")
    weft("convert", folder / "adapted", "--to", "peft", "-o", folder / "peft")
    adapted, got = peft.PeftModel.from_pretrained(model, folder / "peft").eval(), outputs(
        folder / "adapted", folder / "out", feeds)
    want = make.run(adapted, name, 1)[1]
    return {"moved": difference(plain, want), "in PEFT": difference(got, want)}


def main():
    global WEFT
    WEFT, work = sys.argv[1], pathlib.Path(sys.argv[2])
    for name in ("gpt2", "gpt2-untied"):
        make.MODELS[name][1].n_positions = 64  # the least that weft train needs
    transformers.logging.disable_progress_bar()
    good = True
    print(f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")
    for name in TRAINED + OTHERS:
        folders = [work / name / part for part in ("from", "to")]
        for folder in folders:
            folder.mkdir(parents=True)
        read, same = from_peft(name, folders[0])
        rows = [("PEFT's", read, same)] + ([("weft's", to_peft(name, folders[1]), True)] if name in TRAINED else [])
        for whose, found, exact in rows:
            right = exact and found["moved"] > 100 * LIMIT and all(v < LIMIT for k, v in found.items() if k != "moved")
            print(f"{name:12} {whose}  " + "  ".join(f"{k} {v:.1e}" for k, v in found.items()),
                  "" if exact else "OTHER TENSORS", "" if right else "FAILED", flush=True)
            good = good and right
    sys.exit(not good)


if __name__ == "__main__":
    main()
