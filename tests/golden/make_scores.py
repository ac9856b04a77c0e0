#!/usr/bin/env python3
"""Prints the numbers that tests/score_test.c carries.

BLEU by nltk (Debian package python3-nltk; it counts one n-gram in lines too short for any, so none is) over tokens of the four rules of mteval-v13a, as regular
expressions; chrF restated from Popovic 2015 and 2017 with Counter.
"""
import re
import string
from collections import Counter

from nltk.translate.bleu_score import SmoothingFunction, corpus_bleu

RULES = [(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])", r" \1 "), (r"([^0-9])([\.,])", r"\1 \2 "),
         (r"([\.,])([^0-9])", r" \1 \2"), (r"([0-9])(-)", r"\1 \2 ")]


def tokens(line):
    for old, new in (("<skipped>", ""), ("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")):
        line = line.replace(old, new)
    line = f" {line} "
    for rule, by in RULES:
        line = re.sub(rule, by, line)
    return line.split()


def bleu(hypotheses, references):
    return 100 * corpus_bleu([[tokens(r) for r in rs] for rs in references],
                             [tokens(h) for h in hypotheses],
                             smoothing_function=SmoothingFunction().method3)


def words(line):
    out = []
    for w in line.split():
        if len(w) > 1 and w[-1] in string.punctuation:
            out += [w[:-1], w[-1]]
        elif len(w) > 1 and w[0] in string.punctuation:
            out += [w[0], w[1:]]
        else:
            out.append(w)
    return out


def counts(line, n_words):
    def grams(x, n):
        return Counter(tuple(x[i:i + n]) for i in range(len(x) - n + 1))
    characters = list("".join(line.split()))
    return [grams(characters, n) for n in range(1, 7)] + [grams(words(line), n + 1) for n in range(n_words)]


def f_score(rows):
    kept = [(m, h, r) for m, h, r in rows if h and r]
    if not kept:
        return 0.0
    p = sum(m / h for m, h, r in kept) / len(kept)
    q = sum(m / r for m, h, r in kept) / len(kept)
    return 100 * 5 * p * q / (4 * p + q) if p + q else 0.0


def chrf(hypotheses, references, n_words):
    total = [(0, 0, 0)] * (6 + n_words)
    for h, rs in zip(hypotheses, references):
        best = None
        for r in rs:
            rows = [(sum((a & b).values()), sum(a.values()) if b else 0, sum(b.values()))
                    for a, b in zip(counts(h, n_words), counts(r, n_words))]
            if best is None or f_score(rows) > f_score(best):
                best = rows
        total = [tuple(x + y for x, y in zip(t, b)) for t, b in zip(total, best)]
    return f_score(total)


CORPORA = {
    "english": (["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."],
                [["The dog bit the man.", "The dog had bit the man."],
                 ["It was not unexpected.", "No one was surprised."],
                 ["The man bit him first.", "The man had bitten the dog."]]),
    "spanish": (["En el principio creó Dios los cielos y la tierra.",
                 "Y dijo Dios: Sea la luz; y fué la luz (1,234.5 - 7-8)."],
                [["En el principio crió Dios los cielos y la tierra."],
                 ["Y dijo Dios: Sea la luz: y fue la luz (1,234.5 - 7-8)."]]),
    "no match of four": (["a b c x d e", "f g h i"], [["a b c y d e"], ["f h j k"]]),
}
for name, (h, r) in CORPORA.items():
    print(name, *(f"{x:.10f}" for x in (bleu(h, r), chrf(h, r, 0), chrf(h, r, 2))))
for line in ["Hello, world! It's 3.5, or 1,000.", "a.,b 5- -5 x-y 7-8", "(see &quot;A/B&quot; &amp; c.)",
             "¿Qué? «Así», dijo.", "U.S. $5.00 50%", "..,,1.2.a"]:
    print(" ".join(tokens(line)))
