"""Writes tests/data/languages: a BERT classifier of transformers as an ONNX file, and data to fine-tune it on.

The classifier distinguishes English from Spanish by 8 to 24 bytes of a verse, and is trained here, in PyTorch, on the verses
as they are. The new data are other fragments in capital letters without accents, which it has never seen. With
--train the script also fine-tunes the classifier in PyTorch, with the settings of docs/onnx.md, and prints its
accuracies.

Usage: make_languages.py FOLDER [--train]   (PyTorch 2.15, transformers 5.23, onnx 1.23, onnxscript 0.7)
"""
import copy
import os
import sys
import unicodedata

import numpy as np
import onnx
import torch
from transformers import BertConfig, BertForSequenceClassification

from make_gradients import strip

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "../../tools/data/bible-en-es")
# Ids are the bytes of Latin-1; 0 is padding.
LENGTH, TRAINING = 24, 1500
ROWS, VALID_ROWS, BATCH, EPOCHS, RATE = 2000, 1000, 32, 10, 1e-3


def capitals(text):
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)).upper()


def verses(part, change=lambda text: text):
    """English and Spanish ones, in bytes."""
    files = [open(f"{CORPUS}/{part}.{language}", encoding="utf-8") for language in ("en", "es")]
    return [[change(line.strip()).encode("latin-1", "replace") for line in file] for file in files]


def fragments(texts, rows, rng):
    """Ids of random fragments, and their language (0: English), as many of each."""
    ids = np.zeros((rows, LENGTH), np.uint8)
    labels = rng.permutation(np.arange(rows) % 2).astype(np.uint8)
    for row, label in enumerate(labels):
        verse = texts[label][rng.integers(len(texts[label]))]
        length = min(int(rng.integers(8, LENGTH + 1)), len(verse))
        start = rng.integers(len(verse) - length + 1)
        ids[row, :length] = np.frombuffer(verse[start:start + length], np.uint8)
    return ids, labels


def inputs(ids):
    ids = torch.tensor(ids, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def learn(model, batches, steps, decay):
    """Steps of AdamW with a cosine schedule, on pairs of ids and labels."""
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _, (ids, labels) in zip(range(steps), batches):
        logits = model(**inputs(ids)).logits
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels, dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def endless(texts, rng):
    while True:
        yield fragments(texts, 64, rng)


def epochs(ids, labels):
    while True:
        for rows in torch.randperm(len(ids)).split(BATCH):
            yield ids[rows.numpy()], labels[rows.numpy()]


@torch.no_grad()
def accuracy(model, ids, labels):
    return (model(**inputs(ids)).logits.argmax(1).numpy() == labels).mean()


def export(model, example, path):
    """Without the optimiser, which folds weights, so that each parameter keeps its name."""
    batch = {name: {0: torch.export.Dim.DYNAMIC} for name in example}
    program = torch.onnx.export(model, (), path, kwargs=example, output_names=["logits"], dynamo=True, optimize=False,
                                external_data=False, verbose=False, dynamic_shapes={**batch, "return_dict": None})
    message = program.model_proto
    strip(message)
    onnx.checker.check_model(message)
    onnx.save(message, path)


def main():
    folder = sys.argv[1]
    os.makedirs(f"{folder}/reference", exist_ok=True)
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    train, valid = (fragments(verses(part, capitals), rows, rng)
                    for part, rows in (("train", ROWS), ("valid", VALID_ROWS)))
    for name, (ids, labels) in (("train", train), ("valid", valid)):
        np.savez_compressed(f"{folder}/{name}.npz", input_ids=ids, attention_mask=ids != 0, language=labels)

    model = BertForSequenceClassification(BertConfig(
        vocab_size=256, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2,
        attn_implementation="eager"))
    learn(model, endless(verses("train"), rng), TRAINING, 0.01)
    model.eval()
    print(f"PyTorch: accuracy {accuracy(model, *fragments(verses('valid'), VALID_ROWS, rng)):.4f} of fragments as they "
          f"are, {accuracy(model, *valid):.4f} in capitals")

    example = inputs(fragments(verses("test"), 3, rng)[0])
    export(model, {**example, "return_dict": False}, f"{folder}/languages.onnx")
    np.savez_compressed(f"{folder}/example.npz", **{name: t.numpy() for name, t in example.items()})
    np.save(f"{folder}/reference/logits.npy", model(**example).logits.detach().numpy())
    if "--train" not in sys.argv:
        return
    for seed in range(3):
        tuned = copy.deepcopy(model)
        torch.manual_seed(seed)
        learn(tuned, epochs(*train), EPOCHS * ((ROWS + BATCH - 1) // BATCH), 0.01)
        print(f"PyTorch, seed {seed}: fine-tuned accuracy {accuracy(tuned, *valid):.4f} in capitals")


main()
