"""Detectors of torchvision with random weights, exported to ONNX: weft and ONNX Runtime must find the same boxes, whose
number depends on the picture. The running statistics of the networks are those of random pictures, so that their
features differ from place to place. Prints a table with times. Usage: detectors.py WEFT FOLDER; exit status 1 if
something differs."""
import json
import pathlib
import subprocess
import sys
import time
import warnings

import numpy as np
import onnxruntime
import torch
import torchvision

SIZE = 320
PICTURES = 3
RUNS = 10


def picture(seed):
    """Squares of random colours, of a size that depends on the seed."""
    cells = 10 * (seed + 1)
    random = np.random.default_rng(seed).random((1, 3, cells, cells))
    return torch.nn.functional.interpolate(torch.tensor(random, dtype=torch.float32), (SIZE, SIZE))[0]


SIZES = {"min_size": SIZE, "max_size": SIZE}
BOXES, SCORES_FIRST = ["boxes", "labels", "scores"], ["boxes", "scores", "labels"]
# What makes a detector, its options, and the names of its outputs in their order.
DETECTORS = {
    "ssdlite320": ("ssdlite320_mobilenet_v3_large", {"score_thresh": 0.9}, SCORES_FIRST),
    "faster_rcnn": ("fasterrcnn_mobilenet_v3_large_320_fpn", {"box_score_thresh": 0.35}, BOXES),
    "ssd300": ("ssd300_vgg16", {"score_thresh": 0.997}, SCORES_FIRST),
    "retinanet": ("retinanet_resnet50_fpn", {"score_thresh": 0.9, **SIZES}, SCORES_FIRST),
    "fcos": ("fcos_resnet50_fpn", {"score_thresh": 0.7, **SIZES}, SCORES_FIRST),
}


def make(name):
    """A detector, and the names of its outputs in their order."""
    torch.manual_seed(0)
    function, options, outputs = DETECTORS[name]
    model = getattr(torchvision.models.detection, function)(weights=None, weights_backbone=None, num_classes=5,
                                                            **options)
    model.eval()
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = None
    with torch.no_grad():
        for seed in range(2):
            model([picture(2 * seed), picture(2 * seed + 1)])
        for norm in norms:
            norm.eval()
        spread(model, name)
    return model, outputs


def spread(model, name):
    """Larger weights of the last layers: scores near 0 and 1, so that a rounding moves no box across a threshold."""
    if name == "ssd300":
        return
    if name in ("retinanet", "fcos"):
        model.head.classification_head.cls_logits.weight.mul_(40 if name == "retinanet" else 30)
        model.head.classification_head.cls_logits.bias.zero_()
        return
    if name == "ssdlite320":
        for head, factor in (model.head.classification_head, 3), (model.head.regression_head, 2):
            for layer in head.modules():
                if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (1, 1):
                    layer.weight.mul_(factor)
        return
    model.rpn.head.cls_logits.weight.mul_(10)
    model.roi_heads.box_predictor.cls_score.weight.mul_(6)


def export(name, path):
    model, outputs = make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, ([picture(0)],), path, opset_version=17, dynamo=False,
                          input_names=["image"], output_names=outputs)


def run_weft(weft, path, image, folder, names):
    """The outputs by name."""
    out = folder / "out"
    np.save(folder / "image.npy", image)
    done = subprocess.run([weft, "run", path, f"--input=image={folder}/image.npy", f"--out={out}", "--threads=2"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{path.name}: {done.stderr.strip()}")
    return {name: np.load(out / f"{name}.npy") for name in names}


def time_weft(weft, path):
    """Milliseconds, the fewest of some runs. They do not depend on the picture."""
    timed = subprocess.run([weft, "bench", path, "--rounds=1", f"--runs={RUNS}", "--threads=2", "--json"],
                           capture_output=True, text=True, check=True)
    return json.loads(timed.stdout)["workloads"][0]["min_ms"]


def run_reference(session, image):
    """The outputs by name, and milliseconds, the fewest of some runs."""
    names = [o.name for o in session.get_outputs()]
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        outputs = session.run(None, {"image": image})
        seconds.append(time.perf_counter() - begin)
    return dict(zip(names, outputs)), 1e3 * min(seconds)


def matched(got, want):
    """How many boxes of `want` have a box of `got` of the same label, within 1 pixel, and of nearly the same score."""
    count = 0
    for i in range(len(want["boxes"])):
        near = got["labels"] == want["labels"][i]
        for name, limit in ("boxes", 1), ("scores", 1e-3):
            off = np.abs(got[name] - want[name][i]).reshape(len(near), -1)
            near &= off.max(axis=1, initial=0) < limit
        count += bool(np.any(near))
    return count


def main():
    weft, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    good = True
    print("| detector | picture | boxes, ONNX Runtime | boxes, weft | the same | ms, ONNX Runtime | ms, weft |\n|---|---|---|---|---|---|---|")
    for name in DETECTORS:
        path = folder / f"{name}.onnx"
        export(name, path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        ms = time_weft(weft, path)
        for seed in range(PICTURES):
            image = picture(seed).numpy()
            want, reference_ms = run_reference(session, image)
            got = run_weft(weft, path, image, folder, want)
            same = matched(got, want)
            good &= 0 < len(want["boxes"]) == len(got["boxes"]) == same
            print(f"| {name} | {seed} | {len(want['boxes'])} | {len(got['boxes'])} | {same} | {reference_ms:.1f} | {ms:.1f} |",
                  flush=True)
    return 0 if good else 1


sys.exit(main())
