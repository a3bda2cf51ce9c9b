"""Tagging: the place of each word's first piece, words never seen, accuracy by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade import api
from saccade.config import recipes
from saccade.data.conllu import Sentence
from saccade.data.vocabulary import UNK
from saccade.errors import SaccadeError
from saccade.models.protocols import Encoder
from saccade.tasks.tagging import Tagging
from saccade.training.checkpoints import RunFolder
from saccade.training.losses import batch_loss

SENTENCES = [
    Sentence(("the", "black", "cat"), ("DET", "ADJ", "NOUN"), 1),
    Sentence(
        ("the", "New York", "cats", "sleep", "internationalization"),
        ("DET", "PROPN", "NOUN", "VERB", "NOUN"),
        5,
    ),
    Sentence(("sleep",), ("VERB",), 11),
]
CPU = torch.device("cpu")


def recipe(
    family: str = "rnn-encoder", kind: str = "words", *words: str, **more: Any
) -> recipes.Recipe:
    sizes = {"heads": 2} if family.startswith("transformer") else {}
    return recipes.recipe(
        {
            "task": "tagging",
            "model": {
                "family": family,
                "dim": 8,
                "hidden": 6,
                "depth": 1,
                "dropout": 0.0,
                **sizes,
                **more,
            },
            "vocabulary": {"kind": kind, "size": 300},
            "training": {"tokens": 60},
            "device": "cpu",
        },
        words,
    )


def system(family: str = "rnn-encoder", kind: str = "words", **more: Any) -> api.System:
    made = api.build(recipe(family, kind, **more), SENTENCES)
    return api.System(made.recipe, made.model.eval(), made.task)


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


@pytest.mark.parametrize("kind", ["words", "bpe", "characters"])
def test_each_word_is_tagged_at_its_first_piece(kind: str) -> None:
    task = system(kind=kind).task
    for one, (rows, tags, line, at, *_) in zip(SENTENCES, task.numbers(SENTENCES), strict=True):
        ids = [row[0] for row in rows]
        assert [task.labels[tag] for tag in tags] == list(one.tags or ())
        assert line == one.line
        assert (at[0], len(at)) == (0, len(one.words))
        for word, begin, end in zip(one.words, at, [*at[1:], len(ids)], strict=True):
            alone = task.text.encode_ids([word])[0]
            assert ids[begin:end] == (alone[:1] if kind == "words" else alone)
            if kind == "bpe":
                assert task.text.decode(ids[begin:end]) == word


def test_a_word_with_a_space_is_one_word_and_has_one_tag() -> None:
    for kind in ("words", "bpe", "characters"):
        made = system(kind=kind)
        [tags] = api.tag(made, [Sentence(("the", "New York", "cat"), None, 1)])
        assert len(tags) == 3


LETTERS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=8)


@given(
    st.lists(st.lists(LETTERS, min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from(["words", "bpe", "characters"]),
)
def test_any_words_get_a_tag_each(sentences: list[list[str]], kind: str) -> None:
    made = MADE.setdefault(kind, system(kind=kind))
    asked = [Sentence(tuple(words), None, n) for n, words in enumerate(sentences, 1)]
    found = api.tag(made, asked)
    assert [len(tags) for tags in found] == [len(words) for words in sentences]
    assert {tag for tags in found for tag in tags} <= set(made.task.labels)
    assert found == [api.tag(made, [one])[0] for one in asked]


MADE: dict[str, api.System] = {}


def test_words_never_seen_are_read_by_their_bytes(tmp_path: Path) -> None:
    plain, spelled = system(), system(embedding="characters-cnn")
    RunFolder(tmp_path, api.model_files(spelled)).save("best", spelled.model)
    again = api.load(tmp_path, "cpu")
    assert again.task.reads_bytes
    asked = [Sentence(("the", word, "sleep"), None, 1) for word in ("zebra", "zigzagging")]

    def logits(made: api.System) -> list[torch.Tensor]:
        with torch.no_grad():
            batches = [made.task.batch([one], CPU) for one in made.task.numbers(asked)]
            return [made.model(*batch.inputs)[0, 1] for batch in batches]

    assert torch.equal(*logits(plain))
    for made in (spelled, again):
        one, other = logits(made)
        assert not torch.equal(one, other)
    torch.testing.assert_close(logits(spelled), logits(again))
    numbers = spelled.task.numbers([Sentence(("New York",), None, 1)])
    assert bytes(n - 3 for n in numbers[0][0][0][2:] if n > 2) == b"New York"


@pytest.mark.parametrize(
    ("family", "words"), [("rnn-encoder", "tokens"), ("transformer-encoder", "characters-rnn")]
)
@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_batch_has_the_loss_of_its_sentences(family: str, words: str, kind: str) -> None:
    made = system(family, kind, embedding=words)
    numbers = made.task.numbers(SENTENCES)
    with torch.no_grad():
        alone = [batch_loss(made.model, made.task.batch([one], CPU)).item() for one in numbers]
        batch = made.task.batch(numbers, CPU)
        assert batch_loss(made.model, batch).item() == pytest.approx(sum(alone), rel=1e-5)
    assert batch.tokens == 9
    for budget in (1, 20, 1000):
        assert made.task.metrics(made.model, numbers, budget)["loss"] == pytest.approx(
            sum(alone) / 9, rel=1e-5
        )


def test_accuracy_over_all_words_and_over_those_never_seen() -> None:
    made = system()
    asked = [
        Sentence(("the", "zebra", "sleep"), ("DET", "NOUN", "VERB"), 1),
        Sentence(("a", "cat"), ("DET", "NOUN"), 2),
    ]
    guessed = api.tag(made, asked)
    found = api.evaluate(made, asked)
    right = [
        a == b
        for one, tags in zip(asked, guessed, strict=True)
        for a, b in zip(one.tags or (), tags, strict=True)
    ]
    assert found["accuracy"] == pytest.approx(100 * sum(right) / 5)
    assert found["unknown_words"] == 2
    assert found["accuracy_unknown"] == pytest.approx(100 * (right[1] + right[3]) / 2)
    assert found["sentences"] == 2
    assert "accuracy_unknown" not in api.evaluate(made, SENTENCES[:1])
    assert "unknown_words" not in api.evaluate(system(kind="bpe"), SENTENCES)


def test_the_usual_tag_of_each_word_is_a_control_that_is_stored() -> None:
    train = [
        Sentence(("the", "saw", "saw"), ("DET", "NOUN", "VERB"), 1),
        Sentence(("saw", "the", "the"), ("NOUN", "DET", "ADJ"), 2),
        Sentence(("cats", "dogs"), ("NOUN", "NOUN"), 3),
    ]
    made = api.build(recipe(), train)
    asked = [
        Sentence(("the", "saw", "zebra"), ("ADJ", "NOUN", "NOUN"), 1),
        Sentence(("cats", "zebra"), ("NOUN", "VERB"), 2),
    ]
    # the → DET (2 of 3), saw → NOUN (2 of 3), cats → NOUN, and zebra → NOUN, the most frequent of all: 3 of 5 are right
    for task in (made.task, Tagging.restore(made.recipe, made.task.tokens())):
        assert task.evaluate(made.model, asked)["usual_accuracy"] == pytest.approx(60)
    assert "usual_accuracy" not in api.evaluate(system(kind="bpe"), SENTENCES)
    for usual in ([0, 1], [9] * len(made.task.text), ["DET"] * len(made.task.text)):
        with pytest.raises(TypeError, match="one per token"):
            Tagging.restore(made.recipe, {**made.task.tokens(), "usual": usual})


def test_the_unknown_word_is_known_to_be_unknown() -> None:
    task = system().task
    [(rows, *_)] = task.numbers([Sentence(("zebra", "cat"), None, 1)])
    assert (rows[0][0] == UNK, rows[1][0] == UNK) == (True, False)


def test_sentences_without_or_with_unknown_tags_are_named_with_their_line() -> None:
    made = system()
    bare = [*SENTENCES, Sentence(("cat",), None, 21)]
    assert (
        told(lambda: api.build(recipe(), bare))
        == "line 21 of the training data has no tag; give every word one"
    )
    assert "line 21 of the dev data has no tag;" in told(
        lambda: made.task.work(made.recipe, SENTENCES, bare, CPU)
    )
    assert "line 21 has no tag; give every word one to compare with, or use `tag`" in told(
        lambda: api.evaluate(made, bare)
    )
    strange = [Sentence(("cat",), ("NUON",), 22)]
    assert (
        told(lambda: api.evaluate(made, strange))
        == "line 22: the tag 'NUON' was never seen in training; did you mean 'NOUN'?"
    )
    assert "only 'VERB' as tag" in told(lambda: api.build(recipe(), SENTENCES[2:]))


def test_a_task_is_itself_after_it_was_stored() -> None:
    made = system()
    again = Tagging.restore(made.recipe, made.task.tokens())
    assert again.labels == made.task.labels == ["ADJ", "DET", "NOUN", "PROPN", "VERB"]
    assert again.text.to_json() == made.task.text.to_json()


def test_what_is_shown_is_the_attention_between_pieces() -> None:
    for kind in ("words", "bpe"):
        made = system("transformer-encoder", kind)
        document = api.show(made, "the black cat")
        assert "".join(document.source).replace("Ġ", "") == "theblackcat"
        assert document.target == [
            " ".join(api.tag(made, [Sentence(("the", "black", "cat"), None, 1)])[0])
        ]
        [site] = document.sites
        assert (site.name, len(site.rows)) == ("encoder.0.mixer", len(document.source))
        assert torch.tensor(site.weights).shape[1:] == (len(site.rows), len(site.columns))


# --- parse trees


class Plain(torch.nn.Embedding):
    """Token numbers alone."""

    reads_bytes = False


class TreeBody(Encoder):
    """An encoder that needs trees: a token's vector is the row of its distances."""

    needs_relation = True

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim, self.embedding, self.seen = dim, Plain(300, dim), list[torch.Tensor | None]()

    def forward(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        relation: torch.Tensor | None = None,
        depth: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self.seen.append(relation)
        assert relation is not None
        assert depth is not None
        return self.embedding(tokens) + relation.sum(-1, keepdim=True) + depth.unsqueeze(-1)


class TreeBuilder:
    """Builds a TreeBody, whatever is asked for."""

    name, dropout = "trees", 0.0

    def make(self, kind: type, *vocab: int) -> TreeBody:
        return TreeBody(4)

    def pool(self, dim: int, vocab: int) -> Any:
        raise AssertionError("nothing is pooled")


TREES = [
    Sentence(("the", "black", "cat"), ("DET", "ADJ", "NOUN"), 1, (2, 2, -1)),
    Sentence(("cats", "sleep"), ("NOUN", "VERB"), 5, (1, -1)),
]


def tree_system(kind: str = "words") -> api.System:
    task = Tagging.learn(recipe(kind=kind), TREES)
    return api.System(recipe(kind=kind), task.build(TreeBuilder()), task)


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_a_batch_has_the_distances_of_its_tokens_along_their_words_trees(kind: str) -> None:
    task = tree_system(kind).task
    for multiple in (1, 4):
        batch = task.batch(task.numbers(TREES), CPU, multiple)
        tokens, lengths, _, relation, depth = batch.inputs
        assert relation.shape == (2, tokens.shape[1], tokens.shape[1])
        assert depth.shape == tokens.shape
        assert tokens.shape[1] % multiple == 0
        for row, steps in enumerate(([[0, -2, 1], [2, 0, 1], [-1, -1, 0]], [[0, 1], [-1, 0]])):
            sizes = [1 if kind == "words" else len(word) for word in TREES[row].words]
            word = [n for n, size in enumerate(sizes) for _ in range(size)]
            assert len(word) == lengths[row]
            expected = torch.zeros_like(relation[row])
            for i, a in enumerate(word):
                for j, b in enumerate(word):
                    expected[i, j] = steps[a][b]
            assert torch.equal(relation[row], expected), "0 inside a word and at padding"
            above = [[1, 1, 0], [1, 0]][row]
            assert depth[row].tolist() == [
                *(above[a] for a in word),
                *[0] * (tokens.shape[1] - len(word)),
            ]


def test_trees_reach_the_model_in_training_evaluation_and_tagging() -> None:
    made = tree_system()
    work = made.task.work(recipe(), TREES, TREES, CPU)
    work.loss(made.model, work.batch(work.epoch(0)[0])).backward()
    work.agreement = 1.0
    work.loss(made.model, work.batch(work.epoch(0)[0])).backward()
    assert api.evaluate(made, TREES)["sentences"] == 2
    assert [len(tags) for tags in api.tag(made, TREES)] == [3, 2]
    assert len(made.model.body.seen) >= 4
    plain = system()
    assert len(plain.task.batch(plain.task.numbers(TREES), CPU).inputs) == 3, (
        "a model that needs no trees gets none"
    )


def test_a_sentence_without_a_tree_is_named_with_its_line_and_the_way_out() -> None:
    made = tree_system()
    bare = [Sentence(("cats",), ("NOUN",), 9)]
    sentence = "line 9: the sentence has no parse tree, which the positions of this model need; give a .conllu file whose HEAD column"
    for work in (lambda: api.tag(made, bare), lambda: api.evaluate(made, bare)):
        assert told(work).startswith(sentence)
    told_in_training = told(lambda: made.task.work(recipe(), TREES, bare, CPU))
    assert told_in_training.endswith("or train with other positions than syntax and depth")
    assert "has no parse tree" in told(lambda: api.show(made, "cats sleep"))
    circle = [Sentence(("a", "b"), ("DET", "NOUN"), 4, (1, 0))]
    assert told(lambda: api.tag(made, circle)).startswith(
        "line 4: the heads do not form a tree; all words must lead to one root"
    )


def test_only_tagging_reads_trees() -> None:
    from saccade.tasks.classification import Classification

    task = Classification(tree_system().task.text, ["good", "bad"])
    assert "which needs the parse trees of tagging data; choose another position" in told(
        lambda: task.build(TreeBuilder())
    )


def test_syntax_positions_are_a_word_in_the_recipe(tmp_path: Path) -> None:
    """From the HEAD column to the weights: with other trees the same words get other logits."""
    rows = "1\tthe\t_\tDET\t_\t_\t{}\t_\t_\t_\n2\tblack\t_\tADJ\t_\t_\t{}\t_\t_\t_\n3\tcat\t_\tNOUN\t_\t_\t0\t_\t_\t_\n\n"
    for name, heads in (("flat", (3, 3)), ("chain", (2, 3))):
        (tmp_path / f"{name}.conllu").write_text(rows.format(*heads) * 2)
    how = ["training.updates=2", "training.tokens=30", "data.column=upos"]
    data = [f"data.{split}={tmp_path / 'flat.conllu'}" for split in ("train", "dev")]
    made, _ = api.fit(
        recipe("transformer-encoder", "words", *how, *data, position="syntax"), tmp_path / "run"
    )
    flat, chain = (made.read(str(tmp_path / f"{name}.conllu")) for name in ("flat", "chain"))
    assert api.tag(made, flat) == api.tag(
        made, [Sentence(one.words, None, one.line, one.heads) for one in flat]
    )
    one, other = (
        made.task.logits(made.model, made.task.numbers(each))[0] for each in (flat, chain)
    )
    assert one.shape == other.shape
    assert not torch.allclose(one, other)
    assert "has no parse tree" in told(lambda: api.tag(made, [Sentence(("the", "cat"), None, 1)]))
