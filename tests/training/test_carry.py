"""A language model that carries its state from update to update resumes bit for bit: what is carried is part of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from saccade import api
from saccade.core import Positions, masks
from saccade.data.documents import Document
from saccade.tasks.token_stream import CarriedWork
from saccade.training.checkpoints import CARRIED_FILE
from saccade.training.loop import Watcher

TEXT = "the cat saw the dog\nthe dog saw a mouse\n\na mouse ran away from the cat\n" * 3
UPDATES = 9
RNN = {"family": "rnn-decoder"}
XL = {"family": "transformer-xl", "heads": 2, "memory": 11}
XLNET = {"family": "xlnet", "heads": 2, "memory": 11}


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    (tmp_path / "text.txt").write_text(TEXT)

    def fit(
        name: str, watcher: Watcher | None = None, model: dict[str, Any] = RNN, **training: Any
    ) -> Any:
        how = {
            "updates": UPDATES,
            "tokens": 40,
            "learning_rate": 0.01,
            "warmup": 2,
            "checkpoint_every": 1,
            "log_every": 1,
        }
        recipe = {
            "task": "language-modelling",
            "data": {"train": str(tmp_path / "text.txt"), "dev": str(tmp_path / "text.txt")},
            "vocabulary": {"kind": "characters"},
            "language": {
                "carry": True,
                "block": 8,
                **({"objective": "permutation"} if model == XLNET else {}),
            },
            "model": {"dim": 8, "hidden": 8, "depth": 2, "dropout": 0.2, **model},
            "training": {**how, "evaluate_every": 4, **training},
            "device": "cpu",
        }
        return api.fit(recipe, tmp_path / name, resume=True, watcher=watcher)[1]

    return fit


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """Parameters, optimizer states and what is carried."""
    return {
        f"{path.name}/{key}": t
        for path in (run / "last").glob("*.safetensors")
        for key, t in load_file(path).items()
    }


def same(run: Path, other: Path) -> bool:
    a, b = tensors(run), tensors(other)
    assert a.keys() == b.keys()
    assert f"{CARRIED_FILE}/expected" in a
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"accumulate": 2},
        pytest.param({"checkpoint_every": 3, "checkpoint": "sharded"}, marks=pytest.mark.slow),
        {"tokens": 1000},
    ],
    ids=str,
)
def test_a_run_that_dies_at_any_update_resumes_bit_for_bit(
    fit: Callable[..., Any],
    break_at: Callable[[int], Watcher],
    tmp_path: Path,
    settings: dict[str, Any],
) -> None:
    """An epoch has five updates (three with two batches each, one with all rows at once): the runs cross its border."""
    whole = fit("whole", **settings)
    assert whole.epoch >= 1
    if settings.get("checkpoint") == "sharded":
        assert (tmp_path / "whole" / "last" / ".metadata").exists()
        fit("whole", **{**settings, "updates": UPDATES + 1, "checkpoint": "whole"})
    for update in (2, 5) if settings else (1, 4, 5, 6, UPDATES):
        name = f"broken-{update}"
        with pytest.raises(Exception, match="the process dies"):
            fit(name, break_at(update), **settings)
        fit(name, **settings)
        # its tensors are compared as a whole checkpoint, one update later
        if settings.get("checkpoint") == "sharded":
            fit(name, **{**settings, "updates": UPDATES + 1, "checkpoint": "whole"})
        assert same(tmp_path / "whole", tmp_path / name), f"after {update}"


@pytest.mark.parametrize("model", [XL, XLNET], ids=["transformer-xl", "xlnet"])
def test_a_model_with_a_memory_resumes_with_it(
    fit: Callable[..., Any],
    break_at: Callable[[int], Watcher],
    tmp_path: Path,
    model: dict[str, Any],
) -> None:
    assert fit("whole", model=model).epoch >= 1
    with pytest.raises(Exception, match="the process dies"):
        fit("broken", break_at(4), model=model)
    fit("broken", model=model)
    assert same(tmp_path / "whole", tmp_path / "broken")
    rows, memory, width = tensors(tmp_path / "whole")[f"{CARRIED_FILE}/5"].shape
    assert (rows, memory, width) == (5, 11, 1 + 2 * 8), (
        "whether a position is there, and each layer's inputs"
    )


def test_a_transformer_xl_is_evaluated_with_its_memory(
    fit: Callable[..., Any], tmp_path: Path
) -> None:
    """One row read from its first token to its last in blocks of 8, each layer seeing 11 positions before its block."""
    fit("run", model=XL)
    made = api.load(tmp_path / "run")
    stream = made.task.stream([Document(TEXT, 1)], 0, torch.device("cpu"))
    found = made.task.metrics(made.model, stream, 64)["loss"]
    ids, at = stream.tokens[None], Positions.line(len(stream.tokens) - 1, len(stream.tokens) - 1)
    seen = masks.where(lambda b, h, i, j: (j <= i) & (j >= i // 8 * 8 - 11))
    model = made.model.eval()
    with torch.no_grad():
        logits = model.head(model.decoder(model.embedding(ids[:, :-1], at.i), seen, positions=at))
    expected = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])
    assert found == pytest.approx(expected.item(), abs=1e-4)


def test_an_xlnet_from_a_folder_is_evaluated_with_its_memory(
    fit: Callable[..., Any], tmp_path: Path
) -> None:
    """Without a memory, the loss is that of each block alone."""
    fit("run", model=XLNET)
    made = api.load(tmp_path / "run")
    task, model = made.task, made.model.eval().requires_grad_(False)
    stream = task.stream([Document(TEXT, 1)], 0, torch.device("cpu"))
    batches = [task.objective.batch(stream.blocks([start], 0)) for start in stream.starts(0)]
    losses = [batch.total(model(*batch.inputs)).item() for batch in batches]
    alone = sum(losses) / sum(batch.tokens for batch in batches)
    before = task.metrics(model, stream, 64)["loss"]
    assert abs(before - alone) > 1e-5
    model.body.memory = 0
    assert task.metrics(model, stream, 64)["loss"] == pytest.approx(alone, abs=1e-5)


def test_without_what_is_carried_a_resumed_run_is_another(
    fit: Callable[..., Any],
    break_at: Callable[[int], Watcher],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the test above can fail."""
    fit("whole")
    with pytest.raises(Exception, match="the process dies"):
        fit("broken", break_at(3))
    monkeypatch.setattr(CarriedWork, "load_state", lambda self, tensors: None)
    fit("broken")
    assert not same(tmp_path / "whole", tmp_path / "broken")


def test_evaluations_change_nothing_that_is_carried(
    fit: Callable[..., Any], tmp_path: Path
) -> None:
    fit("often", evaluate_every=1)
    fit("rarely", evaluate_every=100, checkpoint_every=100)
    assert same(tmp_path / "often", tmp_path / "rarely")
