"""Copies a safetensors file without a tensor, or with other metadata: without.py FROM TO CHANGE...

A change is the NAME of a tensor to leave out, @KEY for an entry of the metadata to leave out, @KEY=TEXT for
one to set, or NAME=OTHER for a tensor to rename. For tests of what reads checkpoints."""
import json
import struct
import sys


def main():
    source, target, *changes = sys.argv[1:]
    with open(source, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = file.read()
    meta = header.pop("__metadata__", {})
    for change in changes:
        name, equal, text = change.partition("=")
        known = meta if name[0] == "@" else header
        key = name.lstrip("@")
        if key not in known:
            sys.exit(f"without.py: {source} has no {name}")
        value = known.pop(key)
        if equal:
            known.update({key: text} if known is meta else {text: value})
    parts, at = [], 0
    for entry in header.values():
        begin, end = entry["data_offsets"]
        parts.append(data[begin:end])
        entry["data_offsets"] = [at, at + end - begin]
        at += end - begin
    text = json.dumps({"__metadata__": meta, **header}).encode()
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


main()
