#!/usr/bin/env python3
"""Writes gradients/NAME.onnx and gradients/NAME.safetensors: architectures of torchvision and transformers,
made tiny by their configurations, with random weights, and what PyTorch computes with them. Run it with a
Python that has torch 2.9 or later, torchvision, transformers 5, onnx and onnxscript:

    python3 tests/golden/make_gradients.py [NAME...]

The ONNX files are what torch.onnx.export (dynamo=True) writes for models in evaluation mode. The export is
not optimised (optimize=False), because the optimiser folds every BatchNormalization into the convolution
before it, and lookups of constant positions: the file would lack weights that PyTorch differentiates. So each
parameter is an initializer with the parameter's name and contents, which `check` verifies. Of tied parameters
the file has one name, and its gradient is the sum over all uses. Two changes are made to the files: source
locations and types of intermediate values, most of their bytes, are removed; and SplitToSequence with
SequenceAt, of ShuffleNetV2 and GPT-2, become Split, as in optimised exports.

The tensors are input.NAME, output (the first one), loss = mean(output^2), and grad.NAME for every parameter,
computed by PyTorch's autograd in f64 from the f32 weights of the file."""
import copy
import os
import sys

import onnx
import torch
import transformers as hf
from onnxscript.optimizer import fold_constants, remove_unused_nodes
from torchvision.models import DenseNet, ShuffleNetV2, SwinTransformer, VisionTransformer
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.models.resnet import BasicBlock

from make_golden import HERE, save
from make_vision import TinyResNet

FOLDER = "gradients"
CLASSES = 5
hf.logging.set_verbosity_error()


class FirstOutput(torch.nn.Module):
    """A model of transformers as a function of tensors, which returns its first output only."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), use_cache=False, return_dict=False)[0]


# ---- Architectures: functions that return a model and its inputs by name ----

def images(model, size=16):
    return model, {"pixels": torch.randn(2, 3, size, size)}


def text(cls, config, *more, rows=2, length=6):
    """Token ids, and for the names in `more`: a mask with padding, segments, or the decoder's ids."""
    ids = lambda n: torch.randint(3, config.vocab_size, (rows, n))
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[1, -2:] = 0
    made = {"attention_mask": mask, "token_type_ids": torch.randint(0, 2, (rows, length)),
            "decoder_input_ids": ids(5)}
    inputs = {"input_ids": ids(length), **{name: made[name] for name in more}}
    config.use_cache = False
    return FirstOutput(cls(config), list(inputs)), inputs


def mobilenet_v3():
    setting = [InvertedResidualConfig(8, 3, 16, 8, True, "RE", 2, 1, 1.0),
               InvertedResidualConfig(8, 5, 16, 8, False, "HS", 1, 1, 1.0),
               InvertedResidualConfig(8, 5, 24, 16, True, "HS", 2, 2, 1.0)]
    return images(MobileNetV3(setting, 32, num_classes=CLASSES))


def efficientnet():
    setting = [FusedMBConvConfig(2, 3, 1, 8, 8, 1), MBConvConfig(2, 3, 2, 8, 12, 2),
               MBConvConfig(3, 5, 2, 12, 16, 1)]
    return images(EfficientNet(setting, 0.2, num_classes=CLASSES, last_channel=32))


def convnext():
    setting = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 2)]
    return images(ConvNeXt(setting, stochastic_depth_prob=0.1, layer_scale=0.5, num_classes=CLASSES), 24)


def swin():
    return images(SwinTransformer([2, 2], 8, [2, 1], [2, 4], [4, 4], num_classes=CLASSES))


SMALL = dict(vocab_size=47, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)

ARCHITECTURES = {
    "resnet": lambda: images(TinyResNet(BasicBlock, [1, 1, 1, 1], 2, 3, CLASSES), 32),
    "mobilenet_v3": mobilenet_v3,
    "shufflenet_v2": lambda: images(ShuffleNetV2([2, 2, 1], [8, 16, 24, 32, 32], CLASSES), 32),
    "densenet": lambda: images(DenseNet(4, (2, 2), 8, bn_size=2, drop_rate=0.1, num_classes=CLASSES), 32),
    "efficientnet": efficientnet,
    "convnext": convnext,
    "swin": swin,
    "vit": lambda: images(VisionTransformer(16, 4, 2, 2, 12, 20, dropout=0.1, num_classes=CLASSES)),
    "bert": lambda: text(hf.BertForMaskedLM, hf.BertConfig(max_position_embeddings=8, **SMALL),
                         "attention_mask", "token_type_ids"),
    "gpt2": lambda: text(hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=47, n_embd=16, n_layer=2, n_head=2, n_positions=8, n_inner=24, bos_token_id=0,
        eos_token_id=0)),
    "llama": lambda: text(hf.LlamaForCausalLM, hf.LlamaConfig(num_key_value_heads=1, **SMALL)),
    "t5": lambda: text(hf.T5ForConditionalGeneration, hf.T5Config(
        vocab_size=47, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2,
        relative_attention_num_buckets=8, feed_forward_proj="gated-gelu",
        attn_implementation="eager"),
        "attention_mask", "decoder_input_ids"),
}


@torch.no_grad()
def randomise(model):
    """Weights under which every parameter has an effect: factors around 1, shifts other than 0."""
    for name, t in [*model.named_parameters(), *model.named_buffers()]:
        if not t.is_floating_point() or name.endswith("inv_freq"):
            continue
        noise = torch.randn(t.shape)
        if name.endswith("running_var") or (t.dim() == 1 and name.endswith("weight")):
            t.copy_(1 + 0.2 * noise.clamp(-3, 3))
        elif t.dim() <= 1 or name.endswith("layer_scale"):
            t.copy_(0.2 * noise)
        elif "mbedding" in name or ".wte" in name or ".wpe" in name or ".shared" in name:
            t.copy_(0.5 * noise)
        else:
            t.copy_(noise / (t[0].numel() if t.dim() != 2 else t.shape[-1]) ** 0.5)


def strip(message):
    """Removes what no reader needs to compute: where in the source each node comes from, and types."""
    for owner in [message.graph, *message.functions]:
        del owner.value_info[:], owner.metadata_props[:]
        owner.doc_string = ""
        for part in [*owner.node, *getattr(owner, "initializer", [])]:
            del part.metadata_props[:]
            part.doc_string = ""
    for value in [*message.graph.input, *message.graph.output]:
        del value.metadata_props[:]
    del message.metadata_props[:]


def replace_sequences(model):
    """Makes Split of SplitToSequence and SequenceAt. No other constants are folded: limits of 0 bytes."""
    if any(node.op_type == "SplitToSequence" for node in model.graph):
        fold_constants(model, input_size_limit=0, output_size_limit=0)
        remove_unused_nodes(model)


def check(name, model, message):
    """The names of the parameters in the file; fails if it lacks one or has other weights."""
    floating = {t.name: t for t in message.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    aliases = {}
    for key, p in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(p), []).append(key)
    names = []
    for keys in aliases.values():
        found = [key for key in keys if key in floating]
        assert len(found) == 1, f"{name}: the file has {found} of {keys}"
        names += found
    for key in names:
        value = torch.from_numpy(onnx.numpy_helper.to_array(floating[key]).copy())
        assert torch.equal(value, model.get_parameter(key).data), f"{name}: {key} has changed"
    others = set(floating) - set(names) - {key for key, _ in model.named_buffers()}
    assert not others, f"{name}: neither parameters nor buffers: {sorted(others)}"
    return names


def reference(model, inputs, names):
    model = copy.deepcopy(model).double()
    inputs = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    output = model(*inputs.values())
    loss = output.square().mean()
    grads = torch.autograd.grad(loss, [model.get_parameter(n) for n in names])
    return {**{f"input.{n}": t for n, t in inputs.items()}, "output": output.detach(), "loss": loss.detach(),
            **{f"grad.{n}": g for n, g in zip(names, grads)}}


def make(name, seed):
    torch.manual_seed(seed)
    model, inputs = ARCHITECTURES[name]()
    randomise(model)
    model.eval()
    program = torch.onnx.export(model, tuple(inputs.values()), dynamo=True, optimize=False, external_data=False,
                                input_names=list(inputs), output_names=["output"], verbose=False)
    replace_sequences(program.model)
    message = program.model_proto
    strip(message)
    names = check(name, model, message)
    onnx.checker.check_model(message)
    path = os.path.join(HERE, FOLDER, name)
    onnx.save(message, path + ".onnx")
    tensors = reference(model, inputs, names)
    save(f"{FOLDER}/{name}.safetensors", tensors)
    norms = [float(t.norm()) for n, t in tensors.items() if n.startswith("grad.")]
    print(f"{name}: {sum(p.numel() for p in model.parameters())} numbers in {len(names)} parameters, "
          f"{len(message.graph.node)} nodes, {os.path.getsize(path + '.onnx')} + "
          f"{os.path.getsize(path + '.safetensors')} bytes, loss {float(tensors['loss']):.3g}, gradients "
          f"{min(norms):.3g} to {max(norms):.3g}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.makedirs(os.path.join(HERE, FOLDER), exist_ok=True)
    for seed, name in enumerate(ARCHITECTURES):
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, seed)
