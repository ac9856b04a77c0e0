#!/usr/bin/env python3
"""Compares what `weft emit` writes with what emx-onnx-cgen writes of the same ONNX models (peer_models.py): flash and RAM
on a Cortex-M4, and time on this machine. Same compiler, same flags.

Usage: emit_peers.py WEFT FOLDER [SECONDS]

Flash is what a program grows by, with the parts of the C library that the file needs: for weft also with
examples/emit/doubles.c instead of libgcc's functions. RAM is the arena and the deepest
stack, and, where they are not in the arena, the caller's input and output. Stack of the C library's functions is not
counted. Time is the shortest of many runs, which alternate: of weft with plain and with vector kernels, and of the peer.
Fails if results differ by more than 1e-5 from the peer's, or in a bit between the kernels.
"""
import pathlib
import re
import shutil
import subprocess
import sys

import onnx

from peer_models import MODELS

ARM = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-Os", "-std=c99",
       "-fno-math-errno", "-ffunction-sections", "-fdata-sections"]
DOUBLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "emit" / "doubles.c"
HOST = [["-O2"], ["-O3", "-march=native"]]

TIMES = r"""
#include "simd_NAME.h"
#include "weft_NAME.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void emx_NAME(const float *x, float *y);
static float x[INPUTS], y[3][OUTPUTS];
static double arena[WEFT_UPPER_ARENA_BYTES / 8 + 1], simd_arena[SIMD_UPPER_ARENA_BYTES / 8 + 1];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    weft_NAME m = {arena, 0, 0, 0};
    weft_NAME_io io = {x, y[0]};
    simd_NAME simd_m = {simd_arena, 0, 0, 0};
    simd_NAME_io simd_io = {x, y[1]};
    const double end = now() + 1e9 * (argc > 1 ? atof(argv[1]) : 1);
    double best[3] = {1e18, 1e18, 1e18}, apart = 0;
    for (int i = 0; i < INPUTS; i++) x[i] = (float)sin(i);
    for (int rounds = 0; rounds < 3 || now() < end; rounds++)
        for (int peer = 0; peer < 3; peer++) {
            const double begin = now();
            if (peer == 0)
                weft_NAME_run(&m, &io);
            else if (peer == 1)
                simd_NAME_run(&simd_m, &simd_io);
            else
                emx_NAME(x, y[2]);
            const double took = now() - begin;
            if (took < best[peer]) best[peer] = took;
        }
    for (int i = 0; i < OUTPUTS; i++) apart = fmax(apart, fabs(y[0][i] - y[2][i]));
    printf("%.3g %.0f %.0f %.0f\n", apart, best[0], best[1], best[2]);
    return memcmp(y[0], y[1], sizeof y[0]) != 0;
}
"""

SIZES = r"""
#include "weft_NAME.h"
void emx_NAME(const float *x, float *y);
volatile float x[INPUTS], y[OUTPUTS];

int main(void)
{
#ifdef WEFT
    weft_NAME m = {(void *)0x20000000, 0, 0, 0};
    weft_NAME_io io = {(const float *)x, (float *)y};
    return weft_NAME_run(&m, &io);
#elif defined EMX
    emx_NAME((const float *)x, (float *)y);
#endif
    return 0;
}
"""


def output_of(command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def fill_in(text, model, sizes):
    for word, by in (("NAME", model), ("UPPER", model.upper()), ("INPUTS", str(sizes[0])), ("OUTPUTS", str(sizes[1]))):
        text = text.replace(word, by)
    return text


def elements(value):
    n = 1
    for dim in value.type.tensor_type.shape.dim:
        n *= dim.dim_value
    return n


def stack_of(info, entry):
    """The deepest stack below `entry`, by gcc's call graph."""
    text = info.read_text()
    frame = {title: int(size) for title, size in re.findall(r'title: "([^"]+)".*?\\n(\d+) bytes', text)}
    calls = re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', text)

    def depth(name):
        return frame.get(name, 0) + max((depth(to) for source, to in calls if source == name), default=0)

    return max(depth(name) for name in frame if name.split(":")[-1] == entry)


def sizes_on_cortex_m4(model, work, sizes):
    """Flash and RAM of weft and of the peer; flash of weft with doubles.c."""
    main = work / "sizes.c"
    main.write_text(fill_in(SIZES, model, sizes))
    flash = {}
    builds = {"NONE": [], "WEFT": [f"weft_{model}.c"], "DOUBLES": [f"weft_{model}.c", DOUBLES], "EMX": [f"emx_{model}.c"]}
    for name, sources in builds.items():
        define = "WEFT" if name == "DOUBLES" else name
        output_of(ARM + [f"-D{define}", "sizes.c"] + sources + ["-Wl,--gc-sections", "--specs=nano.specs",
                  "--specs=nosys.specs", "-lm", "-o", "image"], cwd=work)
        text, data = output_of(["arm-none-eabi-size", "image"], cwd=work).splitlines()[1].split()[:2]
        flash[name] = int(text) + int(data)
    ram = {}
    for prefix, entry in (("weft", f"weft_{model}_run"), ("emx", f"emx_{model}")):
        output_of(ARM + ["-fcallgraph-info=su", "-c", f"{prefix}_{model}.c", "-o", "one.o"], cwd=work)
        ram[prefix] = stack_of(work / "one.ci", entry)
    header = (work / f"weft_{model}.h").read_text()
    ram["weft"] += int(re.search(r"ARENA_BYTES (\d+)", header)[1])
    ram["emx"] += 4 * sum(sizes)
    grown = {name: size - flash["NONE"] for name, size in flash.items()}
    return grown["WEFT"], grown["DOUBLES"], grown["EMX"], ram["weft"], ram["emx"]


def times_here(model, work, sizes, seconds):
    """Nanoseconds of weft's plain and vector kernels and of the peer, by HOST."""
    (work / "times.c").write_text(fill_in(TIMES, model, sizes))
    times = []
    for flags in HOST:
        for prefix in "weft", "simd", "emx":
            output_of(["gcc", "-std=c99", "-fno-math-errno", *flags, "-c", f"{prefix}_{model}.c"], cwd=work)
        output_of(["gcc", "-std=gnu99", "-O2", "times.c", f"weft_{model}.o", f"simd_{model}.o", f"emx_{model}.o", "-lm", "-o", "times"], cwd=work)
        apart, *all_three = output_of(["./times", seconds], cwd=work).split()
        if float(apart) > 1e-5:
            sys.exit(f"{model}: results differ by {apart}")
        times.append([float(time) for time in all_three])
    return times


def main():
    weft, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    seconds = sys.argv[3] if len(sys.argv) > 3 else "1"
    cgen = pathlib.Path(sys.executable).parent / "emx-onnx-cgen"
    with_arm = shutil.which(ARM[0]) is not None
    for model, make in MODELS.items():
        made = make()
        onnx.save(made, work / f"{model}.onnx")
        sizes = elements(made.graph.input[0]), elements(made.graph.output[0])
        weights = sum(4 * len(w.raw_data) // 4 for w in made.graph.initializer if w.data_type == onnx.TensorProto.FLOAT)
        for prefix, kernels in ("weft", "plain"), ("simd", "simd"):
            output_of([weft, "emit", f"{model}.onnx", "--kernels", kernels, "-o", f"{prefix}_{model}.c"], cwd=work)
        output_of([cgen, "compile", f"{model}.onnx", f"emx_{model}.c", "--model-name", f"emx_{model}",
                   "--large-weight-threshold", "0", "--large-temp-threshold", "0"], cwd=work)
        line = f"{model:8}"
        if with_arm:
            flash, with_doubles, peer_flash, ram, peer_ram = sizes_on_cortex_m4(model, work, sizes)
            line += f" flash {flash - weights:,}, {with_doubles - weights:,} / {peer_flash - weights:,} + {weights:,} of weights, RAM {ram:,} / {peer_ram:,},"
        for flags, times in zip(HOST, times_here(model, work, sizes, seconds)):
            line += f" {' '.join(flags)} {' / '.join(f'{time / 1000:,.1f}' for time in times)} us"
        print(line)


main()
