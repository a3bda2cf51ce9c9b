"""Searches against brute force over all sequences, against each other, and against their own rules."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from tests.support import raises
from torch import Tensor

from saccade.config import recipes
from saccade.core import State, record
from saccade.decoding import (
    Beam,
    Hypothesis,
    Sample,
    Search,
    SlidingWindow,
    decode,
    searcher,
    steps,
)
from saccade.errors import SaccadeError
from saccade.models.protocols import Seq2Seq

PAD, BOS, EOS, WORDS = 0, 1, 2, (3, 4, 5)
NEVER = (PAD, BOS)
VOCAB = 6


class Scripted:
    """A model whose logits are random numbers, the same ones for the same source and the same prefix."""

    def __init__(self, seed: int = 0, ending: float = 0.0) -> None:
        self.seed, self.ending = seed, ending
        self.sizes: list[int] = []

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return State(source=source, prefix=torch.zeros(len(source), 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        self.sizes.append(len(tokens))
        prefix = torch.cat([state.prefix, tokens.unsqueeze(1)], 1)
        rows = [
            self.logits(tuple(s), tuple(p))
            for s, p in zip(state.source.tolist(), prefix.tolist(), strict=True)
        ]
        return torch.stack(rows), state.next(prefix=prefix)

    def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> Tensor:
        # hashes of whole numbers are the same in every run
        number = hash((self.seed, *source, -1, *prefix)) % (1 << 60)
        drawn = 1.5 * torch.randn(VOCAB, generator=torch.Generator().manual_seed(number))
        drawn[EOS] += self.ending
        return drawn

    def log_prob(self, source: tuple[int, ...], tokens: tuple[int, ...]) -> float:
        """Of a whole sequence, token by token, in double precision."""
        return sum(self.one_more(source, tokens[:at], token) for at, token in enumerate(tokens))

    def one_more(self, source: tuple[int, ...], before: tuple[int, ...], token: int) -> float:
        return float(self.logits(source, (BOS, *before)).double().log_softmax(-1)[token])


class Level(Scripted):
    """A model that always has the same distribution."""

    def __init__(self, *probabilities: float) -> None:
        super().__init__()
        self.row = torch.tensor([0.0, 0.0, *probabilities]).clamp(min=1e-9).log()

    def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> Tensor:
        return self.row


MAKERS: dict[str, Callable[..., Search]] = {
    "beam": lambda *never: Beam(BOS, EOS, (*NEVER, *never), 3),
    "greedy": lambda *never: Sample(BOS, EOS, (*NEVER, *never), temperature=0.0),
    "sample": lambda *never: Sample(BOS, EOS, (*NEVER, *never)),
}


def sources(count: int) -> tuple[Tensor, Tensor]:
    return torch.arange(count).unsqueeze(1) + 10, torch.ones(count, dtype=torch.long)


def run(model: Scripted, search: Search, limits: list[int]) -> list[list[Hypothesis]]:
    return decode(model, *sources(len(limits)), search, limits)


def endings(limit: int) -> list[tuple[int, ...]]:
    """Every sequence of at most `limit` tokens that ends in <eos>."""
    return [
        (*words, EOS)
        for length in range(limit)
        for words in itertools.product(WORDS, repeat=length)
    ]


def brute_force(
    model: Scripted, source: tuple[int, ...], penalty: float, limit: int
) -> list[tuple[list[int], float, float]]:
    """(tokens, log-probability, score) of all sequences there are, the best first."""
    every = [(tokens, model.log_prob(source, tokens)) for tokens in endings(limit)]
    scored = [
        (list(tokens[:-1]), log_prob, log_prob / len(tokens) ** penalty)
        for tokens, log_prob in every
    ]
    return sorted(scored, key=lambda one: -one[2])


def plain_beam(
    model: Scripted, source: tuple[int, ...], width: int, penalty: float, limit: int
) -> list[int]:
    """The rule of `Beam` in lists: the best output's tokens."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, limit + 1):
        ways = [(s + model.one_more(source, p, v), (*p, v)) for s, p in live for v in (EOS, *WORDS)]
        ways.sort(key=lambda way: -way[0])
        ended += [(score / length**penalty, p[:-1]) for score, p in ways[:width] if p[-1] == EOS]
        live = [way for way in ways[: 2 * width] if way[1][-1] != EOS][:width]
        if len(ended) >= width and max(ended)[0] >= live[0][0] / (length + 1) ** penalty:
            break
    if not ended:
        ended = [(score / len(p) ** penalty, p) for score, p in live]
    return list(max(ended, key=lambda one: one[0])[1])


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_wide_beam_finds_what_brute_force_finds(seed: int, penalty: float) -> None:
    model, limit = Scripted(seed), 4
    found = run(
        model, Beam(BOS, EOS, NEVER, width=27 * VOCAB, length_penalty=penalty), [limit, limit]
    )
    for source, hypotheses in zip(sources(2)[0].tolist(), found, strict=True):
        expected = brute_force(model, tuple(source), penalty, limit)
        assert len(hypotheses) == len(expected) == 1 + 3 + 9 + 27
        assert [one.tokens for one in hypotheses] == [tokens for tokens, _, _ in expected]
        assert all(one.finished for one in hypotheses)
        for one, (_, log_prob, score) in zip(hypotheses, expected, strict=True):
            assert one.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert one.score == pytest.approx(score, abs=1e-4)


class Sure(Scripted):
    """A model that is nearly certain of one long output; what it would say otherwise ends at once."""

    script = (3, 4, 5, 3, 4, 5, 3, EOS)

    def logits(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> Tensor:
        drawn = torch.tensor([0.0, 0.0, 10.0, 0.0, 0.0, 0.0])
        at = len(prefix) - 1
        if prefix[1:] == self.script[:at] and at < len(self.script):
            drawn[self.script[at]] = 20.0
        return drawn


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_likely_output_is_waited_for_while_others_end(width: int, penalty: float) -> None:
    [[best, *_]] = run(Sure(), Beam(BOS, EOS, NEVER, width, penalty), [20])
    assert best.tokens == list(Sure.script[:-1])


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_narrow_beam_follows_its_rule(width: int, penalty: float) -> None:
    for seed in range(6):
        model, limits = Scripted(seed, ending=-1.0), [3, 7, 5]
        found = run(model, Beam(BOS, EOS, NEVER, width, penalty), limits)
        for source, hypotheses, limit in zip(sources(3)[0].tolist(), found, limits, strict=True):
            assert hypotheses[0].tokens == plain_beam(model, tuple(source), width, penalty, limit)
            assert len(hypotheses) <= width
            assert [one.score for one in hypotheses] == sorted(
                (one.score for one in hypotheses), reverse=True
            )


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_a_real_model_is_searched_as_brute_force_does(family: str) -> None:
    shape = {"dim": 8, "hidden": 8, "depth": 1, **({"heads": 2} if family == "transformer" else {})}
    torch.manual_seed(7)
    model = recipes.Builder({"family": family, **shape}).make(Seq2Seq, 9, VOCAB).eval()
    source, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
    limit = 3
    found = decode(
        model,
        source,
        lengths,
        Beam(BOS, EOS, NEVER, width=9 * VOCAB, length_penalty=0.8),
        [limit, limit],
    )  # type: ignore[arg-type]
    for row in range(2):
        expected = []
        for tokens in endings(limit):
            with torch.no_grad():
                logits = model(
                    source[row : row + 1],
                    lengths[row : row + 1],
                    torch.tensor([[BOS, *tokens[:-1]]]),
                )
            log_prob = float(logits.log_softmax(-1)[0, range(len(tokens)), list(tokens)].sum())
            expected.append((log_prob / len(tokens) ** 0.8, list(tokens[:-1])))
        expected.sort(reverse=True)
        assert [one.tokens for one in found[row]] == [tokens for _, tokens in expected]
        assert [one.score for one in found[row]] == pytest.approx(
            [score for score, _ in expected], abs=1e-4
        )


@pytest.mark.parametrize("family", ["gnmt", "luong", "transformer"])
def test_gnmts_ranking_is_brute_forces(family: str) -> None:
    """log p / ((5 + length) / 6)^α + β Σ log min(Σ weights, 1), with the weights that a record of each whole output shows."""
    shape = {"dim": 8, "hidden": 8, "depth": 2, **({"heads": 2} if family == "transformer" else {})}
    torch.manual_seed(7)
    model = recipes.Builder({"family": family, **shape}).make(Seq2Seq, 9, VOCAB).eval()
    source, lengths, limit, alpha, beta = (
        torch.tensor([[4, 5, 6], [7, 8, 0]]),
        torch.tensor([3, 2]),
        3,
        0.7,
        0.4,
    )
    how = Beam(BOS, EOS, NEVER, 9 * VOCAB, alpha, "gnmt", beta)
    found = decode(model, source, lengths, how, [limit, limit])  # type: ignore[arg-type]
    for row in range(2):
        expected = []
        for tokens in endings(limit):
            size = int(lengths[row])
            with torch.no_grad(), record(model) as seen:
                logits = model(
                    source[row : row + 1, :size],
                    lengths[row : row + 1],
                    torch.tensor([[BOS, *tokens[:-1]]]),
                )
            log_prob = float(logits.log_softmax(-1)[0, range(len(tokens)), list(tokens)].sum())
            weights = torch.stack(
                [site.weights().mean(1)[0] for site in seen.values() if site.cross]
            ).mean(0)
            covered = sum(math.log(min(float(weights[:, n].sum()), 1.0)) for n in range(size))
            expected.append(
                (log_prob / ((5 + len(tokens)) / 6) ** alpha + beta * covered, list(tokens[:-1]))
            )
        expected.sort(reverse=True)
        assert [one.tokens for one in found[row]] == [tokens for _, tokens in expected]
        assert [one.score for one in found[row]] == pytest.approx(
            [score for score, _ in expected], abs=1e-4
        )


def test_ranking_is_for_a_beam_of_a_model_that_attends() -> None:
    for how in ({"length_rule": "gnmt"}, {"coverage_penalty": 0.2}):
        with raises("beam-missing"):
            searcher(1, **how)  # type: ignore[arg-type]
    with raises("unknown-length-rule"):
        searcher(2, length_rule="gmnt")
    with raises("coverage-penalty-out-of-range"):
        searcher(2, coverage_penalty=-1)
    model = (
        recipes.Builder({"family": "fixed-first", "dim": 8, "hidden": 8})
        .make(Seq2Seq, 9, VOCAB)
        .eval()
    )
    with raises("no-attention-to-source"):
        decode(
            model,
            torch.tensor([[4]]),
            torch.tensor([1]),
            Beam(BOS, EOS, NEVER, 2, coverage_penalty=0.2),
            [3],
        )


def test_greedy_takes_the_likeliest_and_equals_a_beam_of_one() -> None:
    for seed in range(8):
        model, limits = Scripted(seed), [6, 2, 9, 1]
        plain = run(model, Sample(BOS, EOS, NEVER, temperature=0.0), limits)
        narrow = run(model, Beam(BOS, EOS, NEVER, width=1, length_penalty=0.0), limits)
        for source, one, other in zip(sources(4)[0].tolist(), plain, narrow, strict=True):
            assert (one[0].tokens, one[0].finished) == (other[0].tokens, other[0].finished)
            assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-5)
            whole = tuple(one[0].tokens) + ((EOS,) if one[0].finished else ())
            assert one[0].log_prob == pytest.approx(model.log_prob(tuple(source), whole), abs=1e-4)
            for at, token in enumerate(whole):
                assert token == 2 + int(
                    model.logits(tuple(source), (BOS, *whole[:at]))[2:].argmax()
                )


@pytest.mark.parametrize("name", ["beam", "greedy"])
def test_sentences_in_a_batch_are_searched_as_each_alone(name: str) -> None:
    make = MAKERS[name]
    model, limits = Scripted(5), [7, 3, 0, 5, 1]
    together = run(model, make(), limits)
    every, lengths = sources(5)
    for n, limit in enumerate(limits):
        alone = decode(model, every[n : n + 1], lengths[:1], make(), [limit])[0]
        assert [one.tokens for one in alone] == [one.tokens for one in together[n]]
        assert [one.log_prob for one in alone] == pytest.approx(
            [one.log_prob for one in together[n]], abs=1e-6
        )


@pytest.mark.parametrize("width", [0, 1, 3])
def test_finished_sentences_leave_the_batch(width: int) -> None:
    """Rows handed to `step` at each time: those of sentences that are not done, and no more."""
    model, limits = Scripted(3, ending=-0.5), [8, 2, 0, 5, 8]
    search = Beam(BOS, EOS, NEVER, width) if width else Sample(BOS, EOS, NEVER, temperature=0.0)
    run(model, search, limits)
    together = list(model.sizes)
    alone = []
    for n, limit in enumerate(limits):
        model.sizes.clear()
        every, lengths = sources(5)
        decode(
            model,
            every[n : n + 1],
            lengths[:1],
            Beam(BOS, EOS, NEVER, width) if width else Sample(BOS, EOS, NEVER, temperature=0.0),
            [limit],
        )
        alone.append(list(model.sizes))
    expected = [
        sum(sizes[at] for sizes in alone if at < len(sizes)) for at in range(max(map(len, alone)))
    ]
    assert together == expected
    assert len(set(expected)) > 2, (
        "the sentences must end at different times for this to say anything"
    )


@pytest.mark.parametrize("name", MAKERS)
def test_what_does_not_end_in_time_is_cut_off(name: str) -> None:
    limits = [4, 0, 1, 7]
    found = run(Scripted(2, ending=-1e9), MAKERS[name](), limits)
    for hypotheses, limit in zip(found, limits, strict=True):
        assert hypotheses
        assert all(len(one.tokens) == limit and not one.finished for one in hypotheses)
    assert len(run(Scripted(2, ending=-1e9), Beam(BOS, EOS, NEVER, 3), [4])[0]) == 3


@pytest.mark.parametrize("name", MAKERS)
def test_a_sentence_that_ends_at_once_is_empty(name: str) -> None:
    best = run(Scripted(2, ending=1e4), MAKERS[name](), [5])[0][0]
    assert (best.tokens, best.finished) == ([], True)
    assert best.log_prob == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_tokens_that_are_never_put_out_are_not(name: str) -> None:
    model = Scripted(4, ending=-2.0)
    plain = model.logits
    model.logits = lambda source, prefix: (
        plain(source, prefix) + torch.tensor([9.0, 9.0, 0, 0, 0, 9.0])
    )  # type: ignore[method-assign]
    found = run(model, MAKERS[name](5), [6] * 20)
    put_out = {token for hypotheses in found for one in hypotheses for token in one.tokens}
    assert put_out == {3, 4}


def drawn(model: Scripted, count: int = 4000, **options: float) -> dict[int, float]:
    """How often each token is the first one, as a share."""
    found = run(model, Sample(BOS, EOS, NEVER, **options), [1] * count)  # type: ignore[arg-type]
    counts = Counter(one[0].tokens[0] if one[0].tokens else EOS for one in found)
    return {token: number / count for token, number in counts.items()}


@pytest.mark.parametrize("name", MAKERS)
def test_a_decoding_can_be_followed_step_by_step(name: str) -> None:
    limits = [1, 7, 3, 0]
    expected = run(Scripted(2), MAKERS[name](), limits)
    search, seen = MAKERS[name](), [list[int]() for _ in limits]
    for latest in steps(Scripted(2), *sources(4), search, limits):
        assert not torch.is_inference_mode_enabled(), "whoever follows it is not in inference mode"
        for sentence, token in latest.items():
            seen[sentence].append(token)
    assert search.results() == expected
    if name != "beam":
        assert seen == [one[0].tokens for one in expected]


class Limited(Scripted):
    """Reads at most `most` tokens, and notes all it has read since it started."""

    def __init__(self, most: int) -> None:
        super().__init__(5, ending=-9.0)
        self.most, self.starts = most, list[list[int]]()

    def start(self, source: Tensor, lengths: Tensor) -> State:
        assert lengths.tolist() == [source.shape[1]] * len(source)
        self.starts.append(source[0].tolist())
        return State(source=source[:, :0], prefix=source)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        assert state.prefix.shape[1] < self.most
        return super().step(tokens, state)


@pytest.mark.parametrize("block", [2, 3, 4, 7, 100])
@pytest.mark.parametrize("prompt", [0, 1, 3, 9])
@pytest.mark.parametrize(
    "make",
    [lambda bos: Sample(bos, EOS, NEVER, temperature=0.0), lambda bos: Beam(bos, EOS, NEVER, 1)],
)
def test_a_full_block_continues_from_its_second_half(
    block: int, prompt: int, make: Callable[[int], Search]
) -> None:
    text = [3 + n % 3 for n in range(prompt + 1)]
    model = Limited(block)
    source = torch.tensor([text[:-1]], dtype=torch.long)
    [[found, *_]] = decode(
        SlidingWindow(model, block), source, torch.tensor([prompt]), make(text[-1]), [12]
    )
    ids, begin = list(text), 0
    while len(ids) < prompt + 13:
        if len(ids) - begin > block:
            begin = len(ids) - 1 - max(block // 2, 1)
        row = model.logits((), tuple(ids[begin:]))
        row[list(NEVER)] = -math.inf
        ids.append(int(row.argmax()))
    assert found.tokens == ids[prompt + 1 :]
    assert all(len(start) < block for start in model.starts)


def test_a_seed_gives_the_same_draws_and_another_gives_others() -> None:
    first, again, other = (
        run(Scripted(1), Sample(BOS, EOS, NEVER, seed=seed), [9] * 8) for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def test_draws_follow_the_temperature() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.3, 0.1], dtype=torch.float64)
    for temperature in (1.0, 0.5, 2.0):
        expected = probabilities ** (1 / temperature)
        expected /= expected.sum()
        shares = drawn(Level(*probabilities.tolist()), temperature=temperature)
        for token, share in zip((EOS, *WORDS), expected.tolist(), strict=True):
            assert shares[token] == pytest.approx(share, abs=4 * math.sqrt(share / 4000))


def test_temperature_zero_and_the_single_best_are_greedy() -> None:
    limits = [8] * 6
    expected = [
        one[0].tokens for one in run(Scripted(9), Sample(BOS, EOS, NEVER, temperature=0.0), limits)
    ]
    for options in (
        {"temperature": 0.0},
        {"top_k": 1},
        {"top_p": 1e-300},
        {"temperature": 1e-300},
        {"temperature": 1e-40},
    ):
        assert [
            one[0].tokens for one in run(Scripted(9), Sample(BOS, EOS, NEVER, **options), limits)
        ] == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "kept"),
    [(1, {3}), (2, {3, 4}), (3, {3, 4, EOS}), (4, {3, 4, 5, EOS}), (10**30, {3, 4, 5, EOS})],
)
def test_top_k_draws_from_the_k_likeliest(count: int, kept: set[int]) -> None:
    shares = drawn(Level(0.15, 0.5, 0.25, 0.1), 1500, top_k=count)
    assert set(shares) == kept
    assert shares[3] == pytest.approx(0.5 / {1: 0.5, 2: 0.75, 3: 0.9}.get(len(kept), 1.0), abs=0.06)


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        (0.49, {3}),
        (0.51, {3, 4}),
        (0.74, {3, 4}),
        (0.76, {3, 4, EOS}),
        (0.91, {2, 3, 4, 5}),
        (1.0, {2, 3, 4, 5}),
    ],
)
def test_top_p_draws_from_the_smallest_set_with_that_probability(
    share: float, kept: set[int]
) -> None:
    shares = drawn(Level(0.15, 0.5, 0.25, 0.1), 1500, top_p=share)
    assert set(shares) == kept
    assert shares[3] == pytest.approx(0.5 / {1: 0.5, 2: 0.75, 3: 0.9}.get(len(kept), 1.0), abs=0.06)


def test_a_high_temperature_draws_evenly_and_never_what_is_never_put_out() -> None:
    shares = drawn(Level(0.05, 0.9, 0.04, 0.01), temperature=1e300)
    assert set(shares) == {EOS, *WORDS}
    assert all(share == pytest.approx(0.25, abs=0.05) for share in shares.values())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Beam(BOS, EOS, width=0), "a beam of 0; give a whole number from 1 to 1000"),
        (lambda: Beam(BOS, EOS, width=100_000), "a beam of 100000"),
        (
            lambda: Beam(BOS, EOS, length_penalty=float("nan")),
            "a length penalty of nan; give a number from -10 to 10",
        ),
        (
            lambda: Sample(BOS, EOS, temperature=-1.0),
            "temperature is -1.0; give a number of 0 or more",
        ),
        (lambda: Sample(BOS, EOS, temperature=float("nan")), "temperature is nan"),
        (lambda: Sample(BOS, EOS, temperature=float("inf")), "temperature is inf"),
        (lambda: Sample(BOS, EOS, top_k=0), "top_k is 0; give at least 1"),
        (lambda: Sample(BOS, EOS, top_p=0.0), "top_p is 0.0; give a number above 0"),
        (lambda: Sample(BOS, EOS, top_p=1.5), "top_p is 1.5"),
        (lambda: Sample(BOS, EOS, top_p=float("nan")), "top_p is nan"),
        (lambda: Sample(BOS, EOS, seed=-1), "the seed is -1; give a whole number"),
        (lambda: Sample(BOS, EOS, seed=10**30), "the seed is 1000"),
    ],
)
def test_a_wrong_value_is_told_in_a_sentence(make: object, sentence: str) -> None:
    with pytest.raises(SaccadeError) as told:
        make()  # type: ignore[operator]
    assert str(told.value).startswith(sentence)
