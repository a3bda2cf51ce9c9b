"""Classification: weights that belong to pieces, TF-IDF of the training texts, accuracy and F1 by a slow count."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saccade import api
from saccade.config import recipes
from saccade.data.batches import pad_rows
from saccade.data.labeled import Labeled
from saccade.data.vocabulary import EOS, PAD, UNK, Vocabulary
from saccade.errors import SaccadeError
from saccade.layers.embeddings import BEGIN, END, spell
from saccade.tasks.classification import Classification
from saccade.tasks.label_task import make_rows
from saccade.training.checkpoints import RunFolder
from saccade.training.losses import batch_loss

TEXTS = [
    Labeled("a good film", "good", 1),
    Labeled("a bad film", "bad", 2),
    Labeled("good good fun", "good", 3),
    Labeled("so so", "middling", 4),
    Labeled("a long film that never ends and is bad", "bad", 5),
]
CPU = torch.device("cpu")


def recipe(family: str = "bag", *words: str, **more: Any) -> recipes.Recipe:
    sizes = {"hidden": 6, "depth": 1} if family != "bag" else {}
    sizes |= {"heads": 2} if family.startswith("transformer") else {}
    return recipes.recipe(
        {
            "task": "classification",
            "model": {"family": family, "dim": 8, **sizes, **more},
            "vocabulary": {"kind": "words"},
            "training": {"tokens": 40},
            "device": "cpu",
        },
        words,
    )


def system(family: str = "bag", *words: str, **more: Any) -> api.System:
    made = api.build(recipe(family, *words, **more), TEXTS)
    return api.System(made.recipe, made.model.eval(), made.task)


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


def saved(made: api.System, folder: Path) -> api.System:
    RunFolder(folder, api.model_files(made)).save("best", made.model)
    return api.load(folder, "cpu")


POOLS = ["mean", "last", "tf-idf", "static", "attention"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", ["words", "bpe", "characters"])
def test_weights_sum_to_one_and_belong_to_the_pieces(pool: str, kind: str) -> None:
    made = system(
        "transformer-encoder", f"vocabulary.kind={kind}", "vocabulary.size=300", pool=pool
    )
    texts = ["a good film", "bad", "a film with words that are new", "  spaces   here "]
    found = api.classify(made, texts)
    for text, one in zip(texts, found, strict=True):
        assert one.pieces == [*made.task.text.label_text(text), "<eos>"]
        assert len(one.weights) == len(one.pieces)
        assert sum(one.weights) == pytest.approx(1, abs=1e-5)
        assert min(one.weights) >= 0
        assert sum(one.probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert list(one.probabilities) == ["bad", "good", "middling"]
        assert one.label == max(one.probabilities, key=one.probabilities.__getitem__)
        [alone] = api.classify(made, [text])
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-5), (
            "whichever others it comes with"
        )
        assert list(alone.weights) == pytest.approx(list(one.weights), abs=1e-5)
    if pool == "last":
        assert found[0].weights[-1] == 1


def test_tf_idf_counts_the_training_texts_and_survives_saving(tmp_path: Path) -> None:
    made = system(pool="tf-idf")
    again = saved(made, tmp_path)
    for one in (made, again):
        [found] = api.classify(one, ["a good film"])
        # of 5 texts a stands in 3, good in 2, film in 3, <eos> in all
        idf = [math.log(5 / 3), math.log(5 / 2), math.log(5 / 3), 0.0]
        assert found.weights == pytest.approx([value / sum(idf) for value in idf], abs=1e-6)
        [unseen] = api.classify(one, ["film zzz"])
        idf = [math.log(5 / 3), math.log(5 / 1), 0.0]
        assert unseen.weights == pytest.approx([value / sum(idf) for value in idf], abs=1e-6), (
            "an unknown word is as rare as any"
        )


@pytest.mark.parametrize("words", ["tokens", "characters-cnn", "characters-rnn"])
def test_words_are_read_by_their_bytes_where_the_model_can(words: str, tmp_path: Path) -> None:
    made = saved(system("rnn-encoder", embedding=words), tmp_path)
    assert made.task.reads_bytes is (words != "tokens")
    one, other = api.classify(made, ["a zebra film", "a zigzag film"])
    assert (one.probabilities == other.probabilities) is (words == "tokens"), "two words never seen"
    alone, together = (
        api.classify(made, ["bad"]),
        api.classify(made, ["bad", "a much longer text with extraordinarily long words"]),
    )
    assert alone[0].probabilities == pytest.approx(together[0].probabilities, abs=1e-6), (
        "padding of bytes and words is invisible"
    )


def test_rows_hold_numbers_bytes_and_padding() -> None:
    words = Vocabulary.train(["the cat", "é"], "words")
    encoded = words.encode_batch(["the cat", "é zzz"])
    plain, spelled = (
        [make_rows([*one.ids, EOS], [*one.pieces, "<eos>"], how) for one in encoded]
        for how in (False, True)
    )
    the, cat, e = (words.id(word) for word in ("the", "cat", "é"))
    assert plain == [[[the], [cat], [EOS]], [[e], [UNK], [EOS]]]
    assert [[row[0] for row in text] for text in spelled] == [[the, cat, EOS], [e, UNK, EOS]]
    assert [n for n in spelled[1][0][1:] if n] == [BEGIN, *(byte + 3 for byte in "é".encode()), END]
    assert spelled[1][1][1:] == spell(["é", "zzz", "<eos>"])[1]
    tensor, lengths = pad_rows([plain[0], plain[1][:1]], PAD)
    assert (tensor.tolist(), lengths.tolist()) == ([[the, cat, EOS], [e, PAD, PAD]], [3, 1])
    tensor, _ = pad_rows([spelled[0], spelled[1][:1]], PAD)
    assert tensor.shape == (2, 3, max(len(row) for text in spelled for row in text))
    assert not tensor[1, 1:].any(), "nothing is spelled at padding"
    assert pad_rows([], PAD)[0].shape == (0, 0)


def test_a_batch_has_the_loss_of_its_texts_whatever_the_budget() -> None:
    made = system("rnn-encoder")
    numbers = made.task.numbers(TEXTS)
    with torch.no_grad():
        alone = [batch_loss(made.model, made.task.batch([one], CPU)).item() for one in numbers]
        assert batch_loss(made.model, made.task.batch(numbers, CPU)).item() == pytest.approx(
            sum(alone), rel=1e-5
        )
    for budget in (1, 9, 10_000):
        assert made.task.metrics(made.model, numbers, budget)["loss"] == pytest.approx(
            sum(alone) / len(alone), rel=1e-5
        )
        assert sorted(
            n for indices, _ in made.task.batches(numbers, CPU, budget) for n in indices
        ) == list(range(len(TEXTS)))
    batch = made.task.batch(numbers[:2], CPU)
    assert (batch.tokens, batch.lines, batch.target.tolist()) == (2, [1, 2], [1, 0]), (
        "the loss is a mean over texts"
    )


class Guessing(torch.nn.Module):
    """Gives the labels it is told, in the order of the texts' lengths."""

    def __init__(self, by_length: dict[int, int], labels: int) -> None:
        super().__init__()
        self.by_length, self.labels = by_length, labels
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, read: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        wanted = torch.tensor([self.by_length[length] for length in lengths.tolist()])
        return torch.nn.functional.one_hot(wanted, self.labels).float()


@pytest.mark.parametrize(
    ("wanted", "guessed"),
    [
        ("aabbc", "aabbc"),
        ("aabbc", "abbca"),
        ("aaaab", "aaaaa"),
        ("ab", "ba"),
        ("aabb", "aabb"),
        ("aaa", "bbb"),
    ],
)
def test_accuracy_and_every_class_by_a_slow_count(wanted: str, guessed: str) -> None:
    labels = ["a", "b", "c"]
    task = Classification(Vocabulary.train(["x"], "words"), labels)
    texts = [Labeled("x " * (n + 1), label, n) for n, label in enumerate(wanted)]
    model = Guessing({n + 2: labels.index(label) for n, label in enumerate(guessed)}, 3)
    found = task.evaluate(model, texts)
    pairs = list(zip(wanted, guessed, strict=True))
    f1, rows = [], {}
    for label in sorted(set(wanted) | set(guessed)):
        right = sum(a == b == label for a, b in pairs)
        precision = right / max(guessed.count(label), 1)
        recall = right / max(wanted.count(label), 1)
        f1.append(2 * precision * recall / (precision + recall) if right else 0.0)
        rows[label] = (precision, recall, f1[-1])
    for at, name in enumerate(("precision", "recall", "f1")):
        assert found[f"macro_{name}"] == pytest.approx(
            100 * sum(row[at] for row in rows.values()) / len(rows)
        )
        assert {row["label"]: row[name] for row in found["classes"]} == pytest.approx(
            {k: 100 * v[at] for k, v in rows.items()}
        )
    assert [row["support"] for row in found["classes"]] == sorted(
        (wanted.count(label) for label in rows), reverse=True
    )
    order, counts = found["confusion"]["labels"], found["confusion"]["counts"]
    assert order == [row["label"] for row in found["classes"]]
    assert counts == [[pairs.count((a, b)) for b in order] for a in order], (
        "rows are the right labels"
    )
    assert found["accuracy"] == pytest.approx(100 * sum(a == b for a, b in pairs) / len(pairs))
    assert found["commonest_label"] == pytest.approx(
        100 * max(map(wanted.count, wanted)) / len(wanted)
    )
    assert found["texts"] == len(wanted)
    expected = sum(math.log(math.e + 2) - (a == b) for a, b in pairs) / len(pairs)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


def test_a_text_without_or_with_an_unknown_label_is_named_with_its_line() -> None:
    made = system()
    bare = [*TEXTS, Labeled("what", None, 17)]
    assert (
        told(lambda: api.build(recipe(), bare))
        == "line 17 of the training data has no label; give every text one"
    )
    assert (
        told(lambda: made.task.work(made.recipe, TEXTS, bare, CPU))
        == "line 17 of the dev data has no label; give every text one"
    )
    assert told(lambda: api.evaluate(made, bare)).startswith(
        "line 17 has no label; give every text one to compare with, or use"
    )
    strange = [*TEXTS, Labeled("what", "goood", 18)]
    assert (
        told(lambda: api.evaluate(made, strange))
        == "line 18: the label 'goood' was never seen in training; did you mean 'good'?"
    )
    assert told(
        lambda: made.task.work(recipe("bag", "data.strict=true"), TEXTS, strange, CPU)
    ).endswith("line 18: the label 'goood' was never seen in training; did you mean 'good'?")
    assert "the training data has only 'good' as label" in told(
        lambda: api.build(recipe(), TEXTS[:1])
    )
    assert "a batch may hold (training.tokens=8)" in told(
        lambda: made.task.work(
            recipe("bag", "training.tokens=8", "data.strict=true"), TEXTS, TEXTS, CPU
        )
    )


def test_what_is_shown_is_the_pool_and_the_attention_below() -> None:
    made = system("transformer-encoder")
    document = api.show(made, "a good film")
    assert [site.name for site in document.sites] == ["pool", "encoder.0.mixer"]
    [found] = api.classify(made, ["a good film"])
    np.testing.assert_array_equal(document.sites[0].weights, [[found.weights]])
    assert (document.source, document.target) == (["a", "good", "film"], [found.label])
    assert document.sites[0].columns == found.pieces
    for site in document.sites:
        assert torch.tensor(site.weights).shape[1:] == (len(site.rows), len(site.columns))
    assert [site.name for site in api.show(system(pool="mean"), "a good film").sites] == ["pool"]


def test_it_learns(tmp_path: Path) -> None:
    data = tmp_path / "texts.tsv"
    data.write_text("".join(f"{one.text}\t{one.label}\n" for one in TEXTS * 4))
    words = [
        f"data.train={data}",
        f"data.dev={data}",
        "training.updates=60",
        "training.learning_rate=0.05",
        "training.warmup=5",
    ]
    _, ended = api.fit(
        recipe("bag", *words, "training.watch=accuracy", dropout=0.0), tmp_path / "run"
    )
    assert ended.best == 100
