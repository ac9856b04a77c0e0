#!/usr/bin/env python3
"""Models of torchvision and Transformers, with random weights:

    peer_models.py MODEL BATCH --export FILE.onnx    writes the model, FILE.npz with its inputs, and
                                                     FILE.npy with its output
    peer_models.py MODEL BATCH [--threads N] [--runs N] [--compile] [--train]    times it

MODEL is the name of a classifier of torchvision, or bert-base. Times are of a forward pass in inference
mode; with --train, of a training step: the mean of squares of the output, gradients, clipping, Adam.
Prints JSON as peer_torch.py does. tests/bench/compare runs it.
"""
import argparse
import json

import torch

from peer_common import measurements, rss_bytes, save_case

SEQUENCE = 128


class Bert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        import transformers
        self.bert = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"),
                                           add_pooling_layer=False)

    def forward(self, ids):
        return self.bert(input_ids=ids).last_hidden_state


def make(name, batch):
    """The model, and its input by name."""
    torch.manual_seed(1)
    if name == "bert-base":
        return Bert(), "ids", torch.randint(1, 30000, (batch, SEQUENCE))
    import torchvision
    model = torchvision.models.get_model(name, weights=None)
    x = torch.rand(batch, 3, 224, 224)
    # Means and variances of real batches: with those of a new model, activations grow from layer to layer.
    for p in model.parameters():  # a new classifier may have zeros in its last layer
        if p.ndim > 1 and not p.any():
            torch.nn.init.normal_(p, std=0.02)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for m in norms:
        m.momentum = None
    with torch.no_grad():
        if norms:
            model.train()(torch.rand(8, 3, 224, 224))
    return model, "image", x


def export(model, name, x, path):
    model.eval()
    with torch.inference_mode():
        output = model(x).numpy()
    torch.onnx.export(model, (x,), path, input_names=[name], output_names=["output"], dynamo=True,
                      external_data=False, verbose=False)
    save_case(path, {name: x.numpy()}, output)


def step_of(model, x):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step


def pass_of(model, x):
    def forward():
        with torch.inference_mode():
            model(x)
    return forward


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("--export", metavar="FILE.onnx")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--train", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    base = rss_bytes()
    model, name, x = make(a.model, a.batch)
    if a.export:
        export(model, name, x, a.export)
        return
    model.train(a.train)
    called = torch.compile(model) if a.compile else model
    run = (step_of if a.train else pass_of)(called, x)
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(),
                      **measurements(run, a.runs, base)}))


main()
