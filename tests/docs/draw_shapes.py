#!/usr/bin/env python3
"""Draws pictures with circles, squares and triangles, whose boxes are known, for a detector to learn.

    draw_shapes.py FOLDER STYLE COUNT SEED

Writes FOLDER/0.png, ... and FOLDER/list.txt, with lines "NAME LEFT TOP RIGHT BOTTOM LABEL" in pixels; the labels are 0, 1
and 2. Shapes of the style `plain` are filled, bright on a dark background or the other way round. Those of `drawn` are dark
outlines on checked, noisy paper. Only random() and randbytes() choose, which draw the same in every version of Python."""
import pathlib
import random
import struct
import sys
import zlib

SIDE = 128


def png(pixels):
    """A PNG file of [SIDE][SIDE * 3] bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(row) for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


class Draw:
    def __init__(self, style, seed):
        self.random = random.Random(seed)
        self.drawn = self.light = style == "drawn"

    def whole(self, low, high):
        """From low to high - 1."""
        return low + int(self.random.random() * (high - low))

    def colour(self, low, high):
        return bytes(self.whole(low, high) for _ in range(3))

    def background(self):
        if not self.drawn:
            self.light = self.random.random() < 0.5
            row = (self.colour(170, 256) if self.light else self.colour(0, 90)) * SIDE
            return [bytearray(row) for _ in range(SIDE)]
        noise = bytes(i * 40 // 256 for i in range(256))
        light, dark, cell = self.colour(170, 215), self.colour(120, 165), self.whole(6, 20)
        rows = []
        for y in range(SIDE):
            row = b"".join(light if (x // cell + y // cell) % 2 else dark for x in range(SIDE))
            grains = self.random.randbytes(3 * SIDE).translate(noise)
            rows.append(bytearray(a + b for a, b in zip(row, grains)))
        return rows

    @staticmethod
    def distance(label, x, y):
        """At most 1 inside of a shape, whose box is [-1, 1] along x and y: 1 at its border, less inside."""
        if label == 0:
            return (x * x + y * y) ** 0.5
        if label == 1:
            return max(abs(x), abs(y))
        return max(y, 2 * abs(x) - y)  # a triangle that stands on its base

    def shape(self, rows, box, label):
        left, top, right, bottom = box
        colour = self.colour(20, 110) if self.light else self.colour(140, 256)
        half = (right - left) / 2
        hole = 1 - 8 / half if self.drawn else -1
        for y in range(top, bottom):
            for x in range(left, right):
                d = self.distance(label, (x + 0.5 - left) / half - 1, (y + 0.5 - top) / half - 1)
                if hole < d <= 1:
                    rows[y][3 * x:3 * x + 3] = colour

    def picture(self):
        """Pixels, and a list of boxes with their labels."""
        rows, boxes = self.background(), []
        for _ in range(self.whole(1, 5)):
            size = self.whole(28, 52)
            left, top = self.whole(0, SIDE - size), self.whole(0, SIDE - size)
            box = (left, top, left + size, top + size)
            if any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b, _ in boxes):
                continue
            label = self.whole(0, 3)
            self.shape(rows, box, label)
            boxes.append((box, label))
        return rows, boxes


def main():
    folder, style, count, seed = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    draw = Draw(style, seed)
    with open(folder / "list.txt", "w", encoding="ascii") as f:
        for i in range(count):
            rows, boxes = draw.picture()
            (folder / f"{i}.png").write_bytes(png(rows))
            for box, label in boxes:
                print(f"{i}.png", *box, label, file=f)


main()
