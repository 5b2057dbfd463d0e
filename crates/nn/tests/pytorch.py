"""Writes pytorch.txt: what PyTorch's modules compute in f64 for the nets of pytorch.rs: three steps from the same weights.

Usage: pytorch.py > pytorch.txt

A line `NET.loss` has the mean loss of each step. A line `NET.PARAMETER` has the 2-norm of the parameter's change over the
steps, and the product of the change with random numbers.
"""
import numpy as np
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def numbers(seed, n):
    """Numbers in −1..1 that look random; pytorch.rs makes the same."""
    x = np.arange(n, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed * 1013904223 % 2**32)
    x = (x ^ x >> np.uint32(15)) * np.uint32(2246822519)
    x = (x ^ x >> np.uint32(13)) * np.uint32(3266489917)
    return ((x ^ x >> np.uint32(16)) >> np.uint32(8)) / 8388608.0 - 1


def seed_of(name):
    seed = 0
    for byte in name.encode():
        seed = (seed * 31 + byte) % 65521
    return seed


def begin(name, tensor):
    """The numbers a parameter begins with."""
    x = torch.from_numpy(numbers(seed_of(name), tensor.numel())).reshape(tensor.shape)
    if tensor.dim() > 1:
        # In f32, as pytorch.rs has it.
        return x * float(np.sqrt(np.float32(3) / np.float32(tensor[0].numel())))
    around = name.endswith("var") or "bias" not in name and "mean" not in name
    return x / 8 + (1 if around else 0)


class Block(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet20(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        into = width
        for stage in range(3):
            out = width << stage
            blocks = [Block(into if at == 0 else out, out, 2 if stage > 0 and at == 0 else 1) for at in range(3)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            into = out
        self.fc = nn.Linear(into, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class IBlock(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(into)
        self.conv1 = nn.Conv2d(into, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, stride, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn3(self.conv2(self.bn2(self.conv1(self.bn1(x))).relu()))
        return y + (x if self.downsample is None else self.downsample(x))


class IResNet18(nn.Module):
    def __init__(self, width, features, positions):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        into = width
        for stage in range(4):
            out = width << stage
            blocks = [IBlock(into, out, 2), IBlock(out, out, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            into = out
        self.bn2 = nn.BatchNorm2d(into)
        self.fc = nn.Linear(into * positions, features)
        self.features = nn.BatchNorm1d(features)
        self.features.weight.requires_grad = False

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return self.features(self.fc(x.flatten(1)))


class Vgg16(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        layers, into = [], 3
        for convs, out in [(2, 1), (2, 2), (3, 4), (3, 8), (3, 8)]:
            for _ in range(convs):
                layers += [nn.Conv2d(into, out * width, 3, 1, 1), nn.BatchNorm2d(out * width), nn.ReLU()]
                into = out * width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(into, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Plain(nn.Module):
    """The net of the same name in pytorch.rs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 5, 5, 2, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.second = nn.Conv2d(5, 7, 1, 2)
        self.third = nn.Linear(7 * 2 * 2, 6)
        self.fourth = nn.Linear(6, 4)

    def forward(self, x):
        x = self.pool(self.first(x).relu())
        x = self.second(x).relu().flatten(1)
        return self.fourth(nn.functional.gelu(self.third(x)))


class Mlp(nn.Module):
    def __init__(self, into, wide, classes):
        super().__init__()
        self.fc1, self.ln1 = nn.Linear(into, wide), nn.LayerNorm(wide)
        self.fc2, self.ln2 = nn.Linear(wide, wide), nn.LayerNorm(wide)
        self.fc3 = nn.Linear(wide, classes)

    def forward(self, x):
        return self.fc3(self.ln2(self.fc2(self.ln1(self.fc1(x)).relu())).relu())


class Lstm(nn.Module):
    def __init__(self, words, width, tied):
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, 2)
        self.decoder = nn.Linear(width, words)
        if tied:
            self.decoder.weight = self.encoder.weight
        self.state = None

    def forward(self, ids, segments):
        y, state = self.rnn(self.encoder(ids.T), self.state)
        self.state = tuple(part.detach() for part in state)
        return self.decoder(y).transpose(0, 1).flatten(0, 1)


class Transformer(nn.Module):
    def __init__(self, words, width, heads, positions):
        super().__init__()
        self.heads = heads
        self.encoder = nn.Embedding(words, width)
        self.encoder_positions = nn.Embedding(positions, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width))
        self.decoder = nn.Linear(width, words)

    def forward(self, ids, segments):
        batch, steps = ids.shape
        before = torch.arange(steps)[:, None] >= torch.arange(steps)
        same = segments[:, :, None] == segments[:, None, :]
        seen = (same & before).repeat_interleave(self.heads, 0)
        # Positions count from the beginning of each segment.
        positions = (same & before).sum(2) - 1
        x = self.encoder(ids) + self.encoder_positions(positions)
        return self.decoder(self.transformer_encoder(x, mask=~seen)).flatten(0, 1)


def train(name, net, optimizer, step):
    """Three steps; `step` gives logits and targets; a target of −1 counts for nothing."""
    parameters = dict(net.named_parameters())
    with torch.no_grad():
        for key, tensor in [*parameters.items(), *net.named_buffers()]:
            if not key.endswith("tracked"):
                tensor.copy_(begin(key, tensor))
    decayed = [p for p in parameters.values() if p.dim() > 1]
    others = [p for p in parameters.values() if p.dim() == 1 and p.requires_grad]
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = optimizer(groups)
    losses = []
    for at in range(3):
        optimizer.zero_grad()
        logits, targets = step(net, at)
        loss = nn.functional.cross_entropy(logits, targets, ignore_index=-1)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"{name}.loss", *(f"{loss:.9g}" for loss in losses))
    for key, after in net.state_dict().items():
        if key.endswith("tracked") or key == "decoder.weight" and net.decoder.weight is net.encoder.weight:
            continue
        change = (after - before[key]).flatten()
        along = change @ torch.from_numpy(numbers(seed_of(key) + 1, len(change)))
        print(f"{name}.{key} {change.norm().item():.6g} {along.item():.6g}")


def sgd(groups, rate=0.1):
    return torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=True)


def adamw(groups):
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-4)


def images(*shape, first=0):
    """Batches of images [batch, height, width, channels], or of vectors; `first` picks them."""

    def step(net, at):
        x = torch.from_numpy(numbers(first + at, int(np.prod(shape)))).reshape(shape)
        targets = torch.tensor([(7 * i + at) % 4 for i in range(shape[0])])
        return net(x.permute(0, 3, 1, 2) if len(shape) == 4 else x), targets

    return step


def words(net, at, batch=3, steps=7):
    ids = torch.tensor([[(at + 5 * b + t * t) % 11 for t in range(steps)] for b in range(batch)])
    targets = torch.tensor([[(at + 3 * b + t) % 11 if (b + t) % 5 else -1 for t in range(steps)] for b in range(batch)])
    segments = torch.tensor([[int(t > 2 + b) for t in range(steps)] for b in range(batch)])
    return net(ids, segments), targets.flatten()


train("resnet20", ResNet20(4, 4), sgd, images(5, 9, 11, 3))
train("iresnet18", IResNet18(4, 4, 4), sgd, images(6, 17, 19, 3))
# 100 000 ReLUs and windows: in these batches none is so close to a tie that rounding decides it, in others one or two are.
train("vgg16", Vgg16(4, 4), lambda groups: sgd(groups, 0.01), images(6, 35, 33, 3, first=30))
train("plain", Plain(), adamw, images(5, 13, 15, 3))
train("mlp", Mlp(7, 8, 4), adamw, images(5, 7))
train("lstm", Lstm(11, 6, False), sgd, words)
train("lstm-tied", Lstm(11, 6, True), sgd, words)
train("transformer", Transformer(11, 8, 2, 7), adamw, words)
