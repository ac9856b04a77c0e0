#!/usr/bin/env python3
"""Checks exported ONNX files with the packages onnx and onnxruntime: onnx.checker accepts them, and
ONNX Runtime computes the same outputs, within 1e-5 of the norm in f32.

    onnx_runtime.py WEFT [KEPT]

WEFT is the program: every model of its list is exported at a small size and at opsets 17 and 23.
KEPT is a folder of single ops and of loops that `WEFT_KEEP_EXPORTS=KEPT weft_tests onnx_export` and
`onnx_export_loop` wrote. Exit status 1 if a file fails. Without the packages it prints why it is skipped."""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"skipped: exported files in ONNX Runtime: {error}")
    sys.exit(0)

# Norm-wise. Some 170 roundings of 6e-8 in f32; in f64 the attributes of an op still have the digits of f32.
TOLERANCE = {"float32": 1e-5, "float64": 1e-6}


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def distance(got, wanted):
    """Of all outputs, relative to their norm; infinite where shapes, dtypes or integers differ."""
    square = difference = 0.0
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind != "f":
            if not np.array_equal(a, b):
                return float("inf")
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.isfinite(b)
        square += float((b[finite] ** 2).sum())
        difference += float(((a - b)[~same] ** 2).sum())
    return difference**0.5 / max(square**0.5, 1e-30) if difference else 0.0


def check_file(path):
    onnx.checker.check_model(str(path), full_check=True)
    return session(path)


def inputs_of(path):
    given = path.with_suffix(".in.npz")  # no file without an input
    return dict(np.load(given)) if given.exists() else {}


def check_op(path):
    inputs = inputs_of(path)
    stored = np.load(path.with_suffix(".out.npz"))
    wanted = [stored[str(i)] for i in range(len(stored.files))]
    runner = check_file(path)
    needed = {i.name for i in runner.get_inputs()}
    got = runner.run(None, {k: v for k, v in inputs.items() if k in needed})
    return distance(got, wanted)


def check_ops(folder):
    files = sorted(folder.glob("*.onnx"))
    failed, refused, worst = 0, {}, (0.0, "no file")
    for path in files:
        try:
            error = check_op(path)
        except Exception as problem:  # of either package: its classes have no common parent
            text = str(problem).split("\n")[0]
            empty = any(0 in i.shape for i in inputs_of(path).values())
            if "NOT_IMPLEMENTED" in text or (empty and "ONNXRuntimeError" in text):  # its limits
                refused.setdefault(path.name.split("-")[0], text.split(":")[-1].strip())
                continue
            print(f"{path.name}: {text[:200]}")
            failed += 1
            continue
        dtype = "float64" if "-f64-" in path.name else "float32"
        if not error <= TOLERANCE[dtype]:
            print(f"{path.name}: differs by {error:.3g} of the norm")
            failed += 1
        elif error > worst[0]:
            worst = (error, path.name)
    for op, text in sorted(refused.items()):
        print(f"ONNX Runtime does not run {op} for some dtype or an empty input: {text[:120]}")
    print(f"{len(files)} files of single ops and loops: {failed} fail, worst distance {worst[0]:.3g} of the norm "
          f"({worst[1]})")
    return failed


def made_up(value, vocab, rng):
    shape = [int(d) for d in value.shape]
    if value.type == "tensor(int32)":
        return rng.integers(1, vocab, shape, dtype=np.int32)
    if value.type == "tensor(bool)":
        return rng.random(shape) < 0.5
    return rng.standard_normal(shape).astype(np.float32 if value.type == "tensor(float)" else np.float64)


def check_model(weft, model, opset, folder):
    name, known = model["name"], model["options"]
    # A smaller batch, so that the check is quick.
    sizes = [f"{s}={n}" for s, n in (("batch", 2), ("source_len", 7), ("target_len", 6), ("length", 9))
             if s in known]
    path, given, out = folder / f"{name}.onnx", folder / "inputs", folder / "outputs"
    subprocess.run([weft, "export", name, "-o", path, "--opset", str(opset), *sizes],
                   check=True, stdout=subprocess.DEVNULL)
    runner = check_file(path)
    rng = np.random.default_rng(7)
    given.mkdir(exist_ok=True)
    inputs, arguments = {}, []
    for value in runner.get_inputs():
        inputs[value.name] = made_up(value, known.get("vocab", 2), rng)
        np.save(given / f"{value.name}.npy", inputs[value.name])
        arguments += ["--input", f"{value.name}={given / value.name}.npy"]
    got = runner.run(None, inputs)
    subprocess.run([weft, "run", path, "--out", out, *arguments], check=True, stdout=subprocess.DEVNULL)
    wanted = [np.load(out / f"{o.name.replace('/', '_')}.npy") for o in runner.get_outputs()]
    error = distance(got, wanted)
    good = error <= TOLERANCE["float32"]
    print(f"{name}, opset {opset}: {path.stat().st_size} bytes, differs by {error:.3g} of the norm: "
          f"{'ok' if good else 'FAILED'}")
    return not good


def main():
    weft = pathlib.Path(sys.argv[1]).resolve()
    models = json.loads(subprocess.run([weft, "models", "--json"], check=True, capture_output=True).stdout)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            for opset in (17, 23):
                failed += check_model(weft, model, opset, pathlib.Path(folder))
    if len(sys.argv) > 2:
        failed += check_ops(pathlib.Path(sys.argv[2]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
