"""Texts that tokenisers may read differently: languages, code, emoji, combining marks, bytes that are not UTF-8,
very long lines. For make_tokenizers.py and tests/real/compare_tokenizers.py."""
import pathlib
import random
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OTHERS = [
    "Привет, мир! Как дела?", "こんにちは、世界。カタカナと漢字", "你好，世界！中文字符", "안녕하세요 세계", "مرحبا بالعالم ١٢٣",
    "שָׁלוֹם עוֹלָם", "नमस्ते दुनिया क्षि", "ภาษาไทยไม่มีช่องว่าง", "Ελληνικά ΜΕΓΆΛΑ Σίσυφος", "Zażółć gęślą jaźń",
    "İstanbul ıI", "ß ẞ ﬁ ﬂ ﬃ ½ ² ⅷ Ⅷ ①", "e\u0301 a\u0323\u0302 \u1e69 s\u0323\u0307 s\u0307\u0323",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ☃", "\u200bzero\u200dwidth\ufeff\u00adsoft", "\u00a0nbsp\u2003em\u3000ideo",
    "don't DON'T we'll I'M you'VE 'tis ''s 's'", "1234567890 12,345.67 1e-10 0x1F", "   leading", "trailing   ",
    "a  b   c    d", "\t\ttabs\t x", "line\r\nbreak\n\n\nmore\r",
    "<s> </s> <unk> [CLS] x [SEP] [MASK] <|endoftext|> <0x41>", "ſ'ſ 'ſx", "ⓐⒶ🅰 ²³¹ ¼", "\u0378 unassigned",
    "カ\u3099 ハ\u309a", "가각힣 \u1100\u1161\u11a8", "…‘’“”–—", "ﷺ ﷽", "Å \u212b K \u212a Ω", "ǆ ǅ Ǆ",
    "\u0958 \u09dc \u0344", "x̂̃̄", "x\x01\x02\x7f\x85 control", "▁under ▁▁", "##sharp ##s",
    "http://example.com/?q=1&b=2#frag", "C'est l'été, n'est-ce pas?", "\U0001d400\U0001d7d8", "\u1ec7\u0301 \u01d5",
    "a\u1cf2 b\u1cf3c d\u1734 e\u166d f\U000111c9",  # of another category in older versions of Unicode
    "a <mask> b<mask>  <mask>c Word Words aWord  Lord LORD",
]


def lines(path, n):
    with open(ROOT / path, encoding="utf-8") as file:
        return [line.rstrip("\n") for _, line in zip(range(n), file)]


def pools(n=20000):
    """Lists of texts: verses in two languages, lines of code, other languages and cases."""
    verses = lines("tools/data/bible-en-es/train.en", n) + lines("tools/data/bible-en-es/train.es", n)
    sources = sorted((ROOT / "ops").glob("*/*.c")) + sorted((ROOT / "tests/style").glob("*.py"))
    code = [line for path in sources for line in path.read_text(encoding="utf-8").split("\n")]
    return [verses, code[:n], OTHERS]


def character(r):
    """A character that Unicode knows for some years, so that the versions of libraries agree on it."""
    kind = r.random()
    if kind < 0.3:
        return chr(r.randrange(32, 127))
    if kind < 0.4:
        return r.choice("\u0300\u0301\u0302\u0323\u0327\u0345 \n\r\t'\u200d\ufe0f")
    while True:
        c = r.randrange(0xA0, r.choice([0x600, 0x3100, 0x30000]))
        if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn":
            return chr(c)


def with_broken_bytes(r, text):
    data = bytearray(text.encode())
    for _ in range(r.randrange(1, 5)):
        data[r.randrange(len(data))] = r.randrange(1, 256)
    return bytes(data)


def mixed(n, seed, longest=2000):
    """n texts as bytes, without zero bytes; the same for the same numbers."""
    r = random.Random(seed)
    lists = pools()
    for _ in range(n):
        kind = r.random()
        if kind < 0.25:
            text = r.choice(lists[0])
        elif kind < 0.45:
            text = r.choice(lists[1])
        elif kind < 0.6:
            text = " ".join(r.choice(OTHERS) for _ in range(r.randrange(1, 4)))
        elif kind < 0.7:
            text = "".join(character(r) for _ in range(r.randrange(1, 30)))
        elif kind < 0.85:
            text, inserted = r.choice(r.choice(lists)), r.choice(OTHERS)
            at = r.randrange(len(text) + 1)
            text = text[:at] + inserted + text[at:]
        elif kind < 0.93:
            text = "".join(r.choice("ab \n\t'.,1X中é") for _ in range(r.randrange(0, 40)))
        elif kind < 0.99:
            yield with_broken_bytes(r, r.choice(r.choice(lists)) + r.choice(OTHERS))
            continue
        else:
            text = r.choice(["a", "ab ", "é", "中", "x y ", " ", "👍"]) * r.randrange(longest // 20, longest)
        yield text.replace("\0", " ").encode()
