"""Open questions about a picture: sentences that are true, what the decoder reads and is asked for, controls, and how they are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.support import raises

from saccade import api
from saccade.cli import run
from saccade.data.corpora import OPEN, read
from saccade.data.generated.shapes import rainbow, relation
from saccade.data.image_examples import Asked
from saccade.tasks.image_batches import on_device
from saccade.tasks.open_questions import OpenQuestions

CNN = {"family": "cnn", "dim": 4, "depths": [1, 1], "stem_stride": 4}
SHAPES = {"train": 20, "dev": 5, "test": 8, "size": 32}
FAMILIES = {
    "bahdanau": {"family": "bahdanau", "dim": 8, "hidden": 8, "dropout": 0.0, "image_encoder": CNN},
    "transformer": {
        "family": "transformer",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "dropout": 0.0,
        "image_encoder": CNN,
    },
    "fixed-context": {"family": "fixed-context", "dim": 8, "hidden": 8, "image_encoder": CNN},
}


def recipe(family: str = "bahdanau", **changed: Any) -> dict[str, Any]:
    data = {"train": "shapes:train", "dev": "shapes:dev", "test": "shapes:test", "options": SHAPES}
    training = {
        "updates": 4,
        "tokens": 300,
        "evaluate_every": 2,
        "learning_rate": 0.01,
        "threads": 1,
    }
    vocabulary = {"kind": "words", "split": "punctuation"}
    made = {
        "task": "open-questions",
        "device": "cpu",
        "vocabulary": vocabulary,
        "model": FAMILIES[family],
    }
    return made | {"data": data, "training": training} | changed


def test_the_generated_sentences_are_true() -> None:
    kinds = set()
    for one in read(OPEN, "shapes:train", {"train": 60, "dev": 1, "test": 1}):
        things, answer = one.image.things(), str(one.answer)
        by_color = {thing.color: thing for thing in things}
        colors = [thing.color for thing in rainbow(things)]
        named = [color for color in colors if color in f"{one.question} {answer}".split()]
        if one.question.startswith("what is this picture"):
            kinds.add("about")
            assert all(by_color[color].words in answer for color in colors[:2])
        elif one.question.startswith("what is the"):
            kinds.add("object")
            thing = by_color[named[0]]
            assert answer == f"the {thing.color} object is a {thing.size} {thing.shape}"
        elif one.question.startswith("which"):
            kinds.add("colors")
            assert answer.endswith(
                " ".join(["is" if len(colors) == 1 else "are", " and ".join(colors)])
            )
            assert ("one", "two", "three", "four")[len(colors) - 1] in answer.split()
        else:
            kinds.add("relation")
            seen, other = (by_color[word] for word in one.question.split() if word in by_color)
            said = relation(seen, other, one.image.side)
            assert (
                answer == f"the {seen.color} {seen.shape} is {said} the {other.color} {other.shape}"
            )
    assert kinds == {"about", "object", "colors", "relation"}


def test_the_question_is_read_and_the_answer_alone_asked_for() -> None:
    examples = read(OPEN, "shapes:train", SHAPES)
    system = api.build(recipe(), examples)
    task, words = system.task, system.task.text
    some = [examples[0], next(one for one in examples if "seen from" in one.question)]
    batch = task.batch(task.numbers(some), torch.device("cpu"))
    for row, target, one in zip(batch.inputs[2].tolist(), batch.target.tolist(), some, strict=True):
        asked, said = (words.encode_ids([text])[0] for text in (one.question, str(one.answer)))
        assert row[: len(asked) + 1 + len(said)] == [*asked, words.bos, *said]
        assert target[: len(asked) + len(said) + 1] == [*[words.pad] * len(asked), *said, words.eos]
    assert batch.tokens == sum(len(words.encode_ids([str(one.answer)])[0]) + 1 for one in some)
    assert int((batch.target != words.pad).sum()) == batch.tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_the_whole_model_read_token_by_token(family: str) -> None:
    """Greedy decoding after a question, against the model's own forward pass over question, <bos> and what was generated so far."""
    torch.manual_seed(3)
    examples = read(OPEN, "shapes:test", SHAPES)
    system = api.build(recipe(family), examples)
    task, model, words, some = system.task, system.model, system.task.text, examples[:6]
    batch = task.batch(task.numbers(some), torch.device("cpu"))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(40):  # so that answers differ
        optimizer.zero_grad()
        batch.total(model(*batch.inputs)).backward()
        optimizer.step()
    model.eval()
    found = list(
        task.describe(model, [one.image for one in some], 5, False, [one.question for one in some])
    )
    assert len({one.text for one in found}) > 1
    for one, made in zip(some, found, strict=True):
        pixels = on_device([one.image.pixels(task.image_size)], torch.device("cpu"))
        read_, said = [*words.encode_ids([one.question])[0], words.bos], list[int]()
        while len(said) < 5:
            logits = model(
                pixels, torch.ones(1, dtype=torch.long), torch.tensor([[*read_, *said]])
            )[0, -1]
            logits[[words.pad, words.bos, words.unk]] = float("-inf")
            said.append(int(logits.argmax()))
            if said[-1] == words.eos:
                break
        assert made.text == words.decode([id for id in said if id != words.eos])


def test_the_words_of_the_question_look_at_the_picture_too() -> None:
    examples = read(OPEN, "shapes:test", SHAPES)
    system = api.build(recipe(), examples)
    one = examples[1]
    found = system.predict((one.image, one.question))
    assert found.pieces == [*one.question.split(), *found.answer.split()]
    assert len(found.pieces) == len(found.weights) > 0
    assert found.weights.sum((1, 2)) == pytest.approx(1.0)
    document = system.look(one.image, one.question)
    asked = system.task.text.label_text(one.question)
    assert document.sites[0].rows == [*asked, *system.task.text.label_text(found.answer), "<eos>"]


def test_controls_lack_the_picture_or_the_question() -> None:
    examples = read(OPEN, "shapes:test", SHAPES)
    system = api.build(recipe(), examples)
    found = system.task.evaluate(system.model, examples)
    counts: dict[str, list[str]] = {}
    for one in examples:
        counts.setdefault(one.question, []).append(str(one.answer))
    most = {
        asked: min(said, key=lambda text: (-said.count(text), text))
        for asked, said in counts.items()
    }
    right = sum(most[one.question] == one.answer for one in examples)
    assert found["blind_exact"] == pytest.approx(100 * right / len(examples))
    assert found["exact"] == found["exact_other_picture"] == found["exact_other_question"] == 0.0, (
        "nothing was learned"
    )

    # right about what it is given, so that the controls are what chance leaves
    class Perfect(OpenQuestions):
        def outputs(
            self, model: Any, given: Any, *more: Any, **search: Any
        ) -> tuple[list[str], int]:
            known = {(id(one.image), one.question): str(one.answer) for one in examples}
            return [known.get((id(one.image), one.question), "") for one in given], 0

    system.task.__class__ = Perfect
    found = system.task.evaluate(system.model, examples)
    assert found["exact"] == 100.0
    assert max(found["exact_other_picture"], found["exact_other_question"]) < 50.0


def test_pictures_are_held_out_with_all_their_questions() -> None:
    train, dev = OpenQuestions.divide(read(OPEN, "shapes:train", SHAPES), 0.2)
    assert train
    assert dev
    assert not {one.image for one in train} & {one.image for one in dev}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open") / "run"
    api.fit(recipe(training=recipe()["training"] | {"watch": "bleu"}), folder)
    return folder


def test_a_trained_model_answers_in_python_and_by_the_command(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = api.load(trained)
    assert (
        system.task.blind == json.loads((trained / "best/vocabularies.json").read_text())["blind"]
    )
    Image.new("RGB", (40, 40), "red").save(tmp_path / "red.png")
    one = system.answer(str(tmp_path / "red.png"), "what is this picture all about?")
    assert (
        run(
            [
                "answer",
                str(trained),
                str(tmp_path / "red.png"),
                "what is this picture all about?",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["answer"] == one.answer
    assert printed["probabilities"] == {
        one.answer: pytest.approx(next(iter(one.probabilities.values())))
    }
    assert (
        run(
            [
                "show",
                str(trained),
                str(tmp_path / "red.png"),
                "which colors are there?",
                "--out",
                str(tmp_path / "look.png"),
            ]
        )
        == 0
    )
    assert (tmp_path / "look.png").exists()
    assert (
        run(["evaluate", str(trained), "test", "--beam", "2", "--length-penalty", "0.5", "--json"])
        == 0
    )
    assert {"exact", "cider", "blind_exact", "exact_other_picture"} <= json.loads(
        capsys.readouterr().out.splitlines()[-1]
    ).keys()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["caption", "MODEL", "PICTURE"],
            "an open-questions model cannot describe a picture; use `saccade answer MODEL",
        ),
        (["answer", "MODEL", "PICTURE", " "], "the question is empty; ask something"),
        (["show", "MODEL", "PICTURE"], "give the question after the image"),
        (
            ["show", "MODEL", "PICTURE", "why?", "--target", "because"],
            "a second text is a question about an image; leave it out",
        ),
        (
            ["show", "MODEL", "PICTURE", "--target", "because"],
            "takes no target; leave --target out",
        ),
        (["evaluate", "MODEL", "FILE"], "has no answer to compare with"),
        (
            ["evaluate", "MODEL", "test", "--length-penalty", "99"],
            "a length penalty of 99.0; give a number from -10 to 10",
        ),
    ],
)
def test_wrong_uses_are_one_sentence(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    picture, file = tmp_path / "red.png", tmp_path / "asked.tsv"
    Image.new("RGB", (40, 40), "red").save(picture)
    file.write_text("red.png\twhich colors are there?\n")
    names = {"MODEL": str(trained), "PICTURE": str(picture), "FILE": str(file)}
    assert run([names.get(word, word) for word in words]) == 2
    assert told in capsys.readouterr().err


def test_own_questions_come_from_a_file(tmp_path: Path) -> None:
    for color in ("red", "blue"):
        Image.new("RGB", (32, 32), color).save(tmp_path / f"{color}.png")
    lines = [
        {"image": f"{color}.png", "question": "what is it?", "answer": f"a {color} square ."}
        for color in ("red", "blue")
    ]
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines * 8))
    found = read(OPEN, str(path))
    assert isinstance(found[0], Asked)
    api.fit(recipe(data={"train": str(path), "held_out": 0.5}), tmp_path / "run")
    assert isinstance(
        api.load(tmp_path / "run").answer(str(tmp_path / "red.png"), "what is it?").answer, str
    )
    with raises("corpus-without-part"):
        read(OPEN, "phrasebook:train")
