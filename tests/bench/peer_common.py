"""What the peers of weft share: how they measure time and memory."""
import os
import resource
import time

import numpy

MIN_SECONDS = 0.1  # of a row of runs, and the most runs in one: as weft bench does
MAX_RUNS = 50


def rss_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def timed(run, runs):
    """Seconds of each of a row of runs, after one for warm-up."""
    run()
    times = []
    while len(times) < runs or (len(times) < MAX_RUNS and sum(times) < MIN_SECONDS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return times


def measurements(run, runs, base):
    """The times of a row, and the peak of this process's memory, as a part of the JSON that it prints."""
    return {"seconds": timed(run, runs), "base_bytes": base,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def save_case(model, inputs, output):
    """The inputs by name and the output of FILE.onnx, as FILE.npz and FILE.npy."""
    base = model.removesuffix(".onnx")
    numpy.savez(f"{base}.npz", **inputs)
    numpy.save(f"{base}.npy", output)


def difference_of_arrays(got, wanted):
    """The norm of the difference over the norm."""
    wanted = wanted.astype(numpy.float64)
    return float(numpy.linalg.norm(got - wanted) / numpy.linalg.norm(wanted))
