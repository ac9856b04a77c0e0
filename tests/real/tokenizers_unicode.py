#!/usr/bin/env python3
"""Prints tokenizers/older.c: the characters that utf8proc knows, and that parts of the package `tokenizers` do not.

Needs the package `tokenizers` and libutf8proc: tests/real/tokenizers_unicode.py | clang-format >tokenizers/older.c
"""
import ctypes

from tokenizers import normalizers, pre_tokenizers

utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p
utf8proc.utf8proc_NFKD.restype = ctypes.c_void_p
libc = ctypes.CDLL(None)
characters = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
category = {c: utf8proc.utf8proc_category_string(c).decode() for c in characters}


def nfkd(text):
    allocated = utf8proc.utf8proc_NFKD(text.encode())
    result = ctypes.string_at(allocated).decode()
    libc.free(ctypes.c_void_p(allocated))
    return result


def keeps(normalizer, c):
    return normalizer.normalize_str("x" + chr(c)) != "x"


def table(name, comment, members):
    ranges = []
    for c in sorted(members):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    rows = ", ".join(f"{{0x{first:X}, 0x{last:X}}}" for first, last in ranges)
    print(f"\n/* {comment} */\nconst tk_range weft__tk_{name}[] = {{{rows},}};")
    print(f"const size_t weft__tk_{name}_count = sizeof weft__tk_{name} / sizeof *weft__tk_{name};")


print("/* Characters that utf8proc knows and parts of the package `tokenizers` do not, because these follow\n"
      " * older versions of Unicode. tests/real/tokenizers_unicode.py prints this file. */\n#include \"older.h\"")
bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
table("newer_nonspacing", "Mn in Unicode 15, not in Unicode 8.",
      [c for c in characters if category[c] == "Mn" and keeps(bert, c)])
table("newer_marks", "M in Unicode 15, not in Unicode 9.",
      [c for c in characters if category[c][0] == "M" and keeps(normalizers.StripAccents(), c)])
line = "".join("a" + chr(c) for c in characters) + "a"
known = {ord(piece) for piece, _ in pre_tokenizers.Punctuation("isolated").pre_tokenize_str(line) if len(piece) == 1}
table("newer_punctuation", "P in Unicode 15, not in Unicode 8.",
      [c for c in characters if category[c][0] == "P" and c > 127 and c not in known])
table("newer_decompositions", "Have a decomposition in Unicode 15, but not in Unicode 9.",
      [c for c in characters if normalizers.NFKD().normalize_str(chr(c)) != nfkd(chr(c))])
