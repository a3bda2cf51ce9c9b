"""Logs as people find them: every metric of every task in metrics.csv, resumed runs without gap or double line, TensorBoard's files."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.config import recipes
from saccade.errors import SaccadeError
from saccade.training.logs import COLUMNS, Logs, format_metric
from saccade.training.loop import Watcher

SMALL = {"family": "bag", "dim": 4}
TEXTS = "a good film\tgood\na bad film\tbad\nfun\tgood\nno fun at all\tbad\n"
WORDS = "the\tDET\ncat\tNOUN\n\na\tDET\ndog\tNOUN\nran\tVERB\n\n"
TASKS = {
    "classification": (TEXTS, "texts.tsv", SMALL, {}, ["loss", "accuracy"]),
    "tagging": (
        WORDS,
        "words.tsv",
        {"family": "rnn-encoder", "dim": 4, "hidden": 4, "depth": 1},
        {},
        ["loss", "accuracy"],
    ),
    "language-modelling": (
        "the cat saw the dog\n" * 9,
        "text.txt",
        {"family": "rnn-decoder", "dim": 4, "hidden": 4, "depth": 1},
        {},
        ["loss", "perplexity"],
    ),
    "translation": (
        "a b\tc d\nb a\td c\n" * 3,
        "pairs.tsv",
        {"family": "fixed-context", "dim": 4, "hidden": 4},
        {},
        ["loss"],
    ),
    "text-to-text": (
        "a b\tc d\nb a\td c\n" * 3,
        "pairs.tsv",
        {"family": "fixed-context", "dim": 4, "hidden": 4},
        {"dev_bleu": True},
        ["loss", "bleu"],
    ),
}


def recipe(folder: Path, task: str, **training: Any) -> dict[str, Any]:
    text, name, model, more, _ = TASKS[task]
    (folder / name).write_text(text)
    settings = {"updates": 4, "tokens": 64, "evaluate_every": 2, "log_every": 1, **more, **training}
    data = {"train": str(folder / name), "dev": str(folder / name)}
    language = {"language": {"block": 8}} if task == "language-modelling" else {}
    made = {
        "task": task,
        "data": data,
        "vocabulary": {"kind": "words"},
        "model": model,
        "training": settings,
        **language,
    }
    return {**made, "device": "cpu"}


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("task", TASKS)
def test_every_metric_of_a_task_has_a_column_from_the_start(tmp_path: Path, task: str) -> None:
    seen: list[str] = []

    class Early(Watcher):
        def update(self, at: Any, row: dict[str, float]) -> None:
            seen.append((tmp_path / "run" / "metrics.csv").read_text().splitlines()[0])

    api.fit(recipe(tmp_path, task), tmp_path / "run", watcher=Early())
    wanted = [*COLUMNS, *(f"dev_{name}" for name in TASKS[task][-1])]
    assert set(seen) == {",".join(wanted)}, "the header never changes"
    found = table(tmp_path / "run")
    assert list(found[0]) == wanted
    assert all(any(row[name] for row in found) for name in wanted), "no column stays empty"
    assert [row["update"] for row in found if row["dev_loss"]] == ["2", "4"]
    assert float(found[-1]["seconds"]) > 0


def test_a_run_of_an_older_version_gets_the_new_columns(
    stage: Any, break_at: Callable[[int], Watcher], toy: Any
) -> None:
    both = {"evaluate_every": 4, "checkpoint_every": 5}
    with pytest.raises(Exception, match="the process dies"):
        stage.training("run", watcher=break_at(7), **both).run()
    folder = stage.root / "run"
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    older = [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in older))
    (folder / "metrics.csv").write_text(
        "update,epoch,loss,learning_rate,gradient_norm,tokens,tokens_per_second,dev_loss,dev_bleu\n"
    )
    stage.training("run", toy(metrics=[{"loss": 2.0, "own": 1.5}]), **both).run()
    found = table(folder)
    assert list(found[0]) == [*COLUMNS, "dev_loss", "dev_own"], (
        "a metric that nobody announced has a column too"
    )
    assert [row["update"] for row in found if row["loss"]] == [str(n) for n in range(1, 13)]
    assert [(row["update"], row["dev_own"]) for row in found if row["dev_loss"]] == [
        ("4", ""),
        ("8", "1.5"),
        ("12", "1.5"),
    ]
    assert [bool(row["seconds"]) for row in found if row["loss"]] == [False] * 5 + [True] * 7


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_step_once(stage: Any, break_at: Callable[[int], Watcher]) -> None:
    pytest.importorskip("tensorboard")
    both = {"evaluate_every": 4, "checkpoint_every": 5, "tensorboard": True}
    for update in (7, 9):
        with pytest.raises(Exception, match="the process dies"):
            stage.training("run", watcher=break_at(update), **both).run()
    stage.training("run", **both).run()
    found = events(stage.root / "run")
    assert set(found) == {
        "dev/loss",
        *(
            f"train/{name}"
            for name in ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
        ),
    }
    assert [step for step, _ in found["train/loss"]] == list(range(1, 13))
    assert [step for step, _ in found["dev/loss"]] == [4, 8, 12]
    losses = [float(row["loss"]) for row in table(stage.root / "run") if row["loss"]]
    assert [value for _, value in found["train/loss"]] == pytest.approx(losses, rel=1e-5)
    stage.training("late", updates=6).run()
    stage.training("late", tensorboard=True).run()
    assert [step for step, _ in events(stage.root / "late")["train/loss"]] == list(range(1, 13)), (
        "asked for later: from the log"
    )
    stage.training("none").run()
    assert not (stage.root / "none" / "tensorboard").exists()


def test_without_the_package_a_sentence_comes_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(tmp_path, "classification", tensorboard=True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SaccadeError) as error:
        api.fit(made, tmp_path / "run")
    assert (
        "training.tensorboard needs the package tensorboard; install it with: pip install 'saccade-attention[tensorboard]'"
        in str(error.value)
    )
    assert not (tmp_path / "run").exists()
    assert recipes.recipe(made).training.tensorboard


def test_only_rank_0_writes(tmp_path: Path) -> None:
    with Logs(tmp_path, writes=False, tensorboard=True) as logs:
        logs.add(update=1, loss=1.0)
    assert not list(tmp_path.iterdir())


def test_numbers_have_the_digits_that_people_write() -> None:
    given = {
        "accuracy": 75.5081,
        "dev_loss": 2.34512,
        "bleu": 41.19,
        "perplexity": 1234.567,
        "aer": 0.08349,
        "texts": 12345,
    }
    assert [format_metric(name, value) for name, value in given.items()] == [
        "75.5",
        "2.345",
        "41.2",
        "1,234.57",
        "0.083",
        "12,345",
    ]
    assert format_metric("bleu_signature", "nrefs:1") == "nrefs:1"
