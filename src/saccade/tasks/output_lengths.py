"""How long an output may become: as long as the targets of the training data, which a model folder keeps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import SaccadeError

MOST = 100_000  # tokens


@dataclass(frozen=True)
class OutputLengths:
    """The most target tokens per source token, and the most tokens of a target, that the training data has; 0 where none was read."""

    ratio: float = 0.0
    longest: int = 0

    def __post_init__(self) -> None:
        # as no training writes them
        if not (0 <= self.ratio <= MOST and 0 <= self.longest <= MOST):
            raise TypeError(f"lengths beyond {MOST:,}")

    @classmethod
    def measure(cls, sizes: Sequence[tuple[int, int]]) -> "OutputLengths":
        """Of the sizes of sources and targets."""
        ratio = max((target / source for source, target in sizes), default=0.0)
        return cls(
            round(min(ratio, MOST), 4), min(max((target for _, target in sizes), default=0), MOST)
        )

    def limit(self, source: int) -> int:
        """For a source of so many tokens: as long as in the training data, and twice the source and ten at least."""
        return max(2 * source + 10, min(math.ceil(self.ratio * source) + 10, self.longest))


def check_length(most: int) -> None:
    if not 1 <= most <= MOST:
        raise SaccadeError(f"a max_length of {most} tokens; give 1 to {MOST:,}")
