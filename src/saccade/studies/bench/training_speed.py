"""`saccade bench train`: whole updates (forward, backward, clipping, AdamW) of saccade's models and their peers on the same batches."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ...config import recipes
from ...errors import SaccadeError
from ...models.builder import Builder
from ...models.protocols import CausalLM, Seq2Seq
from ...recipe import TrainingRecipe
from ...system.build import prepared
from ...training.distributed import Ranks
from ...training.flops import counter
from ...training.losses import Batch
from ...training.update import Update
from ...training.update_capture import CapturedUpdate, shape
from ...training.work import Work
from . import peers
from .contenders import Case, Make, Plan, device_and_type

# vocabulary, dim, depth, heads, length, batch
GPT = {"full": (50_304, 768, 12, 12, 1024, 32), "tiny": (1000, 64, 2, 2, 64, 8)}
# vocabulary, dim, hidden, depth, heads, batch
BASE = {"full": (16_000, 512, 2048, 6, 8, 512), "tiny": (500, 64, 128, 2, 2, 16)}
# vocabulary, dim, hidden, batch
RECURRENT = {"full": (8000, 256, 512, 128), "tiny": (500, 32, 32, 16)}
SIDE = {"full": 32, "tiny": 12}  # tokens on each side of a pair
RECIPE = {"full": "multi30k-de-en", "tiny": "phrasebook-transformer"}
SMALL = "data.options.train=300 training.tokens=512 model.dim=64 model.hidden=128"
SMALLER = {"full": [], "tiny": SMALL.split()}
RATE = 1e-4


@dataclass(frozen=True)
class Given(Work):
    """Batches that are there already."""

    batches: Sequence[Batch]

    @property
    def one_shape(self) -> bool:  # type: ignore[override]
        return len({shape(batch) for batch in self.batches}) == 1


def update_with(
    build: Callable[[], nn.Module], batches: Sequence[Batch], how: str
) -> Callable[[], Any]:
    """Updates of one of our models as a training makes them, batch after batch: kernel by kernel, captured, or compiled and captured."""
    device, dtype = device_and_type()
    model = seeded(build).to(device)
    precision = "bf16" if dtype == torch.bfloat16 else "float32"
    settings = TrainingRecipe(
        precision=precision, compile=how == "compiled", graphs=how != "plain", smoothing=0.0
    )
    kind = Update if how == "plain" else CapturedUpdate

    def refuse(why: str) -> None:
        raise SaccadeError(why, code="command-failed")

    update = kind(model.train(), Given(batches), settings, Ranks(), refuse)
    turn = itertools.cycle(batches)

    def call() -> None:
        for _ in batches:
            batch = next(turn)
            update([(batch, 1)], batch.tokens, RATE)

    return call


def step_of(build: Callable[[], nn.Module], batches: Sequence[Batch]) -> Callable[[], Any]:
    """Updates of a peer, which takes inputs and targets and gives the mean loss; compiled on a GPU."""
    device, dtype = device_and_type()
    model = seeded(build).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)
    # once for all shapes where there are several: else it would be compiled again and again, for minutes
    several = len({shape(batch) for batch in batches}) > 1 or None
    forward: Any = torch.compile(model, dynamic=several) if device.type == "cuda" else model

    def call() -> None:
        for batch in batches:
            with torch.autocast(device.type, dtype, enabled=device.type == "cuda"):
                loss = forward(*batch.inputs, batch.target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return call


def case_of(
    name: str,
    ours: Callable[[], nn.Module],
    theirs: Mapping[str, Callable[[], nn.Module]],
    batches: Sequence[Batch],
    compiles: bool = False,
) -> Case:
    """Ours in each way that a training has on this machine, and the peers, which are compiled on a GPU; ours too where it can be
    (`compiles`)."""
    device, _ = device_and_type()
    operations = count_operations(ours, batches)
    ways = {"saccade": "graphs" if device.type == "cuda" else "plain"}
    if compiles and device.type == "cuda":
        ways["saccade, compiled"] = "compiled"
    mine: dict[str, Make] = {
        title: partial(update_with, ours, batches, how) for title, how in ways.items()
    }
    others: dict[str, Make] = {
        title: partial(step_of, build, batches) for title, build in theirs.items()
    }
    tokens = sum(map(read_and_written, batches))
    # the second of a shape is compiled, the third captured
    return Case(
        name, mine, others, lambda limits: limits.seconds(operations), tokens, warm=4, whole=True
    )


def read_and_written(batch: Batch) -> int:
    """Tokens that the loss counts, and of pairs also those of their sources."""
    return batch.tokens + (int(batch.inputs[1].sum()) if len(batch.inputs) > 1 else 0)


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        # PyTorch's, about how its Transformer could be built otherwise
        warnings.simplefilter("ignore")
        return build()


def count_operations(build: Callable[[], nn.Module], batches: Sequence[Batch]) -> float:
    """Of forward and backward, counted on the first batch without computing anything, and as many for each token of the others."""
    with torch.device("meta"):
        model = build().train()
        first = [
            torch.empty(one.shape, dtype=one.dtype) if isinstance(one, Tensor) else one
            for one in batches[0].inputs
        ]
    with counter() as counted:
        model(*first).sum().backward()
    return (
        float(counted.get_total_flops())
        / max(batches[0].tokens, 1)
        * sum(batch.tokens for batch in batches)
    )


def random_tokens(vocab: int, *shape: int) -> Tensor:
    return torch.randint(4, vocab, shape).to(device_and_type()[0])


def gpt(scale: str) -> Case:
    vocab, dim, depth, heads, length, rows = GPT[scale]
    tokens = random_tokens(vocab, rows, length + 1)
    batch = Batch((tokens[:, :-1],), tokens[:, 1:].contiguous(), 0, rows * length, range(rows))
    settings: dict[str, Any] = {
        "dim": dim,
        "hidden": 4 * dim,
        "depth": depth,
        "heads": heads,
        "dropout": 0.0,
    }
    settings |= {"feedforward": {"activation": "gelu"}}
    learned = {"name": "learned", "max_len": length}
    ours = lambda: Builder(
        {"family": "transformer-decoder", "position_embedding": learned, **settings}
    ).make(CausalLM, vocab)
    kinds: dict[str, Any] = {
        "plain GPT": peers.PlainGpt,
        "transformers": peers.HuggingFaceGpt,
        "x-transformers": peers.XTransformersGpt,
    }
    theirs = {
        name: partial(kinds[name], vocab, dim, depth, heads, length)
        for name in kinds
        if name not in missing()
    }
    return case_of(
        f"GPT, {depth} × {dim}, {rows} × {length:,} tokens", ours, theirs, [batch], compiles=True
    )


def pairs(vocab: int, rows: int, side: int) -> list[Batch]:
    source, read, target = (random_tokens(vocab, rows, side) for _ in range(3))
    lengths = torch.full((rows,), side, device=source.device)
    return [Batch((source, lengths, read), target, 0, rows * side, range(rows))]


def base(scale: str) -> Case:
    vocab, dim, hidden, depth, heads, rows = BASE[scale]
    sizes = {"dim": dim, "hidden": hidden, "depth": depth, "heads": heads, "dropout": 0.1}
    ours = lambda: Builder({"family": "transformer", "shared": True, **sizes}).make(
        Seq2Seq, vocab, vocab
    )
    theirs = {
        "nn.Transformer": lambda: peers.TorchTranslator(vocab, dim, hidden, depth, heads, 0.1)
    }
    name = (
        f"Transformer, {depth} + {depth} × {dim}, {rows} × ({SIDE[scale]} + {SIDE[scale]}) tokens"
    )
    return case_of(name, ours, theirs, pairs(vocab, rows, SIDE[scale]), compiles=True)


def recurrent(scale: str) -> Case:
    vocab, dim, hidden, rows = RECURRENT[scale]
    ours = lambda: Builder(
        {"family": "bahdanau", "dim": dim, "hidden": hidden, "dropout": 0.0}
    ).make(Seq2Seq, vocab, vocab)
    theirs = {"textbook": lambda: peers.TextbookBahdanau(vocab, dim, hidden)}
    name = f"Bahdanau, {hidden}, {rows} × ({SIDE[scale]} + {SIDE[scale]}) tokens"
    return case_of(name, ours, theirs, pairs(vocab, rows, SIDE[scale]))


def real(scale: str) -> Case | None:
    """A recipe's own batches, with their real lengths; None where its data are not here."""
    try:
        system, work = prepared(
            recipes.read_recipe(RECIPE[scale], ["training.round_to=8", *SMALLER[scale]])
        )
    except SaccadeError:
        return None
    batches = [work.batch(plan) for plan in work.epoch(0)[: 100 if scale == "full" else 6]]
    model, vocab = system.recipe.model, len(system.task.target)
    ours = lambda: Builder(model).make(Seq2Seq, len(system.task.source), vocab)
    names = ("dim", "hidden", "depth", "heads", "dropout")
    sizes = (max(vocab, len(system.task.source)), *(model[name] for name in names))
    kinds: dict[str, Any] = {
        "nn.Transformer": peers.TorchTranslator,
        "transformers": peers.HuggingFaceTranslator,
    }
    theirs = {name: partial(kinds[name], *sizes) for name in kinds if name not in missing()}
    return case_of(f"{RECIPE[scale]}, {len(batches)} of its batches", ours, theirs, batches)


def missing() -> dict[str, str]:
    """Peers that are not installed."""
    names = {"transformers": "transformers", "x-transformers": "x_transformers"}
    return {name: "not installed" for name, module in names.items() if find_spec(module) is None}


def plan(scale: str, device: torch.device) -> Plan:
    cases, left_out = [gpt(scale), base(scale), recurrent(scale)], missing()
    found = real(scale)
    if found is None:
        left_out[RECIPE[scale]] = "its data are not here; `saccade fetch multi30k` brings them"
    else:
        cases.append(found)
    how = "bf16, peers compiled" if device.type == "cuda" else "float32, nothing compiled"
    return Plan(
        cases,
        left_out,
        2.0 if scale == "full" else 0.5,
        f"{how}; tokens of both sides of pairs, without padding",
        45.0 if scale == "full" else 1.0,
    )
