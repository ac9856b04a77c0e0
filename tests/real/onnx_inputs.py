"""Real inputs of the ONNX files of compare_onnx.py, and what their outputs mean: texts in pictures, notes, speech, types
of files. Pictures and sounds are made here; texts and programs are the project's own files."""
import ast
import json
import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- Pictures ----

def text_picture(text, width, height, size):
    """Black text on white, [height, width, 3] of bytes."""
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((width // 2, height // 2), text, "black", ImageFont.load_default(size), anchor="mm")
    return np.asarray(image)


def signed(picture):
    """As Paddle's OCR reads pictures: [1, 3, height, width] in [-1, 1]."""
    return ((picture.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None].copy()


def first_of_runs(indices, characters):
    """The text of a CTC output: repeated characters count once, and 0 is between characters."""
    return "".join(characters[i] for i, before in zip(indices, [0, *indices[:-1]]) if i and i != before)


def box(mask):
    """left, top, right and bottom of what is true."""
    rows, columns = np.nonzero(mask)
    return (int(columns.min()), int(rows.min()), int(columns.max()), int(rows.max())) if len(rows) else None


def metadata(session, key):
    return session.get_modelmeta().custom_metadata_map[key]


def paddle_detect():
    """A line of text at a known place of a page."""
    page = np.full((320, 320, 3), 255, np.uint8)
    page[120:168, :] = text_picture("weft reads 2026", 320, 48, 36)
    drawn = box(page.min(-1) < 128)

    def read(outputs, _):
        found = box(outputs[0][0, 0] > 0.3)
        good = found is not None and max(abs(a - b) for a, b in zip(found, drawn, strict=True)) <= 12
        return good, f"the text is at {found}, drawn at {drawn}"
    return {"x": signed(page)}, ["--dim=x:2=320", "--dim=x:3=320"], read


def paddle_recognise():
    def read(outputs, session):
        characters = ["", *metadata(session, "character").split("\n"), " "]
        text = first_of_runs(outputs[0][0].argmax(-1).tolist(), characters)
        return text == "weft reads 2026", f"reads \"{text}\""
    return {"x": signed(text_picture("weft reads 2026", 320, 48, 36))}, ["--dim=x:2=48", "--dim=x:3=320"], read


def paddle_orientation():
    """Two lines, the second upside down."""
    line = text_picture("weft reads", 192, 48, 34)

    def read(outputs, _):
        turned = (180 * outputs[0].argmax(-1)).tolist()
        return turned == [0, 180], f"lines are turned by {turned} degrees"
    return {"x": np.concatenate([signed(line), signed(line[::-1, ::-1])])}, ["--batch=2", "--dim=x:2=48", "--dim=x:3=192"], read


def captcha(folder, old):
    """The characters are in the source of the package."""
    source = ast.parse((folder / "ddddocr/charsets.py").read_text())
    sets = {a.targets[0].id: a.value for a in source.body if isinstance(a, ast.Assign)}
    characters = ast.literal_eval(sets["CHARSET_OLD" if old else "CHARSET_BETA"])
    picture = text_picture("8a3m", 160, 64, 44)[..., 0].astype(np.float32) / 255

    def read(outputs, _):
        text = first_of_runs(outputs[0].squeeze().argmax(-1).tolist(), characters)
        return text == "8a3m", f"reads \"{text}\""
    return {"input1": picture[None, None]}, ["--dim=image_width=160"], read


def captcha_detect():
    """YOLOX: of [distance of centres, logarithms of sizes, score, class] on three grids, the best box."""
    page = np.full((416, 416, 3), 255, np.uint8)
    page[160:240, 100:300] = text_picture("8a3m", 200, 80, 60)

    def read(outputs, _):
        places = np.concatenate([np.stack([*np.meshgrid(np.arange(0, 416, step), np.arange(0, 416, step)),
                                           np.full((416 // step,) * 2, step)], -1).reshape(-1, 3)
                                 for step in (8, 16, 32)])
        rows = outputs[0][0]
        best = int((rows[:, 4] * rows[:, 5]).argmax())
        step = places[best, 2]
        x, y = rows[best, :2] * step + places[best, :2]
        good = bool(100 <= x < 300 and 160 <= y < 240)
        return good, f"the best box is around ({x:.0f}, {y:.0f}), drawn around (200, 200)"
    return {"images": page.transpose(2, 0, 1)[None].astype(np.float32)}, [], read


def persons():
    """A picture without persons."""
    page = np.full((320, 320, 3), 235, np.uint8)
    page[120:200] = text_picture("nobody is here", 320, 80, 36)

    def read(outputs, _):
        scores = outputs[0][0, 4:]
        return scores.max() < 0.2, f"{int((scores.max(0) >= 0.2).sum())} of {scores.shape[1]} boxes have a person"
    return ({"images": (page.transpose(2, 0, 1)[None] / 255).astype(np.float32)},
            ["--dim=height=320", "--dim=width=320"], read)


# ---- Files ----

FILES = {"formats/onnx/import.c": "c", "tests/real/onnx_inputs.py": "python", "docs/onnx.md": "markdown",
         "tools/test": "shell"}


def file_types(folder):
    """magika: the first and the last kibibyte of files, without space around them; 256 pads."""
    config = json.loads((folder / "magika/models/standard_v3_3/config.min.json").read_text())
    size, block = config["beg_size"], config["block_size"]
    rows = []
    for name in FILES:
        data = (ROOT / name).read_bytes()
        first, last = data[:block].lstrip()[:size], data[-block:].rstrip()[-size:]
        pad = [config["padding_token"]]
        rows.append([*first, *pad * (size - len(first)), *pad * (size - len(last)), *last])
    labels = config["target_labels_space"]

    def read(outputs, _):
        found = [labels[i] for i in outputs[0].argmax(-1)]
        return found == list(FILES.values()), ", ".join(found)
    return {"bytes": np.array(rows, np.int32)}, [f"--batch={len(rows)}"], read


# ---- Sounds ----

NOTES = {"C4": 60, "E4": 64, "G4": 67}


def tone(pitch, rate, samples):
    """A string that is plucked: harmonics that fade."""
    t = np.arange(samples) / rate
    frequency = 440 * 2 ** ((pitch - 69) / 12)
    return sum(np.sin(2 * np.pi * k * frequency * t) * np.exp(-2 * k * t) / k for k in range(1, 7))


def notes():
    """basic-pitch: three notes, one after another, in two seconds."""
    rate, samples = 22050, 43844
    sound = np.zeros(samples, np.float32)
    for i, pitch in enumerate(NOTES.values()):
        begin = 4000 + 12500 * i
        sound[begin:begin + 11000] += 0.3 * tone(pitch, rate, 11000)

    def read(outputs, _):
        # Beginnings of notes, notes, and pitches in thirds of semitones; per frame of 256 samples and key from A0 on.
        note = outputs[1][0]
        keys = [int(note[(4000 + 12500 * i) // 256 + 4:(15000 + 12500 * i) // 256 - 4].mean(0).argmax()) + 21
                for i in range(3)]
        names = {v: k for k, v in NOTES.items()}
        return keys == list(NOTES.values()), "notes " + ", ".join(names.get(k, str(k)) for k in keys)
    return {"serving_default_input_2:0": sound[None, :, None]}, [], read


def voice(rate, seconds):
    """A vowel: pulses of a falling pitch, through four resonances."""
    n = int(rate * seconds)
    pitch = 130 - 25 * np.arange(n) / n + 4 * np.sin(2 * np.pi * 5 * np.arange(n) / rate)
    pulses = np.diff(np.floor(np.cumsum(pitch / rate)), prepend=0).astype(np.float64)
    sound = pulses
    for frequency, width in ((700, 90), (1220, 110), (2600, 160), (3500, 250)):
        r = np.exp(-np.pi * width / rate)
        a, b = 2 * r * np.cos(2 * np.pi * frequency / rate), -r * r
        out = np.zeros(n + 2)
        for i in range(n):
            out[i + 2] = sound[i] + a * out[i + 1] + b * out[i]
        sound = out[2:]
    return (0.4 * sound / np.abs(sound).max()).astype(np.float32)


def recording():
    """Half a second of hiss, one of a voice that rises and fades in syllables, half a second of hiss; 16 kHz."""
    rate = 16000
    hiss = np.random.default_rng(1).standard_normal(2 * rate).astype(np.float32) * 1e-3
    spoken = voice(rate, 1) * np.abs(np.sin(np.pi * 4 * np.arange(rate) / rate)).astype(np.float32) ** 0.5
    hiss[rate // 2:rate // 2 + rate] += spoken
    return hiss


def frames():
    """[62, 576]: 512 samples after the last 64 of the frame before."""
    sound = recording()
    cut = sound[:len(sound) // 512 * 512].reshape(-1, 512)
    before = np.concatenate([np.zeros((1, 64), np.float32), cut[:-1, -64:]])
    return np.concatenate([before, cut], 1)


def spoken(probabilities):
    """Whether frames of the voice are more often found to be speech than frames of hiss."""
    voiced = probabilities[20:46].mean()
    hiss = np.concatenate([probabilities[2:14], probabilities[52:]]).mean()
    return bool(voiced > 0.5 > hiss), f"speech {voiced:.2f} in the voice, {hiss:.2f} in hiss"


def speech_sequence():
    rows = frames()
    state = np.zeros((1, 1, 128), np.float32)
    return ({"input": rows, "h": state, "c": state}, [f"--dim=sequence_length={len(rows)}"],
            lambda outputs, _: spoken(outputs[0].ravel()))


def speech_rows(names, options):
    """A frame of hiss and one of the voice as a batch of two; without what was before, its state is zero."""
    rows = frames()[[8, 30]]
    arrays = {"input": rows, "state": np.zeros((2, 2, 128), np.float32), "sr": np.array(16000, np.int64)}

    def read(outputs, _):
        hiss, voiced = outputs[0].ravel()
        return bool(voiced > hiss), f"speech {voiced:.2f} in the voice, {hiss:.2f} in hiss"
    return {name: arrays[name] for name in names}, options, read
