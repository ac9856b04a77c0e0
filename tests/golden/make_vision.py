#!/usr/bin/env python3
"""Writes vision.safetensors next to it: small variants of torchvision's models of images, in f64, with
dropout off. Run it with a Python that has torch and torchvision.

The file has the form of make_models.py's: its metadata say which cases there are and how weft builds
each; "training" lists those that normalise by the statistics of their batch. Tensors are CASE/NAME:
parameters and running statistics by torchvision's names, input, labels, logits as `output`, loss,
grad.NAME of every parameter and of the input, and, of cases in training, after.NAME, the running
statistics after this batch. Blocks of a Vision Transformer have weft's names: see vit_name."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision.models import MobileNetV2, ResNet, VisionTransformer
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.ops.misc import Conv2dNormActivation

from make_golden import rounded, save


class TinyResNet(ResNet):
    """torchvision's blocks and forward pass with other widths, which its constructor has no argument for."""

    def __init__(self, block, blocks, width, channels, classes):
        nn.Module.__init__(self)
        self._norm_layer, self.dilation, self.groups, self.base_width = nn.BatchNorm2d, 1, 1, 64
        self.inplanes = width
        self.conv1 = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU()
        self.maxpool, self.avgpool = nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)
        for i, n in enumerate(blocks):
            layer = self._make_layer(block, width << i, n, stride=2 if i else 1)
            setattr(self, f"layer{i + 1}", layer)
        self.fc = nn.Linear((width << 3) * block.expansion, classes)


def tiny_mobilenet(width, depth, round, last, channels, classes):
    stages = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2],
              [6, 320, 1, 1]]
    stages = [[t, c, -int(-n * depth // 1), s] for t, c, n, s in stages]
    net = MobileNetV2(classes, width, stages, round)
    net.features[0][0] = nn.Conv2d(channels, net.features[0][0].out_channels, 3, 2, 1, bias=False)
    net.features[-1] = Conv2dNormActivation(net.features[-1][0].in_channels, last, kernel_size=1,
                                            activation_layer=nn.ReLU6)
    net.classifier[0], net.classifier[1] = nn.Identity(), nn.Linear(last, classes)
    return net


def randomise(net):
    """Nothing keeps a value that an error would leave unseen, such as a shift of zero."""
    net.double()
    for name, t in [*net.named_parameters(), *net.named_buffers()]:
        if not t.is_floating_point():
            continue
        noise = torch.randn(t.shape, dtype=torch.float64)
        if name.endswith("running_var") or (t.dim() == 1 and name.endswith("weight")):
            value = 1 + 0.2 * noise.clamp(-3, 3)
        elif t.dim() == 1:
            value = 0.2 * noise
        else:
            value = noise / t[0].numel() ** 0.5
        t.data.copy_(rounded(value))


def same_name(name, t):
    return name, t


def case(net, model, options, training, rename=same_name, batch=3, smoothing=0.0):
    size, channels, classes = options["image_size"], options["channels"], options["classes"]
    options = {**options, "batch": batch, "label_smoothing": smoothing}
    randomise(net)
    net.train(training)
    tensors = dict(rename(n, t.detach().clone()) for n, t in net.state_dict().items() if t.is_floating_point())
    image = rounded(torch.randn(batch, channels, size, size, dtype=torch.float64)).requires_grad_(True)
    labels = torch.randint(0, classes, (batch,))
    logits = net(image)
    loss = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    wanted = [*net.named_parameters(), ("input", image)]
    for (name, _), grad in zip(wanted, torch.autograd.grad(loss, [t for _, t in wanted])):
        name, grad = rename(name, grad)
        tensors[f"grad.{name}"] = grad
    tensors.update(input=image, labels=labels, output=logits, loss=loss)
    if training:
        tensors.update({f"after.{n}": t for n, t in net.named_buffers() if t.is_floating_point()})
    return " ".join([model, *(f"{k}={v}" for k, v in options.items())]), tensors, training


def resnet_case(block, blocks, depth, training, **more):
    options = dict(depth=depth, width=2, image_size=48, channels=1, classes=5)
    return case(TinyResNet(block, blocks, 2, 1, 5), "resnet", options, training, **more)


def mobilenet_case(training, **more):
    options = dict(width=0.06, depth=0.5, round=2, last=10, channels=1, classes=5)
    net = tiny_mobilenet(**options)
    return case(net, "mobilenet", {**options, "image_size": 48, "dropout": 0}, training, **more)


def vit_case(**more):
    options = dict(image_size=12, patch=4, layers=2, heads=2, d_model=8, d_ff=12)
    net = VisionTransformer(12, 4, 2, 2, 8, 12, num_classes=5)

    def vit_name(name, t):
        """torchvision's parameter of a block as weft has it: matrices transposed, and the columns of
        q, k and v grouped by head (weft/layers.h, WEFT_PROJECT_FUSED)."""
        if name.startswith("encoder.ln."):
            return "encoder.layers.norm." + {"weight": "gamma", "bias": "beta"}[name[11:]], t
        if not name.startswith("encoder.layers."):
            return name, t
        _, _, layer, rest = name.split(".", 3)
        layer = "encoder.layers." + layer.removeprefix("encoder_layer_")
        if rest.startswith("self_attention.in_proj_"):
            by_head = t.view(3, options["heads"], -1, *t.shape[1:]).transpose(0, 1)
            t = by_head.reshape(t.shape)
        kind = rest.replace("in_proj_", "in_proj.").rsplit(".", 1)[1]
        part = {"ln_1": "norm_attn", "ln_2": "norm_ffn", "self_attention": "attn", "mlp": "ffn"}[rest.split(".")[0]]
        if part.startswith("norm"):
            return f"{layer}.{part}." + {"weight": "gamma", "bias": "beta"}[kind], t
        inner = {"in_proj": "qkv", "out_proj": "out", "0": "in", "3": "out"}
        inner = inner[rest.replace("in_proj_", "in_proj.").split(".")[1]]
        return f"{layer}.{part}.{inner}.{kind}", t.T if t.dim() == 2 else t

    return case(net, "vit", {**options, "channels": 3, "classes": 5}, False, rename=vit_name, **more)


def cases():
    yield "resnet18", resnet_case(BasicBlock, [2, 2, 2, 2], 18, False, smoothing=0.1)
    yield "resnet14_training", resnet_case(Bottleneck, [1, 1, 1, 1], 14, True)
    yield "mobilenet_training", mobilenet_case(True)
    yield "vit", vit_case(smoothing=0.1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(6)
    tensors, metadata, trained = {}, {}, []
    for name, (model, case_tensors, training) in cases():
        metadata[name] = model
        tensors.update({f"{name}/{n}": t for n, t in case_tensors.items()})
        trained += [name] * training
    metadata["cases"], metadata["training"] = " ".join(metadata), " ".join(trained)
    save("vision.safetensors", tensors, metadata)
