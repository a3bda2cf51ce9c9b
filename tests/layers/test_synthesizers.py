"""Synthesizers: every kind against loops, in whole passes and steps, recorded, refused beyond their length, with the paper's parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mixer_helpers import DIM, HEADS, shaken, synthesizer_loop
from tests.support import raises

from saccade.core import Mechanism, Positions, masks, positions, record, scores
from saccade.errors import SaccadeError
from saccade.layers.synthesizers import COMBINATIONS, KINDS, Synthesizer
from saccade.models import CausalLM, Encoder
from saccade.models.builder import Builder
from saccade.training.flops import counter

VARIANTS = [(kind, plus) for kind in KINDS for plus in COMBINATIONS]
each_variant = pytest.mark.parametrize(("kind", "plus"), VARIANTS)
LENGTHS = [5, 2, 3]


def made(kind: str, plus: str, **more: Any) -> Synthesizer:
    rank = {"rank": 3} if kind.startswith("factorized") else {}
    return shaken(Synthesizer(DIM, HEADS, kind, plus, **{"max_len": 7, **rank, **more}))


@each_variant
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_its_loop(kind: str, plus: str, causal: bool) -> None:
    layer, x = made(kind, plus, head_width=2), torch.randn(3, 5, DIM, dtype=torch.float64)
    mask = masks.padding(LENGTHS) & (masks.causal() if causal else masks.full())
    expected = synthesizer_loop(layer, x, causal, LENGTHS)
    torch.testing.assert_close(layer.mix(x, mask, Positions.line(5, 5)), expected)
    torch.testing.assert_close(layer.mix(x, mask, None), expected)
    torch.testing.assert_close(layer(x, mask=mask), expected)


@each_variant
def test_positions_may_be_given_one_by_one_and_differ_from_row_to_row(kind: str, plus: str) -> None:
    layer, x = made(kind, plus), torch.randn(3, 4, DIM, dtype=torch.float64)
    expected = layer(x)
    torch.testing.assert_close(
        layer(x, positions=Positions(torch.arange(4), torch.arange(4))), expected
    )
    at = torch.stack([torch.arange(4), torch.arange(4) + 3, torch.arange(4) + 1])
    found = layer(x, positions=Positions(at, at))
    torch.testing.assert_close(found[:1], expected[:1])
    assert not torch.allclose(found[1:], expected[1:]), (
        "scores are for the positions, not for their order"
    )
    alone = layer(x[1:2], positions=Positions(at[1], at[1]))
    torch.testing.assert_close(found[1:2], alone)


@each_variant
def test_gradients(kind: str, plus: str) -> None:
    layer, x = made(kind, plus), torch.randn(2, 3, DIM, dtype=torch.float64, requires_grad=True)
    mask = masks.padding([3, 2])
    assert torch.autograd.gradcheck(
        lambda x, *_: layer(x, mask=mask), (x, *layer.parameters()), fast_mode=True
    )


@each_variant
@torch.no_grad()
def test_weights_are_recorded_in_a_pass_in_rows_and_in_steps(kind: str, plus: str) -> None:
    layer, x = made(kind, plus), torch.randn(2, 6, DIM, dtype=torch.float64)
    with record(layer) as seen:
        layer(x, mask=masks.causal() & masks.padding([6, 4]))
    found = seen["attention"].weights()
    assert found.shape == (2, HEADS, 6, 6)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, HEADS, 6, dtype=torch.float64))
    assert (found.triu(1) == 0).all()
    assert (found[1, :, :, 4:] == 0).all()
    torch.testing.assert_close(
        seen["attention"].weights(rows=[3, 1], heads=[1]), found[:, [1]][:, :, [3, 1]]
    )
    v = layer.split(layer.v(x), HEADS)
    torch.testing.assert_close(
        layer.out((found @ v).transpose(1, 2).flatten(2)),
        layer(x, mask=masks.causal() & masks.padding([6, 4])),
    )
    with record(layer) as stepped:
        cache = layer.start(x[:, 0])
        for n in range(6):
            _, cache = layer.step(x[:, n : n + 1], cache, None, Positions.line(1, n + 1))
    with record(layer) as whole:
        layer(x, mask=masks.causal())
    torch.testing.assert_close(stepped["attention"].weights(), whole["attention"].weights())


@pytest.mark.parametrize("inner", ["t5", "rotary", "shaw"])
def test_plus_keeps_the_score_and_the_position_of_the_model(inner: str) -> None:
    position = {
        "t5": lambda: positions.T5Buckets(HEADS),
        "rotary": positions.Rotary,
        "shaw": lambda: positions.Shaw(4),
    }[inner]
    make = lambda score: Mechanism(score, position=position())
    built = Synthesizer(DIM, HEADS, "random", "add", 7, make_mechanism=make, head_width=4)
    layer, x = shaken(built), torch.randn(2, 5, DIM, dtype=torch.float64)
    own = layer.mechanism.position
    plain = Mechanism(scores.ScaledDot(), position=own.inner)
    q, k, v = (layer.split(part(x), HEADS) for part in (layer.q, layer.k, layer.v))
    at = Positions.line(5, 5)
    fits = plain.score(own.inner.encode(q, at.i, at), own.inner.encode(k, at.j, at))
    bias = own.inner.bias(q, at, layer.width**-0.5)
    weights = (fits + own.tables[0][:, :5, :5] + (0 if bias is None else bias)).softmax(-1)
    added = own.inner.values(weights, at)
    heads = weights @ v + (0 if added is None else added)
    torch.testing.assert_close(layer(x), layer.out(heads.transpose(1, 2).flatten(2)))


@each_variant
def test_a_text_beyond_max_len_is_refused_with_a_sentence(kind: str, plus: str) -> None:
    layer = made(kind, plus)
    sentence = r"expected at most 7 positions \(mixer\.max_len\), got 8; shorten the text, or train with a larger"
    with pytest.raises(SaccadeError, match=sentence):
        layer(torch.randn(1, 8, DIM, dtype=torch.float64))
    at = torch.tensor([0, 7])
    with pytest.raises(SaccadeError, match=sentence):
        layer(torch.randn(1, 2, DIM, dtype=torch.float64), positions=Positions(at, at))
    cache = layer.start(torch.randn(1, DIM, dtype=torch.float64))
    for n in range(7):
        _, cache = layer.step(
            torch.randn(1, 1, DIM, dtype=torch.float64), cache, None, Positions.line(1, n + 1)
        )
    with pytest.raises(SaccadeError, match=sentence):
        layer.step(torch.randn(1, 1, DIM, dtype=torch.float64), cache, None, Positions.line(1, 8))


@each_variant
@pytest.mark.parametrize("more", [1, 2, 4])
def test_a_position_before_the_first_is_refused_with_a_sentence(
    kind: str, plus: str, more: int
) -> None:
    layer, x = made(kind, plus), torch.randn(1, 2 + more, DIM, dtype=torch.float64)
    sentence = f"position -{more} is before the first that the mixer has learned; give as many keys as queries"
    with pytest.raises(SaccadeError, match=sentence):
        layer(x, x[:, :2])
    at = torch.arange(2 + more)
    with pytest.raises(SaccadeError, match=sentence):
        layer(x, positions=Positions(at - more, at))


def test_wrong_options_are_refused() -> None:
    with raises("unknown-choice"):
        Synthesizer(DIM, HEADS, "sparse")
    with raises("setting-without-effect"):
        Synthesizer(DIM, HEADS, "random", rank=4)
    small = {"family": "transformer-decoder", "dim": 8, "heads": 2}
    with pytest.raises(SaccadeError, match=r"model\.mixer\.plus is 'both'"):
        Builder({**small, "mixer": {"name": "synthesizer", "plus": "both"}})


def test_a_score_is_read_only_where_it_is_added() -> None:
    small = {"family": "transformer-encoder", "dim": 8, "heads": 2, "score": "additive"}
    for plus in COMBINATIONS:
        builder = Builder({**small, "mixer": {"name": "synthesizer", "plus": plus}})
        builder.make(Encoder, 9)
        assert ("score" in builder.config._read) == (plus != "none")


@each_variant
def test_parameters_and_operations_are_the_closed_formula(kind: str, plus: str) -> None:
    dim, heads, width, size, max_len, rank = 12, 3, 5, 8, 10, 2
    options = {"rank": rank} if kind.startswith("factorized") else {}
    layer = Synthesizer(dim, heads, kind, plus, max_len, head_width=width, bias=False, **options)
    projections = 2 + (plus != "none") + (plus != "none" or kind.endswith("dense"))
    tables = {
        "dense": width * max_len,
        "factorized-dense": width * (rank + max_len // rank),
        "random": heads * max_len**2,
        "factorized": 2 * heads * max_len * rank,
    }
    assert sum(p.numel() for p in layer.parameters()) == projections * dim * heads * width + tables[
        kind
    ] + (plus == "alpha")
    with counter() as counted, torch.no_grad():
        layer(torch.randn(2, size, dim))
    made_scores = {
        "dense": 2 * 2 * heads * size * width * size,  # for as many keys as there are
        "factorized-dense": 2 * 2 * heads * size * width * (rank + max_len // rank),
        "random": 0,
        "factorized": 2 * heads * size * rank * size,  # once for the whole batch
    }
    attention = 2 * 2 * heads * size * size * width * (1 + (plus != "none"))
    assert (
        counted.get_total_flops()
        == 2 * 2 * size * projections * dim * heads * width + made_scores[kind] + attention
    )


def test_a_language_model_of_random_weights_learns() -> None:
    """Weights that look at no token can repeat the token before: each is predicted from the last one."""
    torch.manual_seed(0)
    settings = {
        "family": "transformer-decoder",
        "dim": 16,
        "hidden": 16,
        "depth": 1,
        "heads": 2,
        "dropout": 0.0,
    }
    mixer = {"name": "synthesizer", "kind": "random", "max_len": 12}
    model = Builder({**settings, "mixer": mixer, "position_embedding": "none"}).make(CausalLM, 9)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    first = torch.randint(0, 9, (64, 6))
    tokens = torch.stack([first, torch.randint(0, 9, (64, 6))], 2).flatten(1)
    tokens[:, 3::2] = tokens[:, 1:-2:2]  # every second token is that of two positions before
    for _ in range(80):
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits[:, 2::2].flatten(0, 1), tokens[:, 3::2].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5


@pytest.mark.parametrize("plus", COMBINATIONS)
def test_a_mask_that_is_computed_from_keys_needs_keys(plus: str) -> None:
    build = lambda: made(
        "dense", plus, make_mechanism=lambda score: Mechanism(score, mask=masks.top_blocks(2, 1))
    )
    if plus == "none":
        with raises("parts-do-not-combine"):
            build()
    else:
        x = torch.randn(2, 5, DIM, dtype=torch.float64)
        assert build()(x).shape == x.shape
