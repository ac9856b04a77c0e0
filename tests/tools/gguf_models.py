"""Holds `weft convert FILE.gguf` against the library transformers: random models of the architectures of GGUF files that
weft reads are written by golden/make_gguf_models.py, and run in weft.

    python3 tests/tools/gguf_models.py WEFT [SEEDS]

Prints a row for each model: the difference of the outputs in weft and in transformers, relative to their norm. Exit
status 1 if one is above 1e-5, 77 without transformers or gguf."""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
try:
    import numpy as np
    import transformers as hf
    import make_gguf_models
    import make_huggingface as make
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

LIMIT = 1e-5  # norm-wise, as in huggingface.py
MORE = dict(num_key_value_heads=2, **make.LLAMA)
# What GGUF files cannot say is as llama.cpp has it: scores of the width of a head, and Llama 3's 8192 positions.
MODELS = {
    "llama3-gguf": (hf.LlamaForCausalLM, hf.LlamaConfig(head_dim=16, **make.rope(
        500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192), **MORE), {}),
    "mistral-gguf": (hf.MistralForCausalLM, hf.MistralConfig(head_dim=10, sliding_window=None, **MORE), {}),
    "gemma2-gguf": (hf.Gemma2ForCausalLM, hf.Gemma2Config(
        head_dim=8, query_pre_attn_scalar=8, sliding_window=3, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0, **MORE), {}),
}
NAMES = ["gpt2", "llama", "llama-linear", "qwen2", "qwen3", "phi3", "phi3-short", "phi3-long", "gemma3", *MODELS]


def main():
    weft = sys.argv[1]
    good = True
    make.MODELS.update(MODELS)
    print(f"transformers {hf.__version__}")
    for seed in range(1, int(sys.argv[2]) + 1 if len(sys.argv) > 2 else 2):
        for name in NAMES:
            with tempfile.TemporaryDirectory() as text:
                folder = pathlib.Path(text)
                model = make.make(name, seed)
                for p in model.parameters():
                    p.data = p.data.float()
                make.save(model, name, folder / "hf")
                inputs, outputs = make.run(model, name, seed)
                make_gguf_models.write(folder / "hf", folder / "model.gguf")
                np.save(folder / "ids.npy", inputs["target_in"])
                context = make.MODELS[name][2].get("context")
                for arguments in (["convert", folder / "model.gguf", "-o", folder / "run",
                                   *(["--context", str(context)] if context else [])],
                                  ["run", folder / "run", "--input", f"target_in={folder}/ids.npy", "--out",
                                   folder / "out"]):
                    subprocess.run([weft, *arguments], check=True, stdout=subprocess.DEVNULL)
                worst = max(np.linalg.norm(np.load(folder / "out" / f"{key}.npy").astype(np.float64) - wanted)
                            / np.linalg.norm(wanted) for key, wanted in outputs.items())
            good = good and worst < LIMIT
            print(f"{name:14} {seed:4}  {worst:9.2e}  {'' if worst < LIMIT else 'FAILED'}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
