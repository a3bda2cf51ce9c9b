"""The check: each move is tried on a layer, in float64, and what it makes of both inputs is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...config.catalogue import SLOTS
from ...errors import SaccadeError, did_you_mean
from ...layers.mixers import Mixer
from ...models.protocols import AttendingEncoder, Encoder
from .moves import BATCH, SYMMETRIES, TOLERANCE, Field, Move, Symmetry
from .subjects import SUBJECTS, Subject, mixer_subject, takes_edges

MOVES_PER_SYMMETRY = 2  # moves of each symmetry that are tried


@dataclass(frozen=True)
class Verdict:
    """The result for one symmetry: the largest difference as a share of the largest output, None if it does not apply to the layer."""

    symmetry: str
    error: float | None
    pooled: bool

    @property
    def holds(self) -> bool:
        return self.error is not None and self.error <= TOLERANCE

    @property
    def word(self) -> str:
        if self.error is None:
            return "–"
        return ("invariant" if self.pooled else "equivariant") if self.holds else "no"


@dataclass(frozen=True)
class Row:
    """One layer and its verdicts."""

    slot: str
    name: str
    verdicts: tuple[Verdict, ...]

    def __getitem__(self, symmetry: str) -> Verdict:
        return next(one for one in self.verdicts if one.symmetry == symmetry)

    def to_dict(self) -> dict[str, Any]:
        found = {
            one.symmetry: {"holds": None if one.error is None else one.holds, "error": one.error}
            for one in self.verdicts
        }
        return {"slot": self.slot, "name": self.name, "tolerance": TOLERANCE, "symmetries": found}


def outputs(subject: Subject, move: Move) -> tuple[Tensor, Tensor]:
    """The outputs that must be equal: those of corresponding positions, or the pooled outputs."""
    before, after = subject.run(move.before), subject.run(move.after)
    if subject.pooled:
        return before, after
    return before[:, move.of_before], after[:, move.of_after]


@torch.no_grad()
def error_of(subject: Subject, symmetry: Symmetry) -> float | None:
    """The largest difference over a few moves, as a share of the largest output."""
    if (
        (symmetry.on_edges and not subject.edges)
        or (subject.grid and not symmetry.on_grid)
        or (symmetry.on_mesh and not subject.mesh)
    ):
        return None
    generator, worst = torch.Generator().manual_seed(1), 0.0
    for number in range(MOVES_PER_SYMMETRY):
        move = symmetry.draw(subject.make, generator, subject.pooled, number)
        if subject.mesh and (move.before.mesh is None or move.after.mesh is None):
            return None
        wanted, found = outputs(subject, move)
        share = (wanted - found).abs().max() / wanted.abs().max().clamp_min(1e-300)
        worst = max(worst, float(share))
    return worst


def check_subject(slot: str, name: str, subject: Subject) -> Row:
    verdicts = (Verdict(one.name, error_of(subject, one), subject.pooled) for one in SYMMETRIES)
    return Row(slot, name, tuple(verdicts))


def subject_of(slot: str, name: str) -> Subject:
    """A member of the catalogue as something to run; its parameters are always the same."""
    entry = SLOTS[slot].entry(name)
    torch.manual_seed(0)
    return SUBJECTS[slot](entry)


def check_all(members: Iterable[tuple[str, str]] | None = None) -> Iterator[Row]:
    """The rows of these members (slot, name), or of every layer in the catalogue."""
    every = [(slot, entry.name) for slot in SUBJECTS for entry in SLOTS[slot]]
    with torch.random.fork_rng(devices=[]):
        for slot, name in every if members is None else members:
            yield check_subject(slot, name, subject_of(slot, name))


@torch.no_grad()
def example(slot: str, name: str) -> tuple[dict[str, dict[str, Any]], str, str]:
    """The matrices of a layer's drawing: input and output before a move, after it, and the moved output; a title and a note."""
    subject = subject_of(slot, name)
    kinds = {"gauge": subject.mesh, "rotation": subject.grid, "relabeling": subject.edges}
    kind = next((name for name, fits in kinds.items() if fits), "permutation")
    symmetry = next(one for one in SYMMETRIES if one.name == kind)
    move = symmetry.draw(subject.make, torch.Generator().manual_seed(1), subject.pooled, 0)
    rows_of: Callable[[Tensor], Any] = lambda x: x[0].reshape(-1, x.shape[-1]).double().numpy()
    if subject.grid:  # the first channel as a picture
        rows_of = lambda x: x[0, :, 0].reshape(move.before.grid).double().numpy()
    wanted, found = map(rows_of, outputs(subject, move))
    shown = [rows_of(side.x) for side in (move.before, move.after)]
    edges = [side.edges.double().numpy() for side in (move.before, move.after)]
    made = rows_of(subject.run(move.before))
    names = ("X", "", "F(X)", "gX", "", "F(gX)", "F(X)" if subject.pooled else "g F(X)")
    if subject.edges and not subject.mesh:
        names = ("X", "A", "F(X, A)", "PX", "PAPᵀ", "F(PX, PAPᵀ)", "P F(X, A)")
    drawn = (shown[0], edges[0], made, shown[1], edges[1], found, wanted)
    every = list(zip(names, drawn, strict=True))
    rows = {"before": dict(every[:3]), "after": dict(every[3:6]), "expected": dict(every[6:])}
    worst = float(abs(wanted - found).max() / abs(wanted).max())
    note = (
        f"{symmetry.name}: {symmetry.what} · largest difference {worst:.1e} of the largest output"
    )
    named = {
        when: {what: one for what, one in panels.items() if what} for when, panels in rows.items()
    }
    return named, f"{slot}: {name}", note


def find(what: str) -> list[tuple[str, str]]:
    """The layers by this name: those of a slot, `slot.name`, or members of any slot that are called so."""
    slot, _, name = what.partition(".") if what.partition(".")[0] in SUBJECTS else ("", "", what)
    if slot and not name:
        return [(slot, entry.name) for entry in SLOTS[slot]]
    found = [(each, name) for each in SUBJECTS if name in SLOTS[each] and slot in ("", each)]
    if not found:
        names = {entry.name for each in SUBJECTS for entry in SLOTS[each] if slot in ("", each)}
        near = did_you_mean(name, names | set(SUBJECTS))
        hint = (
            near
            if "did you mean" in near
            else f"; give a layer of `saccade list`, a slot ({', '.join(SUBJECTS)}) or a run folder"
        )
        raise SaccadeError(f"no layer, slot or run named '{what}'{hint}", code="unknown-name")
    return found


def check_model(model: nn.Module, vocab: int) -> Iterator[Row]:
    """The rows of a trained model that reads texts: the whole encoder, and each of its mixers, as they were learned."""
    body = getattr(model, "body", model)
    if not isinstance(body, Encoder) or body.reads != "texts" or vocab < 4:
        wrong = f"expected a model that gives each token of a text a vector, such as a tagger, got {type(body).__name__}"
        raise SaccadeError(
            f"{wrong}; give the name of a layer instead, or a run of tagging or classification",
            code="cannot-check",
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = body.to("cpu", torch.float64).eval()
        yield check_subject("model", type(whole).__name__, of_encoder(whole, vocab))
        for name, part in whole.named_modules():
            if isinstance(part, Mixer):
                mixer = mixer_subject(part, takes_edges(part, body.dim), body.dim)
                yield check_subject("model", name, mixer)


def of_encoder(body: Encoder, vocab: int) -> Subject:
    """An encoder of tokens; with the mask of the input where it attends."""

    def run(field: Field) -> Tensor:
        lengths, more = torch.full((BATCH,), field.size), dict[str, Any]()
        if isinstance(body, AttendingEncoder):
            more["mask"] = field.mask()
            if body.needs_relation:
                more["relation"] = field.edges.expand(BATCH, -1, -1)
                more["depth"] = field.edges[0].expand(BATCH, -1)
        found: Tensor = body(field.x, lengths, **more)
        return found

    if body.embedding.reads_bytes:
        raise SaccadeError(
            "the model reads the bytes of words, and tokens are drawn here; give a model with model.embedding=tokens",
            code="embedding-not-supported",
        )
    draw = lambda n: torch.randint(2, vocab, (BATCH, n))
    return Subject(run, draw, edges=isinstance(body, AttendingEncoder))
