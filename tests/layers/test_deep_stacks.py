"""Stacks of which an encoder and a decoder know each other, or that repeat and shorten: transparent, universal, funnel."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade.core import Mechanism, Positions, masks
from saccade.core.auxiliary_losses import collect
from saccade.core.record import stretch_weights
from saccade.core.xl_positions import TransformerXL
from saccade.errors import SaccadeError
from saccade.layers.block import Block
from saccade.layers.feedforward import MLP, Gelu
from saccade.layers.funnel_transformer import FunnelStack, pool
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.layers.norms import LayerNorm
from saccade.layers.residuals import PostNorm
from saccade.models import AttendingEncoder, CausalLM, Seq2Seq
from saccade.models.builder import Builder
from saccade.training.flops import counter

SMALL = {"dim": 8, "hidden": 12, "depth": 2, "heads": 2, "dropout": 0.0}
SOURCE, LENGTHS, TARGET = (
    torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]]),
    torch.tensor([5, 3]),
    torch.tensor([[1, 2], [3, 4]]),
)


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def model(kind: type[nn.Module], family: str = "transformer", **changed: object) -> nn.Module:
    """A small model in float64 with parameters far from where they start."""
    vocabularies = (13, 13) if kind is Seq2Seq else (13,)
    made = Builder({"family": family, **SMALL, **changed}).make(kind, *vocabularies).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def test_transparent_decoder_blocks_read_their_own_mix_of_all_encoder_layers() -> None:
    made = model(Seq2Seq, stack="transparent", depth=3)
    memory = made.encode(SOURCE, LENGTHS)
    assert memory.shape == (2, 5, 8, 4)
    x, mask = made.source(SOURCE, torch.arange(5)), masks.padding(LENGTHS)
    for layer in range(4):
        torch.testing.assert_close(memory[..., layer], made.encoder.norm(x), msg=f"layer {layer}")
        x = made.encoder.block(layer)(x, mask) if layer < 3 else x
    assert made.encoder.mixes is None
    assert made.decoder.mixes.shape == (3, 4)
    y = made.target(TARGET, torch.arange(2))
    for n in range(3):
        shares = made.decoder.mixes[n].softmax(0)
        own = sum(shares[layer] * memory[..., layer] for layer in range(4))
        y = made.decoder.block(n)(y, masks.causal(), own, mask)
    torch.testing.assert_close(made(SOURCE, LENGTHS, TARGET), made.head(made.decoder.norm(y)))
    plain = model(Seq2Seq, depth=3)
    assert (
        sum(p.numel() for p in made.parameters())
        == sum(p.numel() for p in plain.parameters()) + 3 * 4
    )


# --- universal


def halting(made: nn.Module, bias: float, scale: float = 3.0) -> nn.Module:
    """With positions that halt at different steps."""
    with torch.no_grad():
        made.halt.bias.fill_(bias)
        made.halt.weight.mul_(scale)
    return made


@pytest.mark.parametrize(
    ("bias", "low", "high"), [(-9.0, 3.4, 5.0), (0.5, 2.3, 3.4), (12.0, 1.9, 2.3)]
)
@pytest.mark.parametrize(
    "passes",
    [{}, {"before": 1, "after": 2, "halting": "interpolate", "step_signal": "learned"}],
    ids=str,
)
def test_universal_steps_equal_the_whole_pass_wherever_positions_halt(
    bias: float, low: float, high: float, passes: dict[str, object]
) -> None:
    torch.manual_seed(0)
    made = model(
        CausalLM, "transformer-decoder", stack={"name": "universal", "blocks": 2, **passes}, depth=4
    )
    halting(made.decoder, bias)
    tokens = torch.randint(0, 13, (3, 7))
    with collect() as left:
        made.train()(tokens)
    assert passes or low < left.costs[0][1].item() / 0.01 < high, "steps and the last share"
    whole = made.eval()(tokens)
    state = made.start(tokens[:, :2], torch.full((3,), 2))
    for t in range(2, 7):
        logits, state = made.step(tokens[:, t], state)
        torch.testing.assert_close(logits, whole[:, t])


def ponder(made: nn.Module, x: Tensor, mask: masks.Mask | None = None) -> float:
    with collect() as left:
        made.train()(x, mask)
    made.eval()
    return left.costs[0][1].item() if left.costs else 0.0


def test_ponder_is_steps_and_the_last_share_of_real_positions_and_its_gradient_makes_halting_earlier() -> (
    None
):
    made = model(
        AttendingEncoder, "transformer-encoder", stack={"name": "universal", "ponder": 0.5}, depth=4
    ).encoder
    x = some(2, 3, 8)
    with torch.no_grad():
        made.halt.weight.zero_()
    for bias, share, steps, rest in (
        (9.0, 0.99988, 1, 1.0),
        (0.0, 0.5, 2, 0.5),
        (-9.0, 0.000123, 4, 1 - 3 * 0.000123),
    ):
        made.halt.bias.data.fill_(bias)
        assert torch.sigmoid(made.halt.bias).item() == pytest.approx(share, rel=1e-2)
        assert ponder(made, x) == pytest.approx(0.5 * (steps + rest), rel=1e-4)
    halting(made, 0.0).halt.weight.data.normal_()
    alone = ponder(made, x[:1, :2])
    padded = torch.cat([x[:1, :2], 100 * some(1, 4, 8)], 1)
    assert ponder(made, padded, masks.padding([2])) == pytest.approx(alone, rel=1e-5)
    halting(made, -3.0, 0.0)
    with collect() as left:
        made.train()(x)
    left.costs[0][1].backward()
    assert made.halt.bias.grad.item() < 0, "a larger bias costs less"


def test_universal_with_fixed_steps_and_several_blocks() -> None:
    made = model(
        AttendingEncoder,
        "transformer-encoder",
        stack={"name": "universal", "ponder": None, "blocks": 2},
        depth=3,
    ).encoder
    x = y = some(2, 4, 8)

    def wave(at: int) -> Tensor:
        return torch.tensor(
            [f(at / 10000 ** (k / 4)) for k in range(4) for f in (math.sin, math.cos)]
        ).double()

    for t in range(1, 4):
        y = y + torch.stack([wave(n) + wave(t) for n in range(4)])
        for n in range(2):
            y = made.block(n)(y)
    torch.testing.assert_close(made(x), made.norm(y))
    assert made.halt is None
    assert ponder(made, x) == 0.0
    assert (len(made), made.different()) == (6, 2)
    with pytest.raises(
        SaccadeError, match=r"model\.stack\.halting is 'interpolated'; did you mean 'interpolate'\?"
    ):
        model(
            CausalLM, "transformer-decoder", stack={"name": "universal", "halting": "interpolated"}
        )


def test_universal_parameters_and_operations_by_hand() -> None:
    d, h, steps, count = 8, 12, 5, 6
    made = model(AttendingEncoder, "transformer-encoder", stack="universal", depth=steps).encoder
    block = 4 * d * d + 4 * d + 2 * d * h + d + h + 4 * d
    assert sum(p.numel() for p in made.parameters()) == block + 2 * d + d + 1
    with counter() as found:
        made(some(2, count, d))
    assert found.get_total_flops() == steps * 2 * 2 * count * (
        4 * d * d + 2 * d * h + 2 * count * d + d
    )


# --- funnel


def attend(layer: MultiHeadAttention, queries: Tensor, keys: Tensor) -> Tensor:
    """One text, all positions real: Q dim and K dim → Q dim."""
    q, k, v = (
        part(x).unflatten(-1, (layer.heads, -1))
        for part, x in ((layer.q, queries), (layer.k, keys), (layer.v, keys))
    )
    rows = []
    for n in range(len(queries)):
        heads = []
        for head in range(layer.heads):
            fits = (
                torch.stack([q[n, head] @ k[m, head] for m in range(len(keys))]) / layer.width**0.5
            )
            heads.append(sum(w * v[m, head] for m, w in enumerate(fits.softmax(0))))
        rows.append(layer.out(torch.cat(heads)))
    return torch.stack(rows)


def funnel_loop(made: FunnelStack, x: Tensor, sizes: list[int], parts: int) -> Tensor:
    """One text without padding, N dim: pre-norm blocks, queries pooled at the first block of each part but the first."""
    n, size, first = 0, len(x), x
    for part, blocks in enumerate(sizes):
        if part == parts:
            x = torch.stack([x[m // 2 ** (parts - 1)] for m in range(size)]) + first
        for k in range(blocks):
            one = made.block(n)
            short = x
            if k == 0 and 0 < part < parts:
                short = torch.stack([x[m : m + 2].mean(0) for m in range(0, len(x), 2)])
            norm = one.around_mixer.norm
            x = short + attend(one.mixer, norm(short), norm(x))
            x = x + one.feedforward(one.around_feedforward.norm(x))
            n += 1
        first = x if part == 0 else first
    return made.norm(x)


@pytest.mark.parametrize(
    ("depth", "parts", "sizes"),
    [(2, 2, [1, 1]), (3, 3, [1, 1, 1]), (4, 2, [2, 2]), (5, 3, [2, 2, 1])],
)
@pytest.mark.parametrize("count", [1, 4, 7])
def test_a_funnel_of_a_pair_pools_queries_and_not_keys(
    depth: int, parts: int, sizes: list[int], count: int
) -> None:
    made = model(Seq2Seq, stack={"name": "funnel", "parts": parts}, depth=depth).encoder
    x = some(count, 8)
    found = made(x[None])[0]
    assert (
        found.shape[0]
        == made.shortened(torch.tensor(count)).item()
        == -(-count // 2 ** (parts - 1))
    )
    torch.testing.assert_close(found, funnel_loop(made, x, sizes, parts))


@pytest.mark.parametrize(
    ("depth", "parts", "sizes"), [(2, 2, [1, 1, 0]), (3, 2, [1, 1, 1]), (5, 3, [2, 1, 1, 1])]
)
@pytest.mark.parametrize("count", [1, 6, 7])
def test_an_encoder_alone_has_its_length_again(
    depth: int, parts: int, sizes: list[int], count: int
) -> None:
    made = model(
        AttendingEncoder,
        "transformer-encoder",
        stack={"name": "funnel", "parts": parts},
        depth=depth,
    ).encoder
    x = some(count, 8)
    found = made(x[None])[0]
    assert found.shape == (count, 8)
    torch.testing.assert_close(found, funnel_loop(made, x, sizes, parts))
    assert made.shortened(torch.tensor(count)).item() == count


def test_pooling_leaves_padding_out_and_positions_are_those_of_the_first_of_two() -> None:
    x = some(2, 5, 3)
    found = pool(x, torch.tensor([5, 3]))
    expected = [
        [x[0, 0] + x[0, 1], x[0, 2] + x[0, 3], 2 * x[0, 4]],
        [x[1, 0] + x[1, 1], 2 * x[1, 2], 0 * x[1, 4]],
    ]
    torch.testing.assert_close(2 * found, torch.stack([torch.stack(row) for row in expected]))
    made = model(Seq2Seq, stack={"name": "funnel", "parts": 3}, depth=3, position="t5").encoder
    seen = []
    for n in range(3):
        made.block(n).register_forward_pre_hook(lambda _, given: seen.append(given[4]))
    made(some(1, 7, 8), None, positions=Positions.line(7, 7))
    assert [(at.i.tolist(), at.j.tolist()) for at in seen[1:]] == [
        ([0, 2, 4, 6], list(range(7))),
        ([0, 4], [0, 2, 4, 6]),
    ]


def test_weights_of_shortened_texts_are_shown_for_all_positions() -> None:
    weights = torch.tensor([[0.2, 0.6, 0.2], [0.0, 0.5, 0.5]])
    found = stretch_weights(weights, 4, 5)
    torch.testing.assert_close(
        found, torch.tensor([[0.1, 0.1, 0.3, 0.3, 0.2]] * 2 + [[0.0, 0.0, 0.25, 0.25, 0.5]] * 2)
    )
    torch.testing.assert_close(found.sum(-1), torch.ones(4))
    assert stretch_weights(weights, 2, 3) is weights
    assert stretch_weights(weights, 2, 9).shape == (2, 9)


def test_funnel_operations_by_hand() -> None:
    d, h, count = 8, 12, 8
    made = model(Seq2Seq, stack="funnel").encoder
    with counter() as found:
        made(some(1, count, d))
    whole = count * (4 * d * d + 2 * d * h) + 2 * count * count * d
    half = count // 2
    pooled = half * (2 * d * d + 2 * d * h) + count * 2 * d * d + 2 * half * count * d
    assert found.get_total_flops() == 2 * (whole + pooled)


@pytest.mark.parametrize("lengths", [[8, 8], [8, 4], [7, 7]], ids=str)
def test_a_funnel_is_that_of_another_library_with_its_relative_positions(
    lengths: list[int],
) -> None:
    """transformers' FunnelEncoder and FunnelDecoder, whose positions are Transformer-XL's. Off there: separate_cls and truncate_seq (the
    first token is pooled as any other). It averages padding in, so that lengths fill their windows, and its scores are in float32."""
    funnel = pytest.importorskip("transformers.models.funnel.modeling_funnel")
    from transformers import FunnelConfig

    sizes = dict.fromkeys(("hidden_dropout", "attention_dropout", "activation_dropout"), 0.0)
    config = FunnelConfig(
        block_sizes=[2, 1, 1],
        num_decoder_layers=1,
        d_model=8,
        n_head=2,
        d_head=4,
        d_inner=12,
        separate_cls=False,
        **sizes,
    )
    config.truncate_seq = False

    def block(_: int) -> Block:
        mixer, mlp = (
            MultiHeadAttention(8, 2, mechanism=Mechanism(position=TransformerXL(4, 2))),
            MLP(8, 12),
        )
        mlp.activation = Gelu(tanh=True)
        return Block(mixer, mlp, lambda: PostNorm(lambda: LayerNorm(8, eps=config.layer_norm_eps)))

    ours = FunnelStack(block, 5, lambda: LayerNorm(8), "alone", 3).double().eval()
    ours.sizes = [2, 1, 1, 1]
    encoder, decoder = (
        funnel.FunnelEncoder(config).double().eval(),
        funnel.FunnelDecoder(config).double().eval(),
    )
    theirs = [*(layer for part in encoder.blocks for layer in part), *decoder.layers]
    with torch.no_grad():
        for one, other in zip(ours, theirs, strict=True):
            for parameter in [*one.parameters(), *other.parameters()]:
                parameter.copy_(torch.randn_like(parameter) * 0.5)
            one.mixer.q.bias.zero_()
            attention, position = other.attention, one.mixer.mechanism.position
            attention.r_w_bias.copy_(position.u.squeeze(1))
            attention.r_r_bias.copy_(position.v.squeeze(1))
            # their sinusoids are all sines, then all cosines
            in_pairs = torch.arange(8).view(2, -1).t().flatten()
            attention.r_kernel[in_pairs] = position.weight.permute(2, 0, 1)
            attention.q_head.weight.copy_(one.mixer.q.weight)
            pairs = (
                (attention.k_head, one.mixer.k),
                (attention.v_head, one.mixer.v),
                (attention.post_proj, one.mixer.out),
            )
            pairs += (
                (attention.layer_norm, one.around_mixer.norm),
                (other.ffn.layer_norm, one.around_feedforward.norm),
            )
            for to, own in (
                *pairs,
                (other.ffn.linear_1, one.feedforward.inner),
                (other.ffn.linear_2, one.feedforward.outer),
            ):
                to.load_state_dict(own.state_dict())
    size = max(lengths)
    x, real = some(2, size, 8), torch.arange(size) < torch.tensor(lengths)[:, None]
    states = encoder(x, real.long(), output_hidden_states=True)
    expected = decoder(
        states.last_hidden_state, states.hidden_states[2], real.double()
    ).last_hidden_state
    found = ours(x, masks.padding(lengths))
    for b, length in enumerate(lengths):
        torch.testing.assert_close(found[b, :length], expected[b, :length], rtol=1e-5, atol=1e-6)


def test_stacks_that_do_not_fit_are_answered_with_sentences() -> None:
    with raises("stack-not-supported"):
        model(AttendingEncoder, "transformer-encoder", stack="transparent")
    for name in ("transparent", "funnel"):
        with pytest.raises(
            SaccadeError,
            match=rf"model\.stack={name} is not for a model in which nobody sees the future; choose",
        ):
            model(CausalLM, "transformer-decoder", stack=name)
    with raises("stack-parts-out-of-range"):
        model(Seq2Seq, stack={"name": "funnel", "parts": 3})
    for changed in ({"mixer": "light-convolution"}, {"block": "evolved"}):
        with raises("parts-do-not-combine"):
            model(Seq2Seq, stack="funnel", **changed)
    for mask in ("causal", {"name": "window", "left": 1}, "top-blocks"):
        with raises("parts-do-not-combine"):
            model(Seq2Seq, stack="funnel", mask=mask)
    encoder = model(AttendingEncoder, "transformer-encoder", stack="funnel")
    with raises("mask-not-supported"):
        encoder(SOURCE, LENGTHS, masks.causal())
    with raises("mask-not-supported"):
        encoder(SOURCE, LENGTHS, masks.documents([[0, 0, 1, 1, 1]] * 2))
