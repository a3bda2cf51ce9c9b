"""Performer's random features: unbiased, converging to softmax attention, linear where eager is quadratic, in range at any size."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.support import raises
from torch import Tensor

from saccade.core import (
    Mechanism,
    attend,
    masks,
    normalizers,
    record,
    scores,
    weights,
    which_backend,
)
from saccade.core.backends.linear import MIN_CHUNK_LENGTH
from saccade.core.scores import Favor
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.models import CausalLM, Encoder
from saccade.models.builder import Builder
from saccade.training.flops import counter


def performer(width: int, features: int = 64, redraw: int = 1000) -> Mechanism:
    return Mechanism(Favor(width, features, redraw), normalizers.Sum())


def some(queries: int, keys: int, width: int = 8, batch: int = 2, heads: int = 3) -> list[Tensor]:
    return [torch.randn(batch, heads, n, width, dtype=torch.float64) for n in (queries, keys, keys)]


def test_the_random_vectors_are_normal_and_orthogonal_in_blocks() -> None:
    score = Favor(16, 40)
    for block in score.omega.double().split(16):
        products = block @ block.T
        torch.testing.assert_close(products, products.diag().diag(), atol=1e-4, rtol=0)
    torch.manual_seed(0)
    many = []
    for _ in range(400):
        score.draw()
        many.append(score.omega.clone())
    each = torch.stack(many).double()  # 400 40 16
    assert each.mean(0).abs().max() < 5 / math.sqrt(400)  # no coordinate prefers a sign
    assert each.square().mean() == pytest.approx(1, abs=0.02)
    assert each.pow(4).mean() == pytest.approx(3, abs=0.15), "as of a normal distribution"
    assert each.square().sum(-1).var() == pytest.approx(2 * 16, rel=0.1), "lengths vary too"


def test_the_estimate_of_the_kernel_is_unbiased() -> None:
    torch.manual_seed(1)
    blocks, width = 20_000, 6
    score = Favor(width, blocks * width).double()
    q, k = (0.5 * torch.randn(3, width, dtype=torch.float64) for _ in range(2))
    exact = (q @ k.T / math.sqrt(width)).exp()
    each = [
        score.logarithms(x).exp().unflatten(-1, (blocks, width)).transpose(0, 1) for x in (q, k)
    ]
    # one estimate per block, which was drawn apart from the others
    found = each[0] @ each[1].transpose(-2, -1) / width
    error = found.std(0) / math.sqrt(blocks)
    assert ((found.mean(0) - exact).abs() < 4 * error).all()
    assert (error < 0.02 * exact).all(), "the draws are enough to see a bias"


def test_it_becomes_softmax_attention_as_features_grow() -> None:
    torch.manual_seed(2)
    q, k, v = some(12, 12)
    q, k = 0.7 * q, 0.7 * k
    exact, errors = attend(q, k, v, mask=masks.causal()), []
    for features in (16, 256, 4096, 32768):
        made = performer(8, features).double()
        errors.append((attend(q, k, v, made, masks.causal()) - exact).square().mean().sqrt().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02 < errors[0]
    assert errors[1] / errors[3] > 4, (
        "the error falls about as the root of the number of features: here by 11"
    )


@pytest.mark.parametrize(
    "size", [1, MIN_CHUNK_LENGTH - 1, MIN_CHUNK_LENGTH, 2 * MIN_CHUNK_LENGTH + 5]
)
@pytest.mark.parametrize("before", [0, 70])
@pytest.mark.parametrize(
    "mask",
    [masks.causal(), masks.causal() & masks.padding([3, 60]), masks.padding([1, 9])],
    ids=str,
)
def test_the_linear_backend_is_eager_at_every_border_of_chunks(
    size: int, before: int, mask: masks.Mask
) -> None:
    made, qkv = performer(8, 20).double(), [x.requires_grad_() for x in some(size, size + before)]
    assert which_backend(*qkv[:2], made, mask).chosen == (
        "linear" if size + before > 20 else "eager"
    )
    found, pull = {}, torch.randn(2, 3, size, 8, dtype=torch.float64)
    for backend in ("linear", "eager"):
        output = attend(*qkv, made, mask, backend=backend)
        found[backend] = [output, *torch.autograd.grad(output, qkv, pull)]
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_a_chunk_grows_with_the_features() -> None:
    made, qkv = performer(8, 300).double(), some(400, 450)
    expected = attend(*qkv, made, masks.causal(), backend="eager")
    torch.testing.assert_close(
        attend(*qkv, made, masks.causal(), backend="linear"), expected, rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_weights_are_finite_and_sum_to_one_at_any_size_of_queries_and_keys(scale: float) -> None:
    made, (q, k, v) = performer(64, 32), [x.float().requires_grad_() for x in some(70, 70, 64)]
    found = weights(scale * q, scale * k, made, masks.causal())
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 3, 70))
    assert (found >= 0).all()
    output = attend(scale * q, scale * k, v, made, masks.causal())
    assert all(torch.isfinite(one).all() for one in torch.autograd.grad(output.sum(), (q, k, v)))


def test_other_normalizers_are_refused_with_a_sentence() -> None:
    with raises("parts-do-not-combine"):
        Mechanism(Favor(8))
    with raises("width-differs"):
        attend(*some(3, 3, 4), performer(8).double())
    with raises("parts-do-not-combine"):
        Builder({"family": "transformer-decoder", "dim": 8, "heads": 2, "score": "favor"}).make(
            CausalLM, 11
        )


@pytest.mark.parametrize("causal", [True, False])
def test_operations_are_linear_in_the_length(causal: bool) -> None:
    made, width, features, counts = performer(8, 16), 8, 16, []
    for size in (256, 512):
        q, k, v = (x.float() for x in some(size, size))
        with counter() as counted:
            attend(q, k, v, made, masks.causal() if causal else None)
        counts.append(counted.get_total_flops())
        tokens, values = 2 * 3 * size, width + 1  # the last column of the values is the sum
        expected = 2 * 2 * tokens * width * features + 2 * 2 * tokens * features * values
        if causal:  # each chunk's scores and their values; the last chunk's prefix sum is not needed, the first is empty
            expected += (
                2 * tokens * MIN_CHUNK_LENGTH * (features + values)
                - 2 * 2 * 3 * MIN_CHUNK_LENGTH * features * values
            )
        assert counts[-1] == expected
    assert counts[1] < 2.02 * counts[0]
    assert sum(p.numel() for p in made.parameters()) == 0, "its features are drawn, not learned"


def model(kind: type, family: str) -> torch.nn.Module:
    small = {"dim": 16, "hidden": 8, "depth": 2, "heads": 2, "dropout": 0.0}
    changed = {"score": {"name": "favor", "features": 12, "redraw": 2}, "normalize": "sum"}
    return Builder({"family": family, **small, **changed}).make(kind, 11).eval()


@torch.no_grad()
def test_weights_of_a_performer_are_recorded_in_whole_passes_and_in_steps() -> None:
    made, tokens = model(CausalLM, "transformer-decoder"), torch.randint(0, 11, (2, 30))
    with record(made) as seen:
        made(tokens)
    found = seen["decoder.1.mixer"].weights()
    assert found.shape == (2, 2, 30, 30)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 2, 30))
    assert (found.triu(1) == 0).all()
    score, look = made.decoder.block(1).mixer.mechanism.score, seen["decoder.1.mixer"].calls[0]
    features = score.logarithms(look.q).exp(), look.key.exp()
    kernel = (features[0] @ features[1].transpose(-2, -1)).tril()
    torch.testing.assert_close(found, kernel / kernel.sum(-1, keepdim=True), rtol=1e-4, atol=1e-6)
    with record(made) as stepped:
        state = made.start(tokens[:, :0], torch.zeros(2).long())
        for token in tokens.T:
            _, state = made.step(token, state)
    torch.testing.assert_close(stepped["decoder.1.mixer"].weights(), found, rtol=1e-4, atol=1e-6)


def test_features_are_saved_copied_and_drawn_anew_every_so_many_updates() -> None:
    made = model(Encoder, "transformer-encoder")
    parts = [part for part in made.modules() if isinstance(part, Favor)]
    assert len(parts) == 2
    assert not torch.equal(parts[0].omega, parts[1].omega), "each layer has its own"
    other = model(Encoder, "transformer-encoder")
    other.load_state_dict(made.state_dict())
    tokens, lengths = torch.randint(0, 11, (2, 5)), torch.tensor([5, 3])
    assert torch.equal(other(tokens, lengths), made(tokens, lengths))
    address, changed = parts[0].omega.data_ptr(), []
    for number in range(1, 8):
        before = parts[0].omega.clone()
        parts[0].before_update(number, torch.Generator().manual_seed(number))
        if not torch.equal(before, parts[0].omega):
            changed.append(number)
    assert changed == [3, 5, 7]
    assert parts[0].omega.data_ptr() == address, "in place, where a captured update reads it"
    never = copy.deepcopy(parts[0])
    never.redraw, before = 0, parts[0].omega.clone()
    never.before_update(3, torch.Generator())
    assert torch.equal(never.omega, before)
    with torch.device("meta"):
        assert Favor(8).omega.is_meta


def test_a_compiled_model_sees_new_features() -> None:
    torch._dynamo.reset()
    layer, x = MultiHeadAttention(16, 2, mechanism=performer(8, 12)), torch.randn(2, 40, 16)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    before = compiled(x, mask=masks.causal())
    torch.testing.assert_close(before, layer(x, mask=masks.causal()))
    layer.mechanism.score.draw()
    after = compiled(x, mask=masks.causal())
    torch.testing.assert_close(after, layer(x, mask=masks.causal()))
    assert not torch.allclose(after, before)
    torch._dynamo.reset()


def test_a_kernel_of_ones_own_may_wait_for_all_keys() -> None:
    class Exponential(scores.Score):
        """exp(q)·exp(k), in range: logarithms until all keys are there."""

        kernel = needs_sum = True

        def features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            return query.exp(), (key - key.amax()).exp()

    q, k, v = some(9, 9)
    made, kernel = Mechanism(Exponential(), normalizers.Sum()), q.exp() @ k.exp().transpose(-2, -1)
    for backend in ("linear", "eager"):
        found = attend(q, k, v, made, backend=backend)
        torch.testing.assert_close(found, kernel / kernel.sum(-1, keepdim=True) @ v)
