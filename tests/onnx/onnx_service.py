#!/usr/bin/env python3
"""Asks the service of examples/onnx_service.c, and compares its answers with those of `weft run`.

    onnx_service.py WEFT MODEL.onnx ADDRESS_FILE

The service is running with that model of digits; it writes its address to ADDRESS_FILE."""
import ast
import json
import pathlib
import random
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request


def post(address, body, method="POST"):
    """The status of HTTP, and the answer."""
    request = urllib.request.Request(address, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def write_npy(path, shape, numbers):
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).ljust(117).encode() + b"\n"
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def read_npy(path):
    data = path.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    assert header["descr"] == "<f4", header
    return struct.unpack(f"<{(len(data) - 10 - length) // 4}f", data[10 + length:])


def main():
    weft, model, address_file = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    for _ in range(600):
        if address_file.read_text().endswith("\n"):
            break
        time.sleep(0.1)
    address = address_file.read_text().strip()
    assert address.startswith("http://127.0.0.1:"), address

    for seed in range(3):
        pixels = [random.Random(seed).random() * 16 for _ in range(64)]
        image = [[pixels[row * 8:row * 8 + 8] for row in range(8)]]
        status, answer = post(address, json.dumps([image]).encode())
        assert status == 200, answer
        write_npy(pathlib.Path("image.npy"), (1, 1, 8, 8), pixels)
        command = [weft, "run", model, "--input", "image=image.npy", "--out", "outputs"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wanted = read_npy(pathlib.Path("outputs/logits.npy"))
        assert len(wanted) == 10 and max(wanted) > min(wanted), wanted
        answered = struct.unpack("<10f", struct.pack("<10f", *answer.pop("logits")))
        assert answered == wanted and not answer, (answered, wanted)

    refused = "expected a POST of 64 numbers as JSON, in at most 4194304 bytes"
    zeros = json.dumps([0] * 64).encode()
    for body in (b"", b"[1, 2", b"[1, 2]", b'{"image": [1]}', b'["1"]', json.dumps([0] * 65).encode(),
                 b"[" * 100000, b" " * (1 << 22) + zeros):
        assert post(address, body) == (400, {"error": refused}), body[:20]
    assert post(address, None, "GET") == (400, {"error": refused})
    assert post(address, b" " * 1000 + zeros)[0] == 200

    # A client that leaves in the middle of its request is forgotten.
    port = int(address.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n[1")
    assert post(address, zeros)[0] == 200


main()
