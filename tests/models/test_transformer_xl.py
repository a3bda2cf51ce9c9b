"""Transformer-XL: with a memory it is a long window without one; XLNet: its two streams and its memory are those of `transformers`."""

from __future__ import annotations

import pytest
import torch
from model_helpers import V, make, shake
from torch import Tensor, nn

from saccade.building import Builder
from saccade.core import Positions, masks
from saccade.errors import SaccadeError
from saccade.models import AttendingEncoder, CarryingLM, TransformerXL, TwoStream
from saccade.training.operations import counter

TEXT = torch.randint(0, V, (2, 21), generator=torch.Generator().manual_seed(3))


def built(memory: int, **changed: object) -> TransformerXL:
    torch.manual_seed(1)
    model = shake(make(CarryingLM, "transformer-xl", memory=memory, depth=3, **changed))
    assert isinstance(model, TransformerXL)
    return model


def in_segments(model: TransformerXL, tokens: Tensor, size: int) -> Tensor:
    """The logits of a text that is read in segments."""
    state, found = model.start(tokens[:, :0], torch.zeros(len(tokens)).long()), []
    for at in range(0, tokens.shape[1], size):
        logits, state = model.forward_from(tokens[:, at : at + size], state)
        found.append(logits)
    assert state.length == tokens.shape[1]
    return torch.cat(found, 1)


def under(model: TransformerXL, tokens: Tensor, allowed: masks.Mask) -> Tensor:
    """The logits of one pass without a memory, each layer seeing what a mask allows."""
    at = Positions.line(tokens.shape[1], tokens.shape[1])
    return model.head(model.decoder(model.embedding(tokens, at.i), allowed, positions=at))


@pytest.mark.parametrize("position", ["xl", "rotary", "t5", "none"])
@pytest.mark.parametrize(("memory", "size"), [(3, 4), (7, 4), (4, 1), (30, 5), (2, 6)])
@torch.no_grad()
def test_with_a_memory_it_is_a_long_window_without(position: str, memory: int, size: int) -> None:
    """A query sees its own segment and `memory` positions before it; one token at a time that is a sliding window."""
    model = built(memory, position=position)
    seen = masks.where(lambda b, h, i, j: (j <= i) & (j >= i // size * size - memory))
    found = in_segments(model, TEXT, size)
    torch.testing.assert_close(found, under(model, TEXT, seen))
    if size == 1:
        torch.testing.assert_close(found, under(model, TEXT, masks.causal() & masks.window(memory)))
    other = TEXT.clone()
    other[:, 0] = (other[:, 0] + 1) % V
    reached = (in_segments(model, other, size) - found).abs().amax((0, 2)) > 1e-9
    assert reached[1 : 1 + memory].all()
    assert reached[10] or memory < 4, "further than one layer sees"


@torch.no_grad()
def test_generating_step_by_step_is_reading_with_a_memory() -> None:
    model = built(4)
    state = model.start(TEXT[:, :9], torch.full((2,), 9))
    found = []
    for at in range(9, 21):
        logits, state = model.step(TEXT[:, at], state)
        found.append(logits)
    seen = masks.where(lambda b, h, i, j: (j <= i) & (j >= torch.where(i < 9, 0, i - 4)))
    torch.testing.assert_close(torch.stack(found, 1), under(model, TEXT, seen)[:, 9:])


def test_gradients_stop_at_the_memory_but_reach_what_projects_it() -> None:
    model = built(6)
    state = model.start(TEXT[:, :6], torch.full((2,), 6))
    carried = [tuple(part.requires_grad_() for part in state.carried[0])]
    logits, after = model.forward_from(TEXT[:, 6:7], state.next(carried=carried))
    key = model.decoder.block(0).mixer.k.weight  # type: ignore[union-attr]
    gradients = torch.autograd.grad(logits.square().sum(), (key, *carried[0]), allow_unused=True)
    assert all(gradient is None for gradient in gradients[1:])
    assert not any(part.requires_grad for part in after.carried[0])
    alone = torch.autograd.grad(model(TEXT[:, 6:7]).square().sum(), key)[0]
    assert alone.abs().max() < 1e-12, "one token alone has nothing to choose from: its keys come from the memory"
    assert gradients[0].abs().max() > 1e-6


def test_parameters_and_operations_are_those_of_the_formula() -> None:
    d, h, f, layers, vocab, memory, size, batch = 8, 2, 6, 2, V, 5, 4, 3
    values = {"family": "transformer-xl", "dim": d, "hidden": f, "depth": layers, "heads": h, "memory": memory, "dropout": 0.0}
    model = Builder(values).make(CarryingLM, vocab)
    attention = 4 * d * d  # q, k, v, out without biases
    position = d * d + 2 * d  # W for all heads, u and v
    layer = attention + position + (2 * d * f + f + d) + 2 * 2 * d
    assert sum(p.numel() for p in model.parameters()) == vocab * d + layers * layer + 2 * d
    state = model.start(TEXT[:1, :0].expand(batch, 0), torch.zeros(batch).long())
    tokens, keys = torch.zeros(batch, size).long(), memory + size
    with counter() as found, torch.no_grad():
        model.forward_from(tokens, state)
    projections = 2 * batch * (2 * size + 2 * keys) * d * d
    pairs = 2 * batch * size * keys * (2 * d + h * d)  # scores and values; for each head a position of all d numbers
    rest = 2 * batch * size * (d * d + 2 * d * f)  # W, and the feed-forward part
    assert found.get_total_flops() == layers * (projections + pairs + rest) + 2 * batch * size * d * vocab


def test_what_would_count_from_the_first_token_is_refused() -> None:
    with pytest.raises(
        SaccadeError, match=r"model\.position counts from a text's first token.*; choose one of distances, such as xl"
    ):
        built(4, position="added")
    with pytest.raises(
        SaccadeError, match=r"reads one text after another, got Documents\(\(2, 21\)\); give one document per row"
    ):
        built(4)(TEXT, masks.documents(torch.zeros(2, 21).long()))
    with pytest.raises(SaccadeError, match="got positions; give one document per row"):
        built(4)(TEXT, positions=torch.arange(21))


# --- parity with transformers ---


def xlnet(**changed: object) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": V, "d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 12, "dropout": 0.0, "ff_activation": "gelu"}
    torch.manual_seed(0)
    theirs = transformers.XLNetModel(transformers.XLNetConfig(**sizes, **changed))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    theirs, plain = theirs.double().eval(), theirs.relative_positional_encoding
    theirs.relative_positional_encoding = lambda *sizes, **more: plain(*sizes, **more).double()  # it makes them in float32
    return theirs


near = {"rtol": 1e-5, "atol": 1e-6}


def in_pairs(width: int) -> Tensor:
    """Their sinusoids are all sines, then all cosines; ours alternate."""
    return torch.arange(width).view(2, -1).t().flatten()


@torch.no_grad()
def copy_layers(theirs: nn.Module, blocks: list[nn.Module]) -> None:
    """The parameters of an XLNet, but for those of its segments (r_s_bias, seg_embed), which are not used without token types."""
    for layer, block in zip(theirs.layer, blocks, strict=True):
        one, mixer, position = layer.rel_attn, block.mixer, block.mixer.mechanism.position
        for ours, given in ((mixer.q, one.q), (mixer.k, one.k), (mixer.v, one.v)):
            ours.weight.copy_(given.flatten(1).t())
        mixer.out.weight.copy_(one.o.flatten(1))
        position.u.copy_(one.r_w_bias.unsqueeze(1))
        position.v.copy_(one.r_r_bias.unsqueeze(1))
        position.weight.copy_(one.r.permute(1, 2, 0)[..., in_pairs(one.r.shape[0])])
        norms = (block.around_mixer.norm, one.layer_norm), (block.around_feedforward.norm, layer.ff.layer_norm)
        inner, outer = (part for part in block.feedforward.modules() if isinstance(part, nn.Linear))
        for ours, given in (*norms, (inner, layer.ff.layer_1), (outer, layer.ff.layer_2)):
            ours.weight.copy_(given.weight)
            ours.bias.copy_(given.bias)
        for norm, given in norms:
            norm.eps = given.eps


LIKE_XLNET = {"dim": 8, "hidden": 12, "depth": 2, "heads": 2, "residual": "post-norm", "feedforward": {"activation": "gelu"}}


@torch.no_grad()
def test_both_streams_are_those_of_xlnet() -> None:
    """Without segments and bidirectional data; a query that sees nothing gives zeros here, and attends to all of the text there."""
    theirs = xlnet()
    mixer = {"name": "attention", "bias": False}
    body = make(AttendingEncoder, "transformer-encoder", position="xl", mixer=mixer, **LIKE_XLNET).double()
    ours = TwoStream(body, V).double().eval()
    copy_layers(theirs, list(body.encoder))
    body.embedding.tokens.weight.copy_(theirs.word_embedding.weight / body.embedding.scale)
    ours.query.copy_(theirs.mask_emb.flatten())
    tokens = TEXT[:, :7]
    order = torch.tensor([[3, 0, 6, 1, 2, 5, 4], [0, 1, 2, 3, 4, 5, 6]])
    at = torch.tensor([[2, 5, 6], [6, 3, 1]])
    hidden = (order.unsqueeze(1) >= order.unsqueeze(2)).double()
    mapping = nn.functional.one_hot(at, 7).double()
    found = theirs(tokens, perm_mask=hidden, target_mapping=mapping, output_hidden_states=True)
    torch.testing.assert_close(ours.features(tokens, torch.tensor([7, 7]), order, at), found.last_hidden_state, **near)
    content = theirs(tokens, perm_mask=hidden).last_hidden_state
    torch.testing.assert_close(found.hidden_states[-2], content, msg="their streams are this text's")
    seen = masks.matrix((order.unsqueeze(1) <= order.unsqueeze(2)).unsqueeze(1))
    torch.testing.assert_close(body(tokens, torch.tensor([7, 7]), mask=seen), content, **near)


@torch.no_grad()
def test_a_causal_xlnet_with_a_memory_is_a_transformer_xl() -> None:
    theirs = xlnet(attn_type="uni", mem_len=5)
    ours = make(CarryingLM, "transformer-xl", memory=5, tied=False, **LIKE_XLNET).double()
    copy_layers(theirs, list(ours.decoder))
    ours.embedding.tokens.weight.copy_(theirs.word_embedding.weight / ours.embedding.scale)
    carried, mems = ours.start(TEXT[:, :0], torch.zeros(2).long()).carried[0], None
    for at in range(0, 21, 3):
        found, carried = ours.read(TEXT[:, at : at + 3], carried)
        expected = theirs(TEXT[:, at : at + 3], mems=mems, use_mems=True)
        mems = expected.mems
        torch.testing.assert_close(found, expected.last_hidden_state, **near)
