"""Runs the example `detect` on PNG pictures, and compares its boxes with those that ONNX Runtime finds: the same label,
each side within a pixel, the score within 1e-3. Usage: compare_detect.py DETECT FILE.onnx THRESHOLD FOLDER [OPTION...];
the options are of `detect`. FILE has the outputs boxes, scores and labels, or one as YOLOv8 writes it. Exit status 1 if a
box differs, or if there are none."""
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime
from PIL import Image

SIZE = 320
PICTURES = 3
OVERLAP = 0.45


def picture(seed):
    """Squares of random colours, of a size that depends on the seed; [SIZE, SIZE, 3] of bytes."""
    cells = 10 * (seed + 1)
    colours = np.random.default_rng(seed).integers(0, 256, (cells, cells, 3), np.uint8)
    return np.asarray(Image.fromarray(colours).resize((SIZE, SIZE), Image.NEAREST))


def overlaps(box, boxes):
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    both = np.prod(np.maximum(high - low, 0), axis=1)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return both / (np.prod(box[2:] - box[:2]) + area - both)


def decode(rows, threshold):
    """Boxes, labels and scores of [4 + classes, n] after suppression, whatever the classes."""
    scores, labels = rows[4:].max(axis=0), rows[4:].argmax(axis=0)
    boxes = np.concatenate([rows[:2] - rows[2:4] / 2, rows[:2] + rows[2:4] / 2]).T
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] >= threshold and not np.any(overlaps(boxes[i], boxes[kept]) > OVERLAP):
            kept.append(i)
    return boxes[kept], labels[kept], scores[kept]


def wanted(session, pixels, threshold):
    x = np.zeros((3, SIZE, SIZE), np.float32)
    x[:, :len(pixels)] = pixels.transpose(2, 0, 1) / 255
    given = session.get_inputs()[0]
    names = [o.name for o in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, {given.name: x if len(given.shape) == 3 else x[None]}), strict=True))
    if len(names) == 1:
        return decode(outputs[names[0]][0], threshold)
    far = outputs["scores"] >= threshold
    return outputs["boxes"][far], outputs["labels"][far], outputs["scores"][far]


def found(command):
    """Boxes, labels and scores of the lines of `detect`."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    lines = [line.split() for line in done.stdout.splitlines() if line != "no boxes"]
    return (np.array([[float(w) for w in line[4::2]] for line in lines]).reshape(-1, 4),
            np.array([int(line[0]) for line in lines]), np.array([float(line[2]) for line in lines]))


def matched(got, want):
    """How many boxes of `want` are among those of `got`."""
    count = 0
    for box, label, score in zip(*want, strict=True):
        near = np.abs(got[0] - box).max(axis=1, initial=0) < 1
        count += bool(np.any(near & (got[1] == label) & (np.abs(got[2] - score) < 1e-3))) if len(got[1]) else 0
    return count


def main():
    detect, file, threshold, folder, *options = sys.argv[1:]
    silent = onnxruntime.SessionOptions()
    silent.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, silent, providers=["CPUExecutionProvider"])
    good, total = True, 0
    for seed in range(PICTURES):
        pixels = picture(seed)
        if "--fit=letterbox" in options:
            pixels = pixels[:SIZE - 80]
        path = pathlib.Path(folder) / f"{seed}.png"
        Image.fromarray(pixels).save(path)
        want = wanted(session, pixels, float(threshold))
        got = found([detect, file, path, f"--threshold={threshold}", f"--overlap={OVERLAP}", *options])
        same = matched(got, want)
        good &= len(got[1]) == len(want[1]) == same
        total += same
        print(f"detect {pathlib.Path(file).name}, picture {seed}: {len(want[1])} boxes of ONNX Runtime, {len(got[1])} "
              f"of weft, {same} the same", flush=True)
    return 0 if good and total else 1


sys.exit(main())
