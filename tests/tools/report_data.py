"""Checks that the facts of a document of `weft report --json` agree with each other.

Usage: report_data.py FILE.json [timed|planned|run]...   one word for each subject
Prints what is wrong, and exits with 1 if anything is.
"""
import json
import math
import sys

wrong = []


def check(good, *what):
    if not good:
        wrong.append(" ".join(str(w) for w in what))


ROUNDING = 1e-12  # the numbers are printed in full, and sums of some thousand terms round by 1.1e-16 each


def close(a, b):
    return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=1e-15)


def check_nodes(subject, nodes):
    by_id = {n["id"]: n for n in nodes}
    check(len(by_id) == len(nodes), "two nodes have one id")
    check(len({n["name"] for n in nodes}) == len(nodes), "two nodes have one name")
    check(sorted(by_id) == [n["id"] for n in nodes], "nodes are out of order")
    buffers = subject["buffers"]
    for n in nodes:
        check(n["op"] in subject["ops"], n["name"], "has an op without documentation")
        for i in n["in"]:
            source = by_id.get(i["node"])
            check(source and i["node"] < n["id"], n["name"], "reads a node that is not before it")
            check(source and i["output"] < len(source["outputs"]), n["name"], "reads no output")
        for o in n["outputs"]:
            held = buffers[o["buffer"]] if "buffer" in o else None
            check(held is None or n["kind"] == "view" or held["bytes"] >= o["bytes"],
                  n["name"], "does not fit its buffer")
            if held and "interval" in n and n["kind"] != "view":
                check(held["first"] <= n["interval"] <= held["last"],
                      n["name"], "writes a buffer that is not alive")
        if "head" in n:
            head = by_id.get(n["head"])
            check(head and head["interval"] == n["interval"] and head["step"] < n["step"],
                  n["name"], "runs on the tiles of a node that is not a head")
        check(n["kind"] in ("input", "parameter", "state", "constant", "view", "group", "op",
                            "update"), n["name"], "has the kind", n["kind"])
        check(("step" in n) == (n["kind"] in ("op", "update")), n["name"], n["kind"], "steps")
    return by_id


def check_roles(subject, nodes):
    phases = {n["phase"] for n in nodes}
    wanted = {"forward", "backward", "update"} if subject["train"] else {"forward"}
    check(phases == wanted, "the phases are", phases)
    forward = {n["source"] for n in nodes if n["phase"] == "forward"}
    own = [n for n in nodes if "gradient_of" in n]
    check(all(n["phase"] == "backward" for n in own), "a gradient is not of the backward pass")
    check(bool(own) == subject["train"], len(own), "nodes are gradients")
    known = sum(n["gradient_of"] in forward for n in own)
    check(known >= 0.9 * len(own), known, "of", len(own), "gradients are of nodes of the plan")


def check_buffers(subject, by_id):
    summary, buffers = subject["summary"], subject["buffers"]
    check(len(buffers) == summary["buffers"], len(buffers), "buffers")
    check(sum(b["bytes"] for b in buffers) == summary["sum_bytes"], "sum of the buffers' bytes")
    check(max(b["offset"] + b["bytes"] for b in buffers) == summary["arena_bytes"], "arena")
    live = [0] * (summary["intervals"] + 1)
    for b in buffers:
        check(0 <= b["first"] <= b["last"] < summary["intervals"], "lifetime", b)
        check(b["node"] in by_id and b.get("reader", b["node"]) in by_id, "users", b)
        check(b.get("reason") in (None, "read by", "target", "kept"), "reason", b)
        if b.get("reason") == "read by":
            check(by_id[b["reader"]]["interval"] == b["last"], "its reader is not the last", b)
        live[b["first"]] += b["bytes"]
        live[b["last"] + 1] -= b["bytes"]
    total, peak = 0, 0
    for change in live:
        total += change
        peak = max(peak, total)
    check(peak == summary["lower_bound_bytes"], "peak of live bytes", peak)
    # In the order of offsets, a sweep finds neighbours that overlap.
    order = sorted(buffers, key=lambda b: b["offset"])
    for i, a in enumerate(order):
        for b in order[i + 1:]:
            if b["offset"] >= a["offset"] + a["bytes"]:
                break
            check(a["last"] < b["first"] or b["last"] < a["first"], "overlap", a, b)


def check_layers(subject, nodes):
    summary, layers = subject["summary"], subject["layers"]
    outer = [l for l in layers if l["depth"] == 0]
    check(sum(l["parameters"] for l in outer) == summary["trainable"], "parameters of the layers")
    flops = sum(n.get("flops", 0) for n in nodes if n["phase"] == "forward")
    check(close(sum(l["flops"] for l in outer), flops), "flops of the layers")
    seen = set()
    for l in layers:
        parent = l["scope"].rpartition(".")[0]
        check(l["depth"] == l["scope"].count("."), "depth", l)
        check(not parent or parent in seen, l["scope"], "comes before the layer around it")
        seen.add(l["scope"])
    check(len(seen) == len(layers), "a layer comes twice")
    check(seen >= {n["scope"] for n in nodes if n["phase"] == "forward"}, "a layer is missing")


def check_times(subject, nodes):
    s = subject["summary"]
    for of, name in (("compute_seconds", "seconds"), ("waiting_seconds", "waiting")):
        check(close(sum(n.get(name, 0) for n in nodes), s[of]), of, "of the nodes")
    whole = s["compute_seconds"] + s["waiting_seconds"] + s["start_seconds"]
    check(whole <= s["seconds"] * s["threads"] * (1 + ROUNDING), "more time than there was")
    roofline = sum(n.get("roofline", 0) for n in nodes)
    check(close(roofline, s["roofline_seconds"] * s["threads"]), "roofline of the nodes")
    timeline, ids = subject["timeline"], {n["id"] for n in nodes}
    check(timeline["events"], "no events")
    free = {}
    for thread, node, start, took in timeline["events"]:
        check(node in ids and 0 <= thread < timeline["threads"], "event of", thread, node)
        # In microseconds with three decimals; a tenth of the last one is room for the rounding of sums.
        check(start >= free.get(thread, 0) - 1e-4, "events of a thread overlap")
        free[thread] = start + took
    check(close(max(free.values()) * 1e-6, timeline["seconds"]), "duration of the timeline")
    check(len(subject["interval_seconds"]) == s["intervals"], "intervals with times")
    check(close(sum(subject["interval_seconds"]), timeline["seconds"]), "times of the intervals")


def check_plan(subject):
    summary, nodes = subject["summary"], subject["nodes"]
    check(len(nodes) == summary["nodes"], len(nodes), "nodes")
    by_id = check_nodes(subject, nodes)
    steps = [n for n in nodes if "step" in n]
    check(sorted(n["step"] for n in steps) == list(range(len(steps))), "numbers of the steps")
    check(sum("head" in n for n in nodes) == summary["fused"], "fused nodes")
    check(sum(n.get("fixed", False) for n in nodes) == summary["fixed"], "fixed nodes")
    for what in ("flops", "bytes"):
        check(close(sum(n[what] for n in steps if not n.get("fixed")), summary[what]),
              what, "of the nodes")
    parameters = [n for n in nodes if n["kind"] == "parameter"]
    check(sum(n["outputs"][0]["bytes"] for n in parameters) == summary["parameter_bytes"],
          "bytes of the parameters")
    check_roles(subject, nodes)
    check_buffers(subject, by_id)
    check_layers(subject, nodes)


def check_run(run):
    check(isinstance(run["running"], bool), "running")
    steps = [line["step"] for line in run["log"]]
    check(steps and steps == sorted(steps), "steps of the log")
    check(any("loss" in line for line in run["log"]), "no losses")
    check(any("validation_loss" in line for line in run["log"]), "no validation")
    check(run["recipe"]["model"], "the recipe names no model")
    for sample in run.get("samples", []):
        check(sample.keys() == {"step", "source", "reference", "text"}, "sample", sample)
    for m in run.get("attention", []):
        for head in m["heads"]:
            check(len(head) == len(m["target"]), m["name"], "rows")
            check(all(len(row) == len(m["source"]) for row in head), m["name"], "columns")
            # Each weight is rounded to four decimals, by up to 5e-5, and a row has fewer than 200.
            check(all(abs(sum(row) - 1) < 0.01 for row in head), m["name"], "weights")


with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
check(document["format"] == "weft-report 1", "format")
check(len(document["subjects"]) == len(sys.argv) - 2, len(document["subjects"]), "subjects")
for part, expected in zip(document["subjects"], sys.argv[2:]):
    check(part["command"].startswith("weft report "), "command")
    if "summary" in part:
        check_plan(part)
    if expected == "timed":
        check_times(part, part["nodes"])
    elif expected == "planned":
        check("seconds" not in part["summary"] and "timeline" not in part, "it has times")
    if expected == "run":
        check(part["kind"] == "run", part["kind"])
        check_run(part["run"])
    else:
        check("summary" in part, "it has no plan")
for line in wrong[:10]:
    print(line)
sys.exit(bool(wrong))
