"""Σ_i (1 − Σ_t α_ti)² in the loss: by hand, for decoders of every kind, without padding; and the gate on a context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade import api
from saccade.core import record
from saccade.core.record import source_weights
from saccade.errors import SaccadeError
from saccade.models import Seq2Seq
from saccade.models.builder import Builder
from saccade.training.loop import Watcher
from saccade.training.losses import Batch, batch_loss

BATCH = Batch(
    (
        torch.tensor([[3, 1, 4, 2], [2, 5, 0, 0]]),
        torch.tensor([4, 2]),
        torch.tensor([[1, 4, 3], [1, 6, 2]]),
    ),
    torch.tensor([[4, 3, 2], [6, 2, 0]]),
    0,
    5,
    (1, 2),
)


def built(family: str, **changed: Any) -> Any:
    torch.manual_seed(4)
    sizes: dict[str, Any] = {"dim": 8, "hidden": 8, "dropout": 0.0}
    if family == "transformer":
        sizes |= {"heads": 2, "depth": 1}
    made = Builder({"family": family, **sizes, **changed}).make(Seq2Seq, 7, 7)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return made.double()


def by_hand(weights: Tensor) -> float:
    """Of B T N, in plain Python."""
    total = 0.0
    for b, length in enumerate(BATCH.inputs[1].tolist()):
        tokens = int((BATCH.target[b] != 0).sum())
        total += sum(
            (1 - sum(weights[b, t, i].item() for t in range(tokens))) ** 2 for i in range(length)
        )
    return total


@pytest.mark.parametrize(
    ("family", "changed"),
    [
        ("bahdanau", {}),
        ("bahdanau", {"gated_context": True}),
        ("luong", {}),
        ("luong", {"input_feeding": True}),
        ("luong", {"window": {"name": "predicted", "reach": 9}}),
        ("gnmt", {"depth": 2}),
        ("convs2s", {"depth": 1}),
        ("transformer", {}),
        ("transformer", {"kv_heads": 1}),
    ],
    ids=str,
)
def test_the_loss_grows_by_the_formula_and_the_gradient_is_its_own(
    family: str, changed: dict[str, Any]
) -> None:
    model = built(family, **changed).eval()
    with record(model) as seen:
        plain = batch_loss(model, BATCH)
    found = batch_loss(model, BATCH, doubly_stochastic=0.7)
    added = (found - plain).item()
    assert added == pytest.approx(0.7 * by_hand(source_weights(seen)), rel=1e-10)
    assert added > 0.01
    rate = 1e-4
    moved = list(model.decoder.parameters())  # gradients of the encoder of convs2s are scaled
    gradients = torch.autograd.grad(found - plain, moved, materialize_grads=True)
    with torch.no_grad():
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.sub_(rate * gradient)
        lowered = (
            batch_loss(model, BATCH, doubly_stochastic=0.7) - batch_loss(model, BATCH)
        ).item()
    size = sum(one.square().sum().item() for one in gradients)
    assert added - lowered == pytest.approx(rate * size, rel=0.05)


def test_each_layer_counts_by_itself_and_their_mean_is_taken() -> None:
    model = built("transformer", depth=3).eval()
    with record(model) as seen:
        plain = batch_loss(model, BATCH)
    each = [by_hand(site.weights().mean(1)) for site in seen.values() if site.cross]
    assert len(each) == 3
    found = batch_loss(model, BATCH, doubly_stochastic=2.0)
    assert (found - plain).item() == pytest.approx(2 * sum(each) / 3, rel=1e-10)


def test_padding_and_what_it_is_beside_change_nothing() -> None:
    model = built("bahdanau").eval()
    source, lengths, read = BATCH.inputs
    wider = Batch(
        (nn.functional.pad(source, (0, 3), value=5), lengths, nn.functional.pad(read, (0, 2))),
        nn.functional.pad(BATCH.target, (0, 2)),
        0,
        5,
        (1, 2),
    )
    torch.testing.assert_close(
        batch_loss(model, wider, 0.0, 0.0, 1.0), batch_loss(model, BATCH, 0.0, 0.0, 1.0)
    )
    twice = batch_loss(model, BATCH, 0.0, 1.0, 1.0)
    torch.testing.assert_close(
        twice,
        batch_loss(model, BATCH, 0.0, 0.0, 1.0),
        msg="without dropout both readings are the same",
    )


def test_hard_attention_is_evened_by_what_it_samples_from() -> None:
    model = built(
        "bahdanau", normalize={"name": "hard", "reward": 0.0, "entropy": 0.0, "soft": 0.0}
    ).train()
    torch.manual_seed(0)
    plain = batch_loss(model, BATCH)
    torch.manual_seed(0)
    found = batch_loss(model, BATCH, doubly_stochastic=1.0)
    score = model.decoder.cross.mechanism.score
    [gradient] = torch.autograd.grad(found - plain, [next(score.parameters())])
    assert found > plain
    assert gradient.any()


def test_a_model_that_attends_to_no_source_is_refused() -> None:
    with raises("no-attention-to-source"):
        batch_loss(built("fixed-context"), BATCH, doubly_stochastic=0.5)


def test_a_run_says_on_what_it_computes_and_learns_otherwise(tmp_path: Path) -> None:
    lines = [" ".join("abcdefgh"[(n + at) % 8] for at in range(2 + n % 4)) for n in range(30)]
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{one}\t{one}\n" for one in lines), encoding="utf-8"
    )
    path = str(tmp_path / "pairs.tsv")
    losses = {}
    for weight in (0.0, 0.5):
        notes: list[str] = []
        watcher = Watcher()
        watcher.note = notes.append  # type: ignore[method-assign]
        model = {"family": "transformer", "dim": 8, "hidden": 8, "heads": 2, "depth": 1}
        training = {
            "updates": 3,
            "warmup": 1,
            "learning_rate": 0.05,
            "tokens": 60,
            "evaluate_every": 3,
            "doubly_stochastic": weight,
            "threads": 1,
        }
        made = {
            "data": {"train": path, "dev": path},
            "vocabulary": {"kind": "words"},
            "model": model,
            "training": training,
        }
        _, ended = api.fit({**made, "device": "cpu"}, tmp_path / str(weight), watcher=watcher)
        losses[weight] = ended.best
        assert any("backend eager, which has its weights" in note for note in notes) == (weight > 0)
    assert losses[0.0] != losses[0.5]
    reward = {
        "data": {"train": path, "dev": path},
        "model": model,
        "training": {**training, "reward": "gleu"},
    }
    with pytest.raises(
        SaccadeError,
        match=r"does not go with training.doubly_stochastic=0.5; leave one of them out",
    ):
        api.fit(reward, tmp_path / "reward", watcher=Watcher())


# --- the gate ---


@pytest.mark.parametrize("family", ["bahdanau", "luong"])
def test_a_gate_multiplies_the_context_by_one_number_of_the_state(family: str) -> None:
    model = built(family, gated_context=True).eval()
    decoder = model.decoder
    assert decoder.gate.weight.shape == (1, 8)
    state = model.start(*BATCH.inputs[:2])
    asking = torch.randn(2, 1, 8, dtype=torch.float64)
    found = decoder.contexts(asking, state)
    gate = 1 / (1 + (-(asking[:, 0] @ decoder.gate.weight[0] + decoder.gate.bias)).exp())
    decoder.gate = None
    torch.testing.assert_close(
        found[:, 0], gate.unsqueeze(-1) * decoder.contexts(asking, state)[:, 0]
    )
    assert built(family).decoder.gate is None
