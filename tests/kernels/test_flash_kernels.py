"""The softmax kernels of the backend `triton` against eager in float64, forward and backward, over a grid of shapes drawn at random.

They run on a GPU, and where there is none in Triton's interpreter (`make test-kernels`), which takes seconds for small tensors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.core import Mechanism, Positions, attend, masks, positions, scores, which_backend
from saccade.core.attention import build_call
from saccade.core.backends import table
from saccade.core.kernels import why_unavailable
from saccade.core.masks import Mask
from saccade.errors import SaccadeError
from saccade.training.flops import counter

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
runs = pytest.mark.skipif(
    why_unavailable(DEVICE) is not None,
    reason=f"the kernels do not run here: {why_unavailable(DEVICE)}",
)
TYPES = (
    [(torch.float32, 1e-3), (torch.bfloat16, 1e-2)]
    if DEVICE.type == "cuda"
    else [(torch.float32, 1e-3)]
)


def lengths(batch: int, keys: int) -> list[int]:
    """One row without a key, the others half and whole."""
    return [(0, keys // 2, keys)[n % 3] for n in range(batch)]


Made = tuple[Mechanism, Mask | None]
KINDS: dict[str, Callable[[int, int, int, int], Made]] = {  # of batch, heads, keys, width
    "plain": lambda b, h, k, d: (Mechanism(), None),
    "causal": lambda b, h, k, d: (Mechanism(), masks.causal()),
    "padding": lambda b, h, k, d: (Mechanism(), masks.padding(lengths(b, k))),
    "causal padding": lambda b, h, k, d: (
        Mechanism(),
        masks.causal() & masks.padding(lengths(b, k)),
    ),
    "window": lambda b, h, k, d: (Mechanism(), masks.window(k // 4, 3)),
    "causal window padding": lambda b, h, k, d: (
        Mechanism(),
        masks.window(9) & masks.causal() & masks.padding(lengths(b, k)),
    ),
    "big bird": lambda b, h, k, d: (
        Mechanism(),
        masks.blocks(k, 24, window=0, random=1) & masks.padding(lengths(b, k)),
    ),
    "big bird by head": lambda b, h, k, d: (
        Mechanism(),
        masks.blocks(k, 24, window=0, random=2, heads=h),
    ),
    "documents": lambda b, h, k, d: (
        Mechanism(),
        masks.documents((torch.arange(b * k) // 30).view(b, k)) & masks.causal(),
    ),
    "a function": lambda b, h, k, d: (
        Mechanism(),
        masks.where(lambda b, h, i, j: (i + 2 * j + h) % 3 != b),
    ),
    "alibi": lambda b, h, k, d: (Mechanism(position=positions.Alibi(h)), masks.causal()),
    "alibi in a window": lambda b, h, k, d: (
        Mechanism(position=positions.Alibi(h)),
        masks.window(30) & masks.causal() & masks.padding(lengths(b, k)),
    ),
    "alibi to a side": lambda b, h, k, d: (
        Mechanism(position=positions.Alibi(h)),
        masks.window(k, 2),
    ),
    "alibi both sides": lambda b, h, k, d: (Mechanism(position=positions.Alibi(h)), None),
    "t5": lambda b, h, k, d: (
        Mechanism(position=positions.T5Buckets(h, 8, 12)),
        masks.padding(lengths(b, k)),
    ),
    "t5 causal": lambda b, h, k, d: (
        Mechanism(position=positions.T5Buckets(h, 8, 12, both_sides=False)),
        masks.causal(),
    ),
    "t5 documents": lambda b, h, k, d: (
        Mechanism(position=positions.T5Buckets(h, 8, 12)),
        masks.documents((torch.arange(b * k) // 30).view(b, k)),
    ),
    "shaw": lambda b, h, k, d: (Mechanism(position=positions.Shaw(d, 5)), None),
    "shaw causal": lambda b, h, k, d: (
        Mechanism(position=positions.Shaw(d, 5)),
        masks.causal() & masks.padding(lengths(b, k)),
    ),
    "shaw farther than the text": lambda b, h, k, d: (
        Mechanism(position=positions.Shaw(d, 200)),
        None,
    ),
    "shaw keys in a window": lambda b, h, k, d: (
        Mechanism(position=positions.Shaw(d, 5, values=False)),
        masks.window(8),
    ),
    "soft-capped": lambda b, h, k, d: (
        Mechanism(scores.SoftCapped(1.5), position=positions.Alibi(h)),
        masks.causal(),
    ),
    "cosine": lambda b, h, k, d: (Mechanism(scores.Cosine(h)), masks.window(20, 0)),
}


def shape(name: str) -> tuple[int, int, int, int, int, int]:
    """B, H, H', Q, K and D of a kind, drawn at random: odd lengths, fewer queries than keys, shared keys."""
    draw = random.Random(name)
    keys, shared = draw.randint(33, 75), draw.choice([1, 2])
    queries = draw.choice([keys, draw.randint(1, keys)])
    return draw.choice([1, 2]), 2, shared, queries, keys, draw.choice([16, 24, 40])


def difference(found: Tensor, expected: Tensor) -> float:
    return float(
        (found.detach().double() - expected.detach()).norm()
        / expected.detach().norm().clamp_min(1e-12)
    )


def compare(
    made: Mechanism,
    mask: Mask | None,
    sizes: tuple[int, ...],
    dtype: torch.dtype,
    most: float,
    backend: str = "triton",
) -> None:
    """Outputs and all gradients, those of parameters too, on the same rounded inputs."""
    batch, heads, shared, queries, keys, width = sizes
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    shapes = [
        (batch, heads, queries, width),
        (batch, shared, keys, width),
        (batch, shared, keys, width),
    ]
    given, pull = [torch.randn(size).to(dtype) for size in shapes], torch.randn(shapes[0]).to(dtype)
    results = []
    for name, kind in (("eager", torch.float64), (backend, dtype)):
        made.to(DEVICE, torch.float64 if name == "eager" else torch.float32)
        inputs = [x.to(DEVICE, kind).requires_grad_() for x in given]
        output = attend(*inputs, made, mask, backend=name)
        gradients = torch.autograd.grad(
            output, [*inputs, *made.parameters()], pull.to(DEVICE, kind)
        )
        results.append((output, *gradients))
    for n, (expected, found) in enumerate(zip(*results, strict=True)):
        assert difference(found, expected) < most, (
            f"{'output' if not n else f'gradient {n}'} of {sizes} in {dtype}"
        )


@runs
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "most"), TYPES, ids=lambda one: str(one))
@pytest.mark.parametrize("name", KINDS)
def test_a_kernel_is_eager_forward_and_backward(name: str, dtype: torch.dtype, most: float) -> None:
    sizes = shape(name)
    made, mask = KINDS[name](sizes[0], sizes[1], sizes[4], sizes[5])
    compare(made, mask, sizes, dtype, most)


@runs
@pytest.mark.parametrize("position", [None, positions.Rotary()], ids=["none", "rotary"])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 17, 33, 16), (1, 2, 1, 40, 23, 20), (1, 1, 1, 34, 33, 16)], ids=str
)
def test_a_kernel_runs_with_more_and_fewer_queries_than_keys(
    sizes: tuple[int, ...], position: positions.Position | None
) -> None:
    compare(Mechanism(position=position), None, sizes, torch.float32, 1e-3)


@runs
@pytest.mark.slow
@pytest.mark.parametrize("width", [100, 256])
def test_heads_are_as_wide_as_256(width: int) -> None:
    compare(Mechanism(), masks.causal(), (1, 1, 1, 34, 34, width), torch.float32, 1e-3)


@runs
def test_dropout_drops_weights_and_the_gradient_knows_which() -> None:
    torch.manual_seed(0)
    n = 48
    q, k = (torch.randn(1, 1, n, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    v = torch.eye(n, device=DEVICE)[None, None].requires_grad_()  # the output is the weights
    output = attend(q, k, v, mask=masks.causal(), dropout=0.4, backend="triton")
    plain = attend(q, k, v, mask=masks.causal(), backend="eager")
    kept = output.detach() != 0
    seen = masks.causal().dense(1, 1, n, n, DEVICE)
    assert 0.5 < float(kept[seen].float().mean()) < 0.7
    expected = plain * kept / 0.6
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    pull = torch.randn_like(output)
    for found, wanted in zip(
        torch.autograd.grad(output, [q, k, v], pull),
        torch.autograd.grad(expected, [q, k], pull),
        strict=False,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


@runs
@pytest.mark.parametrize("backend", ["triton", "short"])
def test_the_first_call_draws_no_random_numbers_for_its_backward_kernel(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table[backend], "compiled", set())
    q = torch.randn(1, 1, 8, 16, device=DEVICE, dtype=TYPES[-1][0], requires_grad=True)
    state = torch.cuda.get_rng_state if DEVICE.type == "cuda" else torch.get_rng_state
    before = state()
    attend(q, q, q, backend=backend)
    assert table[backend].compiled
    assert torch.equal(state(), before)


@runs
def test_operations_of_a_kernel_are_counted_as_eagers_are() -> None:
    q, k, v = (torch.randn(1, 1, 32, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    counts = []
    for backend in ("eager", "triton"):
        with counter() as counted:
            attend(q, k, v, mask=masks.causal(), backend=backend).sum().backward()
        counts.append(counted.get_total_flops())
    assert counts[0] == counts[1] > 0


@runs
@pytest.mark.slow
def test_a_compiled_function_holds_the_kernel_as_one_operator() -> None:
    made = Mechanism(position=positions.T5Buckets(2, 8, 12)).to(DEVICE)
    q, k, v = (torch.randn(1, 2, 20, 16, device=DEVICE, requires_grad=True) for _ in range(3))
    run = lambda *qkv: attend(*qkv, made, masks.causal(), backend="triton")
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    inputs = [q, k, v, made.position.table]
    plain, found = (
        torch.autograd.grad(one(q, k, v).square().sum(), inputs) for one in (run, compiled)
    )
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other)


class Steeper(positions.Alibi):
    """A bias of its own."""

    def bias(self, q: Tensor, positions: Positions, scale: float) -> Tensor:
        return 3 * super().bias(q, positions, scale)


class Bent(scores.SoftCapped):
    """A comparison of its own."""

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return super().compare(query, key) ** 3


LINE = "it counts positions from the first key"
REFUSALS: list[tuple[str, Mechanism, dict[str, object]]] = [
    ("the score is not a dot product, plain or soft-capped", Mechanism(Bent()), {}),
    ("it knows ALiBi, T5 and Shaw alone", Mechanism(position=Steeper(2)), {}),
    (
        "it has no dropout on weights by which vectors",
        Mechanism(position=positions.Shaw(16, 3)),
        {"dropout": 0.5},
    ),
    (
        LINE,
        Mechanism(position=positions.Alibi(2)),
        {"positions": Positions(torch.arange(5) * 2, torch.arange(5))},
    ),
]


@runs
@pytest.mark.parametrize(("reason", "made", "more"), REFUSALS, ids=[case[0] for case in REFUSALS])
def test_what_a_kernel_does_not_know_is_refused_with_its_reason(
    reason: str, made: Mechanism, more: dict[str, object]
) -> None:
    q, k, v = (torch.randn(1, 2, 5, 16, device=DEVICE) for _ in range(3))
    with pytest.raises(SaccadeError, match=f"backend 'triton' refuses: .*{reason}"):
        attend(q, k, v, made.to(DEVICE), backend="triton", **more)  # type: ignore[arg-type]


@runs
def test_gradients_of_gradients_are_refused() -> None:
    q, of_output = (torch.randn(1, 1, 16, 16, device=DEVICE, requires_grad=True) for _ in range(2))
    (slope,) = torch.autograd.grad(
        attend(q, q, q, backend="triton"), q, of_output, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


class Compiled:
    """A kernel as Triton compiles it, which only notes what it is launched with."""

    params = ()

    def __init__(self) -> None:
        self.anew = list[Any]()
        self.again = list[Any]()

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        if len(grid) == 3:  # the kernel that was compiled for earlier arguments
            return lambda *given: self.again.append((grid, given))
        return lambda *given, **_: self.anew.append((grid, given)) or self


def test_a_launch_made_before_is_made_again_with_addresses_unless_something_else_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch = pytest.importorskip("saccade.core.kernels.launch")
    monkeypatch.setattr(launch, "launchers", {})
    monkeypatch.setattr(launch, "configs", lambda *_: [(32, 16, 4, 1)])
    kernel, q = Compiled(), torch.zeros(2, 2, 64, 16)

    def run(x: Tensor, **extras: Any) -> tuple[int, int]:
        more, lengths = launch.Extras(**extras), extras.get("lengths")
        given = launch.describe(x, q, q, *more[:8])
        launch.launch(
            kernel, "forward", (x, q, q, q, lengths), (x, q, q, q), given, launch.Options(1.0), more
        )
        return len(kernel.anew), len(kernel.again)

    assert run(q) == (1, 0)
    assert run(torch.zeros_like(q)) == (1, 1)
    (grid, first), (grid_again, second) = kernel.anew[0], kernel.again[0]
    assert grid_again == (*grid, 1, 1)
    assert second == (second[0], q.data_ptr(), q.data_ptr(), q.data_ptr(), 0, *first[5:])
    assert run(q.transpose(1, 2).contiguous().transpose(1, 2)) == (2, 1), "other strides"
    assert run(torch.zeros(q.numel() + 1)[1:].view_as(q)) == (3, 1), "not where Triton expects it"
    assert run(q, lengths=torch.ones(2)) == (4, 1)
    assert run(q, lengths=torch.ones(2)) == (4, 2)
    assert run(q, lengths=torch.ones(2, device="meta")) == (5, 2), (
        "an address on another device is never passed"
    )
    assert run(q, lengths=torch.ones(2, device="meta")) == (6, 2)


class Runner:
    """A compiled kernel with all that Triton's own has; it notes which way it was launched, and with what."""

    function, packed_metadata = 7, (4, 1)

    def __init__(self) -> None:
        self.ways = list[Any]()

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given: self.ways.append(("by Triton", grid, given))

    def run(self, *given: Any) -> None:
        self.ways.append(("directly", given))


def test_a_kernel_is_launched_directly_unless_a_profiler_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch, knobs = (
        pytest.importorskip("saccade.core.kernels.launch"),
        pytest.importorskip("triton.knobs"),
    )
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 3, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda device: 10 + device, raising=False
    )
    kernel = Runner()
    run, hook = launch.launcher(kernel, (5, 1, 1)), lambda about: None
    run(1, 2)
    assert kernel.ways.pop() == ("directly", (5, 1, 1, 13, 7, (4, 1), None, None, None, 1, 2))
    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        chain.add(hook)
        run(1, 2)
        chain.remove(hook)
        assert kernel.ways.pop() == ("by Triton", (5, 1, 1), (1, 2))
    for odd in (None, hook):  # as in other versions of Triton
        monkeypatch.setattr(knobs.runtime, "launch_enter_hook", odd)
        run(1, 2)
        assert kernel.ways.pop()[0] == "by Triton"


def test_a_kernel_of_another_version_is_launched_by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("saccade.core.kernels.launch")
    kernel = Runner()
    for name in ("_cuda_getDevice", "_cuda_getCurrentRawStream"):
        monkeypatch.setattr(torch._C, name, lambda *_: 0, raising=False)
    monkeypatch.delattr(Runner, "function")
    launch.launcher(kernel, (5, 1, 1))(1, 2)
    assert kernel.ways == [("by Triton", (5, 1, 1), (1, 2))]


def test_no_kernel_is_chosen_on_a_cpu_and_which_backend_says_why() -> None:
    q, k = torch.randn(1, 2, 40, 16), torch.randn(1, 2, 40, 16)
    found = which_backend(q, k, Mechanism(position=positions.Shaw(16, 3)))
    assert found.chosen == "eager"
    reason = next(verdict.reason for verdict in found if verdict.backend == "triton")
    assert reason == why_unavailable(q.device)
    call = build_call(q, k, k, Mechanism(scores.SoftCapped()), None, None, 0.0)
    assert table["triton"].rank(call) > table["eager"].rank(call)
