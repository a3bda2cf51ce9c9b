"""Random calls of `attend`, drawn from the tables: case n is drawn with seed n and describes itself in one line.

A part that is added to a table takes part at once. A mask that is made per batch needs a line in `MASKS`.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.core import (
    Mechanism,
    Positions,
    attend,
    backends,
    masks,
    normalizers,
    positions,
    scores,
)
from saccade.core.attention import build_call
from saccade.core.backends import blocked
from saccade.core.masks import Mask
from saccade.core.positions import Position
from saccade.core.window_masks import ShiftedWindows
from saccade.errors import SaccadeError
from saccade.registry import Table
from saccade.settings import Choice, hints_of, options_of, overrides

T = TypeVar("T")
Predicate = Callable[[int, int, int, int], bool]
ONLY = os.environ.get("FUZZ_SEED")
if ONLY is not None and not ONLY.isdecimal():
    pytest.exit(
        f"FUZZ_SEED is {ONLY!r}; expected the number of a case, such as FUZZ_SEED=7", returncode=2
    )
TIMES = 20  # how many times as many cases the slow tests run
# which key is chosen is a matter of rounding where scores are equal: in 16 bits, or capped
JUMPS = ("hard", "TopBlocks")
# how far from float64 a result may be, relative to its norm
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def seeds(count: int, chunk: int) -> pytest.MarkDecorator:
    """Parametrizes a test with ranges of seeds: `count` cases in `make test`, `TIMES` as many in `make test-all`; FUZZ_SEED=n: n alone."""
    if ONLY is not None:
        return pytest.mark.parametrize(
            "cases", [range(int(ONLY), int(ONLY) + 1)], ids=[f"seed {ONLY}"]
        )
    ranges = [range(n, min(n + chunk, TIMES * count)) for n in range(0, count, chunk)]
    later = [
        range(n, min(n + chunk, TIMES * count))
        for n in range(ranges[-1].stop, TIMES * count, chunk)
    ]
    name = lambda one: f"seeds {one.start}-{one.stop - 1}"
    params = [pytest.param(one, id=name(one)) for one in ranges]
    return pytest.mark.parametrize(
        "cases", params + [pytest.param(one, id=name(one), marks=pytest.mark.slow) for one in later]
    )


def run_all(cases: range, draw: Callable[[int], T], check: Callable[[T], object]) -> list[object]:
    """Draws and checks each case, and fails with one line for each that fails: its seed, what it is, what went wrong."""
    found, failed = list[object](), list[str]()
    for seed in cases:
        torch.manual_seed(seed)
        case = draw(seed)
        if ONLY is not None:
            print(case)  # and the error with its whole traceback
            found.append(check(case))
            continue
        try:
            found.append(check(case))
        except Exception as error:  # of any kind: a crash is a failure of this case, and the others run nevertheless
            wrong = " ".join(str(error).split())[:200]
            failed.append(f"FUZZ_SEED={seed}: {case}: {type(error).__name__}: {wrong}")
    assert not failed, f"{len(failed)} of {len(cases)} cases failed:\n" + "\n".join(failed)
    return found


# --- parts ---


def options(table: Table[Any], name: str, draw: random.Random) -> dict[str, Any]:
    """Options of a member: those of its example, truth values at random, a table that is long enough."""
    entry = table.entry(name)
    chosen, hints = dict(entry.example), hints_of(entry.make)
    for key in options_of(table, entry.make):
        if hints.get(key) in (bool, bool | None):
            chosen[key] = draw.random() < 0.5
        if key == "max_len" and draw.random() < 0.5:
            chosen[key] = 600
    return chosen


def build(table: Table[Any], name: str, draw: random.Random, **facts: Any) -> tuple[Any, str]:
    chosen = options(table, name, draw)
    said = ", ".join(f"{key}={value}" for key, value in chosen.items())
    return Choice(table[name], chosen)(**facts), f"{name}({said})" if said else name


def matrix(draw: random.Random, shape: tuple[int, ...], some: float) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(draw.randrange(2**31))) < some


Sizes = tuple[int, int, int, int]  # B H Q K
# the mask, and what it means where that is written here once more
Drawn = tuple[Mask, Predicate | None]


def window(draw: random.Random, sizes: Sizes) -> Drawn:
    left, right = draw.randint(0, 20), draw.randint(0, 9)
    return masks.window(left, right), lambda b, h, i, j: -left <= j - i <= right


def per_row(
    kind: Callable[[list[int]], Mask], ahead: bool
) -> Callable[[random.Random, Sizes], Drawn]:
    def make(draw: random.Random, sizes: Sizes) -> Drawn:
        lengths = [draw.choice([0, draw.randint(0, sizes[3]), sizes[3]]) for _ in range(sizes[0])]
        return kind(lengths), lambda b, h, i, j: j < lengths[b] or (ahead and j <= i)

    return make


def documents(draw: random.Random, sizes: Sizes) -> Drawn:
    steps = [[draw.random() < 0.1 for _ in range(sizes[3])] for _ in range(sizes[0])]
    ids = np.cumsum(np.array(steps, dtype=np.int64).reshape(sizes[0], sizes[3]), 1)
    return masks.documents(torch.from_numpy(ids)), lambda b, h, i, j: ids[b, i] == ids[b, j]


def any_matrix(draw: random.Random, sizes: Sizes) -> Drawn:
    batch, heads, queries, keys = sizes
    shape = draw.choice(
        [
            (queries, keys),
            (heads, queries, keys),
            (batch, heads, queries, keys),
            (batch, 1, queries, keys),
        ]
    )
    allowed = matrix(draw, shape, draw.choice([0.1, 0.5, 0.9]))
    full = allowed.view((1,) * (4 - len(shape)) + shape).expand(sizes).numpy()
    return masks.matrix(allowed), lambda b, h, i, j: bool(full[b, h, i - (keys - queries), j])


def blocks(draw: random.Random, sizes: Sizes) -> Drawn:
    extra = draw.choice([0, 0, min(3, sizes[3] - 1)])
    given = {
        "window": draw.randint(0, 1),
        "globals": draw.randint(0, 1),
        "random": draw.randint(0, 2),
        "last": draw.randint(0, 1),
        "heads": draw.choice([1, sizes[1]]),
    }
    return masks.blocks(
        sizes[3], size=draw.randint(1, 24), seed=draw.randint(0, 9), extra=extra, **given
    ), None


def top_blocks(draw: random.Random, sizes: Sizes) -> Drawn:
    return masks.top_blocks(draw.randint(1, 9), draw.randint(0, 3)), None


def shifted_windows(draw: random.Random, sizes: Sizes) -> Drawn:
    # each row of the batch is a column of the grid, and a window as long as the grid
    rows, keys = (sizes[0], sizes[3])
    return ShiftedWindows((keys, max(rows, 1)), (keys, 1), (draw.randrange(keys), 0)), None


def where(draw: random.Random, sizes: Sizes) -> Drawn:
    step = draw.randint(2, 5)
    told = lambda b, h, i, j: (i + 2 * j + h) % step != b
    return masks.where(told), told


MASKS: dict[str, Callable[[random.Random, Sizes], Drawn]] = {
    "full": lambda draw, sizes: (masks.full(), lambda b, h, i, j: True),
    "causal": lambda draw, sizes: (masks.causal(), lambda b, h, i, j: j <= i),
    "window": window,
    "padding": per_row(masks.padding, False),
    "prefix": per_row(masks.prefix, True),
    "documents": documents,
    "blocks": blocks,
    "top-blocks": top_blocks,
    "matrix": any_matrix,
    "shifted-windows": shifted_windows,
    "where": where,
}


def one_mask(draw: random.Random, sizes: Sizes, names: list[str]) -> Drawn:
    name = draw.choice(names)
    if name in MASKS:
        return MASKS[name](draw, sizes)
    return Choice(masks.table[name], masks.table.entry(name).example)(), None


def combined(draw: random.Random, sizes: Sizes, names: list[str]) -> Drawn:
    """One mask, or up to three joined by & and |."""
    mask, means = one_mask(draw, sizes, names)
    for _ in range(draw.choice([0, 0, 0, 1, 1, 2])):
        other, also = one_mask(draw, sizes, names)
        both = draw.random() < 0.7
        mask, first = mask & other if both else mask | other, means
        if first is None or also is None:
            means = None
        elif both:
            means = lambda b, h, i, j, one=first, two=also: one(b, h, i, j) and two(b, h, i, j)
        else:
            means = lambda b, h, i, j, one=first, two=also: one(b, h, i, j) or two(b, h, i, j)
    return mask, means


# --- calls ---


@dataclass(frozen=True)
class Case:
    """One call of `attend`. `means` is the mask as a function of whole numbers, where it is known."""

    seed: int
    made: Mechanism
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask | None
    means: Predicate | None
    at: Positions | None
    parts: tuple[str, str, str]
    grad: bool
    scale: float
    blocks: tuple[int, ...]  # sizes that the backend `blocked` may choose from

    @property
    def sizes(self) -> Sizes:
        return (*self.q.shape[:3], self.k.shape[2])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of score, normalizer and position, without their options."""
        return tuple(one.partition("(")[0] for one in self.parts)

    def __str__(self) -> str:
        batch, heads, queries, keys = self.sizes
        shape = f"B{batch} H{heads}/{self.k.shape[1]} Q{queries} K{keys} D{self.q.shape[3]}/{self.k.shape[3]} E{self.v.shape[3]}"
        at = (
            ""
            if self.at is None
            else f", positions {tuple(self.at.i.shape)} {tuple(self.at.j.shape)}"
        )
        own = f", own mask {self.made.mask!r}" if type(self.made.mask) is not masks.Full else ""
        kind = str(self.q.dtype).removeprefix("torch.")
        return f"{' × '.join(self.parts)}, mask {self.mask!r}{own}{at}, {shape} {kind}, inputs × {self.scale}"

    def to(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Case:
        """The same numbers in another type, and elsewhere. Positions keep nothing of the old one."""
        at, mask = self.at, self.mask
        if at is not None:
            relation = None if at.relation is None else at.relation.to(device)
            at = Positions(at.i.to(device), at.j.to(device), relation, at.in_line)
        if isinstance(mask, masks.Prepared):
            mask = mask.mask.prepare(*self.sizes, device)
        q, k, v = (x.detach().to(device, dtype) for x in (self.q, self.k, self.v))
        return replace(self, made=self.made.to(device, dtype), q=q, k=k, v=v, at=at, mask=mask)


def lengths(draw: random.Random, largest: int) -> tuple[int, int]:
    """Q and K: mostly short, some as long as `largest`; fewer, as many, and more queries than keys."""
    keys = min(
        draw.choice(
            [draw.randint(1, 12), draw.randint(1, 40), draw.randint(1, 140), draw.randint(1, 520)]
        ),
        largest,
    )
    queries = draw.choice(
        [keys, keys, keys, draw.randint(1, keys), 1, draw.randint(keys, keys + min(keys, 20))]
    )
    return queries, keys


def draw_parts(
    draw: random.Random, heads: int, wide: tuple[int, int, int]
) -> tuple[Mechanism, tuple[str, str, str]]:
    """A score, a normalizer and a position that go together."""
    while True:
        names = [draw.choice(slot.table.names()) for slot in (scores, normalizers, positions)]
        names[2] = draw.choice([names[2], "none"])
        score = scores.table[names[0]]
        if wide[0] != wide[1] and (not score.unequal_widths or names[2] != "none"):
            continue
        facts = {
            "dim_q": wide[0],
            "dim_k": wide[1],
            "dim": wide[0],
            "dim_values": wide[2],
            "heads": heads,
            "causal": False,
        }
        built = [
            build(slot.table, name, draw, **facts)
            for slot, name in zip((scores, normalizers, positions), names, strict=True)
        ]
        try:
            made = Mechanism(built[0][0], built[1][0], None, built[2][0]).eval()
        except SaccadeError:  # they do not go together
            continue
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(0.7 * torch.randn_like(parameter))
        return made, (built[0][1], built[1][1], built[2][1])


def draw_positions(draw: random.Random, made: Mechanism, sizes: Sizes) -> Positions | None:
    """None, a line, or any positions at all; a relation for a position that asks for one."""
    (batch, _, queries, keys), position = sizes, made.position
    rows = draw.choice([(), (batch,)]) if batch else ()
    relation = (
        torch.randint(-5, 6, (draw.choice([1, batch]), queries, keys))
        if position.needs_relation
        else None
    )
    # it has nothing before its first position
    learned = getattr(position, "vectors", None) is not None and queries > keys
    if relation is None and not learned and draw.random() < 0.6:
        return None
    if not learned and draw.random() < 0.5:
        return Positions.line(queries, keys, relation=relation)
    return Positions(
        torch.randint(0, 90, (*rows, queries)), torch.randint(0, 90, (*rows, keys)), relation
    )


def laid_out(draw: random.Random, x: Tensor) -> Tensor:
    """The same numbers, contiguous or not."""
    how = draw.randrange(4)
    if how == 0:
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == 1:
        return torch.cat([x, x], 3)[..., : x.shape[3]]
    return x.transpose(2, 3).contiguous().transpose(2, 3) if how == 2 else x


def draw_case(
    seed: int,
    largest: int = 520,
    dtypes: tuple[torch.dtype, ...] = tuple(TOLERANCE),
    parts: Any = draw_parts,
    widest: int = 24,
) -> Case:
    """Lengths up to about `largest`, heads at most `widest` wide."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    shared = draw.choice([1, 1, 2, 3])
    heads = shared * draw.choice([1, 1, 2])
    wide = 2 * draw.randint(1, widest // 2)
    widths = (
        wide,
        draw.choice([wide, wide, wide, wide + 1]),
        draw.choice([wide, draw.randint(1, widest)]),
    )
    made, names = parts(draw, heads, widths)
    # it encodes queries, keys and values alike
    if overrides(made.position, "encode_values", Position):
        widths = (wide, wide, wide)
    batch, (queries, keys) = draw.choice([1, 2, 2, 3]), lengths(draw, largest)
    sizes = (batch, heads, queries, keys)
    allowed = [
        name
        for name in [*masks.table.names(), "where"]
        if name != "shifted-windows" or queries == keys
    ]
    if queries > keys:
        allowed = [
            name
            for name in allowed
            if name in masks.table and not masks.table[name].compares_positions
        ]
    mask, means = combined(draw, sizes, allowed)
    at = draw_positions(draw, made, sizes)
    place = draw.random()
    if place < 0.15:
        made.mask, mask = mask, None
    elif place < 0.25:
        mask = mask.prepare(*sizes)
    elif place < 0.35:
        mask, means = None, (lambda b, h, i, j: True)
    scale, dtype = draw.choice([0.3, 1.0, 1.0, 3.0]), draw.choice(dtypes)
    q, k, v = (
        torch.randn(batch, h, n, w)
        for h, n, w in zip((heads, shared, shared), (queries, keys, keys), widths, strict=True)
    )
    q, k, v = (laid_out(draw, (s * x).to(dtype)) for s, x in ((scale, q), (scale, k), (1.0, v)))
    sizes_of_blocks = draw.choice([blocked.BLOCK_SIZES, (draw.choice([2, 5, 16]),)])
    made = made.to(dtype)
    return Case(
        seed, made, q, k, v, mask, means, at, names, draw.random() < 0.75, scale, sizes_of_blocks
    )


def able(case: Case, grad: bool) -> list[str]:
    """The backends that do not refuse a call, whose gradients are asked for or not."""
    with torch.set_grad_enabled(grad):
        q, k, v = (x.detach().requires_grad_(grad) for x in (case.q, case.k, case.v))
        call = build_call(q, k, v, case.made, case.mask, case.at, 0.0)
        return [name for name, backend in backends.all_named() if backend.refuses(call) is None]


@contextmanager
def size_of_blocks(sizes: tuple[int, ...]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked, "BLOCK_SIZES", sizes)
        yield


def distance(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖ / ‖expected‖, of all numbers; NaN and infinity where they are expected count as equal."""
    one, two = found.detach().double(), expected.detach().double()
    same = (one == two) | (one.isnan() & two.isnan())
    apart = torch.where(same, 0.0, one - two).norm()
    return float(
        apart / two.nan_to_num(0, 0, 0).norm().clamp_min(1e-2 * math.sqrt(max(two.numel(), 1)))
    )


def run(case: Case, backend: str | None, grad: bool) -> list[Tensor]:
    """The output, and the gradients of q, k, v and of all parameters where they are asked for."""
    q, k, v = (
        x.detach().clone(memory_format=torch.preserve_format).requires_grad_(grad)
        for x in (case.q, case.k, case.v)
    )
    with torch.set_grad_enabled(grad):
        output = attend(q, k, v, case.made, case.mask, case.at, backend=backend)
    if not grad:
        return [output]
    pull = torch.randn(output.shape, generator=torch.Generator().manual_seed(case.seed)).to(output)
    inputs = [q, k, v, *case.made.parameters()]
    return [output, *torch.autograd.grad(output, inputs, pull, materialize_grads=True)]


def compare(case: Case, names: Sequence[str | None], slack: float = 1.0) -> None:
    """Each backend is as near to float64 as `eager` in the same type is, or as the type lets it be, times `slack`."""
    dtype = case.q.dtype
    equal = dtype in (torch.bfloat16, torch.float16) or case.names[0] == "soft-capped"
    jumps = equal and any(name in str(case) for name in JUMPS)
    device = case.q.device
    exact = run(case.to(torch.float64, device), "eager", case.grad)
    case = case.to(dtype, device)
    plain = run(case, "eager", case.grad)
    for name in names:
        found = run(case, name, case.grad)
        assert found[0].dtype == dtype, name
        assert found[0].shape == (*case.q.shape[:3], case.v.shape[3]), name
        for n, (one, near, wanted) in enumerate(zip(found, plain, exact, strict=True)):
            what = f"{name}: {f'gradient {n}' if n else 'output'}"
            assert torch.isfinite(one).all(), f"{what} is not finite"
            if jumps:
                continue
            most = max(slack * TOLERANCE[dtype] * (10 if n else 1), 4 * distance(near, wanted))
            assert distance(one, wanted) <= most, (
                f"{what} is {distance(one, wanted):.2g} off, eager {distance(near, wanted):.2g}"
            )
            assert n or name != "eager" or distance(one, wanted) < 0.15, (
                f"{what} is {distance(one, wanted):.2g} off"
            )
