"""Captured updates: no model's training reads a number, shapes come back every epoch, and on a GPU a replay equals the plain update."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import saccade
from saccade import api
from saccade.config.recipes import recipe
from saccade.core import masks
from saccade.errors import SaccadeError
from saccade.training import loop, update_capture
from saccade.training.checkpoints import RunFolder
from saccade.training.distributed import Ranks
from saccade.training.loop import Watcher
from saccade.training.update_capture import Captured, CapturedUpdate

READS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "unique_dim",
    "_unique2",
    "unique_consecutive",
    "equal",
}


class NothingRead(TorchDispatchMode):
    """Fails where the processor would wait for a number, or for how many there are."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        if name in READS or (
            name.startswith("index")
            and any(getattr(at, "dtype", None) == torch.bool for at in indices(args))
        ):
            raise AssertionError(f"{name} reads what was computed")
        return func(*args, **(kwargs or {}))


def indices(args: Any) -> Any:
    return args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()


MODELS: dict[str, dict[str, Any]] = {
    **{
        name: {"model": {"family": name}}
        for name in ("transformer", "bahdanau", "luong", "fixed-context", "fixed-first")
    },
    "learned positions": {"model": {"family": "transformer", "position_embedding": "learned"}},
    "relative positions": {"model": {"family": "transformer", "position": "t5"}},
    "rotary": {
        "model": {"family": "transformer", "position": "rotary", "position_embedding": "none"}
    },
    "experts": {
        "model": {
            "family": "transformer",
            "feedforward": {"name": "experts", "count": 3},
            "residual": "rezero",
        }
    },
    "convolution": {
        "model": {
            "family": "transformer",
            "mixer": "light-convolution",
            "head": "mixture",
            "stack": "shared",
            "depth": 2,
        }
    },
    "causal": {
        "task": "language-modelling",
        "model": {"family": "transformer-decoder", "position_embedding": "learned"},
    },
    "recurrent": {"task": "language-modelling", "model": {"family": "rnn-decoder"}},
    "carried": {
        "task": "language-modelling",
        "language": {"carry": True, "block": 20},
        "model": {"family": "rnn-decoder"},
    },
    "two answers": {"model": {"family": "transformer"}, "training": {"agreement": 2.0}},
    "masked": {
        "task": "language-modelling",
        "language": {"objective": "masked"},
        "model": {"family": "transformer-encoder"},
    },
    "tagger by bytes": {
        "task": "tagging",
        "vocabulary": {"kind": "words"},
        "model": {"family": "rnn-encoder", "embedding": "characters-cnn"},
    },
    "classifier": {"task": "classification", "model": {"family": "transformer-encoder"}},
}


def made(name: str, **training: Any) -> Any:
    values = MODELS[name]
    small = {"dim": 16, "hidden": 16, "depth": 1, "dropout": 0.1}
    task = values.get("task", "translation")
    corpus = "reviews" if task == "classification" else "phrasebook"
    data = {
        "train": f"{corpus}:train",
        "dev": f"{corpus}:dev",
        corpus: {"train": 200, "dev": 20, "test": 20},
    }
    if task == "language-modelling":
        training.pop("round_to", None)  # blocks have one length
    return recipe(
        {
            **values,
            "data": data,
            "model": {**small, **values["model"]},
            "training": {"tokens": 400, **values.get("training", {}), **training},
            "device": "cpu",
        }
    )


def work_of(recipe: Any) -> tuple[Any, Any]:
    system, work = api.prepared(recipe)
    return system.model, work


@pytest.mark.parametrize("name", MODELS)
def test_no_number_is_read_in_forward_and_backward(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, work = work_of(made(name))
    batch = work.batch(work.epoch(0)[0])
    work.loss(model.train(), batch)  # the first batch of a shape is never captured
    # what the core asks before it reads a number
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with NothingRead():
        work.loss(model.train(), batch).backward()
    assert all(
        parameter.grad is None or bool(parameter.grad.isfinite().all())
        for parameter in model.parameters()
    )


def test_reading_a_number_is_noticed() -> None:
    with NothingRead(), pytest.raises(AssertionError, match="reads what was computed"):
        float(torch.ones(3).sum())
    with NothingRead(), pytest.raises(AssertionError):
        torch.ones(3)[torch.ones(3).bool()]


@pytest.mark.parametrize("multiple", [1, 8])
def test_every_epoch_has_the_same_shapes(multiple: int) -> None:
    _, work = work_of(made("transformer", round_to=multiple))
    shapes = [
        sorted(map(str, map(update_capture.shape, map(work.batch, work.epoch(epoch)))))
        for epoch in (0, 3)
    ]
    assert shapes[0] == shapes[1]
    batch = work.batch(work.epoch(0)[0])
    assert batch.inputs[0].shape[1] % multiple == batch.inputs[2].shape[1] % multiple == 0


def test_rounding_changes_padding_alone() -> None:
    losses = []
    for multiple in (1, 8):
        model, work = work_of(made("transformer", round_to=multiple))
        batch = work.batch([0, 1, 2, 3, 4])
        losses.append(work.loss(model.eval(), batch))
        assert batch.tokens == int((batch.target != 0).sum())
    torch.testing.assert_close(*losses)


def test_a_line_longer_than_a_batch_when_rounded_is_named() -> None:
    with pytest.raises(
        SaccadeError, match="rounded up to multiples of 200, more than a batch may hold"
    ):
        work_of(made("transformer", round_to=200, tokens=399))


def test_the_tensors_of_a_batch_are_found_in_tuples_and_masks() -> None:
    ids, lengths, wanted = torch.ones(2, 3).long(), torch.tensor([1, 2]), torch.zeros(2, 3)
    mask = masks.documents(ids) & masks.padding(lengths)
    batch = SimpleNamespace(read=(ids, mask), wanted=wanted, tokens=3, lines=[1, 2])
    mask.dense(2, 1, 3, 3)  # what a mask keeps for the next time is not part of the batch
    assert [id(tensor) for tensor in update_capture.tensors(batch)] == [
        id(ids),
        id(ids),
        id(lengths),
        id(wanted),
    ]
    assert update_capture.shape(batch) == (
        ((2, 3), torch.int64),
        ((2, 3), torch.int64),
        ((2,), torch.int64),
        ((2, 3), torch.float32),
    )


class Replays:
    """Stands in for a CUDA graph: runs the step again on the tensors it was captured with."""

    made: ClassVar[list[Replays]] = []

    def __init__(self) -> None:
        self.again: Any = None
        Replays.made.append(self)

    def pool(self) -> int:
        return 1

    def replay(self) -> None:
        self.again()


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures without a GPU."""

    def run_again(self: CapturedUpdate, batch: Any, forward: Any) -> Captured:
        graph, inputs = Replays(), list(update_capture.tensors(batch))
        outputs = (torch.zeros(()), torch.zeros(()))

        def again() -> None:
            for kept, new in zip(outputs, self.step(batch, forward), strict=True):
                kept.copy_(new)

        graph.again = again
        return Captured(graph, inputs, outputs)

    Replays.made = []
    monkeypatch.setattr(CapturedUpdate, "capture", run_again)
    monkeypatch.setattr(loop, "uses_graphs", lambda settings, *_: settings.graphs)
    monkeypatch.setattr(torch.optim.AdamW, "__init__", without_capture(torch.optim.AdamW.__init__))


def without_capture(init: Any) -> Any:
    return lambda self, *args, capturable=False, **how: init(self, *args, **how)  # a CPU has none


@pytest.mark.slow
def test_replayed_updates_are_the_plain_ones(pretended: None, tmp_path: Path) -> None:
    ends = {}
    for name, on in (("plain", False), ("graphs", True)):
        how = made(
            "transformer", round_to=8, updates=40, evaluate_every=40, graphs=on, schedule="cosine"
        )
        system, ended = saccade.fit(how, tmp_path / name)
        ends[name] = (system.model.state_dict(), ended.best)
    assert Replays.made, "something was captured"
    assert ends["plain"][1] == pytest.approx(ends["graphs"][1], rel=1e-4)
    for name, tensor in ends["plain"][0].items():
        torch.testing.assert_close(ends["graphs"][0][name], tensor, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("one_shape", [True, False])
def test_batches_of_one_shape_are_compiled_for_it_and_others_for_all(
    one_shape: bool, pretended: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one shape, what remains at the end of an epoch is not compiled for itself: only shapes that come twice in a row are."""
    ran: list[tuple[str, int]] = []

    class Compiled(torch.nn.Module):
        def __init__(self, model: torch.nn.Module, dynamic: bool | None) -> None:
            super().__init__()
            self.model = model
            assert dynamic is not one_shape, (
                "the rest of an epoch must not make all batches dynamic"
            )

        def forward(self, *inputs: Any) -> Any:
            ran.append(("compiled", len(inputs[0])))
            return self.model(*inputs)

    monkeypatch.setattr(torch, "compile", Compiled)
    model, work = work_of(made("classifier"))
    work.one_shape = one_shape
    whole, rest = work.batch(list(range(8))), work.batch(list(range(8, 11)))
    settings = made("classifier", graphs=True, compile=True).training
    update = CapturedUpdate(model.train(), work, settings, Ranks(), pytest.fail)
    model.register_forward_hook(lambda _, inputs, __: ran.append(("plain", len(inputs[0]))))
    kinds = []
    for batch in (whole, whole, whole, rest, whole, rest, whole, rest):
        ran.clear()
        update([(batch, 1)], batch.tokens, 1e-3)
        kinds.append(ran[0])
    assert [size for _, size in kinds] == [8, 8, 8, 3, 8, 3, 8, 3]
    assert len(Replays.made) == 2, "one graph for each shape"
    if not one_shape:
        assert {kind for kind, _ in kinds} == {"compiled"}
        return
    assert {kind for kind, size in kinds if size == 3} == {"plain"}
    assert [kind for kind, size in kinds if size == 8] == ["plain", *["compiled"] * 4]


def test_what_a_capture_left_half_way_is_forgotten(
    pretended: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(self: CapturedUpdate, batch: Any, forward: Any) -> Captured:
        for parameter in training.model.parameters():
            # what a backward that broke off has reached
            parameter.grad = torch.full_like(parameter, 1e3)
        raise RuntimeError("no")

    ends = []
    for on in (False, True):
        how = made("transformer", round_to=8, updates=30, evaluate_every=30, graphs=on)
        system, work = api.prepared(how)
        folder = RunFolder(tmp_path / str(on), {})
        training = loop.Training(system.model, work, how.training, folder)
        monkeypatch.setattr(CapturedUpdate, "capture", fail)
        training.run()
        ends.append(system.model.state_dict())
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor, rtol=1e-2, atol=2e-3)


def test_what_cannot_be_captured_continues_with_one_note(
    pretended: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(self: CapturedUpdate, batch: Any, forward: Any) -> Captured:
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    monkeypatch.setattr(CapturedUpdate, "capture", refuse)
    notes: list[str] = []
    watcher = Watcher()
    monkeypatch.setattr(watcher, "note", notes.append)
    saccade.fit(
        made("transformer", round_to=8, updates=30, evaluate_every=30, graphs=True),
        tmp_path / "run",
        watcher=watcher,
    )
    assert [note for note in notes if "graphs" in note] == [
        "training.graphs: these updates cannot be captured (operation not permitted when stream is capturing); continuing without"
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_captured_updates_equal_plain_ones_on_a_gpu(
    name: str, precision: str, tmp_path: Path
) -> None:
    ends = {}
    for kind, on in (("plain", False), ("graphs", True)):
        notes: list[str] = []
        watcher = Watcher()
        watcher.note = notes.append  # type: ignore[method-assign]
        how = made(
            name,
            round_to=8,
            updates=40,
            evaluate_every=40,
            graphs=on,
            schedule="cosine",
            precision=precision,
        )
        how = recipe({**how.to_dict(), "device": "cuda"})
        ends[kind] = saccade.fit(how, tmp_path / kind, watcher=watcher)[1].best
        assert not [note for note in notes if "cannot be captured" in note]
    assert ends["graphs"] == pytest.approx(
        ends["plain"], rel=2e-2 if precision == "float32" else 5e-2
    )
