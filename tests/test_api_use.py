"""What a program does with a system: decode, evaluate, align, show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

from saccade import api
from saccade.data.generated.phrasebook import phrasebook
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError
from saccade.tasks.translation import attends
from support import raises, tiny_recipe

SIZES = {"train": 150, "dev": 12, "test": 12}
RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "test": "phrasebook:test",
        "options": SIZES,
    },
    "vocabulary": {"kind": "words", "split": "punctuation", "lowercase": True},
    "model": {"family": "bahdanau", "dim": 12, "hidden": 12, "dropout": 0.1},
    "training": {"updates": 30, "tokens": 500, "learning_rate": 0.02, "warmup": 5},
    "device": "cpu",
}


def family(name: str) -> dict[str, Any]:
    return {
        "family": name,
        "dim": 12,
        "hidden": 12,
        "depth": 1,
        **({"heads": 2} if name == "transformer" else {}),
    }


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> api.System:
    return api.fit(RECIPE, tmp_path_factory.mktemp("use") / "run")[0]


@pytest.fixture(scope="module")
def held_out() -> list[Pair]:
    return phrasebook(**SIZES)["test"]


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


def test_translations_come_in_the_order_of_the_texts(
    system: api.System, held_out: list[Pair]
) -> None:
    texts = [pair.source for pair in held_out]
    found = [one.log_prob for one in api.decode(system, texts)]
    assert len(set(found)) == len(texts)
    assert [api.decode(system, [text])[0].log_prob for text in texts] == pytest.approx(
        found, rel=1e-4
    )
    assert api.decode(system, ["", "the cat", " "])[0].text == ""
    assert api.decode(system, []) == []


def test_every_search_can_be_asked_for(system: api.System, held_out: list[Pair]) -> None:
    texts = [pair.source for pair in held_out[:4]]
    plain, beam = api.decode(system, texts), api.decode(system, texts, beam=4, length_penalty=0.0)
    assert all(
        b.log_prob >= a.log_prob - 1e-4 or not a.finished for a, b in zip(plain, beam, strict=True)
    )
    assert all(len(one.alternatives) >= 1 for one in beam)
    one, two, three = (
        api.decode(system, texts, sample={"temperature": 1.5, "seed": seed}) for seed in (1, 1, 2)
    )
    assert one == two != three
    assert [s.text for s in api.decode(system, texts, sample={"top_k": 1})] == [
        p.text for p in plain
    ]
    assert told(lambda: api.searcher(beam=0)).startswith("a beam of 0")
    assert told(lambda: api.searcher(sample={"top_p": 2.0})).startswith("top_p is 2.0")


def test_an_evaluation_is_sacrebleu_s_with_its_signature(
    system: api.System, held_out: list[Pair]
) -> None:
    found = api.evaluate(system, held_out, beam=2, quarters=True)
    outputs = [one.text for one in api.decode(system, [pair.source for pair in held_out], beam=2)]
    assert (
        found["bleu"] == sacrebleu.corpus_bleu(outputs, [[pair.target for pair in held_out]]).score
    )
    assert (found["sentences"], found["beam"]) == (12, 2)
    assert found["loss"] == pytest.approx(
        system.task.metrics(system.model, system.task.numbers(held_out))["loss"]
    )
    assert 0 <= found["aer"] <= 1
    assert [row["shortest"] <= row["mean"] <= row["longest"] for row in found["by_length"]] == [
        True
    ] * 4
    assert "aer" not in api.evaluate(system, [Pair("the cat", "le chat")])
    assert "by_length" not in api.evaluate(system, held_out)
    assert (
        told(lambda: api.evaluate(system, []))
        == "there are no examples to evaluate on; give data with at least one"
    )
    assert system.read("phrasebook:test") == held_out, "made with the sizes of the recipe"


def test_a_model_without_attention_is_evaluated_without_alignment(held_out: list[Pair]) -> None:
    system = api.build({**RECIPE, "model": family("fixed-context")}, held_out)
    assert not attends(system.model)
    assert "aer" not in api.evaluate(system, held_out[:2])
    assert told(lambda: api.show(system, "the cat")).startswith(
        "the family fixed-context has no attention to show; train one"
    )


@pytest.mark.parametrize("name", ["bahdanau", "luong", "transformer"])
def test_what_is_shown_is_what_the_model_looked_at(held_out: list[Pair], name: str) -> None:
    system = api.build({**RECIPE, "model": {**family(name), "dropout": 0.5}}, held_out)
    document = api.show(system, "the black cat", target="le chat noir")
    assert (document.source, document.target, document.model) == (
        ["the", "black", "cat"],
        ["le", "chat", "noir"],
        name,
    )
    first = document.sites[0]
    assert first.name.endswith("cross")
    assert (first.rows, first.columns) == (
        ["le", "chat", "noir", "<eos>"],
        ["the", "black", "cat", "<eos>"],
    )
    for site in document.sites:
        rows = torch.from_numpy(site.weights).float()
        assert rows.shape[1:] == (len(site.rows), len(site.columns))
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:2]), atol=1e-4, rtol=0)
    if name == "transformer":
        assert [len(site.weights) for site in document.sites] == [2, 2, 2]
        assert {site.rows[0] for site in document.sites[1:]} == {"the", "<bos>"}
    assert api.show(system, "the black cat", target="le chat noir").sites[0] == first, "no dropout"
    [aligned] = api.align(system, [Pair("the black cat", "le chat noir")])
    np.testing.assert_allclose(first.weights.mean(0), aligned.weights, atol=1e-4, rtol=0)
    assert told(lambda: api.show(system, "  ")) == "the text is empty; give a sentence"


@pytest.mark.parametrize(
    "changed",
    [
        {"stack": {"name": "funnel", "parts": 3}, "depth": 3},
        {
            "stack": "universal",
            "depth": 2,
            "feedforward": {"name": "product-key", "subkeys": 3, "top": 2, "blocks": [1]},
        },
        {"stack": "transparent", "block": "evolved"},
        {"block": "weighted", "mixer": "attention"},
    ],
    ids=str,
)
def test_other_blocks_and_stacks_are_trained_loaded_shown_and_aligned(
    held_out: list[Pair], tmp_path: Path, changed: dict[str, Any]
) -> None:
    recipe = {
        **RECIPE,
        "model": {**family("transformer"), **changed},
        "training": {**RECIPE["training"], "updates": 2},
    }
    trained = api.fit(recipe, tmp_path / "run")[0]
    system = api.load(tmp_path / "run")
    documents = [api.show(one, "the black cat", target="le chat noir") for one in (trained, system)]
    assert documents[0] == documents[1]
    first = documents[0].sites[0]
    assert (first.rows, first.columns) == (
        ["le", "chat", "noir", "<eos>"],
        ["the", "black", "cat", "<eos>"],
    )
    for site in documents[0].sites:
        assert site.weights.shape[1:] == (len(site.rows), len(site.columns))
        np.testing.assert_allclose(site.weights.sum(-1), 1, atol=1e-3)
    assert 0 <= api.evaluate(system, held_out[:3])["aer"] <= 1


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    from saccade.files import LOCK, held

    recipe = api.recipes.recipe(tiny_recipe())

    with held(tmp_path / "run"), raises("run-folder-locked"), held(tmp_path / "run"):
        pass
    with held(tmp_path / "run"):
        pass
    (tmp_path / "run" / LOCK).touch()  # left by a process that was killed
    assert api.claim(tmp_path / "run", recipe, False) == recipe


def test_batches_of_samples_draw_from_seeds_of_their_own() -> None:
    search = api.searcher(sample={"temperature": 1.0, "seed": 5})
    assert [search(2, 3, ()).seed for _ in range(3)] == [5, 6, 7]  # type: ignore[attr-defined]


def test_a_folder_of_runs_names_them(tmp_path: Path) -> None:
    for name in ("bahdanau", "fixed-context"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.json").write_text("{}")
    (tmp_path / "pictures").mkdir()
    wanted = f"{tmp_path} holds the runs bahdanau, fixed-context; name one, such as {tmp_path / 'bahdanau'}"
    assert told(lambda: api.load(tmp_path)) == wanted
    for n in range(9):
        (tmp_path / f"a{n}").mkdir()
        (tmp_path / f"a{n}" / "recipe.json").write_text("{}")
    assert "holds the runs a0, a1, a2, a3, a4, a5, a6, a7 …; name one" in told(
        lambda: api.load(tmp_path)
    )
