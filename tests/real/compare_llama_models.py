"""Holds the GGUF files that weft writes of random models against llama.cpp (the package llama_cpp): logits of a text, with
caches in f32. A file whose layout or metadata say something else has other logits altogether. Usage:
compare_llama_models.py BUILD_FOLDER FOLDER; FOLDER is for files. Exit status 1 if something differs."""
import pathlib
import subprocess
import sys

import llama_cpp
import numpy as np

LIMIT, LIMIT_GELU = 1e-5, 1e-3  # norm-wise, relative; ggml has a table of halves for GELU
IDS = [5, 7, 9, 3, 12, 4, 4, 30, 22, 11, 60, 1]
SIZES = "vocab=64 d_model=64 heads=4 d_ff=96 layers=2 output_bias=none max_positions=256"
LLAMA = "llama kv_heads=2 " + SIZES
GEMMA = " tied=1 norm=both scaled_embeddings=1 activation=gelu-tanh global_every=2 window=4"
MODELS = {
    "llama": LLAMA,
    "llama, biases": LLAMA + " qkv_bias=1 out_bias=1 ffn_bias=1 tied=1",
    "llama, linear": LLAMA + " rotary_scaling=linear rotary_factor=2.5",
    "llama, yarn": LLAMA + " rotary_scaling=yarn rotary_factor=4 rotary_positions=8",
    "llama, llama3": LLAMA + " rotary_scaling=llama3 rotary_factor=8 rotary_positions=8192 rotary_base=500000",
    "qwen2": LLAMA + " qkv_bias=1",
    "qwen3": LLAMA + " norm_qk=1",
    "phi3": LLAMA,
    "phi3, longrope": LLAMA + " rotary_scaling=longrope rotary_factors=1.05,2.5,1,3,4.25,6,8,64 rotary_magnitude=1.19",
    "gemma2": LLAMA + GEMMA + " score_cap=20 logit_cap=10",
    "gemma3": LLAMA + GEMMA + " norm_qk=1 local_rotary_base=1000 gamma_plus_one=1",
    "gpt2": "gpt norm=pre activation=gelu-tanh tied=1 positions=learned qkv_bias=1 out_bias=1 ffn_bias=1 " + SIZES,
}


def forward(path):
    """Logits [length, vocabulary] in llama.cpp; these files have no vocabulary."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot load {path}")
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = 256
    options.n_threads = options.n_threads_batch = 1
    options.type_k = options.type_v = 0  # f32
    options.flash_attn_type = 0  # which has halves
    context = llama_cpp.llama_init_from_model(model, options)
    batch = llama_cpp.llama_batch_init(len(IDS), 0, 1)
    batch.n_tokens = len(IDS)
    for i, token in enumerate(IDS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    if llama_cpp.llama_decode(context, batch):
        sys.exit(f"llama.cpp cannot run {path}")
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(len(IDS), vocab)).astype(np.float64)
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return logits


def main():
    build, folder = map(pathlib.Path, sys.argv[1:])
    weft, good = build / "tools" / "weft", True
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)
    np.save(folder / "ids.npy", np.array([IDS], np.int32))
    for name, options in MODELS.items():
        run, file = folder / "random.safetensors", folder / "random.gguf"
        for path in (run, file):
            path.unlink(missing_ok=True)
        for command in ([build / "tests" / "make_run", run, *options.split()],
                        [weft, "convert", run, "--to", "gguf", "--architecture", name.split(",")[0], "-o", file],
                        [weft, "run", run, "--input", f"target_in={folder}/ids.npy", "--out", folder / "out"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wanted, got = np.load(folder / "out" / "logits.npy")[0].astype(np.float64), forward(file)
        error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
        print(f"{name}: logits in weft and in llama.cpp differ by {error:.1e}", flush=True)
        good = good and error <= (LIMIT_GELU if "gelu" in options else LIMIT)
    sys.exit(int(not good))


if __name__ == "__main__":
    main()
