"""Whether two recipes differ by more than chance, from what their metrics add up from: S seeds × N examples × K statistics."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.float64]
Score = Callable[[Any], float]
LEVEL = 0.05
SAMPLES = 1000
EXACT = 12  # examples up to which every swap is counted


@dataclass(frozen=True)
class Difference:
    """The metric of a minus that of b, its 95 % interval, and the probability of so large a difference by chance alone.

    p is the larger one of two tests, so that a difference is called clear only where both find it."""

    difference: float
    low: float
    high: float
    p: float
    p_permutation: float
    p_bootstrap: float


def measure_difference(a: Sums, b: Sums, score: Score, comparisons: int = 1) -> Difference:
    """Compares means over seeds; p is multiplied by the number of comparisons that are made (Bonferroni)."""
    real = mean_score(a.sum(1), score) - mean_score(b.sum(1), score)
    drawn = bootstrap(a, b, score)
    reached = int((np.abs(drawn - drawn.mean()) >= abs(real) - 1e-9).sum())
    low, high = np.percentile(drawn, [2.5, 97.5])
    by_permutation, by_bootstrap = permutation(a, b, score), (reached + 1) / (len(drawn) + 1)
    p = min(1.0, comparisons * max(by_permutation, by_bootstrap))
    return Difference(real, float(low), float(high), p, by_permutation, by_bootstrap)


def mean_score(totals: Sums, score: Score) -> float:
    """The mean over seeds of the metric; S K."""
    return float(np.mean([score(total) for total in totals]))


def permutation(a: Sums, b: Sums, score: Score, seed: int = 12345) -> float:
    """p of a paired approximate randomization test (Noreen 1989): each example, of all seeds at once, is swapped between a and b or not."""
    chance, count = np.random.default_rng(seed), a.shape[1]
    of_a, of_b, apart = a.sum(1), b.sum(1), b - a
    real = abs(mean_score(of_a, score) - mean_score(of_b, score))
    exact = count <= EXACT
    swaps: Iterable[Any] = (
        itertools.product((0, 1), repeat=count) if exact else (chance.integers(2, size=count) for _ in range(SAMPLES))
    )
    reached, tried = 0, 0
    for swap in swaps:
        moved = np.tensordot(np.asarray(swap, dtype=np.float64), apart, (0, 1))
        reached += abs(mean_score(of_a + moved, score) - mean_score(of_b - moved, score)) >= real - 1e-9
        tried += 1
    return reached / tried if exact else (reached + 1) / (tried + 1)


def bootstrap(a: Sums, b: Sums, score: Score, seed: int = 12345) -> Sums:
    """Differences on resampled data: the same examples are drawn for a and b (Koehn 2004), and of S seeds S − 1 of each.

    With one seed fewer the variance over the seeds is not underestimated (Rao & Wu 1988)."""
    chance, of_seeds, (seeds, count, _) = np.random.default_rng(seed), np.random.default_rng(seed + 1), a.shape
    found = []
    for _ in range(SAMPLES):
        times = np.bincount(chance.integers(count, size=count), minlength=count).astype(np.float64)
        scores = [[score(total) for total in np.tensordot(times, each, (0, 1))] for each in (a, b)]
        chosen = of_seeds.integers(seeds, size=(2, max(seeds - 1, 1)))
        found.append(np.mean(np.array(scores[0])[chosen[0]]) - np.mean(np.array(scores[1])[chosen[1]]))
    return np.array(found)
