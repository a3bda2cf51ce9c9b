"""Whether two recipes differ by more than chance, from what their metrics add up from: S seeds × N examples × K statistics; how well
two orders of rows agree."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.float64]
Score = Callable[[Any], float]
LEVEL, SAMPLES = 0.05, 1000
EXACT = 12  # examples up to which every swap is counted


@dataclass(frozen=True)
class Difference:
    """The metric of a minus that of b, its 95 % interval, and the probability of so large a difference by chance alone: the larger
    one of two tests, so that a difference is called clear only where both find it."""

    difference: float
    low: float
    high: float
    p: float
    p_permutation: float
    p_bootstrap: float


def measure_difference(a: Sums, b: Sums, score: Score, comparisons: int = 1) -> Difference:
    """Compares means over seeds; p is multiplied by the number of comparisons that are made (Bonferroni)."""
    real, drawn = mean_score(a.sum(1), score) - mean_score(b.sum(1), score), bootstrap(a, b, score)
    by_permutation = permutation(a, b, score)
    by_bootstrap = share_above(np.abs(drawn - drawn.mean()), abs(real))
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist()
    return Difference(
        real,
        low,
        high,
        min(1.0, comparisons * max(by_permutation, by_bootstrap)),
        by_permutation,
        by_bootstrap,
    )


def mean_score(totals: Sums, score: Score) -> float:
    """The mean over seeds of the metric; S K."""
    return float(np.mean([score(total) for total in totals]))


def share_above(drawn: Sums, real: float) -> float:
    """How often chance gives at least the real value, which counts as one of the draws."""
    return (int((drawn >= real - 1e-9).sum()) + 1) / (len(drawn) + 1)


def permutation(a: Sums, b: Sums, score: Score) -> float:
    """p of a paired approximate randomization test (Noreen 1989): each example, of all seeds at once, is swapped between a and b or not."""
    chance, count, of_a, of_b = np.random.default_rng(12345), a.shape[1], a.sum(1), b.sum(1)
    # without the one that swaps nothing
    exact = list(itertools.product((0, 1), repeat=count))[1:] if count <= EXACT else None
    gaps = []
    for swap in (
        exact if exact is not None else (chance.integers(2, size=count) for _ in range(SAMPLES))
    ):
        moved = np.tensordot(np.asarray(swap, dtype=np.float64), b - a, (0, 1))
        gaps.append(abs(mean_score(of_a + moved, score) - mean_score(of_b - moved, score)))
    return share_above(np.array(gaps), abs(mean_score(of_a, score) - mean_score(of_b, score)))


def bootstrap(a: Sums, b: Sums, score: Score) -> Sums:
    """Differences on resampled data: the same examples are drawn for a and b (Koehn 2004), and of S seeds S − 1 of each, because with
    all S the variance over the seeds would be underestimated (Rao & Wu 1988)."""
    chance, of_seeds = np.random.default_rng(12345), np.random.default_rng(54321)
    (seeds, count, _) = a.shape
    found = []
    for _ in range(SAMPLES):
        times = np.bincount(chance.integers(count, size=count), minlength=count).astype(np.float64)
        ours, theirs = (
            np.array([score(total) for total in np.tensordot(times, each, (0, 1))])
            for each in (a, b)
        )
        chosen = of_seeds.integers(seeds, size=(2, max(seeds - 1, 1)))
        found.append(ours[chosen[0]].mean() - theirs[chosen[1]].mean())
    return np.array(found)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's: the correlation of the ranks, equal values sharing their mean rank; None where all of one are equal."""
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else None


def ranks(values: Sequence[float]) -> Any:
    array = np.asarray(values, dtype=np.float64)
    below, upto = ((array[:, None] > array).sum(1), (array[:, None] >= array).sum(1))
    return (below + 1 + upto) / 2


@dataclass(frozen=True)
class Agreement:
    """Spearman's rank correlation of two columns and its 95 % interval on resampled rows and seeds."""

    correlation: float
    low: float
    high: float
    rows: int

    def __str__(self) -> str:
        return f"{self.correlation:+.2f} (95 % interval {self.low:+.2f} to {self.high:+.2f}, {self.rows} rows)"


def rank_agreement(
    first: Sequence[float | Sequence[float]], second: Sequence[float]
) -> Agreement | None:
    """`first` has a number, or one per seed, for each row: rows are resampled, and the seeds of each. None where all of one are equal;
    draws of which that is true are left out."""
    seeds = [np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in first]
    if (correlation := rank_correlation([float(one.mean()) for one in seeds], second)) is None:
        return None
    chance, theirs, found = np.random.default_rng(12345), np.asarray(second), []
    for _ in range(SAMPLES):
        rows = chance.integers(len(seeds), size=len(seeds))
        # see `bootstrap`
        ours = [
            float(chance.choice(seeds[row], max(len(seeds[row]) - 1, 1)).mean()) for row in rows
        ]
        if (value := rank_correlation(ours, theirs[rows].tolist())) is not None:
            found.append(value)
    low, high = np.percentile(found, [2.5, 97.5]).tolist()
    return Agreement(correlation, low, high, len(seeds))
