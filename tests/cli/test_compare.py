"""Several models judged as one, and settings varied: `evaluate --with`, `compare --ensemble`, `compare --vary`, as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from saccade import api
from support import run_cli


def test_an_ensemble_is_evaluated(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("evaluate", shelf / "run", "phrasebook:test")
    alone = run_cli(*words, "--json").json
    printed = run_cli(
        *words, "--with", shelf / "other", "--json", "--lengths", "--beam", 2, "--result", "both"
    )
    assert printed.code == 0
    facts = printed.json
    both = api.ensemble([api.load(shelf / "run"), api.load(shelf / "other")])
    expected = both.evaluate("phrasebook:test", quarters=True, beam=2)
    assert {name: facts[name] for name in expected} == expected
    assert (facts["model"], facts["with"]) == (str(shelf / "run"), [str(shelf / "other")])
    assert facts["loss"] != alone["loss"]
    written = json.loads((tmp_path / "benchmarks/results/both.json").read_text())
    assert written["recipe"] == f"{shelf / 'run'} + {shelf / 'other'}"
    assert written["rows"]["both"]["bleu"] == facts["bleu"]
    itself = run_cli(*words, "--with", shelf / "run", "--with", shelf / "run", "--json").json
    assert itself["loss"] == pytest.approx(alone["loss"], rel=1e-4)
    assert itself["bleu"] == alone["bleu"]
    assert "with" not in alone
    for name in ("letters", "masked"):
        found = run_cli(
            "evaluate", shelf / name, shelf / "text.txt", "--with", shelf / name, "--json"
        ).json
        assert found["loss"] == pytest.approx(
            api.load(shelf / name).evaluate(str(shelf / "text.txt"))["loss"], rel=1e-4
        )


@pytest.mark.slow
def test_settings_are_varied_and_all_models_scored_together(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (
        "compare",
        recipe.name,
        "--vary",
        "model.score=dot,{name: additive, hidden: 5}",
        "--seeds",
        2,
        "--out",
        "runs",
    )
    printed = run_cli(
        *words, "training.updates=2", "--ensemble", "--lengths", "--json", "--result", "varied"
    )
    assert printed.code == 0, printed.err
    found = printed.json
    compared = found.pop("comparisons")
    rows = ["score=dot", "score=additive,hidden=5", "ensemble"]
    assert list(found) == rows
    assert [len(found[name]["bleu"]) for name in rows] == [2, 2, 1]
    assert {one["best"] for one in compared} | {one["other"] for one in compared} == set(rows)
    assert all(0 < one["p"] <= 1 for one in compared)
    runs = [tmp_path / "runs" / f"{name}-{seed}" for name in rows[:2] for seed in (0, 1)]
    together = api.ensemble([api.load(run) for run in runs])
    assert together.evaluate("test")["bleu"] == found["ensemble"]["bleu"][0]
    assert together.evaluate("test")["loss"] == pytest.approx(
        found["ensemble"]["loss"][0], rel=1e-5
    )
    assert found["ensemble"]["parameters"][0] == sum(
        sum(found[name]["parameters"]) for name in rows[:2]
    )
    assert (
        api.load(runs[2]).recipe.model["score"].items() >= {"name": "additive", "hidden": 5}.items()
    )
    written = json.loads((tmp_path / "benchmarks/results/varied.json").read_text())
    assert written["recipe"] == "small --vary model.score=dot,{name: additive, hidden: 5}"
    assert written["rows"]["ensemble"]["bleu"] == found["ensemble"]["bleu"]
    assert "ensemble" in (tmp_path / "runs/report.html").read_text()
    assert (tmp_path / "runs/lengths.png").stat().st_size > 3000
    again = run_cli(*words, "training.updates=2", "--ensemble")
    assert again.err.count("already finished at update 2") == 4, "nothing is trained again"
    assert again.out.splitlines()[0].split() == rows
    assert "2 × 2 training runs into runs" in again.err


@pytest.mark.parametrize("family", ["bytenet", "convs2s", "transformer-base"])
def test_a_convolutional_model_is_trained_loaded_and_used(
    recipe: Path, tmp_path: Path, family: str
) -> None:
    model = f"model={{family: {family}, dim: 16, hidden: 16, depth: 1, dropout: 0.0}}"
    assert (
        run_cli("train", recipe, model, "training.updates=2", "--out", tmp_path / family).code == 0
    )
    facts = run_cli("evaluate", tmp_path / family, "test", "--json").json
    assert ("aer" in facts) == (family != "bytenet"), (
        "what attends has alignments that can be measured"
    )
    assert run_cli("translate", tmp_path / family, "the black cat", "--beam", 2).code == 0
    shown = run_cli("show", tmp_path / family, "the black cat", "--out", tmp_path / "x.json")
    assert (shown.code, "has no attention to show" in shown.err) == (
        (2, True) if family == "bytenet" else (0, False)
    )
    resumed = run_cli("train", "--resume", tmp_path / family, "training.updates=3")
    assert resumed.code == 0, resumed.err
