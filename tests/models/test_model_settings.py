"""A recipe's `model`: what is set has an effect or is refused, defaults are written out, mistakes are answered with sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_helpers import NODES, SIZES, V, settings, vocabularies
from tests.support import raises
from torch import nn

from saccade import models
from saccade.errors import SaccadeError
from saccade.layers.convolution_mixers import LightConvolution
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.layers.token_inputs import Concatenate, Learned, NoPositionEmbedding, Sinusoidal
from saccade.models import AttendingEncoder, CarryingLM, CausalLM, Classifier, Encoder, Seq2Seq
from saccade.models.builder import RENAMED, Builder, complete

PLANS = [
    (entry.name, kind) for entry in models.table for kind in entry.make.builds if kind not in NODES
]


def sketch(kind: type[nn.Module], classifies: bool = False) -> Callable[[Builder], nn.Module]:
    """What a task builds: a model of a kind, or a classifier on it."""

    def build(builder: Builder) -> nn.Module:
        model = builder.make(kind, *vocabularies(kind))
        if not classifies:
            return model
        return Classifier(model, builder.pool(model.dim, V), 2, builder.dropout)

    return build


# --- an effect, or a sentence


@pytest.mark.parametrize(
    ("kind", "values", "wrong"),
    [
        (Seq2Seq, {"family": "transformer", "pool": "mean"}, "pool"),
        (CausalLM, {"family": "transformer-decoder", "pool": "mean"}, "pool"),
        (CausalLM, {"family": "transformer-decoder", "shared": True}, "shared"),
        (Encoder, {"family": "transformer-encoder", "shared": True}, "shared"),
        (Encoder, {"family": "transformer-encoder", "tied": False}, "tied"),
        (Encoder, {"family": "transformer-decoder", "head": "mixture"}, "head"),
        (Seq2Seq, {"family": "transformer", "residual": "rezero", "norm": "rms"}, "norm"),
        (
            Encoder,
            {"family": "transformer-encoder", "mixer": "light-convolution", "position": "rotary"},
            "position",
        ),
        (
            Encoder,
            {"family": "transformer-encoder", "mixer": "light-convolution", "mask": "causal"},
            "mask",
        ),
        (
            Encoder,
            {"family": "transformer-encoder", "mixer": "light-convolution", "kv_heads": 1},
            "kv_heads",
        ),
        (
            Encoder,
            {"family": "transformer-encoder", "mixer": "light-convolution", "score": "dot"},
            "score",
        ),
        (
            Encoder,
            {
                "family": "transformer-encoder",
                "mixer": "light-convolution",
                "attention_dropout": 0.1,
            },
            "attention_dropout",
        ),
        (
            Seq2Seq,
            {"family": "transformer", "mixer": "light-convolution", "mask": "causal"},
            "mask",
        ),
        (Encoder, {"family": "rnn-decoder", "change_penalty": 0.5}, "change_penalty"),
        (Encoder, {"family": "bag", "pool": "mean"}, "pool"),
    ],
    ids=lambda value: "" if isinstance(value, type) else str(value),
)
def test_a_setting_that_nothing_reads_is_refused(
    kind: type[nn.Module], values: dict[str, Any], wrong: str
) -> None:
    values = {**{k: v for k, v in SIZES.items() if k in settings(values["family"])}, **values}
    with pytest.raises(SaccadeError) as error:
        complete(values, sketch(kind))
    assert (
        str(error.value) == f"model.{wrong} has no effect on this {values['family']}; leave it out"
    )
    assert wrong not in complete(values, sketch(kind), strict=False)
    values.pop(wrong)
    assert wrong not in complete(values, sketch(kind))


def test_the_same_settings_have_an_effect_where_something_reads_them() -> None:
    for kind, values in (
        (
            Seq2Seq,
            {
                "family": "transformer",
                "residual": {"name": "rezero", "normed": True},
                "norm": "rms",
            },
        ),
        # cross-attention has them
        (
            Seq2Seq,
            {"family": "transformer", "mixer": "light-convolution", "kv_heads": 2, "score": "dot"},
        ),
        (Seq2Seq, {"family": "transformer", "shared": True, "tied": False, "head": "mixture"}),
    ):
        assert set(values) <= set(complete(values, sketch(kind)))
    made = complete({"family": "bag", "pool": "mean"}, sketch(Encoder, classifies=True))
    assert made == {
        "family": "bag",
        "dim": 128,
        "dropout": 0.1,
        "embedding": {"name": "tokens", "scale": None, "frozen": False},
        "pool": "mean",
    }


@pytest.mark.parametrize(
    ("family", "name", "sentence"),
    [
        ("bahdanau", "position", "no setting named 'model.position' for bahdanau"),
        ("luong", "mask", "no setting named 'model.mask' for luong"),
        ("fixed-first", "score", "no setting named 'model.score' for fixed-first"),
        ("bag", "hidden", "no setting named 'model.hidden' for bag"),
        ("transformer", "headss", "no setting named 'model.headss' for transformer; did you mean"),
        (
            "transformer",
            "dept",
            "no setting named 'model.dept' for transformer; did you mean 'depth'?",
        ),
    ],
)
def test_a_setting_that_a_family_does_not_have_is_named(
    family: str, name: str, sentence: str
) -> None:
    with pytest.raises(SaccadeError) as error:
        Builder({"family": family, name: "none"})
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("places", "it is called model.position_embedding"),
        ("words", "it is called model.embedding"),
        ("activation", "write model.feedforward.activation"),
        ("entry", "write model.position_embedding.join"),
        ("max_len", "write model.position_embedding={name: learned, max_len: …}"),
        ("token", "write model.pool=token"),
    ],
)
def test_an_old_name_is_answered_with_its_new_one(old: str, new: str) -> None:
    assert set(RENAMED) == {"places", "words", "activation", "entry", "max_len", "token"}
    with pytest.raises(SaccadeError) as error:
        Builder({"family": "transformer", old: "learned"})
    assert str(error.value) == f"no setting named 'model.{old}' for transformer; {new}"


# --- complete settings


@pytest.mark.parametrize(
    ("family", "kind"), PLANS, ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_complete_settings_hold_what_counts_and_come_back_as_themselves(
    family: str, kind: type[nn.Module]
) -> None:
    given = {
        "family": family,
        **{name: value for name, value in SIZES.items() if name in settings(family)},
    }
    made = complete(given, sketch(kind))
    assert complete(made, sketch(kind)) == made
    assert {**made, **given} == made
    assert set(made) <= {"family", *models.table[family].config.__dataclass_fields__}
    assert ("pool" in made) is False
    torch.manual_seed(0)
    one = Builder(given).make(kind, *vocabularies(kind))
    torch.manual_seed(0)
    other = Builder(made).make(kind, *vocabularies(kind))
    assert repr(one) == repr(other)
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name))


def test_options_are_written_out_and_come_back_as_themselves() -> None:
    chosen = {
        "name": "attention",
        "score": {"name": "additive", "hidden": 5, "layers": 1},
        "normalize": "sparsemax",
    }
    made = complete({"family": "bag", "pool": chosen}, sketch(Encoder, classifies=True))
    assert made["pool"] == chosen
    plain = complete({"family": "bag"}, sketch(Encoder, classifies=True))
    assert plain["pool"]["score"] == {"name": "additive", "hidden": None, "layers": 1}
    reader = {"name": "characters-rnn", "byte_dim": 32, "hidden": 64, "word_dropout": 0.0}
    made = complete(
        {"family": "transformer-encoder", "embedding": "characters-rnn"}, sketch(Encoder)
    )
    assert made["embedding"] == reader
    assert complete(made, sketch(Encoder)) == made
    made = complete(
        {
            "family": "transformer",
            "depth": 1,
            "feedforward": {"activation": {"name": "gelu", "tanh": True}},
        },
        sketch(Seq2Seq),
    )
    assert made["feedforward"] == {
        "name": "mlp",
        "activation": {"name": "gelu", "tanh": True},
        "bias": True,
    }


def test_a_sketch_takes_no_memory() -> None:
    seen = []

    def make(builder: Builder) -> nn.Module:
        seen.append(builder.make(Seq2Seq, V, V))
        return seen[0]

    complete({"family": "transformer", "depth": 1}, make)
    assert {parameter.device.type for parameter in seen[0].parameters()} == {"meta"}


def test_a_sketch_of_more_than_the_memory_is_refused() -> None:
    experts = {"name": "experts", "count": 4096}  # sizes whose product is small without them
    with raises("model-too-large"):
        complete({"family": "transformer", "hidden": 8192, "feedforward": experts}, sketch(Seq2Seq))


def test_options_of_attention_reach_cross_attention_too() -> None:
    model = Builder({"family": "transformer", "depth": 1, "mixer": {"bias": False}}).make(
        Seq2Seq, V, V
    )
    assert not [
        name
        for name, _ in model.named_parameters()
        if name.endswith((".q.bias", ".k.bias", ".v.bias", ".out.bias"))
    ]


# --- positions


@pytest.mark.parametrize(
    "position", ["rotary", "alibi", "t5", "shaw", {"name": "shaw", "max_distance": 3}], ids=str
)
def test_a_mechanism_that_knows_positions_has_none_at_the_input_unless_asked_for(
    position: Any,
) -> None:
    made = complete({"family": "transformer", "depth": 1, "position": position}, sketch(Seq2Seq))
    assert made["position_embedding"] == "none"
    asked = complete(
        {
            "family": "transformer",
            "depth": 1,
            "position": position,
            "position_embedding": "learned",
        },
        sketch(Seq2Seq),
    )
    assert asked["position_embedding"] == {"name": "learned", "max_len": 512, "join": "add"}
    model = Builder(settings("transformer", position=position)).make(Seq2Seq, V, V)
    assert isinstance(model.source.position, NoPositionEmbedding)


@pytest.mark.parametrize(
    "values", [{}, {"position": "none"}, {"position": {"name": "none"}}], ids=str
)
def test_without_one_positions_are_sinusoids_at_the_input(values: dict[str, Any]) -> None:
    made = complete({"family": "transformer", "depth": 1, **values}, sketch(Seq2Seq))
    assert (made["position"], made["position_embedding"]) == (
        "none",
        {"name": "sinusoidal", "join": "add"},
    )
    assert isinstance(
        Builder(settings("transformer", **values)).make(Encoder, V).embedding.position, Sinusoidal
    )


def test_options_without_a_name_are_those_of_the_default() -> None:
    model = Builder(settings("transformer", position_embedding={"join": "concatenate"})).make(
        Encoder, V
    )
    assert isinstance(model.embedding.position, Sinusoidal)
    assert isinstance(model.embedding.position.join, Concatenate)
    learned = {"name": "learned", "max_len": 7, "join": "concatenate"}
    model = Builder(settings("transformer", position_embedding=learned)).make(Encoder, V)
    assert isinstance(model.embedding.position, Learned)
    assert isinstance(model.embedding.position.join, Concatenate)


def test_a_mixer_replaces_self_attention_alone() -> None:
    model = Builder(settings("transformer", mixer={"name": "light-convolution", "width": 3})).make(
        Seq2Seq, V, V
    )
    for block in (*model.encoder, *model.decoder):
        assert isinstance(block.mixer, LightConvolution)
        assert (block.mixer.width, block.mixer.heads) == (3, 2)
    assert all(isinstance(block.cross, MultiHeadAttention) for block in model.decoder)


# --- kinds and sizes


@pytest.mark.parametrize(
    ("family", "kind", "sentence"),
    [
        ("bag", Seq2Seq, "model.family is 'bag', which is not an encoder–decoder; choose one of: "),
        (
            "luong",
            Encoder,
            "model.family is 'luong', which is not an encoder; choose one of: bag, window-mlp, rnn-encoder",
        ),
        (
            "transformer",
            CausalLM,
            "model.family is 'transformer', which is not a causal language model; choose one of: ",
        ),
        (
            "transformer-decoder",
            CarryingLM,
            "model.family is 'transformer-decoder', which is not a recurrent language model; choose",
        ),
        ("rnn-encoder", AttendingEncoder, "model.family is 'rnn-encoder', which is not an encoder"),
    ],
)
def test_a_family_that_cannot_build_a_kind_names_those_that_can(
    family: str, kind: type[nn.Module], sentence: str
) -> None:
    with pytest.raises(SaccadeError) as error:
        Builder({"family": family}).make(kind, V)
    assert str(error.value).startswith(sentence)
    able = str(error.value).rpartition(": ")[2].split(", ")
    assert able == [
        name for name in models.table.names() if models.table[name].build(kind) is not None
    ]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "model.family is None; choose one of: "),
        ({"family": 5}, "model.family is 5; choose one of: "),
        ({"family": "transformr"}, "no model named 'transformr'; did you mean 'transformer'?"),
        ({"family": "transformer", "dim": 0}, "model.dim is 0; it must lie between 1 and 65,536"),
        (
            {"family": "transformer", "depth": "six"},
            "model.depth is 'six'; it must be a whole number",
        ),
        (
            {"family": "transformer", "dropout": 1},
            "model.dropout is 1.0; it must lie between 0 and 0.99",
        ),
        ({"family": "transformer", "tied": "yes"}, "model.tied is 'yes'; it must be true or false"),
        (
            {"family": "transformer", "score": "aditive"},
            "no score named 'aditive'; did you mean 'additive'?",
        ),
        (
            {"family": "transformer", "mask": "padding"},
            "model.mask is 'padding', which is built per batch and cannot be set",
        ),
        (
            {"family": "transformer", "mask": "window"},
            "model.mask: mask 'window' needs left; write {name: window, left: …}",
        ),
        (
            {"family": "transformer", "stack": {"name": "shared", "group": 2}},
            "model.stack: stack 'shared' has no option 'group'",
        ),
        (
            {"family": "transformer", "stack": {"name": "plain", "depth": 2}},
            "model.stack: stack 'plain' has no option 'depth'",
        ),
        (
            {"family": "transformer", "mixer": {"name": "light-convolution", "width": 0}},
            "model.mixer.width is 0; it must lie",
        ),
        (
            {"family": "transformer", "mixer": {"name": "attention", "bias": "no"}},
            "model.mixer.bias is 'no'; it must be true",
        ),
    ],
)
def test_wrong_settings_are_answered_with_sentences(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SaccadeError) as error:
        Builder(values)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("transformer", Seq2Seq),
        ("transformer-decoder", CausalLM),
        ("bahdanau", Seq2Seq),
        ("rnn-decoder", CarryingLM),
    ],
)
def test_a_model_that_generates_cannot_read_bytes(family: str, kind: type[nn.Module]) -> None:
    with pytest.raises(
        SaccadeError,
        match=rf"model\.embedding reads a token's bytes, and this {family} generates token ids alone",
    ):
        Builder(settings(family, embedding="characters-cnn")).make(kind, *vocabularies(kind))


def test_sizes_beyond_this_machine_are_refused_before_they_are_made() -> None:
    builder = Builder({"family": "transformer", "dim": 65536, "hidden": 65536, "depth": 10})
    with raises("model-too-large"):
        builder.make(Seq2Seq, V, V)
    with raises("cannot-build"):
        Builder({"family": "bag"}).make(Encoder, -1)


def test_large_models_that_fit_are_built() -> None:
    # large enough to be measured first
    model = Builder({"family": "bag", "dim": 12000}).make(Encoder, 2)
    assert model.embedding.tokens.weight.device.type == "cpu"
