"""The loss without all logits: loss and gradients are those of the plain one, in little memory, and nothing that somebody changed is skipped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.experiments.pass_costs import Allocated
from saccade.layers.embeddings import Tokens
from saccade.layers.fast import cross_entropy
from saccade.layers.output_heads import LinearHead
from saccade.models.builder import Builder
from saccade.models.protocols import CausalLM
from saccade.training.losses import Batch, batch_loss

VOCAB, PAD = 97, 0
FORMS: dict[str, dict[str, Any]] = {
    "tied": {},
    "own matrix": {"tied": False},
    "factorized": {"embedding": {"name": "factorized", "rank": 5}},
    "divided": {"head": {"name": "linear", "scaled": True}},
    "frozen": {"embedding": {"name": "tokens", "frozen": True}},
    "clusters": {"embedding": {"name": "adaptive", "clusters": 2, "growth": 2.0}},
    "mixture": {"head": {"name": "mixture", "count": 2}},
}


@pytest.fixture
def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loss in chunks of 7 rows."""
    monkeypatch.setattr(cross_entropy, "MAX_UNCHUNKED_LOGITS", 1)
    monkeypatch.setattr(cross_entropy, "rows_at_once", lambda *_: 7)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call had."""
    found: list[int] = []
    plain = cross_entropy.NegativeLosses.apply
    monkeypatch.setattr(
        cross_entropy.NegativeLosses,
        "apply",
        lambda x, *rest: (found.append(len(x)), plain(x, *rest))[1],
    )
    return found


def language_model(**more: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"dim": 8, "hidden": 16, "depth": 1, "heads": 2, "dropout": 0.0}
    return (
        Builder({"family": "transformer-decoder", **sizes, **more}).make(CausalLM, VOCAB).double()
    )


def some_batch() -> Batch:
    tokens = torch.randint(4, VOCAB, (3, 12), generator=torch.Generator().manual_seed(1))
    tokens[0, -4:] = PAD
    return Batch(
        (tokens[:, :-1],),
        tokens[:, 1:].contiguous(),
        PAD,
        int((tokens[:, 1:] != PAD).sum()),
        range(3),
    )


def losses_of(model: nn.Module, smoothing: float) -> tuple[Tensor, list[Tensor | None]]:
    model.zero_grad()
    loss = batch_loss(model, some_batch(), smoothing) / 5
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("form", FORMS)
def test_loss_and_gradients_are_those_of_all_logits(
    form: str, smoothing: float, chunked: None, used: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = language_model(**FORMS[form])
    got = losses_of(model, smoothing)
    assert bool(used) == (form not in ("clusters", "mixture"))
    monkeypatch.setattr(cross_entropy, "MAX_UNCHUNKED_LOGITS", 1 << 60)
    wanted = losses_of(model, smoothing)
    torch.testing.assert_close(got[0], wanted[0], rtol=1e-10, atol=1e-10)
    for one, two in zip(got[1], wanted[1], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_and_padding_alone(bias: bool, chunked: None) -> None:
    head = LinearHead(4, VOCAB, bias=bias).double()
    x = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)
    target = torch.randint(1, VOCAB, (2, 9))
    args = (head.weight, head.bias)
    plain = nn.functional.cross_entropy(
        nn.functional.linear(x, *args).flatten(0, 1), target.flatten(), reduction="sum"
    )
    ours = -cross_entropy.negative_losses(x, *args, target, PAD, 0.0).sum()
    wanted = [one for one in (x, *args) if one is not None]
    for one, two in zip(
        torch.autograd.grad(3 * ours, wanted), torch.autograd.grad(3 * plain, wanted), strict=True
    ):
        torch.testing.assert_close(one, two)
    nothing = cross_entropy.negative_losses(x, *args, torch.zeros_like(target), PAD, 0.1).sum()
    assert nothing == 0
    assert all(not one.any() for one in torch.autograd.grad(nothing, wanted))


def test_rows_of_different_weights_are_refused(chunked: None) -> None:
    x, weight = torch.randn(8, 4, requires_grad=True), torch.randn(VOCAB, 4, requires_grad=True)
    target = torch.tensor([1, 2, 3, 4, PAD, 5, 6, 7])
    losses = cross_entropy.negative_losses(x, weight, None, target, PAD, 0.0)
    with pytest.raises(
        RuntimeError, match="rows have different weights in the loss; sum the losses"
    ):
        (losses * torch.tensor([1.0, 2, 3, 4, 1, 2, 3, 4])).sum().backward()
    assert x.grad is weight.grad is None
    only_padding_differs = torch.tensor([2.0, 2, 2, 2, 7, 2, 2, 2])
    losses = cross_entropy.negative_losses(x, weight, None, target, PAD, 0.0)
    ours = torch.autograd.grad((-losses * only_padding_differs).sum(), (x, weight))
    plain = nn.functional.cross_entropy(x @ weight.t(), target, reduction="none", ignore_index=PAD)
    for one, two in zip(
        ours, torch.autograd.grad((plain * only_padding_differs).sum(), (x, weight)), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_a_sure_model_in_sixteen_bits_still_learns(chunked: None) -> None:
    # p of the target is 0.9991, which 16 bits round to 1
    weight = torch.eye(8).mul(9).requires_grad_()
    x, target = torch.eye(8)[:4].requires_grad_(), torch.arange(4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = -cross_entropy.negative_losses(x, weight, None, target, -1, 0.0).sum()
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    probability = (x @ weight).softmax(-1)[torch.arange(4), target]
    torch.testing.assert_close(
        weight.grad[torch.arange(4), target], probability - 1, rtol=2e-2, atol=0
    )


def test_not_all_logits_are_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, vocab = 256, 4000
    x, weight = torch.randn(rows, 8, requires_grad=True), torch.randn(vocab, 8, requires_grad=True)
    target = torch.randint(0, vocab, (rows,))
    monkeypatch.setitem(cross_entropy.CHUNK_LOGITS, "cpu", vocab * 16)
    with Allocated() as seen:
        (-cross_entropy.negative_losses(x, weight, None, target, -1, 0.1).sum()).backward()
    assert seen.most < rows * vocab * 4 / 2, "half of what the logits alone would take"


def test_what_somebody_changed_sees_all_logits(chunked: None, used: list[int]) -> None:
    class Capped(LinearHead):
        """Logits up to 5."""

        def forward(self, x: Tensor) -> Tensor:
            return 5 * torch.tanh(super().forward(x) / 5)

    class Doubled(Tokens):
        """Logits of its own."""

        def logits(self, x: Tensor, within: slice = slice(None)) -> Tensor:
            return 2 * super().logits(x, within)

    for change in ("class", "hook", "embedding"):
        model: Any = language_model()
        if change == "class":
            model.head = Capped(8, VOCAB).double()
        elif change == "hook":
            model.head.register_forward_hook(lambda *given: given[-1] * 2)
        else:
            model.head = LinearHead(8, VOCAB, tied=Doubled(VOCAB, 8).double())
        losses_of(model, 0.0)
    assert used == []


@pytest.mark.slow
# torch's compiler does
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_model_is_one_graph_for_all_batches(chunked: None) -> None:
    model, graphs = language_model(), []
    compiled = torch.compile(
        model, backend=lambda graph, _: (graphs.append(graph), graph.forward)[1]
    )
    for _ in range(3):
        torch.testing.assert_close(
            batch_loss(compiled, some_batch()), batch_loss(model, some_batch())
        )  # type: ignore[arg-type]
    assert len(graphs) == 1


def test_chunks_are_powers_of_two_and_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cross_entropy.rows_at_once(8000, torch.device("cpu")) == 256
    assert cross_entropy.rows_at_once(1 << 30, torch.device("cpu")) == 1
    for gibibytes, rows in ((8, 512), (24, 1024), (141, 4096)):
        sizes = SimpleNamespace(total_memory=gibibytes << 30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, sizes=sizes: sizes)
        assert cross_entropy.rows_at_once(50_304, torch.device("cuda")) == rows
