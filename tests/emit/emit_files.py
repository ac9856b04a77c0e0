"""Writes variants of a safetensors file: emit_files.py FILE FOLDER.

FOLDER/good-NAME has the same tensors; FOLDER/bad-NAME must be refused. FOLDER/rounded.safetensors has numbers of
bf16 as F32, and FOLDER/half.safetensors the same as BF16.
"""
import json
import pathlib
import sys

bytes_in = pathlib.Path(sys.argv[1]).read_bytes()
folder = pathlib.Path(sys.argv[2])
length = int.from_bytes(bytes_in[:8], "little")
header = json.loads(bytes_in[8:8 + length])
data = bytes_in[8 + length:]
tensors = {name: value for name, value in header.items() if name != "__metadata__"}
first = next(iter(tensors))


def write(name, text, body=data, size=None):
    encoded = text.encode() if isinstance(text, str) else text
    size = len(encoded) if size is None else size
    (folder / name).write_bytes(size.to_bytes(8, "little") + encoded + body)


def changed(**members):
    """The header with other members of the first tensor; None removes one."""
    entry = {key: value for key, value in {**tensors[first], **members}.items() if value is not None}
    return json.dumps({**tensors, first: entry})


plain = json.dumps(tensors, separators=(",", ":"))
begin, end = tensors[first]["data_offsets"]
shape = tensors[first]["shape"]

write("good-compact", plain)
write("good-spaces", "\n\t " + json.dumps(tensors, indent=3).replace(":", " : ") + "  \r\n ")
write("good-metadata", json.dumps({"__metadata__": {"model": "x \"{y}\" \\", "": "]"}, **tensors}))
write("good-metadata-last", json.dumps({**tensors, "__metadata__": {}}))
write("good-members", json.dumps({name: dict(reversed(value.items())) for name, value in tensors.items()}))
moved, body = {}, b""
for name, value in reversed(tensors.items()):
    part = data[slice(*value["data_offsets"])]
    moved[name] = {**value, "data_offsets": [len(body), len(body) + len(part)]}
    body += part
write("good-order", json.dumps(moved), body)
more = {**tensors, "another": {"dtype": "I64", "shape": [2], "data_offsets": [len(data), len(data) + 16]}}
write("good-more-tensors", json.dumps(more), data + bytes(16))

rounded, halves, half_data = b"", {}, b""
for name, value in tensors.items():
    part = bytearray(data[slice(*value["data_offsets"])])
    if value["dtype"] == "F32":
        part[0::4] = part[1::4] = bytes(len(part) // 4)
    rounded += part
    if value["dtype"] == "F32":
        part = bytes(byte for i, byte in enumerate(part) if i % 4 > 1)
        value = {**value, "dtype": "BF16"}
    halves[name] = {**value, "data_offsets": [len(half_data), len(half_data) + len(part)]}
    half_data += part
write("rounded.safetensors", json.dumps(header), rounded)
write("half.safetensors", json.dumps({**header, **halves}), half_data)
write("bad-half-cut", json.dumps(halves), half_data[:-1])
write("bad-half-size", changed(dtype="BF16"))

for n in (0, 1, 7, 8, 9, 8 + length // 2, 7 + length, 8 + length, len(bytes_in) // 2, len(bytes_in) - 1):
    (folder / f"bad-cut-{n}").write_bytes(bytes_in[:n])
for n in (1 << 63, (1 << 64) - 1, (1 << 64) - 8, 1 << 32, len(bytes_in) - 7, length - 1):
    write(f"bad-length-{n}", plain, size=n)
write("bad-empty", "{}")
write("bad-no-object", "")
write("bad-array", "[]")
write("bad-lacks-one", json.dumps({k: v for k, v in tensors.items() if k != first}))
write("bad-name", json.dumps({("x" + k if k == first else k): v for k, v in tensors.items()}))
write("bad-shorter-name", json.dumps({(k[:-1] if k == first else k): v for k, v in tensors.items()}))
write("bad-twice", plain[:-1] + "," + json.dumps({first: tensors[first]})[1:])
write("bad-dtype", changed(dtype="F64" if tensors[first]["dtype"] != "F64" else "F32"))
write("bad-longer-dtype", changed(dtype=tensors[first]["dtype"] + "0"))
write("bad-numeric-dtype", changed(dtype=32))
write("bad-shape", changed(shape=[n + 1 for n in shape] or [2]))
write("bad-rank", changed(shape=shape + [1]))
write("bad-rank-nine", changed(shape=[1] * 9))
write("bad-huge-shape", changed(shape=[1 << 70]))
write("bad-huge-offsets", changed(data_offsets=[(1 << 64) - 8, (1 << 64) - 8 + end - begin]))
write("bad-wrapping-offsets", changed(data_offsets=[(1 << 64) - 8, end - begin - 8]))
write("bad-overflowing-offsets", changed(data_offsets=[(1 << 64) + begin, (1 << 64) + end]))
write("bad-offsets-beyond", changed(data_offsets=[len(data), len(data) + end - begin]))
write("bad-offsets-turned", changed(data_offsets=[end, begin] if end > begin else [1, 0]))
write("bad-offsets-size", changed(data_offsets=[begin, end + 4]))
write("bad-one-offset", changed(data_offsets=[begin]))
write("bad-three-offsets", changed(data_offsets=[begin, end, end]))
write("bad-negative", changed(data_offsets=[-1, end - begin - 1]))
write("bad-fraction", plain.replace(f"[{begin},", f"[{begin}.0,", 1))
write("bad-leading-zero", plain.replace(f"[{begin},{end}]", f"[{begin},0{end}]", 1))
# What the tensor before it has would fit.
like, second = next((a, b) for a in tensors for b in tensors
                    if a != b and all(tensors[a][key] == tensors[b][key] for key in ("dtype", "shape")))
rest = {name: value for name, value in tensors.items() if name not in (like, second)}
for member in ("dtype", "shape", "data_offsets"):
    entry = {key: value for key, value in tensors[second].items() if key != member}
    write(f"bad-without-{member}", json.dumps({like: tensors[like], second: entry, **rest}))
write("bad-unknown-member", changed(other=[1]))
write("bad-member-twice", plain.replace('{"dtype":', '{"shape":[],"dtype":', 1))
write("bad-metadata", json.dumps({"__metadata__": {"x": 1}, **tensors}))
write("bad-open-metadata", '{"__metadata__":{"x":"y"')
write("bad-open-text", plain[:-1] + ',"')
write("bad-escape-at-end", plain[:-1] + ',"\\')
write("bad-comma", plain[:-1] + ",}")
write("bad-comma-at-end", plain[:-1] + ", ")
write("bad-control", plain[:-1] + ',"a\nb":' + json.dumps(tensors[first]) + "}")
write("bad-after-the-end", plain + "x")
write("bad-second-object", plain + plain)
write("bad-nested", "{" * 5000)
