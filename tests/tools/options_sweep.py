"""Gives every command of weft values, files, limits and streams that it does not expect.

Usage: options_sweep.py WEFT [TEXT]...   TEXT: only calls that contain a TEXT

The commands and their options come from --help-json, so that new options are swept as well. Each call must
end within SECONDS, without a signal and without a finding of a sanitizer. If it fails, it must print a message
that names the option, the value or the file that is wrong. What a call reads must be unchanged after all calls.
"""
import concurrent.futures
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

SECONDS = 60
LONG = "x" * 100000
NUMBERS = ["0", "-1", "1e30", "nan", "inf", "9223372036854775807", "18446744073709551616", ""]
MAX_LINE = 8300  # of a message with a path of 4096 bytes or a long name, of which the middle is left out
ABSOLUTE = {".": ["Is a directory", "directory"]}  # it may be named in full
FOUND = ("AddressSanitizer", "LeakSanitizer", "runtime error:")
SMALL = ["--vocab", "30", "--lengths", "16", "--measure=false", "--threads", "1", "--warmup", "0", "--steps", "1"]
MODEL = ["d_model=32", "heads=1", "d_ff=32", "layers=1"]

# A call of each command that succeeds at once; the sweep changes one of its options or arguments. A command without
# a call here fails the sweep. SLOW: what
# runs long by its meaning.
CALLS = {
    "models": ["gpt"], "ops": [], "info": [],
    "dot": ["gpt", "--output", "graph.dot"], "plan": ["gpt"], "profile": ["gpt", "--runs", "1", *MODEL],
    "report": ["gpt", "--no-time", "--output", "page.html"],
    "train": ["gpt", "--text", "text", "--valid-text", "valid", *SMALL, "--out", "new", *MODEL],
    "average": ["run/model.safetensors", "--output", "mean.safetensors"], "plot": ["run", "--output", "loss.svg"],
    "translate": ["pairs", "--threads", "1"], "generate": ["run", "--prompt", "a", "--tokens", "1", "--threads", "1"],
    "chat": ["chat", "--threads", "1"], "logprob": ["run", "--threads", "1"], "embed": ["encoder", "--threads", "1"], "quantize": ["run", "--output", "quantized"],
    "vocab train": ["text", "--output", "vocab.model", "--size", "30"], "vocab encode": ["run"], "vocab decode": ["run"],
    "vocab show": ["run"], "score": ["text", "text"], "export": ["run", "-o", "exported.onnx"],
    "emit": ["run", "batch=1", "length=4", "-o", "emitted.c"],
    "convert": ["run", "--output", "converted"], "check": ["--op", "relu"],
    "serve": ["run", "--check", "--port", "0", "--slots", "1", "--context", "8", "--threads", "1"],
    "bench": ["gpt", "--runs", "1", "--rounds", "1", *MODEL],
}
ONNX_CALLS = {
    "fit": ["digits.onnx", "--x", "x.npy", "--y", "y.npy", "--loss", "cross-entropy", "--measure=false", "--threads",
            "1", "--warmup", "0", "--steps", "1", "--out", "fit"],
    "run": ["digits.onnx", "--random", "--threads", "1"],
}
SLOW = {("train", "--steps", "0"), ("fit", "--steps", "0")}  # they train for five minutes


class Sweep:
    def __init__(self, weft, texts):
        self.weft, self.texts = os.path.realpath(weft), texts
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
        self.work = tempfile.mkdtemp(prefix="weft-sweep-")
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.made = tempfile.mkdtemp(prefix="weft-sweep-")
        self.calls = []
        self.sanitized = "__asan_init" in open(self.weft, "rb").read().decode("latin-1")

    # ---- What the calls read ----

    def run(self, *arguments):
        done = subprocess.run([self.weft, *arguments], cwd=self.work, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode:
            sys.exit(f"weft {' '.join(arguments)}: status {done.returncode}: {done.stderr}")
        return done.stdout

    def prepare(self):
        data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
        for name, lines in (("text", 40), ("valid", 10)):
            with open(os.path.join(self.work, name), "w") as f:
                f.writelines(" ".join("abcdefghijkl"[(i * k + k) % 12] for k in range(2, 8)) + "\n" for i in range(lines))
        self.run("train", "gpt", "--text", "text", "--valid-text", "valid", *SMALL, "--out", "run", *MODEL)
        self.run("train", "--source", "text", "--target", "text", *SMALL, "--out", "pairs", "d_model=8", "heads=1",
                 "d_ff=8", "encoder_layers=1", "decoder_layers=1")
        self.run("train", "bert", "--text", "text", *SMALL, "--out", "encoder", *MODEL)
        golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "huggingface", "gpt2")
        self.run("convert", golden, "-o", "chat")
        with open(os.path.join(self.work, "chat", "tokenizer.json"), "w") as f:
            json.dump({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1}}}, f)
        with open(os.path.join(self.work, "chat", "chat_template.jinja"), "w") as f:
            f.write("{% for m in messages %}{{ m.content }}{% endfor %}a")
        os.mkdir(os.path.join(self.work, "empty"))
        with open(os.path.join(self.work, "locked"), "w") as f:
            f.write("locked\n")
        shutil.copytree(os.path.join(self.work, "run"), os.path.join(self.work, "closed"))
        for name in ("locked", "closed"):
            os.chmod(os.path.join(self.work, name), 0)
        self.table = dict(CALLS)
        for name in ("digits.onnx", "x.npy", "y.npy"):
            shutil.copy(os.path.join(data, "digits", name), self.work)
        probe = subprocess.run([self.weft, "models", "digits.onnx"], cwd=self.work, capture_output=True, text=True)
        if probe.returncode == 0:
            self.table.update(ONNX_CALLS)
        elif "built without" not in probe.stderr:
            sys.exit(f"weft models digits.onnx: {probe.stderr}")
        self.have_onnx = probe.returncode == 0
        if "built without" in subprocess.run([self.weft, "serve", "run", "--check", "--port", "0"], cwd=self.work,
                                             capture_output=True, text=True).stderr:
            self.table["serve"] = ["--help"]

    def hashes(self):
        found = {}
        for folder, _, files in os.walk(self.work):
            for name in files:
                with open(os.path.join(folder, name), "rb") as f:
                    found[os.path.join(folder, name)] = hashlib.sha256(f.read()).hexdigest()
        return found

    def options_of(self, command):
        options = json.loads(self.run(*command.split(), "--help-json"))["options"]
        return [o for o in options if "heading" not in o]

    def commands(self):
        for entry in json.loads(self.run("--help-json"))["commands"]:
            subs = ["train", "encode", "decode", "show"] if entry["name"] == "vocab" else [""]
            for sub in subs:
                command = f"{entry['name']} {sub}".strip()
                if command in self.table:
                    yield command
                elif command not in ONNX_CALLS:
                    self.fail(command, "has no call in CALLS of options_sweep.py")

    # ---- One call ----

    def add(self, command, arguments, names=(), fails=False, **how):
        """Runs a call in the pool. names: its message must have one of them; fails: it must."""
        words = [*command.split(), *arguments]
        shown = " ".join(["weft", *(w if len(w) < 80 else f"{w[:40]}...({len(w)})" for w in words),
                          *(f"[{key} {value}]" for key, value in how.items())])
        if not self.texts or any(t in shown for t in self.texts):
            self.calls.append((shown, self.pool.submit(self.call, words, **how), names, fails))

    def call(self, words, stdin=os.devnull, stdout=None, memory=None, closed=None, powerless=False):
        """Status and standard error of a call in a folder of its own, with links to what the calls read."""
        def limit():
            if memory:
                resource.setrlimit(resource.RLIMIT_AS, (memory << 20, memory << 20))
            if closed is not None:
                os.close(closed)
        folder = tempfile.mkdtemp(dir=self.made)
        for name in os.listdir(self.work):
            os.symlink(os.path.join(self.work, name), os.path.join(folder, name))
        open(os.path.join(folder, "plain"), "w").write("plain\n")
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if powerless and not os.getuid() and shutil.which("setpriv") else []
        with open(stdin) as source, open(stdout or os.devnull, "w") as sink:
            try:
                done = subprocess.run([*prefix, self.weft, *words], cwd=folder, env=self.environment, stdin=source,
                                      stdout=sink, stderr=subprocess.PIPE, timeout=SECONDS, preexec_fn=limit)
                return done.returncode, done.stderr.decode("utf-8", "backslashreplace")
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                shutil.rmtree(folder)

    def fail(self, shown, why):
        print(f"failed: {shown}: {why}")
        self.failures += 1

    def judge(self):
        for shown, future, names, fails in self.calls:
            status, errors = future.result()
            lines = errors.splitlines()
            if status is None:
                self.fail(shown, f"does not end within {SECONDS} seconds")
            elif status not in (0, 1, 2) or any(f in errors for f in FOUND):
                self.fail(shown, f"status {status}: {errors[:3000]}")
            elif not status:
                if fails:
                    self.fail(shown, "succeeds")
            elif "[closed 2]" in shown:
                continue
            elif not lines or max(map(len, lines)) > MAX_LINE:
                self.fail(shown, f"status {status}, without a message of one line: {errors[:200]!r}")
            elif names and not any(n in errors for n in names):
                self.fail(shown, f"status {status}; the message names none of {' '.join(names)[:80]}: {errors[-300:]!r}")

    # ---- What is changed ----

    def sweep_options(self, command):
        """Each option with an argument has values that are too small, too large, none, or no file."""
        for option in self.options_of(command):
            if "argument" not in option:
                continue
            name = "--" + option["long"] if "long" in option else "-" + option["short"]
            base = self.without(self.table[command], name)
            for value in self.values_of(option["argument"]):
                call = [*base, f"{name}={value}"] if name.startswith("--") else [*base, name, value]
                if (command, name, value) not in SLOW:
                    self.add(command, call, [name, f'"{value}"', value[:20] or name, *ABSOLUTE.get(value, [])])

    def values_of(self, argument):
        if any(word in argument for word in ("FILE", "DIR", "FOLDER", "OUT")):
            return ["", LONG, "nowhere/there", ".", "plain", "-1"]
        if "|" in argument or argument in ("TEXT", "SCOPES", "PASS,...", "SUBJECT", "ADDR"):
            return ["", LONG, "plain", "0"]
        return [*NUMBERS, LONG, "plain"]

    def sweep_arguments(self, command):
        """Each file or folder that a call reads is one of another kind, is missing, or may not be read."""
        base = self.table[command]
        for i, word in enumerate(base):
            path = os.path.join(self.work, word)
            if not os.path.exists(path):
                continue
            other = "plain" if os.path.isdir(path) else "empty"
            nothing = [] if i and base[i - 1].startswith("-") else [""]
            for value in [other, *nothing, ".", LONG, "nowhere/there", "locked", "closed", "closed/there"]:
                self.add(command, [*base[:i], value, *base[i + 1:]], fails=True, powerless=True)
        for option in ("--output", "-o", "--out"):
            if option in base:
                value = "closed/" + base[base.index(option) + 1]
                self.add(command, [*self.without(base, option), option, value], ["closed"], fails=True, powerless=True)

    def sweep_limits(self, command):
        """Little memory, standard streams that are closed, an output that is full."""
        base = self.table[command]
        for memory in () if self.sanitized else (50, 100, 200):
            self.add(command, base, memory=memory)
        for stream in range(3):
            self.add(command, base, closed=stream)
        self.add(command, base, stdout="/dev/full")

    def without(self, call, name):
        if name not in call:
            return call
        at = call.index(name)
        return call[:at] + call[at + 2:]

    def main(self):
        self.failures = 0
        try:
            self.prepare()
            before = self.hashes()
            for command in self.commands():
                self.sweep_options(command)
                self.sweep_arguments(command)
                self.sweep_limits(command)
            self.judge()
            for name, digest in self.hashes().items():
                if before.get(name) != digest:
                    self.fail(name, "was changed" if name in before else "was left behind")
        finally:
            self.pool.shutdown()
            os.chmod(os.path.join(self.work, "closed"), 0o700)
            for folder in (self.work, self.made):
                shutil.rmtree(folder, ignore_errors=True)
        print(f"{self.failures} of {len(self.calls)} calls failed" if self.failures
              else f"{len(self.calls)} calls with unexpected options, files and limits: all passed")
        return self.failures > 0


if __name__ == "__main__":
    sys.exit(Sweep(sys.argv[1], sys.argv[2:]).main())
