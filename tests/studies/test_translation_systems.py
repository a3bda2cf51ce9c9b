"""The table of translation systems: the papers' sizes and their halves, what starts from what, ensembles, and a run of a few updates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from saccade import api, models
from saccade.data.corpora import generate
from saccade.data.pairs import Pair
from saccade.experiments import runner, study_table
from saccade.experiments.runner import Board, Queue, run
from saccade.models.protocols import Seq2Seq
from saccade.studies.tables import translation_systems
from saccade.studies.tables.translation_systems import (
    PAPERS,
    POSUNK,
    REWARD,
    TRAINING,
    Translation,
    count_paper,
    half,
)
from saccade.tasks.text_scores import scores


def test_every_family_that_translates_is_a_row_with_a_training_of_its_own(tmp_path: Path) -> None:
    families = {entry.name for entry in models.table if entry.make.build(Seq2Seq) is not None}
    assert families == set(PAPERS) == set(TRAINING["tiny"]) == set(TRAINING["small"])
    study = Translation("small", tmp_path)
    assert set(study.rows()) == families | {REWARD}
    for job in study.plan((), 1):
        if "training" in job.settings:
            assert (
                runner.recipe_of(job, 1).training.learning_rate
                == job.settings["training"]["learning_rate"]
            )
            whole = job.settings.get("vocabulary", {}).get("kind") == "words"
            assert whole == (job.row == POSUNK)


@pytest.mark.parametrize(
    ("row", "millions", "within"),
    [
        ("transformer-base", 65, 0.03),
        ("transformer-big", 213, 0.01),
        ("gnmt", 278, 0.02),
        ("moe-lstm", 8700, 0.01),
    ],
)
def test_the_papers_models_have_the_papers_parameters(
    row: str, millions: float, within: float
) -> None:
    """As Vaswani et al. (Table 3) and Shazeer et al. (Tables 2 and 3) print them."""
    assert count_paper(row) == pytest.approx(1e6 * millions, rel=within)


def test_widths_depths_and_heads_are_halved(tmp_path: Path) -> None:
    assert [half("dim", 1000), half("decoder_depth", 7), half("depth", 2), half("heads", 8)] == [
        500,
        4,
        2,
        4,
    ]
    assert (half("shared", True), half("cell", "lstm")) == (True, "lstm")
    base = Translation("small", tmp_path).model("transformer-base")
    assert base == {
        "family": "transformer-base",
        "dim": 256,
        "hidden": 1024,
        "depth": 3,
        "heads": 4,
        "dropout": 0.3,
    }


def test_the_reward_starts_from_the_same_seed_and_an_ensemble_has_three_seeds_of_one_system(
    tmp_path: Path,
) -> None:
    study = Translation("small", tmp_path)
    jobs = study.plan((REWARD,), 6)
    for job in jobs:
        if job.row == REWARD and "training" in job.settings:
            (before,) = job.after
            assert (before.row, before.stage, before.seed) == ("gnmt", job.stage, job.seed)
            assert before in jobs
    together = [job for job in jobs if job.stage == "en-fr-ensemble" and job.row == REWARD]
    assert [[(one.row, one.stage, one.seed) for one in job.after] for job in together] == [
        [(REWARD, "en-fr", seed) for seed in seeds] for seeds in ((0, 1, 2), (3, 4, 5))
    ]
    assert not [job for job in study.plan(("bahdanau",), 1) if job.stage.endswith("ensemble")]


def test_a_few_updates_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_systems, "SENTENCES", {"train": 60, "dev": 6, "test": 6})
    monkeypatch.setitem(TRAINING["tiny"], "gnmt", (0.004, 1, 3))
    monkeypatch.setitem(translation_systems.REFINED, "tiny", (0.001, 1, 2))
    study = Translation("tiny", tmp_path)
    jobs = study.plan((REWARD,), 2)
    assert [(job.row, job.stage, job.seed) for job in jobs] == [
        *(("gnmt", "en-de", seed) for seed in (0, 1)),
        *((REWARD, "en-de", seed) for seed in (0, 1)),
        ("gnmt", "en-de-ensemble", 0),
        (REWARD, "en-de-ensemble", 0),
    ]
    queue = Queue(jobs, Board())
    run(queue, 1, 1, "here")
    assert queue.failed == {}
    kept = json.loads(jobs[2].result.read_text(encoding="utf-8"))["values"]
    assert {"bleu", "gleu", "parameters", "operations", "final_loss"} <= set(kept)
    assert "plain_bleu" not in kept
    text = study_table.page(study_table.collect(study, jobs, {}), 1)
    assert "| gnmt + RL |" in text
    assert "280,928,512" not in text.partition("| gnmt + RL |")[2].partition("\n")[0]
    assert "| BLEU en→de, ensemble |" in text


def test_what_the_references_of_other_sentences_score_is_the_control_of_fixed_contexts() -> None:
    """The number in benchmarks/systems.yaml, row S1."""
    made = generate("phrasebook", (("dev", 150), ("test", 200), ("to", "de"), ("train", 4000)))[
        "test"
    ]
    references = [pair.target for pair in made if isinstance(pair, Pair)]
    assert scores([*references[1:], references[0]], references)["bleu"] == pytest.approx(
        3.82, abs=0.005
    )


def test_posunk_is_judged_beside_the_same_model_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation_systems, "SENTENCES", {"train": 60, "dev": 6, "test": 6})
    monkeypatch.setattr(translation_systems, "WORDS", {**translation_systems.WORDS, "size": 8})
    monkeypatch.setitem(TRAINING["tiny"], POSUNK, (0.004, 1, 3))
    [job] = Translation("tiny", tmp_path).plan((POSUNK,), 1)
    found = job.do(job, runner.Context())
    system = api.load(job.folder)
    texts = [
        system.evaluate(system.read("test"), copy_unknown=copied)["bleu"]
        for copied in (True, False)
    ]
    assert [found["bleu"], found["plain_bleu"]] == pytest.approx(texts)
