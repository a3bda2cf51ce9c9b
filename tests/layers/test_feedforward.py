"""Feed-forward parts: each by its formula, experts against a loop over tokens, what they cost, and that they learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.core.auxiliary_losses import collect
from saccade.errors import SaccadeError
from saccade.layers.feedforward import MLP, Experts, activations, table
from saccade.layers.product_keys import ProductKeyMemory
from saccade.settings import Choice, choose
from saccade.training.flops import counter

DIM, HIDDEN = 4, 5
# by hand, and PyTorch's
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "relu": (lambda x: x.clamp_min(0), nn.ReLU()),
    "gelu": (lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2, nn.GELU()),
    "swish": (lambda x: x / (1 + torch.exp(-x)), nn.SiLU()),
    "sigmoid": (lambda x: 1 / (1 + torch.exp(-x)), nn.Sigmoid()),
    "elu": (lambda x: torch.where(x > 0, x, torch.exp(x) - 1), nn.ELU()),
    "selu": (
        lambda x: (
            1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (torch.exp(x) - 1))
        ),
        nn.SELU(),
    ),
    "celu": (lambda x: x.clamp_min(0) + (torch.exp(x) - 1).clamp_max(0), nn.CELU()),
    "softplus": (lambda x: torch.log(1 + torch.exp(x)), nn.Softplus()),
    "linear": (lambda x: x, nn.Identity()),
}


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def made(name: str, **options: object) -> nn.Module:
    """A part in float64, all parameters (biases too) far from zero."""
    part = choose(table, {"name": name, **{**table.entry(name).example, **options}}, "feedforward")(
        dim=DIM, hidden=HIDDEN, dropout=0.0
    ).double()
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return part


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    return x @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def gated(gate: str) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda part, x: linear(
        ACTIVATIONS[gate][0](linear(x, part.inner)) * linear(x, part.linear), part.outer
    )


def loop_over_experts(part: Experts, x: Tensor) -> Tensor:
    """One token after another: its `top` likeliest experts, each weighted by the router's probability."""
    found = []
    for token in x.reshape(-1, DIM):
        p = (part.router.weight @ token).softmax(0)
        best = sorted(range(part.count), key=lambda e: -p[e].item())[: part.top]
        total = sum(p[e] for e in best) if part.top > 1 else 1.0
        outputs = [
            p[e]
            / total
            * (
                F.relu(token @ part.inner[e] + part.inner_bias[e, 0]) @ part.outer[e]
                + part.outer_bias[e, 0]
            )
            for e in best
        ]
        found.append(sum(outputs))
    return torch.stack(found).view_as(x)


def loop_over_keys(part: ProductKeyMemory, x: Tensor) -> Tensor:
    """One token and head after another, with the scores of all pairs of sub-keys."""
    found = []
    heads, _, count, half = part.keys.shape
    for token in x.reshape(-1, DIM):
        query = (part.query.weight @ token + part.query.bias).view(heads, 2, half)
        output = torch.zeros_like(token)
        for h in range(heads):
            one, two = (
                F.layer_norm(query[h, p], (half,), part.norm.weight, part.norm.bias, part.norm.eps)
                for p in range(2)
            )
            scores = {
                (i, j): one @ part.keys[h, 0, i] + two @ part.keys[h, 1, j]
                for i in range(count)
                for j in range(count)
            }
            best = sorted(scores, key=lambda pair: -scores[pair].item())[: part.top]
            weights = torch.stack([scores[pair] for pair in best]).softmax(0)
            output = output + sum(
                w * part.values[i * count + j] for w, (i, j) in zip(weights, best, strict=True)
            )
        found.append(output)
    return torch.stack(found).view_as(x)


ORACLES: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "none": lambda part, x: 0 * x,
    "mlp": lambda part, x: linear(linear(x, part.inner).clamp_min(0), part.outer),
    "glu": gated("sigmoid"),
    "reglu": gated("relu"),
    "geglu": gated("gelu"),
    "swiglu": gated("swish"),
    "liglu": gated("linear"),
    "experts": loop_over_experts,
    "product-key": loop_over_keys,
    "noisy-experts": loop_over_experts,  # without noise, the softmax of the largest is their share of the whole softmax
}


def test_every_part_and_activation_has_its_formula() -> None:
    assert set(ORACLES) == set(table.names())
    assert set(ACTIVATIONS) == set(activations.names())


@pytest.mark.parametrize("name", activations.names())
def test_activations_are_their_formulas_and_pytorchs(name: str) -> None:
    ours, x = activations[name](), some(50).requires_grad_()
    for other in ACTIVATIONS[name]:
        torch.testing.assert_close(ours(x), other(x))
        torch.testing.assert_close(
            *(torch.autograd.grad(f(x).sin().sum(), x)[0] for f in (ours, other))
        )
    if name == "gelu":
        torch.testing.assert_close(activations[name](tanh=True)(x), nn.GELU("tanh")(x))
    if name == "celu":
        torch.testing.assert_close(activations[name](alpha=0.3)(x), nn.CELU(0.3)(x))
        torch.testing.assert_close(
            activations[name](alpha=0.3)(x),
            torch.where(x > 0, x, 0.3 * (torch.exp(x / 0.3) - 1)),
            msg="by hand",
        )


@pytest.mark.parametrize("name", table.names())
def test_a_part_is_its_formula_at_each_position_by_itself(name: str) -> None:
    part, x = made(name).eval(), some(2, 3, DIM).requires_grad_()
    torch.testing.assert_close(part(x), ORACLES[name](part, x))
    torch.testing.assert_close(part(x)[:, 1:2], part(x[:, 1:2]), msg="each position by itself")
    used = [
        parameter
        for at, parameter in part.named_parameters()
        if at not in getattr(part, "only_in_training", ())
    ]
    assert torch.autograd.gradcheck(lambda x, *_: part(x), (x, *used))


@pytest.mark.parametrize("name", activations.names())
def test_an_mlp_takes_any_activation_and_no_bias(name: str) -> None:
    for bias in (True, False):
        mlp, x = made("mlp", activation=name, bias=bias), some(2, 3, DIM)
        torch.testing.assert_close(
            mlp(x), linear(ACTIVATIONS[name][0](linear(x, mlp.inner)), mlp.outer)
        )
        assert (mlp.inner.bias is not None) == (mlp.outer.bias is not None) == bias


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in table.names()
        if "experts" not in name and name not in ("product-key", "none")
    ],
)
def test_a_part_without_bias_has_none_and_dropout_falls_on_the_hidden_numbers(name: str) -> None:
    assert all(parameter.dim() == 2 for parameter in made(name, bias=False).parameters())
    part, x = Choice(table[name])(dim=DIM, hidden=400, dropout=0.5), torch.randn(2, 3, DIM)
    hidden = []
    part.outer.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
    part(x)
    part.eval()(x)
    kept = hidden[0] != 0
    torch.testing.assert_close(hidden[0][kept], 2 * hidden[1][kept])
    assert 0.3 < (kept | (hidden[1] == 0)).float().mean() < 0.9


def test_a_gated_part_with_two_thirds_of_the_width_has_as_many_weights_as_an_mlp() -> None:
    sizes = [
        sum(p.numel() for p in Choice(table[n], {"bias": False})(dim=6, hidden=h).parameters())
        for n, h in (("mlp", 9), ("glu", 6))
    ]
    assert sizes[0] == sizes[1]


# --- product keys


@pytest.mark.parametrize(("subkeys", "top"), [(1, 1), (4, 4), (5, 2), (5, 1)])
def test_the_best_pairs_are_among_the_best_sub_keys(subkeys: int, top: int) -> None:
    part, x = made("product-key", subkeys=subkeys, top=top, width=6, heads=3), some(2, 4, DIM)
    torch.testing.assert_close(part(x), loop_over_keys(part, x))


def test_blocks_with_and_without_a_memory_or_experts() -> None:
    def kinds(name: str, role: str, **options: object) -> list[str]:
        choice = choose(table, {"name": name, **table.entry(name).example, **options}, "f")
        parts = [
            choice(dim=DIM, hidden=HIDDEN, dropout=0.0, n=n, depth=4, role=role) for n in range(4)
        ]
        for part in parts:
            if part.dense is not None:
                x = torch.randn(2, 3, DIM)
                assert torch.equal(part(x), part.dense(x))
                assert set(part.state_dict()) == {
                    f"dense.{name}" for name in part.dense.state_dict()
                }
        return ["mlp" if part.dense is not None else "own" for part in parts]

    assert kinds("experts", "encoder", every=1) == ["own"] * 4
    assert kinds("experts", "decoder", every=2) == ["mlp", "own"] * 2
    assert kinds("experts", "alone", every=4) == ["mlp", "mlp", "mlp", "own"]
    assert kinds("product-key", "alone") == ["own"] * 4
    assert kinds("product-key", "encoder", blocks=[2, 3]) == ["mlp", "own", "own", "mlp"]
    assert kinds("product-key", "decoder", blocks=[2, 3]) == ["mlp"] * 4
    assert kinds("product-key", "decoder", blocks=[1], decoder=True) == ["own", "mlp", "mlp", "mlp"]
    assert kinds("product-key", "decoder", blocks=[3], decoder=True, encoder=False) == [
        "mlp",
        "mlp",
        "own",
        "mlp",
    ]
    assert kinds("product-key", "encoder", blocks=[3], decoder=True, encoder=False) == ["mlp"] * 4
    with raises("no-memory-left"):
        kinds("product-key", "encoder", encoder=False)
    for wrong, sentence in (
        (
            {"blocks": [5]},
            r"blocks must list whole numbers from 1 to 4, got \[5\]; 1 is the first block",
        ),
        ({"blocks": []}, "blocks must list whole numbers from 1 to 4"),
        ({"blocks": ["1"]}, r"f\.blocks is \['1'\]; it must be a list of whole numbers"),
        ({"blocks": 3}, r"f\.blocks is 3; it must be a list or null"),
        ({"top": 4}, "top must be at most subkeys, got 4 of 3"),
        ({"width": 5}, "width must be even, for two halves of a query, got 5"),
        (
            {"encoder": False},
            "encoder=false is for a model with an encoder and a decoder; leave it out",
        ),
        (
            {"decoder": True},
            "decoder=true is for a model with an encoder and a decoder; leave it out",
        ),
    ):
        with pytest.raises(SaccadeError, match=sentence):
            kinds("product-key", "alone", **wrong)
    with raises("experts-out-of-range"):
        kinds("experts", "alone", every=5)


def test_a_memory_has_the_parameters_and_operations_of_its_formula() -> None:
    heads, subkeys, width, top, x = 3, 5, 6, 2, torch.randn(2, 7, DIM)
    part = ProductKeyMemory(DIM, HIDDEN, subkeys=subkeys, heads=heads, top=top, width=width).eval()
    query, keys, values = (
        heads * width * (DIM + 1),
        heads * 2 * subkeys * (width // 2),
        subkeys**2 * DIM,
    )
    assert sum(p.numel() for p in part.parameters()) == query + keys + values + 2 * (width // 2)
    with counter() as count:
        part(x)
    assert count.get_total_flops() == 2 * 14 * (heads * width * DIM + keys), (
        "products; values are looked up"
    )
    for context in (nullcontext(), torch.no_grad()):
        with context, counter(lookups=True) as looked_up:
            part(x)
        read = 14 * heads * top * values
        assert looked_up.get_total_flops() == count.get_total_flops() + 2 * read, (
            "each value read times all of them"
        )


def test_a_memory_runs_in_bfloat16_and_under_autocast_and_learns_values_that_were_read() -> None:
    part, x = made("product-key").float(), torch.randn(2, 5, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        assert part(x).isfinite().all()
    assert part.to(torch.bfloat16)(x.to(torch.bfloat16)).dtype == torch.bfloat16
    part = made("product-key", subkeys=30, top=1, heads=1)
    part(some(1, 2, DIM)).sum().backward()
    assert part.values.grad.any(-1).sum() <= 2


# --- experts


@pytest.mark.parametrize("capacity", [64, 2])
def test_one_expert_per_token_is_the_switch_transformer_of_another_library(capacity: int) -> None:
    """Same parameters; the tokens that an expert has no room for are left out in both. Their router is in float32."""
    switch = pytest.importorskip(
        "transformers.models.switch_transformers.modeling_switch_transformers"
    )
    from transformers import SwitchTransformersConfig

    config = SwitchTransformersConfig(
        d_model=DIM,
        d_ff=HIDDEN,
        num_experts=3,
        expert_capacity=capacity,
        dropout_rate=0.0,
        router_jitter_noise=0.0,
    )
    theirs, ours = (
        switch.SwitchTransformersSparseMLP(config).double(),
        made("experts", count=3, top=1, bias=False),
    )
    with torch.no_grad():
        theirs.router.classifier.weight.copy_(ours.router.weight)
        for n, expert in enumerate(theirs.experts.values()):
            expert.wi.weight.copy_(ours.inner[n].T)
            expert.wo.weight.copy_(ours.outer[n].T)
    x = some(1, 12, DIM)
    ours.capacity = capacity * 3 / 12
    found, expected = ours.train()(x), theirs.eval()(x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_experts_have_the_parameters_and_operations_of_their_formula() -> None:
    part, x = made("experts", count=3, top=2), some(2, 6, DIM)
    assert (
        sum(p.numel() for p in part.parameters()) == 3 * (2 * DIM * HIDDEN + DIM + HIDDEN) + 3 * DIM
    )
    with counter() as count:
        part.eval()(x)
    assert count.get_total_flops() == 2 * 12 * (3 * DIM + 2 * 2 * DIM * HIDDEN)


@pytest.mark.parametrize("training", [True, False])
def test_experts_on_meta_count_with_every_place_taken(training: bool) -> None:
    """12 tokens, 3 experts with room for 1.5 times their share of two choices: 12 places each."""
    with torch.device("meta"), counter() as count:
        Experts(DIM, HIDDEN, count=3, top=2, capacity=1.5).train(training)(torch.empty(2, 6, DIM))
    assert count.get_total_flops() == 2 * (12 * 3 * DIM + 3 * 12 * 2 * DIM * HIDDEN)


def test_experts_may_be_narrower_than_the_mlps_between_them() -> None:
    part, x = made("experts", count=3, top=2, expert_hidden=2), some(2, 3, DIM)
    assert (tuple(part.inner.shape), tuple(part.outer.shape)) == ((3, DIM, 2), (3, 2, DIM))
    torch.testing.assert_close(part(x), loop_over_experts(part, x))
    dense = choose(table, {"name": "experts", "every": 2, "expert_hidden": 2}, "f")(
        dim=DIM, hidden=HIDDEN, dropout=0.0, n=0, depth=2
    )
    assert dense.dense.inner.out_features == HIDDEN


def test_jitter_changes_what_the_router_reads_in_training_and_nothing_else() -> None:
    part, x = made("experts", count=3, top=1, jitter=0.25, capacity=3.0), some(1, 400, DIM)
    read: list[Tensor] = []
    part.router.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    torch.testing.assert_close(part.eval()(x), loop_over_experts(part, x))
    found = part.train()(x)[0]
    assert torch.equal(read[0], x[0])
    factor = read[1] / x[0]
    assert 0.75 <= factor.min() < 0.77
    assert 1.23 < factor.max() <= 1.25
    assert factor.std().item() == pytest.approx(0.5 / math.sqrt(12), rel=0.05), "of a uniform draw"
    for token, jittered, output in zip(x[0, :20], read[1], found, strict=False):
        p = (part.router.weight @ jittered).softmax(0)
        e = int(p.argmax())
        made_by_e = (
            F.relu(token @ part.inner[e] + part.inner_bias[e, 0]) @ part.outer[e]
            + part.outer_bias[e, 0]
        )
        torch.testing.assert_close(output, p[e] * made_by_e)


def test_with_a_threshold_a_second_choice_is_used_with_probability_gate_by_threshold_and_else_takes_no_place() -> (
    None
):
    part = made("experts", count=2, top=2, threshold=0.5, capacity=1.0, bias=False).train()
    token = torch.ones(DIM).double()
    with torch.no_grad():
        # gates 0.8 and 0.2
        part.router.weight.copy_(torch.stack([token, 0 * token]) * math.log(4) / DIM)
        part.inner.abs_()
    first, second = (F.relu(token @ part.inner[e]) @ part.outer[e] for e in range(2))
    found = part(token.expand(1, 2000, DIM))[0]
    both, alone = 0.8 * first + 0.2 * second, 0.8 * first
    used = (found - both).abs().amax(-1) < 1e-9
    torch.testing.assert_close(found[~used], alone.expand_as(found[~used]))
    assert used.double().mean().item() == pytest.approx(0.2 / 0.5, abs=0.05)
    torch.testing.assert_close(
        part.eval()(token.expand(1, 3, DIM))[0], both.expand(3, -1), msg="in use, always"
    )
    part.capacity = 0.5  # 1,000 places for 2,000 first choices, and for about 800 second ones
    late = part.train()(token.expand(1, 2000, DIM))[0, 1500:]
    assert ((late - 0.2 * second).abs().amax(-1) < 1e-9).double().mean().item() == pytest.approx(
        0.4, abs=0.1
    )
    with raises("setting-without-effect"):
        made("experts", count=3, top=1, threshold=0.2)


@pytest.mark.parametrize("top", [1, 2, 4])
def test_experts_are_a_loop_over_tokens_in_use_and_in_training_where_there_is_room(
    top: int,
) -> None:
    part, x = made("experts", count=4, top=top, capacity=4.0), some(3, 5, DIM)
    expected = loop_over_experts(part, x)
    torch.testing.assert_close(part.eval()(x), expected)
    torch.testing.assert_close(part.train()(x), expected)
    pull = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad(f(x), list(part.parameters()), pull)
        for f in (part, lambda x: loop_over_experts(part, x))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("capacity", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("top", [1, 2])
def test_an_expert_that_is_full_takes_no_more_first_come(top: int, capacity: float) -> None:
    part, x = made("experts", count=3, top=top, capacity=capacity), some(2, 6, DIM)
    room, taken = math.ceil(capacity * top * 12 / 3), [0, 0, 0]
    expected = torch.zeros(12, DIM, dtype=torch.float64)
    tokens = x.view(12, DIM)
    p = (tokens @ part.router.weight.T).softmax(-1)
    best = p.argsort(-1, descending=True)[:, :top]
    dropped = 0
    for rank in range(top):  # all first choices before any second one
        for t in range(12):
            e = int(best[t, rank])
            if taken[e] == room:
                dropped += 1
                continue
            taken[e] += 1
            gate = p[t, e] / (p[t, best[t]].sum() if top > 1 else 1)
            made_by = (
                F.relu(tokens[t] @ part.inner[e] + part.inner_bias[e, 0]) @ part.outer[e]
                + part.outer_bias[e, 0]
            )
            expected[t] += gate.detach() * made_by.detach()
    assert dropped > 0 or capacity == 1.0
    torch.testing.assert_close(part.train()(x).view(12, DIM), expected)
    torch.testing.assert_close(
        part.eval()(x), loop_over_experts(part, x), msg="in use nothing is dropped"
    )


def test_the_cost_of_balance_by_hand() -> None:
    part, x = made("experts", count=3, top=1, balance=0.5).train(), some(2, 7, DIM)
    with collect() as left:
        part(x)
    [(name, cost)] = left.costs
    p = (x.view(14, DIM) @ part.router.weight.T).softmax(-1)
    share = [sum(int(row.argmax()) == e for row in p) / 14 for e in range(3)]
    expected = 0.5 * 3 * sum(share[e] * p[:, e].mean().item() for e in range(3))
    assert (name, cost.item()) == ("balance", pytest.approx(expected, rel=1e-5))
    (gradient,) = torch.autograd.grad(cost, part.router.weight)
    assert gradient.any()
    for quiet in (part.eval(), made("experts", balance=0.0).train()):
        with collect() as left:
            quiet(x)
        assert left.costs == []


def test_noisy_experts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    part, x = (
        made("noisy-experts", count=4, top=2, importance=0.5, load=0.25, capacity=4.0).train(),
        some(1, 6, DIM),
    )
    noise = some(6, 4)
    monkeypatch.setattr(torch, "randn_like", lambda like: noise)
    with collect() as left:
        found = part(x)
    gates, chances, outputs = torch.zeros(6, 4).double(), torch.zeros(6, 4).double(), []
    for t, token in enumerate(x[0]):
        clean, spread = part.router.weight @ token, F.softplus(part.noise.weight @ token)
        noisy = clean + noise[t] * spread
        best = sorted(range(4), key=lambda e: -noisy[e].item())[:2]
        total = sum(noisy[e].exp() for e in best)
        for e in range(4):
            # what e must exceed to be among the two
            second = sorted(noisy[other].item() for other in range(4) if other != e)[-2]
            chances[t, e] = torch.distributions.Normal(0.0, 1.0).cdf(
                (clean[e] - second) / spread[e]
            )
        for e in best:
            gates[t, e] = noisy[e].exp() / total
        mlps = [
            F.relu(token @ part.inner[e] + part.inner_bias[e, 0]) @ part.outer[e]
            + part.outer_bias[e, 0]
            for e in range(4)
        ]
        outputs.append(sum(gates[t, e] * mlps[e] for e in best))
    torch.testing.assert_close(found[0], torch.stack(outputs))
    importance, load = (
        ((s := one.sum(0)) - s.mean()).square().mean() / s.mean() ** 2 for one in (gates, chances)
    )
    [(_, cost)] = left.costs
    assert cost.item() == pytest.approx((0.5 * importance + 0.25 * load).item(), rel=1e-5)
    assert all(
        one.any() for one in torch.autograd.grad(cost, (part.router.weight, part.noise.weight))
    )


def test_the_cost_of_balance_is_least_when_all_experts_are_used_alike() -> None:
    part = made("experts", count=4, top=1, balance=0.25).train()
    with torch.no_grad():
        part.router.weight.copy_(torch.eye(4) * 5)
    costs = {}
    for what, x in {
        "alike": torch.eye(4),
        "one": torch.eye(4)[:1].expand(4, -1),
        "two": torch.eye(4)[[0, 1, 0, 1]],
    }.items():
        with collect() as left:
            part(x.double().unsqueeze(0))
        costs[what] = left.costs[0][1].item()
    assert costs["alike"] == pytest.approx(0.25)
    assert costs["alike"] < costs["two"] < costs["one"] < 4 * 0.25


def test_gates_bring_the_router_what_the_experts_learn() -> None:
    for top in (1, 2):
        part = made("experts", count=3, top=top, balance=0.0).train()
        part(some(1, 6, DIM)).square().sum().backward()
        assert part.router.weight.grad.any(), top


def train_two_experts(balance: float) -> tuple[float, float]:
    """|s| from experts that are linear: two are needed, and the router starts with one. The loss, and how much the other is used."""
    torch.manual_seed(0)
    part = Experts(
        2,
        4,
        count=2,
        top=1,
        capacity=2.0,
        balance=balance,
        activation=Choice(activations["linear"]),
    )
    with torch.no_grad():
        part.router.weight.copy_(torch.tensor([[0.0, 2.0], [0.0, -2.0]]))
    optimizer = torch.optim.Adam(part.parameters(), 0.02)
    for _ in range(300):
        x = torch.cat([2 * torch.rand(64, 1) - 1, torch.ones(64, 1)], 1)
        with collect() as left:
            loss = (part(x)[:, 0] - x[:, 0].abs()).square().mean()
        optimizer.zero_grad()
        (loss + left.total(torch.ones(1))).backward()
        optimizer.step()
    return loss.item(), part.router(x).argmax(-1).float().mean().item()


@pytest.mark.slow
def test_experts_learn_and_balance_keeps_both_in_use() -> None:
    loss, used = train_two_experts(balance=0.05)
    assert 0.3 < used < 0.7
    assert loss < 0.01
    alone, used = train_two_experts(balance=0.0)
    assert used == 0, "without it one expert takes all"
    assert alone > 0.05, "and one linear map cannot"


# dynamo makes one of torch itself when it meets an autograd.Function
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("top", [1, 2])
def test_experts_in_training_are_one_graph_for_the_compiler(top: int) -> None:
    torch._dynamo.reset()
    part, x = made("experts", count=3, top=top).train(), some(2, 5, DIM)
    compiled = torch.compile(part, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), part(x))
    with collect() as left:
        compiled(x)
    with collect() as expected:
        part(x)
    torch.testing.assert_close(left.costs[0][1], expected.costs[0][1])
    torch._dynamo.reset()


@pytest.mark.parametrize("training", [True, False])
def test_experts_run_in_bfloat16_with_a_router_that_keeps_its_digits(training: bool) -> None:
    part, x = made("experts", count=3, top=2).train(training), some(2, 5, DIM)
    low = made("experts", count=3, top=2).train(training)
    low.load_state_dict(part.state_dict())
    found = low.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert found.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert part.float()(x.float()).isfinite().all()


def test_mistakes_are_answered_with_sentences() -> None:
    with raises("experts-out-of-range"):
        Experts(4, 4, count=2, top=3)
    with pytest.raises(SaccadeError, match=r"f\.count is 1; it must lie between 2 and 4,096"):
        choose(table, {"name": "experts", "count": 1}, "f")
    with pytest.raises(SaccadeError, match=r"no activation named 'relo'; did you mean 'relu'\?"):
        choose(table, {"name": "mlp", "activation": "relo"}, "f")
    assert isinstance(choose(table, {"activation": "gelu"}, "f", Choice(MLP))(dim=2, hidden=2), MLP)


@pytest.mark.parametrize(
    "given",
    ["gelu", nn.GELU, nn.GELU(), lambda: nn.GELU()],
    ids=["name", "class", "module", "function"],
)
def test_an_activation_is_a_name_a_class_or_a_module(given: Any) -> None:
    for part in (MLP(4, 6, activation=given), Experts(4, 6, activation=given)):
        x = torch.randn(3)
        torch.testing.assert_close(part.activation(x), nn.functional.gelu(x))


@pytest.mark.parametrize("given", [nn.functional.gelu, 3, lambda: 3])
def test_what_is_no_activation_is_answered_with_a_sentence(given: Any) -> None:
    with raises("unknown-activation"):
        MLP(4, 6, activation=given)
    with pytest.raises(SaccadeError, match="did you mean 'gelu'"):
        MLP(4, 6, activation="gellu")
