"""How far positions carry: small decoders that learn to recall, trained on at most L tokens and tested on up to 4 L. B batch, N positions.

Asked for is the token that stood `BACK` positions before, among random tokens; without positions a guess is right once in `SYMBOLS` times.
The last L / 2 positions of a text are measured, which in texts longer than 1.5 L are all beyond those of the training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core import positions
from ...errors import SaccadeError
from ...layers import token_inputs
from ...models import CausalLM
from ...models.builder import Builder, NoInit
from ...settings import needed_options

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)  # tested length / L
SYMBOLS, BACK, LEAST = 16, 5, 16  # random tokens, how far back they are asked for, and the least L
BATCH, TEXTS, RATE = 32, 64, 2e-3  # texts per update, tested texts, learning rate
IGNORED = -100
WIDTHS = {"dim": 128, "hidden": 512, "depth": 3, "heads": 4, "dropout": 0.0}
SIZES = {"family": "transformer-decoder", **WIDTHS}
Settings = Mapping[str, Any]


def every_position(length: int) -> dict[str, dict[str, Any]]:
    """The model settings of each position, at the input or in attention, that a decoder takes; learned tables end with `length`."""
    found: dict[str, dict[str, Any]] = {}
    for key, table in (("position_embedding", token_inputs.table), ("position", positions.table)):
        for entry in table:
            settings = {key: {"name": entry.name, **needed_options(table, entry, length)}}
            if entry.name not in found and fits_decoder(settings):
                found[entry.name] = settings
    return found


def fits_decoder(settings: Settings) -> bool:
    """Whether a decoder can be built so; positions in parse trees, say, cannot be known while a text is written."""
    try:
        with torch.device("meta"), NoInit():
            Builder({**SIZES, **settings}).make(CausalLM, SYMBOLS)
    except SaccadeError:
        return False
    return True


def train_and_test(
    settings: Settings,
    length: int = 64,
    seed: int = 0,
    updates: int = 1000,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Accuracy (in percent) and loss at each multiple of `length`, such as `recall_1.5` and `recall_loss_1.5`: None where the model refuses
    such a length, with its sentence as `error`. `settings` are those of a `transformer-decoder`, over small sizes."""
    if length < LEAST or updates < 1:
        raise SaccadeError(
            f"expected a length of at least {LEAST} and an update, got {length} and {updates}; give more",
            code="out-of-range",
        )
    there = torch.device(device)
    torch.manual_seed(seed)
    model: nn.Module = Builder({**SIZES, **settings}).make(CausalLM, SYMBOLS).to(there)
    train(model, length, updates, seed, there)
    found: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "error": "",
    }
    for factor in FACTORS:
        accuracy = loss = None
        try:
            accuracy, loss = measure(model, length, factor, there)
        except SaccadeError as error:
            found["error"] = found["error"] or str(error)
        found[f"recall_{factor:g}"], found[f"recall_loss_{factor:g}"] = accuracy, loss
    return found


def train(model: nn.Module, length: int, updates: int, seed: int, device: torch.device) -> None:
    """Every other update reads texts of `length` tokens, the others shorter ones, down to a half."""
    chance, model = torch.Generator().manual_seed(seed), model.train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = max(1, updates // 10)
    rate = lambda n: min((n + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * n / updates))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for update in range(updates):
        size = (
            length
            if update % 2
            else int(torch.randint(length // 2, length + 1, (), generator=chance))
        )
        logits, target = run(model, draw_random(BATCH, size, chance), device)
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()


@torch.no_grad()
def measure(
    model: nn.Module, length: int, factor: float, device: torch.device
) -> tuple[float, float]:
    """Accuracy in percent and loss at the last positions of texts of `factor` times the length."""
    batch = draw_random(TEXTS, round(factor * length), torch.Generator().manual_seed(0))
    logits, target = (
        x[:, -(length // 2) :].flatten(0, 1) for x in run(model.eval(), batch, device)
    )
    return 100 * float((logits.argmax(-1) == target).double().mean()), float(
        F.cross_entropy(logits, target)
    )


def run(
    model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Logits (B N V) and what follows each token (B N); in bfloat16 on a GPU."""
    tokens, target = (one.to(device) for one in batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits: Tensor = model(tokens)
    return logits.float(), target


def draw_random(count: int, size: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Texts (B N), and for each position the token that is asked for there."""
    tokens = torch.randint(SYMBOLS, (count, size), generator=chance)
    return tokens, F.pad(tokens, (BACK, 0), value=IGNORED)[:, :size]
