"""Times training of adapters of rank 16 for SmolLM2-135M, all matrices but the embedding, one row of
512 tokens a step: by weft next to the model in f32, 8 and 4 bits, and by PEFT and PyTorch in f32, by
turns, each in a process of its own. Prints tokens per second, medians of the rounds, and the largest
resident memory.

    python3 tests/real/time_peft.py WEFT WORK ROUNDS THREADS"""
import os
import pathlib
import statistics
import subprocess
import sys
import time

TOKENS, STEPS = 512, 4
WORDS = "the quick brown fox jumps over the lazy dog while a red bird sings of rain and stone ".split()


def measured(command, env):
    """Standard output of a command, and its largest resident memory in MB."""
    with open(WORK / "log", "w+") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
        _, status, usage = os.wait4(child.pid, 0)
        log.seek(0)
        text = log.read()
    if status:
        sys.exit(f"{' '.join(map(str, command))}: {text}")
    return text, usage.ru_maxrss / 1000


def with_weft(run, name):
    """Seconds of a step: the difference of trainings of different lengths, so that no start counts."""
    seconds, memory = [], 0
    for steps in (2, 2 + STEPS):
        start = time.perf_counter()
        _, peak = measured([WEFT, "train", "--from", WORK / run, "--lora", "16", "--lora-alpha", "32", "dropout=0", "--text",
                            WORK / "text", "--mode", "blocks", "--lengths", str(TOKENS), "--batch-tokens", str(TOKENS),
                            "--lr", "1e-4", "--steps", str(steps), "--measure=false", "--threads", THREADS, "--out",
                            WORK / f"{name}-{steps}-{time.time_ns()}"], {"OMP_NUM_THREADS": THREADS})
        seconds.append(time.perf_counter() - start)
        memory = max(memory, peak)
    return TOKENS * STEPS / (seconds[1] - seconds[0]), memory


def with_peft():
    text, memory = measured([sys.executable, "-W", "ignore", __file__, "--child", WORK / "smol-hf", THREADS], {
        "OMP_NUM_THREADS": THREADS})
    return float(text.split()[-1]), memory


def child(folder, threads):
    """Trains by PEFT and prints tokens per second."""
    import peft
    import torch
    import transformers
    torch.set_num_threads(int(threads))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, model.config.vocab_size, (1, TOKENS + 1))
    for step in range(2 + STEPS):
        if step == 2:
            start = time.perf_counter()
        loss = model(input_ids=ids[:, :TOKENS], labels=ids[:, :TOKENS]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(TOKENS * STEPS / (time.perf_counter() - start))


def main():
    global WEFT, WORK, THREADS
    WEFT, WORK, rounds, THREADS = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    with open(WORK / "text", "w") as f:
        for i in range(2000):
            print(*(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(12)), file=f)
    runs = {"weft, f32": lambda: with_weft("smol", "f32"), "PEFT, f32": with_peft,
            "weft, 8 bits": lambda: with_weft("smol-8", "8"), "weft, 4 bits": lambda: with_weft("smol-4", "4")}
    found = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
    peft = statistics.median(rate for rate, _ in found["PEFT, f32"])
    for name, pairs in found.items():
        rates = sorted(rate for rate, _ in pairs)
        print(f"{name:13} {statistics.median(rates):7.1f} tokens/s ({rates[0]:.1f} to {rates[-1]:.1f}), "
              f"{statistics.median(rates) / peft:.2f} of PEFT's, {max(m for _, m in pairs):.0f} MB")


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(*sys.argv[2:])
    else:
        main()
