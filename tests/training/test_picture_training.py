"""Training with pictures: mixed labels by hand, what a captured update reads, ranks, resuming with random changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_update_capture import NothingRead
from torch.nn import functional as F

import saccade
from saccade import api
from saccade.config import recipes
from saccade.errors import SaccadeError
from saccade.training import update_capture
from saccade.training.checkpoints import Progress
from saccade.training.loop import Watcher
from saccade.training.losses import Batch, MixedBatch, PixelBatch, batch_loss

BODIES: dict[str, dict[str, Any]] = {
    "vit": {"family": "vit", "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8},
    "vit, experts": {
        "family": "vit", "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8, "feedforward": {"name": "experts", "count": 3},
    },
    "vit, hard": {"family": "vit", "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "patch": 8, "normalize": "hard"},
    "swin": {"family": "swin", "dim": 8, "heads": 2, "depths": [2, 1], "patch": 4, "window_size": 2},
    "cnn": {"family": "cnn", "dim": 4, "depths": [1, 1], "attention": "squeeze-excite", "stage_attention": "cbam"},
}  # fmt: skip
DATA = {
    "train": "shapes:train",
    "dev": "shapes:dev",
    "options": {"train": 24, "dev": 6, "test": 6, "size": 32},
}
CHANGES = {"flip": True, "crop": 2, "erase": 0.5, "mixup": 0.4, "cutmix": 0.4}


def made(body: str = "vit", task: str = "image-classification", **changes: Any) -> recipes.Recipe:
    training = {
        "updates": 6,
        "tokens": 8,
        "warmup": 1,
        "evaluate_every": 3,
        "threads": 1,
        **changes.pop("training", {}),
    }
    data = {
        **DATA,
        **changes.pop("data", {"augment": CHANGES} if task == "image-classification" else {}),
    }
    return recipes.recipe(
        {
            "task": task,
            "data": data,
            "model": BODIES[body],
            "training": training,
            "device": "cpu",
            **changes,
        }
    )


def work_of(recipe: recipes.Recipe) -> tuple[Any, Any]:
    system, work = api.prepared(recipe)
    return system.model, work


def test_the_loss_of_mixed_labels_by_hand() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]])
    batch = MixedBatch(
        (),
        torch.tensor([0, 1]),
        -100,
        2,
        [1, 2],
        other=torch.tensor([2, 1]),
        share=torch.tensor([0.7, 0.2]),
    )
    for smoothing in (0.0, 0.1):
        expected = 0.0
        for row, label, other, share in zip(logits, (0, 1), (2, 1), (0.7, 0.2), strict=True):
            wanted = share * F.one_hot(torch.tensor(label), 3) + (1 - share) * F.one_hot(
                torch.tensor(other), 3
            )
            wanted = (1 - smoothing) * wanted + smoothing / 3
            expected -= float((wanted * row.log_softmax(-1)).sum())
        assert float(batch.total(logits, smoothing)) == pytest.approx(expected, rel=1e-6)
    plain = Batch((), batch.target, -100, 2, [1, 2])
    alone = MixedBatch((), batch.target, -100, 2, [1, 2], batch.other, torch.ones(2))
    assert float(alone.total(logits, 0.1)) == pytest.approx(
        float(plain.total(logits, 0.1)), rel=1e-6
    )


def test_mixed_batches_keep_what_layers_leave_and_what_agreement_asks() -> None:
    """A balancing cost and R-Drop belong to the loss, mixed or not."""
    model, work = work_of(made("vit, experts"))
    batch = work.batch(work.epoch(0)[0])
    assert isinstance(batch, MixedBatch)
    alone = batch.total(model(*batch.inputs), work.smoothing)
    assert float(work.loss(model, batch).detach()) > float(alone.detach())
    dropped, again = work_of(
        made("vit", training={"agreement": 2.0}, model={**BODIES["vit"], "dropout": 0.3})
    )
    torch.manual_seed(0)
    twice = float(again.loss(dropped.train(), batch).detach())
    torch.manual_seed(0)
    assert twice > float(batch_loss(dropped, batch, again.smoothing, 1e-9).detach()), (
        "the two answers are drawn together"
    )


def test_a_captured_update_finds_every_tensor_of_a_mixed_batch() -> None:
    _, work = work_of(made())
    plans = [plan for plan in work.epoch(0) if len(plan) == 8]
    batch, other = work.batch(plans[0]), work.batch(plans[1])
    found = list(update_capture.tensors(batch))
    assert [id(one) for one in found] == [
        id(one) for one in (batch.inputs[0], batch.target, batch.other, batch.share)
    ]
    assert update_capture.shape(batch) == update_capture.shape(other), (
        "one graph serves all batches of a size"
    )
    assert (batch.share < 1).any()
    assert (batch.share <= 1).all()
    assert (batch.share >= 0).all()


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("task", ["image-classification", "autoencoding"])
def test_no_number_is_read_in_forward_and_backward(
    body: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, work = work_of(made(body, task))
    batch = work.batch(work.epoch(0)[0])
    work.loss(model.train(), batch)
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with NothingRead():
        loss = work.loss(model.train(), batch)
        loss.backward()
    assert all(
        parameter.grad is None or bool(parameter.grad.isfinite().all())
        for parameter in model.parameters()
    )
    assert any(
        parameter.grad is not None and bool(parameter.grad.any())
        for parameter in model.parameters()
    )


CAPTURED = [
    *(f"shapes-captions-{name}" for name in ("soft", "hard", "fixed", "transformer")),
    "shapes-questions",
]


@pytest.mark.parametrize("name", CAPTURED)
def test_recipes_that_ask_for_graphs_read_no_number_either(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = (
        "data.options={train: 6, dev: 2, test: 2}",
        "training.tokens=60",
        "device=cpu",
        "start_from=",
        "vocabulary.kind=words",
    )
    recipe = recipes.read_recipe(name, small)
    assert recipe.training.graphs
    model, work = work_of(recipe)
    batch = work.batch(work.epoch(0)[0])
    work.loss(model.train(), batch)
    for one in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, one, lambda: True)
    with NothingRead():
        work.loss(model.train(), batch).backward()
    assert all(
        bool(parameter.grad.isfinite().all())
        for parameter in model.parameters()
        if parameter.grad is not None
    )


def test_a_batch_is_the_same_whenever_it_is_made_and_differs_by_seed_and_epoch() -> None:
    _, work = work_of(made())
    _, again = work_of(made())
    _, other = work_of(made(seed=1))
    plan = work.epoch(0)[0]
    assert torch.equal(work.batch(plan).inputs[0], again.batch(plan).inputs[0])
    assert not torch.equal(work.batch(plan).inputs[0], other.batch(plan).inputs[0])
    turned = work.batch(plan[::-1])
    assert not torch.equal(work.batch(plan).inputs[0], turned.inputs[0].flip(0)), (
        "a picture's changes are not its own"
    )
    assert not torch.equal(work.batch(plan).share, turned.share), (
        "and do not go by the position in a batch"
    )


def test_ranks_divide_a_plan_and_change_their_pictures_each_in_its_own_way() -> None:
    _, work = work_of(made())
    plan = next(plan for plan in work.epoch(0) if len(plan) == 8)
    parts = [work.batch(plan[rank::2]) for rank in (0, 1)]
    assert sorted(line for part in parts for line in part.lines) == sorted(work.batch(plan).lines)
    assert sum(part.tokens for part in parts) == work.batch(plan).tokens == 8
    assert not torch.equal(parts[0].share, parts[1].share)


@pytest.mark.parametrize(
    ("task", "optimizer"),
    [("image-classification", "adamw"), ("image-classification", "sgd"), ("autoencoding", "adamw")],
)
def test_a_resumed_run_ends_with_the_same_parameters(
    task: str, optimizer: str, tmp_path: Path
) -> None:
    """Random changes, noise and several batches per update are the same after a stop."""
    more = (
        {"autoencoding": {"noise": 0.2, "latent": 4, "width": 2}} if task == "autoencoding" else {}
    )
    recipe = made(
        "cnn",
        task,
        training={"accumulate": 2, "checkpoint_every": 2, "optimizer": optimizer},
        **more,
    )
    saccade.fit(recipe, tmp_path / "whole", watcher=Watcher())
    with pytest.raises(InterruptedError):
        saccade.fit(recipe, tmp_path / "run", watcher=Quit())
    saccade.fit(recipe, tmp_path / "run", resume=True, watcher=Watcher())
    for path in ("last/model.safetensors", "last/training.safetensors", "best/model.safetensors"):
        one, other = load_file(tmp_path / "whole" / path), load_file(tmp_path / "run" / path)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), path


class Quit(Watcher):
    """Ends a training after its fifth update, as a crash does."""

    def update(self, at: Progress, row: dict[str, float]) -> None:
        if at.update == 5:
            raise InterruptedError("quit")


def test_a_damaged_picture_is_left_out_of_training_and_named_where_asked(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train")
    (tmp_path / "train" / "red" / "9.png").write_bytes(b"\x89PNG\r\n\x1a\n damaged")
    data = {"train": str(tmp_path / "train"), "dev": "", "options": {}, "augment": {}}
    system, work = api.prepared(made(data=data))
    named = f"1 with an image that cannot be read ({tmp_path / 'train' / 'red' / '9.png'})"
    assert any(named in note for note in system.notes), system.notes
    assert len(work.examples) + len(work.dev) == 16
    assert len(work.dev) == 6, "of few a third is held out"
    with pytest.raises(SaccadeError, match=r"9\.png: expected a whole PNG image"):
        api.prepared(made(data={**data, "strict": True}))
    with pytest.raises(SaccadeError, match=r"9\.png: expected a whole PNG image"):
        api.prepared(made(data={**data, "dev": str(tmp_path / "train")}))


def write_pictures(folder: Path) -> None:
    """Eight red and eight blue pictures, in a folder for each label."""
    from PIL import Image

    for label in ("blue", "red"):
        (folder / label).mkdir(parents=True)
        for n in range(8):
            color = (200, 10 * n, 0) if label == "red" else (0, 10 * n, 200)
            Image.new("RGB", (32, 32), color).save(folder / label / f"{n}.png")


def test_the_squared_error_of_pictures_by_hand() -> None:
    target = torch.tensor([[[[0.0, 1.0]]], [[[0.5, 0.5]]]])
    made = torch.tensor([[[[0.5, 1.0]]], [[[0.5, 0.0]]]])
    batch = PixelBatch((made,), target, -100, 2, [1, 2])
    assert batch.losses(made).tolist() == [0.125, 0.125]
    assert float(batch_loss(torch.nn.Identity(), batch)) == 0.25
    assert float(batch_loss(torch.nn.Identity(), batch, smoothing=0.1)) == 0.25
