"""Random Transformers and attention layers: cached steps are the whole pass, and the plain loop, the fast decoder and the loop on the device
generate the same tokens.

`FUZZ_SEED=123 pytest tests/fuzz/test_random_models.py` runs one model alone, with its whole traceback.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fuzz_helpers import draw_parts, lengths, run_all, seeds
from model_helpers import fits, settings, shake, stepped
from torch import Tensor, nn

from saccade import models
from saccade.core import Positions, attend, masks
from saccade.decoding import (
    Beam,
    Hypothesis,
    Sample,
    Search,
    SlidingWindow,
    decode,
    decode_loop,
    gpu_loop,
    why_plain,
)
from saccade.errors import SaccadeError
from saccade.layers.block import Block
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.layers.residuals import PreNorm
from saccade.models import CausalLM, Seq2Seq
from saccade.models.builder import Builder

COUNT = 50  # models in `make test`; 20 times as many in `make test-all`
LAYERS = 100
VOCAB, BOS, EOS, NEVER = 13, 1, 2, (0, 1)
MOST = 8  # tokens that are generated; some parts know 16 positions at most
UNUSED = ("pool", "grid_embedding")  # slots of other kinds of models
SIZES: dict[str, list[Any]] = {
    "depth": [1, 2, 3],
    "heads": [1, 2, 4],
    "kv_heads": [None, 1, 2],
    "head_width": [None, None, 2, 6],
    "cross_heads": [None, 1, 2],
    "cross_width": [None, None, 4],
    "tied": [True, False],
    "shared": [True, False],
}


@dataclass(frozen=True)
class Case:
    """A model, and how it is decoded."""

    seed: int
    kind: type[nn.Module]
    changed: dict[str, Any]
    model: Any
    sliding: int | None
    source: Tensor
    lengths: Tensor
    limits: list[int]
    search: Callable[[], Search]

    @property
    def fast(self) -> bool:
        return why_plain(self.model) is None

    def __str__(self) -> str:
        search = self.search()
        how = f"{len(self.limits)} rows, {type(search).__name__} {getattr(search, 'width', '')}"
        how += f", sliding over {self.sliding}" if self.sliding else ""
        return f"{self.kind.__name__} {self.changed}, {how}, {'fast' if self.fast else 'plain'}"


def build(kind: type[nn.Module], changed: dict[str, Any]) -> Any:
    family = "transformer" if kind is Seq2Seq else "transformer-decoder"
    return (
        Builder(settings(family, **changed))
        .make(kind, *[VOCAB] * (2 if kind is Seq2Seq else 1))
        .eval()
    )


def draw_model(
    draw: random.Random, kind: type[nn.Module], fast: bool
) -> tuple[Any, dict[str, Any]]:
    """A model with random members of random slots: a change with which it cannot be built is left out again, and in half of the models
    one that the fast decoder does not know."""
    config = models.table["transformer" if kind is Seq2Seq else "transformer-decoder"].config
    slots = {
        f.name: f.metadata["table"]
        for f in dataclasses.fields(config)
        if "table" in f.metadata and f.name not in UNUSED
    }
    names = [
        name for name in (*slots, *SIZES) if name in {f.name for f in dataclasses.fields(config)}
    ]
    changed: dict[str, Any] = {}
    model = build(kind, {})
    for name in draw.sample(names, len(names)):
        if draw.random() < 0.4:
            continue
        if name in slots:
            entry = draw.choice([one for one in slots[name] if fits(one, kind, True)])
            value: Any = {"name": entry.name, **entry.example} if entry.example else entry.name
        else:
            value = draw.choice(SIZES[name])
        try:
            made = build(kind, {**changed, name: value})
        except SaccadeError:  # it does not go with the others
            continue
        if not fast or why_plain(made) is None:
            model, changed = made, {**changed, name: value}
    return shake(model), changed


@torch.no_grad()
def is_tame(case: Case) -> bool:
    """Whether logits are of a usual size: without norms some models of random numbers grow without bounds, and round all else away."""
    given = (case.source, case.lengths) if case.kind is Seq2Seq else ()
    return bool(
        case.model(*given, torch.randint(3, VOCAB, (len(case.source), MOST))).abs().max() < 100
    )


def draw_search(draw: random.Random) -> Callable[[], Search]:
    how = draw.randrange(4)
    if how == 0:
        return lambda: Sample(BOS, EOS, NEVER, temperature=0.0)
    if how == 1:
        given = {
            "temperature": draw.choice([0.7, 1.3]),
            "top_k": draw.choice([None, 1, 5]),
            "top_p": draw.choice([None, 0.8]),
        }
        return lambda: Sample(BOS, EOS, NEVER, seed=draw.randrange(1) + 7, **given)
    width, penalty, rule = (
        draw.randint(1, 5),
        draw.choice([0.0, 0.6, 1.0]),
        draw.choice(["power", "gnmt"]),
    )
    return lambda: Beam(BOS, EOS, NEVER, width=width, length_penalty=penalty, length_rule=rule)


def draw_case(seed: int) -> Case:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    while not is_tame(case := draw_any(draw, seed)):
        pass
    return case


def draw_any(draw: random.Random, seed: int) -> Case:
    kind = draw.choice([Seq2Seq, Seq2Seq, CausalLM])
    model, changed = draw_model(draw, kind, draw.random() < 0.6)
    pair = kind is Seq2Seq
    rows = draw.choice([1, 2, 5, 9]) if pair else draw.choice([1, 3])
    size = draw.randint(1, 6) if pair else draw.randint(0, 5)
    counts = torch.tensor([draw.randint(1, size) if pair else size for _ in range(rows)])
    limits = [draw.choice([0, 1, draw.randint(1, MOST), MOST]) for _ in range(rows)]
    sliding = draw.choice([None, 4, 7]) if not pair else None
    search = draw_search(draw)
    if sliding and isinstance(search(), Beam):
        search = lambda: Sample(BOS, EOS, NEVER, temperature=0.0)
    return Case(
        seed,
        kind,
        changed,
        model,
        sliding,
        torch.randint(3, VOCAB, (rows, size)),
        counts,
        limits,
        search,
    )


# --- steps and searches ---


@torch.no_grad()
def check_steps(case: Case) -> None:
    """The logits of one step after another are those of the whole pass."""
    target, rows = torch.randint(3, VOCAB, (len(case.source), 6)), (case.source, case.lengths)
    if case.kind is Seq2Seq:
        whole = case.model(*rows, target)
    else:
        whole = case.model(torch.cat([case.source, target], 1))[:, case.source.shape[1] :]
    torch.testing.assert_close(stepped(case.model, target, *rows), whole)


@contextmanager
def patched(plain: bool = False, device: bool = False) -> Any:
    """Decoding by the model's own steps, or by the loop that stays on the device."""
    with pytest.MonkeyPatch.context() as patch:
        if plain:
            patch.setattr(decode_loop, "why_plain", lambda model: "asked for")
            patch.setattr(gpu_loop, "why_plain", lambda model: "asked for")
        patch.setattr(gpu_loop, "on_cpu", device)
        yield


def decoded(case: Case, **how: bool) -> list[list[Hypothesis]]:
    model = SlidingWindow(case.model, case.sliding) if case.sliding else case.model
    with patched(**how):
        return decode(model, case.source, case.lengths, case.search(), case.limits)


def check_same(case: Case, when: str) -> None:
    wanted = decoded(case, plain=True)
    for name, device in (("fast", False), ("resident", True)):
        found = decoded(case, device=device)
        for n, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert [x.tokens for x in one] == [x.tokens for x in other], f"{when}: {name}: row {n}"
            assert [x.finished for x in one] == [x.finished for x in other], (
                f"{when}: {name}: row {n}"
            )
            pairs = zip(one, other, strict=True)
            apart = max(
                (abs(x.log_prob - y.log_prob) + abs(x.score - y.score) for x, y in pairs),
                default=0.0,
            )
            assert apart < 1e-6, f"{when}: {name}: row {n} has another log p, {apart:.2g} off"


def overwrite(draw: random.Random, parameter: Tensor) -> str:
    """Other numbers in a part of a parameter, so that PyTorch does not count it as a change."""
    flat, how = parameter.data.view(-1), draw.randrange(5)
    size = len(flat)
    start = draw.randrange(size)
    cut = slice(start, start + draw.randint(1, size - start))
    if how == 0:
        flat[cut] = 0.0
        return f"[{cut.start}:{cut.stop}] = 0"
    if how == 1:
        flat[cut] = torch.randn_like(flat[cut])
        return f"[{cut.start}:{cut.stop}] at random"
    if how == 2:
        flat[:] = flat[torch.randperm(size)]
        return "permuted"
    if how == 3:
        parameter.detach().numpy().reshape(-1)[cut] *= -1.5
        return f"[{cut.start}:{cut.stop}] *= -1.5 in numpy"
    flat[:] = flat.flip(0)
    return "reversed"


def check_decoding(case: Case) -> bool:
    check_same(case, "at first")
    if not case.fast:
        return False
    draw, named = random.Random(-case.seed), list(case.model.named_parameters())
    for _ in range(4):
        name, parameter = draw.choice(named)
        check_same(case, f"after {name} {overwrite(draw, parameter)}")
    return True


def check(case: Case) -> bool:
    check_steps(case)
    return check_decoding(case)


@seeds(COUNT, chunk=10)
def test_steps_searches_and_the_fast_decoder_are_the_whole_pass(cases: range) -> None:
    ran = run_all(cases, draw_case, check)
    assert len(cases) == 1 or sum(map(bool, ran)) >= len(cases) // 4, (
        "few of the models are decoded fast"
    )


# --- layers ---


@dataclass(frozen=True)
class Layer:
    seed: int
    layer: MultiHeadAttention
    x: Tensor
    memory: Tensor | None
    mask: masks.Mask | None
    parts: tuple[str, str, str]

    def __str__(self) -> str:
        kind, read = (
            self.layer,
            "" if self.memory is None else f", memory {tuple(self.memory.shape)}",
        )
        return f"{' × '.join(self.parts)}, heads {kind.heads}/{kind.kv_heads}, x {tuple(self.x.shape)}{read}, mask {self.mask!r}"


def draw_layer(seed: int) -> Layer:
    draw = random.Random(seed)
    shared = draw.choice([1, 2])
    heads, width = shared * draw.choice([1, 2]), 2 * draw.randint(1, 5)
    while True:
        made, parts = draw_parts(draw, heads, (width, width, width))
        if not made.position.needs_relation and getattr(made.position, "vectors", None) is None:
            break
    (queries, keys), dim = lengths(draw, 24), draw.randint(2, 12)
    layer = (
        MultiHeadAttention(dim, heads, shared, made, head_width=width, bias=draw.random() < 0.5)
        .double()
        .eval()
    )
    batch, cross = draw.randint(1, 3), draw.random() < 0.5
    memory = torch.randn(batch, keys, dim).double() if cross else None
    mask = (
        masks.padding([draw.randint(0, keys) for _ in range(batch)])
        if cross
        else draw.choice([None, masks.causal()])
    )
    return Layer(
        seed,
        layer,
        torch.randn(batch, queries if cross else keys, dim).double(),
        memory,
        mask,
        parts,
    )


@torch.no_grad()
def check_layer(case: Layer) -> None:
    """Three projections, `attend` by the definition, one projection; of the past in one pass and step by step."""
    layer, x, memory = case.layer, case.x, case.x if case.memory is None else case.memory
    split = lambda y, heads: y.unflatten(-1, (heads, -1)).transpose(1, 2)
    q, k, v = (
        split(layer.q(x), layer.heads),
        split(layer.k(memory), layer.kv_heads),
        split(layer.v(memory), layer.kv_heads),
    )
    wanted = layer.out(
        attend(q, k, v, layer.mechanism, case.mask, backend="eager").transpose(1, 2).flatten(2)
    )
    torch.testing.assert_close(layer(x, case.memory, case.mask), wanted)
    if case.memory is not None:
        return
    torch.testing.assert_close(layer.mix(x, case.mask, None), wanted)
    if case.mask is not None:
        cache, found = layer.start(x[:, 0]), []
        for n in range(x.shape[1]):
            one, cache = layer.step(x[:, n : n + 1], cache, None, Positions.line(1, n + 1))
            found.append(one)
        torch.testing.assert_close(torch.cat(found, 1), wanted)
    layer.__class__ = Doubled
    torch.testing.assert_close(
        layer(x, None, case.mask), 2 * wanted, msg=lambda m: f"a `mix` of one's own: {m}"
    )
    block = Block(layer, nn.Identity(), lambda: PreNorm(nn.Identity)).eval()
    torch.testing.assert_close(
        block(x, case.mask),
        2 * (x + 2 * wanted),
        msg=lambda m: f"a `mix` of one's own in a block: {m}",
    )


class Doubled(MultiHeadAttention):
    def mix(self, x: Tensor, mask: masks.Mask | None, positions: Positions | None) -> Tensor:
        return 2 * super().mix(x, mask, positions)


@seeds(LAYERS, chunk=50)
def test_a_layer_is_attend_between_its_projections(cases: range) -> None:
    run_all(cases, draw_layer, check_layer)
