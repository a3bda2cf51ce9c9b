"""More processes train as one does: the same losses and parameters, one folder, one voice; and nobody waits for a rank that has gone.

Ranks are started by this very file, run as a program: it imports once, keeps the store as torchrun does, and forks.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from saccade import api, config, models
from saccade.data.batches import plan
from saccade.errors import SaccadeError
from saccade.files import MANIFEST, sha256
from saccade.tasks.translation import TranslationWork
from saccade.training.distributed import (
    FINISHED,
    GONE,
    Gone,
    Ranks,
    Shared,
    Watch,
    broken_off,
    check_shared,
    own_gpu,
    speaks,
    together,
)
from saccade.training.distributed import Many as ManyRanks
from saccade.training.runs import RunFolder, convert
from saccade.training.stopping import Stopped, Stopper

RECIPE: dict[str, Any] = {
    "data": {"train": "phrasebook:train", "dev": "phrasebook:dev", "phrasebook": {"train": 60, "dev": 6, "test": 4}},
    "vocabulary": {"kind": "words", "split": "punctuation", "lowercase": True},
    "model": {"family": "transformer", "dim": 16, "hidden": 16, "depth": 1, "heads": 2, "dropout": 0.0},
    "training": {"updates": 6, "tokens": 200, "learning_rate": 0.01, "warmup": 4, "evaluate_every": 3, "log_every": 1},
    "device": "cpu",
}
SMALL = "training.tokens=100"  # batches of one to a few sentences
ENDLESS = ["training.updates=1000000", "training.evaluate_every=1000000"]

# Sums over ranks are rounded in another order, nothing else differs: measured, 2.4e-7 after eight updates.
PARAMETERS, LOSSES = 2e-6, 2e-6
UNSEEN = ".k.bias"  # softmax does not see it: its gradient is nothing but rounding, of which Adam makes moves of their own


def prank_nan(rank: int) -> None:
    """One sentence has a loss that is not a number."""
    plain = TranslationWork.loss
    bad = TranslationWork.loss = lambda self, model, batch: plain(self, model, batch) * (float("nan") if 7 in batch.lines else 1)  # type: ignore[assignment,method-assign]
    assert bad is not plain


def prank_alone(rank: int) -> None:
    """Rank 1 alone makes a mistake, in the middle of an update."""

    def loss(self: Any, model: Any, batch: Any) -> Any:
        raise SaccadeError("a mistake of rank 1 alone; mend it")

    if rank == 1:
        TranslationWork.loss = loss  # type: ignore[method-assign]


def prank_defect(rank: int) -> None:
    """Rank 0 alone meets a defect, in the middle of an update."""

    def loss(self: Any, model: Any, batch: Any) -> Any:
        raise ZeroDivisionError("a defect")

    if rank == 0:
        TranslationWork.loss = loss  # type: ignore[method-assign]


def prank_disk(rank: int) -> None:
    """Rank 0 cannot write a checkpoint."""

    def write(*_: Any) -> None:
        raise SaccadeError("cannot write last: No space left on device; choose another place or make room")

    if rank == 0:
        RunFolder.write = write  # type: ignore[method-assign]


PRANKS = {"nan": prank_nan, "alone": prank_alone, "defect": prank_defect, "disk": prank_disk}


def serve() -> None:
    """The program: for each line of JSON on stdin some ranks run a command; how they ended goes to stdout."""
    torch.set_num_threads(1)
    for name in ("saccade.cli.app", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.tensor"):
        importlib.import_module(name)  # once, and not in each rank
    for line in sys.stdin:
        print(json.dumps(launch(**json.loads(line))), flush=True)


def launch(words: list[str], count: int, log: str, at: int, send: list[int], prank: str) -> dict[str, Any]:
    """Runs ranks; once the log has `at` rows, a signal is sent to a rank. Codes, texts, seconds since the signal."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    children = [start(words, rank, count, store.port, Path(log), prank) for rank in range(count)]
    codes: dict[int, int] = {}
    sent, until = 0.0, time.monotonic() + 90
    while len(codes) < count and time.monotonic() < until:
        for rank, child in enumerate(children):
            if rank not in codes and (done := os.waitpid(child, os.WNOHANG))[0]:
                codes[rank] = os.waitstatus_to_exitcode(done[1])
        if send and not sent and Path(log).exists() and Path(log).read_text().count("\n") >= at:
            os.kill(children[send[0]], send[1])
            sent = time.monotonic()
        if sent and send[1] == signal.SIGSTOP and len(codes) == count - 1:
            os.kill(children[send[0]], signal.SIGKILL)
        time.sleep(0.01)
    hung = [rank for rank in range(count) if rank not in codes]
    for rank in hung:
        os.kill(children[rank], signal.SIGKILL)
        os.waitpid(children[rank], 0)
    texts = {stream: [Path(f"{log}.{rank}.{stream}").read_text() for rank in range(count)] for stream in ("out", "err")}
    return {"codes": [codes.get(rank) for rank in range(count)], "hung": hung, "seconds": time.monotonic() - sent, **texts}


def start(words: list[str], rank: int, count: int, port: int, log: Path, prank: str) -> int:
    """One rank, in the surroundings that torchrun makes."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        for number, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{log}.{rank}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        if count > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1")
            os.environ.update(MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
        if prank:
            PRANKS[prank](rank)
        from saccade.cli import run

        code = run(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        if code == 70:
            import traceback

            traceback.print_exc()
        os._exit(code)


@dataclass
class Launcher:
    """Hands trainings to the program, and keeps those of one process, which many are compared with."""

    process: subprocess.Popen[str]
    root: Path

    def __call__(
        self,
        out: Path,
        *settings: str,
        count: int = 2,
        resume: bool = False,
        at: int = 3,
        send: tuple[int, int] | None = None,
        prank: str = "",
    ) -> SimpleNamespace:
        out.parent.mkdir(exist_ok=True)
        recipe = self.root / "recipe.json"
        recipe.write_text(json.dumps(RECIPE))
        words = ["train", str(recipe), *settings, "--out", str(out), "--json", *(["--resume"] if resume else [])]
        log = out / "log.jsonl" if send else out.with_suffix(".log")
        if send:
            out.mkdir(exist_ok=True)
            words.append("--resume")
            log = out.parent / f"{out.name}.log"
            log.unlink(missing_ok=True)
            log.symlink_to(out / "log.jsonl")
        task = {"words": words, "count": count, "log": str(log), "at": at, "send": list(send or ()), "prank": prank}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(task), file=self.process.stdin, flush=True)
        return SimpleNamespace(**json.loads(self.process.stdout.readline()))

    def alone(self, *settings: str) -> Path:
        """The run of one process with these settings."""
        out = self.root / f"alone-{'-'.join(settings).replace('/', '')}"
        if not out.exists():
            ended = self(out, *settings, count=1)
            assert ended.codes == [0], ended.err
        return out


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {name: value for name, value in environment.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    process = subprocess.Popen(
        [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield Launcher(process, tmp_path_factory.mktemp("ranks"))
    process.communicate(timeout=30)


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    """Two runs with the same losses, figures, parameters and optimizer states, as far as rounding goes."""
    for a, b in zip(rows(one), rows(other), strict=True):
        assert a.keys() == b.keys()
        assert (a["update"], a["epoch"], a.get("tokens")) == (b["update"], b["epoch"], b.get("tokens"))
        for name in {"loss", "dev_loss", "gradient_norm", "learning_rate"} & set(a):
            assert a[name] == pytest.approx(b[name], rel=1e-5, abs=LOSSES), (a["update"], name)
    for which in ("last", "best"):
        a, b = parameters(one / which), parameters(other / which)
        assert a.keys() == b.keys()
        for name in a:
            if not name.endswith(UNSEEN):
                torch.testing.assert_close(a[name], b[name], rtol=0, atol=PARAMETERS, msg=lambda text, n=name: f"{n}: {text}")
    a, b = (load_file(run / "last" / "training.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")


def assert_talks_alike(one: Path, other: Path) -> None:
    """Two model folders that give the same logits."""
    systems = [api.load(folder, "cpu") for folder in (one, other)]
    source, lengths = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]]), torch.tensor([4, 3])
    with torch.no_grad():
        a, b = (system.model(source, lengths, source) for system in systems)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("parallel", "accumulate"), [("ddp", 1), ("ddp", 2), ("fsdp", 1), pytest.param("fsdp", 2, marks=pytest.mark.slow)]
)
def test_two_processes_train_as_one(launcher: Launcher, tmp_path: Path, parallel: str, accumulate: int) -> None:
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
    assert files == {path.relative_to(launcher.alone(settings)) for path in launcher.alone(settings).rglob("*")}


@pytest.mark.parametrize("parallel", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_a_batch_of_fewer_sentences_than_ranks_counts_each_once(launcher: Launcher, tmp_path: Path, parallel: str) -> None:
    _, work = api.prepared(config.recipe(RECIPE, [SMALL]))
    sizes = [len(batch) for batch in plan(work.lengths, 100, 0, 0)[:6]]
    assert min(sizes) < 3 <= max(sizes), "some ranks are left without a sentence, and some batches have one for each"
    ended = launcher(tmp_path / "run", SMALL, f"training.parallel={parallel}", count=3)
    assert ended.codes == [0, 0, 0], ended.err
    assert_same(launcher.alone(SMALL), tmp_path / "run")


SHORT_WAY = [("fsdp", "sharded", 2), ("ddp", "whole", 1)]
LONG_WAY = [("ddp", "whole", 2), ("fsdp", "sharded", 3), ("ddp", "sharded", 2), ("ddp", "sharded", 1), ("fsdp", "whole", 2)]


@pytest.mark.parametrize("pieces", [SHORT_WAY, pytest.param(LONG_WAY, marks=pytest.mark.slow)], ids=["short", "long"])
def test_a_run_goes_on_with_another_number_of_ranks_and_another_kind(
    launcher: Launcher, tmp_path: Path, pieces: list[tuple[str, str, int]]
) -> None:
    run = tmp_path / "run"
    for n, (parallel, checkpoint, count) in enumerate(pieces):
        chosen = [f"training.updates={2 * n + 2}", f"training.parallel={parallel}", f"training.checkpoint={checkpoint}"]
        ended = launcher(run, *chosen, count=count, resume=n > 0)
        assert ended.codes == [0] * count, ended.err
        assert (run / "last" / ".metadata").exists() == (checkpoint == "sharded")
        assert n == 0 or f"going on from update {2 * n}\n" in ended.err[0]
    assert_same_end(launcher.alone(f"training.updates={2 * len(pieces)}"), run)
    assert [row["update"] for row in rows(run) if "loss" in row] == list(range(1, 2 * len(pieces) + 1))


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


def test_a_sharded_checkpoint_becomes_a_model_folder(launcher: Launcher, sharded: Path, tmp_path: Path) -> None:
    from saccade.cli import run

    with pytest.raises(SaccadeError, match=r"is a sharded checkpoint; make a model folder of it with `saccade convert "):
        api.load(sharded / "last")
    assert run(["convert", str(sharded), "--out", str(tmp_path / "model")]) == 0
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        MANIFEST,
        "model.safetensors",
        "tokenizer.json",
    ]
    assert_talks_alike(launcher.alone("training.accumulate=1") / "last", tmp_path / "model")
    api.load(tmp_path / "model").task.translate  # noqa: B018


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
    sharded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], sentence: str
) -> None:
    from saccade.cli import run

    shutil.copytree(sharded, tmp_path / "run")
    damage(tmp_path / "run")
    assert run(["convert", str(tmp_path / "run"), "--out", str(tmp_path / "model")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    made = config.recipe(RECIPE, ["training.updates=9"])
    with pytest.raises(SaccadeError) as told:
        api.fit(made, tmp_path / "run", resume=True)
    assert sentence in str(told.value)


def test_what_cannot_be_converted_is_told(launcher: Launcher, sharded: Path, tmp_path: Path) -> None:
    with pytest.raises(
        SaccadeError, match=r"last is no sharded checkpoint; it is a model folder already and can be used as it is"
    ):
        convert(launcher.alone("training.accumulate=1"), tmp_path / "model")
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(SaccadeError, match=r"is there already; choose a new or empty folder with --out"):
            convert(sharded, out)
    with pytest.raises(SaccadeError, match=r"no checkpoint at .*nowhere; give the path"):
        convert(tmp_path / "nowhere", tmp_path / "model")


def test_a_sharded_checkpoint_of_another_model_is_refused(sharded: Path) -> None:
    folder = RunFolder(sharded, {})
    for change, sentence in (({"dim": 8}, "the model wants"), ({"depth": 2}, "is on one side alone")):
        made = config.recipe({**RECIPE, "model": {**RECIPE["model"], **change}})
        model = api.build(made).model
        with pytest.raises(SaccadeError, match=f"{sentence}.*resume with the recipe the run began with"):
            folder.load_last(model, torch.optim.AdamW(model.parameters()))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_with_fewer(launcher: Launcher, tmp_path: Path, victim: int) -> None:
    run = tmp_path / "run"
    ended = launcher(run, *ENDLESS, "training.checkpoint_every=2", send=(victim, signal.SIGKILL))
    assert ended.hung == []
    assert ended.codes[victim] == -signal.SIGKILL
    assert ended.codes[1 - victim] == 2
    assert ended.seconds < 30
    assert ended.err[1 - victim].splitlines()[-1] == f"saccade: {GONE}"
    assert "Traceback" not in ended.err[1 - victim]
    at = json.loads((run / "last" / "training.json").read_text())["update"]
    assert at >= 2
    chosen = (f"training.updates={at + 2}", "training.evaluate_every=1000000", "training.checkpoint_every=2")
    again = launcher(run, *chosen, count=1, resume=True)
    assert again.codes == [0], again.err
    assert_same_end(launcher.alone(*chosen), run)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_any_rank_stops_all_with_a_checkpoint(launcher: Launcher, tmp_path: Path, number: int, code: int) -> None:
    run = tmp_path / "run"
    ended = launcher(run, *ENDLESS, "training.checkpoint_every=1000000", "training.parallel=fsdp", send=(1, number))
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
    assert ended.err[0] == f"saccade: {run} holds other files and no run; choose an empty or new folder with --out\n"
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
    assert ended.err[0].splitlines()[-1].startswith("saccade: cannot write last: No space left on device; ")
    assert ended.err[1] == ""


@pytest.mark.slow
def test_a_rank_that_stands_still_is_given_up(launcher: Launcher, tmp_path: Path) -> None:
    """As when a machine is off the net: no connection is closed, so that only the missing signs of life tell."""
    ended = launcher(tmp_path / "run", *ENDLESS, "training.checkpoint_every=2", send=(1, signal.SIGSTOP))
    assert ended.hung == []
    assert ended.codes == [2, -signal.SIGKILL]
    assert ended.err[0].splitlines()[-1] == f"saccade: {GONE}"
    assert 10 < ended.seconds < 30


@pytest.mark.slow
@pytest.mark.parametrize("settings", [["training.parallel=ddp", "training.compile=true"], ["training.parallel=fsdp"]], ids=str)
def test_torchrun_itself_trains(tmp_path: Path, settings: list[str]) -> None:
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({**RECIPE, "training": {**RECIPE["training"], "updates": 2, "tokens": 4000}}))
    source = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "saccade", "train"]
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


# What can be seen in one process


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_are_the_batch_and_an_empty_one_counts_nothing(count: int) -> None:
    for size in range(1, 9):
        batch = list(range(size))
        shares = [ManyRanks(rank, count).share(batch) for rank in range(count)]
        assert sorted(example for share, counts in shares for example in share * counts) == batch
        assert all(len(share) for share, _ in shares), "every rank has something to compute"
    assert Ranks().share(batch) == (batch, 1)


def test_alone_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with together(torch.device("cpu")) as ranks:
        assert (type(ranks), ranks.rank, ranks.count, ranks.leads) == (Ranks, 0, 1, True)
        assert ranks.total([1, 2.5]) == [1, 2.5]
        assert (ranks.largest(3), ranks.joined([4]), ranks.lead(lambda: 5), ranks.agree(lambda: 6)) == (3, [4], 5, 6)
        assert not torch.distributed.is_initialized()


def test_a_gpu_of_its_own_for_each_process() -> None:
    cuda = torch.device("cuda")
    assert [own_gpu(cuda, local, 2) for local in (0, 1)] == [0, 1]
    with pytest.raises(
        SaccadeError, match=r"process 2 of this machine .* has no GPU, of which there are 2 here; .*--nproc-per-node 2"
    ):
        own_gpu(cuda, 2, 2)
    with pytest.raises(
        SaccadeError, match=r"device is 'cuda:1', and each process of torchrun has a GPU of its own; write device=cuda"
    ):
        own_gpu(torch.device("cuda:1"), 0, 2)


def test_a_folder_that_is_not_shared_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saccade.training.distributed.PATIENCE", 0.2)
    check_shared(tmp_path)
    with pytest.raises(
        SaccadeError, match=r"rank 0 sees no .*recipe.json, which rank 0 has written; give --out a folder that all"
    ):
        check_shared(tmp_path / "recipe.json")


def test_who_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, stopped = SaccadeError("x"), Stopped(signal.SIGINT, 3)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert speaks(plain), "one process speaks whatever its surroundings"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [speaks(error) for error in (plain, stopped, Shared("x", True), Gone("x", False))] == [False, False, True, False]
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert [speaks(error) for error in (plain, stopped, Shared("x", False))] == [True, True, False]


def test_only_a_broken_connection_is_a_rank_that_has_gone() -> None:
    assert broken_off(RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"))
    assert broken_off(torch.distributed.DistBackendError("x"))
    assert not broken_off(RuntimeError("shape '[2]' is invalid for input of size 3"))


def test_a_patient_stopper_takes_no_notice_of_a_second_signal() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stopper(patient=True) as stopper:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
        assert stopper.signal == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is before


def test_processes_that_cannot_meet_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(SaccadeError, match=r"the processes of this training do not meet \(.*RANK.*\); start them with torchrun"),
        together(torch.device("cpu")),
    ):
        pass


class Store:
    """A store by which rank 1 is watched from rank 0: `beats` tells how often rank 1 has been heard at a time."""

    def __init__(self, beats: Callable[[], int], blocks: bool = False) -> None:
        self.beats, self.blocks, self.kept = beats, blocks, {"gone": 0, "said": 0}

    def add(self, name: str, by: int) -> int:
        if self.blocks:
            time.sleep(3)
        if name == "beat/1":
            return self.beats()
        self.kept[name] = self.kept.get(name, 0) + by
        return self.kept[name]


def unreachable() -> int:
    raise torch.distributed.DistNetworkError("Connection reset by peer")


@pytest.mark.parametrize(
    ("store", "left"),
    [
        (Store(iter(range(10**6)).__next__), []),
        (Store(lambda: FINISHED + 7), []),
        (Store(lambda: 7), [True]),
        (Store(unreachable), [True]),
        (Store(lambda: 7, blocks=True), [True]),
    ],
    ids=["alive", "finished", "silent", "unreachable", "blocked"],
)
def test_a_watch_gives_up_a_rank_that_is_not_heard(store: Store, left: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    watch = Watch(store, 0, 2)

    def leave(speaks: bool) -> None:
        found.append(speaks)
        watch.over.set()

    for name, value in (("BEAT", 0.01), ("PATIENCE", 0.3), ("GRACE", 0.7), ("leave", leave)):
        monkeypatch.setattr(f"saccade.training.distributed.{name}", value)
    watch.start()
    watch.over.wait(10.0 if left else 0.6)
    watch.over.set()
    assert found == left
    assert store.kept["said"] <= 1


class Second(Ranks):
    """As rank 1 sees itself, with nobody to meet."""

    rank = 1


def test_ranks_draw_dropout_from_streams_of_their_own(stage: Any) -> None:
    trainings = [stage.training(name, updates=2) for name in ("one", "two", "three")]
    trainings[2].ranks = Second()
    for training in trainings:
        training.run()
    one, two, three = (list(training.model.parameters()) for training in trainings)
    assert all(map(torch.equal, one, two))
    assert not all(map(torch.equal, one, three))


def test_with_dropout_a_run_of_as_many_ranks_repeats_itself(launcher: Launcher, tmp_path: Path) -> None:
    for name in ("one", "two"):
        ended = launcher(tmp_path / name, "model.dropout=0.2", "training.updates=3")
        assert ended.codes == [0, 0], ended.err
    a, b = parameters(tmp_path / "one" / "last"), parameters(tmp_path / "two" / "last")
    assert all(torch.equal(a[name], b[name]) for name in a)


def every_model() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in models.table.names():
        yield name, {"family": name, "dim": 8, "hidden": 8, "dropout": 0.0}


@pytest.mark.parametrize(("name", "values"), list(every_model()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_parameter_has_a_part_in_every_batch_or_its_module_says_so(name: str, values: dict[str, Any]) -> None:
    """DDP waits for the gradient of each, unless a module has `may_rest`."""
    shape = {"depth": 1, "heads": 2} if "heads" in config.complete_model({"family": name}) else {}
    model = config.build_model(config.recipe({"model": {**values, **shape}}).model, 9, 9)
    source, lengths = torch.randint(4, 9, (2, 5)), torch.tensor([5, 3])
    given = {"source": source, "target": source, "tokens": source, "lengths": lengths}
    wanted = [p for p in inspect.signature(model.forward).parameters if p in given]
    model(*(given[p] for p in wanted)).square().sum().backward()
    resting = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not resting or any(getattr(module, "may_rest", False) for module in model.modules())


def test_blocks_are_gathered_one_at_a_time() -> None:
    model: nn.Module = api.build(config.recipe(RECIPE)).model
    assert [name for name, module in model.named_modules() if getattr(module, "own_shard", False)] == ["encoder.0", "decoder.0"]


if __name__ == "__main__":
    serve()
