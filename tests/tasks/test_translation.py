"""Translation: batches, losses, outputs in order, alignments from scripted attention, scores as sacrebleu gives them."""

from __future__ import annotations

import itertools
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade.config import recipes
from saccade.core import Mechanism, State
from saccade.core.mechanism import Ready
from saccade.core.record import Site
from saccade.core.scores import Dot
from saccade.data.pairs import Pair
from saccade.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from saccade.models.protocols import Seq2Seq
from saccade.recipe import Recipe
from saccade.tasks import text_scores
from saccade.tasks.text_scores import alignment_error_rate, scores
from saccade.tasks.text_to_text import TextToText
from saccade.tasks.translation import Numbered, Translation
from saccade.training.losses import batch_loss

PAIRS = [
    Pair("the black cat ate", "le chat noir a mangé", 1),
    Pair("the cat", "le chat", 2),
    Pair("the mouse ate the black cat here", "la souris a mangé le chat noir ici", 3),
    Pair("mouse", "souris", 4),
]


def task(kind: str = "words") -> Translation:
    size = 300 if kind == "bpe" else 8000
    return Translation(
        *(
            Vocabulary.train(lines, kind, size)
            for lines in zip(*((p.source, p.target) for p in PAIRS), strict=True)
        )
    )


def tiny(words: Translation, family: str = "bahdanau") -> nn.Module:
    more = {"heads": 2, "depth": 1} if family.startswith("transformer") else {}
    torch.manual_seed(1)
    builder = recipes.Builder({"family": family, "dim": 8, "hidden": 8, "dropout": 0.0, **more})
    return builder.make(Seq2Seq, len(words.source), len(words.target)).eval()


def recipe(strict: bool = False, **training: Any) -> Recipe:
    return recipes.recipe(
        {"model": {"family": "bahdanau"}, "data": {"strict": strict}, "training": training}
    )


def mean_loss(words: Translation, model: nn.Module, pairs: list[Pair], budget: int = 8192) -> float:
    return words.metrics(model, words.numbers(pairs), budget)["loss"]


class Copier(nn.Module):
    """Puts out the source's own numbers, then <eos>; its decoder looks at source place t at step t, and at <eos> at last."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.weight = nn.Parameter(torch.zeros(1))

    def start(self, source: Tensor, lengths: Tensor) -> State:
        self.batches.append(len(source))
        return State(source=source, at=torch.zeros(len(source), dtype=torch.long))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        wanted = state.source.gather(1, state.at.unsqueeze(1)).squeeze(1)
        return 50.0 * nn.functional.one_hot(wanted, 40).float(), state.next(at=state.at + 1)


class Cross(Site):
    """A site of attention that looks where it is told."""

    def __init__(self, cross: bool) -> None:
        super().__init__()
        self.mechanism, self.cross = Mechanism(score=Dot()), cross

    def forward(self, wanted: Tensor) -> Tensor:
        """`wanted`: weights, T N."""
        keys = torch.eye(wanted.shape[1])[None, None]
        return self.look(wanted.clamp(min=1e-30).log()[None, None], Ready(keys, keys))


class Scripted(nn.Module):
    """Two layers of cross-attention with given weights, and self-attention that must not be taken for them."""

    def __init__(self, *weights: Tensor) -> None:
        super().__init__()
        self.scripts = weights
        self.layers = nn.ModuleList(
            nn.ModuleDict({"one": Cross(True), "other": Cross(False)}) for _ in weights
        )
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        assert source.shape[1] == self.scripts[0].shape[1]
        assert target.shape[1] == self.scripts[0].shape[0]
        for layer, script in zip(self.layers, self.scripts, strict=True):
            layer["one"](script)  # type: ignore[index]
            layer["other"](script.flip(1))  # type: ignore[index]
        return self.weight


def test_a_batch_holds_sources_and_targets_as_the_model_meets_them() -> None:
    words = task()
    batch = words.batch(words.numbers(PAIRS[:2]), torch.device("cpu"))
    the, cat = words.source.id("the"), words.source.id("cat")
    le, chat = words.target.id("le"), words.target.id("chat")
    source, lengths, read = batch.inputs
    assert source.tolist()[1] == [the, cat, EOS, PAD, PAD]
    assert lengths.tolist() == [5, 3]
    assert read.tolist()[1] == [BOS, le, chat, PAD, PAD, PAD]
    assert batch.target.tolist()[1] == [le, chat, EOS, PAD, PAD, PAD]
    assert (batch.tokens, batch.lines) == (6 + 3, [1, 2])


@pytest.mark.parametrize("family", ["bahdanau", "luong", "fixed-context", "transformer"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_of_a_padded_batch_is_the_sum_of_its_sentences(
    family: str, smoothing: float
) -> None:
    words = task()
    model, numbers, device = tiny(words, family), words.numbers(PAIRS), torch.device("cpu")
    with torch.no_grad():
        together = float(batch_loss(model, words.batch(numbers, device), smoothing))
        alone = [float(batch_loss(model, words.batch([one], device), smoothing)) for one in numbers]
        assert together == pytest.approx(sum(alone), rel=1e-5)
        plain = sum(float(batch_loss(model, words.batch([one], device))) for one in numbers)
    tokens = sum(len(target) + 1 for _, target, *_ in numbers)
    for budget in (8, 20, 10_000):  # a sentence longer than the budget is a batch by itself
        assert mean_loss(words, model, PAIRS, budget) == pytest.approx(plain / tokens, rel=1e-5)


def copying(words: Translation) -> Translation:
    return Translation(words.source, words.source)


def test_outputs_carry_the_number_of_their_text_and_empty_lines_stay_empty() -> None:
    words = copying(task())
    texts = [
        "the black cat",
        "",
        "cat",
        "the mouse ate the black cat here",
        "   ",
        "the cat",
        "unknown cat",
    ]
    model = Copier()
    found = list(words.predict(model, texts, budget=10))
    assert sorted(number for number, _ in found) == list(range(7))
    by_number = dict(found)
    assert [by_number[n].text for n in range(7)] == [*texts[:4], "", "the cat", "<unk> cat"]
    assert all(one.finished for one in by_number.values())
    assert model.batches == [3, 1, 1], (
        "five texts with something in them, at most ten source tokens at a time, padding too"
    )
    assert by_number[1].tokens == []
    assert not dict(words.predict(model, []))


def test_similar_lengths_go_through_the_model_together() -> None:
    words = copying(task())
    order = [number for number, _ in words.predict(Copier(), ["the black cat", "cat", "the cat"])]
    assert order == [1, 2, 0]


def test_a_translation_has_at_most_twice_its_source_and_ten() -> None:
    class Endless(Copier):
        def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
            return nn.functional.one_hot(torch.full_like(tokens, UNK), 40).float(), state

    [(_, one)] = task().predict(Endless(), ["the cat"])
    assert len(one.tokens) == 2 * 3 + 10
    assert not one.finished


def test_a_beam_gives_alternatives() -> None:
    words = task()
    [(_, one)] = words.predict(tiny(words), ["the black cat"], beam=3)
    assert len(one.alternatives) == 2
    assert len({one.text, *one.alternatives}) == 3


def test_links_come_from_the_mean_of_all_cross_attention() -> None:
    """Source: black cat <eos>; target: chat noir ici <eos>; the two layers disagree, and their mean decides."""
    pair = Pair("black cat", "chat noir ici", 1)
    words = task()
    first = torch.tensor([[0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]])
    second = torch.tensor([[0.6, 0.4, 0.0], [0.8, 0.1, 0.1], [0.45, 0.1, 0.45], [0.1, 0.1, 0.8]])
    [found] = words.align(Scripted(first, second), [pair])
    torch.testing.assert_close(torch.from_numpy(found.weights).float(), (first + second) / 2)
    assert found.links == [(1, 0), (0, 1)], "the third word looks at <eos>, at no word"
    assert (found.source.pieces, found.target.pieces) == (["black", "cat"], ["chat", "noir", "ici"])


def test_pieces_are_put_together_to_words() -> None:
    words = task("characters")
    pair = Pair("a cat", "chat", 1)
    weights = torch.zeros(5, 6)  # c h a t <eos> × a ␣ c a t <eos>
    weights[:4, 0] = 0.4  # no single piece is above "a"
    weights[:4, 1:5] = 0.15  # but the word "cat", whose first piece is the space before it, is
    weights[4, 5] = 1.0
    [found] = words.align(Scripted(weights), [pair])
    assert found.source.words == [0, 1, 1, 1, 1]
    assert found.links == [(1, 0)]


def test_alignments_come_in_the_order_of_the_pairs_and_padding_has_no_say() -> None:
    words = task()
    model = tiny(words)
    together, two_by_two = words.align(model, PAIRS), words.align(model, PAIRS, budget=30)
    for pair, one, other in zip(PAIRS, together, two_by_two, strict=True):
        [alone] = words.align(model, [pair])
        assert one.links == other.links == alone.links
        assert one.weights.shape == (len(pair.target.split()) + 1, len(pair.source.split()) + 1)
        torch.testing.assert_close(
            torch.from_numpy(one.weights), torch.from_numpy(alone.weights), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            torch.from_numpy(one.weights.sum(1)).float(), torch.ones(len(one.weights))
        )


def test_a_model_without_attention_to_the_source_has_no_alignment() -> None:
    words = task()
    with raises(
        "no-attention-to-source",
        match=r"this model does not attend to the source, so .* use a model with attention",
    ):
        words.align(tiny(words, "fixed-context"), PAIRS)


def test_the_alignment_error_is_taken_over_pairs_with_gold_links() -> None:
    words = task()
    weights = torch.tensor([[0.9, 0.0, 0.1], [0.0, 0.9, 0.1], [0.0, 0.1, 0.9]])
    gold = Pair("the cat", "le chat", alignment=((0, 0), (0, 1)), possible=((1, 1),))
    # A = {0-0, 1-1}, S = {0-0, 0-1}, P adds 1-1: 1 − (1 + 2) / 4
    assert aer_of(words, Scripted(weights), gold) == pytest.approx(0.25)


def aer_of(words: Translation, model: nn.Module, pair: Pair) -> float:
    [found] = words.align(model, [pair])
    return alignment_error_rate([found.links], [pair.alignment or ()], [pair.possible or ()])


def test_scores_are_sacrebleu_s_own() -> None:
    outputs = ["le chat noir a mangé", "le chien", "la souris a mangé un chat noir ici", "souris"]
    found = task().score(outputs, PAIRS)
    references = [[pair.target for pair in PAIRS]]
    assert found["bleu"] == sacrebleu.corpus_bleu(outputs, references).score
    assert found["chrf"] == sacrebleu.corpus_chrf(outputs, references).score
    assert 0 < float(found["bleu"]) < 100
    assert str(found["bleu_signature"]).startswith(
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )
    assert "nc:6|nw:0" in str(found["chrf_signature"])


def test_gleu_is_the_mean_over_sentences_on_the_words_of_bleu() -> None:
    references = ["le chat noir.", "le chien"]
    found = text_scores.scores(["le chat.", "un chien"], references)
    # "le chat ." shares 3 words and "le chat" with 4 + 3 + 2 + 1 n-grams of the reference; "un chien" shares 1 of 3
    assert found["gleu"] == pytest.approx(100 * (4 / 10 + 1 / 3) / 2)
    sums, score = text_scores.text_sums(["le chat.", "un chien"], references)["gleu"]
    assert score(sums.sum(0)) == pytest.approx(float(found["gleu"]))


def test_quarters_by_length_hold_every_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, 1, 3, 4, 10, 13):
        pairs = [Pair(" ".join("x" * (1 + (7 * n) % 13)), "y") for n in range(count)]
        groups: list[list[str]] = []
        monkeypatch.setattr(
            text_scores,
            "scores",
            lambda outputs, *some, groups=groups: groups.append(outputs) or {"bleu": 0.0},
        )
        rows = text_scores.by_length([str(n) for n in range(count)], pairs, "13a")
        numbers = [int(n) for n in itertools.chain(*groups)]
        assert sorted(numbers) == list(range(count))
        lengths = [len(pairs[n].source.split()) for n in numbers]
        assert lengths == sorted(lengths)
        edges = [edge for row in rows for edge in (row["shortest"], row["longest"])]
        assert edges == [
            edge
            for group in groups
            for edge in (
                lengths[numbers.index(int(group[0]))],
                lengths[numbers.index(int(group[-1]))],
            )
        ]
        assert all(
            before < after for before, after in zip(edges[1::2], edges[2::2], strict=False)
        ), "no length is in two groups"
        assert not count or len(rows) == min(4, len(set(lengths)))


def test_quarters_are_as_equal_as_whole_lengths_allow() -> None:
    pairs = [
        Pair(" ".join("x" * length), "y")
        for length in [4] * 10 + [5] * 10 + [6] * 5 + [7] * 5 + [9] * 5 + [20] * 5
    ]
    rows = text_scores.by_length(["y"] * len(pairs), pairs, "13a")
    assert [(row["shortest"], row["longest"]) for row in rows] == [(4, 4), (5, 5), (6, 7), (9, 20)]
    uneven = [Pair(" ".join("x" * length), "y") for length in [3] * 90 + [8] * 10]
    assert [
        (row["shortest"], row["longest"])
        for row in text_scores.by_length(["y"] * 100, uneven, "13a")
    ] == [(3, 3), (8, 8)]


def test_a_line_too_long_for_a_batch_is_named() -> None:
    words = task()
    with raises(
        "wrong-example",
        match=r"line 3 of the training data has 8 \+ 9 tokens, .* \(training.tokens=16\); raise training.tokens",
    ):
        words.work(recipe(tokens=16, strict=True), PAIRS, PAIRS, torch.device("cpu"))
    assert len(words.work(recipe(tokens=16), PAIRS, PAIRS, torch.device("cpu")).examples) == 3
    work = words.work(recipe(tokens=17), PAIRS, PAIRS, torch.device("cpu"))
    assert sorted(itertools.chain(*work.epoch(0))) == [0, 1, 2, 3]


def test_the_dev_figures_are_the_loss_and_bleu_when_it_is_asked_for() -> None:
    words = task()
    model, device = tiny(words), torch.device("cpu")
    plain = words.work(recipe(tokens=100), PAIRS, PAIRS[:2], device)
    assert plain.evaluate(model) == {
        "loss": pytest.approx(mean_loss(words, model, PAIRS[:2]), rel=1e-5)
    }
    scored = words.work(recipe(tokens=100, dev_bleu=True), PAIRS, PAIRS[:2], device)
    outputs = dict(words.predict(model, [pair.source for pair in PAIRS[:2]]))
    expected = sacrebleu.corpus_bleu(
        [outputs[0].text, outputs[1].text], [[pair.target for pair in PAIRS[:2]]]
    ).score
    assert scored.evaluate(model) == {"loss": plain.evaluate(model)["loss"], "bleu": expected}


# --- unknown words are copied from where the model looks


class Looking(Copier):
    """Puts out given tokens, and looks at given source places while it does."""

    def __init__(self, outputs: list[int], looks: list[int]) -> None:
        super().__init__()
        self.outputs, self.looks = [*outputs, EOS], looks
        self.decoder = nn.ModuleDict({"look": Cross(True)})

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        wanted = torch.tensor(self.outputs)[state.at]
        return 50.0 * nn.functional.one_hot(wanted, 40).float(), state.next(at=state.at + 1)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        places = torch.tensor([*self.looks, source.shape[1] - 1])
        weak = 0.001 * torch.arange(1, source.shape[1] + 1)  # a little more to what stands later
        self.decoder["look"](0.9 * nn.functional.one_hot(places, source.shape[1]).float() + weak)
        return torch.zeros(1)


def test_an_unknown_word_is_copied_from_where_the_model_looks() -> None:
    words = task()
    le, unk = words.target.id("le"), UNK
    for text, looks, expected in (
        ("the Zanzibar cat", [0, 1], "le Zanzibar"),
        ("the cat Quito", [0, 2], "le Quito"),
        ("the  cat\tQuito", [0, 2], "le Quito"),
        # looks at <eos>, which is no word: of the words, the last is looked at most
        ("cat here", [0, 2], "le here"),
    ):
        [(_, one)] = words.predict(Looking([le, unk], looks), [text])
        assert one.text == expected
        assert one.copied == ((text.split().index(expected.split()[1]), 1),), (
            "--align links the copy to where it is from"
        )
        assert one.tokens == [le, unk], "the numbers stay what they are"
        [(_, plain)] = words.predict(Looking([le, unk], looks), [text], copy_unknown=False)
        assert (plain.text, plain.copied) == ("le <unk>", ())


@pytest.mark.parametrize("family", ["deep-att", "gnmt", "moe-lstm"])
def test_a_deep_model_copies_from_where_it_looks(family: str) -> None:
    words, text = task(), "the Zanzibar cat"
    torch.manual_seed(0)
    model = tiny(words, family).eval()
    with torch.no_grad():
        model.head.bias[UNK] = 50.0  # it knows no word
    [(_, one)] = words.predict(model, [text], max_length=3)
    assert one.tokens == [UNK] * 3
    [seen] = words.align(model, [Pair(text, "a b c")])
    looked = seen.weights[:3, :3].argmax(1).tolist()
    assert one.text.split() == [text.split()[n] for n in looked]
    assert one.copied == tuple((n, at) for at, n in enumerate(looked))


def test_with_pieces_the_whole_source_word_is_copied() -> None:
    whole = task()
    pieces = Translation(task("bpe").source, whole.target)
    text = "the Zanzibar cat"
    places = pieces.source.encode(text)
    inside = places.words.index(1) + 2
    [(_, one)] = pieces.predict(Looking([UNK], [inside]), [text])
    assert one.text == "Zanzibar"


def test_where_nothing_is_unknown_or_nothing_attends_nothing_is_copied() -> None:
    words = task()
    le = words.target.id("le")
    model = Looking([le, UNK], [0, 0])
    assert words.copy_unknown(model, [Numbered([4, 5, EOS], [le, le], Pair("the cat", ""), 0)]) == [
        {}
    ]
    assert words.copy_unknown(
        Copier(), [Numbered([4, 5, EOS], [le, UNK], Pair("the cat", ""), 0)]
    ) == [{}]
    [(_, one)] = words.predict(Copier(), ["zzz"])
    assert one.text == "<unk>"
    characters = task("characters")
    assert characters.copy_unknown(
        model, [Numbered([4, 5, EOS], [le, UNK], Pair("the cat", ""), 0)]
    ) == [{}], "only words are copied"


def test_several_texts_of_a_batch_are_copied_each_from_itself() -> None:
    words = task()
    model = tiny(words)
    texts = ["the Quito", "Zanzibar cat ate the mouse", "the cat"]
    encoded = [[*ids, EOS] for ids in words.source.encode_ids(texts)]
    outputs = [[UNK], [5, UNK, UNK], [5]]
    asked = [
        Numbered(e, o, Pair(t, ""), 0) for t, e, o in zip(texts, encoded, outputs, strict=True)
    ]
    together = words.copy_unknown(model, asked)
    alone = [words.copy_unknown(model, [one])[0] for one in asked]
    assert together == alone
    assert [set(one) for one in together] == [{0}, {1, 2}, set()]
    assert all(
        word in text.split()
        for text, one in zip(texts, together, strict=True)
        for word, _ in one.values()
    )


def test_a_batch_holds_at_most_its_budget_of_source_tokens_with_padding() -> None:
    words = copying(task())
    texts = [" ".join(["cat"] * (1 + n % 7)) for n in range(30)]
    for budget in (1, 10, 24, 10_000):
        model = Copier()
        shapes: list[tuple[int, int]] = []
        plain = model.start

        def start(
            source: Tensor, lengths: Tensor, plain: Any = plain, shapes: Any = shapes
        ) -> State:
            shapes.append(tuple(source.shape))
            return plain(source, lengths)

        model.start = start  # type: ignore[method-assign]
        found = dict(words.predict(model, texts, budget))
        assert [found[n].text for n in range(30)] == texts
        assert all(rows * width <= budget or rows == 1 for rows, width in shapes)
        assert sum(rows for rows, _ in shapes) == 30


# --- evaluation


def test_an_evaluation_has_scores_loss_and_alignment_error() -> None:
    words = task()
    model = tiny(words)
    gold = [Pair("the cat", "le chat", 1, alignment=((0, 0), (1, 1))), *PAIRS]
    found = words.evaluate(model, gold, beam=2, quarters=True)
    outputs = dict(words.predict(model, [pair.source for pair in gold], beam=2))
    scored = sacrebleu.corpus_bleu(
        [outputs[n].text for n in range(5)], [[pair.target for pair in gold]]
    )
    assert found["bleu"] == pytest.approx(scored.score)
    assert (found["sentences"], found["beam"]) == (5, 2)
    assert found["loss"] == pytest.approx(mean_loss(words, model, gold), rel=1e-6)
    assert found["aer"] == aer_of(words, model, gold[0]), "pairs without gold links do not count"
    assert found["aer_diagonal"] == 0.0, (
        "the gold links of the one pair that has some are the diagonal"
    )
    assert len(found["by_length"]) == 4
    plain = words.evaluate(tiny(words, "fixed-context"), gold)
    assert "aer" not in plain
    assert "by_length" not in plain


def test_bleu_on_lower_cased_moses_tokens_is_what_the_two_libraries_give() -> None:
    moses = pytest.importorskip("sacremoses")
    outputs = ["Der Hund, z.B. dieser, läuft & bellt.", "Eine Frau sitzt da."]
    references = ["Der hund z.B. dieser läuft & bellt laut.", "Eine Frau sitzt dort."]
    found = scores(outputs, references, "de")
    tokens = moses.MosesTokenizer(lang="de")
    sides = [
        [tokens.tokenize(line, return_str=True, escape=False).lower() for line in side]
        for side in (outputs, references)
    ]
    expected = sacrebleu.corpus_bleu(sides[0], [sides[1]], tokenize="none", force=True).score
    assert found["bleu_tok_lc"] == pytest.approx(expected)
    assert found["bleu_tok_lc"] != found["bleu"]
    assert "sacremoses tokens (de)" in str(found["bleu_tok_lc_how"])
    assert "bleu_tok_lc" not in scores(outputs, references)
    for wrong in ("", "DE", "../de", "german", "xx"):
        with raises(
            "unknown-language",
            match="is not a language with Moses tokens; choose one of as, bn, ca, cs, de,",
        ):
            scores(outputs, references, wrong)


def test_moses_tokens_without_the_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with raises(
        "package-missing",
        match=r"need the package sacremoses; install it with: pip install 'saccade-attention\[scoring\]'",
    ):
        scores(["a"], ["a"], "de")
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert any(line.startswith("sacremoses") for line in extras["scoring"])


def test_text_to_text_counts_outputs_that_are_right_as_a_whole() -> None:
    words = task()
    other = TextToText(words.source, words.target)
    found = other.score(
        ["le chat ", "x", "la souris a mangé le chat noir ici", "souris"], [*PAIRS[1:2], *PAIRS[1:]]
    )
    assert found["exact"] == 75
    assert (
        found["bleu"]
        == words.score(["le chat ", "x", PAIRS[2].target, "souris"], [*PAIRS[1:2], *PAIRS[1:]])[
            "bleu"
        ]
    )
    assert other.evaluate(tiny(words), PAIRS)["exact"] == 0
    assert "exact" not in words.evaluate(tiny(words), PAIRS)
