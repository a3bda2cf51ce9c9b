"""Norms, residuals, blocks and stacks against PyTorch and their formulas; a shared stack against a plain one with copied parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade.core import Positions, masks, record
from saccade.core.auxiliary_losses import collect
from saccade.errors import SaccadeError
from saccade.layers import norms, residuals, stack
from saccade.layers.block import Block
from saccade.layers.convolution_mixers import LightConvolution
from saccade.layers.feedforward import MLP, NoFeedForward
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.layers.norms import (
    LayerNorm,
    PartialRMSNorm,
    RMSNorm,
    TokenBatchNorm,
    counted_tokens,
    real_tokens,
)
from saccade.layers.residuals import GruGate, PostNorm, PreNorm, Residual, ReZero
from saccade.layers.stack import SharedStack, Stack
from saccade.models import Seq2Seq
from saccade.models.builder import Builder
from saccade.settings import Choice, choose

DIM = 6


def shake(module: nn.Module) -> nn.Module:
    """In float64, with parameters far from where they start."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return module.double()


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# --- norms


class OverTokens(nn.BatchNorm1d):
    """PyTorch's own, over all tokens as one batch."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(0, -2)).view_as(input)


class PartialRms(nn.RMSNorm):
    """Number by number, by the first one in 16 of them: of 6, the first alone."""

    def __init__(self, eps: float) -> None:
        super().__init__(DIM, eps=eps)

    def forward(self, input: Tensor) -> Tensor:
        rows = [
            row / torch.sqrt(row[0] ** 2 + self.eps) * self.weight for row in input.reshape(-1, DIM)
        ]
        return torch.stack(rows).view_as(input)


NORMS: dict[str, Callable[[float], nn.Module]] = {
    "layer": lambda eps: nn.LayerNorm(DIM, eps=eps),
    "rms": lambda eps: nn.RMSNorm(DIM, eps=eps),
    "partial-rms": PartialRms,
    "none": lambda eps: nn.Identity(),
    "batch": lambda eps: OverTokens(DIM, eps=eps),
}
EPS = {"layer": 1e-5, "rms": 1e-6, "partial-rms": 1e-6, "none": 0.0, "batch": 1e-5}


def test_every_norm_has_a_peer() -> None:
    assert set(NORMS) == set(norms.table.names())


@pytest.mark.parametrize("name", norms.table.names())
@pytest.mark.parametrize("eps", [None, 0.3])
def test_norms_are_pytorchs_forward_and_backward(name: str, eps: float | None) -> None:
    options = {} if eps is None or name == "none" else {"eps": eps}
    ours, theirs = (
        shake(Choice(norms.table[name], options)(dim=DIM)),
        NORMS[name](EPS[name] if eps is None else eps).double(),
    )
    theirs.load_state_dict(ours.state_dict())
    x = (3 * some(2, 4, DIM) + 1).requires_grad_()
    pull = some(2, 4, DIM)
    torch.testing.assert_close(ours(x), theirs(x))
    found = torch.autograd.grad(ours(x), [x, *ours.parameters()], pull)
    for one, other in zip(
        found, torch.autograd.grad(theirs(x), [x, *theirs.parameters()], pull), strict=True
    ):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(
        lambda x, *_: ours(x), (some(2, DIM).requires_grad_(), *ours.parameters())
    )


def test_norms_by_hand_with_the_mean_over_d_and_the_square() -> None:
    x = [1.0, 2.0, 4.0, 9.0, -3.0, 5.0]
    mean = sum(x) / 6
    variance = sum((a - mean) ** 2 for a in x) / 6
    expected = [(a - mean) / math.sqrt(variance + 1e-5) for a in x]
    torch.testing.assert_close(
        LayerNorm(6)(torch.tensor(x)).tolist(), expected, rtol=1e-5, atol=1e-6
    )
    size = math.sqrt(sum(a * a for a in x) / 6 + 1e-6)
    torch.testing.assert_close(
        RMSNorm(6)(torch.tensor(x)).tolist(), [a / size for a in x], rtol=1e-5, atol=1e-6
    )
    half = math.sqrt(sum(a * a for a in x[:3]) / 3 + 1e-6)
    torch.testing.assert_close(
        PartialRMSNorm(6, share=0.5)(torch.tensor(x)).tolist(),
        [a / half for a in x],
        rtol=1e-5,
        atol=1e-6,
    )
    assert [
        PartialRMSNorm(dim, share=share).first
        for dim, share in ((768, 0.0675), (100, 0.07), (3, 1e-6), (8, 1.0))
    ] == [52, 7, 1, 8]
    with pytest.raises(SaccadeError, match=r"norm\.eps is 2\.0; it must lie between 0 and 1"):
        choose(norms.table, {"name": "rms", "eps": 2}, "norm")


def padded(*lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    """Texts of these lengths with arbitrary numbers at their padding, which positions are real, and their tokens alone."""
    x = 3 * some(len(lengths), max(lengths), DIM) + 1
    real = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return x, real, x[real]


def test_batch_norm_counts_real_tokens_alone_in_training_and_none_in_use() -> None:
    x, real, tokens = padded(5, 2, 3)
    ours, theirs = shake(TokenBatchNorm(DIM)), nn.BatchNorm1d(DIM).double()
    theirs.load_state_dict(ours.state_dict())
    for _ in range(3):
        real_tokens([ours], torch.tensor([5, 2, 3]), 5)
        torch.testing.assert_close(ours(x)[real], theirs(tokens))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    pull = some(10, DIM)
    given = [x.clone().requires_grad_(), tokens.clone().requires_grad_()]
    [mine] = torch.autograd.grad(ours(given[0])[real], given[0], pull)
    [other] = torch.autograd.grad(theirs(given[1]), given[1], pull)
    torch.testing.assert_close(mine[real], other)
    ours.eval(), theirs.eval()
    real_tokens([ours], torch.tensor([5, 2, 3]), 5)
    assert ours.real is None
    torch.testing.assert_close(ours(x)[real], theirs(tokens))
    torch.testing.assert_close(ours(x[:1, :1]), ours(x)[:1, :1], msg="each token by itself")


def test_batch_norm_of_one_token_has_no_variance_and_is_as_in_use() -> None:
    norm = shake(TokenBatchNorm(DIM))
    x, before = some(1, 1, DIM), norm.running_mean.clone()
    # running means start at 0, variances at 1
    expected = x / math.sqrt(1 + 1e-5) * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(norm.running_mean, before)


def test_a_decoders_batch_norm_counts_what_the_loss_counts_and_leaks_the_future_in_training_alone() -> (
    None
):
    norm = shake(TokenBatchNorm(DIM))
    target = torch.tensor([[4, 5, 0], [6, 0, 0]])
    with collect(target, ignore=0):
        counted_tokens([norm], torch.zeros(2, 3))
    assert norm.real is not None
    assert norm.real.tolist() == [[True, True, False], [True, False, False]]
    counted_tokens([norm], torch.zeros(2, 3))
    assert norm.real is None, "without a loss everything counts"
    x, later = some(1, 3, DIM), some(1, 3, DIM)
    later[:, :2] = x[:, :2]
    assert not torch.allclose(norm(x)[:, :2], norm(later)[:, :2])
    norm.eval()
    torch.testing.assert_close(norm(x)[:, :2], norm(later)[:, :2])


def test_a_whole_model_tells_its_batch_norms_which_tokens_are_real() -> None:
    small = {
        "family": "transformer",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "norm": "batch",
        "dropout": 0.0,
    }
    torch.manual_seed(0)
    model: Any = Builder(small).make(Seq2Seq, 12, 12).double()
    found = []
    for pad in (0, 7):  # what stands at the padding makes no difference
        source, target = (
            torch.tensor([[4, 5, 6], [7, pad, pad]]),
            torch.tensor([[2, 4, 5], [2, pad, pad]]),
        )
        with collect(torch.tensor([[4, 5, 3], [3, 0, 0]]), ignore=0):
            logits = model(source, torch.tensor([3, 1]), target)
        found.append(torch.cat([logits[0], logits[1, :1]]))
    torch.testing.assert_close(*found)


def test_without_a_feedforward_part_a_block_is_its_mixer_alone() -> None:
    alone = Block(MultiHeadAttention(DIM, 2), None, lambda: PostNorm(make_norm)).double()
    none = Block(copy.deepcopy(alone.mixer), NoFeedForward(), lambda: PostNorm(make_norm)).double()
    x = some(2, 3, DIM)
    torch.testing.assert_close(none(x), alone(x))
    assert none.around_feedforward is None


# --- residuals


def gru_gate(one: Any, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    """Vector by vector; the matrices in their two halves, one for x and one for what the part made."""
    rows = []
    for before, y in zip(x.reshape(-1, DIM), part(one.norm(x)).reshape(-1, DIM), strict=True):

        def gate(layer: nn.Linear, first: Tensor, second: Tensor = y) -> Tensor:
            left, right = layer.weight[:, :DIM], layer.weight[:, DIM:]
            return 1 / (
                1
                + torch.exp(
                    -(left @ one.gate_norm(first) + right @ one.gate_norm(second) + layer.bias)
                )
            )

        u, r = gate(one.update, before), gate(one.reset, before)
        rows.append(before + (1 - u) * y + u * gate(one.candidate, r * before))
    return torch.stack(rows).view_as(x)


RESIDUALS: dict[str, Callable[[Any, Tensor, Callable[[Tensor], Tensor]], Tensor]] = {
    "post-norm": lambda one, x, part: one.norm(x + part(x)),
    "pre-norm": lambda one, x, part: x + part(one.norm(x)),
    "none": lambda one, x, part: part(one.norm(x)),
    "rezero": lambda one, x, part: x + one.alpha * part(x),
    "fixup": lambda one, x, part: x + one.scale * part(x + one.before) + one.after,
    "deepnorm": lambda one, x, part: one.norm(2**0.25 * x + part(x)),  # of one layer
    "gru-gate": gru_gate,
}


def make_norm() -> nn.Module:
    return LayerNorm(DIM)


def test_every_residual_has_its_formula() -> None:
    assert set(RESIDUALS) == set(residuals.table.names())


@pytest.mark.parametrize("name", residuals.table.names())
def test_a_residual_is_its_formula(name: str) -> None:
    one = shake(Choice(residuals.table[name])(norm=make_norm, dim=DIM))
    x, part = some(2, 3, DIM).requires_grad_(), shake(nn.Linear(DIM, DIM))
    torch.testing.assert_close(one(x, part), RESIDUALS[name](one, x, part))
    assert torch.autograd.gradcheck(lambda x, *_: one(x, part), (x, *one.parameters()))


def test_where_a_norm_is_left_to_the_stack() -> None:
    assert (PostNorm(make_norm).final_norm, PreNorm(make_norm).final_norm) == (False, True)
    assert (ReZero(make_norm).final_norm, ReZero(make_norm, normed=True).final_norm) == (
        False,
        True,
    )


@pytest.mark.parametrize("normed", [True, False])
def test_rezero_begins_as_the_identity_and_learns_to_be_more(normed: bool) -> None:
    one, x, part = ReZero(make_norm, normed=normed), torch.randn(2, 3, DIM), nn.Linear(DIM, DIM)
    assert torch.equal(one(x, part), x)
    one(x, part).square().sum().backward()
    assert one.alpha.grad.item() != 0
    assert not part.weight.grad.any(), "a part learns once its α has moved"
    with torch.no_grad():
        one.alpha.fill_(0.25)
    torch.testing.assert_close(one(x, part), x + 0.25 * part(one.norm(x) if normed else x))
    assert [name for name, _ in one.named_parameters()] == [
        "alpha",
        *(["norm.weight", "norm.bias"] if normed else []),
    ]


@pytest.mark.parametrize("name", residuals.table.names())
def test_dropout_falls_on_what_a_part_adds_and_not_on_what_passes(name: str) -> None:
    residual = Choice(residuals.table[name])(norm=nn.Identity, dim=DIM, dropout=0.999999)
    if isinstance(residual, ReZero):
        nn.init.ones_(residual.alpha)
    if isinstance(residual, GruGate):
        nn.init.constant_(residual.update.bias, -1e4)  # all of the part passes its gate
    x = torch.randn(2, 3, DIM)
    passes = {"deepnorm": getattr(residual, "alpha", 1) * x, "none": 0 * x}.get(name, x)
    torch.testing.assert_close(residual(x, lambda y: 100 * y), passes)
    residual.eval()
    torch.testing.assert_close(residual(x, lambda y: 100 * y), passes + 100 * x)


# --- blocks


def block(
    residual: type[Residual] = PreNorm, cross: bool = False, convolution: bool = False
) -> Block:
    mixer = LightConvolution(DIM, 2, 3) if convolution else MultiHeadAttention(DIM, 2)
    return Block(
        mixer,
        MLP(DIM, 8),
        lambda: residual(make_norm),
        MultiHeadAttention(DIM, 2) if cross else None,
    )


@pytest.mark.parametrize("residual", [PreNorm, PostNorm, ReZero])
@pytest.mark.parametrize("convolution", [True, False])
def test_a_block_is_a_mixer_then_memory_then_feedforward(
    residual: type[Residual], convolution: bool
) -> None:
    one, x, memory = shake(block(residual, True, convolution)), some(2, 4, DIM), some(2, 3, DIM)
    mask, memory_mask = masks.causal(), masks.padding([3, 1])
    y = one.around_mixer(x, lambda a: one.mixer.mix(a, mask, None))
    y = one.around_cross(y, lambda a: one.cross(a, memory, memory_mask))
    y = one.around_feedforward(y, one.feedforward)
    torch.testing.assert_close(one(x, mask, memory, memory_mask), y)
    assert one.cross.cross
    assert not getattr(one.mixer, "cross", False)


# --- stacks


def build(
    kind: type[Stack],
    depth: int = 3,
    residual: type[Residual] = PreNorm,
    cross: bool = False,
    **options: Any,
) -> Stack:
    facts = {
        "block": lambda n: block(residual, cross),
        "depth": depth,
        "norm": make_norm,
        "dim": DIM,
        "role": "decoder",
    }
    made = Choice(kind, options)(**facts)
    shake(made)
    return made


def test_a_stack_is_its_blocks_in_order_and_names_them_by_number() -> None:
    plain, x = build(Stack), some(2, 4, DIM)
    first, second, third = plain
    torch.testing.assert_close(plain(x), plain.norm(third(second(first(x)))))
    assert len(plain) == 3
    assert len({id(one) for one in plain}) == 3
    assert [name for name, _ in plain.named_children()] == ["0", "1", "2", "norm"]
    assert isinstance(build(Stack, residual=PostNorm).norm, nn.Identity)
    assert isinstance(build(Stack, residual=ReZero).norm, nn.Identity)
    seen = []
    Stack(lambda n: (seen.append(n), block())[1], 3, make_norm)
    assert seen == [0, 1, 2], "a block knows its number"


def written_out(shared: SharedStack) -> Stack:
    """A plain stack with a copy of the shared blocks at every depth."""
    plain = Stack(
        lambda n: copy.deepcopy(shared.block(n)), shared.depth, lambda: copy.deepcopy(shared.norm)
    ).double()
    return plain


def transparent_loop(
    made: Any, x: Tensor, mask: masks.Mask, memory: Tensor, memory_mask: masks.Mask
) -> Tensor:
    for n, one in enumerate(made):
        shares = made.mixes[n].softmax(0)
        x = one(
            x,
            mask,
            sum(shares[layer] * memory[..., layer] for layer in range(len(shares))),
            memory_mask,
        )
    return made.norm(x)


def universal_loop(
    made: Any, x: Tensor, mask: masks.Mask, memory: Tensor, memory_mask: masks.Mask
) -> Tensor:
    """Position by position: how its shares of the steps come about, and what is made of the steps by them."""
    batch, count, _ = x.shape
    total, halted, output = (
        torch.zeros(batch, count).double(),
        torch.zeros(batch, count).bool(),
        torch.zeros_like(x),
    )

    def once(y: Tensor) -> Tensor:
        for one in range(made.blocks):
            y = made.block(one)(y, mask, memory, memory_mask)
        return y

    for _ in range(made.before):
        x = once(x)
    for t in range(1, made.steps + 1):
        time = wave(t) if made.times is None else made.times[t - 1]
        signal = torch.stack(
            [time + (wave(n) if made.position_signal else 0) for n in range(count)]
        )
        y, shares = x + signal, torch.sigmoid((x + signal) @ made.halt.weight[0] + made.halt.bias)
        y, x = once(y), x.clone()
        for b in range(batch):
            for n in range(count):
                if made.interpolates:  # others read on from a position that has halted
                    x[b, n] = y[b, n]
                if halted[b, n]:
                    continue
                last = total[b, n] + shares[b, n] > made.enough or (
                    t == made.steps and not made.interpolates
                )
                share = 1 - total[b, n] if last else shares[b, n]
                x[b, n] = y[b, n]
                before = (1 - share) * output[b, n] if made.interpolates else output[b, n]
                output[b, n] = before + share * y[b, n]
                total[b, n], halted[b, n] = total[b, n] + share, last
    for _ in range(made.after):
        output = once(output)
    return made.norm(output)


def wave(at: int) -> Tensor:
    return torch.tensor(
        [f(at / 10000 ** (2 * k / DIM)) for k in range(DIM // 2) for f in (math.sin, math.cos)]
    ).double()


# each as a computation of its own of (stack, x, mask, memory, memory mask); a decoder's stack
STACKS: dict[str, Callable[..., Tensor]] = {
    "plain": lambda made, *given: copy.deepcopy(made)(*given),
    "shared": lambda made, *given: written_out(made)(*given),
    "transparent": transparent_loop,
    "universal": universal_loop,
    # a decoder's; an encoder's is in test_deep_stacks.py
    "funnel": lambda made, *given: Stack.forward(made, *given),
}


def test_every_stack_can_be_written_out() -> None:
    assert set(STACKS) == set(stack.table.names())


@pytest.mark.parametrize("bias", [-9.0, -0.5, 0.5, 9.0], ids="halting bias {}".format)
@pytest.mark.parametrize(
    "options",
    [
        {"halting": "interpolate"},
        {"halting": "interpolate", "epsilon": 0.4, "blocks": 2},
        {"epsilon": 0.3, "before": 2, "after": 1, "step_signal": "learned"},
        {"position_signal": False, "after": 2, "blocks": 2},
    ],
    ids=str,
)
def test_a_universal_stack_is_its_formula_wherever_positions_halt(
    options: dict[str, Any], bias: float
) -> None:
    made = build(stack.table["universal"], 4, cross=True, **options)
    with torch.no_grad():
        made.halt.bias.fill_(bias)
    x, memory = some(2, 5, DIM), some(2, 3, DIM)
    given = (masks.causal(), memory, masks.padding([1, 3]))
    torch.testing.assert_close(made(x, *given), universal_loop(made, x, *given))


def test_two_steps_of_halting_by_hand_in_both_forms() -> None:
    """Blocks that double, no signals: x₁ = 2x and x₂ = 4x, p = ½ at the first step; the rest is ½, and with two of ⅓ there is none."""

    class Doubling(Block):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.mixer, self.around_mixer = nn.Identity(), PostNorm(make_norm)

        def forward(self, x: Tensor, *_: Any) -> Tensor:
            return 2 * x

    def output(halting: str, share: float) -> list[float]:
        universal = stack.table["universal"]
        made = universal(
            lambda n: Doubling(),
            2,
            make_norm,
            DIM,
            halting=halting,
            position_signal=False,
            step_signal="learned",
        ).double()
        with torch.no_grad():
            made.times.zero_()
            made.halt.bias.fill_(math.log(share / (1 - share)))
        return made(torch.ones(1, 1, DIM).double())[0, 0].tolist()

    assert output("sum", 1 / 2) == pytest.approx([1 / 2 * 2 + 1 / 2 * 4] * DIM)
    assert output("interpolate", 1 / 2) == pytest.approx([1 / 2 * 4 + 1 / 2 * (1 / 2 * 2)] * DIM)
    assert output("sum", 1 / 3) == pytest.approx([1 / 3 * 2 + 2 / 3 * 4] * DIM), (
        "the rest of the last step"
    )
    assert output("interpolate", 1 / 3) == pytest.approx([1 / 3 * 4 + 2 / 3 * (1 / 3 * 2)] * DIM), (
        "which has none here"
    )


@pytest.mark.parametrize("name", stack.table.names())
@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_steps_through_a_stack_are_the_whole_pass_of_one_that_is_written_out(
    name: str, residual: type[Residual]
) -> None:
    made = build(stack.table[name], 3, residual, cross=True)
    layers = [4] if name == "transparent" else []  # its memory has the outputs of all layers
    x, memory, memory_mask = some(2, 5, DIM), some(2, 3, DIM, *layers), masks.padding([1, 3])
    expected = STACKS[name](made, x, masks.causal(), memory, memory_mask)
    torch.testing.assert_close(made(x, masks.causal(), memory, memory_mask), expected)
    caches, done, found = made.start(memory, memory), 0, []
    assert len(caches) == 3
    for piece in x.split([2, 1, 1, 1], 1):
        done += piece.shape[1]
        mixed, caches = made.step(
            piece, caches, masks.causal(), memory_mask, Positions.line(piece.shape[1], done)
        )
        found.append(mixed)
    torch.testing.assert_close(torch.cat(found, 1), expected)


def test_the_blocks_of_one_stack_of_a_pair_are_shared_alone() -> None:
    for role, only, own in (
        ("encoder", "encoder", 1),
        ("decoder", "encoder", 3),
        ("encoder", None, 1),
        ("decoder", "decoder", 1),
    ):
        made = SharedStack(lambda n: block(), 3, make_norm, role, only=only)
        assert len({id(one) for one in made}) == own, (role, only)
    with raises("unknown-choice"):
        SharedStack(lambda n: block(), 3, make_norm, "encoder", only="both")
    with raises("setting-without-effect"):
        SharedStack(lambda n: block(), 3, make_norm, "alone", only="encoder")


@pytest.mark.parametrize(
    ("groups", "blocks"),
    [(1, [0, 0, 0, 0]), (2, [0, 1, 0, 1]), (3, [0, 1, 2, 0]), (9, [0, 1, 2, 3])],
)
def test_a_shared_stack_is_a_plain_one_with_equal_blocks_and_learns_from_all_of_them(
    groups: int, blocks: list[int]
) -> None:
    shared = build(SharedStack, 4, groups=groups)
    plain, x = written_out(shared), some(2, 4, DIM)
    torch.testing.assert_close(shared(x), plain(x))
    assert [next(n for n in range(4) if shared.block(n) is one) for one in shared] == blocks
    count, one = (sum(p.numel() for p in m.parameters()) for m in (shared, shared.block(0)))
    assert count == min(groups, 4) * one + 2 * DIM
    pull = some(2, 4, DIM)
    shared(x).backward(pull)
    plain(x).backward(pull)
    for name, parameter in shared.named_parameters():
        group, _, rest = name.partition(".")
        copies = (
            [name]
            if group == "norm"
            else [f"{n}.{rest}" for n in range(4) if blocks[n] == int(group)]
        )
        torch.testing.assert_close(
            parameter.grad, sum(plain.get_parameter(other).grad for other in copies)
        )


def test_a_record_shows_the_passes_of_a_shared_block_apart_and_steps_as_rows() -> None:
    shared = build(SharedStack, 3)
    plain, x = written_out(shared), some(2, 4, DIM)
    with record(shared) as seen:
        shared(x, masks.causal())
    with record(plain) as each:
        plain(x, masks.causal())
    assert list(seen) == ["0.mixer"]
    expected = torch.stack([each[f"{n}.mixer"].weights() for n in range(3)])
    assert expected.shape == (3, 2, 2, 4, 4)
    torch.testing.assert_close(seen["0.mixer"].weights(), expected)
    assert [len(one) for one in seen["0.mixer"].passes] == [1, 1, 1]
    with record(shared) as seen, torch.no_grad():
        caches = shared.start(x)
        for n in range(4):
            _, caches = shared.step(
                x[:, n : n + 1], caches, masks.causal(), None, Positions.line(1, n + 1)
            )
    assert [len(one) for one in seen["0.mixer"].passes] == [4, 4, 4]
    torch.testing.assert_close(seen["0.mixer"].weights(), expected)
