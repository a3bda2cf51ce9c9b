"""Traces a search: the candidates of each step. V vocabulary, W beam width."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..models.protocols import Decodable
from .searches import Beam, Sample, Search, largest
from .session import PlainSession


class Choices(NamedTuple):
    """The candidates after one prefix: its tokens and log-probability, the likeliest next tokens, and the chosen ones."""

    prefix: list[int]
    log_prob: float
    tokens: list[int]
    log_probs: list[float]
    taken: set[int]


@torch.inference_mode()
def trace_search(
    model: Decodable, source: Tensor, lengths: Tensor, search: Search, limit: int, count: int
) -> list[list[Choices]]:
    """Decodes one source (1 N) greedily, by sampling or with a beam. Returns the prefixes of each step, best first."""
    session, every = PlainSession(model, source, lengths), list[list[Choices]]()
    rows = search.begin([limit], source.device)
    while search.active:
        if rows is not None:
            session.reorder(rows)
        before = beginnings(search)
        log_probs = session.step(search.tokens).float().log_softmax(-1)
        allowed = search.without_never(log_probs.clone())
        rows = search.advance(log_probs)
        taken = choices(search, rows, before)
        step = []
        for row, (prefix, log_prob) in enumerate(before):
            if log_prob == float("-inf"):
                continue  # a beam starts with one prefix
            values, tokens = largest(allowed[row : row + 1], min(count, allowed.shape[-1]))
            shown = [
                (token, value)
                for token, value in zip(tokens[0].tolist(), values[0].tolist(), strict=True)
                if value > float("-inf")
            ]
            shown += [
                (token, float(allowed[row, token]))
                for token in sorted(taken[row] - {token for token, _ in shown})
            ]
            step.append(
                Choices(
                    prefix,
                    log_prob,
                    [token for token, _ in shown],
                    [value for _, value in shown],
                    taken[row],
                )
            )
        every.append(step)
    return every


def beginnings(search: Search) -> list[tuple[list[int], float]]:
    """The current prefixes of a search with their log-probabilities."""
    if isinstance(search, Beam):
        return list(zip(search.prefixes[0].tolist(), search.scores[0].tolist(), strict=True))
    assert isinstance(search, Sample)
    return [(list(search.outputs[0]), search.log_probs[0])]


def choices(
    search: Search, rows: Tensor | None, before: list[tuple[list[int], float]]
) -> list[set[int]]:
    """The tokens that continue or end each prefix in the last step."""
    taken: list[set[int]] = [set() for _ in before]
    if isinstance(search, Beam):
        going = (
            []
            if rows is None
            else zip(
                rows.tolist(), search.tokens.tolist(), search.scores.flatten().tolist(), strict=True
            )
        )
        for parent, token, score in going:
            if score > float("-inf"):
                taken[parent].add(token)
        for row, (prefix, _) in enumerate(before):
            if any(one.finished and one.tokens == prefix for one in search.ended[0]):
                taken[row].add(search.eos)
        return taken
    assert isinstance(search, Sample)
    taken[0].add(search.eos if search.finished[0] else search.outputs[0][-1])
    return taken
