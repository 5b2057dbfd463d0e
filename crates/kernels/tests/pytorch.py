"""Writes pytorch.txt: what PyTorch computes for the cases of pytorch.rs, in f64, channels last.

Usage: pytorch.py > pytorch.txt
"""
import torch
import torch.nn.functional as F


def numbers(*shape, seed):
    n = torch.Size(shape).numel()
    values = [((i * 7919 + seed * 104729) % 1021) / 1024 * 2 - 1 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def image(*shape, seed):
    """From [batch, height, width, channels]."""
    return numbers(*shape, seed=seed).permute(0, 3, 1, 2).requires_grad_()


def show(name, tensor):
    if tensor.dim() == 4:
        tensor = tensor.permute(0, 2, 3, 1)
    print(name, " ".join(f"{x:.9g}" for x in tensor.detach().flatten().tolist()))


def gradient(y, seed):
    b, c, h, w = y.shape
    y.backward(numbers(b, h, w, c, seed=seed).permute(0, 3, 1, 2))


for name, kernel, stride, padding in [("conv", (3, 3), (2, 2), (1, 1)), ("wide", (2, 4), (1, 3), (0, 2))]:
    x, w = image(2, 6, 7, 3, seed=1), image(5, *kernel, 3, seed=2)
    bias = numbers(5, seed=3).requires_grad_()
    y = F.conv2d(x, w, bias, stride, padding)
    gradient(y, 4)
    for part, tensor in [("y", y), ("dx", x.grad), ("dw", w.grad), ("db", bias.grad)]:
        show(f"{name}.{part}", tensor)

x, residual = image(2, 3, 3, 5, seed=5), image(2, 3, 3, 5, seed=6)
gamma, beta = numbers(5, seed=7).requires_grad_(), numbers(5, seed=8).requires_grad_()
mean, variance = numbers(5, seed=9), numbers(5, seed=10) + 2
before = mean.clone(), variance.clone()
y = F.relu(F.batch_norm(x, mean, variance, gamma, beta, True, 0.1, 1e-5) + residual)
gradient(y, 11)
for part, tensor in [
    ("y", y), ("dx", x.grad), ("dgamma", gamma.grad), ("dbeta", beta.grad), ("dresidual", residual.grad),
    ("mean", mean), ("variance", variance), ("evaluated", F.batch_norm(x, *before, gamma, beta, False, 0.1, 1e-5)),
]:
    show(f"norm.{part}", tensor)

for name, pool in [("max", F.max_pool2d), ("mean", F.avg_pool2d)]:
    x = image(2, 7, 6, 3, seed=12)
    y = pool(x, 3, 2, 1)
    gradient(y, 13)
    show(f"{name}.y", y)
    show(f"{name}.dx", x.grad)
