"""Model folders that earlier versions wrote still load, and give the tokens, labels and numbers they gave then.

`tests/fixtures/v0.1.0/NAME/` is a model folder with `expected.json`: what `observe` returned under 0.1.0. The folders and the inputs
are written by `tests/fixtures/make_v0_1_0.py`, those of later versions by `make_later.py`; never write them again with another version.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import raises

import saccade
from saccade import api
from saccade.config import recipes, upgrade
from saccade.decoding import Beam
from saccade.errors import SaccadeError


@pytest.fixture(autouse=True)
def upgrades_are_noted_again() -> None:
    """Each upgrade is noted once in a process."""
    upgrade.note.cache_clear()


FIXTURES = Path(__file__).parents[1] / "fixtures"
ROOT = FIXTURES / "v0.1.0"
INPUTS = ROOT / "inputs"
FOLDERS = sorted(path.parent for path in ROOT.glob("*/expected.json"))
LATER = sorted(
    path.parent for path in FIXTURES.glob("v*/*/expected.json") if path.parents[1] != ROOT
)
TOKENS = torch.tensor([[2, 5, 9, 4, 12, 7, 21, 3]])  # numbers that every vocabulary has
LENGTHS = torch.tensor([8])
# What each language-model objective's model is called with, besides the tokens.
MORE: dict[str, tuple[torch.Tensor, ...]] = {
    "causal": (),
    "masked": (LENGTHS,),
    "permutation": (LENGTHS, torch.tensor([[3, 0, 6, 1, 7, 2, 5, 4]]), torch.tensor([[2, 4, 6]])),
    "denoising": (LENGTHS, TOKENS),
}


def observe(kind: str, system: api.System) -> dict[str, Any]:
    """What the public functions give for the fixed inputs."""
    seen = {
        "translation": translation,
        "text-to-text": translation,
        "tagging": tagging,
        "classification": classification,
    }
    return rounded(seen.get(kind, language)(system, kind))


def translation(system: api.System, kind: str) -> dict[str, Any]:
    pairs = system.read(str(INPUTS / ("pairs.jsonl" if kind == "translation" else "dates.tsv")))
    texts = [*(pair.source for pair in pairs), "the zebra saw the old xylophone", ""]
    found: dict[str, Any] = {"unknown": api.unknown_words(system, texts)}
    for name, beam in (("greedy", 1), ("beam", 4)):
        found[name] = [
            [one.text, one.tokens, one.log_prob, one.score, one.finished, one.alternatives]
            for one in api.decode(system, texts, beam=beam)
        ]
    evaluated = api.evaluate(system, pairs, beam=2, quarters=True)
    for name in ("cut_outputs", "gleu", "aer_diagonal", "perplexity"):
        evaluated.pop(name, None)  # version 0.1.0 did not report them
    found["evaluation"] = numbers(evaluated)
    try:
        aligned = api.align(system, pairs)
        found["links"] = [[list(link) for link in one.links] for one in aligned]
        found["weights"] = aligned[0].weights.tolist()
    except SaccadeError:  # one fixed context: nothing to align by
        found["links"] = None
    return found


def language(system: api.System, kind: str) -> dict[str, Any]:
    documents = system.read(str(INPUTS / "text.txt"))
    evaluated = api.evaluate(system, documents)
    evaluated.pop("unigram_loss", None)  # version 0.1.0 did not report it
    found: dict[str, Any] = {"evaluation": numbers(evaluated)}
    with torch.no_grad():
        logits = system.model(TOKENS, *MORE[kind])
    found["logits"] = logits[0, -1].tolist()
    if kind == "causal":
        prompts = ("", "the old", "this woman")
        found["generated"] = [
            "".join(api.generate(system, prompt, 12, {"temperature": 0})) for prompt in prompts
        ]
    return found


def tagging(system: api.System, kind: str) -> dict[str, Any]:
    sentences = system.read(str(INPUTS / "sentences.conllu"))
    return {
        "tags": api.tag(system, sentences),
        "evaluation": numbers(api.evaluate(system, sentences)),
    }


def classification(system: api.System, kind: str) -> dict[str, Any]:
    texts = system.read(str(INPUTS / "labeled.tsv"))
    found = api.classify(system, [one.text for one in texts])
    return {
        "labels": [[one.label, one.probabilities, one.pieces, one.weights] for one in found],
        "evaluation": numbers(api.evaluate(system, texts)),
    }


def numbers(metrics: dict[str, Any]) -> dict[str, Any]:
    """Without signatures, which name the versions of other packages; classes and BLEU by length are grouped in another way today."""
    found = {
        name: value for name, value in metrics.items() if not isinstance(value, str | list | dict)
    }
    found |= {"f1": found["macro_f1"]} if "commonest_label" in found else {}  # as 0.1.0 called it
    return {name: value for name, value in found.items() if not name.startswith("macro_")}


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def check(found: Any, wanted: Any, path: str) -> None:
    """Numbers within 1e-4, all else exactly."""
    if isinstance(wanted, dict):
        assert sorted(found) == sorted(wanted), path
        for name, one in wanted.items():
            check(found[name], one, f"{path}.{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for n, one in enumerate(wanted):
            check(found[n], one, f"{path}[{n}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-4), path
    else:
        assert found == wanted, path


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_of_version_0_1_0_gives_what_it_gave(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # its beams ended as soon as as many outputs had ended as they were wide, whatever was left
    monkeypatch.setattr(
        Beam, "settled", lambda beam, sentence, *_: len(beam.ended[sentence]) >= beam.width
    )
    wanted = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    wanted["observed"].get("evaluation", {}).pop("by_length", None)
    check(observe(wanted["kind"], saccade.load(folder, "cpu")), wanted["observed"], folder.name)


@pytest.mark.parametrize("folder", LATER, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_folder_of_a_later_version_gives_what_it_gave(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Beam, "settled", lambda beam, sentence, *_: len(beam.ended[sentence]) >= beam.width
    )
    wanted = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    wanted["observed"].get("evaluation", {}).pop("by_length", None)
    found = json.loads(
        json.dumps(
            observe(wanted["kind"], saccade.load(folder, "cpu")),
            default=lambda array: array.tolist(),
        )
    )
    check(found, wanted["observed"], folder.name)


@pytest.mark.parametrize("version", ["v0.2.0", "v0.3.0"])
def test_a_run_of_a_later_version_is_resumed(version: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / version / "run", tmp_path / "run")
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    recipe.pop("saccade")
    ended = api.fit(
        {**recipe, "training": {**recipe["training"], "updates": 6}}, tmp_path / "run", resume=True
    )[1]
    assert (ended.update, ended.done) == (6, True)
    rows = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows if "dev_loss" in row] == [2, 4, 6]


def test_every_version_of_the_changelog_has_its_folders() -> None:
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\d+\.\d+\.\d+)", text, re.M)) == {
        path.name[1:] for path in FIXTURES.glob("v*")
    }


def test_no_folder_is_missing() -> None:
    assert [folder.name for folder in FOLDERS] == json.loads(
        (INPUTS / "folders.json").read_text(encoding="utf-8")
    )


def test_a_run_of_the_old_version_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text('{"saccade": 1, "model": {"family": "bahdanau"}}')
    with raises(
        "other-format",
        match=r"was started by saccade 0\.1\.0, which can finish it; start a new run",
    ):
        api.fit(
            {"data": {"train": "phrasebook:train"}, "model": {"family": "bahdanau"}},
            tmp_path / "run",
            resume=True,
        )


@pytest.mark.parametrize("where", ["model", "image_encoder"])
def test_a_vit_of_version_0_3_0_without_a_class_token_loads_and_one_that_nothing_read_is_refused(
    where: str,
) -> None:
    def read(token: bool) -> dict[str, Any]:
        vit: dict[str, Any] = {"family": "vit", "dim": 16, "heads": 2, "token": token}
        captions = {"task": "captioning", "model": {"family": "bahdanau", "image_encoder": vit}}
        values = {"task": "image-classification", "model": vit} if where == "model" else captions
        made = recipes.recipe_of({"saccade": 2, **values}, Path("config.json")).model
        return made if where == "model" else made["image_encoder"]

    found = read(False)
    assert (found["family"], found["dim"]) == ("vit", 16)
    assert "token" not in found
    with raises("old-model"):
        read(True)


# --- spellings of earlier versions

TINY = {"family": "transformer", "size": "tiny"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"training": {"updates": 0, "tokens": 0}},
            {"training": {"updates": "auto", "tokens": "auto"}},
        ),
        (
            {"training": {"patience": 0, "clip": 0.0}},
            {"training": {"patience": None, "clip": None}},
        ),
        ({"training": {"compile": None}}, {"training": {"compile": "auto"}}),
        ({"training": {"reward": "none"}}, {"training": {"reward": None}}),
        (
            {"vocabulary": {"size": 0}, "data": {"max_ratio": 0}},
            {"vocabulary": {"size": "auto"}, "data": {"max_ratio": None}},
        ),
        (
            {"data": {"train": "dates:train", "dates": {"train": 9}}},
            {"data": {"train": "dates:train", "options": {"train": 9}}},
        ),
    ],
)
def test_an_old_spelling_is_upgraded_with_a_note(
    old: dict[str, Any], new: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    now = recipes.recipe({"model": TINY, **new})
    assert not caplog.records, "today's spelling needs no note"
    assert recipes.recipe({"model": TINY, **old}) == now
    noted = caplog.text
    for section, values in old.items():
        for name, value in values.items():
            # saccade itself wrote null for what is now auto, in every recipe.json
            assert f"{section}.{name}" in noted or value in (None, "dates:train")
    assert recipes.recipe(now.to_dict()) == now


def test_tokens_of_pictures_are_upgraded_to_a_batch_size(caplog: pytest.LogCaptureFixture) -> None:
    values = {"task": "image-classification", "model": {"family": "cnn"}}
    made = recipes.recipe({**values, "training": {"tokens": 12}})
    assert (made.training.batch_size, "tokens" in made.to_dict()["training"]) == (12, False)
    assert "training.batch_size" in caplog.text
    assert recipes.recipe(values, ["training.tokens=12"]) == made
    with raises("no-effect"):
        recipes.recipe({"model": TINY, "training": {"batch_size": 12}})


def test_options_belong_to_the_corpus_of_the_recipe() -> None:
    data = recipes.recipe(
        {"model": TINY, "data": {"train": "dates:train", "options": {"train": 9}}}
    ).data
    assert data.options_of("dates:test") == {"train": 9}
    assert data.options_of("phrasebook:test") == data.options_of("dates.tsv") == {}
