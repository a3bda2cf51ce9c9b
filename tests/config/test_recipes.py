"""Recipes: every key is checked, junk gives sentences and nothing else, and what is complete comes back as itself."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import raises

from saccade import models
from saccade.config import catalogue, index, recipes
from saccade.core import masks, normalizers, positions, scores
from saccade.errors import SaccadeError
from saccade.layers.multihead_attention import MultiHeadAttention
from saccade.recipe import DataRecipe, Recipe, TrainingRecipe, VocabularyRecipe, plain
from saccade.settings import UNIONS, WORDS

TINY: dict[str, Any] = {"family": "transformer", "dim": 8, "hidden": 8, "depth": 1, "heads": 2}
SECTIONS = {
    "": Recipe,
    "data": DataRecipe,
    "vocabulary": VocabularyRecipe,
    "training": TrainingRecipe,
}
KEYS = [
    f"{section}.{f.name}".strip(".")
    for section, kind in SECTIONS.items()
    for f in dataclasses.fields(kind)
]
MODEL_KEYS = ["family", *(f.name for f in dataclasses.fields(models.table["transformer"].config))]

TAGS: dict[str, Any] = {"task": "tagging", "model": {"family": "rnn-encoder"}}
STREAM: dict[str, Any] = {"task": "language-modelling", "model": {"family": "rnn-decoder"}}

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.dates()
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


def small(family: str, **more: Any) -> dict[str, Any]:
    """A family's smallest model."""
    shape = {"dim": 8, "hidden": 8, "depth": 2, "heads": 2, "lstm_width": 8, "decoder_depth": 2}
    wanted = {f.name for f in dataclasses.fields(models.table[family].config)}
    return {
        "family": family,
        **{name: size for name, size in shape.items() if name in wanted},
        **more,
    }


def nested(path: str, value: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {"model": TINY}
    *sections, last = path.split(".")
    inner = tree
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[last] = value
    return tree


TASKS = {  # a task for each kind of model
    models.Seq2Seq: ("translation", (9, 9)),
    models.CausalLM: ("language-modelling", (9,)),
    models.Encoder: ("classification", (9,)),
}


FAMILIES = [entry.name for entry in models.table if any(entry.make.build(kind) for kind in TASKS)]


def kind_of(family: str) -> type:
    return next(kind for kind in TASKS if models.table[family].build(kind))


def recipe_of(family: str, **more: Any) -> Recipe:
    """A recipe with a family's smallest model, for a task that needs it."""
    return recipes.recipe({"task": TASKS[kind_of(family)][0], "model": small(family, **more)})


def built(made: Recipe) -> torch.nn.Module:
    kind = kind_of(made.model["family"])
    return recipes.Builder(made.model).make(kind, *TASKS[kind][1])


def refusal(*args: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        recipes.recipe(*args)
    return str(error.value)


# --- values


@pytest.mark.parametrize("path", KEYS)
@settings(max_examples=40)
@given(value=junk)
def test_junk_under_any_key_is_accepted_or_refused(path: str, value: Any) -> None:
    try:
        made = recipes.recipe(nested(path, value))
    except SaccadeError:
        return
    assert recipes.recipe(made.to_dict()) == made
    assert json.loads(json.dumps(made.to_dict(), allow_nan=False)) == made.to_dict(), "strict JSON"


@pytest.mark.parametrize("key", MODEL_KEYS)
@settings(max_examples=40)
@given(
    value=junk
    | st.fixed_dictionaries(
        {"name": st.sampled_from([*scores.table.names(), *masks.table.names()]), "left": junk}
    )
)
def test_junk_in_the_model_is_accepted_or_refused(key: str, value: Any) -> None:
    with suppress(SaccadeError):
        made = recipes.recipe({"model": {**TINY, key: value}})
        assert recipes.recipe(made.to_dict()) == made
        if not isinstance(value, int) or value < 100:
            built(made)


@settings(max_examples=150)
@given(st.text(max_size=30) | junk.map(str))
def test_junk_on_the_command_line_is_accepted_or_refused(text: str) -> None:
    for word in (
        text,
        f"training.updates={text}",
        f"data.options={text}",
        f"{text}=1",
        f"model.score={text}",
    ):
        with suppress(SaccadeError):
            recipes.recipe({"model": TINY}, [word])


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("training.updates=lots", "training.updates is 'lots'; it must be a whole number"),
        ("training.log_every=0", "training.log_every is 0; it must lie between 1 and 1,000,000,000"),
        ("training.updates=1.5", "training.updates is 1.5; it must be a whole number"),
        ("training.updates=true", "training.updates is True; it must be a whole number"),
        ("training.learning_rate=.nan", "training.learning_rate is nan; it must be a finite number"),
        ("training.learning_rate=-1", "training.learning_rate is -1.0; it must lie between 0 and 100"),
        ("training.learning_rate=" + "1" * 400, "training.learning_rate is a whole number of 1326 bits; no setting is that large"),
        ("training.compile=1", "training.compile is 1; it must be true or false or auto"),
        ("training.precision=bf15", "training.precision is 'bf15'; did you mean 'bf16'?"),
        ("training.schedule=cosin", "no schedule named 'cosin'; did you mean 'cosine'?"),
        ("training.updatse=5", "no setting named 'training.updatse'; did you mean 'updates'?"),
        ("trainign.updates=5", "no setting named 'trainign'; did you mean 'training'?"),
        ("seed=2020-01-01", "seed is read as date (2020-01-01); put quotes around it if it is text"),
        ("seed=2020-99-99", "'seed=2020-99-99': the value cannot be read; put quotes around it"),
        ("seed=-1", "seed is -1; it must lie between 0 and 2,147,483,647"),
        ("data=train.tsv", "data is 'train.tsv'; write settings below it"),
        ("model.dim.x=1", "'model.dim.x=1': 'dim' is a value and has nothing inside it"),
        ("data.train.x=1", "data.train is {'x': 1}; it must be text"),
        ("data.options={train: .nan}", "data.options.train is nan; it must be a finite number"),
        ("data.options=5", "data.options is 5; it must be settings"),
        ("vocabulary.kind=word", "vocabulary.kind is 'word'; did you mean 'words'?"),
        ("updates", "expected key=value, such as training.updates=500, got 'updates'"),
        ("=5", "expected key=value, such as training.updates=500, got '=5'"),
        ("model.family=bahdanu", "no model named 'bahdanu'; did you mean 'bahdanau'?"),
        ("model.dim=1000000000000", "model.dim is 1000000000000; it must lie between 1 and 65,536"),
        ("model.dim=9", "model.dim=9 is not a multiple of model.heads=2; choose heads that divide it"),
        ("model.dropout=1", "model.dropout is 1.0; it must lie between 0 and 0.99"),
        ("model.dimm=9", "no setting named 'model.dimm' for transformer; did you mean 'dim'?"),
        ("model.score=aditive", "no score named 'aditive'; did you mean 'additive'?"),
        ("model.score=5", "model.score is 5; write a score's name, or {name: …, option: …}"),
        ("model.score={name: additive, hiden: 5}", "model.score: score 'additive' has no option 'hiden'; did you mean 'hidden'?"),
        ("model.score={name: additive, hidden: 1000000000000}", "model.score.hidden is 1000000000000; it must lie between 1 and 65,536"),
        ("model.score={name: cosine, sharpness: 0}", "model.score.sharpness is 0.0; it must lie between 1e-06 and 1e+06"),
        ("model.norm={name: layer, eps: 2}", "model.norm.eps is 2.0; it must lie between 0 and 1"),
        ("model.residual={name: pre-norm, eps: 2}", "model.residual: residual 'pre-norm' has no option 'eps'; there are none"),
        ("model.mask=window", "model.mask: mask 'window' needs left; write {name: window, left: …}"),
        ("model={family: 5}", "model.family is 5; choose one of: fixed-first, fixed-context"),
        ("model={}", "model.family is None; choose one of"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_with_its_rule(word: str, sentence: str) -> None:
    assert refusal({"model": TINY}, [word]).startswith(sentence)


@pytest.mark.parametrize("name", [entry.name for entry in masks.table if entry.per_batch])
def test_what_is_built_per_batch_is_refused(name: str) -> None:
    sentence = f"model.mask is '{name}', which is built per batch and cannot be set in a recipe; leave it out"
    assert refusal({"model": {**TINY, "mask": name}}) == sentence


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({**TAGS, "training": {"dev_bleu": True}}, "training.dev_bleu has no effect here: it is for task=captioning or open-questions"),
        ({**TAGS, "language": {"block": 64}}, "language has no effect here: it is for task=language-modelling"),
        ({"model": TINY, "data": {"column": "xpos"}}, "data.column has no effect here: it is for task=tagging"),
        ({"model": TINY, "data": {"dev": "a.tsv", "held_out": 0.1}}, "data.held_out has no effect here: it is for a recipe without"),
        ({"model": TINY, "data": {"options": {"train": 5}}}, "data.options has no effect here: it is for data such as phrasebook:train"),
        ({"model": TINY, "vocabulary": {"split": "punctuation"}}, "vocabulary.split has no effect here: it is for vocabulary.kind"),
        ({"model": TINY, "start_from": "x", "vocabulary": {"size": 99}}, "vocabulary.size has no effect here: it is for a recipe"),
        ({**STREAM, "language": {"span": 2.0}}, "language.span has no effect here: it is for language.objective=denoising"),
        ({**STREAM, "training": {"round_to": 8}}, "training.round_to has no effect here: it is for any task but autoencoding"),
        ({"model": {"family": "bahdanau", "position": "rotary"}}, "no setting named 'model.position' for bahdanau"),
        ({"model": {**TINY, "pool": "mean"}}, "model.pool has no effect on this transformer"),
        ({**STREAM, "model": {"family": "transformer-decoder", "shared": True}}, "model.shared has no effect on this transformer-d"),
        ({"model": {**TINY, "residual": "rezero", "norm": "rms"}}, "model.norm has no effect on this transformer"),
        ({"model": {**TINY, "mixer": "light-convolution", "position": "alibi"}}, "model.position has no effect on this"),
        ({"model": {"family": "transformer-decoder"}}, "model.family is 'transformer-decoder', which is not an encoder–decoder;"),
    ],
)  # fmt: skip
def test_a_setting_that_has_no_effect_is_refused(values: dict[str, Any], sentence: str) -> None:
    assert refusal(values).startswith(sentence)


def test_a_position_in_the_mechanism_leaves_no_sinusoid_behind() -> None:
    for name in positions.table.names():
        if not positions.table[name].needs_relation:
            found = recipe_of("transformer", position=name).model["position_embedding"]
            assert (found == "none") == (name != "none"), name
    tagger = recipes.recipe(
        {"task": "tagging", "model": small("transformer-encoder", position="syntax")}
    ).model
    assert tagger["position_embedding"]["name"] == "sinusoidal", (
        "a tree says nothing of the order of the words"
    )
    assert recipe_of("transformer", position="alibi", position_embedding="sinusoidal").model[
        "position_embedding"
    ] == {"name": "sinusoidal", "join": "add"}


def test_words_become_nested_values() -> None:
    words = [
        "training.updates=7",
        "training.learning_rate=1e-3",
        "data.options={train: 9}",
        'data.train="a=b.tsv"',
        "seed=3",
    ]
    made = recipes.recipe(
        {"model": TINY, "training": {"updates": 5, "clip": 2}}, [*words, "data.dev=phrasebook:dev"]
    )
    assert (made.training.updates, made.training.learning_rate, made.training.clip) == (
        7,
        0.001,
        2.0,
    )
    assert (made.data.options, made.data.train, made.seed) == ({"train": 9}, "a=b.tsv", 3)
    assert recipes.recipe(
        {"model": TINY}, ["model.score.name=additive", "model.score.hidden=4"]
    ).model["score"] == {"name": "additive", "hidden": 4, "layers": 1}
    with_option = recipes.recipe(
        {"model": {**TINY, "feedforward": "mlp"}}, ["model.feedforward.activation=gelu"]
    )
    assert with_option.model["feedforward"]["activation"] == {"name": "gelu", "tanh": False}


def test_what_is_passed_is_not_changed() -> None:
    tree = {"model": dict(TINY), "training": {"updates": 5}}
    before = json.dumps(tree)
    recipes.recipe(tree, ["training.updates=9", "model.dim=16"])
    assert json.dumps(tree) == before


def test_trees_without_end_are_refused() -> None:
    loop: dict[str, Any] = {}
    loop["data"] = loop
    wide: list[Any] = []
    for _ in range(9):
        wide = [wide] * 9  # a few lines of YAML with aliases
    for tree in (loop, {"data": wide}, {"data": [0] * 200_000}):
        with raises("too-large", match="has more than 100,000 values or 20 levels"):
            plain(tree)


# --- complete


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_with_its_defaults_comes_back_as_itself(family: str) -> None:
    made = recipe_of(family)
    assert set(made.model) >= {"family", "dim", "dropout", "embedding"}
    again = recipes.recipe(json.loads(json.dumps(made.to_dict())))
    assert again == made
    assert recipes.recipe(again.to_dict()) == again
    torch.manual_seed(0)
    one = built(made)
    torch.manual_seed(0)
    other = built(again)
    assert str(one) == str(other)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def everything() -> list[Any]:
    """family, key, value: every name that a recipe can choose, in two families of a kind, where their settings are the same class's."""
    found, tried = [], Counter[Any]()
    for family in (models.table.entry(name) for name in FAMILIES):
        for f in dataclasses.fields(family.make.config):
            for entry in f.metadata.get("table", ()):
                owner = next(
                    one
                    for one in reversed(family.make.config.__mro__)
                    if f.name in getattr(one, "__annotations__", ())
                )
                same = kind_of(family.name), owner, f.name, entry.name
                tried[same] += 1
                if not entry.per_batch and tried[same] <= 2:
                    value = {"name": entry.name, **entry.example} if entry.example else entry.name
                    found.append(
                        pytest.param(
                            family.name, f.name, value, id=f"{family.name}-{f.name}-{entry.name}"
                        )
                    )
    return found


def why_not(family: str, key: str, member: Any) -> str | None:
    """What is said where a family cannot have a member that others can."""
    kind = kind_of(family)
    use = {models.Seq2Seq: "pair", models.CausalLM: "causal", models.Encoder: "encoder"}[kind]
    if key not in recipe_of(family).model:
        return rf"model\.{key} has no effect on this {family}"
    if getattr(member, "reads_bytes", False) and kind is not models.Encoder:
        return "generates token ids alone"
    if not getattr(member, "causal", True) and kind is not models.Encoder:
        return rf"model\.{key}=.* sees a text as a whole"
    if getattr(member, "reads_token", False):
        return "only the family vit has"
    if use not in getattr(member, "uses", (use,)):
        return rf"model\.{key}=.* is not for"
    if getattr(member, "absolute", False) and models.table[family].build(models.CarryingLM):
        return "counts from a text's first token"
    return None


@pytest.mark.parametrize(("family", "key", "value"), everything())
def test_every_part_can_be_named_in_a_recipe(family: str, key: str, value: Any) -> None:
    slots = models.table[family].config.__dataclass_fields__
    member = slots[key].metadata["table"][value if isinstance(value, str) else value["name"]]
    more = (
        {"score": "elu-kernel"}
        if value == "sum"
        else {"normalize": "sum"}
        if getattr(member, "needs_sum", False)
        else {}
    )
    if more and "position" in slots:
        more["position"] = "none"  # a family's own may add a bias, which a sum does not take
    if (sentence := why_not(family, key, member)) is not None:
        with pytest.raises(SaccadeError, match=sentence):
            recipe_of(family, **{key: value})
        return
    # they need the parse trees of tagging data
    if isinstance(value, dict) and value["name"] in ("syntax", "depth", "edges"):
        with raises("relation-missing", match="parse trees"):
            recipe_of(family, **{key: value})
        made = recipes.recipe(
            {"task": "tagging", "model": small("transformer-encoder", **{key: value})}
        )
        assert made.model[key]["name"] == value["name"]
        return
    made = recipe_of(family, **{key: value, **more})
    assert recipes.recipe(made.to_dict()) == made
    chosen = made.model[key]
    assert (chosen if isinstance(chosen, str) else chosen["name"]) == (
        value if isinstance(value, str) else value["name"]
    )
    assert built(made) is not None


def test_a_named_part_is_the_part_that_is_built() -> None:
    chosen = {
        "score": {"name": "cosine", "sharpness": 3.0},
        "normalize": "sparsemax",
        "position": "alibi",
        "residual": "post-norm",
    }
    model = built(
        recipe_of(
            "transformer",
            **chosen,
            norm={"name": "rms", "eps": 0.5},
            feedforward={"activation": "gelu"},
        )
    )
    first = next(
        module.mechanism for module in model.modules() if isinstance(module, MultiHeadAttention)
    )
    assert isinstance(first.score, scores.Cosine)
    torch.testing.assert_close(
        first.score.log_sharpness.detach().exp().flatten(), torch.full((2,), 3.0)
    )
    assert isinstance(first.normalize, normalizers.Sparsemax)
    assert isinstance(first.position, positions.Alibi)
    text = str(model)
    assert "RMSNorm" in text
    assert "PostNorm" in text
    assert "Gelu" in text
    assert "LayerNorm" not in text


def test_the_precision_becomes_a_type() -> None:
    made = recipes.recipe(
        {
            "model": TINY,
            "training": {"schedule": "cosine", "precision": "bf16", "watch": "bleu", "clip": 3},
        }
    )
    assert (made.training.autocast, made.training.clip) == (torch.bfloat16, 3.0)
    assert recipes.recipe({"model": {"family": "bahdanau"}}).training.autocast is None


@pytest.mark.parametrize("name", ["gpu", "", "meta", "privateuseone", "cuda:x", "cpu cpu"])
def test_a_device_that_cannot_train_is_refused(name: str) -> None:
    with raises("unknown-device"):
        recipes.device(name)


def test_the_device_is_the_cpu_where_no_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert recipes.device("auto") == recipes.device("cpu") == torch.device("cpu")
    with raises(
        "device-missing", match="device is 'cuda', and no GPU is available; choose cpu or auto"
    ):
        recipes.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert recipes.device("cuda:1") == torch.device("cuda:1")
    with raises("device-missing", match="device is 'cuda:2', and there are 2 GPUs,"):
        recipes.device("cuda:2")


def test_a_mac_gpu_is_used_only_where_it_is_there_and_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with raises(
        "device-missing",
        match="device is 'mps', and this is not a Mac with a GPU that PyTorch can use; choose cpu",
    ):
        recipes.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert recipes.device("mps") == torch.device("mps")
    assert recipes.device("auto").type != "mps"


# --- the catalogue


@pytest.mark.parametrize("slot", catalogue.SLOTS)
def test_every_entry_has_a_name_of_its_own_and_says_what_it_is(slot: str) -> None:
    table = catalogue.SLOTS[slot]
    assert table.slot == slot
    assert len({name.lower() for name in table.names()}) == len(table) > 0
    for entry in table:
        assert len(entry.summary) >= 3, entry.name
        assert table.name_of(entry.make) == entry.name


def test_the_catalogue_is_searched_in_every_column() -> None:
    every = index.rows()
    assert len(every) == sum(map(len, catalogue.SLOTS.values()))
    assert {row["slot"] for row in every} == set(catalogue.SLOTS)
    for words in ("BAHDANAU", "2015", "before a step"):
        found = index.rows(where=words)
        assert ("models", "bahdanau") in {(row["slot"], row["name"]) for row in found}
        assert 0 < len(found) < len(every)
    assert [row["name"] for row in index.rows("scores")] == scores.table.names()
    assert index.rows(where="nothing like it") == []
    with raises("unknown-name", match=r"no slot named 'score'; did you mean 'scores'\?"):
        index.rows("score")


def test_every_type_of_a_setting_has_a_word() -> None:
    for kind in SECTIONS.values():
        for hint in typing.get_type_hints(kind).values():
            kinds = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
            for kind in kinds:
                known = kind in WORDS or typing.get_origin(kind) in (typing.Literal, *WORDS)
                assert dataclasses.is_dataclass(kind) or known, hint


def test_every_key_of_a_recipe_says_what_it_is_for() -> None:
    for section in SECTIONS.values():
        for f in dataclasses.fields(section):
            assert f.metadata.get("what") or f.name in (
                "data",
                "vocabulary",
                "language",
                "autoencoding",
                "model",
                "training",
            ), f.name
    for entry in models.table:
        for f in dataclasses.fields(entry.make.config):
            assert f.metadata.get("what") or "table" in f.metadata, f.name


def test_a_setting_of_nothing_is_empty_text() -> None:
    """So that what a recipe names can be left out from the command line."""
    values = {"data": {"train": "a.tsv", "dev": "b.tsv"}, "model": {"family": "bahdanau"}}
    assert recipes.recipe(values, ["data.dev="]).data.dev == ""
    with raises("wrong-type", match=r"training\.updates is ''"):
        recipes.recipe(values, ["training.updates="])


def test_a_model_that_is_written_out_is_not_built_again_to_be_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[object] = []
    complete = recipes.complete
    monkeypatch.setattr(recipes, "complete", lambda *given: built.append(given) or complete(*given))
    made = recipes.recipe({"model": {"family": "luong", "dim": 24, "hidden": 40}})
    assert len(built) == 1
    assert recipes.recipe(made.to_dict()) == made
    assert recipes.recipe(made.to_dict(), strict=False) == made
    assert len(built) == 1
    recipes.recipe(made.to_dict(), ["model.dim=48"])
    assert len(built) == 2, "another model is built"
