"""Settings: names become choices and choices names again, ranges and types are kept, and every mistake has its sentence."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import raises
from torch import nn

from saccade import layers
from saccade.core import backends, masks, normalizers, positions, scores
from saccade.errors import SaccadeError
from saccade.layers import feedforward, norms, pooling, token_inputs
from saccade.registry import Table
from saccade.settings import (
    Choice,
    Later,
    Range,
    check,
    choose,
    fill,
    number,
    one_of,
    options_of,
    overrides,
    part,
    setting,
    spell,
    spell_all,
)


def every_table() -> list[Table[Any]]:
    """The tables of the core and of all layers whose members a recipe can choose."""
    modules = [
        importlib.import_module(f"saccade.layers.{found.name}")
        for found in pkgutil.iter_modules(layers.__path__)
    ]
    tables = {
        id(t): t
        for module in (scores, normalizers, masks, positions, *modules)
        for t in vars(module).values()
        if isinstance(t, Table)
    }
    return list(tables.values())


MEMBERS = [(table, entry) for table in every_table() for entry in table if not entry.per_batch]
each_member = pytest.mark.parametrize(
    ("table", "entry"), MEMBERS, ids=[f"{table.slot}/{entry.name}" for table, entry in MEMBERS]
)


# --- members of tables ---


@each_member
def test_every_member_is_chosen_by_its_name_and_written_back(table: Table[Any], entry: Any) -> None:
    chosen = choose(table, {"name": entry.name, **entry.example}, "model.part")
    assert chosen.make is entry.make
    assert chosen.options == entry.example
    written = spell(table, chosen)
    if options_of(table, entry.make):
        assert written["name"] == entry.name
        assert set(written) == {"name", *options_of(table, entry.make)}, (
            "every option is written out, defaults too"
        )
        assert all(written[key] == value for key, value in entry.example.items())
    else:
        assert written == entry.name
    again = choose(table, written, "model.part")
    assert again.make is entry.make
    assert spell(table, again) == written
    if not any(p.default is p.empty for p in options_of(table, entry.make).values()):
        assert spell(table, choose(table, entry.name, "model.part")) == spell(
            table, Choice(entry.make)
        )


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


OPTIONS = [
    pytest.param(
        table,
        entry,
        key,
        entry.example.get(key, parameter.default),
        id=f"{table.slot}/{entry.name}.{key}",
    )
    for table, entry in MEMBERS
    for key, parameter in options_of(table, entry.make).items()
]
NUMBERS = [pytest.param(*one.values[:3], id=one.id) for one in OPTIONS if is_number(one.values[3])]


@pytest.mark.parametrize(("table", "entry", "key", "default"), OPTIONS)
def test_every_option_of_a_member_has_a_type_and_refuses_others(
    table: Table[Any], entry: Any, key: str, default: Any
) -> None:
    with raises("wrong-type", match=rf"^model\.part\.{key} is "):
        choose(table, {"name": entry.name, **entry.example, key: ["x"]}, "model.part")


@pytest.mark.parametrize(("table", "entry", "key"), NUMBERS)
def test_every_number_of_a_member_has_a_range(table: Table[Any], entry: Any, key: str) -> None:
    with raises("out-of-range", match=rf"^model\.part\.{key} is .*; it must lie between .* and "):
        choose(table, {"name": entry.name, **entry.example, key: 10**18}, "model.part")


@pytest.mark.parametrize(
    "table", [t for t in every_table() if any(e.per_batch for e in t)], ids=lambda t: t.slot
)
def test_what_is_built_per_batch_cannot_be_chosen(table: Table[Any]) -> None:
    for entry in table:
        if entry.per_batch:
            with raises(
                "built-per-batch",
                match=rf"^model.mask is '{entry.name}', which is built per batch and cannot be set in a recipe; leave it out",
            ):
                choose(table, entry.name, "model.mask")


# --- choices ---


def test_a_choice_builds_from_its_options_and_the_facts_it_asks_for() -> None:
    made = Choice(scores.Additive, {"hidden": 7})(dim_q=3, dim_k=4, heads=2, dim=9, unknown="x")
    assert made.w_k.shape == (2, 4, 7)
    assert isinstance(Choice(masks.Causal)(dim=4), masks.Causal)


def test_a_fact_for_later_is_made_only_where_it_is_asked_for() -> None:
    made = []
    late = Later(lambda: made.append(1) or 2)
    Choice(scores.Dot)(heads=late)
    assert not made
    assert Choice(positions.Alibi)(heads=late).heads == 2
    assert made == [1]


def test_nested_parts_are_chosen_written_and_built() -> None:
    values = {
        "name": "attention",
        "score": {"name": "reduced-rank", "rank": 5},
        "normalize": "entmax-1.5",
    }
    chosen = choose(pooling.pools, values, "model.pool")
    assert chosen.options["score"] == Choice(scores.ReducedRank, {"rank": 5})
    assert spell(pooling.pools, chosen) == values
    pool = chosen(dim=4, vocab=9)
    assert pool.mechanism.score.u.shape == (1, 4, 5)
    assert isinstance(pool.mechanism.normalize, normalizers.Entmax15)
    default = spell(pooling.pools, choose(pooling.pools, "attention", "model.pool"))
    assert default == {
        "name": "attention",
        "score": {"name": "additive", "hidden": None, "layers": 1},
        "normalize": "softmax",
    }
    joined = choose(
        token_inputs.table,
        {"name": "sinusoidal", "join": "concatenate"},
        "model.position_embedding",
    )
    assert isinstance(joined(dim=4).join, token_inputs.joins["concatenate"])


def test_options_without_a_name_are_those_of_the_default() -> None:
    default = Choice(positions.T5Buckets, {"buckets": 16})
    assert choose(positions.table, {"max_distance": 99}, "x", default) == Choice(
        positions.T5Buckets, {"buckets": 16, "max_distance": 99}
    )
    assert choose(positions.table, {"buckets": 8}, "x", default) == Choice(
        positions.T5Buckets, {"buckets": 8}
    )
    assert choose(positions.table, {}, "x", default) == default
    assert choose(positions.table, "t5", "x", default) == Choice(positions.T5Buckets), (
        "a name alone has none of its options"
    )
    chosen = choose(pooling.pools, {"name": "attention", "score": {"hidden": 6}}, "model.pool")
    assert chosen.options["score"] == Choice(scores.Additive, {"hidden": 6}), (
        "also of a part within a part"
    )
    chosen = choose(
        feedforward.table, {"activation": "gelu"}, "model.feedforward", Choice(feedforward.MLP)
    )
    assert chosen.options["activation"].make is feedforward.Gelu


WRONG: list[tuple[Any, Callable[[], object], str]] = [
    (
        "a wrong name",
        lambda: choose(scores.table, "aditive", "model.score"),
        "no score named 'aditive'; did you mean 'additive'?",
    ),
    (
        "a number",
        lambda: choose(scores.table, 3, "model.score"),
        "model.score is 3; write a score's name, or {name: …, option: …}",
    ),
    (
        "a list",
        lambda: choose(norms.table, ["layer"], "model.norm"),
        "model.norm is ['layer']; write a norm's name, or {name: …, option: …}",
    ),
    (
        "no name",
        lambda: choose(scores.table, {"rank": 3}, "model.score"),
        "model.score is {'rank': 3}; write a score's name, or {name: …",
    ),
    (
        "a number for a name",
        lambda: choose(scores.table, {"name": 3}, "x"),
        "x is {'name': 3}; write a score's name, or {name: …",
    ),
    (
        "no such option",
        lambda: choose(scores.table, {"name": "reduced-rank", "ranks": 3}, "model.score"),
        "model.score: score 'reduced-rank' has no option 'ranks'; did you mean 'rank'?",
    ),
    (
        "a fact is not an option",
        lambda: choose(scores.table, {"name": "additive", "heads": 3}, "x"),
        "x: score 'additive' has no option 'heads'",
    ),
    (
        "no options",
        lambda: choose(scores.table, {"name": "dot", "rank": 3}, "x"),
        "x: score 'dot' has no option 'rank'; there are none",
    ),
    (
        "missing",
        lambda: choose(masks.table, "window", "model.mask"),
        "model.mask: mask 'window' needs left; write {name: window, left: …}",
    ),
    (
        "too large",
        lambda: choose(scores.table, {"name": "reduced-rank", "rank": 10**9}, "model.score"),
        "model.score.rank is 1000000000; it must lie between 1 and 65,536",
    ),
    (
        "too small",
        lambda: choose(norms.table, {"name": "layer", "eps": -1}, "n"),
        "n.eps is -1.0; it must lie between 0 and 1",
    ),
    (
        "no whole number",
        lambda: choose(masks.table, {"name": "window", "left": 1.5}, "m"),
        "m.left is 1.5; it must be a whole number",
    ),
    (
        "true for a number",
        lambda: choose(masks.table, {"name": "window", "left": True}, "m"),
        "m.left is True; it must be a whole number",
    ),
    (
        "text for nothing",
        lambda: choose(masks.table, {"name": "window", "left": 1, "right": "far"}, "m"),
        "m.right is 'far'; it must be a whole number or null",
    ),
    (
        "inside",
        lambda: choose(
            pooling.pools,
            {"name": "attention", "score": {"name": "cosine", "sharpness": 0}},
            "model.pool",
        ),
        "model.pool.score.sharpness is 0.0; it must lie between 1e-06 and 1e+06",
    ),
    (
        "a number for a part",
        lambda: choose(feedforward.table, {"name": "mlp", "activation": 3}, "f"),
        "f.activation is 3; write a",
    ),
]


@pytest.mark.parametrize(
    ("make", "sentence"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_a_wrong_choice_is_answered_with_a_sentence(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(SaccadeError) as raised:
        make()
    assert str(raised.value).startswith(sentence)


# --- dataclasses ---


@dataclass(frozen=True)
class Inner:
    rate: float = number(0.1, 0.0, 1.0, "a share")


@dataclass(frozen=True)
class Settings:
    size: int = number(4, 1, 100, "how many")
    limit: int | None = number(None, 1, 10, "at most")
    kind: str = one_of(("small", "large"), "which")
    loud: bool = setting(False, "whether")
    note: str | None = setting(None, "any text")
    words: list[int] = field(default_factory=list)
    score: Choice = part(scores.table, scores.ScaledDot, "how to compare")
    inner: Inner = field(default_factory=Inner)


def test_settings_are_filled_from_nested_values_and_written_back() -> None:
    values = {
        "size": 7,
        "kind": "large",
        "score": {"name": "additive", "hidden": 3},
        "inner": {"rate": 0.5},
        "words": [3],
    }
    made = fill(Settings, values, "")
    assert made == Settings(
        7, None, "large", False, None, [3], Choice(scores.Additive, {"hidden": 3}), Inner(0.5)
    )
    written = spell_all(made)
    assert written["score"] == {"name": "additive", "hidden": 3, "layers": 1}
    assert (written["size"], written["limit"]) == (7, None)
    assert fill(Settings, {}, "") == Settings()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"sise": 3}, "no setting named 'sise'; did you mean 'size'?"),
        ({"inner": {"rat": 3}}, "no setting named 'inner.rat'; did you mean 'rate'?"),
        ({"inner": 3}, "inner is 3; write settings below it"),
        (3, "the recipe is 3; write settings below it"),
        ({"size": 0}, "size is 0; it must lie between 1 and 100"),
        ({"size": "many"}, "size is 'many'; it must be a whole number"),
        ({"size": None}, "size is None; it must be a whole number"),
        ({"size": float("nan")}, "size is nan; it must be a whole number"),
        ({"limit": 11}, "limit is 11; it must lie between 1 and 10"),
        ({"kind": "smal"}, "kind is 'smal'; did you mean 'small'?"),
        ({"kind": 3}, "kind is 3; it must be text"),
        ({"loud": "yes"}, "loud is 'yes'; it must be true or false"),
        ({"loud": 1}, "loud is 1; it must be true or false"),
        ({"words": "a"}, "words is 'a'; it must be a list"),
        ({"words": ["a"]}, "words is ['a']; it must be a list of whole numbers"),
        ({"inner": {"rate": float("inf")}}, "inner.rate is inf; it must be a finite number"),
        ({"inner": {"rate": "nan"}}, "inner.rate is nan; it must be a finite number"),
        ({"inner": {"rate": True}}, "inner.rate is True; it must be a number"),
        ({"score": "dots"}, "no score named 'dots'; did you mean 'dot'?"),
    ],
    ids=str,
)
def test_wrong_settings_are_answered_with_a_sentence(values: Any, sentence: str) -> None:
    with pytest.raises(SaccadeError) as raised:
        fill(Settings, values, "")
    assert str(raised.value).startswith(sentence)


def test_a_number_too_large_for_a_float_is_answered_with_a_sentence() -> None:
    with raises("wrong-type", match=r"^rate is 10000.*; it must be a number$"):
        fill(Inner, {"rate": 10**400}, "")


@pytest.mark.parametrize(("written", "meant"), [("1e1", 10), (10.0, 10), ("10", 10), (10, 10)])
def test_whole_numbers_may_be_written_as_people_do(written: Any, meant: int) -> None:
    found = fill(Settings, {"size": written}, "").size
    assert (found, type(found)) == (meant, int)


@pytest.mark.parametrize(("written", "meant"), [("1e-3", 0.001), (0, 0.0), (1, 1.0), ("0.5", 0.5)])
def test_numbers_may_be_written_as_people_do(written: Any, meant: float) -> None:
    found = fill(Inner, {"rate": written}, "").rate
    assert (found, type(found)) == (meant, float)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    ["size", "limit", "kind", "loud", "note", "words", "score", "inner", "other"]
)


@given(values=st.dictionaries(keys, anything, max_size=4))
def test_whatever_is_written_gives_settings_or_a_sentence(values: dict[str, Any]) -> None:
    with contextlib.suppress(SaccadeError):
        made = fill(Settings, values, "")
        assert isinstance(made.size, int)
        assert isinstance(made.inner.rate, float)
        assert isinstance(made.score, Choice)


@given(low=st.integers(-100, 100), width=st.integers(0, 50), value=st.integers(-200, 200))
def test_a_range_holds_both_of_its_ends(low: int, width: int, value: int) -> None:
    rules = {"range": Range(low, low + width)}
    if low <= value <= low + width:
        assert check(value, int, rules, "x") == value
    else:
        with raises(
            "out-of-range",
            match=rf"^x is {value}; it must lie between {low:,} and {low + width:,}$",
        ):
            check(value, int, rules, "x")


# --- tables and overriding ---


def test_a_table_of_ones_own_with_a_member_that_has_parts() -> None:
    table: Table[Any] = Table("things", "thing", facts=("dim",))
    other = Choice(scores.Cosine, {"sharpness": 3.0})

    @table.add("one", paper="A 2020", example={"size": 2})
    class One:
        """The one."""

        def __init__(
            self,
            dim: int,
            size: Annotated[int, Range(1, 5)],
            score: Annotated[Choice, scores.table] = other,
        ) -> None:
            self.dim, self.size, self.score = dim, size, score(heads=1)

    chosen = choose(table, {"name": "one", "size": 2, "score": {"sharpness": 4}}, "model.thing")
    assert spell(table, chosen) == {
        "name": "one",
        "size": 2,
        "score": {"name": "cosine", "sharpness": 4.0},
    }
    assert (chosen(dim=3).dim, chosen(dim=3).size) == (3, 2)
    assert spell(table, Choice(One, {"size": 1})) == {
        "name": "one",
        "size": 1,
        "score": {"name": "cosine", "sharpness": 3.0},
    }
    assert (
        table.names(),
        len(table),
        "one" in table,
        table.name_of(One),
        table.name_of(One(1, 1)),
    ) == (["one"], 1, True, "one", "one")
    assert (table.name_of(Inner), table.entry("one").summary, table.entry("one").paper) == (
        "type",
        "The one.",
        "A 2020",
    )
    with raises("unknown-name", match="no thing named 'two'; there are: one"):
        table["two"]


def test_a_function_can_be_a_member_too() -> None:
    table: Table[Any] = Table("makers", "maker", facts=("dim",))

    @table.add("line")
    def line(dim: int, bias: bool = True) -> nn.Module:
        """A line."""
        return nn.Linear(dim, dim, bias)

    assert spell(table, choose(table, {"name": "line", "bias": False}, "x")) == {
        "name": "line",
        "bias": False,
    }
    assert choose(table, {"name": "line", "bias": False}, "x")(dim=3, heads=2).bias is None


def test_what_is_overridden_is_noticed_in_a_subclass_and_on_an_object() -> None:
    class Mine(positions.Alibi):
        def bias(self, *args: Any) -> Any:
            return None

    plain, changed = positions.Alibi(2), positions.Alibi(2)
    changed.bias = lambda *args: None  # type: ignore[method-assign]
    assert not overrides(plain, "bias", positions.Alibi)
    assert overrides(plain, "bias", positions.Position)
    assert overrides(Mine(2), "bias", positions.Alibi)
    assert overrides(changed, "bias", positions.Alibi)


def test_backends_are_objects_in_a_table_like_any_other() -> None:
    assert backends.table.name_of(backends.table["sdpa"]) == "sdpa"
