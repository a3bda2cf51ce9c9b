"""Every backend against eager on a GPU, forward and backward, and record under torch.compile there; skipped where there is no GPU."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch

from saccade.core import Mechanism, attend, backends, masks, normalizers, positions, record, scores
from saccade.core.attention import build_call
from saccade.decoding.graph_capture import Captures
from saccade.models import Seq2Seq
from saccade.models.builder import Builder

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    # inductor uses parts of torch that torch calls deprecated
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # and gives advice once per process (TensorFloat32, few multiprocessors)
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

LENGTHS = [0, 5, 160]
MECHANISMS = {
    "plain": lambda: Mechanism(),
    "rotary": lambda: Mechanism(position=positions.Rotary()),
    "alibi": lambda: Mechanism(position=positions.Alibi(4)),
    "t5": lambda: Mechanism(position=positions.T5Buckets(4)),
    "shaw": lambda: Mechanism(position=positions.Shaw(32)),
    "cosine": lambda: Mechanism(scores.Cosine(heads=4)),
    "additive": lambda: Mechanism(scores.Additive(32, 32, heads=4), normalizers.Sparsemax()),
    "linear": lambda: Mechanism(scores.EluKernel(), normalizers.Sum()),
}
MASKS = {
    "full": masks.full(),
    "causal": masks.causal(),
    "padding": masks.padding(LENGTHS),
    "padding & causal": masks.padding(LENGTHS) & masks.causal(),
    "window | first": masks.window(3) | masks.padding([1, 1, 1]),
    "a predicate by head": masks.where(lambda b, h, i, j: (h == 0) | (j <= i)),
    "a matrix by head": masks.matrix(
        torch.ones(4, 160, 160, dtype=torch.bool).tril(0).index_fill(0, torch.tensor([0]), True)
    ),
    "top blocks": masks.top_blocks(16, 2),
}


@pytest.mark.parametrize(
    ("name", "mask", "sizes"),
    list(itertools.product(MECHANISMS, MASKS, [(160, 160), (1, 160), (130, 160)])),
)
def test_backends_agree_with_eager_on_a_gpu(name: str, mask: str, sizes: tuple[int, int]) -> None:
    mechanism = MECHANISMS[name]().cuda()
    q = torch.randn(3, 4, sizes[0], 32, device="cuda", requires_grad=True)
    k, v = (torch.randn(3, 2, sizes[1], 32, device="cuda", requires_grad=True) for _ in range(2))
    call = build_call(q, k, v, mechanism, MASKS[mask], None, 0.0)

    def run(backend: str) -> tuple[torch.Tensor, ...]:
        output = attend(q, k, v, mechanism, MASKS[mask], backend=backend)
        return (output, *torch.autograd.grad(output.square().sum(), (q, k, v)))

    wanted = run("eager")
    for other in [
        one
        for one, backend in backends.all_named()
        if backend.refuses(call) is None and one != "eager"
    ]:
        for a, b in zip(wanted, run(other), strict=True):
            assert bool(b.isfinite().all())
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


def test_a_record_survives_compilation_on_a_gpu() -> None:
    values = {
        "family": "transformer",
        "dim": 64,
        "hidden": 64,
        "depth": 2,
        "heads": 2,
        "dropout": 0.0,
    }
    model = Builder(values).make(Seq2Seq, 50, 60).cuda().eval()
    compiled = torch.compile(model)
    source, target = (
        torch.randint(4, 50, (4, 12), device="cuda"),
        torch.randint(4, 60, (4, 9), device="cuda"),
    )
    lengths = torch.tensor([12, 7, 3, 1], device="cuda")
    with torch.no_grad():
        before = compiled(source, lengths, target)
        with record(compiled) as seen:
            during = compiled(source, lengths, target)
        with record(model) as plain:
            model(source, lengths, target)
    torch.testing.assert_close(before, during)
    torch.testing.assert_close(
        seen["decoder.1.cross"].weights(), plain["decoder.1.cross"].weights(), rtol=1e-3, atol=1e-4
    )


def test_graphs_that_are_garbage_do_not_end_a_capture() -> None:
    captures, number = Captures(), torch.zeros(1, device="cuda")

    def work() -> None:
        number.add_(1)
        [[n] for n in range(2_000)]  # objects: the collector would run
        number.add_(1)

    cycle: list[object] = [captures("an earlier graph", work)]
    cycle.append(cycle)
    del cycle
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        graph = captures("a graph", work)
    finally:
        gc.set_threshold(*before)
    graph.replay()
    assert number.item() == 2


def test_random_numbers_are_drawn_after_a_capture_that_failed() -> None:
    captures, number = Captures(), torch.zeros(1, device="cuda")

    def work() -> None:
        torch.rand(3, device="cuda")
        number.item()

    with pytest.warns(UserWarning, match="a step cannot be captured as a CUDA graph"):
        assert captures("a step", work) is None
    assert captures("a step", work) is None  # not tried again
    assert torch.rand(3, device="cuda").isfinite().all()
