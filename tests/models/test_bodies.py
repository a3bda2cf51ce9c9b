"""Bodies: what must hold for every one of the catalogue, and what stands on them: classifier, tagger, masked model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from saccade.layers.words import spell, words
from torch import Tensor, nn

from saccade import building, config, models
from saccade.core import record
from saccade.errors import SaccadeError
from saccade.layers.pooling import Mean, pools
from saccade.layers.recurrent import cells
from saccade.models import Classifier, Encoder, MaskedModel, Tagger
from saccade.training.checkpoints import learned, load_model, store

V, SMALL = 13, {"dim": 8, "hidden": 6, "depth": 2, "heads": 2}
FAMILIES = [entry.name for entry in models.table if entry.make.body is not None]
CAUSAL = {"transformer-decoder", "rnn-decoder"}
KINDS: dict[str, dict[str, Any]] = {
    name: {"family": name, "dropout": 0.0, **{f.name: SMALL[f.name] for f in dataclasses.fields(models.table[name].shape) if f.name in SMALL}}
    for name in FAMILIES
}  # fmt: skip
for name in FAMILIES:  # every cell and every word reader that a body can be made of
    slots = building.slots(models.table[name])
    for slot, table in (("cell", cells), ("words", words)):
        KINDS.update({f"{name} {one}": {**KINDS[name], slot: one} for one in table.names() if slot in slots})
each_kind = pytest.mark.parametrize("kind", sorted(KINDS))
TOKENS, LENGTHS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0], [7, 0, 0, 0, 0]]), torch.tensor([5, 3, 1])


def built(kind: str) -> Encoder:
    """A small body whose parameters are large enough for everything to matter."""
    body = config.build_body(config.complete_model(KINDS[kind]), V).eval()
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return body.double()


def for_body(body: Encoder, tokens: Tensor) -> Tensor:
    """The tokens as the body wants them: a token's bytes are those of its number in words."""
    if not body.embedding.reads_bytes:
        return tokens
    spelled = torch.tensor(spell([str(n) * (1 + n % 3) for n in range(V)]))
    return torch.cat([tokens.unsqueeze(-1), spelled[tokens]], -1)


def test_the_families_that_read_text_for_labels() -> None:
    assert set(FAMILIES) == {
        "transformer-encoder",
        "transformer-decoder",
        "transformer",
        "rnn-encoder",
        "rnn-decoder",
        "bag",
    }
    assert all("pool" in building.slots(models.table[name]) for name in FAMILIES)


@each_kind
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), more=st.integers(0, 3))
def test_padding_is_invisible_and_so_is_the_batch(kind: str, lengths: list[int], more: int) -> None:
    torch.manual_seed(0)
    body, sizes = built(kind), torch.tensor(lengths)
    tokens = torch.randint(0, V, (len(lengths), max(lengths) + more))  # padding is any token
    found = body(for_body(body, tokens), sizes)
    assert found.shape == (*tokens.shape, body.dim)
    for b, length in enumerate(lengths):
        alone = body(for_body(body, tokens[b : b + 1, :length]), sizes[b : b + 1])
        torch.testing.assert_close(found[b : b + 1, :length], alone)


@each_kind
def test_a_place_sees_its_own_token_and_those_its_family_lets_it_see(kind: str) -> None:
    body, family = built(kind), kind.split()[0]
    found = body(for_body(body, TOKENS), LENGTHS)
    for n in range(5):
        other = TOKENS.clone()
        other[0, n] = 8
        moved = ((body(for_body(body, other), LENGTHS) - found).abs().amax(-1) > 1e-9)[0].tolist()
        if family == "bag":
            assert moved == [m == n for m in range(5)]
        elif family in CAUSAL:
            assert moved == [m >= n for m in range(5)]
        else:
            assert all(moved)


@each_kind
def test_parameters_are_named_alike_and_all_of_them_learn(kind: str) -> None:
    body = built(kind)
    rooms = {name.split(".")[0] for name, _ in body.named_parameters()}
    assert rooms <= {"embedding", "encoder"} or rooms <= {"embedding", "decoder"}
    assert "embedding" in rooms
    body(for_body(body, TOKENS), LENGTHS)[:, 0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in body.parameters())


@pytest.mark.parametrize("family", sorted(CAUSAL))
def test_a_language_model_gives_its_body_by_name(family: str) -> None:
    settings = config.complete_model(KINDS[family])
    language, body = config.build_model(settings, V, V).eval(), config.build_body(settings, V).eval()
    taken = {name: value for name, value in language.state_dict().items() if not name.startswith("head.")}
    body.load_state_dict(taken)
    torch.testing.assert_close(body(TOKENS, LENGTHS), language.features(TOKENS))


# --- what stands on a body


@pytest.mark.parametrize("pool", pools.names())
@each_kind
def test_a_classifier_pools_what_the_body_reads(kind: str, pool: str) -> None:
    body = built(kind)
    settings = {**config.complete_model(KINDS[kind]), "pool": pool}
    model = Classifier(body, config.build_pool(settings, body.dim, V), 3, dropout=0.5).double().eval()
    model.pool.prepare([row[:n].tolist() for row, n in zip(TOKENS, LENGTHS, strict=True)])
    tokens = for_body(body, TOKENS)
    found, weights = model(tokens, LENGTHS), model.weights(tokens, LENGTHS)
    assert found.shape == (3, 3)
    assert (weights[torch.arange(5) >= LENGTHS[:, None]] == 0).all()
    pooled = (weights.unsqueeze(-1) * body(tokens, LENGTHS)).sum(1)
    torch.testing.assert_close(found, pooled @ model.head.weight.T + model.head.bias)
    for b, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(model(tokens[b : b + 1, :length], LENGTHS[b : b + 1]), found[b : b + 1])
    model(tokens, LENGTHS).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_record_sees_the_pool_of_a_classifier() -> None:
    body = built("bag")
    model = Classifier(body, config.build_pool(config.complete_model(KINDS["bag"]), body.dim, V).double(), 2).double()
    with record(model) as seen:
        model(TOKENS, LENGTHS)
    torch.testing.assert_close(seen["pool"].weights()[:, 0, 0], model.weights(TOKENS, LENGTHS))


@pytest.mark.parametrize("pool", pools.names())
def test_a_classifier_is_itself_after_it_was_saved_and_loaded(tmp_path: Path, pool: str) -> None:
    settings = config.complete_model({**KINDS["transformer"], "pool": pool, "shared": True})
    one, other = (Classifier(config.build_body(settings, V), config.build_pool(settings, 8, V), 3).eval() for _ in range(2))
    one.pool.prepare(TOKENS.tolist())
    store(learned(one), tmp_path / "model.safetensors")
    load_model(other, tmp_path / "model.safetensors")
    assert torch.equal(other(TOKENS, LENGTHS), one(TOKENS, LENGTHS))


@each_kind
def test_a_tagger_reads_where_words_begin(kind: str) -> None:
    body, at = built(kind), torch.tensor([[0, 2, 4], [1, 2, 0], [0, 0, 0]])
    model = Tagger(body, 4, dropout=0.5).double().eval()
    tokens = for_body(body, TOKENS)
    found, x = model(tokens, LENGTHS, at), body(tokens, LENGTHS)
    assert found.shape == (3, 3, 4)
    for b in range(3):
        for w in range(3):
            torch.testing.assert_close(found[b, w], model.head.weight @ x[b, at[b, w]] + model.head.bias)
    assert not torch.equal(model.train()(tokens, LENGTHS, at), found), "dropout"


@pytest.mark.parametrize("tied", [True, False])
@each_kind
def test_a_masked_model_is_berts_head_on_a_body(kind: str, tied: bool) -> None:
    body = built(kind)
    model = MaskedModel(body, V, tied).double().eval()
    tokens, head = for_body(body, TOKENS), model.head
    x = body(tokens, LENGTHS)
    between = nn.functional.layer_norm(
        nn.functional.gelu(x @ head.transform.weight.T + head.transform.bias), [8], head.norm.weight, head.norm.bias
    )
    expected = between @ head.weight.T + head.bias
    torch.testing.assert_close(model(tokens, LENGTHS), expected)
    assert (head.weight is body.embedding.tokens.weight) is tied
    at = torch.tensor([[4, 0], [2, 2], [0, 0]])
    torch.testing.assert_close(
        model(tokens, LENGTHS, at), expected.gather(1, at.unsqueeze(-1).expand(-1, -1, V)), msg="asked places"
    )


def test_mistakes_are_answered_with_sentences() -> None:
    for build in (lambda v: config.build_body(v, V), lambda v: config.build_pool(v, 8, V)):
        with pytest.raises(SaccadeError, match=r"model\.family is 'luong', which reads no text for labels"):
            build(config.complete_model({"family": "luong"}))
    with pytest.raises(SaccadeError, match=r"choose one of: .*rnn-encoder.*transformer-encoder"):
        config.build_body(config.complete_model({"family": "bahdanau"}), V)
    with pytest.raises(SaccadeError, match="a head for 14 tokens on a body that reads 13; give both one vocabulary"):
        MaskedModel(built("bag"), 14)
    with pytest.raises(SaccadeError, match=r"no rnn-encoder can be built with these settings"):
        config.build_body({**config.complete_model({"family": "rnn-encoder"}), "hidden": 0}, V)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"pool": "atention"}, "no pool named 'atention'; did you mean 'attention'?"),
        ({"pool": {"name": "attention", "score": "aditive"}}, "no score named 'aditive'; did you mean 'additive'?"),
        ({"pool": {"name": "attention", "score": 5}}, "model.pool.score is 5; write a score's name"),
        (
            {"pool": {"name": "attention", "score": {"name": "additive", "hiden": 5}}},
            "model.pool.score: score 'additive' has no option 'hiden'",
        ),
        ({"pool": {"name": "mean", "dim": 5}}, "model.pool: pool 'mean' has no option 'dim'; there are none"),
        ({"words": {"name": "characters-cnn", "word_dropout": 1}}, "model.words.word_dropout is 1.0; it must lie between 0 and"),
        ({"words": {"name": "embedding", "vocab": 5}}, "model.words: word reader 'embedding' has no option 'vocab'"),
    ],
)
def test_wrong_pools_and_word_readers_are_told(chosen: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        config.complete_model({"family": "rnn-encoder", **chosen})
    assert str(error.value).startswith(sentence)


def test_options_of_a_pool_are_complete_and_come_back_as_themselves() -> None:
    chosen = {"name": "attention", "score": {"name": "additive", "hidden": 5}, "normalize": "sparsemax"}
    made = config.complete_model({"family": "bag", "pool": chosen})
    assert made["pool"] == chosen
    assert config.complete_model(made) == made
    pool = config.build_pool(made, 128, V)
    assert pool.mechanism.score.v.shape == (1, 5)
    assert config.complete_model({"family": "bag"})["pool"]["score"] == {"name": "additive", "hidden": None}
    assert isinstance(config.build_pool({**made, "pool": "mean"}, V, 128), Mean)
    reader = {"name": "characters-rnn", "byte_dim": 32, "hidden": 64, "word_dropout": 0.0}
    made = config.complete_model({"family": "transformer-encoder", "words": "characters-rnn"})
    assert made["words"] == reader
    assert config.complete_model(made) == made
