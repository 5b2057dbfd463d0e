"""Writes expected.txt: what PyTorch computes from numbers that the Rust tests make again for themselves.

python3 expected.py > expected.txt        (made with PyTorch 2.x on a CPU, in double precision)
"""

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def numbers(seed, *shape):
    """The same f32 numbers in −1..1 as `numbers` of tests/mod.rs."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    x = (i * 2654435761 + seed * 1013904223) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 2246822519) & 0xFFFFFFFF
    x ^= x >> 13
    x = (x * 3266489917) & 0xFFFFFFFF
    x ^= x >> 16
    return torch.tensor(((x >> 8).astype(np.float64) / 2**23 - 1).reshape(shape))


def leaf(seed, *shape, scale=1.0):
    return (numbers(seed, *shape) * scale).requires_grad_()


def out(name, tensor):
    print(name, *(f"{x:.8g}" for x in tensor.detach().reshape(-1).tolist()))


# Cross-entropy: 5 rows of 7 classes, the third row ignored, smoothing 0.1.
x, b = leaf(1, 5, 7, scale=4.0), leaf(2, 7)
t = torch.tensor([0, 6, -100, 3, 3])
loss = F.cross_entropy(x + b, t, ignore_index=-100, label_smoothing=0.1)
(loss * 3.0).backward()
out("cross_entropy.loss", loss)
out("cross_entropy.dx", x.grad)
out("cross_entropy.db", b.grad)

# Three steps of the optimisers on 11 weights, gradients clipped to norm 1.
for name, make in {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "sgd_heavy": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd_plain": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
}.items():
    w = leaf(3, 11)
    optimizer = make([w])
    for step in range(3):
        w.grad = numbers(4 + step, 11)
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()
    out(name, w)

# One layer of LSTM: 4 steps, 3 rows, 5 inputs, 7 hidden.
T, B, I, H = 4, 3, 5, 7
x, h0, c0 = leaf(10, T, B, I), leaf(11, 1, B, H), leaf(12, 1, B, H)
lstm = torch.nn.LSTM(I, H)
weights = [lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0]
for i, w in enumerate(weights):
    w.data = numbers(13 + i, *w.shape)
y, (hn, cn) = lstm(x, (h0, c0))
y.backward(numbers(17, T, B, H), retain_graph=True)
cn.backward(numbers(18, 1, B, H))
out("lstm.y", y)
out("lstm.cn", cn)
for name, p in zip(["x", "h0", "c0", "w_ih", "w_hh", "b_ih"], [x, h0, c0] + weights):
    out("lstm.d" + name, p.grad)

# Causal attention: 2 rows of 5 positions, 2 heads of 3.
qkv = leaf(20, 2, 5, 3, 2, 3, scale=2.0)
q, k, v = (p.transpose(1, 2) for p in qkv.unbind(2))
y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
y.backward(numbers(21, 2, 5, 2, 3))
out("attention.y", y)
out("attention.dqkv", qkv.grad)

# Layer norm over 7.
x, g, b = leaf(30, 3, 7, scale=3.0), leaf(31, 7), leaf(32, 7)
y = F.layer_norm(x, (7,), g, b, eps=1e-5)
y.backward(numbers(33, 3, 7))
out("layer_norm.y", y)
out("layer_norm.dx", x.grad)
out("layer_norm.dgamma", g.grad)
out("layer_norm.dbeta", b.grad)

# GELU.
for kind in ["none", "tanh"]:
    x = leaf(40, 9, scale=4.0)
    y = F.gelu(x, approximate=kind)
    y.sum().backward()
    out(f"gelu.{kind}.y", y)
    out(f"gelu.{kind}.dx", x.grad)
