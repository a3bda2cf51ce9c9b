"""Attention over very long sequences in chunks of queries, since all scores or a dense mask would not fit the memory."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .backends import Call, blocked, run
from .masks import Causal, Full, Mask
from .mechanism import Mechanism, Ready
from .positions import Positions

# Numbers of scores above which a call is chunked, and numbers per chunk.
MAX_UNCHUNKED_NUMBERS, CHUNK_NUMBERS = (2**26, 2**23)


class Shifted(Mask):
    """A mask for a range of queries, whose last one is `back` positions before the last key."""

    def __init__(self, inner: Mask, back: int) -> None:
        self.inner, self.back, self.compares_positions = inner, back, inner.compares_positions
        self.computed = inner.computed

    def given(self, query: Tensor, key: Tensor) -> Mask:
        if not self.inner.computed:
            return self
        # Padding keeps the queries at their positions.
        pad = nn.functional.pad(query, (0, 0, 0, self.back))
        return Shifted(self.inner.given(pad, key), self.back)

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.inner(b, h, i - self.back, j)


def is_huge(call: Call) -> bool:
    """Whether a call without gradients on a CPU needs chunks to save memory."""
    if (
        torch.is_grad_enabled()
        or not call.query.is_cpu
        or math.prod(call.sizes) * numbers_per_score(call) <= MAX_UNCHUNKED_NUMBERS
    ):
        return False
    mask = call.mask.mask
    fused = call.score.dot and type(mask) in (Full, Causal) and call.positions is None
    return not (
        fused or call.dropout or call.score.kernel or mask.computed or blocked.pays_off(call)
    )


def numbers_per_score(call: Call) -> int:
    """Numbers per score during computation. Scores other than dot products may need a vector per pair."""
    return 1 if call.score.dot else call.key.shape[-1]


def attend_in_chunks(
    call: Call,
    call_of: Callable[..., Call],
    ready: Ready,
    mechanism: Mechanism,
    positions: Positions | None,
) -> Tensor:
    """The output of a call, computed in chunks of queries. `call_of` builds the call of a chunk."""
    (batch, heads, queries, keys), mask = call.sizes, call.mask.mask
    plain = Mechanism(mechanism.score, mechanism.normalize, None, mechanism.position)
    step = max(1, CHUNK_NUMBERS // (batch * heads * keys * numbers_per_score(call)))
    found = []
    for start in range(0, queries, step):
        cut = slice(start, min(start + step, queries))
        at = (positions or Positions.line(queries, keys, call.q.device)).rows(cut)
        found.append(
            run(
                call_of(call.q[:, :, cut], ready, plain, Shifted(mask, queries - cut.stop), at, 0.0)
            )
        )
    return torch.cat(found, 2)
