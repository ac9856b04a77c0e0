#!/usr/bin/env python3
"""Derivatives beyond the gradient, by weft, JAX and PyTorch in turn, on one thread (docs/transforms.md).

    python3 tests/bench/transforms.py --build BUILD [--rounds N]

Needs the packages jax and torch, and BUILD/tests/transform_bench (ninja -C BUILD tests/transform_bench), which says
what the cases are. JAX compiles each function (jax.jit); PyTorch runs it as it is (torch.func). Times are
microseconds, of the fastest of all runs in N rounds; a ratio is of two such times.
"""
import argparse
import json
import os
import subprocess
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before the libraries count processors
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

CASES = {"jacobian": ((32, 32, 32, 2), (1, 32)), "hessian": ((512,) * 5, (256, 512)),
         "examples": ((128, 512, 128), (32, 64, 128))}
RUNS = {"jacobian": 2000, "hessian": 6, "examples": 20}


def fastest(function, runs):
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return 1e6 * best


def parameters(widths):
    """Weights and biases by weft's rule, as lists of numbers."""
    import numpy
    draw = numpy.random.default_rng(1)
    return [part for a, b in zip(widths, widths[1:])
            for part in ((draw.standard_normal((a, b)) * (2 / (a + b)) ** 0.5).astype("f4"), numpy.zeros(b, "f4"))]


def network(tanh, x, params):
    for i in range(0, len(params), 2):
        x = x @ params[i] + params[i + 1]
        x = tanh(x) if i + 2 < len(params) else x
    return x


def functions(case, x, params, tanh, transforms):
    """The function of a case and the one that it is compared with, both without arguments."""
    grad, jacrev, jvp, vmap, compiled, norm = transforms

    def loss(p, one):
        return (network(tanh, one, p) ** 2).sum()

    if case == "jacobian":
        return compiled(jacrev(lambda one: network(tanh, one, params)), x), compiled(lambda one: network(tanh, one, params), x)
    plain = compiled(lambda p: grad(loss)(p, x), params)
    if case == "hessian":
        vectors = [0 * p + 0.5 for p in params]
        return compiled(lambda pv: jvp(lambda q: grad(loss)(q, x), (pv[0],), (pv[1],))[1], (params, vectors)), plain
    return compiled(lambda p: norm(vmap(grad(loss), (None, 0))(p, x)), params), plain


def by_jax(case):
    import jax
    import jax.numpy as jnp
    widths, shape = CASES[case]
    params = [jnp.asarray(p) for p in parameters(widths)]
    x = jnp.linspace(0, 1, int(jnp.prod(jnp.array(shape)))).reshape(shape)

    def compiled(f, argument):
        ready = jax.jit(f)
        jax.block_until_ready(ready(argument))
        return lambda: jax.block_until_ready(ready(argument))

    def norm(grads):
        return jnp.sqrt(sum((g.reshape(g.shape[0], -1) ** 2).sum(1) for g in grads))

    return functions(case, x, params, jnp.tanh, (jax.grad, jax.jacrev, jax.jvp, jax.vmap, compiled, norm))


def by_torch(case):
    import torch
    torch.set_num_threads(1)
    widths, shape = CASES[case]
    params = [torch.from_numpy(p) for p in parameters(widths)]
    x = torch.linspace(0, 1, torch.Size(shape).numel()).reshape(shape)

    def compiled(f, argument):
        f(argument)
        return lambda: f(argument)

    def norm(grads):
        return sum((g.flatten(1) ** 2).sum(1) for g in grads).sqrt()

    t = torch.func
    return functions(case, x, params, torch.tanh, (t.grad, t.jacrev, t.jvp, t.vmap, compiled, norm))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True, help="weft's build folder")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    program = os.path.join(options.build, "tests", "transform_bench")
    best = {}
    peers = {name: {case: make(case) for case in CASES} for name, make in (("JAX", by_jax), ("PyTorch", by_torch))}
    for i in range(options.rounds):
        print(f"round {i + 1} of {options.rounds}", file=sys.stderr)
        done = subprocess.run([program, "40"], capture_output=True, text=True, check=True)
        rows = [("weft", row["case"], row["us"], row["base_us"]) for row in map(json.loads, done.stdout.splitlines())]
        rows += [(name, case, *(fastest(f, RUNS[case]) for f in pair)) for name, cases in peers.items()
                 for case, pair in cases.items()]
        for name, case, *times in rows:
            old = best.get((case, name), times)
            best[case, name] = [min(a, b) for a, b in zip(old, times)]
    print("| case | library | time, us | compared with, us | ratio | weft is faster by |\n|---|---|---|---|---|---|")
    for case in CASES:
        for name in ("weft", *peers):
            all_of, base = best[case, name]
            print(f"| {case} | {name} | {all_of:.1f} | {base:.1f} | {all_of / base:.2f} | "
                  f"{all_of / best[case, 'weft'][0]:.2f} |")


if __name__ == "__main__":
    main()
