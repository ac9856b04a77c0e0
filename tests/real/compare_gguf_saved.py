"""Compares a GGUF file that weft wrote with the one that its run was made of, by the Python package `gguf`: tensors of the
same type have the same bytes; others those that gguf.quants makes of the original's numbers. Every value of the metadata
that both files have, but for the type and the name, is the same. With a TYPE all
matrices must have it. Usage: compare_gguf_saved.py ORIGINAL.gguf FILE.gguf [TYPE]. Exit status 1 if something differs."""
import collections
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf.quants import dequantize, quantize

OTHER = ("GGUF.kv_count", "general.file_type", "general.name")
NEEDED = ("general.architecture", "llama.context_length", "llama.rope.dimension_count", "tokenizer.ggml.tokens",
          "tokenizer.ggml.merges", "tokenizer.ggml.token_type", "tokenizer.ggml.pre", "tokenizer.ggml.eos_token_id",
          "tokenizer.chat_template")


def wanted(tensor, kind):
    """The bytes of a tensor in another type."""
    if tensor.tensor_type == kind:
        return tensor.data
    numbers = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    if kind in (Type.F32, Type.F16):
        return numbers.astype(np.float16 if kind == Type.F16 else np.float32)
    return quantize(numbers, kind)


def bytes_of(array):
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def main():
    original, file = (GGUFReader(path) for path in sys.argv[1:3])
    tensors = {t.name: t for t in original.tensors}
    kinds = collections.Counter()
    for t in file.tensors:
        kinds[t.tensor_type.name] += 1
        before = tensors.pop(t.name)
        if sys.argv[3:] and len(t.shape) == 2 and t.tensor_type.name != sys.argv[3].upper():
            sys.exit(f"{t.name} is {t.tensor_type.name}, expected {sys.argv[3]}")
        if before.shape.tolist() != t.shape.tolist() or \
                not np.array_equal(bytes_of(wanted(before, t.tensor_type)), bytes_of(t.data)):
            sys.exit(f"{t.name} has other numbers")
    if tensors:
        sys.exit(f"missing tensors: {sorted(tensors)}")
    values = [{key: field.contents() for key, field in reader.fields.items()} for reader in (original, file)]
    missing = [key for key in NEEDED if key not in values[1]]
    differ = [key for key in values[0] if key in values[1] and key not in OTHER and values[0][key] != values[1][key]]
    if missing or differ:
        sys.exit(f"metadata: {missing} are missing, {differ} differ")
    both = sum(key in values[0] for key in values[1])
    print(f"{', '.join(f'{n} tensors in {kind}' for kind, n in kinds.items())} have the bytes that the package gguf makes; "
          f"{both} values are in both files")


if __name__ == "__main__":
    main()
