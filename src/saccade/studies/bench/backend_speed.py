"""`saccade bench backends`: which backend runs a mechanism fastest here, forward and backward, and how far each is from `eager`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Mechanism, attend, backends, masks, positions
from ...core.attention import build_call
from .contenders import Case, Make, Plan, device_and_type

HEADS, WIDTH = 8, 64
SIZES = {"full": [(32, 64), (16, 256), (8, 1024), (4, 4096)], "tiny": [(32, 32), (16, 128)]}


def mechanisms(batch: int, length: int) -> dict[str, tuple[Mechanism, masks.Mask]]:
    """Name → mechanism and mask."""
    lengths = torch.linspace(length // 2, length, batch).long()
    documents = (
        torch.arange(length)
        .div(max(length // 4, 1), rounding_mode="floor")
        .expand(batch, -1)
        .contiguous()
    )
    return {
        "full": (Mechanism(), masks.full()),
        "causal": (Mechanism(), masks.causal()),
        "padding": (Mechanism(), masks.padding(lengths)),
        "causal+documents": (Mechanism(), masks.causal() & masks.documents(documents)),
        "window": (Mechanism(), masks.causal() & masks.window(128)),
        "alibi+causal": (Mechanism(position=positions.Alibi(HEADS)), masks.causal()),
    }


def case_of(name: str, mechanism: Mechanism, mask: masks.Mask, batch: int, length: int) -> Case:
    """The backend that is chosen against all others that can; the error of each is against eager's output and gradients."""
    device, dtype = device_and_type()
    mechanism = mechanism.to(device)
    torch.manual_seed(0)
    size = (batch, HEADS, length, WIDTH)
    q, k, v = (torch.randn(size, device=device, dtype=dtype, requires_grad=True) for _ in range(3))

    def run(backend: str) -> tuple[Tensor, ...]:
        output = attend(q, k, v, mechanism, mask, backend=backend)
        return (output, *torch.autograd.grad(output.float().square().sum(), (q, k, v)))

    def make(backend: str) -> Make:
        return lambda: lambda: run(backend)

    call = build_call(q, k, v, mechanism, mask, None, 0.0)
    able = [
        one
        for one, backend in backends.all_named()
        if backend.refuses(call) is None and backend.rank(call) < 300
    ]
    chosen = backends.table.name_of(backends.choose(call))
    wanted, errors = run("eager"), []
    for one in (one for one in able if one != "eager"):
        apart = max(
            float((a - b).detach().norm() / a.detach().norm().clamp_min(1e-9))
            for a, b in zip(wanted, run(one), strict=True)
        )
        errors.append(f"{one} {apart:.1e}")
    about = f"{chosen}{'; errors: ' + ', '.join(errors) if errors else ''}"
    others = {one: make(one) for one in able if one != chosen}
    return Case(f"B{batch} T{length} {name}", {chosen: make(chosen)}, others, about=about)


def plan(scale: str, device: torch.device) -> Plan:
    cases = [
        case_of(name, *parts, *size)
        for size in SIZES[scale]
        for name, parts in mechanisms(*size).items()
    ]
    notes = f"{HEADS} heads of {WIDTH}, {device_and_type()[1]}, forward and backward; ours is the backend that is chosen"
    return Plan(cases, {}, 0.6 if scale == "full" else 0.15, notes, 1.0 if scale == "full" else 0.1)
