"""Transformers against torch.nn's with the same parameters, packed documents, learning. What holds for every model: test_every_model.py."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import pytest
import torch
from model_helpers import LENGTHS, SOURCE, TARGET, Case, V, cases, make, stepped
from tests.support import raises
from torch import Tensor, nn

from saccade import models
from saccade.core import masks, normalizers, positions, scores
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.layers.residuals import PostNorm
from saccade.layers.stack import Stack
from saccade.models import (
    AttendingEncoder,
    CausalLM,
    LanguageModel,
    Seq2Seq,
    Transformer,
    TransformerEncoder,
)
from saccade.models.assembly import Config
from saccade.models.builder import Builder
from saccade.settings import Choice


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# --- against torch.nn ---


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


@torch.no_grad()
def copy_stack(ours: Stack, theirs: nn.Module) -> None:
    for parameter in ours.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    for one, other in zip(ours, theirs.layers, strict=True):
        copy_attention(one.mixer, other.self_attn)
        other.linear1.load_state_dict(one.feedforward.inner.state_dict())
        other.linear2.load_state_dict(one.feedforward.outer.state_dict())
        around = [one.around_mixer, one.around_feedforward]
        if one.cross is not None:
            copy_attention(one.cross, other.multihead_attn)
            around.insert(1, one.around_cross)
        for n, residual in enumerate(around, 1):
            getattr(other, f"norm{n}").load_state_dict(residual.norm.state_dict())
    if theirs.norm is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("pre_norm", [True, False])
def test_encoder_and_decoder_are_pytorchs_with_the_same_parameters(
    pre_norm: bool, activation: str
) -> None:
    residual = "pre-norm" if pre_norm else "post-norm"
    model = make(
        Seq2Seq, hidden=16, depth=3, residual=residual, feedforward={"activation": activation}
    ).double()
    options = {
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": pre_norm,
        "dtype": torch.float64,
    }
    norm = [nn.LayerNorm(8, dtype=torch.float64) if pre_norm else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, **options), 3, norm[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 3, norm[1])
    copy_stack(model.encoder, encoder)
    copy_stack(model.decoder, decoder)
    padded = torch.arange(5) >= LENGTHS[:, None]
    future = torch.ones(4, 4).triu(1).bool()

    source, target = model.source(SOURCE, torch.arange(5)), model.target(TARGET, torch.arange(4))
    memory = encoder(source, src_key_padding_mask=padded)
    features = decoder(
        target, memory, tgt_mask=future, memory_key_padding_mask=padded, tgt_is_causal=True
    )
    expected = features @ model.target.tokens.weight.T
    found = model(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(found, expected)

    pull = torch.randn_like(found)
    first = model.encoder.block(0).feedforward.inner.weight, model.decoder.block(0).cross.out.weight
    ours = torch.autograd.grad(found, [model.source.tokens.weight, *first], pull)
    theirs = torch.autograd.grad(
        expected,
        [
            model.source.tokens.weight,
            encoder.layers[0].linear1.weight,
            decoder.layers[0].multihead_attn.out_proj.weight,
        ],
        pull,
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_the_default_sizes_are_the_base_models_which_differs_in_norms_and_embedding() -> None:
    with torch.device("meta"):
        model = Transformer(37000, 37000, Config())
        base = Transformer(37000, 37000, Config(residual=Choice(PostNorm), shared=True))
    attention, mlp, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 512 + 2048, 2 * 512
    layers = 6 * (attention + mlp + 2 * norm) + 6 * (2 * attention + mlp + 3 * norm)
    assert count(model) == layers + 2 * norm + 2 * 37000 * 512, (
        "a norm ends each stack, and each side has its own embedding"
    )
    assert count(base) == layers + 37000 * 512, "some 63 million; the paper rounds to 65"
    assert (len(model.encoder), len(model.decoder), model.encoder.block(0).mixer.heads) == (6, 6, 8)


def test_a_tied_head_shares_the_targets_vectors() -> None:
    tied, untied = make(Seq2Seq), make(Seq2Seq, tied=False)
    assert count(untied) == count(tied) + V * 8
    before = [model(SOURCE, LENGTHS, TARGET) for model in (tied, untied)]
    with torch.no_grad():
        for model in (tied, untied):
            # 12 is read at the last position of the last row alone
            model.target.tokens.weight[12] += torch.randn(8)
    tied_changed, untied_changed = (
        (model(SOURCE, LENGTHS, TARGET) - was)[:2]
        for model, was in zip((tied, untied), before, strict=True)
    )
    assert tied_changed[..., 12].abs().min() > 1e-4
    assert not tied_changed[..., :12].any()
    assert not untied_changed.any()


def test_a_shared_embedding_is_one_for_source_target_and_head() -> None:
    model, apart = make(Seq2Seq, shared=True), make(Seq2Seq)
    assert model.source is model.target
    assert (model.shares_embedding, apart.shares_embedding) == (True, False)
    assert (
        count(model)
        == count(apart) - V * 8
        == count(make(Seq2Seq, shared=True, tied=False)) - V * 8
    )
    torch.testing.assert_close(
        stepped(model, TARGET, SOURCE, LENGTHS),
        model(SOURCE, LENGTHS, TARGET),
        rtol=1e-4,
        atol=1e-5,
    )
    with raises("vocabulary-differs"):
        Builder({"family": "transformer", "shared": True}).make(Seq2Seq, V, V + 1)


# --- packed documents, positions and masks of one's own ---


def test_packed_documents_do_not_see_each_other() -> None:
    model = make(CausalLM, "transformer-decoder", position="rotary")
    packed = model(TARGET[:1], masks.documents([[0, 0, 1, 1]]))
    torch.testing.assert_close(packed[:, :2], model(TARGET[:1, :2]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(packed[:, 2:], model(TARGET[:1, 2:]), rtol=1e-4, atol=1e-5)


PACKED = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
STARTS = [[0, 3, 7], [0, 1, 5, 7]]  # where documents begin in each row, and the end


def by_distance(kind: type[nn.Module]) -> list[Case]:
    """Models that know distances, or no order at all: blocks begin at absolute positions, and convolutions see neighbors alone."""
    hard = ("blocks", "top-blocks")
    fields = models.table["transformer"].config.__dataclass_fields__

    def any_mask(case: Case) -> bool:
        chosen = [
            (fields[slot].metadata.get("table"), value)
            for slot, value in case.changed.items()
            if slot in fields
        ]
        made = [
            table[value["name"] if isinstance(value, dict) else value]
            for table, value in chosen
            if table is not None
        ]
        return all(getattr(one, "any_mask", True) for one in made)

    found = [
        case
        for case in cases()
        if issubclass(case.kind, kind) and not any(word in str(case) for word in hard)
    ]
    return [case for case in found if any_mask(case)]


@pytest.mark.parametrize(
    "case",
    [case for case in by_distance(CausalLM) if case.family == "transformer-decoder"],
    ids=str,
)
@torch.no_grad()
def test_packed_documents_are_the_documents_alone_when_positions_restart(case: Case) -> None:
    model = case.make()
    ids, at = torch.zeros_like(PACKED), torch.zeros_like(PACKED)
    for row, starts in enumerate(STARTS):
        for n, (start, end) in enumerate(pairwise(starts)):
            ids[row, start:end], at[row, start:end] = n, torch.arange(end - start)
    found = model(PACKED, masks.documents(ids), at)
    torch.testing.assert_close(found, model.head(model.features(PACKED, masks.documents(ids), at)))
    for row, starts in enumerate(STARTS):
        for start, end in pairwise(starts):
            alone = model(PACKED[row : row + 1, start:end])
            torch.testing.assert_close(found[row : row + 1, start:end], alone)


READS_IDS = [
    case
    for case in by_distance(AttendingEncoder)
    if "characters" not in str(case) and not case.make().needs_relation
]


@pytest.mark.parametrize("case", READS_IDS, ids=str)
@torch.no_grad()
def test_an_encoder_takes_positions_and_a_mask_of_its_own(case: Case) -> None:
    encoder = case.make()
    usual = encoder(SOURCE, LENGTHS)
    torch.testing.assert_close(encoder(SOURCE, LENGTHS, masks.full(), torch.arange(5)), usual)
    torch.testing.assert_close(
        encoder(SOURCE, LENGTHS, positions=torch.arange(5).expand(3, -1)), usual
    )
    other = SOURCE.clone()
    other[0, 3:] = 8
    if encoder.encoder.block(0).mixer.causal:
        causal = [encoder(tokens, LENGTHS, masks.causal())[0, :3] for tokens in (SOURCE, other)]
        torch.testing.assert_close(*causal)
    if "mask" not in case.changed:  # a mask compares columns, wherever their tokens are
        mirrored = encoder(SOURCE[:1].flip(1), LENGTHS[:1], positions=torch.arange(5).flip(0))
        torch.testing.assert_close(
            mirrored.flip(1), usual[:1], msg="tokens and positions reversed together"
        )


def test_keys_of_the_source_are_projected_once_per_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, plain = [], scores.Additive.key
    monkeypatch.setattr(
        scores.Additive, "key", lambda self, k: (calls.append(id(self)), plain(self, k))[1]
    )
    model = make(Seq2Seq, score="additive")
    stepped(model, TARGET, SOURCE, LENGTHS)
    for block in model.decoder:
        assert calls.count(id(block.cross.mechanism.score)) == 1
        assert calls.count(id(block.mixer.mechanism.score)) == TARGET.shape[1], (
            "each new position once"
        )


PAIRS = [
    (score.name, normalize)
    for score in scores.table
    for normalize in normalizers.table.names()
    # by an estimator, not by a gradient: test_hard_learning.py
    if not normalizers.table[normalize].samples
    if (score.make.kernel if normalize == "sum" else not score.make.needs_sum)
]


@pytest.mark.parametrize(("score", "normalize"), PAIRS)
def test_any_mechanism_of_the_catalogue_learns(score: str, normalize: str) -> None:
    model = make(Seq2Seq, score=score, normalize=normalize, depth=1).train()

    def loss() -> Tensor:
        return nn.functional.cross_entropy(
            model(SOURCE, LENGTHS, TARGET[:, :-1]).flatten(0, 1), TARGET[:, 1:].flatten()
        )

    before = loss()
    before.backward()
    with torch.no_grad():
        size = math.sqrt(
            sum(parameter.grad.square().sum().item() for parameter in model.parameters())
        )
        for parameter in model.parameters():
            parameter.sub_(0.02 / size * parameter.grad)
    assert loss().item() < before.item() - 1e-3
    assert all(
        parameter.grad.any() for parameter in model.decoder.block(0).cross.mechanism.parameters()
    )


def test_a_position_for_the_first_layer_stays_there_and_cross_attention_has_none() -> None:
    model = make(Seq2Seq, position="added", depth=3)
    found = [type(block.mixer.mechanism.position) for block in model.decoder]
    assert found == [positions.Added, positions.NoPosition, positions.NoPosition]
    biased = make(Seq2Seq, position="alibi", mask={"name": "window", "left": 1})
    assert {type(block.mixer.mechanism.position) for block in biased.encoder} == {positions.Alibi}
    for block in biased.decoder:
        assert isinstance(block.cross.mechanism.position, positions.NoPosition)
        assert type(block.cross.mechanism.mask) is masks.Full


@torch.no_grad()
def test_positions_that_all_blocks_share_are_one_table_of_the_stack() -> None:
    def small(shared: bool, **changed: object) -> nn.Module:
        position = {
            "name": "t5",
            "buckets": 8,
            "max_distance": 16,
            "both_sides": None,
            "shared": shared,
        }
        return make(Seq2Seq, **{"position": position, "depth": 3, "shared": True, **changed})

    ours, other = small(True), small(False)
    table = ours.decoder.positions[0].table
    nn.init.normal_(table)
    nn.init.normal_(ours.encoder.positions[0].table)
    assert [name for name in ours.state_dict() if "position" in name] == [
        "encoder.positions.0.table",
        "decoder.positions.0.table",
    ]
    given = {name: value for name, value in ours.state_dict().items() if "position" not in name}
    for stack in ("encoder", "decoder"):
        own = getattr(ours, stack).positions[0].table
        given |= {f"{stack}.{n}.mixer.mechanism.position.table": own for n in range(3)}
    other.load_state_dict(given)
    torch.testing.assert_close(ours(SOURCE, LENGTHS, TARGET), other(SOURCE, LENGTHS, TARGET))
    torch.testing.assert_close(
        stepped(ours, TARGET, SOURCE, LENGTHS), ours(SOURCE, LENGTHS, TARGET)
    )
    copied = copy.deepcopy(ours).double()
    assert all(
        block.mixer.mechanism.position is copied.decoder.positions[0] for block in copied.decoder
    )
    assert copied.decoder.positions[0].table.dtype is torch.float64
    assert table.dtype is torch.float32
    evolved = small(True, block="evolved")
    assert [tuple(one.table.shape) for one in evolved.decoder.positions] == [(8, 4), (8, 2)], (
        "its first mixer has twice the heads"
    )


def test_mistakes_are_answered_with_sentences() -> None:
    language = make(CausalLM, "transformer-decoder")
    with raises("prompt-lengths-differ"):
        language.start(SOURCE, LENGTHS)
    with raises("heads-do-not-divide"):
        make(Seq2Seq, heads=3)
    with raises("position-out-of-range"):
        make(Seq2Seq, position_embedding={"name": "learned", "max_len": 3})(SOURCE, LENGTHS, TARGET)
    with raises("mask-not-supported"):
        make(CausalLM, "transformer-decoder", mixer="light-convolution")(
            TARGET, masks.documents([[0, 0, 1, 1]] * 3)
        )
    with raises("relation-missing"):
        make(Seq2Seq, position="syntax")
    for kind, family in ((Seq2Seq, "transformer"), (CausalLM, "transformer-decoder")):
        with raises("relation-missing"):
            make(kind, family, position_embedding="depth")
    assert isinstance(make(AttendingEncoder, "transformer-encoder"), TransformerEncoder)
    assert isinstance(language, LanguageModel)
