"""Runs trained ONNX files of packages from PyPI in weft and in ONNX Runtime, each on a real input: both must compute
the same outputs, and these must mean what the input shows (a text, notes, a type of file ...). Prints a table with
times and memory. Usage: compare_onnx.py WEFT CACHE FOLDER; CACHE has the packages, FOLDER is for arrays. Exit status 1
if something differs, 2 if CACHE has none of the packages.

Times are of a run on two threads, the fastest of several (weft: the first, if an input chooses a branch); memory is the
largest of the process (weft), and what it grows by (ONNX Runtime, in Python)."""
import json
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import onnx_inputs as inputs

# Relative to the largest element.
LIMIT = 1e-4
RUNS = 5

PADDLE = "rapidocr_onnxruntime/models/"
SILERO = "silero_vad/data/silero_vad"
ROWS = ["--dim=sequence=576", "--dim=batch=2"]
# The file, how its input is made, and why weft refuses it; None: it must run.
FILES = [
    ("magika/models/standard_v3_3/model.onnx", lambda f: inputs.file_types(f), None),
    (PADDLE + "ch_PP-OCRv4_det_infer.onnx", lambda f: inputs.paddle_detect(), None),
    (PADDLE + "ch_PP-OCRv4_rec_infer.onnx", lambda f: inputs.paddle_recognise(), None),
    (PADDLE + "ch_ppocr_mobile_v2.0_cls_infer.onnx", lambda f: inputs.paddle_orientation(), None),
    ("ddddocr/common.onnx", lambda f: inputs.captcha(f, False), None),
    ("ddddocr/common_old.onnx", lambda f: inputs.captcha(f, True), None),
    ("ddddocr/common_det.onnx", lambda f: inputs.captcha_detect(), None),
    ("nudenet/320n.onnx", lambda f: inputs.persons(), None),
    ("basic_pitch/saved_models/icassp_2022/nmp.onnx", lambda f: inputs.notes(), None),
    (SILERO + ".onnx", lambda f: inputs.speech_rows(
        ["input", "state", "sr"], ["--batch=2", "--dim=input:1=576", "--dim=state:1=2"]), None),
    (SILERO + "_16k_op15.onnx", lambda f: inputs.speech_rows(["input", "state", "sr"], ROWS), None),
    (SILERO + "_half.onnx", lambda f: inputs.speech_rows(["input", "state"], ROWS), None),
    (SILERO + "_op18_ifless.onnx", lambda f: inputs.speech_rows(["input", "state", "sr"], ROWS), None),
    (SILERO + "_16k_sequence.onnx", lambda f: inputs.speech_sequence(), None),
]

# Starts a command from a small process, since a child's largest memory begins with its parent's.
MEASURE = ("import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
           "_, status, used = os.wait4(pid, 0); print(used.ru_maxrss, file=sys.stderr); "
           "sys.exit(os.waitstatus_to_exitcode(status))")


def peak_bytes():
    with open("/proc/self/status") as f:
        return next(1024 * int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def run_weft(weft, path, arrays, options, folder):
    """Seconds and bytes of a run whose outputs are in the folder; or a text, why weft refuses the file."""
    options = [*options, "--threads=2"]
    given = []
    for i, (name, array) in enumerate(arrays.items()):
        np.save(folder / f"{i}.npy", array.astype(np.int32) if array.dtype.kind == "i" else array)
        given.append(f"--input={name}={folder}/{i}.npy")
    command = [sys.executable, "-S", "-c", MEASURE, weft, "run", path, *options, *given, f"--out={folder}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        return ran.stderr.splitlines()[0]
    peak = 1024 * int(ran.stderr.split()[-1])
    if "sr" in arrays:  # `weft bench` has synthetic inputs, which choose a branch that does not fit
        return float(re.search(r", ([0-9.]+) ms\n", ran.stdout)[1]) / 1e3, peak
    timed = subprocess.run([weft, "bench", path, *options, "--rounds=1", f"--runs={RUNS}", "--json"],
                           capture_output=True, text=True, check=True)
    return json.loads(timed.stdout)["workloads"][0]["min_ms"] / 1e3, peak


def open_session(path):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    # On a processor with AVX2 but no VNNI, sums of two products of bytes saturate, unless this makes all bytes unsigned.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_runtime(path, folder):
    """In a process of its own: writes the outputs of ONNX Runtime, and prints its time and memory."""
    arrays = dict(np.load(folder / "arrays.npz"))
    import onnxruntime  # so that it is loaded before memory is measured
    assert onnxruntime
    before = peak_bytes()
    session = open_session(path)
    outputs = session.run(None, arrays)
    grown = peak_bytes() - before
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        session.run(None, arrays)
        seconds.append(time.perf_counter() - begin)
    np.savez(folder / "outputs.npz", *outputs)
    print(min(seconds), grown)


def distance(got, wanted):
    """Of all outputs, relative to the largest element of each; infinite where shapes or integers differ."""
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape or (a.dtype.kind != "f" and not np.array_equal(a, b)):
            return float("inf")
        if a.dtype.kind == "f":
            error = float(np.abs(a - b).max() / np.abs(b).max())
            worst = error if not error <= worst else worst  # NaN stays
    return worst


def compare(weft, package, path, made, refused, folder):
    """Prints a row of the table; true if it is as wanted."""
    arrays, options, read = made(package)
    measured = run_weft(weft, path, arrays, options, folder)
    if isinstance(measured, str) or refused:
        print(f"{path.name:34} {'refused' if isinstance(measured, str) else 'runs'}: {measured}")
        return isinstance(measured, str) and refused is not None and refused in measured
    np.savez(folder / "arrays.npz", **arrays)
    ran = subprocess.run([sys.executable, __file__, "--runtime", path, folder], check=True, capture_output=True,
                         text=True)
    seconds, grown = map(float, ran.stdout.split())
    session = open_session(path)
    with np.load(folder / "outputs.npz") as stored:
        wanted = list(stored.values())
    got = [np.load(folder / f"{o.name.replace('/', '_')}.npy") for o in session.get_outputs()]
    error = distance(got, wanted)
    means, text = read(got, session)
    print(f"{path.name:34} {error:10.1e} {1e3 * measured[0]:8.1f} {1e3 * seconds:8.1f} {1e-6 * measured[1]:7.0f} "
          f"{1e-6 * grown:7.0f}  {text}{'' if means else ' (WRONG)'}{'' if error <= LIMIT else ' (DIFFERS)'}",
          flush=True)
    return means and error <= LIMIT


def main():
    if sys.argv[1] == "--runtime":
        return run_runtime(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    weft, cache, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    print(f"{'file':34} {'difference':>10} {'weft ms':>8} {'ORT ms':>8} {'weft MB':>7} {'ORT MB':>7}")
    found = [(cache / file, made, refused) for file, made, refused in FILES if (cache / file).exists()]
    good = [compare(weft, cache, path, made, refused, folder) for path, made, refused in found]
    sys.exit(0 if good and all(good) else 1 if good else 2)


if __name__ == "__main__":
    main()
