"""Questions about pictures: pictures read once for all their questions, answers that depend on the picture, what is answered without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import raises

from saccade import api
from saccade.config import recipes
from saccade.core import record
from saccade.data.corpora import ASKED, read
from saccade.data.image_examples import Asked
from saccade.system import run_report
from saccade.tasks.label_task import Numbered
from saccade.tasks.questions import Questions, SharedPlans
from support import error_of

CPU = torch.device("cpu")
SIZES = {
    "transformer-encoder": {"hidden": 16, "depth": 1, "heads": 2},
    "rnn-encoder": {"hidden": 8, "depth": 1},
}
EXAMPLES = read(ASKED, "shapes:train", {"train": 12, "dev": 3, "test": 3, "size": 32})


def recipe(family: str = "transformer-encoder", *words: str, **more: Any) -> recipes.Recipe:
    images = {"family": "cnn", "dim": 4, "depths": [1, 1], "stem_stride": 4}
    return recipes.recipe(
        {
            "task": "questions",
            "data": {
                "train": "shapes:train",
                "dev": "shapes:dev",
                "options": {"train": 12, "dev": 3, "test": 3, "size": 32},
            },
            "model": {
                "family": family,
                "dim": 8,
                "dropout": 0.0,
                **SIZES[family],
                "image_encoder": images,
                **more,
            },
            "vocabulary": {"kind": "words", "split": "punctuation"},
            "training": {"tokens": 200, "updates": 2},
            "device": "cpu",
        },
        words,
    )


def system(family: str = "transformer-encoder", *words: str, **more: Any) -> api.System:
    made = api.build(recipe(family, *words, **more), EXAMPLES)
    return api.System(made.recipe, made.model.eval(), made.task)


def test_a_batch_has_each_picture_once_and_every_question_its_own() -> None:
    made = system()
    numbers = made.task.numbers(EXAMPLES)
    assert len({id(one.pixels) for one in numbers}) == 12, "decoded once, and shared"
    batch = made.task.batch([numbers[3], numbers[0], numbers[20], numbers[1]], CPU)
    tokens, _, images, which = batch.inputs
    assert len(tokens) == 4
    assert len({one.image for one in (EXAMPLES[3], EXAMPLES[0], EXAMPLES[20], EXAMPLES[1])}) == len(
        images
    )
    for n, at in enumerate((3, 0, 20, 1)):
        assert torch.equal(
            (255 * images[which[n]]).round().to(torch.uint8), EXAMPLES[at].image.pixels()
        )


@pytest.mark.parametrize("family", SIZES)
@torch.no_grad()
def test_shared_pictures_give_what_each_question_gets_alone(family: str) -> None:
    made = system(family)
    numbers = made.task.numbers(EXAMPLES[:9])
    together = made.model(*made.task.batch(numbers, CPU).inputs)
    for n, one in enumerate(numbers):
        torch.testing.assert_close(made.model(*made.task.batch([one], CPU).inputs)[0], together[n])
    tokens, lengths, images, which = made.task.batch(numbers, CPU).inputs
    torch.testing.assert_close(
        made.model(tokens, lengths, images[which]), together, msg="a picture for each question"
    )
    assert not torch.allclose(made.model(tokens, lengths, images.flip(0), which), together), (
        "the picture matters"
    )


@pytest.mark.parametrize("family", SIZES)
@torch.no_grad()
def test_where_something_is_matters_by_the_grid_embedding_alone(family: str) -> None:
    """A single convolution of 1 × 1 patches knows no positions; so the same patches in another order differ by the grid embedding."""
    patches = {
        "family": "vit",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 1,
        "patch": 8,
        "grid_embedding": "none",
    }
    images = torch.rand(1, 3, 16, 16)
    moved = torch.cat([images[..., 8:], images[..., :8]], -1)
    for grid, same in (("none", True), ("sinusoidal", False), ("learned", False)):
        made = system(family, image_encoder=patches, grid_embedding=grid)
        tokens, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
        assert (
            torch.allclose(
                made.model(tokens, lengths, images), made.model(tokens, lengths, moved), atol=1e-6
            )
            == same
        ), grid


def test_plans_have_every_question_once_and_pictures_together_within_the_budget() -> None:
    pixels = [torch.zeros(1) for _ in range(5)]
    numbers = [Numbered([[1]] * (3 + n % 4), [0], n, pixels=pixels[n % 5]) for n in range(33)]
    plans = SharedPlans(numbers, 50)
    for epoch in (0, 1):
        batches = plans(3, epoch)
        assert sorted(n for batch in batches for n in batch) == list(range(33))
        assert all(len(batch) * max(len(numbers[n].rows) for n in batch) <= 50 for batch in batches)
    assert plans(3, 0) == SharedPlans(numbers, 50)(3, 0)
    assert plans(3, 0) != plans(3, 1)
    holding = [[n for n in range(5) if any(m % 5 == n for m in batch)] for batch in plans(3, 0)]
    assert max(sum(picture in one for one in holding) for picture in range(5)) == 1, (
        "each picture is read once in an epoch"
    )
    many = SharedPlans([Numbered([[1]] * 4, [0], n, pixels=pixels[0]) for n in range(30)], 20)(0, 0)
    assert max(map(len, many)) == 5, "more questions than a batch holds are divided"


def test_pictures_are_held_out_with_all_their_questions() -> None:
    train, dev = Questions.divide(EXAMPLES, 0.25)
    assert len(train) + len(dev) == len(EXAMPLES)
    assert not {one.image for one in train} & {one.image for one in dev}
    assert len({one.image for one in dev}) == 3


def test_what_is_answered_without_the_picture() -> None:
    train = [
        Asked(EXAMPLES[0].image, question, answer, n)
        for n, (question, answer) in enumerate(
            [("is it red?", "yes"), ("is it red?", "no"), ("is it red?", "no"), ("what shape?", "circle"), ("what shape?", "circle"),
             ("big?", "yes"), ("small?", "yes"), ("small?", "yes")], 1
        )
    ]  # fmt: skip
    made = api.build(recipe(), train)
    again = Questions.restore(made.recipe, made.task.tokens())
    assert (
        (made.task.blind, made.task.commonest)
        == (again.blind, again.commonest)
        == ({"is it red?": 1, "what shape?": 0}, 2)
    )
    asked = [
        ("is it red?", "no"),
        ("is it red?", "yes"),
        ("what shape?", "circle"),
        ("never asked?", "yes"),
        ("big?", "no"),
    ]
    metrics = made.evaluate([Asked(EXAMPLES[0].image, *one, n) for n, one in enumerate(asked, 1)])
    assert metrics["blind_accuracy"] == pytest.approx(60.0)
    assert metrics["questions"] == 5


def test_a_trained_model_answers_by_the_picture_and_its_folder_answers_alike(
    tmp_path: Path,
) -> None:
    for n, color in enumerate(("red", "blue")):
        for m in range(4):
            Image.new("RGB", (16, 16), tuple(230 if k == 2 * n else 10 * m for k in range(3))).save(
                tmp_path / f"{color}{m}.png"
            )
    lines = [
        f"{color}{m}.png\twhat color is it?\t{color}" for color in ("red", "blue") for m in range(4)
    ]
    lines += [
        f"{color}{m}.png\tis it red?\t{'yes' if color == 'red' else 'no'}"
        for color in ("red", "blue")
        for m in range(4)
    ]
    (tmp_path / "asked.tsv").write_text("\n".join(lines) + "\n")
    where = str(tmp_path / "asked.tsv")
    values = recipe().to_dict()
    values["data"] = {"train": where, "dev": where, "image_size": 16}
    values["training"] = {
        "updates": 80,
        "tokens": 200,
        "learning_rate": 0.02,
        "warmup": 5,
        "smoothing": 0.0,
        "evaluate_every": 20,
    }
    fitted, _ = api.fit(values, tmp_path / "run")
    metrics = fitted.evaluate(where)
    assert (metrics["accuracy"], metrics["blind_accuracy"]) == (100.0, 50.0)
    assert metrics["accuracy_is_it"] == metrics["accuracy_what_color"] == 100.0
    run_report.report([tmp_path / "run"], tmp_path / "page.html", api.show)
    assert "what color is it?" in (tmp_path / "page.html").read_text(), "the samples of a report"
    loaded = api.load(tmp_path / "run", "cpu")
    one = loaded.answer(tmp_path / "blue2.png", "what color is it?")
    assert (str(one), one.answer, one.name) == ("blue", "blue", str(tmp_path / "blue2.png"))
    assert sum(one.probabilities.values()) == pytest.approx(1.0)
    several = loaded.answer(str(tmp_path / "red1.png"), ["is it red?", "what color is it?"])
    assert [answer for answer, _ in several] == ["yes", "red"]
    pairs = loaded.answer(
        [(tmp_path / "red1.png", "is it red?"), (tmp_path / "blue1.png", "is it red?")]
    )
    assert pairs == ["yes", "no"]
    assert loaded.evaluate([(tmp_path / "red1.png", "is it red?", "yes")])["accuracy"] == 100.0


@pytest.mark.parametrize("family", SIZES)
def test_weights_are_those_of_the_attention_to_the_picture(family: str) -> None:
    made = system(family)
    image, question = EXAMPLES[0].image, EXAMPLES[0].question
    found = made.answer(image, question)
    assert found.pieces == [*made.task.text.label_text(question), "<eos>"]
    assert found.weights.shape == (len(found.pieces), 4, 4)
    np.testing.assert_allclose(found.weights.sum((1, 2)), 1.0, rtol=1e-5)
    with record(made.model) as seen, torch.no_grad():
        made.model(*made.task.batch(made.task.numbers([EXAMPLES[0]]), CPU).inputs)
    [looks] = [site for site in seen.values() if site.cross]
    np.testing.assert_allclose(found.weights.reshape(-1, 16), looks.weights()[0].mean(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda m: m.answer("nowhere.png", "what?"), "no file 'nowhere.png'; check the path"),
        (lambda m: m.answer(EXAMPLES[0].image, " "), "question 1 is empty; ask something"),
        (lambda m: m.answer([(EXAMPLES[0].image,)]), "expected an image's path and a question"),
        (
            lambda m: m.answer(EXAMPLES[0].image, 3),
            "expected a text or a list of texts, got int; write m.answer(",
        ),
        (
            lambda m: m.classify("a text"),
            'a questions model cannot label a text; use m.answer("picture.png", "your question")',
        ),
        (lambda m: m.evaluate([("x.png", "what?")]), "expected (image, question, answer)"),
        (
            lambda m: m.evaluate([Asked(EXAMPLES[0].image, "what?", None, 7)]),
            "line 7 has no answer; give every question one",
        ),
        (
            lambda m: m.evaluate([Asked(EXAMPLES[0].image, "what?", "mauve", 7)]),
            "the answer 'mauve' was never seen in training",
        ),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(ask: Any, sentence: str) -> None:
    assert sentence in error_of(lambda: ask(system()))


def test_data_that_are_no_questions_with_a_closed_set_of_answers_are_refused() -> None:
    each = [Asked(EXAMPLES[0].image, "what?", f"answer {n}", n) for n in range(50)]
    assert "50 answers for 50 questions, nearly one each" in error_of(
        lambda: api.build(recipe(), each)
    )
    assert "line 1 of the training data has no answer" in error_of(
        lambda: api.build(recipe(), [Asked(each[0].image, "a?", None, 1)])
    )
    with raises(
        "family-not-supported",
        match="which is not an encoder whose text looks at an image; choose one of: ",
    ):
        recipes.recipe(
            {
                "task": "questions",
                "data": {"train": "shapes:train"},
                "model": {"family": "bahdanau"},
            }
        )


def test_settings_that_do_not_fit_a_text_that_looks_at_an_image_are_refused() -> None:
    for stack in ("funnel", "transparent"):
        assert f"model.stack={stack} is not for a model that attends to an image" in error_of(
            lambda stack=stack: recipe(stack=stack)
        )
    assert "model.head has no effect on this transformer-encoder" in error_of(
        lambda: recipe(head="mixture")
    )
    assert "no setting named 'model.image_encoder.dims'" in error_of(
        lambda: recipe(image_encoder={"family": "cnn", "dims": 3})
    )
    assert "model.image_encoder.family is 'bag', which is not an image encoder" in error_of(
        lambda: recipe(image_encoder={"family": "bag"})
    )


def test_training_changes_pictures_and_not_their_questions() -> None:
    made = system("transformer-encoder", "data.augment={crop: 2}")
    work = made.task.work(made.recipe, EXAMPLES, EXAMPLES[:4], CPU)
    plain = made.task.work(recipe(), EXAMPLES, EXAMPLES[:4], CPU)
    plan = work.epoch(0)[0]
    assert plan == plain.epoch(0)[0]
    changed, kept = work.batch(plan), plain.batch(plan)
    assert all(torch.equal(changed.inputs[n], kept.inputs[n]) for n in (0, 1, 3))
    assert not torch.equal(changed.inputs[2], kept.inputs[2])
    assert torch.equal(changed.inputs[2], work.batch(plan).inputs[2]), (
        "the same batch is changed the same way"
    )
    mixed = recipe("transformer-encoder", "data.augment={mixup: 0.5}")
    assert "mix two pictures, and a question is about one" in error_of(
        lambda: made.task.work(mixed, EXAMPLES, EXAMPLES[:4], CPU)
    )
