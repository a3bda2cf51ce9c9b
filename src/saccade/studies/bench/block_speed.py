"""`saccade bench length`: forward and backward of one block over ever longer texts, for attention and its cheaper relatives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...experiments.attention_forms import FORMS
from ...models.builder import Builder
from ...models.protocols import Encoder
from ..tables.efficient import Efficient
from .contenders import Case, Make, Plan, device_and_type

LENGTHS = {"full": (1024, 4096, 16_384), "tiny": (128, 512)}
SIZES = {
    "full": {"dim": 512, "hidden": 1024, "depth": 1, "heads": 8},
    "tiny": {"dim": 64, "hidden": 128, "depth": 1, "heads": 2},
}
NAMES = [name for name, values in FORMS.items() if values["family"].endswith("encoder")]


def step_of(module: nn.Module, *inputs: torch.Tensor) -> Callable[[], Any]:
    device, dtype = device_and_type()

    def call() -> None:
        module.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype, enabled=device.type == "cuda"):
            out = module(*inputs)
        out.float().square().mean().backward()

    return call


def ours(form: str, scale: str, length: int) -> Make:
    def build() -> Callable[[], Any]:
        device, _ = device_and_type()
        settings = Efficient("small" if scale == "full" else "tiny", Path()).model(
            form, length, **SIZES[scale]
        )
        torch.manual_seed(0)
        model = Builder(settings).make(Encoder, 256).to(device).train()
        tokens = torch.randint(4, 256, (1, length), device=device)
        return step_of(model, tokens, torch.full((1,), length, device=device))

    return build


def theirs(scale: str, length: int) -> Make:
    def build() -> Callable[[], Any]:
        device, _ = device_and_type()
        size = SIZES[scale]
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(
            size["dim"], size["heads"], size["hidden"], 0.0, batch_first=True, norm_first=True
        )
        model = nn.Sequential(nn.Embedding(256, size["dim"]), layer).to(device).train()
        return step_of(model, torch.randint(4, 256, (1, length), device=device))

    return build


def plan(scale: str, device: torch.device) -> Plan:
    cases = []
    for length in LENGTHS[scale]:
        peers = {"nn.TransformerEncoderLayer": theirs(scale, length)}
        cases += [
            Case(
                f"{form}, {length:,} tokens",
                {"saccade": ours(form, scale, length)},
                peers,
                tokens=length,
            )
            for form in NAMES
        ]
    notes = f"one text, {SIZES[scale]}, forward and backward; the peer is full attention"
    return Plan(cases, {}, 0.5 if scale == "full" else 0.2, notes, 1.0 if scale == "full" else 0.2)
