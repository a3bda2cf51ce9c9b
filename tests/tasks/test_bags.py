"""Bags of numbers: what is generated, and models that do not see the order of a bag."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.support import raises

from saccade import api
from saccade.config import recipes
from saccade.data.generated.bags import bags
from saccade.data.labeled import Labeled

SIZES = {"train": 200, "dev": 20, "test": 50}


def test_labels_are_the_largest_numbers() -> None:
    for one in itertools.chain(*bags(**SIZES).values()):
        numbers = [int(word) for word in one.text.split()]
        assert one.label == str(max(numbers))
        assert 3 <= len(numbers) <= 12


def test_no_bag_is_in_two_parts_and_only_those_of_train_and_dev_may_be_in_order() -> None:
    for ordered in (False, True):
        parts = bags(**SIZES, ordered=ordered)
        kept = {
            name: [sorted(map(int, one.text.split())) for one in part]
            for name, part in parts.items()
        }
        every = [tuple(numbers) for part in kept.values() for numbers in part]
        assert len(set(every)) == sum(SIZES.values())
        for name, part in parts.items():
            ascending = [
                one.text == " ".join(map(str, numbers))
                for one, numbers in zip(part, kept[name], strict=True)
            ]
            assert all(ascending) == (ordered and name != "test")
            assert sum(ascending) < len(part) / 4 or all(ascending)
    assert [one.label for one in bags(**SIZES)["test"]] == [
        one.label for one in bags(**SIZES, ordered=True)["test"]
    ]
    with raises("wrong-type", match="ordered is 'yes', expected true or false"):
        bags(ordered="yes")  # type: ignore[arg-type]


MODELS: dict[str, tuple[dict[str, Any], bool]] = {
    "deep-sets": ({"family": "bag", "dim": 8, "pool": "deep-sets"}, True),
    "attention": ({"family": "bag", "dim": 8, "pool": "attention"}, True),
    "rnn": ({"family": "rnn-encoder", "dim": 8, "hidden": 8, "depth": 1}, False),
}


@pytest.mark.parametrize("name", MODELS)
def test_no_order_changes_what_a_pool_of_a_bag_says(name: str) -> None:
    """All orders of a bag of four, in float64; the RNN, as a control, sees each of them."""
    model, invariant = MODELS[name]
    data = {"train": "bags:train", "options": SIZES}
    made = recipes.recipe(
        {"task": "classification", "data": data, "vocabulary": {"kind": "words"}, "model": model}
    )
    system = api.build(made, bags(**SIZES)["train"])
    system.model.double().eval()
    orders = [Labeled(" ".join(order), "9") for order in itertools.permutations("3579")]
    found = system.model(
        *system.task.batch(system.task.numbers(orders), torch.device("cpu")).inputs
    ).detach()
    apart = float((found - found[0]).abs().max())
    assert (apart < 1e-12) if invariant else (apart > 1e-3)
