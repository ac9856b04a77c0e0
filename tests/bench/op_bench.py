#!/usr/bin/env python3
"""The cases of op_bench in PyTorch, compared with weft: op_bench.py [PATH/TO/op_bench] [--rounds N] [name ...]

Prints for each case that PyTorch has as one call (or one call and its backward pass) the least time
of several runs and, if the program is given, weft's, PyTorch's time over weft's, and the share of
the memory's rate that weft reaches. The two run in turn, N times (3), and the best of each counts:
the rate of a shared machine's memory is another from second to second. Results go to memory that is there
already where PyTorch takes `out`; elsewhere malloc is set to retain freed memory, so that no
time goes into fresh pages. Threads: OMP_NUM_THREADS, 2 if unset.
"""
import os
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")
if "MALLOC_TRIM_THRESHOLD_" not in os.environ:  # read when a process starts
    os.environ["MALLOC_TRIM_THRESHOLD_"] = os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 33)
    os.execv(sys.executable, [sys.executable] + sys.argv)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
FF, MODEL, SCORES = (6000, 2048), (6000, 512), (240 * 200, 200)


def f32(*shape, low=-2, high=2):
    return torch.empty(shape).uniform_(low, high)


def i64(*shape, high):
    return torch.randint(0, high, shape)


def mask(*shape):
    return torch.rand(shape) < 0.5


def unary(function, shape=FF, **options):
    def make():
        x, y = f32(*shape, **options), torch.empty(shape)
        return lambda: function(x, out=y)
    return make


def binary(function, *shapes, dtype=torch.float32):
    def make():
        a, b = (f32(*s) for s in shapes)
        y = torch.empty(shapes[0], dtype=dtype)
        return lambda: function(a, b, out=y)
    return make


def plain(function, *makers):
    def make():
        inputs = [m() for m in makers]
        return lambda: function(*inputs)
    return make


def x(*shape):
    return lambda: f32(*shape)


def over(function, shape, *arguments, **options):
    return plain(lambda t: function(t, *arguments, **options), x(*shape))


def backward(function, shape, *others):
    """One forward and backward pass; the gradients are dropped each time."""
    def make():
        leaves = [f32(*shape).requires_grad_()] + [m() for m in others]
        with torch.no_grad():
            dy = torch.randn_like(function(*leaves))

        def run():
            for leaf in leaves:
                if leaf.is_floating_point():
                    leaf.grad = None
            function(*leaves).backward(dy)
        return run
    return make


def leaf(*shape):
    return lambda: f32(*shape).requires_grad_()


def no_grad_softmax_backward(shape, axis):
    def make():
        t, dy = f32(*shape), f32(*shape)
        return lambda: torch._softmax_backward_data(dy, torch.softmax(t, axis), axis, torch.float32)
    return make


def adam(n):
    def make():
        p = f32(n).requires_grad_()
        p.grad = f32(n)
        optimizer = torch.optim.Adam([p], lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
        return optimizer.step
    return make


def embedding(tokens, with_gradient):
    def make():
        table, ids = f32(8000, 512), i64(tokens, high=8000)
        dy = f32(tokens, 512)
        if with_gradient:
            return lambda: torch.ops.aten.embedding_dense_backward(dy, ids, 8000, -1, False)
        return lambda: F.embedding(ids, table)
    return make


def loss(logits, target):
    return F.cross_entropy(logits, target, label_smoothing=0.1)


CASES = {
    "add": binary(torch.add, FF, FF),
    "add_row": binary(torch.add, FF, (2048,)),
    "mul_column": binary(torch.mul, FF, (6000, 1)),
    "mul_scalar": unary(lambda t, out: torch.mul(t, 0.5, out=out)),
    "add_narrow": binary(torch.add, (1500000, 8), (8,)),
    "div": binary(torch.div, FF, FF),
    "maximum": binary(torch.maximum, FF, FF),
    "relu": over(torch.relu, FF),
    "gelu": over(F.gelu, FF),
    "gelu_tanh": over(F.gelu, FF, approximate="tanh"),
    "tanh": unary(torch.tanh),
    "sigmoid": unary(torch.sigmoid),
    "silu": over(F.silu, FF),
    "softplus": over(F.softplus, FF),
    "exp": unary(torch.exp),
    "log": unary(torch.log, low=0.5, high=2),
    "erf": unary(torch.erf),
    "sqrt": unary(torch.sqrt, low=0.5, high=2),
    "sin": unary(torch.sin, MODEL),
    "cos": unary(torch.cos, MODEL),
    "dropout": over(F.dropout, FF, 0.1),
    "cast_f64": over(torch.Tensor.double, FF),
    "cast_i32": over(torch.Tensor.int, FF),
    "cast_from_bool": plain(torch.Tensor.float, lambda: mask(*FF)),
    "greater": binary(torch.gt, FF, FF, dtype=torch.bool),
    "greater_scalar": over(torch.gt, FF, 0.0),
    "where": plain(torch.where, lambda: mask(*FF), x(*FF), x(*FF)),
    "masked_fill": plain(lambda t, m: t.masked_fill(m, -1e9), x(*FF), lambda: mask(*FF)),
    "masked_fill_row": plain(lambda t, m: t.masked_fill(m, -1e9), x(30, 8, 200, 200),
                             lambda: mask(30, 1, 1, 200)),
    "masked_fill_causal": plain(lambda t, m: t.masked_fill(m, -1e9), x(30, 8, 200, 200),
                                lambda: mask(200, 200)),
    "sum_last": over(torch.sum, FF, 1),
    "sum_first": over(torch.sum, FF, 0),
    "sum_model": over(torch.sum, MODEL, 0),
    "sum_middle": over(torch.sum, (60, 200, 512), 1),
    "sum_all": over(torch.sum, FF),
    "mean_all": over(torch.mean, FF),
    "max_last": over(torch.amax, FF, 1),
    "max_first": over(torch.amax, FF, 0),
    "max_all": over(torch.max, FF),
    "min_first": over(torch.amin, FF, 0),
    "variance_last": over(torch.var, FF, 1),
    "variance_first": over(torch.var, FF, 0),
    "variance_all": over(torch.var, FF),
    "logsumexp_last": over(torch.logsumexp, FF, 1),
    "logsumexp_first": over(torch.logsumexp, FF, 0),
    "logsumexp_all": over(torch.logsumexp, FF, (0, 1)),
    "argmax_last": over(torch.argmax, FF, 1),
    "argmax_first": over(torch.argmax, FF, 0),
    "cumsum_last": over(torch.cumsum, FF, 1),
    "cumsum_first": over(torch.cumsum, FF, 0),
    "softmax": over(torch.softmax, SCORES, -1),
    "softmax_grad": no_grad_softmax_backward(SCORES, 1),
    "softmax_first": over(torch.softmax, FF, 0),
    "softmax_grad_first": no_grad_softmax_backward(FF, 0),
    "softmax_middle": over(torch.softmax, (60, 200, 512), 1),
    "log_softmax": over(torch.log_softmax, (1024, 8000), -1),
    "log_softmax_first": over(torch.log_softmax, FF, 0),
    "layer_norm": plain(lambda t, g, b: F.layer_norm(t, (512,), g, b), x(*MODEL), x(512), x(512)),
    "layer_norm_large": plain(lambda t, g, b: F.layer_norm(t, (512,), g, b), x(24000, 512), x(512),
                              x(512)),
    "layer_norm_both": backward(lambda t, g, b: F.layer_norm(t, (512,), g, b), MODEL, leaf(512),
                                leaf(512)),
    "layer_norm_both_large": backward(lambda t, g, b: F.layer_norm(t, (512,), g, b), (24000, 512),
                                      leaf(512), leaf(512)),
    "embedding": embedding(1024, False),
    "embedding_large": embedding(24000, False),
    "embedding_grad": embedding(1024, True),
    "embedding_grad_large": embedding(24000, True),
    "cross_entropy": plain(loss, x(1024, 8000), lambda: i64(1024, high=8000)),
    "cross_entropy_both": backward(loss, (1024, 8000), lambda: i64(1024, high=8000)),
    "gather_last": plain(lambda t, i: torch.gather(t, 1, i), x(*FF),
                         lambda: i64(6000, 1024, high=2048)),
    "gather_first": plain(lambda t, i: torch.gather(t, 0, i), x(2000, 2048),
                          lambda: i64(3000, 2048, high=2000)),
    "concat_last": plain(lambda *t: torch.cat(t, 1), *[x(*MODEL)] * 4),
    "slice_last": over(lambda t: t[:, 512:1536].contiguous(), FF),
    "pad_last": over(F.pad, (6000, 2000), (24, 24)),
    "transpose": over(lambda t: t.t().contiguous(), FF),
    "split_heads": over(lambda t: t.transpose(1, 2).contiguous(), (120, 200, 8, 64)),
    "transpose_keys": over(lambda t: t.transpose(1, 2).contiguous(), (960, 200, 64)),
    "adam": adam(4000000),
    "adam_large": adam(8000 * 2048),
    "adam_small": adam(512),
    "add_small": binary(torch.add, (512,), (512,)),
}


TRIAD = None


def triad():
    """What op_bench runs between any two runs of a case, so that both find the caches alike."""
    global TRIAD
    if TRIAD is None:
        TRIAD = [torch.ones(12 << 20) for _ in range(3)]
    a, b, c = TRIAD
    torch.add(b, c, alpha=0.5, out=a)


def min_ms(run, seconds):
    run()
    best, begin, runs = 1e9, time.perf_counter(), 0
    while runs < 7 or (runs < 60 and time.perf_counter() - begin < seconds):
        triad()
        run()
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best * 1e3


def weft_numbers(program, name):
    """Milliseconds, and the share of the triad's rate."""
    lines = subprocess.run([program, "=" + name], capture_output=True, text=True, check=True).stdout
    for words in map(str.split, lines.splitlines()):
        if words[0] == name:
            return float(words[3]), float(words[7])
    return float("nan"), float("nan")


def main():
    arguments = sys.argv[1:]
    program = arguments.pop(0) if arguments and os.access(arguments[0], os.X_OK) else None
    rounds = 3
    if arguments[:1] == ["--rounds"]:
        rounds, arguments = int(arguments[1]), arguments[2:]
    for name, make in CASES.items():
        if arguments and not any(a[1:] == name if a[0] == "=" else a in name for a in arguments):
            continue
        run, torch_ms, ms, share = make(), float("inf"), float("inf"), 0
        for _ in range(rounds):
            torch_ms = min(torch_ms, min_ms(run, 0.4 / rounds))
            if program:
                own = weft_numbers(program, name)
                ms, share = min(ms, own[0]), max(share, own[1])
        line = f"{name:22} PyTorch {torch_ms:9.4f} ms"
        if program:
            line += f"  weft {ms:9.4f} ms  {torch_ms / ms:6.2f} times as fast  {share:5.2f} of triad"
        print(line, flush=True)


main()
