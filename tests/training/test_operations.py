"""Operations are counted as by hand, whatever kernel ran: recurrent nets, fused attention, whole models on every backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade import config
from saccade.api import prepared
from saccade.core import backends
from saccade.training.operations import counter
from support import tiny_recipe

B, T, IN, H = 3, 7, 5, 11


def counted(run: Callable[[], Tensor]) -> tuple[int, int]:
    """Operations of the forward pass, and of the backward pass."""
    with counter() as forward:
        loss = run()
    with counter() as backward:
        loss.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("kind", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
def test_recurrent_nets_by_hand(kind: type[nn.RNNBase], gates: int, layers: int, both: bool) -> None:
    net = kind(IN, H, layers, bidirectional=both, batch_first=True)
    x = torch.randn(B, T, IN, requires_grad=True)
    ways = 2 if both else 1
    reads = [IN, *[ways * H] * (layers - 1)]
    expected = sum(2 * B * T * ways * gates * H * (width + H) for width in reads)
    forward, backward = counted(lambda: net(x)[0])
    assert forward == expected
    # plain loops leave out the gradient of the first state, which nobody asked for
    assert backward == pytest.approx(2 * expected, rel=0.1)


@pytest.mark.parametrize(("heads", "width", "causal"), [(2, 8, False), (4, 8, True)])
def test_fused_attention_by_hand(heads: int, width: int, causal: bool) -> None:
    q, k, v = (torch.randn(B, heads, n, width, requires_grad=True) for n in (T, 9, 9))
    forward, backward = counted(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    assert forward == 2 * B * heads * T * 9 * 2 * width
    assert backward == 2 * forward


@pytest.mark.parametrize("family", ["transformer", "bahdanau", "luong"])
def test_a_model_counts_the_same_on_fused_and_plain_kernels(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"family": family, "dim": 16, "hidden": 16, "depth": 1} | ({"heads": 2} if family == "transformer" else {})
    system, work = prepared(config.recipe(tiny_recipe(model=model)))
    batch = work.batch(work.epoch(0)[0])
    fused = counted(lambda: system.model.eval()(*batch.inputs))
    monkeypatch.setattr(backends, "choose", lambda *_, **__: backends.table["eager"])
    plain = counted(lambda: system.model(*batch.inputs))
    assert fused == plain
    assert min(fused) > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("family", ["transformer", "bahdanau", "luong", "fixed-context"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_gpu_counts_what_a_cpu_counts(family: str, cell: str) -> None:
    model = {"family": family, "dim": 16, "hidden": 16, "depth": 1}
    model |= {"heads": 2} if family == "transformer" else {"cell": cell}
    found = []
    for device in ("cpu", "cuda"):
        system, work = prepared(config.recipe(tiny_recipe(model=model, device=device)))
        batch = work.batch(work.epoch(0)[0])
        found.append(counted(lambda net=system.model, inputs=batch.inputs: net(*inputs)))  # type: ignore[misc]
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], rel=0.1), "plain loops leave out the gradient of the first state"
