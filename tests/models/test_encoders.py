"""Encoders and what is built on them: classifier, tagger, masked model. What holds for every model is in test_every_model.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from model_helpers import (
    LENGTHS,
    SOURCE,
    Case,
    V,
    cases,
    make,
    read,
    settings,
    shake,
    tree,
    with_bytes,
)
from safetensors.torch import load_file, save_file
from tests.support import raises
from torch import Tensor, nn

from saccade import models
from saccade.core import masks, record
from saccade.errors import SaccadeError
from saccade.layers.embeddings import Characters
from saccade.layers.pooling import Mean, pools
from saccade.models import (
    AttendingEncoder,
    CarryingLM,
    CausalLM,
    Classifier,
    Encoder,
    MaskedModel,
    Tagger,
    TransformerEncoder,
)
from saccade.models.builder import Builder

FAMILIES = [entry.name for entry in models.table if entry.make.build(Encoder) is not None]
READ_TEXTS = [
    case for case in cases() if issubclass(case.kind, Encoder) and case.kind.reads == "texts"
]
PLAIN = {case.family: case for case in READ_TEXTS if not case.changed}
# Every encoder as it is, and with every embedding.
CASES = [case for case in READ_TEXTS if not set(case.changed) - {"embedding"}]
each = pytest.mark.parametrize("case", CASES, ids=str)
each_family = pytest.mark.parametrize("family", FAMILIES)
each_pool = pytest.mark.parametrize(
    "pool", [name for name in pools.names() if not pools[name].reads_token]
)


def test_the_families_that_read_text_for_labels() -> None:
    transformers = {
        "transformer-encoder",
        "transformer-decoder",
        "transformer",
        "transformer-base",
        "transformer-big",
    }
    assert set(FAMILIES) == transformers | {
        "rnn-encoder",
        "rnn-decoder",
        "window-mlp",
        "bag",
        "xlnet",
    }
    assert all("pool" in models.table[name].config.__dataclass_fields__ for name in FAMILIES)


@each_family
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), more=st.integers(0, 3))
def test_padding_is_invisible_and_so_is_the_batch(
    family: str, lengths: list[int], more: int
) -> None:
    torch.manual_seed(0)
    body, sizes = Case(family, Encoder, {}).make(), torch.tensor(lengths)
    tokens = torch.randint(0, V, (len(lengths), max(lengths) + more))  # padding is any token
    found = body(tokens, sizes)
    assert found.shape == (*tokens.shape, body.dim)
    for b, length in enumerate(lengths):
        torch.testing.assert_close(
            found[b : b + 1, :length], body(tokens[b : b + 1, :length], sizes[b : b + 1])
        )


@each
def test_parameters_are_named_alike(case: Case) -> None:
    first = {name.split(".")[0] for name, _ in case.make().named_parameters()}
    assert first <= {"embedding", "encoder"} or first <= {"embedding", "decoder"}
    assert "embedding" in first


@pytest.mark.parametrize(
    ("family", "kind"), [("transformer-decoder", CausalLM), ("rnn-decoder", CarryingLM)]
)
def test_a_language_model_gives_its_encoder_by_name(family: str, kind: type[CausalLM]) -> None:
    language, body = shake(make(kind, family)), make(Encoder, family).double()
    body.load_state_dict(
        {
            name: value
            for name, value in language.state_dict().items()
            if not name.startswith("head.")
        }
    )
    torch.testing.assert_close(body(SOURCE, LENGTHS), language.features(SOURCE))


@pytest.mark.parametrize("window", [0, 1, 2, 6])
def test_a_window_is_a_loop_over_the_words_around_each(window: int) -> None:
    body = make(Encoder, "window-mlp", window=window)
    found, x = body(SOURCE, LENGTHS), body.embedding(SOURCE)
    weight, bias = body.encoder.weight, body.encoder.bias
    assert weight.shape == (body.dim, (2 * window + 1) * x.shape[2])
    for b, length in enumerate(LENGTHS.tolist()):
        for n in range(length):
            total = bias.clone()
            for step in range(-window, window + 1):
                part = weight[:, (step + window) * x.shape[2] :][:, : x.shape[2]]
                if 0 <= n + step < length:
                    total = total + part @ x[b, n + step]
            torch.testing.assert_close(found[b, n], total.clamp(min=0))


# --- classifier


def classifier(case: Case, pool: Any) -> Classifier:
    body = case.make()
    made = Builder(settings(case.family, pool=pool)).pool(body.dim, V)
    made.prepare([row[:n].tolist() for row, n in zip(SOURCE, LENGTHS, strict=True)])
    return Classifier(body, made, 3, dropout=0.5).double().eval()


@each_pool
@each
def test_a_classifier_pools_what_the_encoder_reads(case: Case, pool: str) -> None:
    model = classifier(case, pool)
    tokens = with_bytes(model.body, SOURCE)
    found, weights = model(tokens, LENGTHS), model.weights(tokens, LENGTHS)
    assert found.shape == (3, 3)
    assert (weights[torch.arange(5) >= LENGTHS[:, None]] == 0).all()
    each, whole = (
        (model.pool.each, model.pool.whole) if pool == "deep-sets" else (torch.clone, torch.clone)
    )
    pooled = whole((weights.unsqueeze(-1) * each(model.body(tokens, LENGTHS))).sum(1))
    torch.testing.assert_close(found, pooled @ model.head.weight.T + model.head.bias)
    for b, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(
            model(tokens[b : b + 1, :length], LENGTHS[b : b + 1]), found[b : b + 1]
        )
    assert all(
        gradient is not None
        for gradient in torch.autograd.grad(found.sum(), list(model.parameters()))
    )


def test_a_record_sees_the_pool_of_a_classifier() -> None:
    model = classifier(PLAIN["bag"], "attention")
    with record(model) as seen:
        model(SOURCE, LENGTHS)
    torch.testing.assert_close(seen["pool"].weights()[:, 0, 0], model.weights(SOURCE, LENGTHS))


@each_pool
def test_a_classifier_is_itself_after_it_was_saved_and_loaded(tmp_path: Path, pool: str) -> None:
    def build() -> Classifier:
        builder = Builder(settings("transformer", pool=pool))
        return Classifier(builder.make(Encoder, V), builder.pool(8, V), 3).eval()

    one, other = build(), build()
    one.pool.prepare(SOURCE.tolist())
    save_file(one.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other(SOURCE, LENGTHS), one(SOURCE, LENGTHS))


# --- tagger and masked model


@each
def test_a_tagger_reads_where_words_begin(case: Case) -> None:
    body, at = case.make(), torch.tensor([[0, 2, 4], [1, 2, 0], [0, 0, 0]])
    model = Tagger(body, 4, dropout=0.5).double().eval()
    tokens = with_bytes(body, SOURCE)
    found, x = model(tokens, LENGTHS, at), body(tokens, LENGTHS)
    assert found.shape == (3, 3, 4)
    for b in range(3):
        for w in range(3):
            torch.testing.assert_close(
                found[b, w], model.head.weight @ x[b, at[b, w]] + model.head.bias
            )
    model.dropout.train()
    assert not torch.equal(model(tokens, LENGTHS, at), found), "dropout"


@each
def test_a_masked_model_is_berts_head_on_an_encoder(case: Case) -> None:
    body = case.make()
    model = MaskedModel(body, V).double().eval()
    nn.init.normal_(model.head.bias)
    tokens, head, embedding = with_bytes(body, SOURCE), model.head, body.embedding.tokens
    between = body(tokens, LENGTHS) @ head.transform.weight.T + head.transform.bias
    between = nn.functional.layer_norm(
        nn.functional.gelu(between), [8], head.norm.weight, head.norm.bias
    )
    if isinstance(embedding, Characters):
        vectors = embedding.table.weight  # the bytes of a word are read, and not written
    else:
        vectors = embedding(torch.arange(V).unsqueeze(0))[0]
    expected = between @ vectors.T + head.bias
    torch.testing.assert_close(model(tokens, LENGTHS), expected)
    at = torch.tensor([[4, 0], [2, 2], [0, 0]])
    torch.testing.assert_close(
        model(tokens, LENGTHS, at),
        expected.gather(1, at.unsqueeze(-1).expand(-1, -1, V)),
        msg="asked positions",
    )
    assert len({id(p) for p in model.parameters()}) == len(list(body.parameters())) + 5, (
        "tied: a transform, a norm and a bias"
    )


def test_a_masked_model_passes_a_mask_and_positions_to_an_encoder_that_attends() -> None:
    model = MaskedModel(Case("transformer-encoder", AttendingEncoder, {}).make(), V).double()
    tokens, lengths = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([5])
    packed = model(
        tokens,
        lengths,
        mask=masks.documents([[0, 0, 0, 1, 1]]),
        positions=torch.tensor([[0, 1, 2, 0, 1]]),
    )
    torch.testing.assert_close(packed[:, :3], model(tokens[:, :3], torch.tensor([3])))
    torch.testing.assert_close(packed[:, 3:], model(tokens[:, 3:], torch.tensor([2])))


# --- a relation of tokens


def shaw_loop(layer: Any, x: Tensor, relation: Tensor) -> Tensor:
    """Attention by Wang et al. 2019: (q·k + q·a_r)/√D, and v + b_r, with r the clipped distance in the tree; one text."""
    q, k, v = (part(x).unflatten(-1, (layer.heads, -1)) for part in (layer.q, layer.k, layer.v))
    position, found = layer.mechanism.position, torch.zeros_like(x)
    for i in range(len(x)):
        r = relation[i].clamp(max=position.max_distance)
        heads = []
        for h in range(layer.heads):
            fits = (
                torch.stack([q[i, h] @ (k[j, h] + position.keys[r[j]]) for j in range(len(x))])
                / q.shape[-1] ** 0.5
            )
            heads.append(
                sum(
                    w * (v[j, h] + position.value_vectors[r[j]])
                    for j, w in enumerate(fits.softmax(0))
                )
            )
        found[i] = layer.out(torch.cat(heads))
    return found


@torch.no_grad()
def test_an_encoder_with_syntax_positions_is_a_loop_over_pairs_of_words() -> None:
    encoder = Case(
        "transformer-encoder", AttendingEncoder, {"position": {"name": "syntax", "max_distance": 2}}
    ).make()
    assert isinstance(encoder, TransformerEncoder)
    assert encoder.needs_relation
    trees = torch.cat([tree(5), torch.randint(0, 4, (1, 5, 5))])
    tokens, lengths = SOURCE[:2], torch.tensor([5, 4])
    found = encoder(tokens, lengths, relation=trees)
    for b, length in enumerate(lengths.tolist()):
        x = encoder.embedding(tokens[b : b + 1, :length], torch.arange(length))[0]
        for block in encoder.encoder:
            x = x + shaw_loop(block.mixer, block.around_mixer.norm(x), trees[b, :length, :length])
            x = x + block.feedforward(block.around_feedforward.norm(x))
        torch.testing.assert_close(found[b, :length], encoder.encoder.norm(x))
    assert not torch.allclose(encoder(tokens, lengths, relation=trees.flip(0))[0], found[0])
    at = torch.tensor([[0, 3], [1, 2]])
    tagger = Tagger(encoder, 4).double()
    torch.testing.assert_close(tagger(tokens, lengths, at, trees)[1, 0], tagger.head(found[1, 1]))


def test_a_relation_is_asked_for_where_it_is_needed_alone() -> None:
    encoder = make(Encoder, "transformer-encoder", position="syntax")
    with raises("relation-missing"):
        encoder(SOURCE, LENGTHS)
    assert not any(PLAIN[family].make().needs_relation for family in PLAIN)
    usual = PLAIN["transformer"].make()
    torch.testing.assert_close(
        usual(SOURCE, LENGTHS, relation=tree(5).expand(3, -1, -1)), read(usual, SOURCE, LENGTHS)
    )


# --- mistakes


def test_mistakes_are_answered_with_sentences() -> None:
    for family in ("luong", "bahdanau"):
        with pytest.raises(
            SaccadeError,
            match=rf"model\.family is '{family}', which is not an encoder; choose one of: .*rnn-encoder.*transformer-enc",
        ):
            make(Encoder, family)
    with raises("vocabulary-differs"):
        MaskedModel(PLAIN["bag"].make(), 14)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"pool": "atention"}, "no pool named 'atention'; did you mean 'attention'?"),
        (
            {"pool": {"name": "attention", "score": "aditive"}},
            "no score named 'aditive'; did you mean 'additive'?",
        ),
        (
            {"pool": {"name": "attention", "score": 5}},
            "model.pool.score is 5; write a score's name",
        ),
        (
            {"pool": {"name": "attention", "score": {"name": "additive", "hiden": 5}}},
            "model.pool.score: score 'additive' has no option 'hiden'",
        ),
        (
            {"pool": {"name": "mean", "dim": 5}},
            "model.pool: pool 'mean' has no option 'dim'; there are none",
        ),
        (
            {"embedding": {"name": "characters-cnn", "word_dropout": 1}},
            "model.embedding.word_dropout is 1.0; it must lie between 0 and",
        ),
        (
            {"embedding": {"name": "tokens", "vocab": 5}},
            "model.embedding: embedding 'tokens' has no option 'vocab'",
        ),
        ({"hidden": 0}, "model.hidden is 0; it must lie between 1 and 65,536"),
    ],
)
def test_wrong_pools_and_embeddings_are_answered_with_sentences(
    chosen: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SaccadeError) as error:
        Builder({"family": "rnn-encoder", **chosen})
    assert str(error.value).startswith(sentence)


def test_a_pool_is_built_with_its_options() -> None:
    chosen = {
        "name": "attention",
        "score": {"name": "additive", "hidden": 5},
        "normalize": "sparsemax",
    }
    assert Builder({"family": "bag", "pool": chosen}).pool(128, V).mechanism.score.v.shape == (1, 5)
    assert isinstance(Builder({"family": "bag", "pool": "mean"}).pool(128, V), Mean)
