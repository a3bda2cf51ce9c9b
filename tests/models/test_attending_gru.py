"""Bahdanau's decoder as one function: outputs and gradients of the loop over steps, and the loop where somebody looks or changed a part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from saccade import record
from saccade.core import scores
from saccade.layers.fast import attending_gru
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq

SOURCE = torch.randint(4, 30, (4, 7), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(4, 30, (4, 5), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([7, 4, 1, 0])


def model(**more: Any) -> Any:
    torch.manual_seed(0)
    made = Builder({"family": "bahdanau", "dim": 6, "hidden": 8, "dropout": 0.0, **more}).make(
        Seq2Seq, 30, 30
    )
    return made.double()


def run(made: Any) -> list[Tensor]:
    made.zero_grad()
    output = made(SOURCE, LENGTHS, TARGET)
    (
        output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    ).sum().backward()
    return [output.detach(), *(parameter.grad.clone() for parameter in made.parameters())]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_one_function_gives_what_the_steps_give(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, runs = model(context_dropout=share), []
    plain = attending_gru.run_steps
    monkeypatch.setattr(
        attending_gru, "run_steps", lambda *given: (runs.append(1), plain(*given))[1]
    )
    torch.manual_seed(1)
    got = run(made)
    assert runs
    monkeypatch.setattr(attending_gru, "is_plain", lambda *_: False)
    torch.manual_seed(1)
    for one, two in zip(got, run(made), strict=True):
        torch.testing.assert_close(one, two)
    assert torch.allclose(run(made)[0], got[0]) == (not share), (
        "other contexts are dropped the next time"
    )


def test_a_state_does_not_read_a_dropped_context_and_the_output_does() -> None:
    made = model(context_dropout=0.5)
    decoder, x = made.decoder, made.target(TARGET)
    state = made.start(SOURCE, LENGTHS)
    gru = torch.nn.GRUCell(x.shape[-1] + 16, 8).double()
    gru.load_state_dict(
        {name: getattr(decoder.rnn.layers, f"{name}_l0") for name in gru.state_dict()}
    )
    for kept in (torch.ones(4, 1), torch.zeros(4, 1), torch.tensor([[1.0], [0.0], [1.0], [0.0]])):
        top, context, _ = decoder.move(decoder.rnn.project(x[:, 0]), state, kept.double())
        torch.testing.assert_close(
            top, gru(torch.cat([x[:, 0], context * kept], -1), state.carried[0][:, 0])
        )
        torch.testing.assert_close(context, decoder.contexts(state.carried[0], state).squeeze(1))
        assert bool(context[:3].any(-1).all()), "the output reads it"


def test_contexts_are_dropped_in_training_alone_and_as_often_as_the_share_says() -> None:
    decoder, x = model(context_dropout=0.3).decoder, torch.zeros(200, 50, 6)
    kept = decoder.forget.kept(x)
    assert kept.shape == (200, 50, 1)
    assert set(kept.unique().tolist()) == {0.0, 1.0}, (
        "what is kept is not made larger, since in use nothing is missing"
    )
    assert kept.mean().item() == pytest.approx(0.7, abs=0.02)
    assert decoder.eval().forget.kept(x) is None
    assert model().decoder.forget.kept(x) is None


def test_steps_where_one_function_would_skip_something(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(scores.Additive):
        """A constant more, which a softmax does not see, and half of it."""

        def compare(self, query: Tensor, key: Tensor) -> Tensor:
            return super().compare(query, key) / 2

    def refuse(*_: Any) -> Any:
        raise AssertionError("these steps are not the paper's")

    monkeypatch.setattr(attending_gru, "run_steps", refuse)
    for more in (
        {"cell": "lstm"},
        {"depth": 2},
        {"gated_context": True},
        {"normalize": "sparsemax"},
        {"score": "bilinear"},
    ):
        run(model(**more))
    changed = model()
    changed.decoder.cross.mechanism.score = Shifted(8, 16).double()
    run(changed)
    looked_at = model().eval()
    with torch.no_grad(), record(looked_at) as seen:
        looked_at(SOURCE, LENGTHS, TARGET)
    assert seen["decoder.cross"].weights().shape == (4, 1, 5, 7)


def test_under_autocast_it_computes_in_32_bits() -> None:
    made = model().float()
    with torch.autocast("cpu", torch.bfloat16):
        low = made(SOURCE, LENGTHS.clamp_min(1), TARGET)
    torch.testing.assert_close(
        low.float(), made(SOURCE, LENGTHS.clamp_min(1), TARGET), rtol=0.1, atol=0.05
    )
