"""Big Bird: ITC against `transformers`' block-sparse attention with the same parameters, ETC against the tokens written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from model_helpers import V, make, shake
from tests.support import raises
from torch import Tensor, nn

from saccade import api
from saccade.core import masks
from saccade.core.backends import blocked
from saccade.data.labeled import Labeled
from saccade.models import AttendingEncoder, CausalLM, Seq2Seq

SIZE, BLOCKS, RANDOM = 2, 12, 1
LENGTH = SIZE * BLOCKS
ITC = {
    "name": "blocks",
    "length": LENGTH,
    "size": SIZE,
    "globals": 1,
    "last": 1,
    "random": RANDOM,
    "seed": 4,
}


def drawn(mask: masks.Blocks) -> list[np.ndarray]:
    """For each head the random blocks of each row between the global ones, as `transformers` lists them."""
    at = np.arange(BLOCKS)
    known = (np.abs(at[:, None] - at) <= 1) | (at % (BLOCKS - 1) == 0)
    rows = range(1, BLOCKS - 1)
    return [
        np.stack([np.flatnonzero(head[row] & ~known[row]) for row in rows])
        for head in mask.values.numpy()
    ]


@torch.no_grad()
def copied(theirs: nn.Module, ours: nn.Module) -> None:
    for layer, block in zip(theirs.encoder.layer, ours.encoder, strict=True):
        one, mixer = layer.attention.self, block.mixer
        inner, outer = (part for part in block.feedforward.modules() if isinstance(part, nn.Linear))
        pairs = [
            (mixer.q, one.query),
            (mixer.k, one.key),
            (mixer.v, one.value),
            (mixer.out, layer.attention.output.dense),
        ]
        pairs += [(inner, layer.intermediate.dense), (outer, layer.output.dense)]
        norms = [
            (block.around_mixer.norm, layer.attention.output.LayerNorm),
            (block.around_feedforward.norm, layer.output.LayerNorm),
        ]
        for own, given in (*pairs, *norms):
            own.weight.copy_(given.weight)
            own.bias.copy_(given.bias)
        for norm, given in norms:
            norm.eps = given.eps


@torch.no_grad()
def test_itc_is_the_block_sparse_attention_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It draws random blocks for each head of each layer, and none in evaluation; here they get ours. Its first and last blocks are global."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": V,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
    }
    how = {
        "block_size": SIZE,
        "num_random_blocks": RANDOM,
        "attention_type": "block_sparse",
        "hidden_act": "gelu",
    }
    torch.manual_seed(0)
    theirs = transformers.BigBirdModel(
        transformers.BigBirdConfig(**sizes, **how), add_pooling_layer=False
    )
    for parameter in theirs.parameters():
        parameter.copy_(0.5 * torch.randn_like(parameter))
    theirs = theirs.double().eval()
    settings = {
        "dim": 8,
        "hidden": 12,
        "depth": 2,
        "heads": 2,
        "residual": "post-norm",
        "feedforward": {"activation": "gelu"},
    }
    ours = make(AttendingEncoder, "transformer-encoder", mask=ITC, **settings).double()
    copied(theirs, ours)
    patterns = [drawn(block.mixer.mechanism.mask) for block in ours.encoder]
    assert len({head.tobytes() for layer in patterns for head in layer}) == 4, (
        "two heads of two layers"
    )
    kind = type(theirs.encoder.layer[0].attention.self)
    assert [layer.attention.self.seed for layer in theirs.encoder.layer] == [0, 1]
    monkeypatch.setattr(
        kind, "_bigbird_block_rand_mask_with_head", lambda self, **_: patterns[self.seed]
    )
    lengths = torch.tensor([LENGTH, 15])
    there = torch.arange(LENGTH) < lengths.unsqueeze(1)
    x = torch.randn(2, LENGTH, 8, dtype=torch.float64)
    expected = theirs(inputs_embeds=x, attention_mask=there.long()).last_hidden_state
    given = theirs.embeddings(inputs_embeds=x)
    ready = masks.padding(lengths).prepare(2, 2, LENGTH, LENGTH)
    torch.testing.assert_close(ours.encoder(given, ready)[there], expected[there])
    monkeypatch.setattr(blocked, "pays_off", lambda call: True)
    ready = masks.padding(lengths).prepare(2, 2, LENGTH, LENGTH)
    torch.testing.assert_close(ours.encoder(given, ready)[there], expected[there], msg="by blocks")


ETC = {"name": "blocks", "length": 16, "size": 2, "globals": 0, "random": 1, "extra": 3}


def encoder(**changed: object) -> AttendingEncoder:
    torch.manual_seed(1)
    return shake(make(AttendingEncoder, "transformer-encoder", mask=ETC, **changed))


@pytest.mark.parametrize("position", ["none", "rotary", "alibi"])
def test_etc_reads_tokens_that_belong_to_no_word(position: str) -> None:
    model, tokens = encoder(position=position), torch.randint(0, V, (2, 11))
    lengths = torch.tensor([11, 6])
    found = model(tokens, lengths)
    assert found.shape == (2, 11, model.dim)
    assert model.encoder.extra.shape == (3, model.dim)
    (gradient,) = torch.autograd.grad(found.square().sum(), model.encoder.extra)
    assert gradient.any(-1).all(), "each of them is seen"
    alone = model(tokens[1:, :6], lengths[1:])
    torch.testing.assert_close(found[1:, :6], alone, msg="padding is invisible, also to them")
    other = tokens.clone()
    other[0, 10] = (other[0, 10] + 1) % V
    moved = (model(other, lengths) - found)[0].abs().amax(-1) > 1e-9
    assert moved.all(), "from one end to the other by way of a global token, in two layers"


def test_who_sees_whom_in_etc_by_hand() -> None:
    mask = masks.blocks(6, size=2, window=0, globals=0, random=0, extra=3)
    expected = [[1] * 9] * 3 + [
        [1] * 3 + [int(i // 2 == j // 2) for j in range(6)] for i in range(6)
    ]
    assert mask.dense(1, 1, 9, 9)[0, 0].int().tolist() == expected
    with raises("mask-too-short"):
        mask.dense(1, 1, 10, 10)


def test_who_sees_whom_in_itc_by_hand() -> None:
    found = (
        masks.blocks(5, size=1, window=0, globals=1, last=1, random=0)
        .dense(1, 1, 5, 5)[0, 0]
        .int()
        .tolist()
    )
    assert found == [[1] * 5, [1, 1, 0, 0, 1], [1, 0, 1, 0, 1], [1, 0, 0, 1, 1], [1] * 5]


def test_etc_is_refused_where_its_tokens_would_see_what_they_must_not() -> None:
    for kind, family in ((CausalLM, "transformer-decoder"), (Seq2Seq, "transformer")):
        with raises("setting-not-supported"):
            make(kind, family, mask=ETC)
    tokens: Tensor = torch.zeros(1, 4).long()
    with raises("mask-not-supported"):
        encoder()(tokens, torch.tensor([4]), mask=masks.documents(tokens))


def test_what_an_etc_model_looked_at_names_its_extra_tokens() -> None:
    recipe = {"task": "classification", "vocabulary": {"kind": "words"}, "device": "cpu"}
    model = {
        "family": "transformer-encoder",
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "mask": ETC,
    }
    made = api.build(
        {**recipe, "model": model},
        [Labeled("a good film", "good", 1), Labeled("a bad film", "bad", 2)],
    )
    shown = next(site for site in made.look("a good film").sites if site.name.startswith("encoder"))
    assert shown.rows[:4] == ["<global>"] * 3 + ["a"]
    assert len(shown.rows) == len(shown.columns) == 7, "and the end of the text"
