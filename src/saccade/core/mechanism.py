"""A mechanism defines what is computed, by four parts.

weights = normalize( score( encode(q), encode(k) ) + bias, mask )        output = weights @ v
"""

from dataclasses import dataclass

from torch import Tensor, nn

from ..errors import SaccadeError
from ..settings import inner
from .masks import Full, Mask
from .normalizers import Normalizer, Softmax
from .positions import NoPosition, Position, Positions
from .scores import ScaledDot, Score


@dataclass(frozen=True, eq=False, slots=True)
class Ready:
    """Prepared keys (B H' K A, encoded and projected) and values (B H' K E), reusable for many queries."""

    key: Tensor
    value: Tensor


class Mechanism(nn.Module):
    """Score × normalizer × mask × position; by default scaled dot-product attention with a softmax.

    Args:
        score: Compares queries with keys (`saccade.scores`).
        normalize: Turns a row of scores into weights (`saccade.normalizers`).
        mask: Which queries may attend to which keys (`saccade.masks`). Combined with the mask of each call.
        position: How positions change queries, keys, values or scores (`saccade.positions`).

    >>> import torch
    >>> from saccade import Mechanism, attend, masks, normalizers, positions
    >>> mechanism = Mechanism(normalize=normalizers.Sparsemax(), mask=masks.causal(), position=positions.Rotary())
    >>> q = k = v = torch.randn(2, 4, 10, 16)
    >>> attend(q, k, v, mechanism).shape
    torch.Size([2, 4, 10, 16])
    """

    score: Score = inner()
    normalize: Normalizer = inner()
    position: Position = inner()

    def __init__(
        self,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        mask: Mask | None = None,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        for part, kind in (
            (score, Score),
            (normalize, Normalizer),
            (mask, Mask),
            (position, Position),
        ):
            if part is not None and not isinstance(part, kind):
                name = kind.__name__
                raise SaccadeError(
                    f"expected a {name} object, got {part!r}; build one from saccade.core.{name.lower()}s",
                    code="wrong-kind-of-part",
                )
        self.score = ScaledDot() if score is None else score
        self.normalize = Softmax() if normalize is None else normalize
        self.mask = Full() if mask is None else mask
        self.position = NoPosition() if position is None else position
        mismatch = self.normalize.mismatch(self.score, self.position)
        if mismatch is not None:
            raise SaccadeError(mismatch, code="parts-do-not-combine")

    @property
    def uses_positions(self) -> bool:
        position = self.position
        return type(position) is not NoPosition and (
            position.encodes or position.biases or position.adds_values
        )

    def prepare(
        self, k: Tensor, v: Tensor, positions: Positions | None = None, heads: int | None = None
    ) -> Ready:
        """Encodes and projects keys, and encodes values.

        Args:
            k: Keys, B H' K D.
            v: Values, B H' K E.
            positions: Positions of the keys, 0, 1, 2 … by default.
            heads: Number of query heads, if it exceeds H'.
        """
        score, position = self.score, self.position
        if heads is not None and k.shape[1] != heads and next(score.parameters(), None) is not None:
            k = k.repeat_interleave(heads // k.shape[1], 1)
        if type(position) is not NoPosition and position.encodes:
            positions = (
                Positions.line(k.shape[-2], k.shape[-2], k.device)
                if positions is None
                else positions
            )
            k = position.encode(k, positions.j, positions)
            v = position.encode_values(v, positions.j, positions)
        return Ready(score.key(k), v)

    def extra_repr(self) -> str:
        return f"mask={self.mask!r}"
