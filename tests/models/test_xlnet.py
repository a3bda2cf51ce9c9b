"""XLNet: its streams, memory and segments are those of `transformers`, and a memory is a longer text where it must be."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from model_helpers import LENGTHS, SOURCE, V, make, shake
from tests.support import raises
from torch import Tensor, nn

from saccade.config import recipes
from saccade.core import Positions, masks
from saccade.data.documents import Document
from saccade.models import AttendingEncoder, CarryingLM, RecurrentTwoStream, XLNet
from saccade.tasks.language import LanguageModelling
from support import error_of

TEXT = torch.randint(0, V, (2, 21), generator=torch.Generator().manual_seed(3))
BAR = 7  # the number of the separator, where there is one


def built(memory: int = 5, **changed: object) -> XLNet:
    torch.manual_seed(1)
    model = shake(make(AttendingEncoder, "xlnet", memory=memory, depth=3, **changed))
    assert isinstance(model, XLNet)
    model.separating = BAR
    return model


def streams(memory: int = 5, **changed: object) -> RecurrentTwoStream:
    model = built(memory, **changed)
    return shake(RecurrentTwoStream(model, V)).eval()


# --- parity with transformers ---


def xlnet(**changed: object) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": V,
        "d_model": 8,
        "n_layer": 2,
        "n_head": 2,
        "d_inner": 12,
        "dropout": 0.0,
        "ff_activation": "gelu",
    }
    torch.manual_seed(0)
    theirs = transformers.XLNetModel(transformers.XLNetConfig(**sizes, **changed))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    theirs.relative_positional_encoding = functools.partial(distances, theirs)
    return theirs.double().eval()


def distances(theirs: Any, qlen: int, klen: int, bsz: int, device: object = None) -> Tensor:
    """What its method of this name returns, which it makes in float32: sines of the distances klen … −qlen, then cosines."""
    last = -qlen if theirs.attn_type == "bi" else -1
    speed = 10000.0 ** -(torch.arange(0, theirs.d_model, 2).double() / theirs.d_model)
    angle = torch.arange(klen, last, -1).double()[:, None] * speed
    return torch.cat([angle.sin(), angle.cos()], -1).unsqueeze(1).expand(-1, bsz, -1)


near = {"rtol": 0.0, "atol": 1e-10}


def in_pairs(width: int) -> Tensor:
    """Their sinusoids are all sines, then all cosines; ours alternate."""
    return torch.arange(width).view(2, -1).t().flatten()


@torch.no_grad()
def copy_layers(theirs: nn.Module, blocks: list[nn.Module]) -> None:
    """The parameters of an XLNet, those of its segments where the blocks have them."""
    for layer, block in zip(theirs.layer, blocks, strict=True):
        one, mixer, position = layer.rel_attn, block.mixer, block.mixer.mechanism.position
        for ours, given in ((mixer.q, one.q), (mixer.k, one.k), (mixer.v, one.v)):
            ours.weight.copy_(given.flatten(1).t())
        mixer.out.weight.copy_(one.o.flatten(1))
        position.u.copy_(one.r_w_bias.unsqueeze(1))
        position.v.copy_(one.r_r_bias.unsqueeze(1))
        position.weight.copy_(one.r.permute(1, 2, 0)[..., in_pairs(one.r.shape[0])])
        if hasattr(position, "segments"):
            position.s.copy_(one.r_s_bias.unsqueeze(1))
            position.segments.copy_(one.seg_embed.transpose(0, 1))
        norms = (
            (block.around_mixer.norm, one.layer_norm),
            (block.around_feedforward.norm, layer.ff.layer_norm),
        )
        inner, outer = (part for part in block.feedforward.modules() if isinstance(part, nn.Linear))
        for ours, given in (*norms, (inner, layer.ff.layer_1), (outer, layer.ff.layer_2)):
            ours.weight.copy_(given.weight)
            ours.bias.copy_(given.bias)
        for norm, given in norms:
            norm.eps = given.eps


LIKE_XLNET = {
    "dim": 8,
    "hidden": 12,
    "depth": 2,
    "heads": 2,
    "residual": "post-norm",
    "feedforward": {"activation": "gelu"},
}


@pytest.mark.parametrize("separator", [None, "|"])
@torch.no_grad()
def test_an_xlnet_is_that_of_transformers_with_its_memory_and_segments(
    separator: str | None,
) -> None:
    """Three pieces, each read plainly and in two streams. A query that sees nothing gives zeros here, and attends to all of the text there."""
    theirs = xlnet(mem_len=9)
    body = make(AttendingEncoder, "xlnet", memory=9, separator=separator, **LIKE_XLNET)
    ours = RecurrentTwoStream(body, V).double().eval()
    body.separating = BAR
    copy_layers(theirs, list(body.encoder))
    body.embedding.tokens.weight.copy_(theirs.word_embedding.weight / body.embedding.scale)
    ours.query.copy_(theirs.mask_emb.flatten())
    order = torch.tensor([[3, 0, 6, 1, 2, 5, 4], [0, 1, 2, 3, 4, 5, 6]])
    at = torch.tensor([[2, 5, 6], [6, 3, 1]])
    hidden, mapping = (
        (order.unsqueeze(1) >= order.unsqueeze(2)).double(),
        nn.functional.one_hot(at, 7).double(),
    )
    lengths, state = torch.tensor([7, 7]), ours.start(TEXT[:, :0], torch.zeros(2).long())
    carried, plain, permuted = state.carried[0], None, None
    streamed = carried
    for piece in (TEXT[:, :7], TEXT[:, 7:14], TEXT[:, 14:]):
        piece = piece.clone()
        piece[0, 3] = BAR
        types = (
            torch.tensor([[row[:n].count(BAR) for n in range(7)] for row in piece.tolist()])
            if separator
            else None
        )
        found, carried = body.read(piece, lengths, carried)
        expected = theirs(piece, mems=plain, token_type_ids=types, use_mems=True)
        torch.testing.assert_close(found, expected.last_hidden_state, **near)
        plain = expected.mems
        found, streamed = ours.features_from(piece, lengths, order, at, None, streamed)
        expected = theirs(
            piece,
            perm_mask=hidden,
            target_mapping=mapping,
            mems=permuted,
            token_type_ids=types,
            use_mems=True,
        )
        torch.testing.assert_close(found, expected.last_hidden_state, **near)
        permuted = expected.mems
        for mine, given, parts in ((carried, plain, 3), (streamed, permuted, 3)):
            assert len(mine) == parts == len(given) + 1
            for part, one in zip(mine[1:], given, strict=True):
                torch.testing.assert_close(part[:, -len(one) :], one.transpose(0, 1), **near)
    assert (
        theirs(piece).last_hidden_state - theirs(piece, mems=plain).last_hidden_state
    ).abs().max() > 0.1, "memory matters"


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


# --- memory


def in_pieces(model: XLNet, tokens: Tensor, size: int) -> Tensor:
    carried, found = model.empty(len(tokens)), []
    for at in range(0, tokens.shape[1], size):
        x, carried = model.read(
            tokens[:, at : at + size], torch.full((len(tokens),), size), carried
        )
        found.append(x)
    return torch.cat(found, 1)


@pytest.mark.parametrize(("memory", "size"), [(3, 7), (30, 3), (0, 7)])
@torch.no_grad()
def test_pieces_with_a_memory_are_one_text_of_which_each_piece_sees_so_much_before_it(
    memory: int, size: int
) -> None:
    model = built(memory)
    seen = masks.where(
        lambda b, h, i, j: (j < i // size * size + size) & (j >= i // size * size - memory)
    )
    at = Positions.line(21, 21)
    expected = model.encoder(model.embedding(TEXT, at.i), seen, positions=at)
    torch.testing.assert_close(in_pieces(model, TEXT, size), expected)


@torch.no_grad()
def test_a_long_text_is_read_in_pieces_and_a_short_one_at_once() -> None:
    model, whole = built(4, piece=7, separator="|"), built(4, separator="|")
    lengths = torch.tensor([21, 9])
    found = model(TEXT, lengths)
    for b, length in enumerate(lengths.tolist()):
        alone = model(TEXT[b : b + 1, :length], lengths[b : b + 1])
        torch.testing.assert_close(
            found[b : b + 1, :length],
            alone,
            msg="padding is invisible, and so is padding in memory",
        )
    torch.testing.assert_close(model(SOURCE, LENGTHS), whole(SOURCE, LENGTHS))
    assert (found - whole(TEXT, lengths))[:, :9].abs().max() > 1e-3
    before = TEXT.clone()
    before[:, 6] = (before[:, 6] + 1) % V
    assert (model(before, lengths) - found)[:, 7].abs().max() > 1e-9, (
        "the second piece remembers the first"
    )
    assert torch.equal(
        model(torch.cat([TEXT[:, :7], before[:, 6:7].expand(-1, 14)], 1), lengths)[:, :7],
        found[:, :7],
    )


@torch.no_grad()
def test_two_streams_with_a_memory_are_those_of_the_whole_text_with_what_was_read_first_in_the_order() -> (
    None
):
    model = streams(10)
    first, then = (
        torch.tensor([[3, 0, 4, 1, 2], [0, 4, 2, 3, 1]]),
        torch.tensor([[1, 0, 3, 2], [2, 3, 0, 1]]),
    )
    at, five, four = torch.tensor([[2, 0], [3, 1]]), torch.tensor([5, 5]), torch.tensor([4, 4])
    _, state = model.forward_from(
        TEXT[:, :5], five, first, at, None, model.start(TEXT[:, :0], five)
    )
    found, after = model.forward_from(TEXT[:, 5:9], four, then, at, None, state)
    whole = model(TEXT[:, :9], five + four, torch.cat([first, 5 + then], 1), at + 5)
    torch.testing.assert_close(found, whole)
    assert after.length == 9


@torch.no_grad()
def test_documents_in_a_stream_see_no_other_document_in_memory() -> None:
    """Three documents in two pieces; the second one goes on in the second piece."""
    model = streams(10)
    documents, order, at = (
        torch.tensor([[0, 0, 1, 1, 1, 1, 2, 2]]),
        torch.arange(8)[None],
        torch.arange(4)[None],
    )
    carried, found = model.body.empty(1), []
    for cut in (slice(0, 4), slice(4, 8)):
        x, carried = model.features_from(
            TEXT[:1, cut], torch.tensor([4]), order[:, :4], at, documents[:, cut], carried
        )
        found.append(x)
    whole = torch.cat(found, 1)
    for cut in (slice(0, 2), slice(2, 6), slice(6, 8)):
        size = cut.stop - cut.start
        alone = model.features(
            TEXT[:1, cut], torch.tensor([size]), order[:, :size], torch.arange(size)[None]
        )
        torch.testing.assert_close(whole[:, cut], alone)
    assert carried[0][0, -8:, 0].tolist() == [1, 1, 2, 2, 2, 2, 3, 3]


def test_gradients_stop_at_the_memory() -> None:
    model = streams(6)
    at, lengths, order = (
        torch.tensor([[2], [3]]),
        torch.tensor([4, 4]),
        torch.arange(4).expand(2, -1),
    )
    _, state = model.forward_from(
        TEXT[:, :4], lengths, order, at, None, model.start(TEXT[:, :0], lengths)
    )
    carried = [tuple(part.requires_grad_() for part in state.carried[0])]
    logits, after = model.forward_from(
        TEXT[:, 4:8], lengths, order, at, None, state.next(carried=carried)
    )
    gradients = torch.autograd.grad(
        logits.square().sum(), [model.query, *carried[0]], allow_unused=True
    )
    assert gradients[0] is not None
    assert all(one is None for one in gradients[1:])
    assert not any(part.requires_grad for part in after.carried[0])


# --- segments


@torch.no_grad()
def test_segments_matter_where_there_are_two_and_have_no_effect_where_there_is_one() -> None:
    model = built(separator="|")
    one, two = TEXT.clone()[:1, :9], TEXT.clone()[:1, :9]
    one[one == BAR], two[two == BAR] = 1, 1
    two[0, 4] = BAR
    assert model.segments(two).tolist() == [[0, 0, 0, 0, 0, 1, 1, 1, 1]]  # type: ignore[union-attr]
    before = [model(text, torch.tensor([9])) for text in (one, two)]
    for block in model.encoder:
        block.mixer.mechanism.position.segments.mul_(-2.0)  # type: ignore[union-attr, operator]
    after = [model(text, torch.tensor([9])) for text in (one, two)]
    torch.testing.assert_close(after[0], before[0])
    assert (after[1] - before[1]).abs().max() > 1e-3


def test_a_separator_is_never_asked_for_and_must_be_a_token() -> None:
    text = [Document("a b c | d e f | g a | b c d e\n" * 3, 1)]
    language = {"objective": "permutation", "block": 8, "share": 0.5, "carry": True}

    def task(separator: str) -> LanguageModelling:
        model = {
            "family": "xlnet",
            "dim": 8,
            "hidden": 8,
            "depth": 1,
            "heads": 2,
            "separator": separator,
        }
        recipe = recipes.recipe(
            {
                "task": "language-modelling",
                "vocabulary": {"kind": "words"},
                "language": language,
                "model": model,
            }
        )
        made = LanguageModelling.learn(recipe, text)
        made.build(recipes.Builder(recipe.model))
        return made

    made = task("|")
    [bar] = made.text.encode_ids(["|"])[0]
    stream = made.stream(text, 0, torch.device("cpu"))
    asked = [
        made.objective.batch(stream.blocks([start], epoch)).target
        for start in stream.starts(0)
        for epoch in range(20)
    ]
    counts = np.bincount(torch.cat([one.flatten() for one in asked]).numpy(), minlength=bar + 1)
    assert counts[bar] == 0
    assert counts[made.text.encode_ids(["c"])[0][0]] > 0
    assert (
        "model.separator is '||', which is not one token of the vocabulary; give a token"
        in error_of(lambda: task("||"))
    )


def test_what_the_family_fixes_is_refused() -> None:
    with raises("setting-without-effect"):
        recipes.recipe(
            {
                "task": "classification",
                "data": {"train": "reviews:train"},
                "model": {"family": "xlnet", "position": "rotary"},
            }
        )
