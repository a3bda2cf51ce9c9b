"""What training settings leave open: updates by epochs, minutes or the data, threads by measuring, evaluations by epochs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from saccade.layers.stack import Stack
from saccade.models.builder import Builder
from saccade.models.protocols import CausalLM, Seq2Seq
from saccade.recipe import TrainingRecipe
from saccade.training import run_plan
from saccade.training.checkpoints import Progress
from saccade.training.cost import Cost
from saccade.training.distributed import Ranks
from saccade.training.loop import Watcher
from saccade.training.run_plan import (
    choose_threads,
    choose_updates,
    choose_way,
    plan,
    time_update,
    use_threads,
)
from saccade.training.run_printer import RunPrinter, reader_stream


class Heard(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def planned(
    stage: Any, toy: Callable[..., Any], before: Progress | None = None, **settings: Any
) -> TrainingRecipe:
    """Of the toy, whose epoch has 4 batches."""
    made = TrainingRecipe(**{"threads": 1, "evaluate_every": 3, "checkpoint_every": 5, **settings})
    return plan(made, stage.model(), toy(), Ranks(), lambda: before or Progress(), Watcher())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that makes an update in a second."""
    monkeypatch.setattr(run_plan, "time_update", lambda *_: 1 / run_plan.WITH_STEP)


@pytest.mark.usefixtures("slow")
def test_updates_are_what_epochs_minutes_or_the_data_allow(
    stage: Any, toy: Callable[..., Any]
) -> None:
    assert planned(stage, toy, updates=50).updates == 50
    assert planned(stage, toy, updates="auto", epochs=3).updates == 12
    assert planned(stage, toy, updates="auto", epochs=3, accumulate=2).updates == 6
    assert planned(stage, toy, updates=50, epochs=3).updates == 12, "whichever comes first"
    assert planned(stage, toy, updates=5, epochs=3).updates == 5
    assert planned(stage, toy, updates="auto", minutes=2).updates == 120
    assert planned(stage, toy, updates="auto", minutes=2, epochs=3).updates == 12
    assert planned(stage, toy, updates="auto").updates == 500, "few data: many epochs"
    assert planned(stage, toy, updates=50, minutes=2).updates == 50, (
        "minutes alone end it, should they come first"
    )


def test_the_data_and_a_processors_speed_are_a_limit() -> None:
    def updates(per_epoch: int, seconds: float) -> int:
        return choose_updates(TrainingRecipe(updates="auto"), per_epoch, seconds, Progress())

    assert updates(100, 1e-9) == 80 * 100
    assert updates(10**6, 1e-9) == 30_000
    assert updates(100, 1.0) == 600, "10 minutes"


@pytest.mark.usefixtures("slow")
def test_the_warmup_and_the_evaluations_follow(stage: Any, toy: Callable[..., Any]) -> None:
    made = planned(
        stage,
        toy,
        updates="auto",
        minutes=2,
        warmup=1000,
        evaluate_every="auto",
        checkpoint_every="auto",
    )
    assert (made.warmup, made.evaluate_every, made.checkpoint_every) == (12, 4, 4), "once per epoch"
    assert planned(stage, toy, updates=9000, evaluate_every="auto").evaluate_every == 90, (
        "100 times in all"
    )
    assert planned(stage, toy, updates=20, evaluate_every="auto").evaluate_every == 2, "10 times"
    assert planned(stage, toy, updates=9000, warmup=1000).warmup == 1000
    assert made == plan(made, stage.model(), toy(), Ranks(), Progress, Watcher()), (
        "nothing is left open"
    )


@pytest.mark.usefixtures("slow")
def test_more_minutes_are_planned_by_the_speed_so_far(stage: Any, toy: Callable[..., Any]) -> None:
    before = Progress(update=60, seconds=30.0)
    assert planned(stage, toy, before, updates="auto", minutes=2).updates == 240
    assert planned(stage, toy, before, updates="auto", minutes=0.1).updates == 60, "they are over"


def test_measuring_changes_neither_the_model_nor_what_is_trained(
    stage: Any, toy: Callable[..., Any]
) -> None:
    model = stage.model()
    before = [p.clone() for p in model.parameters()]
    assert time_update(TrainingRecipe(accumulate=2), model, toy(), Ranks(), 0.01) > 0
    assert all(
        torch.equal(p, q) and p.grad is None
        for p, q in zip(model.parameters(), before, strict=True)
    )


def test_the_fastest_number_of_threads_is_taken_told_and_given_back() -> None:
    def measure(least: float) -> float:
        return {1: 0.3, 2: 0.2, 4: 0.25, 6: 0.9}[torch.get_num_threads()]

    told: list[str] = []
    assert choose_threads(measure, 6, told.append) == 2
    assert told == [
        "training.threads=2, the fastest of those measured (seconds per update with 1: 0.3 s, 2: 0.2 s, 4: 0.25 s, 6: 0.9 s)"
    ]
    assert torch.get_num_threads() == 1
    with pytest.raises(KeyError), use_threads(3):
        raise KeyError
    assert torch.get_num_threads() == 1


def test_a_run_uses_its_threads_and_one_that_has_them_measures_nothing(
    stage: Any, toy: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "choose_threads", lambda measure, most, note: most - 1)
    with use_threads(3):
        assert planned(stage, toy, updates=5, threads="auto").threads == 2
        assert planned(stage, toy, updates=5, threads=1).threads == 1
    assert planned(stage, toy, updates=5, threads="auto").threads == 1, (
        "there is one: nothing to choose"
    )


# --- minutes while a run trains


def test_minutes_end_a_run_after_an_evaluation_and_count_over_resumes(
    stage: Any, toy: Callable[..., Any]
) -> None:
    ended = stage.training("run", updates=100, evaluate_every=50, minutes=1e-6).run()
    assert (ended.update, ended.done, ended.best_update) == (1, True, 1)
    heard = Heard()
    assert stage.training("run", updates=100, watcher=heard, minutes=1e-6).run().update == 1
    assert heard.notes == [
        "already finished at update 1; raise training.minutes or training.patience to continue"
    ]
    assert stage.training("run", updates=3, minutes=10).run().update == 3


# --- what is printed


def test_the_forecast_is_a_range_and_counts_evaluations() -> None:
    assert str(Cost(1, 1.0, 1.0, 90)).startswith(
        "about 90 s here: 1 parameters, 90 updates at most"
    )
    assert str(Cost(1, 1.0, 1.0, 600, slowest=2.0)).startswith("10 min to 20 min here: ")
    assert str(Cost(1, 1.0, 1.0, 60, evaluations=30)).startswith("about 90 s here: ")


def test_the_dev_set_is_part_of_the_forecast(stage: Any, toy: Callable[..., Any]) -> None:
    class Listener(Watcher):
        def cost(self, cost: Cost) -> None:
            costs.append(cost)

    costs: list[Cost] = []
    work = toy()
    work.dev_share = 1.5
    stage.training("run", work, Listener(), updates=12, evaluate_every=3).run()
    assert costs[0].evaluations == pytest.approx(4 * 1.5 / 3 * 12 / 3), (
        "4 batches, a third of the time, 4 evaluations"
    )


def test_lines_name_the_run_and_say_what_is_left_from_the_first_update_on() -> None:
    printed: list[str] = []
    lines = RunPrinter("mine", printed.append)
    lines.stage("reading the data")
    lines.cost(Cost(1, 1.0, 2.0, 100, done=50))
    lines.update(Progress(update=51, tokens=1, seconds=20.0), {"loss": 3.0})
    lines.printed = float("-inf")
    lines.update(Progress(update=61, tokens=1001, seconds=30.0), {"loss": 2.0})
    lines.update(Progress(update=62, tokens=1002, seconds=31.0), {"loss": 2.0})
    assert printed[0] == "mine: reading the data …"
    assert printed[1].startswith("mine: 200 s here: ") or printed[1].startswith(
        "mine: about 3 min here: "
    )
    assert printed[2:] == [
        "mine: update 51 of 150  loss 3.000  3 min left",
        "mine: update 61 of 150  loss 2.000  100 tokens/s  89 s left",
    ], "no speed before it is known, and no line for each update"


def test_a_long_run_is_told_how_to_make_it_shorter() -> None:
    printed: list[str] = []
    RunPrinter("mine", printed.append).cost(Cost(1, 1.0, 2.0, 1000))
    assert (
        printed[1]
        == "mine: for a shorter run: training.minutes=10, or a smaller model.size (tiny, small, medium)"
    )


def test_progress_is_shown_in_a_terminal_and_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sys

    assert reader_stream() is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert reader_stream() is sys.stderr
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert reader_stream() is sys.stdout


def chosen(
    seconds: float, notes: list[str], alone: bool = True, **more: Any
) -> tuple[bool | None, bool | None]:
    """graphs and compile of a run whose updates take so long, on a GPU where it is `alone`."""
    captures, one_shape, joined = (
        more.pop("captures", True),
        more.pop("one_shape", True),
        more.pop("joined", False),
    )
    settings = TrainingRecipe(updates=1000, **more)
    made = choose_way(settings, captures, one_shape, alone, joined, lambda: seconds, notes.append)
    return made.graphs, made.compile


def test_the_fast_way_is_chosen_by_the_length_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "find_spec", lambda name: object())
    notes: list[str] = []
    assert chosen(0.02, notes) == (True, False)
    assert chosen(2.0, notes) == (True, True)
    assert chosen(2.0, notes, one_shape=False) == (True, False)
    assert chosen(2.0, notes, captures=False, one_shape=False) == (False, False)
    assert chosen(2.0, notes, joined=True) == (True, False)
    assert notes == [
        "updates are captured as CUDA graphs: about 20 s uncompiled, too short to be worth compiling",
        "updates are compiled and captured as CUDA graphs: about 33 min uncompiled, worth compiling",
        "updates are captured as CUDA graphs, not compiled: their batches have many shapes",
        "updates are made kernel by kernel, not compiled: their batches have many shapes",
        "updates are captured as CUDA graphs",
    ]


def test_models_whose_kernels_are_joined_are_known() -> None:
    sizes = {"dim": 16, "hidden": 32, "depth": 2, "heads": 2}
    changed: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"feedforward": {"name": "glu"}}, False),
        ({"residual": "post-norm"}, False),
        ({"mixer": "light-convolution"}, False),
        ({"stack": "universal"}, False),
    ]
    for more, joined in changed:
        model = Builder({"family": "transformer-decoder", **sizes, **more}).make(CausalLM, 20)
        [stack] = [part for part in model.modules() if isinstance(part, Stack)]
        assert stack.in_few_kernels is joined, more
    model = Builder({"family": "transformer", **sizes}).make(Seq2Seq, 20, 20)
    first, second = [part for part in model.modules() if isinstance(part, Stack)]
    assert first.in_few_kernels
    assert second.in_few_kernels
    second.block(0).feedforward.activation.register_forward_hook(lambda *_: None)
    assert not second.in_few_kernels, "somebody listens to a part"


def test_what_is_set_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "find_spec", lambda name: object())
    notes: list[str] = []
    assert chosen(2.0, notes, graphs=False, compile=False) == (False, False)
    assert chosen(2.0, notes, graphs=True, compile=True) == (True, True)
    assert notes == []
    assert chosen(2.0, notes, graphs=False) == (False, True)
    assert chosen(0.1, notes, compile=True) == (True, True)
    assert chosen(9.0, notes, accumulate=2)[0] is False
    assert chosen(9.0, notes, alone=False) == (False, False)
    monkeypatch.setattr(run_plan, "find_spec", lambda name: None)
    assert chosen(9.0, notes)[1] is False, "what compiles for a GPU is not installed"


def test_on_a_processor_nothing_is_decided_aloud(stage: Any, toy: Callable[..., Any]) -> None:
    notes: list[str] = []
    assert chosen(9.0, notes, alone=False) == (False, False)
    assert chosen(9.0, notes, alone=False, graphs=True) == (True, False), (
        "a recipe made for a GPU stays what it is"
    )
    assert notes == []
    made = planned(stage, toy, updates=5)
    assert (made.graphs, made.compile) == (False, False), "a run folder has the decision"
