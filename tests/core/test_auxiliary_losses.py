"""What a forward pass leaves besides its output: collected where someone asks, with its gradient, nested, compiled, after errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from saccade.core import auxiliary_losses
from saccade.core.auxiliary_losses import add_loss, collect
from saccade.layers.feedforward import Experts


class Leaves(nn.Module):
    """A linear layer that leaves the mean square of its output, or one number per row."""

    def __init__(self, per_row: bool = False, name: str = "size") -> None:
        super().__init__()
        self.linear, self.per_row, self.name = nn.Linear(3, 3), per_row, name

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        cost = y.square().mean((1, 2)) if self.per_row else y.square().mean()
        return add_loss(y, self.name, cost)


X = torch.randn(2, 4, 3)
# dynamo does so itself
warns = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    yield
    assert auxiliary_losses._open.passes == [], "whatever happened, nobody collects any more"


def test_while_nobody_collects_nothing_is_left_and_nothing_is_changed() -> None:
    x, cost = torch.randn(2, requires_grad=True), torch.ones((), requires_grad=True)
    assert add_loss(x, "cost", cost) is x


def test_costs_are_collected_by_name_in_order() -> None:
    with collect() as left:
        x = add_loss(X, "first", torch.tensor(2.0))
        x = add_loss(x, "second", torch.tensor([1.0, 3.0]))
    assert torch.equal(x, X)
    assert [(name, cost.tolist()) for name, cost in left.costs] == [
        ("first", 2.0),
        ("second", [1.0, 3.0]),
    ]


def test_costs_of_another_thread_are_not_collected() -> None:
    both_inside, kept = threading.Barrier(2, timeout=60), dict[str, list[tuple[str, float]]]()

    def work(name: str) -> None:
        with collect() as left:
            both_inside.wait()
            for number in (1.0, 2.0):
                add_loss(X, name, torch.tensor(number))
                both_inside.wait()
        kept[name] = [(kind, cost.item()) for kind, cost in left.costs]

    threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert kept == {name: [(name, 1.0), (name, 2.0)] for name in ("first", "second")}
    with collect() as left:
        alone = threading.Thread(
            target=lambda: add_loss(X, "of a thread that collects nothing", torch.tensor(3.0))
        )
        alone.start()
        alone.join(60)
    assert left.costs == []


@warns
def test_experts_collect_in_one_graph() -> None:
    layer = Experts(8, 16, count=2)
    run = torch.compile(layer, fullgraph=True, backend="eager")
    x = torch.randn(2, 5, 8)
    with collect() as left:
        wanted = layer(x)
    for _ in range(2):
        with collect() as again:
            torch.testing.assert_close(run(x), wanted)
        assert [(name, cost.item()) for name, cost in again.costs] == [
            ("balance", pytest.approx(left.costs[0][1].item()))
        ]
        torch.testing.assert_close(run(x), wanted)  # nobody collects


def test_the_total_by_hand() -> None:
    tokens = torch.tensor([5, 2])
    with collect() as left:
        add_loss(X, "of the batch", torch.tensor(0.5))
        add_loss(X, "of each row", torch.tensor([1.0, 10.0]))
    assert left.total(tokens).item() == pytest.approx(0.5 * 7 + 1.0 * 5 + 10.0 * 2)
    with collect() as twice:  # R-Drop: the batch is in the pass twice
        add_loss(X, "of the batch", torch.tensor(0.5))
        add_loss(X, "of each row", torch.tensor([1.0, 10.0, 3.0, 20.0]))
    assert twice.total(tokens, repeats=2).item() == pytest.approx(
        0.5 * 7 + (1.0 * 5 + 10.0 * 2 + 3.0 * 5 + 20.0 * 2) / 2
    )
    with collect() as nothing:
        pass
    assert nothing.total(tokens) == 0.0


@pytest.mark.parametrize("per_row", [False, True])
def test_the_gradient_of_a_cost_is_that_of_computing_it_outside(per_row: bool) -> None:
    model, tokens = Leaves(per_row).double(), torch.tensor([4, 4])
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    with collect() as left:
        y = model(x)
    found = torch.autograd.grad(y.sin().sum() + left.total(tokens), (x, *model.parameters()))
    y = model.linear(x)
    cost = (y.square().mean((1, 2)) * tokens).sum() if per_row else y.square().mean() * tokens.sum()
    expected = torch.autograd.grad(y.sin().sum() + cost, (x, *model.parameters()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)  # a cost is kept in float32


@pytest.mark.parametrize("only", ["output", "cost"])
def test_one_of_the_two_gradients_may_be_missing(only: str) -> None:
    model = Leaves()
    with collect() as left:
        y = model(X)
    (y.sum() if only == "output" else left.total(torch.tensor([1, 1]))).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert (model.linear.weight.grad != 0).any()


def test_a_cost_is_kept_in_float32_and_the_output_as_it_is() -> None:
    with collect() as left:
        y = add_loss(X.bfloat16(), "cost", torch.ones((), dtype=torch.bfloat16))
    assert (y.dtype, left.costs[0][1].dtype) == (torch.bfloat16, torch.float32)


def test_an_inner_collection_takes_what_is_left_within_it() -> None:
    with collect() as outer:
        add_loss(X, "before", torch.tensor(1.0))
        with collect() as inner:
            add_loss(X, "within", torch.tensor(2.0))
        add_loss(X, "after", torch.tensor(3.0))
    assert [name for name, _ in outer.costs] == ["before", "after"]
    assert [name for name, _ in inner.costs] == ["within"]


def test_an_error_ends_its_own_collection_alone() -> None:
    with collect() as outer:
        with pytest.raises(ZeroDivisionError), collect() as inner:
            _ = add_loss(X, "within", torch.tensor(2.0)) is None or 1 / 0
        add_loss(X, "after", torch.tensor(3.0))
    assert [name for name, _ in outer.costs] == ["after"]
    assert [name for name, _ in inner.costs] == ["within"]
    assert add_loss(X, "nobody", torch.tensor(1.0)) is X


def test_without_gradients_costs_are_numbers() -> None:
    with torch.no_grad(), collect() as left:
        Leaves()(X)
    assert not left.costs[0][1].requires_grad


@warns
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_leaves_what_a_plain_one_does(backend: str) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(Leaves(name="first"), Leaves(per_row=True, name="second"))
    compiled, tokens, results = torch.compile(model, backend=backend), torch.tensor([4, 3]), []
    plain = model(X)
    torch.testing.assert_close(compiled(X), plain)  # compiled while nobody collects
    for run in (model, compiled, compiled):
        with collect() as left:
            y = run(X)
        torch.testing.assert_close(y, plain)
        total = left.total(tokens)
        results.append((total, *torch.autograd.grad(y.sum() + total, list(model.parameters()))))
        assert [name for name, _ in left.costs] == ["first", "second"]
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            torch.testing.assert_close(one, other)
    torch.testing.assert_close(compiled(X), plain)
    torch._dynamo.reset()


@warns
def test_a_collection_inside_what_is_compiled_adds_to_the_loss() -> None:
    torch._dynamo.reset()
    model, tokens = Leaves(), torch.tensor([4, 4])

    def loss(x: Tensor) -> Tensor:
        with collect() as left:
            y = model(x)
        return y.sum() + left.total(tokens)

    torch.testing.assert_close(torch.compile(loss, backend="eager")(X), loss(X))
    torch._dynamo.reset()
