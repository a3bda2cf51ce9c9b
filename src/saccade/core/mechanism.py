"""A mechanism says what is computed: four parts.

weights = normalize( bend( score( turn(q), turn(k) ) ), mask )        output = weights @ v
"""

from __future__ import annotations

from torch import Tensor, nn

from ..errors import SaccadeError
from .masks import Full, Mask
from .normalizers import Normalizer, Softmax, Sum
from .places import in_line
from .positions import NoPosition, Position
from .scores import ScaledDot, Score


class Keys:
    """Keys made ready for a mechanism once, to be attended to many times: turned and projected."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Mechanism(nn.Module):
    """Score × normalizer × mask × position; by default scaled dot-product attention with a softmax."""

    def __init__(
        self,
        score: Score | None = None,
        normalize: Normalizer | None = None,
        mask: Mask | None = None,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        given = (
            (score, Score, "score"),
            (normalize, Normalizer, "normalizer"),
            (mask, Mask, "mask"),
            (position, Position, "position"),
        )
        for part, kind, name in given:
            if part is not None and not isinstance(part, kind):
                raise SaccadeError(
                    f"{part!r} is no {name}; hand in a built one, such as saccade.core.{name}s' classes, not a name"
                )
        self.score = ScaledDot() if score is None else score
        self.normalize = Softmax() if normalize is None else normalize
        self.mask = Full() if mask is None else mask
        self.position = NoPosition() if position is None else position
        if isinstance(self.normalize, Sum) and (not self.score.kernel or self.position.bends):
            raise SaccadeError(
                "the normalizer `sum` divides by the sum of scores that are never negative: it goes with a kernel score such as elu-kernel "
                "and with no position that bends scores; use softmax for others"
            )

    def keys(self, k: Tensor, at: Tensor | None = None) -> Keys:
        """k (B H K D) turned to its places (0, 1, 2 … when not given) and projected: `attend` takes it in place of k."""
        return Keys(self.score.key(self.position.turn(k, standing(k, at)) if self.position.turns else k))

    def values(self, v: Tensor, at: Tensor | None = None) -> Tensor:
        """v (B H K E) made ready to go with such keys."""
        return self.position.turn_values(v, standing(v, at)) if self.position.turns else v

    def extra_repr(self) -> str:
        return f"normalize={self.normalize!r}, mask={self.mask!r}"


def standing(x: Tensor, at: Tensor | None) -> Tensor:
    """The places of x's rows: 0, 1, 2 … when not given."""
    return in_line(0, x.shape[-2], x.device) if at is None else at
