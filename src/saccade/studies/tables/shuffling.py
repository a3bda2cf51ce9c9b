"""A trained decoder whose memory, or whose source, is shuffled: what changes? B batch, N source positions, T target positions, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from ... import api
from ...core import State
from ...experiments.runner import Context, train
from ...experiments.study import Column, Job, Values
from .lecture_claims import RECURRENT, TRANSFORMER, Claim

TEXTS = {"tiny": 20, "small": 60}  # that are shuffled


class Shuffle(Claim):
    """Attention reads an unordered set: shuffled memories give the same outputs, and what reads in order does not."""

    name, main = "shuffle", "shuffle"
    drawn = ("same_memory", "same_source")
    variants: ClassVar[Mapping[str, Values]] = {
        "bahdanau": {"family": "bahdanau"},
        "luong": {"family": "luong"},
        "luong-local": {"family": "luong", "window": {"name": "predicted", "reach": 3}},
        "transformer": {},
        "transformer-no-position": {"position_embedding": "none"},
        "convs2s": {"family": "convs2s", "depth": 2},
    }
    columns = (
        Column("same_memory", "same translation, memory shuffled (%)", 1),
        Column("difference_memory", "largest difference of log p", None),
        Column("same_source", "same translation, source shuffled (%)", 1),
        Column("difference_source", "largest difference of log p there", None),
        Column("bleu", "BLEU", 1, stage="train"),
        Column("final_loss", "final loss", 3, stage="train"),
    )
    honest = (
        "A fact about layers, found on trained models: how they were trained changes nothing about it, and a difference of about 1e-5 is the "
        "rounding of 32 bits. With a memory shuffled, a decoder reads what the encoder made of the words in their order; with a source "
        "shuffled, the encoder reads the words themselves in another order."
    )

    def model(self, row: str) -> Values:
        changed = self.variants[row]
        if "family" not in changed:
            return {**TRANSFORMER[self.scale], **changed}
        return {**RECURRENT[self.scale], **changed}

    def rows(self) -> dict[str, str]:
        how = {
            "bahdanau": "bahdanau (recurrent reader)",
            "luong": "luong (recurrent reader)",
            "luong-local": "luong, local window",
            "transformer": "transformer",
            "transformer-no-position": "transformer without positions",
            "convs2s": "convs2s (convolutional reader)",
        }
        return {row: how[row] for row in self.variants}

    def jobs(self, row: str, seeds: int) -> list[Job]:
        found = list[Job]()
        for seed in range(seeds):
            first = Job(row, "train", seed, train, self.translator(self.model(row)), self.out)
            asked = {"texts": TEXTS[self.scale]}
            found += [first, Job(row, "shuffle", seed, compare_shuffled, asked, self.out, (first,))]
        return found


@contextmanager
def shuffled_memory(model: Any, order: Tensor) -> Iterator[None]:
    """Within the `with`, what a decoder reads of each source position is elsewhere: position n has what belongs to order[n]."""

    def moved(made: Any) -> Any:
        if isinstance(made, State):  # keys and values that are ready, B 1 N D
            return made.next(
                keys=[key[:, :, order] for key in made.keys], value=made.value[:, :, order]
            )
        if isinstance(made, tuple):  # the memory and a last state, which stays
            return moved(made[0]), *made[1:]
        return made[:, order]

    if hasattr(model, "encode"):
        plain = model.encode
        model.encode = lambda *given: moved(plain(*given))
        undo: Callable[[], None] = lambda: delattr(model, "encode")
    else:
        undo = model.encoder.register_forward_hook(lambda module, given, made: moved(made)).remove
    try:
        yield
    finally:
        undo()


@torch.no_grad()
def compare_shuffled(job: Job, context: Context) -> Values:
    """How many translations stay what they are when the memory, or the source, is shuffled, and by how much log p differs at most."""
    system = api.load(job.after[0].folder, "cpu")
    model: Any = system.model
    generator = torch.Generator().manual_seed(job.seed)
    same, largest = {"memory": 0, "source": 0}, {"memory": 0.0, "source": 0.0}
    pairs = system.read("test")[: job.settings["texts"]]
    for pair in pairs:
        batch = system.task.batch(system.task.numbers([pair]), torch.device("cpu"))
        source, lengths, target = batch.inputs
        order = torch.randperm(source.shape[1], generator=generator)
        words = pair.source.split()
        moved = " ".join(words[n] for n in torch.randperm(len(words), generator=generator).tolist())
        plain = system.translate(pair.source).text
        log_p = model(source, lengths, target).log_softmax(-1)
        with shuffled_memory(model, order):
            same["memory"] += system.translate(pair.source).text == plain
            largest["memory"] = max(largest["memory"], apart(log_p, model(source, lengths, target)))
        same["source"] += system.translate(moved).text == plain
        largest["source"] = max(
            largest["source"], apart(log_p, model(source[:, order], lengths, target))
        )
    shares = {f"same_{what}": 100 * count / len(pairs) for what, count in same.items()}
    return {**shares, **{f"difference_{what}": value for what, value in largest.items()}}


def apart(log_p: Tensor, logits: Tensor) -> float:
    """The largest difference of log p where it is not negligible (p above 10⁻⁶ in either)."""
    other = logits.log_softmax(-1)
    counts = torch.maximum(log_p, other) > -13.8
    return float((log_p - other).abs()[counts].max())
