"""Makes the tokenisers of tests/golden/tokenizers with the package `tokenizers` (0.23), small ones of every kind, and
records what they do: texts.txt has a text a line, in hexadecimal digits, and NAME.txt for each of them the ids without
special ones, and a hash of the rest: see record. Usage: make_tokenizers.py [NAME...]"""
import base64
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_texts import OTHERS, mixed, pools

FOLDER = pathlib.Path(__file__).resolve().parent / "tokenizers"
GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
# spm_train --normalization_rule_tsv with the rules U+FB01 -> fi, U+2026 -> ..., U+E9 -> e U+301, e U+301 -> E,
# U+1 -> nothing, A -> a, U+1F1E9 U+1F1EA -> DE, U+AD -> nothing, U+FF21 -> A, U+B2 -> 2, U+DF -> ss,
# U+30AB U+3099 -> U+30AC.
CHARSMAP = (
    "AAQAAAAMAAAAAACAAQ0AAMwcAgAOAACAgQ0AAAwAAICtGQAABQAAgJ8NAAAXAACAEAAAgICcAgCmDQAAAQAAgILQAgCriAMA4wQCAIJgAgCZHQ"
    "AAGgAAgIENAAAUAACAoTkAALJBAAAHAACAnxgCAIe4AgCpxAMA8HACAJ8YAgCHUAIACQAAgKoFAACs2AIAIQAAACYAAAAnAAAAJAAAACUAAAAq"
    "AAAAKwAAACgAAAApAAAALgAAAC8AAAAsAAAALQAAADIAAAAzAAAAvBACADEAAAA2AAAANwAAADQAAAA1AAAAOgAAADsAAAA4AAAAOQAAAD4AAA"
    "A/AAAAPAAAAKnRAABCAAAAQwAAAEEZAQBBAAAARgAAAEcAAABEAAAARQAAAEoAAABLAAAASAAAAEkAAABOAAAATwAAAEwAAABNAAAAUgAAAFMA"
    "AABQAAAAUQAAAFYAAABXAAAAVAAAAFUAAABaAAAAWwAAAFgAAABZAAAAXgAAAF8AAABcAAAAXQAAAGIAAABjAAAAYAAAAGEAAABmAAAAZwAAAG"
    "WkAgBlAAAAagAAAGsAAABoAAAAaQAAAG4AAABvAAAAbAAAAG0AAAByAAAAcwAAAHAAAABxAAAAdgAAAHcAAAB0AAAAdQAAAHoAAAB7AAAAeAAA"
    "AHkAAAB+AAAAfwAAAHwAAAB9AAAAggAAAIMAAACAAAAAgQAAAIYAAACHAAAAhAAAAIUAAACKAAAAiwAAAIgAAACJAAAAjgAAAI8AAACMAAAAjQ"
    "AAAJIAAACTAAAAkAAAAJEAAACWAAAAlwAAAJQAAACVAAAAmgAAAJsAAACYAAAAmQAAAJ4AAACfAAAAnAAAAJ0AAACiAAAAowAAAKAAAAChAAAA"
    "pgAAAKcAAACkAAAApQAAAKoAAACrAAAAqAAAAKkAAACuAAAArwAAAKwAAACtAAAAsgAAALMAAACwAAAAsQAAALYAAAC3AAAAtAAAALUAAAC6AA"
    "AAuwAAALgAAAC5AAAAvgAAAL8AAAC8AAAAvQAAAMNYAQDCrAEAwAAAAMEAAADGAAAAxwAAAMQAAADFAAAAygAAAMsAAADIAAAAyQAAAM4AAADP"
    "AAAAzAAAAM0AAADSAAAA0wAAANAAAADRAAAA1gAAANcAAADUAAAA1QAAANoAAADbAAAA2AAAANkAAADeAAAA3wAAANwAAADdAAAA47QBAOK0AQ"
    "DgAAAA4QAAAOYAAADnAAAA5AAAAOUAAADqAAAA6wAAAOgAAADpAAAA74gBAO8AAADsAAAA7QAAAPIAAADzAAAA8AAAAPDYAQD2AAAA9wAAAPQA"
    "AAD1AAAA+gAAAPsAAAD4AAAA+QAAAP4AAAD/AAAA/AAAAP0AAAAALi4uADIAQQBERQBFAGEAZcyBAGZpAHNzAOOCrAA=")


def words():
    verses, code, _ = pools(1500)
    return verses + code[:1000] + OTHERS * 5


def train(tokenizer, trainer, texts=None):
    tokenizer.train_from_iterator(texts or words(), trainer)
    return tokenizer


def bpe(size, special, **options):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False, **options)


def byte_level(size, special, **options):
    return bpe(size, special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)


def template(one, two, *special):
    return processors.TemplateProcessing(single=one, pair=two, special_tokens=list(special))


def make_gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, byte_level(900, ["<|endoftext|>"]))


def make_roberta():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train(t, byte_level(700, ["<s>", "<pad>", "</s>", "<unk>"]))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def make_llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    begin = "<|endoftext|>"
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        template(f"{begin} $A", f"{begin} $A {begin}:1 $B:1", (begin, 0))])
    return train(t, byte_level(800, [begin]))


def make_llama2():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    train(t, bpe(900, special, max_token_length=16, limit_alphabet=100), pools(3000)[0])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = template("<s> $A", "<s> $A <s>:1 $B:1", ("<s>", 1))
    return t


def make_clip():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    train(t, byte_level(900, ["<unk>"], end_of_word_suffix="</w>"))
    t.decoder = decoders.BPEDecoder("</w>")
    return t


def make_prefix():
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(),
                                         normalizers.Strip(left=False)])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(),
                                               pre_tokenizers.Punctuation("merged_with_previous"),
                                               pre_tokenizers.Digits(True)])
    train(t, bpe(700, ["<unk>"], continuing_subword_prefix="##", limit_alphabet=150))
    t.decoder = decoders.WordPiece("##", cleanup=False)
    return t


def make_bert():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    train(t, trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False))
    t.decoder = decoders.WordPiece()
    t.post_processor = template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ("[CLS]", 2), ("[SEP]", 3))
    t.add_tokens([AddedToken("Word", single_word=True), AddedToken("İstanbul", normalized=True),
                  AddedToken("  ", normalized=False), AddedToken("LORD", lstrip=True, rstrip=True)])
    return t


def unigram(size, **options):
    return trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
                                   show_progress=False, **options)


def make_unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(base64.b64decode(CHARSMAP)),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.post_processor = template("$A </s>", "$A </s> $B </s>", ("</s>", 2))
    return train(t, unigram(900))


def make_unigram_bytes():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                               pre_tokenizers.Metaspace(prepend_scheme="first", split=False)])
    train(t, unigram(500), pools(3000)[0])
    pieces = json.loads(t.to_str())["model"]["vocab"] + [[f"<0x{i:02X}>", -12.0] for i in range(256)]
    t.model = models.Unigram([tuple(p) for p in pieces], 0, True)
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"),
                                   decoders.Fuse()])
    return t


def make_words():
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit("\t"), pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\w+"), "contiguous"), pre_tokenizers.Digits(False),
        pre_tokenizers.Split(Regex(r"[^\S\n]+|$"), "merged_with_previous")])
    trainer = trainers.WordLevelTrainer(vocab_size=1500, special_tokens=["<unk>"], show_progress=False)
    return train(t, trainer)


# ---- Records ----

def fnv(data, state):
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def byte_positions(data):
    """The byte at which each character begins that Python reads with errors="replace", and the end."""
    found, at = [], 0
    while at < len(data):
        found.append(at)
        for n in (1, 2, 3, 4):
            try:
                data[at:at + n].decode()
                break
            except UnicodeDecodeError:
                continue
        else:
            try:
                data[at:].decode()
            except UnicodeDecodeError as error:
                n = error.end - error.start
        at += n
    return found + [len(data)]


def encode(tokenizer, data, special):
    """Ids and rows (id, begin, end, type) of a text, with or without special ids."""
    tokenizer.encode_special_tokens = not special
    encoding = tokenizer.encode(data.decode("utf-8", "replace"), add_special_tokens=special)
    at = byte_positions(data)
    rows = [(i, at[b], at[e], t) for i, (b, e), t in zip(encoding.ids, encoding.offsets, encoding.type_ids)]
    return encoding.ids, rows


def record(tokenizer, data):
    """The ids, and a hash of all rows and of the text that the ids are decoded to."""
    ids, rows = encode(tokenizer, data, False)
    state = 0xCBF29CE484222325
    for row in rows + encode(tokenizer, data, True)[1]:
        for number in row:
            state = fnv(number.to_bytes(8, "little"), state)
    state = fnv(tokenizer.decode(ids).encode(), state)
    return " ".join(map(str, ids)) + f" #{state:016x}"


def main():
    texts = FOLDER / "texts.txt"
    if not texts.exists():
        texts.write_text("".join(t.hex() + "\n" for t in mixed(250, 1, 300)), encoding="ascii")
    data = [bytes.fromhex(line) for line in texts.read_text(encoding="ascii").split("\n")[:-1]]
    for name, make in {k[5:]: f for k, f in globals().items() if k.startswith("make_")}.items():
        path = FOLDER / f"{name}.json"
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if not path.exists():
            path.write_text(make().to_str() + "\n", encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(path))
        lines = [record(tokenizer, text) + "\n" for text in data]
        path.with_suffix(".txt").write_text("".join(lines), encoding="ascii")
        print(name, tokenizer.get_vocab_size(), path.stat().st_size)


if __name__ == "__main__":
    main()
