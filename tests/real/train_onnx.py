"""Trains ONNX files of packages from PyPI by `weft fit`, and checks their gradients by `weft check`. Prints a line for
each. Usage: train_onnx.py WEFT CACHE FOLDER. Exit status 1 if a command fails, a loss does not fall or a gradient is
wrong, 2 if CACHE has none of the packages.

The classifier by Paddle says whether a line of text is upside down; ONNX Runtime's quantiser writes it as a QDQ file.
Roundings have no gradient: `weft fit` must say that all gradients of that file are zero, and differences across a
rounding would mean nothing to `weft check`. The TensorFlow file transcribes notes; it is trained on random targets.
`weft check` of it takes too long for a test."""
import logging
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx_inputs as inputs
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

PADDLE = "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
TENSORFLOW = "basic_pitch/saved_models/icassp_2022/nmp.onnx"


class Lines(CalibrationDataReader):
    def __init__(self, x):
        self.batches = iter([{"x": x[i:i + 2]} for i in range(0, 8, 2)])

    def get_next(self):
        return next(self.batches, None)


def make_lines(folder):
    """Lines of text, every second one upside down."""
    lines = [inputs.text_picture(f"line {37 * i} of weft", 192, 48, 30) for i in range(16)]
    x = np.concatenate([inputs.signed(turned) for line in lines for turned in (line, line[::-1, ::-1])])
    np.save(folder / "lines.npy", x)
    np.save(folder / "turned.npy", np.tile([0, 1], len(lines)).astype(np.int32))
    return x


def make_waves(folder):
    random = np.random.default_rng(0)
    np.save(folder / "waves.npy", random.normal(0, 0.1, (4, 43844, 1)).astype(np.float32))
    np.save(folder / "notes.npy", (random.random((4, 172, 88)) < 0.05).astype(np.float32))


def weft_prints(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def fit(weft, folder, file, options, zero):
    """Whether the loss falls; with `zero`, whether the warning comes."""
    out = folder / f"run-{file.stem}"
    status, text = weft_prints([weft, "fit", file, *options, "--lr=1e-3", "--warmup=0", "--measure=false", f"--out={out}"])
    losses = [float(loss) for loss in re.findall(r"^step \d+  loss ([\d.]+)", text, re.MULTILINE)]
    warned = "the gradients of all parameters are exactly zero" in text
    good = status == 0 and len(losses) > 1 and (warned if zero else losses[-1] < losses[0])
    print(f"fit {file.name}: loss {losses[0]} to {losses[-1]}{', gradients are zero' if warned else ''}"
          if len(losses) > 1 else f"fit {file.name}: {text.strip()}", "" if good else "(WRONG)", flush=True)
    return good


def check(weft, file, options):
    status, text = weft_prints([weft, "check", file, *options])
    print("check", text.strip().replace(str(file), file.name), "" if status == 0 else "(WRONG)", flush=True)
    return status == 0


def main():
    weft, cache, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    logging.disable(logging.WARNING)  # of the quantiser
    good = []
    if (cache / PADDLE).exists():
        x = make_lines(folder)
        quantised = folder / "quantised.onnx"
        quantize_static(cache / PADDLE, quantised, Lines(x), quant_format=QuantFormat.QDQ)
        data = ["--dim=x:2=48,x:3=192", f"--x={folder}/lines.npy", f"--y={folder}/turned.npy", "--loss=cross-entropy",
                "--steps=10", "--batch=8"]
        small = ["--dim=x:2=48", "--dim=x:3=32"]
        good += [fit(weft, folder, cache / PADDLE, data, False), fit(weft, folder, quantised, data, True),
                 check(weft, cache / PADDLE, small)]
    if (cache / TENSORFLOW).exists():
        make_waves(folder)
        good += [fit(weft, folder, cache / TENSORFLOW, [f"--x={folder}/waves.npy", f"--y={folder}/notes.npy",
                                                        "--loss=bce", "--steps=4", "--batch=2"], False)]
    return 2 if not good else 0 if all(good) else 1


sys.exit(main())
