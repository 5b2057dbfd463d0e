# mypy: allow-subclassing-any, allow-untyped-calls
"""Optimisers for parameters of which only some rows have a gradient, as `pelton.partial_cross_entropy` gives it with ``sparse``.

They take dense gradients too, for which they are `torch.optim.SGD`, LARS and `torch.optim.AdamW`. Parameters in half precision
are rounded up or down by chance, so that steps smaller than a rounding count on average (Gupta et al., ICML 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ._keyed import mixed, signed
from ._pelton import ConfigurationError
from ._ranks import Ranks

#: A row with less of its velocity than this is at rest.
_REST = 1e-12


class _ByRows(torch.optim.Optimizer):
    """What the three have in common."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        for name, value in defaults.items():
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(x, (int, float)) and not (math.isfinite(x) and x >= 0) for x in numbers):
                raise ConfigurationError(f"`{name}` is {value}; give numbers from 0 on")
        for name in ("momentum", "betas"):
            below = defaults.get(name, 0.0)
            if max(below if isinstance(below, tuple) else (below,)) >= 1:
                raise ConfigurationError(f"`{name}` is {below}; give less than 1")
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters that have a gradient by it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a state as it was saved; `torch.optim.Optimizer` makes all of it the type of its parameters."""
        super().load_state_dict(state_dict)
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        for number, p in zip(saved, (p for group in self.param_groups for p in group["params"]), strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                self.state[p][name] = value.to(p.device, copy=True) if isinstance(value, Tensor) else value

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _rows_of(self, p: Tensor) -> tuple[Tensor | None, Tensor]:
        """The rows with a gradient, none for all, and their gradients in f32 or f64."""
        gradient = p.grad
        assert gradient is not None
        wide = torch.float64 if p.dtype == torch.float64 else torch.float32
        if not gradient.is_sparse:
            return None, gradient.to(wide)
        gradient = gradient.coalesce()
        return gradient.indices()[0], gradient.values().to(wide)

    def _state(self, p: Tensor, **numbers: int) -> dict[str, Any]:
        """What is kept of a parameter: `step`, and zeros with so many numbers a row, or all where that is 0."""
        state: dict[str, Any] = self.state[p]
        if not state:
            wide = torch.float64 if p.dtype == torch.float64 else torch.float32
            state["step"] = 0
            for name, width in numbers.items():
                shape = p.shape if width == 0 else (len(p), *[1] * (p.ndim - 1))
                state[name] = torch.zeros(shape, dtype=wide, device=p.device)
        return state

    def _write(self, p: Tensor, rows: Tensor | None, moved: Tensor, step: int) -> None:
        if p.dtype == torch.bfloat16:
            at = torch.arange(len(p), device=p.device) if rows is None else rows
            columns = torch.arange(moved[0].numel() if len(moved) else 0, device=p.device).reshape(moved.shape[1:])
            key = mixed(torch.tensor(signed((step * 0x9E3779B97F4A7C15 ^ 0x726F756E) & ((1 << 64) - 1)), device=p.device))
            numbers = at.reshape(-1, *[1] * (p.ndim - 1)) * max(1, columns.numel()) + columns
            noise = (mixed(numbers ^ key) & 0xFFFF).int()
            moved = ((moved.contiguous().view(torch.int32) + noise) & -(1 << 16)).view(torch.float32)
        if rows is None:
            p.copy_(moved)
        else:
            p.index_copy_(0, rows, moved.to(p.dtype))


class SGD(_ByRows):
    """g ← g + βw; v ← m·v + g; w ← w − lr·v, as `torch.optim.SGD`, for gradients of some rows too; ``params``, ``lr``, ``momentum`` m
    and ``weight_decay`` β are as there.

    A row without a gradient moves on with its velocity, as if its gradient were 0: late, in all steps that it waited at once,
    when it next has a gradient or with `settle`, which to call before the weights are measured or saved. A
    `pelton.heads.KnnSoftmax` that steps by itself does both.
    """

    def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _factor(self, p: Tensor, group: dict[str, Any], gradient: Tensor) -> Any:
        """What gradients are multiplied by, and what velocities."""
        return 1.0, group["lr"]

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        state = self._state(p, **({"velocity": 0} if momentum else {}))
        rows, gradient = self._rows_of(p)
        if momentum:
            self.wake(p, rows)
        weights = (p if rows is None else p[rows]).to(gradient.dtype)
        of_gradient, along = self._factor(p, group, gradient)
        if group["weight_decay"]:
            gradient = gradient.add(weights, alpha=group["weight_decay"])
        if isinstance(of_gradient, Tensor):
            gradient = of_gradient * gradient
        if rows is None and p.dtype == gradient.dtype:
            if momentum:
                gradient = state["velocity"].mul_(momentum).add_(gradient)
            p.add_(gradient, alpha=-along)
        elif momentum:
            velocity = state["velocity"]
            gradient = gradient.add(velocity if rows is None else velocity[rows], alpha=momentum)
            if rows is None:
                velocity.copy_(gradient)
            else:
                velocity.index_copy_(0, rows, gradient)
        if rows is not None or p.dtype != gradient.dtype:
            self._write(p, rows, weights - along * gradient, state["step"])
        state["step"] += 1
        if momentum and (rows is not None or "waits" in state):
            self._wait(p, state, rows, momentum, along)

    def _wait(self, p: Tensor, state: dict[str, Any], rows: Tensor | None, momentum: float, along: float) -> None:
        """Rows without a gradient have waited for one more step.

        ``waits[s]`` are what a row that waits for step s has not done yet: w −= waits[s, 0]·v, v ← waits[s, 1]·v."""
        step = state["step"]
        if "waits" not in state:
            # None has waited before the first gradient of some rows.
            state["seen"] = torch.full((len(p),), step - 1, dtype=torch.int64, device=p.device)
            state["waits"] = torch.tensor([[0.0, 1.0]] * step, dtype=torch.float64, device=p.device)
        waits = state["waits"]
        if step >= len(waits):
            more = torch.tensor([[0.0, 1.0]], dtype=waits.dtype, device=waits.device).expand(max(64, len(waits)), 2)
            waits = state["waits"] = torch.cat([waits, more])
        # Older ones are at rest.
        tail = waits[max(0, step - 1 - math.ceil(math.log(_REST) / math.log(momentum))) : step]
        tail[:, 1] *= momentum
        tail[:, 0] += along * tail[:, 1]
        if rows is None:
            state["seen"].fill_(step)
        else:
            state["seen"].index_fill_(0, rows, step)

    @torch.no_grad()
    def wake(self, p: Tensor, rows: Tensor | None = None) -> None:
        """Moves these rows of a parameter, or all, as far as their velocity has brought them."""
        state = self.state[p]
        if "waits" not in state:
            return
        seen = state["seen"] if rows is None else state["seen"][rows]
        if seen.device.type == "cpu" and bool((seen == state["step"]).all()):
            return
        moved, kept = state["waits"][seen].to(state["velocity"].dtype).reshape(len(seen), 2, *[1] * (p.ndim - 1)).unbind(1)
        velocity = state["velocity"] if rows is None else state["velocity"][rows]
        weights = (p if rows is None else p[rows]).to(velocity.dtype) - moved * velocity
        self._write(p, rows, weights, -1 - state["step"])
        if rows is None:
            velocity.mul_(kept)
            state["seen"].fill_(state["step"])
        else:
            state["velocity"].index_copy_(0, rows, kept * velocity)
            state["seen"].index_fill_(0, rows, state["step"])

    def settle(self) -> None:
        """Moves all rows as far as their velocity has brought them."""
        for group in self.param_groups:
            for p in group["params"]:
                self.wake(p)


class LARS(SGD):
    """LARS, of ``params``: λ = trust·‖w‖ / (‖g‖ + β‖w‖); v ← m·v + lr·λ·(g + βw); w ← w − v (You et al., 2017, Algorithm 1), for gradients of some
    rows too; rows wait as in `SGD`. With ``group``, a process group or True, ranks have the rows of a parameter, and the norms are
    those of all of it.
    """

    def __init__(
        self, params: Any, lr: float = 3.0, momentum: float = 0.9, weight_decay: float = 0.0, trust: float = 0.001, group: Any = None
    ) -> None:
        super(SGD, self).__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})
        self._ranks = Ranks.of(group)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ranks": self._ranks}

    def _factor(self, p: Tensor, group: dict[str, Any], gradient: Tensor) -> Any:
        # As if no row waited.
        self.wake(p)
        squares = torch.stack([gradient.double().square().sum(), p.double().square().sum()])
        g, w = (squares if self._ranks is None else self._ranks.sum(squares)).sqrt()
        rate = group["trust"] * w / (g + group["weight_decay"] * w)
        return torch.where((g > 0) & (w > 0), rate, 1.0).to(gradient.dtype) * group["lr"], 1.0


class AdamW(_ByRows):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019), for gradients of some rows too; ``params``, ``lr``,
    ``betas``, ``eps`` and ``weight_decay`` are those of `torch.optim.AdamW`.

    A row without a gradient does not move, and its means do not decay, as with `torch.optim.SparseAdam`. The bias of the means is
    corrected by the steps of the row itself, so that one which takes part late begins like the others. With dense gradients it is
    `torch.optim.AdamW`.
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def _move(self, p: Tensor, group: dict[str, Any]) -> None:
        state = self._state(p, mean=0, square=0, taken=1)
        rows, gradient = self._rows_of(p)
        (b1, b2), lr = group["betas"], group["lr"]
        taken, mean, square = (state[name] if rows is None else state[name][rows] for name in ("taken", "mean", "square"))
        taken = taken + 1
        mean = torch.lerp(mean, gradient, 1 - b1)
        square = b2 * square + (1 - b2) * gradient * gradient
        first, second = ((1 - beta ** taken.double()).to(gradient.dtype) for beta in (b1, b2))
        weights = (p if rows is None else p[rows]).to(gradient.dtype)
        moved = weights * (1 - lr * group["weight_decay"]) - lr / first * mean / ((square / second).sqrt() + group["eps"])
        for name, new in (("taken", taken), ("mean", mean), ("square", square)):
            if rows is None:
                state[name].copy_(new)
            else:
                state[name].index_copy_(0, rows, new)
        self._write(p, rows, moved, state["step"])
        state["step"] += 1
