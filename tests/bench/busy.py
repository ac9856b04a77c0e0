#!/usr/bin/env python3
"""Times a workload of `weft bench` on a busy machine: with 1, 2 and 4 threads, next to 0, 2 and 8 processes that compute without end. Prints the median time of a run and its ratio to one thread next to as many processes. The order
of the settings changes from round to round, and the median of all rounds counts.

Usage: busy.py PATH_OF_WEFT [--workload NAME] [--runs N] [--rounds N]"""

import argparse
import contextlib
import statistics
import subprocess

THREADS = (1, 2, 4)
BUSY = (0, 2, 8)


@contextlib.contextmanager
def busy_processes(n):
    running = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def median_ms(weft, workload, runs, threads):
    command = [weft, "bench", workload, f"--threads={threads}", "--rounds=1", f"--runs={runs}"]
    table = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return float(table.splitlines()[1].split()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--workload", default="small-step", help="of weft bench (default small-step)")
    parser.add_argument("--runs", type=int, default=20, help="in a round (default 20)")
    parser.add_argument("--rounds", type=int, default=3, help="of all settings (default 3)")
    o = parser.parse_args()
    times = {(busy, threads): [] for busy in BUSY for threads in THREADS}
    for round_number in range(o.rounds):
        for busy in BUSY:
            order = THREADS if round_number % 2 == 0 else THREADS[::-1]
            for threads in order:
                with busy_processes(busy):
                    times[busy, threads].append(median_ms(o.weft, o.workload, o.runs, threads))
    print(f"{o.workload}, ms of a run (ratio to one thread next to as many busy processes)")
    print("busy processes" + "".join(f"{t:>12} thread{'s' if t > 1 else ' '}" for t in THREADS))
    for busy in BUSY:
        ms = [statistics.median(times[busy, threads]) for threads in THREADS]
        print(f"{busy:14}" + "".join(f"{m:12.1f} ({m / ms[0]:4.2f})" for m in ms))


if __name__ == "__main__":
    main()
