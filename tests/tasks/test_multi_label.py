"""Multi-label classification: labels of a column, loss, metrics beside a control, threshold, attention, the service and comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import raises, run_cli

import saccade
from saccade.data.labeled import Labeled
from saccade.serving.service import Service
from saccade.serving.service_settings import Settings
from saccade.tasks.multi_label import MultiLabel, micro_f1, split_labels
from saccade.training.loop import Watcher

COLORS, THINGS = ("red", "blue", "green"), ("cat", "dog")
MODEL = {"family": "transformer-encoder", "dim": 16, "hidden": 32, "heads": 2, "depth": 1}


def corpus(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts that name some things; each has the labels of what it names, perhaps none."""
    chance = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        there = [name for name in (*COLORS, *THINGS) if chance.random() < 0.35]
        words = [*there, *chance.choice(["the", "a", "was", "seen", "here"], 3)]
        chance.shuffle(words)
        rows.append((" ".join(words), "|".join(there) or "|"))
    return rows


def recipe(folder: Path, **more: Any) -> dict[str, Any]:
    for name, count, seed in (("train", 200, 0), ("dev", 40, 1), ("test", 60, 2)):
        lines = [f"{text}\t{labels}\n" for text, labels in corpus(count, seed)]
        (folder / f"{name}.tsv").write_text("".join(lines))
    values = {
        "task": "multi-label",
        "data": {name: str(folder / f"{name}.tsv") for name in ("train", "dev", "test")},
        "vocabulary": {"kind": "words"},
        "model": {**MODEL, "dropout": 0.0},
        "training": {"updates": 120, "tokens": 400, "learning_rate": 0.01, "warmup": 5},
        "device": "cpu",
    }
    return values | more


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    saccade.fit(recipe(folder), folder / "run", watcher=Watcher())
    return folder


def f1_by_hand(right: Any, given: Any) -> float:
    """The harmonic mean of precision and recall, in percent."""
    hits = int((right & given).sum())
    if not hits:
        return 0.0
    precision, recall = hits / int(given.sum()), hits / int(right.sum())
    return 100 * 2 * precision * recall / (precision + recall)


def test_labels_of_a_column_are_separated_by_the_first_sign_that_it_has() -> None:
    assert split_labels("a|b, c|a") == ("a", "b, c")
    assert split_labels("a; b,c") == ("a", "b,c")
    assert split_labels(" a , b ") == ("a", "b")
    assert split_labels("alone") == ("alone",)
    assert split_labels("|") == ()


def test_the_loss_is_binary_cross_entropy_and_the_metrics_are_counted_by_hand() -> None:
    examples = [Labeled(text, labels, n) for n, (text, labels) in enumerate(corpus(30, 3), 1)]
    m = saccade.build(
        {"task": "multi-label", "model": MODEL, "vocabulary": {"kind": "words"}, "device": "cpu"},
        examples,
    )
    task, model = m.task, m.model.eval()
    numbers = task.numbers(examples)
    batch = task.batch(numbers, torch.device("cpu"))
    with torch.no_grad():
        logits = model(*batch.inputs)
    right = torch.tensor(
        [[float(name in split_labels(one.label)) for name in task.labels] for one in examples]
    )
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, right)
    assert float(batch.total(logits)) / batch.tokens == pytest.approx(float(wanted), rel=1e-5)
    smooth = torch.nn.functional.binary_cross_entropy_with_logits(logits, 0.9 * right + 0.05)
    assert float(batch.total(logits, 0.1)) / 30 == pytest.approx(float(smooth), rel=1e-5)
    found = m.evaluate(examples, threshold=0.45)
    given = (logits.sigmoid() >= 0.45).numpy()
    each_f1 = [f1_by_hand(right.numpy()[:, n] > 0, given[:, n]) for n in range(len(task.labels))]
    assert found["micro_f1"] == pytest.approx(f1_by_hand(right.numpy() > 0, given))
    assert found["macro_f1"] == pytest.approx(np.mean(each_f1))
    assert found["exact"] == pytest.approx(100 * (given == right.numpy()).all(1).mean())
    assert found["loss"] == pytest.approx(float(wanted), rel=1e-5)
    each = task.per_example(model, examples, threshold=0.45)
    for name, (sums, of) in each.sums.items():
        assert of(sums.sum(0)) == pytest.approx(found[name])
    assert micro_f1((0, 0, 0)) == 0


def test_a_trained_model_beats_the_control_and_predicts_by_a_threshold(run: Path) -> None:
    m = saccade.load(run / "run")
    found = m.evaluate("test")
    assert found["micro_f1"] > 90 > found["micro_f1_majority"] + 20
    assert found["exact"] > found["exact_majority"] + 40
    assert [row["support"] for row in found["classes"]] == sorted(
        (row["support"] for row in found["classes"]), reverse=True
    )
    one = m.classify("the red cat was here")
    assert (one.labels, one.label, list(one)) == (["cat", "red"], "cat | red", ["cat", "red"])
    assert set(one.probabilities) == {*COLORS, *THINGS}
    assert sum(one.probabilities.values()) != pytest.approx(1)
    assert m.predict("was seen here").label == "(none)"
    assert set(m.predict("was seen here", threshold=0).labels) == {*COLORS, *THINGS}
    for wrong, code in ((2, "predict-option-range"), ("a", "wrong-predict-option")):
        with raises(code):
            m.classify("a cat", threshold=wrong)
    assert {site.name for site in one.document} >= {"pool", "encoder.0.mixer"}
    assert "0." in one._repr_html_()


def test_commands_evaluate_show_and_compare(run: Path, tmp_path: Path) -> None:
    assert run_cli("evaluate", run / "run", run / "test.tsv", "--json").json["micro_f1"] > 90
    assert run_cli("show", run / "run", "the red cat", "--out", tmp_path / "a.html").code == 0
    assert run_cli("classify", run / "run", "--input", run / "test.tsv").out.count("\n") == 60
    # of several labels the effects are those on the likeliest
    effects = run_cli("classify", run / "run", "the red cat was here", "--effect", "--json").json
    words = dict(effects["effects"])
    assert list(words) == ["the", "red", "cat", "was", "here"]
    assert max(words, key=lambda word: words[word]) in ("red", "cat")
    for name in ("one", "two"):
        values = recipe(run, model={**MODEL, "depth": 1 + (name == "two")})
        values["training"]["updates"] = 5
        (tmp_path / f"{name}.yaml").write_text(json.dumps(values))
    files = (tmp_path / f"{name}.yaml" for name in ("one", "two"))
    assert run_cli("compare", *files, "--out", tmp_path / "compared", "--json").code == 0


def test_a_service_answers_labels_and_takes_the_threshold(run: Path) -> None:
    from starlette.testclient import TestClient

    with TestClient(
        Service(Settings({"labels": run / "run"})).app(), base_url="http://127.0.0.1"
    ) as client:
        asked = {"text": ["the red cat was here", "was seen here"], "threshold": 0.5}
        results = client.post("/v1/classify", json=asked).json()["results"]
        assert [one["labels"] for one in results] == [["cat", "red"], []]
        seen = client.post("/v1/classify", json={"text": "the red cat", "look": {}}).json()
        assert seen["results"][0]["look"]["sites"]
        assert client.post("/v1/classify", json={"text": "a", "threshold": 2}).status_code == 400
        asked = client.get("/openapi.json").json()["paths"]["/v1/classify"]["post"]["requestBody"]
        fields = asked["content"]["application/json"]["schema"]["properties"]
        assert "1" in str(fields["threshold"])


def test_wrong_labels_are_named() -> None:
    assert MultiLabel.labels_of(Labeled("a", None, 1)) is None
    examples = [Labeled("a cat", "cat", 1), Labeled("a dog", "dog", 2)]
    values = {"task": "multi-label", "model": MODEL, "vocabulary": {"kind": "words"}}
    m = saccade.build({**values, "device": "cpu"}, examples)
    with pytest.raises(saccade.SaccadeError, match="'bird' was never seen in training"):
        m.evaluate([("a bird", "bird|cat")])
    with pytest.raises(saccade.SaccadeError, match="has no label"):
        m.evaluate([Labeled("a bird", None, 3)])
