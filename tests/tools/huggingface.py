"""Holds `weft convert` against the library transformers: random models of all architectures that
golden/make_huggingface.py lists go to weft, run there, and go back.

    python3 tests/tools/huggingface.py WEFT [SEEDS [NAME...]]

Prints a row for each model: the difference of the outputs in weft and in transformers, and of those
of the models that came back, relative to their norm; and whether their tensors are the same, bit for
bit after widening to f32. Exit status 1 if a
difference is above 1e-5, 77 without transformers."""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
try:
    import numpy as np
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.numpy import save_file as save_numpy
    from safetensors.torch import load_file
    import make_huggingface as make
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

LIMIT = 1e-5  # norm-wise: f32 rounds each number by 6e-8, and these models have some 200 roundings in a row


def weft(*args):
    result = subprocess.run([WEFT, *map(str, args)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"weft {' '.join(map(str, args))}: {result.stderr}")


def tensors(folder):
    return {k: v for f in folder.glob("model*.safetensors") for k, v in load_file(f).items()}


def same_tensors(before, after):
    missing = [k for k in before if k not in after and "embed_positions" not in k]
    return not missing and all(k in before and torch.equal(before[k].float(), v)
                               for k, v in after.items())


def forget(path):
    """Removes what weft knows of the folder that a checkpoint was read from."""
    with safe_open(path, "numpy") as f:
        meta = {k: v for k, v in f.metadata().items() if not k.startswith("huggingface.")}
        arrays = {k: f.get_tensor(k) for k in f.keys()}
    save_numpy(arrays, path, meta)


def difference(got, want, keep):
    got, want = (x.astype(np.float64)[keep] if x.ndim == 3 else x for x in (got, want))
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def check(name, seed, folder):
    cls, config, stored = make.MODELS[name]
    model = make.make(name, seed)
    make.save(model, name, folder / "hf")
    inputs, outputs = make.run(model, name, seed)
    weft("convert", folder / "hf", "-o", folder / "run", *(["--context", stored["context"]] if "context" in stored else []))
    feeds = []
    for key, array in inputs.items():
        np.save(folder / f"{key}.npy", array)
        feeds += ["--input", f"{key}={folder / key}.npy"]
    weft("run", folder / "run", *feeds, "--out", folder / "out")
    keep = np.ones((2, 7), bool)
    here = max(difference(np.load(folder / "out" / f"{k}.npy"), v, keep) for k, v in outputs.items())
    weft("convert", folder / "run", "-o", folder / "back")
    forget(folder / "run" / "model.safetensors")
    weft("convert", folder / "run", "-o", folder / "new", "--architecture", cls.__name__)
    there, bad, same = [], [], True
    for back in ("back", "new"):
        same = same and same_tensors(tensors(folder / "hf"), tensors(folder / back))
        again, info = cls.from_pretrained(folder / back, output_loading_info=True,
                                          torch_dtype=torch.float32, attn_implementation="eager")
        bad += [k for k in info["missing_keys"] if "embed_positions" not in k]
        bad += info["unexpected_keys"]
        there += [difference(v, outputs[k], keep)
                  for k, v in make.run(again.eval(), name, seed)[1].items()]
    good = here < LIMIT and max(there) < LIMIT and same and not bad
    print(f"{name:14} {seed:4}  {here:9.2e}  {max(there):9.2e}  {'same' if same else 'OTHER'}  "
          f"{'' if good else 'FAILED'} {' '.join(bad)}", flush=True)
    return good


def main():
    global WEFT
    WEFT = sys.argv[1]
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    names = sys.argv[3:] or make.MODELS
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print(f"{'model':14} {'seed':>4}  {'in weft':>9}  {'back':>9}  tensors")
    good = True
    for seed in range(1, seeds + 1):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                good = check(name, seed, pathlib.Path(folder)) and good
    sys.exit(not good)


if __name__ == "__main__":
    main()
