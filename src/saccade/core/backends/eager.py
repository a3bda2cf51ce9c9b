"""The definition: scores, bend, normalize, sum; a few plain lines that hold B H Q K numbers."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from .problem import Backend, Problem, repeat_heads, table


def weights(problem: Problem) -> Tensor:
    """normalize( bend( score ) , mask ): B H Q K"""
    key = repeat_heads(problem.key, problem.q.shape[1])
    scores = problem.mechanism.score.compare(problem.query, key)
    bend = problem.bend()
    if bend is not None:
        scores = scores + bend.to(scores.dtype)
    return problem.mechanism.normalize(scores, problem.allowed())


class Eager(Backend):
    """Runs every mechanism."""

    def refuses(self, problem: Problem) -> str | None:
        return None

    def rank(self, problem: Problem) -> int:
        return 100

    def run(self, problem: Problem) -> Tensor:
        w = weights(problem)
        if problem.dropout:
            w = F.dropout(w, problem.dropout)
        output = w.to(problem.v.dtype) @ repeat_heads(problem.v, problem.q.shape[1])
        if problem.places is None:
            return output
        added = problem.mechanism.position.values(w.to(problem.v.dtype), problem.places)
        return output if added is None else output + added


definition: Backend = table.add("eager")(Eager())
