"""A mechanism says what is computed: four parts.

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
    """Keys (B H' K A, encoded and projected) and values (B H' K E) that a mechanism has prepared, to be attended to many times."""

    key: Tensor
    value: Tensor


class Mechanism(nn.Module):
    """Score × normalizer × mask × position; by default scaled dot-product attention with a softmax.

    score: compares queries with keys (`saccade.scores`).
    normalize: makes weights of a row of scores (`saccade.normalizers`).
    mask: which queries may attend to which keys (`saccade.masks`); combined with the mask of each call.
    position: what positions do to queries, keys, values or scores (`saccade.positions`).

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
                    f"expected a {name} object, got {part!r}; build one from saccade.core.{name.lower()}s"
                )
        self.score = ScaledDot() if score is None else score
        self.normalize = Softmax() if normalize is None else normalize
        self.mask = Full() if mask is None else mask
        self.position = NoPosition() if position is None else position
        mismatch = self.normalize.mismatch(self.score, self.position)
        if mismatch is not None:
            raise SaccadeError(mismatch)

    @property
    def uses_positions(self) -> bool:
        position = self.position
        return type(position) is not NoPosition and (
            position.encodes or position.biases or position.adds_values
        )

    def prepare(
        self, k: Tensor, v: Tensor, positions: Positions | None = None, heads: int | None = None
    ) -> Ready:
        """k (B H' K D) encoded and projected, v (B H' K E) encoded, at 0, 1, 2 … by default; `heads`: those of the queries, where more."""
        score, position = self.score, self.position
        if heads is not None and k.shape[1] != heads and next(score.parameters(), None) is not None:
            k = k.repeat_interleave(heads // k.shape[1], 1)
        if type(position) is not NoPosition and position.encodes:
            positions = (
                Positions.line(k.shape[-2], k.shape[-2], k.device)
                if positions is None
                else positions
            )
            k, v = (
                position.encode(k, positions.j, positions),
                position.encode_values(v, positions.j, positions),
            )
        return Ready(score.key(k), v)

    def extra_repr(self) -> str:
        return f"mask={self.mask!r}"
