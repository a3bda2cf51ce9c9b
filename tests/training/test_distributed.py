"""More processes train as one does: the same losses and parameters, one folder, one voice; and nobody waits for a rank that has gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import RECIPE, Launcher
from safetensors.torch import load_file
from tests.support import raises

from saccade import api
from saccade.config import recipes
from saccade.data.batches import Plans
from saccade.errors import SaccadeError
from saccade.files import MANIFEST, sha256
from saccade.training.checkpoints import RunFolder, convert
from saccade.training.distributed import LOST_RANK

SMALL = "training.tokens=100"  # batches of one to a few sentences
ENDLESS = ["training.updates=1000000", "training.evaluate_every=1000000"]

# Sums over ranks are rounded in another order, nothing else differs: measured, 2.4e-7 after eight updates.
PARAMETERS, LOSSES = 2e-6, 2e-6
UNSEEN = ".k.bias"  # softmax does not see it: its gradient is nothing but rounding, of which Adam makes moves of their own


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same(one: Path, other: Path, atol: float = PARAMETERS) -> None:
    """Two runs with the same losses, metrics, parameters and optimizer states, as far as rounding goes."""
    for a, b in zip(rows(one), rows(other), strict=True):
        assert a.keys() == b.keys()
        assert (a["update"], a["epoch"], a.get("tokens")) == (
            b["update"],
            b["epoch"],
            b.get("tokens"),
        )
        for name in {"loss", "dev_loss", "gradient_norm", "learning_rate"} & set(a):
            assert a[name] == pytest.approx(b[name], rel=1e-5, abs=LOSSES), (a["update"], name)
    for which in ("last", "best"):
        a, b = parameters(one / which), parameters(other / which)
        assert a.keys() == b.keys()
        for name in a:
            if not name.endswith(UNSEEN):
                torch.testing.assert_close(
                    a[name], b[name], rtol=0, atol=atol, msg=lambda text, n=name: f"{n}: {text}"
                )
    a, b = (load_file(run / "last" / "training.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(
            a[name], b[name], rtol=1e-4, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}"
        )


def assert_talks_alike(one: Path, other: Path) -> None:
    """Two model folders that give the same logits."""
    systems = [api.load(folder, "cpu") for folder in (one, other)]
    source, lengths = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]]), torch.tensor([4, 3])
    with torch.no_grad():
        a, b = (system.model(source, lengths, source) for system in systems)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("parallel", "accumulate"),
    [
        pytest.param("ddp", 2, marks=pytest.mark.slow),
        ("fsdp", 1),
        pytest.param("ddp", 1, marks=pytest.mark.slow),
        pytest.param("fsdp", 2, marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_as_one(
    launcher: Launcher, tmp_path: Path, parallel: str, accumulate: int
) -> None:
    settings = f"training.accumulate={accumulate}"
    ended = launcher(tmp_path / "run", settings, f"training.parallel={parallel}")
    assert ended.codes == [0, 0], ended.err
    assert_same(launcher.alone(settings), tmp_path / "run")
    [line] = ended.out[0].splitlines()
    assert json.loads(line)["update"] == 6
    assert "update 6  dev loss" in ended.err[0]
    assert ended.out[1] == ended.err[1] == "", "rank 0 alone speaks"
    assert "Warning" not in ended.err[0]
    assert_talks_alike(launcher.alone(settings) / "last", tmp_path / "run" / "last")
    files = {path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*")}
    assert files == {
        path.relative_to(launcher.alone(settings)) for path in launcher.alone(settings).rglob("*")
    }


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_batch_of_fewer_sentences_than_ranks_counts_each_once(
    launcher: Launcher, tmp_path: Path, parallel: str
) -> None:
    _, work = api.prepared(recipes.recipe(RECIPE, [SMALL]))
    sizes = [len(batch) for batch in Plans(work.lengths, 100)(0, 0)[:6]]
    assert min(sizes) < 3 <= max(sizes), (
        "some ranks are left without a sentence, and some batches have one for each"
    )
    ended = launcher(tmp_path / "run", SMALL, f"training.parallel={parallel}", count=3)
    assert ended.codes == [0, 0, 0], ended.err
    assert_same(launcher.alone(SMALL), tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["fsdp", "ddp"])
def test_experts_train_on_two_processes_as_on_one(
    launcher: Launcher, tmp_path: Path, parallel: str
) -> None:
    """Where no token is left over; the balance is each rank's own, so that it is equal only where it counts nothing."""
    experts = "model.feedforward={name: experts, count: 3, capacity: 9, balance: BALANCE}"
    even = experts.replace("BALANCE", "0")
    ended = launcher(tmp_path / "even", even, f"training.parallel={parallel}")
    assert ended.codes == [0, 0], ended.err
    assert_same(launcher.alone(even), tmp_path / "even")
    ended = launcher(
        tmp_path / "run", experts.replace("BALANCE", "1"), f"training.parallel={parallel}"
    )
    assert ended.codes == [0, 0], ended.err
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "even", tmp_path / "run")


SHORT_WAY = [("fsdp", "sharded", 2), ("ddp", "whole", 1)]
LONG_WAY = [
    ("ddp", "whole", 2),
    ("fsdp", "sharded", 3),
    ("ddp", "sharded", 2),
    ("ddp", "sharded", 1),
    ("fsdp", "whole", 2),
]


@pytest.mark.parametrize("pieces", [SHORT_WAY, LONG_WAY], ids=["short", "long"])
@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks_and_another_kind(
    launcher: Launcher, tmp_path: Path, pieces: list[tuple[str, str, int]]
) -> None:
    run = tmp_path / "run"
    for n, (parallel, checkpoint, count) in enumerate(pieces):
        chosen = [
            f"training.updates={2 * n + 2}",
            f"training.parallel={parallel}",
            f"training.checkpoint={checkpoint}",
        ]
        ended = launcher(run, *chosen, count=count, resume=n > 0)
        assert ended.codes == [0] * count, ended.err
        assert (run / "last" / ".metadata").exists() == (checkpoint == "sharded")
        assert n == 0 or f"resuming from update {2 * n}\n" in ended.err[0]
    assert_same_end(launcher.alone(f"training.updates={2 * len(pieces)}"), run)
    assert [row["update"] for row in rows(run) if "loss" in row] == list(
        range(1, 2 * len(pieces) + 1)
    )


def assert_same_end(one: Path, other: Path) -> None:
    a, b = parameters(one / "last"), parameters(other / "last")
    assert a.keys() == b.keys()
    for name in a:
        if not name.endswith(UNSEEN):
            torch.testing.assert_close(a[name], b[name], rtol=0, atol=PARAMETERS)
    assert_talks_alike(one / "last", other / "last")


@pytest.fixture(scope="module")
def sharded(launcher: Launcher) -> Path:
    """A run whose last checkpoint is in parts."""
    run = launcher.root / "sharded"
    if not run.exists():
        ended = launcher(run, "training.parallel=fsdp", "training.checkpoint=sharded")
        assert ended.codes == [0, 0], ended.err
    return run


def test_a_sharded_checkpoint_becomes_a_model_folder(
    launcher: Launcher, sharded: Path, tmp_path: Path
) -> None:
    from saccade.cli import run

    with pytest.raises(
        SaccadeError,
        match=r"is a sharded checkpoint, which contains a pickle: .* trust .*; make a model of it with `saccade consolidate ",
    ):
        api.load(sharded / "last")
    assert run(["consolidate", str(sharded), "--out", str(tmp_path / "model")]) == 0
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        MANIFEST,
        "model.safetensors",
        "vocabularies.json",
    ]
    assert_talks_alike(launcher.alone("training.accumulate=1") / "last", tmp_path / "model")


def planted(run: Path) -> None:
    """A `.metadata` that the manifest does not know, as a stranger would leave it."""
    (run / "last" / ".metadata").write_bytes(b"cos\nsystem\n(S'false'\ntR.")


def cut(run: Path) -> None:
    part = next((run / "last").glob("*.distcp"))
    part.write_bytes(part.read_bytes()[:-7])


def nonsense(run: Path) -> None:
    """A `.metadata` that is none, and known to the manifest."""
    (run / "last" / ".metadata").write_bytes(b"nonsense")
    listed = json.loads((run / "last" / MANIFEST).read_text())
    listed["files"][".metadata"] = {"sha256": sha256(run / "last" / ".metadata"), "bytes": 8}
    (run / "last" / MANIFEST).write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (planted, ".metadata is not what was written (its sha256 differs from the manifest)"),
        (cut, ".distcp is not what was written (its sha256 differs from the manifest)"),
        (nonsense, "last/.metadata cannot be read (UnpicklingError); copy the checkpoint again"),
    ],
)
def test_a_sharded_checkpoint_is_checked_before_it_is_read(
    sharded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    sentence: str,
) -> None:
    from saccade.cli import run

    shutil.copytree(sharded, tmp_path / "run")
    damage(tmp_path / "run")
    assert run(["consolidate", str(tmp_path / "run"), "--out", str(tmp_path / "model")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    made = recipes.recipe(RECIPE, ["training.updates=9"])
    with pytest.raises(SaccadeError) as told:
        api.fit(made, tmp_path / "run", resume=True)
    assert sentence in str(told.value)


def test_what_cannot_be_converted_is_told(
    launcher: Launcher, sharded: Path, tmp_path: Path
) -> None:
    with raises("checkpoint-not-sharded"):
        convert(launcher.alone("training.accumulate=1"), tmp_path / "model")
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file"):
        with raises("folder-exists"):
            convert(sharded, out)
    with pytest.raises(SaccadeError, match=r"no checkpoint at .*nowhere; give the path"):
        convert(tmp_path / "nowhere", tmp_path / "model")


def test_a_sharded_checkpoint_of_another_model_is_refused(sharded: Path) -> None:
    folder = RunFolder(sharded, {})
    for change, sentence in (
        ({"dim": 8}, r"\) there and \("),
        ({"depth": 2}, r"is missing there and \("),
    ):
        made = recipes.recipe({**RECIPE, "model": {**RECIPE["model"], **change}})
        model = api.build(made).model
        with pytest.raises(SaccadeError, match=f"{sentence}.*use the recipe it was trained with"):
            folder.load_last(model, torch.optim.AdamW(model.parameters()))


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.slow
def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_with_fewer(
    launcher: Launcher, tmp_path: Path, victim: int
) -> None:
    run = tmp_path / "run"
    ended = launcher(run, *ENDLESS, "training.checkpoint_every=2", send=(victim, signal.SIGKILL))
    assert ended.hung == []
    assert ended.codes[victim] == -signal.SIGKILL
    assert ended.codes[1 - victim] == 2
    assert ended.err[1 - victim].splitlines()[-1] == f"saccade: {LOST_RANK}"
    assert "Traceback" not in ended.err[1 - victim]
    at = json.loads((run / "last" / "training.json").read_text())["update"]
    assert at >= 2
    chosen = (
        f"training.updates={at + 2}",
        "training.evaluate_every=1000000",
        "training.checkpoint_every=2",
    )
    again = launcher(run, *chosen, count=1, resume=True)
    assert again.codes == [0], again.err
    assert_same_end(launcher.alone(*chosen), run)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_to_any_rank_stops_all_with_a_checkpoint(
    launcher: Launcher, tmp_path: Path, number: int, code: int
) -> None:
    run = tmp_path / "run"
    ended = launcher(
        run,
        *ENDLESS,
        "training.checkpoint_every=1000000",
        "training.parallel=fsdp",
        send=(1, number),
    )
    assert ended.codes == [code, code], ended.err
    last = ended.err[0].splitlines()[-1]
    assert last.startswith(f"saccade: stopped by {signal.Signals(number).name} after update ")
    assert ended.err[1] == ""
    assert json.loads((run / "last" / "training.json").read_text())["update"] >= 3


def test_a_folder_that_rank_0_refuses_ends_all(launcher: Launcher, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "mine.txt").write_text("")
    ended = launcher(run)
    assert ended.codes == [2, 2]
    assert (
        ended.err[0]
        == f"saccade: {run} contains other files and no run; choose an empty or new folder with --out\n"
    )
    assert ended.err[1] == ""
    wrong = launcher(run, "training.parallel=dpp")
    assert wrong.codes == [2, 2]
    assert wrong.err == ["saccade: training.parallel is 'dpp'; did you mean 'ddp'?\n", ""]


def test_a_loss_that_is_no_number_on_one_rank_stops_all(launcher: Launcher, tmp_path: Path) -> None:
    ended = launcher(tmp_path / "run", "training.updates=60", prank="nan")
    assert ended.codes == [2, 2]
    last = ended.err[0].splitlines()[-1]
    assert last.startswith("saccade: the loss or its gradient became nan at update ")
    lines = last.split("on a batch of lines ")[1].split(";")[0].split(", ")
    assert "7" in lines
    assert len(lines) > 3, "the lines of all ranks"
    assert ended.err[1] == ""


def test_a_mistake_of_one_rank_alone_is_said_once(launcher: Launcher, tmp_path: Path) -> None:
    ended = launcher(tmp_path / "run", prank="alone")
    assert ended.codes == [2, 2]
    assert [text.count("saccade: ") for text in ended.err] == [0, 1]
    assert "saccade: a mistake of rank 1 alone; mend it\n" in ended.err[1]


def test_a_defect_of_one_rank_shows_itself_and_ends_all(launcher: Launcher, tmp_path: Path) -> None:
    ended = launcher(tmp_path / "run", prank="defect")
    assert ended.hung == []
    assert ended.codes[1] == 2
    assert ended.codes[0] not in (0, None)
    assert ended.err[0].splitlines()[-1] == "ZeroDivisionError: a defect"
    assert ended.err[1] == ""


def test_a_checkpoint_that_cannot_be_written_ends_all(launcher: Launcher, tmp_path: Path) -> None:
    ended = launcher(tmp_path / "run", prank="disk")
    assert ended.codes == [2, 2]
    assert (
        ended.err[0]
        .splitlines()[-1]
        .startswith("saccade: cannot write last: No space left on device; ")
    )
    assert ended.err[1] == ""


@pytest.mark.slow
def test_a_rank_that_stands_still_is_given_up(launcher: Launcher, tmp_path: Path) -> None:
    """As when a machine is off the net: no connection is closed, so that only the missing signs of life tell."""
    ended = launcher(
        tmp_path / "run", *ENDLESS, "training.checkpoint_every=2", send=(1, signal.SIGSTOP)
    )
    assert ended.hung == []
    assert ended.codes == [2, -signal.SIGKILL]
    assert ended.err[0].splitlines()[-1] == f"saccade: {LOST_RANK}"
    assert ended.seconds > 10, "a rank that is slow for a moment is not given up"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [["training.parallel=ddp", "training.compile=true"], ["training.parallel=fsdp"]],
    ids=str,
)
def test_torchrun_itself_trains(tmp_path: Path, settings: list[str]) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text(
        json.dumps({**RECIPE, "training": {**RECIPE["training"], "updates": 2, "tokens": 4000}})
    )
    source = str(Path(__file__).parents[2] / "src")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "saccade",
        "train",
    ]
    words = [str(recipe), *settings, "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run(
        [*command, *words],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["update"] == 2


@pytest.mark.slow
def test_with_dropout_a_run_of_as_many_ranks_repeats_itself(
    launcher: Launcher, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        ended = launcher(tmp_path / name, "model.dropout=0.2", "training.updates=3")
        assert ended.codes == [0, 0], ended.err
    a, b = parameters(tmp_path / "one" / "last"), parameters(tmp_path / "two" / "last")
    assert all(torch.equal(a[name], b[name]) for name in a)
