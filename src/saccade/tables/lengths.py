"""How far positions carry: small decoders trained on at most L tokens and tested on up to 4 L. B batch, N positions.

Two tasks, each learned by a model of its own:

- `recall`: the token that stood `BACK` positions before, among random tokens; without positions a guess is right once in `SYMBOLS` times.
- `language`: the next character of the embedded phrasebook.

The last L / 2 positions of a text are measured, which in texts longer than 1.5 L are all beyond those of the training.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..building import Builder, Undrawn
from ..core import positions
from ..core.options import options_of
from ..data.generated.phrasebook import phrasebook
from ..errors import SaccadeError
from ..layers import inputs
from ..models import CausalLM
from ..views import pictures

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)  # tested length / L
SYMBOLS, BACK, LEAST = 16, 5, 16  # random tokens, how far back they are asked for, and the least L
BATCH, TEXTS, RATE = 32, 64, 2e-3  # texts per update, tested texts, learning rate
IGNORED = -100
SIZES = {"family": "transformer-decoder", "dim": 128, "hidden": 512, "depth": 3, "heads": 4, "dropout": 0.0}
Settings = Mapping[str, Any]
Draw = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]  # B texts of N tokens, and what follows each token


def every_position(length: int) -> dict[str, dict[str, Any]]:
    """The model settings of each position, at the input or in attention, that a decoder takes; learned tables end with `length`."""
    found: dict[str, dict[str, Any]] = {}
    for key, table in (("position_embedding", inputs.table), ("position", positions.table)):
        for entry in table:
            wanted = options_of(table, entry.make)
            part = {name: entry.example[name] for name, p in wanted.items() if p.default is inspect.Parameter.empty}
            if "max_len" in wanted and wanted["max_len"].default is not None:
                part["max_len"] = length
            settings = {key: {"name": entry.name, **part}}
            if entry.name not in found and fits_decoder(settings):
                found[entry.name] = settings
    return found


def fits_decoder(settings: Settings) -> bool:
    """Whether a decoder can be built so; positions in parse trees, say, cannot be known while a text is written."""
    try:
        with torch.device("meta"), Undrawn():
            Builder({**SIZES, **settings}).make(CausalLM, SYMBOLS)
    except SaccadeError:
        return False
    return True


def train_and_test(
    settings: Settings, length: int = 64, seed: int = 0, updates: int = 1000, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Accuracy (in percent) and loss of each task at each multiple of `length`, such as `recall_accuracy_1.5`: None where the model refuses
    such a length, with its sentence as `error`. `settings` are those of a `transformer-decoder`, over small sizes."""
    if length < LEAST or updates < 1:
        raise SaccadeError(f"expected a length of at least {LEAST} and an update, got {length} and {updates}; give more")
    there = torch.device(device)
    found: dict[str, Any] = {"length": length, "seed": seed, "updates": updates, "error": ""}
    for task, (vocab, texts, test_texts) in tasks().items():
        torch.manual_seed(seed)
        model: nn.Module = Builder({**SIZES, **settings}).make(CausalLM, vocab).to(there)
        found["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        train(model, texts, length, updates, seed, there)
        for factor in FACTORS:
            accuracy = loss = None
            try:
                accuracy, loss = measure(model, test_texts, length, factor, there)
            except SaccadeError as error:
                found["error"] = found["error"] or str(error)
            found[f"{task}_accuracy_{factor:g}"], found[f"{task}_loss_{factor:g}"] = accuracy, loss
    return found


def train(model: nn.Module, texts: Draw, length: int, updates: int, seed: int, device: torch.device) -> None:
    """Every other update reads texts of `length` tokens, the others shorter ones, down to a half."""
    chance, model = torch.Generator().manual_seed(seed), model.train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01)
    warmup = max(1, updates // 10)
    rate = lambda n: min((n + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * n / updates))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for update in range(updates):
        size = length if update % 2 else int(torch.randint(length // 2, length + 1, (), generator=chance))
        logits, target = run(model, texts(BATCH, size, chance), device)
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()


@torch.no_grad()
def measure(model: nn.Module, texts: Draw, length: int, factor: float, device: torch.device) -> tuple[float, float]:
    """Accuracy in percent and loss at the last positions of texts of `factor` times the length."""
    batch = texts(TEXTS, round(factor * length), torch.Generator().manual_seed(0))
    logits, target = (x[:, -(length // 2) :].flatten(0, 1) for x in run(model.eval(), batch, device))
    return 100 * float((logits.argmax(-1) == target).double().mean()), float(F.cross_entropy(logits, target))


def run(model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits (B N V) and what follows each token (B N); in bfloat16 on a GPU."""
    tokens, target = (one.to(device) for one in batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits: Tensor = model(tokens)
    return logits.float(), target


def tasks() -> dict[str, tuple[int, Draw, Draw]]:
    """The size of each task's vocabulary, and what draws its texts for training and for tests."""
    vocab, train_text, test_text = characters()
    return {
        "recall": (SYMBOLS, draw_random, draw_random),
        "language": (vocab, partial(draw_pieces, train_text), partial(draw_pieces, test_text)),
    }


def draw_random(count: int, size: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(SYMBOLS, (count, size), generator=chance)
    return tokens, F.pad(tokens, (BACK, 0), value=IGNORED)[:, :size]


def draw_pieces(text: Tensor, count: int, size: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(text) - size, (count, 1), generator=chance)
    return text[starts + torch.arange(size)], text[starts + torch.arange(1, size + 1)]


@lru_cache(1)
def characters() -> tuple[int, Tensor, Tensor]:
    """How many different characters the phrasebook has, and its English sentences as their numbers: for training, and for tests."""
    parts = phrasebook(train=3000, test=600)
    texts = ["\n".join(pair.source for pair in parts[name]) for name in ("train", "test")]
    known = {sign: n for n, sign in enumerate(sorted(set("".join(texts))))}
    train_text, test_text = (torch.tensor([known[sign] for sign in text]) for text in texts)
    return len(known), train_text, test_text


def draw(rows: Mapping[str, Settings], path: str | os.PathLike[str], task: str = "recall", metric: str = "accuracy") -> None:
    """A line per row through its measured multiples of L, as PNG, SVG or PDF; a row that ends early has refused the rest."""
    series = {}
    for name, row in rows.items():
        measured = [(factor, row.get(f"{task}_{metric}_{factor:g}")) for factor in FACTORS]
        points = [(factor, value) for factor, value in measured if value is not None]
        if points:
            series[name] = points
    if not series:
        raise SaccadeError(f"no row has {task}_{metric}_1 …; draw what train_and_test gave")
    what = f"{task}: {metric}{' in percent' * (metric == 'accuracy')}"
    pictures.save(
        pictures.lines(series, "tested length / longest length in training", what, "Positions beyond the training"), path
    )
