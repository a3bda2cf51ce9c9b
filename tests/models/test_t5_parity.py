"""T5 and Switch: whole encoder–decoders against those of `transformers` with the same parameters, read at once and step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from model_helpers import LENGTHS, SOURCE, V, make, stepped
from torch import Tensor, nn

from saccade.models import Seq2Seq

transformers = pytest.importorskip("transformers", minversion="5")

DIM, HIDDEN, DEPTH, HEADS, WIDTH, BUCKETS, FAR, EXPERTS = 8, 12, 4, 2, 3, 8, 20, 3
exact = {"rtol": 1e-10, "atol": 1e-10}
# Their distances fill all buckets: more than `FAR` tokens on both sides.
TEXT = torch.cat([SOURCE, torch.arange(3 * 20).view(3, 20) % V], 1)
READ = torch.tensor([25, 23, 6])
WRITTEN = (torch.arange(3 * 24).view(3, 24) * 5 + 1) % V
COMMON = {
    "dim": DIM,
    "hidden": HIDDEN,
    "depth": DEPTH,
    "heads": HEADS,
    "head_width": WIDTH,
    "score": "dot",
    "position": {
        "name": "t5",
        "buckets": BUCKETS,
        "max_distance": FAR,
        "both_sides": None,
        "shared": True,
    },
    "embedding": {"scale": 1.0},
    "mixer": {"bias": False},
    "norm": "rms",
    "shared": True,
}
VERSIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "switch": (
        {
            "feedforward": {
                "name": "experts",
                "count": EXPERTS,
                "top": 1,
                "every": 2,
                "bias": False,
            },
            "head": {"scaled": True},
        },
        {
            "num_experts": EXPERTS,
            "expert_capacity": 64,
            "num_sparse_encoder_layers": 2,
            "num_sparse_decoder_layers": 2,
        },
    ),
    "1.0": (
        {"feedforward": {"bias": False}, "head": {"scaled": True}},
        {"feed_forward_proj": "relu"},
    ),
    "1.1": (
        {"feedforward": {"name": "geglu", "bias": False, "tanh": True}, "tied": False},
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
}


def in_double(self: nn.Module, x: Tensor) -> Tensor:
    """Their norm, whose mean of squares is in float32 whatever x is."""
    return self.weight * (
        x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
    )


@torch.no_grad()
def their_model(version: str) -> nn.Module:
    sizes = {
        "d_model": DIM,
        "d_ff": HIDDEN,
        "num_layers": DEPTH,
        "num_heads": HEADS,
        "d_kv": WIDTH,
        "vocab_size": V,
    }
    buckets = {"relative_attention_num_buckets": BUCKETS, "relative_attention_max_distance": FAR}
    name = "SwitchTransformers" if version == "switch" else "T5"
    settings = {
        **sizes,
        **buckets,
        "num_decoder_layers": DEPTH,
        "dropout_rate": 0.0,
        **VERSIONS[version][1],
    }
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    if version == "1.1":  # the class ties it anyway, until parameters are read that say otherwise
        model.lm_head.weight = nn.Parameter(torch.empty(V, DIM))
    for parameter in model.parameters():
        parameter.copy_(0.6 * torch.randn_like(parameter))
    for part in model.modules():
        if type(part).__name__ == "SwitchTransformersTop1Router":
            part.dtype = torch.float64  # it routes in float32, and no other type can be asked for
    return model.double().eval()


Given = list[nn.Parameter]


def pairs(ours: nn.Module, theirs: nn.Module) -> Iterator[tuple[Tensor, Given]]:
    """Each parameter of ours and the one of theirs that it is, or those of all experts."""
    yield ours.source.tokens.weight, [theirs.shared.weight]
    if hasattr(ours.head, "weight"):
        yield ours.head.weight, [theirs.lm_head.weight]
    for stack, other in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        yield (
            stack.positions[0].table,
            [other.block[0].layer[0].SelfAttention.relative_attention_bias.weight],
        )
        for block, layers in zip(stack, other.block, strict=True):
            first, *across, last = layers.layer
            attentions = [
                (block.mixer, first.SelfAttention),
                *((block.cross, one.EncDecAttention) for one in across),
            ]
            for own, given in attentions:
                yield from (
                    (getattr(own, name).weight, [getattr(given, name).weight]) for name in "qkv"
                )
                yield own.out.weight, [given.o.weight]
            yield from feedforward_pairs(
                block.feedforward, last.mlp if hasattr(last, "mlp") else last.DenseReluDense
            )
            yield block.around_mixer.norm.weight, [first.layer_norm.weight]
            yield from ((block.around_cross.norm.weight, [one.layer_norm.weight]) for one in across)
            yield block.around_feedforward.norm.weight, [last.layer_norm.weight]
        yield stack.norm.weight, [other.final_layer_norm.weight]


def feedforward_pairs(own: nn.Module, given: nn.Module) -> Iterator[tuple[Tensor, Given]]:
    if hasattr(given, "experts"):
        yield own.router.weight, [given.router.classifier.weight]
        yield own.inner, [one.wi.weight for one in given.experts.values()]
        yield own.outer, [one.wo.weight for one in given.experts.values()]
        return
    own, gated = getattr(own, "dense", own), hasattr(given, "wi_0")
    yield own.inner.weight, [(given.wi_0 if gated else given.wi).weight]
    if gated:
        yield own.linear.weight, [given.wi_1.weight]
    yield own.outer.weight, [given.wo.weight]


def joined(given: list[Tensor]) -> Tensor:
    """One tensor as it is; the matrices of experts as they are here, from rows to columns in one tensor."""
    return given[0] if len(given) == 1 else torch.stack([one.T for one in given])


@pytest.fixture(params=VERSIONS)
def both(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[Seq2Seq, nn.Module]:
    torch.manual_seed(0)
    theirs = their_model(request.param)
    monkeypatch.setattr(type(theirs.encoder.final_layer_norm), "forward", in_double)
    ours = make(Seq2Seq, **COMMON, **VERSIONS[request.param][0]).double()
    with torch.no_grad():
        for own, given in pairs(ours, theirs):
            own.copy_(joined(given))
    return ours, theirs


def attended(lengths: Tensor) -> Tensor:
    return (torch.arange(TEXT.shape[1]) < lengths.unsqueeze(1)).long()


def test_every_parameter_of_both_is_copied(both: tuple[Seq2Seq, nn.Module]) -> None:
    ours, theirs = both
    own, groups = zip(*pairs(ours, theirs), strict=True)
    given = [parameter for group in groups for parameter in group]
    assert {id(parameter) for parameter in own} == {
        id(parameter) for parameter in ours.parameters()
    }
    assert {id(parameter) for parameter in given} == {
        id(parameter) for parameter in theirs.parameters()
    }
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@torch.no_grad()
def test_encoder_and_logits_are_those_of_t5(both: tuple[Seq2Seq, nn.Module]) -> None:
    ours, theirs = both
    expected = theirs(input_ids=TEXT, attention_mask=attended(READ), decoder_input_ids=WRITTEN)
    real = attended(READ).bool()
    memory = ours.encode(TEXT, READ)
    torch.testing.assert_close(memory[real], expected.encoder_last_hidden_state[real], **exact)
    assert memory[real].std() > 0.1
    found = ours(TEXT, READ, WRITTEN)
    torch.testing.assert_close(found, expected.logits, **exact)
    assert found.std() > 0.1
    shifted = ours(TEXT, READ, WRITTEN.roll(1, 1))
    assert (shifted - found).abs().amax() > 0.1, "the order matters"


@torch.no_grad()
def test_cached_steps_are_those_of_t5(both: tuple[Seq2Seq, nn.Module]) -> None:
    ours, theirs = both
    memory = theirs.encoder(input_ids=TEXT, attention_mask=attended(READ))
    cache, expected = None, []
    for t in range(WRITTEN.shape[1]):
        made = theirs(
            encoder_outputs=memory,
            attention_mask=attended(READ),
            decoder_input_ids=WRITTEN[:, t : t + 1],
            past_key_values=cache,
            use_cache=True,
        )
        cache = made.past_key_values
        expected.append(made.logits)
    torch.testing.assert_close(stepped(ours, WRITTEN, TEXT, READ), torch.cat(expected, 1), **exact)


def test_gradients_are_those_of_t5(both: tuple[Seq2Seq, nn.Module]) -> None:
    ours, theirs = both
    pull = torch.randn(*WRITTEN.shape, V, dtype=torch.float64)
    (
        theirs(input_ids=TEXT, attention_mask=attended(READ), decoder_input_ids=WRITTEN).logits
        * pull
    ).sum().backward()
    (ours(TEXT, READ, WRITTEN) * pull).sum().backward()
    summed: dict[int, tuple[Tensor, Tensor]] = {}
    for own, given in pairs(ours, theirs):
        assert own.grad is not None
        sofar = summed[id(given[0])][0] if id(given[0]) in summed else torch.zeros_like(own)
        summed[id(given[0])] = sofar + own.grad, joined([parameter.grad for parameter in given])
    for found, expected in summed.values():
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
        assert found.any()


@torch.no_grad()
def test_it_is_the_settings_that_make_it_t5() -> None:
    """Without one of them, with the parameters that it shares, the logits are others."""
    torch.manual_seed(0)
    source, lengths, target = SOURCE, LENGTHS, WRITTEN[:, :6]
    like = make(Seq2Seq, **COMMON, **VERSIONS["1.0"][0]).double()
    for parameter in like.parameters():
        parameter.copy_(0.6 * torch.randn_like(parameter))
    for changed in (
        {"position": {"name": "t5", "buckets": BUCKETS, "max_distance": FAR, "shared": True}},
        {"score": "scaled-dot"},
        {"embedding": "tokens"},
        {"head": "linear"},
    ):
        other = make(Seq2Seq, **{**COMMON, **VERSIONS["1.0"][0], **changed}).double()
        other.load_state_dict(like.state_dict())
        moved = (other(source, lengths, target) - like(source, lengths, target)).abs().amax()
        assert moved > 1e-3, changed
