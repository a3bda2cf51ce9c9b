"""Differences between recipes: against every permutation counted out, against sacrebleu's own tests, and what noise must not prove."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from saccade.experiments import comparison, significance
from saccade.experiments.significance import measure_difference, rank_agreement, rank_correlation
from saccade.tasks.task import percent_of
from saccade.tasks.text_scores import text_sums


def hits(*seeds: str) -> np.ndarray:
    """A string of 1 and 0 for each seed: which examples are right."""
    return np.array([[[int(one), 1] for one in seed] for seed in seeds], dtype=float)


@pytest.mark.parametrize(
    ("a", "b"),
    [("1111", "0000"), ("1101100111", "0101010101"), ("10", "10"), ("111111110", "000000001")],
)
def test_the_permutation_test_counts_every_swap(a: str, b: str) -> None:
    real = abs(a.count("1") - b.count("1"))
    pairs = list(zip(map(int, a), map(int, b), strict=True))
    gaps = [
        abs(sum((x - y) * sign for (x, y), sign in zip(pairs, signs, strict=True)))
        for signs in every(len(a))
    ]
    expected = sum(gap >= real for gap in gaps) / len(gaps)
    assert significance.permutation(hits(a), hits(b), percent_of) == pytest.approx(expected)


def every(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((1, -1), repeat=count))


def test_perplexities_are_swapped_block_by_block() -> None:
    chance = np.random.default_rng(1)
    a, b = (np.stack([chance.uniform(20, 40, 6), chance.integers(8, 12, 6)], 1) for _ in range(2))
    perplexity = lambda total: math.exp(total[0] / total[1])
    real, reached = abs(perplexity(a.sum(0)) - perplexity(b.sum(0))), 0
    for signs in every(6):
        swapped = np.array(signs)[:, None] > 0
        gap = perplexity(np.where(swapped, a, b).sum(0)) - perplexity(
            np.where(swapped, b, a).sum(0)
        )
        reached += abs(gap) >= real - 1e-12
    assert significance.permutation(a[None], b[None], perplexity) == pytest.approx(reached / 64)


def test_a_large_set_is_sampled_and_agrees_with_the_normal_approximation() -> None:
    chance = np.random.default_rng(0)
    a, b = ("".join("01"[x] for x in (chance.random(400) < p).astype(int)) for p in (0.8, 0.74))
    only_a, only_b = (
        sum(x == want and y != want for x, y in zip(a, b, strict=True)) for want in "10"
    )
    z = (abs(only_a - only_b) - 1) / math.sqrt(only_a + only_b)
    mcnemar = math.erfc(z / math.sqrt(2))
    assert significance.permutation(hits(a), hits(b), percent_of) == pytest.approx(
        mcnemar, abs=0.03
    )
    found = measure_difference(hits(a), hits(b), percent_of)
    assert found.difference == pytest.approx((a.count("1") - b.count("1")) / 4)
    assert found.low < found.difference < found.high
    half_width = 1.96 * 100 * math.sqrt(only_a + only_b - (only_a - only_b) ** 2 / 400) / 400
    assert found.high - found.low == pytest.approx(2 * half_width, rel=0.12)


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str], list[str]]:
    chance = np.random.default_rng(3)
    references = [" ".join(chance.choice(list("abcdefgh"), 12)) for _ in range(60)]
    noisy = lambda share: [
        " ".join(w if chance.random() > share else "x" for w in one.split()) for one in references
    ]
    return references, noisy(0.2), noisy(0.25)


@pytest.mark.parametrize(("name", "metric"), [("bleu", sacrebleu.BLEU), ("chrf", sacrebleu.CHRF)])
def test_bleu_and_chrf_agree_with_sacrebleu(
    texts: tuple[list[str], ...], name: str, metric: type
) -> None:
    references, one, other = texts
    (a, score), (b, _) = (text_sums(outputs, references)[name] for outputs in (one, other))
    assert score(a.sum(0)) == pytest.approx(metric().corpus_score(one, [references]).score)
    drawn = significance.bootstrap(a[None], b[None], score)
    by_name = {name: metric()}
    _, theirs = PairedTest(
        [("a", one), ("b", other)], by_name, [references], "bs", n_samples=significance.SAMPLES
    )()
    [result] = [values[1] for key, values in theirs.items() if key != "System"]
    gaps = np.abs(drawn) - np.abs(drawn).mean()
    assert ((gaps > abs(score(a.sum(0)) - score(b.sum(0)))).sum() + 1) / (
        len(gaps) + 1
    ) == pytest.approx(result.p_value, abs=1e-3)
    _, theirs = PairedTest(
        [("a", one), ("b", other)], by_name, [references], "ar", n_samples=significance.SAMPLES
    )()
    [result] = [values[1] for key, values in theirs.items() if key != "System"]
    assert significance.permutation(a[None], b[None], score) == pytest.approx(
        result.p_value, abs=0.05
    )


def test_equal_systems_are_never_different() -> None:
    same = hits("1101" * 30)
    assert measure_difference(same, same, percent_of).p == 1


def test_seeds_that_vary_hide_a_difference_that_one_seed_would_show() -> None:
    """Every text is judged alike by all runs of a recipe but some: the examples alone would prove what the seeds do not."""
    good, bad = "1" * 380 + "0" * 20, "1" * 300 + "0" * 100
    assert measure_difference(hits(good), hits(bad), percent_of).p < 0.01
    varied = measure_difference(hits(good, bad, good), hits(bad, good, bad), percent_of)
    assert varied.difference == pytest.approx(20 / 3)
    assert varied.p_permutation < 0.01
    assert varied.p > 0.2
    steady = measure_difference(hits(good, good, good), hits(bad, bad, bad), percent_of)
    assert steady.p < 0.01


def test_many_comparisons_need_more_proof() -> None:
    a, b = hits("1" * 40 + "0" * 60), hits("0" * 5 + "1" * 22 + "0" * 73)
    once, thrice = measure_difference(a, b, percent_of), measure_difference(a, b, percent_of, 3)
    assert thrice.p == pytest.approx(min(1, 3 * once.p))


def compared(**rows: str) -> comparison.Comparison:
    sums = {row: list(hits(text)) for row, text in rows.items()}
    return comparison.Comparison(
        "x",
        {row: {"accuracy": [percent_of(one.sum(0)) for one in each]} for row, each in sums.items()},
        sums={row: {"accuracy": (each, percent_of)} for row, each in sums.items()},
    )


def test_no_winner_is_named_inside_the_noise() -> None:
    table = compared(a="1110" * 25, b="1101" * 24 + "1111", c="1000" * 25)
    verdicts = [str(one) for one in table.judge("accuracy", True)]
    assert verdicts[0].startswith(
        "accuracy: no clear difference between b and a (difference 1.0, 95 % interval -"
    )
    assert verdicts[1].startswith("accuracy: b is better than c (difference 51.0, 95 % interval ")
    assert verdicts[1].endswith("p = 0.002)")
    other = compared(a="1110" * 25, d="11").judge("accuracy", True)
    assert "were not judged on the same examples, so nothing can be tested" in str(other[0])
    assert other[0].to_dict() == {"metric": "accuracy", "best": "d", "other": "a"}


def test_the_rank_correlation_is_spearmans() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 25]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # ranks 1 2 3 4 5 and 2 1 4 3 5: 1 − 6 · 4 / (5 · 24)
    assert rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    # equal values share a rank: 1 2.5 2.5 against 1 2 3
    assert rank_correlation([1, 2, 2], [1, 2, 3]) == pytest.approx(0.8660254)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_the_interval_of_a_rank_correlation_is_that_of_all_draws_of_rows() -> None:
    ours, theirs = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([2.0, 1.0, 4.0, 3.0, 5.0])
    every_draw = [
        rank_correlation(ours[list(rows)], theirs[list(rows)])
        for rows in itertools.product(range(5), repeat=5)
    ]
    known = [value for value in every_draw if value is not None]
    assert len(known) == 5**5 - 5  # one row, five times
    found = rank_agreement(list(ours), list(theirs))
    assert found is not None
    assert (found.correlation, found.rows) == (pytest.approx(0.8), 5)
    assert [found.low, found.high] == pytest.approx(
        np.percentile(known, [2.5, 97.5]).tolist(), abs=0.08
    )
    assert str(found) == f"+0.80 (95 % interval {found.low:+.2f} to {found.high:+.2f}, 5 rows)"
    assert rank_agreement([1, 1, 1], [1, 2, 3]) is None


def test_the_seeds_of_a_row_are_resampled_with_the_rows() -> None:
    theirs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    alike = rank_agreement([[value, value, value] for value in theirs], theirs)
    apart = rank_agreement([[value - 4, value, value + 4] for value in theirs], theirs)
    assert alike is not None
    assert apart is not None
    assert (alike.correlation, alike.low) == (pytest.approx(1), pytest.approx(1))
    assert apart.correlation == pytest.approx(1), "the means are in order"
    assert apart.low < 0.5, "and their order may be due to the seeds"
