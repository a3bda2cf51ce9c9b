"""q, k and v by one product: the same output and gradients as by three, parameters under their old names, hooks and own layers heard."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade import MultiHeadAttention
from saccade.layers import multihead_attention


def gradients(layer: nn.Module, *inputs: Tensor) -> list[Tensor]:
    layer.zero_grad()
    output = layer(*inputs)
    output.square().sum().backward()
    return [
        output.detach(),
        *(parameter.grad.clone() for parameter in layer.parameters() if parameter.grad is not None),
    ]


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"kv_heads": 2}, {"dim_memory": 6}], ids=str
)
def test_it_is_what_three_products_give(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = MultiHeadAttention(16, 4, **options).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64, requires_grad=True)
    memory = (
        torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
        if "dim_memory" in options
        else None
    )
    inputs = (x,) if memory is None else (x, memory)
    names = list(layer.state_dict())
    plain = gradients(layer, *inputs)
    monkeypatch.setattr(multihead_attention, "MIN_JOINED_POSITIONS", 1)
    for one, two in zip(gradients(layer, *inputs), plain, strict=True):
        torch.testing.assert_close(one, two)
    assert list(layer.state_dict()) == names, "what is stored has not changed"


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many numbers each product gives, as they are made."""
    found: list[int] = []
    linear = nn.functional.linear
    monkeypatch.setattr(
        nn.functional,
        "linear",
        lambda x, weight, *rest: (found.append(len(weight)), linear(x, weight, *rest))[1],
    )
    return found


def test_one_product_instead_of_three(products: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multihead_attention, "MIN_JOINED_POSITIONS", 1)
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 4, 8, requires_grad=True)
    layer(x)
    assert products == [24, 8]
    products.clear()
    layer.k.register_forward_hook(lambda *given: given[-1] * 0)
    layer(x)
    assert products == [8, 8, 8, 8], "a hook sees its own layer's output"


class OnGPU(Tensor):
    """Says that it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def test_without_gradients_a_gpu_has_one_product_where_the_matrices_are_small(
    products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multihead_attention, "MIN_JOINED_POSITIONS", 4)
    layer, x = MultiHeadAttention(8, 2, kv_heads=1), torch.randn(1, 4, 8)
    parts, there = (layer.q, layer.k, layer.v), x.as_subclass(OnGPU)
    with torch.no_grad():
        apart = multihead_attention.project(x, *parts)
        joined = multihead_attention.project(there, *parts)
        multihead_attention.project(there[:, :3], *parts)
        monkeypatch.setattr(multihead_attention, "MAX_JOINED_NUMBERS", 100)
        multihead_attention.project(there, *parts)
    assert products == [8, 4, 4, 16, *(8, 4, 4) * 2], (
        "on a CPU; one; of few positions; of large matrices"
    )
    for one, two in zip(apart, joined, strict=True):
        torch.testing.assert_close(one, two.as_subclass(Tensor))


def test_an_own_layer_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zero(nn.Linear):
        """Nothing comes out."""

        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * 0

    monkeypatch.setattr(multihead_attention, "MIN_JOINED_POSITIONS", 1)
    layer = MultiHeadAttention(8, 2)
    layer.v = Zero(8, 8)
    torch.testing.assert_close(
        layer(torch.randn(1, 4, 8, requires_grad=True)), layer.out.bias.expand(1, 4, 8)
    )


def doubled(
    layer: MultiHeadAttention,
    how: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Changes a layer, by one of the ways there are, so that its values come out twice as large."""
    forward = nn.Linear.forward
    if how == "hook":
        layer.v.register_forward_hook(lambda module, given, output: output * 2)
    elif how == "hook before":
        layer.v.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    elif how == "hook on all modules":
        hook = nn.modules.module.register_module_forward_hook(
            lambda one, _, output: output * 2 if one is layer.v else None
        )
        request.addfinalizer(hook.remove)
    elif how == "method of the object":
        monkeypatch.setattr(layer.v, "forward", lambda x: forward(layer.v, x) * 2)
    elif how == "method of the class":
        monkeypatch.setattr(
            nn.Linear, "forward", lambda own, x: forward(own, x) * (2 if own is layer.v else 1)
        )
    elif how == "parametrization":
        nn.utils.parametrize.register_parametrization(layer.v, "weight", Twice())
    elif how == "plain tensor":
        weight = layer.v.weight.detach() * 2
        del layer.v.weight
        layer.v.weight = weight  # type: ignore[assignment]
    elif how == "function":
        values = layer.v
        del layer.v
        layer.v = lambda x: values(x) * 2  # type: ignore[assignment]
    else:
        layer.v.weight = nn.Parameter(layer.v.weight * 2)


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


WAYS = [
    "hook",
    "hook before",
    "hook on all modules",
    "method of the object",
    "method of the class",
    "parametrization",
]


@pytest.mark.parametrize("many", [1, 1024])
@pytest.mark.parametrize("how", [*WAYS, "plain tensor", "function", "parameter"])
def test_what_is_changed_in_a_layer_is_never_skipped(
    how: str, many: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multihead_attention, "MIN_JOINED_POSITIONS", many)
    layer, x = MultiHeadAttention(8, 2, bias=False), torch.randn(1, 4, 8, requires_grad=True)
    before = layer(x)
    doubled(layer, how, request, monkeypatch)
    torch.testing.assert_close(layer(x), before * 2)
    if how != "function":
        torch.testing.assert_close(layer(x, x), before * 2)  # by `read` and `prepare`


def test_gradients_are_heard_by_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multihead_attention, "MIN_JOINED_POSITIONS", 1)
    layer, heard = MultiHeadAttention(8, 2), list[str]()
    layer.k.register_full_backward_hook(lambda *given: heard.append("after"))
    layer.out.register_full_backward_pre_hook(lambda *given: heard.append("before"))
    layer(torch.randn(1, 4, 8, requires_grad=True)).sum().backward()
    assert heard == ["before", "after"]


def test_parameters_of_a_functional_call() -> None:
    layer, x = MultiHeadAttention(8, 2, bias=False), torch.randn(1, 4, 8)
    found = torch.func.functional_call(layer, {"v.weight": layer.v.weight * 2}, (x,))
    torch.testing.assert_close(found, layer(x) * 2)


def test_a_property_of_a_subclass_is_read() -> None:
    class Shared(MultiHeadAttention):
        """Keys by the matrix of queries."""

        @property
        def k(self) -> nn.Linear:  # type: ignore[override]
            return self.q

    layer, x = Shared(8, 2), torch.randn(1, 4, 8)
    plain = MultiHeadAttention(8, 2)
    plain.load_state_dict(layer.state_dict())
    plain.k = plain.q
    torch.testing.assert_close(layer(x), plain(x))


def test_a_missing_part_is_an_attribute_error() -> None:
    layer = MultiHeadAttention(8, 2)
    del layer.q
    assert not hasattr(layer, "q")
    with pytest.raises(AttributeError, match="'MultiHeadAttention' object has no attribute 'q'"):
        layer(torch.randn(1, 4, 8))
    layer.add_module("q", nn.Linear(8, 8))
    assert isinstance(layer.q, nn.Linear)


def test_one_graph_when_compiled() -> None:
    layer, x = MultiHeadAttention(8, 2), torch.randn(1, 4, 8)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
