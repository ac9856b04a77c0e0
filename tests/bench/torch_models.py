"""weft's transformer and gpt made of PyTorch's layers, with the pairs of parameters of both."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from weft_run import PAD, Failed


def require(options, **wanted):
    for name, values in wanted.items():
        if name in options and options[name] not in values:
            raise Failed(f"{name}={options[name]} is not repeated here, only {' or '.join(map(str, values))}")


def activation(name):
    return {"relu": F.relu, "gelu": F.gelu, "silu": F.silu,
            "gelu-tanh": lambda x: F.gelu(x, approximate="tanh")}[name]


class Pairs(list):
    """Pairs of parameters: (tensor of the module, name in weft, transposed), transposed if weft has it as
    [in, out]. A tensor may be a part of a parameter."""

    def linear(self, weight, bias, name):
        self.append((weight, f"{name}.weight", True))
        self.append((bias, f"{name}.bias", False))

    def norm(self, module, name):
        self.append((module.weight, f"{name}.gamma", False))
        self.append((module.bias, f"{name}.beta", False))

    def attention(self, module, name):
        parts = zip("qkv", module.in_proj_weight.data.chunk(3), module.in_proj_bias.data.chunk(3))
        for letter, weight, bias in parts:
            self.linear(weight, bias, f"{name}.{letter}")
        self.linear(module.out_proj.weight, module.out_proj.bias, f"{name}.out")

    def block(self, layer, name):
        self.attention(layer.self_attn, f"{name}.attn")
        norms = ["norm_attn", "norm_ffn"]
        if hasattr(layer, "multihead_attn"):
            self.attention(layer.multihead_attn, f"{name}.cross")
            norms.insert(1, "norm_cross")
        for i, norm in enumerate(norms):
            self.norm(getattr(layer, f"norm{i + 1}"), f"{name}.{norm}")
        self.linear(layer.linear1.weight, layer.linear1.bias, f"{name}.ffn.in")
        self.linear(layer.linear2.weight, layer.linear2.bias, f"{name}.ffn.out")

    def stack(self, module, name):
        for i, layer in enumerate(module.layers):
            self.block(layer, f"{name}.{i}")
        if module.norm is not None:
            self.norm(module.norm, f"{name}.norm")


class Model(nn.Module):
    """What the models share: tables, positions, logits. All is [length, rows, width], which spares the layers of
    PyTorch to transpose their input."""

    def __init__(self, options, length, tables, positions):
        super().__init__()
        self.o, self.pairs = options, Pairs()
        vocab, self.width = int(options["vocab"]), int(options["d_model"])
        self.drop = nn.Dropout(options["dropout"])
        self.scale = math.sqrt(self.width) if options.get("scaled_embeddings", 0) else 1.0
        self.tables = [self.parameter(name, vocab, self.width) for name in tables]
        self.places = []
        if options["positions"] == "learned":
            self.places = [self.parameter(name, int(options["max_positions"]), self.width) for name in positions]
        elif options["positions"] == "sinusoidal":
            self.register_buffer("waves", self.sinusoidal_positions(length))
            self.places = [self.waves] * len(positions)
        self.output = None
        if not options["tied"]:
            self.output = nn.Linear(self.width, vocab)
            self.pairs.linear(self.output.weight, self.output.bias, "output")
        self.register_buffer("later", torch.ones(length, length, dtype=torch.bool).triu(1))

    def parameter(self, name, *shape):
        p = nn.Parameter(torch.empty(*shape))
        self.register_parameter(name, p)
        self.pairs.append((p, name, False))
        return p

    def sinusoidal_positions(self, length):
        at = torch.arange(length, dtype=torch.float64)[:, None]
        angle = at / 10000 ** (torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        return torch.stack((angle.sin(), angle.cos()), -1).reshape(length, self.width).float()[:, None]

    def layer(self, kind, hidden_dropout):
        o = self.o
        act = activation(o.get("activation", "relu"))
        layer = kind(self.width, int(o["heads"]), int(o["d_ff"]), o["dropout"], act, 1e-5,
                     norm_first=o["norm"] == "pre")
        if not hidden_dropout:
            layer.dropout.p = 0.0
        if not o.get("inner_dropout", 1):
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        return layer

    def final_norm(self):
        return nn.LayerNorm(self.width, 1e-5) if self.o["norm"] == "pre" else None

    def embed(self, table, positions, ids):
        x = F.embedding(ids, table)
        if self.scale != 1:
            x = x * self.scale
        if positions is not None:
            x = x + positions[:len(ids)].view(len(ids), 1, -1)
        return self.drop(x)

    def logits(self, x):
        return F.linear(x, self.tables[-1]) if self.output is None else self.output(x)

    def mask(self, length):
        return self.later[:length, :length]

    def place(self, i):
        return self.places[i] if self.places else None

    def read(self, tensors):
        """Takes weft's parameters."""
        named = {name for _, name, _ in self.pairs}
        if named != set(tensors):
            raise Failed(f"the model's parameters differ from weft's: {sorted(named ^ set(tensors))[0]}")
        for to, name, transposed in self.pairs:
            to.data.copy_(tensors[name].t() if transposed else tensors[name])

    def written(self):
        return {name: (t.t() if transposed else t).detach() for t, name, transposed in self.pairs}


class Translator(Model):
    def __init__(self, options, length):
        tables = ["embedding"] if options["tied"] else ["source_embedding", "target_embedding"]
        super().__init__(options, length, tables, ["source_positions", "target_positions"])
        hidden = bool(options["inner_dropout"])
        self.encoder = nn.TransformerEncoder(self.layer(nn.TransformerEncoderLayer, hidden),
                                             int(options["encoder_layers"]), self.final_norm(),
                                             enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(self.layer(nn.TransformerDecoderLayer, hidden),
                                             int(options["decoder_layers"]), self.final_norm())
        self.pairs.stack(self.encoder, "enc")
        self.pairs.stack(self.decoder, "dec")

    def forward(self, source, target):
        padding = (source == PAD).t()
        padding = padding if padding.any() else None
        memory = self.encoder(self.embed(self.tables[0], self.place(0), source), src_key_padding_mask=padding)
        x = self.embed(self.tables[-1], self.place(1), target)
        return self.logits(self.decoder(x, memory, tgt_mask=self.mask(len(target)), memory_key_padding_mask=padding))


class LanguageModel(Model):
    def __init__(self, options, length):
        super().__init__(options, length, ["embedding"], ["positions"])
        self.stack = nn.TransformerEncoder(self.layer(nn.TransformerEncoderLayer, False), int(options["layers"]),
                                           self.final_norm(), enable_nested_tensor=False)
        self.pairs.stack(self.stack, "layer")

    def forward(self, _, ids):
        x = self.embed(self.tables[0], self.place(0), ids)
        return self.logits(self.stack(x, mask=self.mask(len(ids))))


def make_model(recipe, options, length):
    require(options, norm=("pre", "post"), projection=("separate",), score_scale=("head-width",), attention_bias=(1,),
            kv_heads=(0,), rotary_base=(0,), f64=(0,), pad_id=(PAD,))
    return (LanguageModel if recipe["model"] == "gpt" else Translator)(options, length)
