"""Writes tests/data/digits: scikit-learn's images of handwritten digits, and a small convolutional
network of PyTorch, untrained, as an ONNX file. With --train it also trains the network in PyTorch
with the settings of docs/onnx.md and prints its accuracies.

Usage: make_digits.py FOLDER [--train]   (PyTorch 2.15, scikit-learn 1.9)
"""
import os
import sys

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

ROWS, BATCH, EPOCHS, RATE = 1437, 32, 20, 3e-3


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.classifier = nn.Linear(32, 10)

    def forward(self, image):
        return self.classifier(self.encoder(image).mean((2, 3)))


def export(model, path):
    """In training mode, so that batch normalisations stay nodes, each with weights of its own."""
    model.train()
    torch.onnx.export(model, (torch.zeros(2, 1, 8, 8),), path, input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "batch"}}, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


def train(model, x, y, test_x, test_y):
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.01)
    steps = EPOCHS * ((len(x) + BATCH - 1) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        model.train()
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return accuracy(model, test_x, test_y)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, None]
    labels = digits.target.astype(np.uint8)
    order = np.random.default_rng(0).permutation(len(images))
    for name, rows in (("", order[:ROWS]), ("valid_", order[ROWS:])):
        np.save(f"{folder}/{name}x.npy", images[rows])
        np.save(f"{folder}/{name}y.npy", labels[rows])
    torch.manual_seed(0)
    model = Network()
    export(model, f"{folder}/digits.onnx")
    if "--train" not in sys.argv:
        return
    x, test_x = (torch.tensor(images[rows], dtype=torch.float32) for rows in (order[:ROWS], order[ROWS:]))
    y, test_y = (torch.tensor(labels[rows], dtype=torch.int64) for rows in (order[:ROWS], order[ROWS:]))
    for seed in range(3):
        torch.manual_seed(0)
        model = Network()
        torch.manual_seed(seed)
        print(f"PyTorch, seed {seed}: accuracy {train(model, x, y, test_x, test_y):.4f} of {len(test_y)} images")


main()
