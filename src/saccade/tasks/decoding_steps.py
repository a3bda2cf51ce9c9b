"""How a translation comes about: the candidates of each step, and the probability of a given output token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..data.batches import on, pad
from ..data.pairs import Pair
from ..decoding import MakeSearch, searcher
from ..decoding.search_trace import trace_search
from ..errors import SaccadeError
from ..views.step_answers import Candidate, Scored, ScoredToken, Step, Steps
from .attention_sites import attends
from .task import device_of, one_text

if TYPE_CHECKING:
    from .translation import Translation

MOST_CANDIDATES = 1000


def steps(
    task: Translation,
    model: nn.Module,
    text: str,
    beam: int = 1,
    candidates: int = 5,
    search: MakeSearch | None = None,
    max_length: int | None = None,
) -> Steps:
    """The translation of a text and what it was chosen from: at each step every beginning that the search had, with the likeliest
    `candidates` to follow it. `search` instead of a beam: one of `searcher`'s."""
    one_text(text)
    if not 1 <= candidates <= MOST_CANDIDATES:
        raise SaccadeError(
            f"expected 1 to {MOST_CANDIDATES:,} candidates, got {candidates}; choose a number between them",
            code="candidates-range",
        )
    words = task.target
    ids = [*task.source.encode_ids([text])[0], task.source.eos]
    source, lengths = on(device_of(model), *pad([ids], task.source.pad))
    made = (search or searcher(beam))(
        words.bos, words.eos, tuple({words.pad, words.bos} - {words.eos})
    )
    limit = max_length or task.lengths.limit(len(ids))
    found = trace_search(model.eval(), source, lengths, made, limit, candidates)  # type: ignore[arg-type]

    def spelled(number: int, one: Any) -> Step:
        names = [*zip(words.labels(one.tokens), one.tokens, one.log_probs, strict=True)]
        each = (
            Candidate(name, float(torch.tensor(value).exp()), id in one.taken)
            for name, id, value in names
        )
        return Step(number, words.decode(one.prefix, keep_unknown=True), one.log_prob, tuple(each))

    [[best, *_]] = made.results()
    every = tuple(spelled(number, one) for number, step in enumerate(found, 1) for one in step)
    return Steps(words.decode(best.tokens, keep_unknown=True), best.log_prob, every, text)


@torch.no_grad()
def score(task: Translation, model: nn.Module, source: str, target: str) -> Scored:
    """How likely the model finds a given translation: p of each token after those before it, its rank, what the model would rather
    have said, and the source word it looks at; the alignment too, where the model attends."""
    pair, words = Pair(one_text(source), target), task.target
    model.eval()
    batch = task.batch(task.numbers([pair]), device_of(model))
    log_probs = model(*batch.inputs)[0].float().log_softmax(-1)
    wanted = batch.target[0]
    chosen = log_probs.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    ranks = (log_probs > chosen.unsqueeze(-1)).sum(-1) + 1
    best = log_probs.max(-1)
    aligned = task.align(model, [pair])[0] if attends(model) else None
    looked: list[str | None] = [None] * len(wanted)
    if aligned is not None:
        pieces = [*aligned.source.pieces, "<eos>"]
        looked = [pieces[at] for at in aligned.weights.argmax(-1).tolist()]
    names = words.labels([*wanted.tolist()[:-1], words.eos])
    columns = zip(
        names,
        chosen.tolist(),
        ranks.tolist(),
        words.labels(best.indices.tolist()),
        best.values.exp().tolist(),
        looked,
        strict=True,
    )
    tokens = tuple(ScoredToken(*row) for row in columns)
    return Scored(source, target, tokens, () if aligned is None else tuple(aligned.links))
