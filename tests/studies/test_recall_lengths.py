"""Positions beyond the lengths of the training: which are measured, that learned tables refuse, and that a second run gives the same."""

from __future__ import annotations

import pytest
import torch
from tests.support import raises

from saccade.core import positions
from saccade.layers import token_inputs
from saccade.settings import options_of
from saccade.studies.tables import recall_lengths

SMALL = {"dim": 16, "hidden": 16, "depth": 1, "heads": 2}


def test_every_position_that_a_decoder_takes_has_a_row() -> None:
    rows = recall_lengths.every_position(32)
    trees = {
        entry.name
        for table in (positions.table, token_inputs.table)
        for entry in table
        if getattr(entry.make, "needs_relation", False)
    }
    assert trees == {"syntax", "depth", "edges"}
    assert set(rows) == {*positions.table.names(), *token_inputs.table.names()} - trees
    assert rows["none"] == {"position_embedding": {"name": "none"}}, "no positions at all"
    for name, settings in rows.items():
        [(key, part)] = settings.items()
        table = token_inputs.table if key == "position_embedding" else positions.table
        limited = options_of(table, table[name]).get("max_len")
        assert part.get("max_len") == (None if limited is None or limited.default is None else 32)


def test_accuracy_and_loss_at_each_length_and_the_same_again() -> None:
    settings = {**SMALL, **recall_lengths.every_position(16)["rotary"]}
    one, again, other = (
        recall_lengths.train_and_test(settings, 16, seed, updates=2) for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other
    assert one["error"] == ""
    for factor in ("1", "1.5", "2", "3", "4"):
        assert 0 <= one[f"recall_{factor}"] <= 100
        assert 0 < one[f"recall_loss_{factor}"] < 10
    more = recall_lengths.train_and_test(settings, 16, 0, updates=3)
    assert more["recall_loss_1"] != one["recall_loss_1"]


def test_a_learned_table_ends_and_the_row_says_so() -> None:
    found = recall_lengths.train_and_test(
        {**SMALL, **recall_lengths.every_position(16)["learned"]}, 16, updates=1
    )
    assert found["error"].startswith("position 23 is beyond the learned table of 16")
    assert found["recall_1"] is not None
    assert {found[f"{what}_{n}"] for what in ("recall", "recall_loss") for n in ("1.5", "4")} == {
        None
    }


def test_what_is_asked_of_a_model() -> None:
    chance = torch.Generator().manual_seed(0)
    tokens, target = recall_lengths.draw_random(3, 20, chance)
    assert tokens.unique().numel() <= recall_lengths.SYMBOLS
    for t in range(20):
        expected = (
            tokens[:, t - recall_lengths.BACK].tolist()
            if t >= recall_lengths.BACK
            else [recall_lengths.IGNORED] * 3
        )
        assert target[:, t].tolist() == expected
    with raises(
        "out-of-range",
        match="expected a length of at least 16 and an update, got 8 and 1; give more",
    ):
        recall_lengths.train_and_test(SMALL, 8, updates=1)


@pytest.mark.slow
def test_positions_are_learned_and_some_carry_beyond_the_training() -> None:
    rows, small = (
        recall_lengths.every_position(32),
        {"dim": 64, "hidden": 128, "depth": 2, "heads": 2},
    )
    rotary, none = (
        recall_lengths.train_and_test({**small, **rows[name]}, 32, 0, 150)
        for name in ("rotary", "none")
    )
    assert rotary["recall_1"] > 95
    assert rotary["recall_2"] > 80
    assert none["recall_1"] < 40
