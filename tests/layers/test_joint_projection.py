"""q, k and v by one product: the same output and gradients as by three, parameters under their old names, hooks and own layers heard."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade import MultiHeadAttention
from saccade.layers import attention


def gradients(layer: nn.Module, *inputs: Tensor) -> list[Tensor]:
    layer.zero_grad()
    output = layer(*inputs)
    output.square().sum().backward()
    return [output.detach(), *(parameter.grad.clone() for parameter in layer.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kv_heads": 2}, {"dim_memory": 6}], ids=str)
def test_it_is_what_three_products_give(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    layer = MultiHeadAttention(16, 4, **options).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True) if "dim_memory" in options else None
    inputs = (x,) if memory is None else (x, memory)
    names = list(layer.state_dict())
    plain = gradients(layer, *inputs)
    monkeypatch.setattr(attention, "MANY", 1)
    for one, two in zip(gradients(layer, *inputs), plain, strict=True):
        torch.testing.assert_close(one, two)
    assert list(layer.state_dict()) == names, "what is stored has not changed"


def test_one_product_instead_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MANY", 1)
    products: list[int] = []
    linear = nn.functional.linear
    monkeypatch.setattr(
        nn.functional, "linear", lambda x, weight, *rest: (products.append(len(weight)), linear(x, weight, *rest))[1]
    )
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 4, 8, requires_grad=True)
    layer(x)
    assert products == [24, 8]
    products.clear()
    layer.k.register_forward_hook(lambda *given: given[-1] * 0)
    layer(x)
    assert products == [8, 8, 8, 8], "a hook sees its own layer's output"


def test_an_own_layer_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zero(nn.Linear):
        """Nothing comes out."""

        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * 0

    monkeypatch.setattr(attention, "MANY", 1)
    layer = MultiHeadAttention(8, 2)
    layer.v = Zero(8, 8)
    torch.testing.assert_close(layer(torch.randn(1, 4, 8, requires_grad=True)), layer.out.bias.expand(1, 4, 8))
