"""The generated week: tags by a table written down here, and why similarity cannot find the day after."""

import random

import torch

from saccade.data.corpora import sentences
from saccade.layers.multihead_attention import PlainAttention

AFTER = {
    "monday": "tuesday",
    "tuesday": "wednesday",
    "wednesday": "thursday",
    "thursday": "friday",
    "friday": "saturday",
    "saturday": "sunday",
    "sunday": "monday",
}


def test_each_day_is_tagged_with_the_weather_of_the_day_after() -> None:
    orders = set()
    for one in sentences("week:train", {"train": 300, "dev": 1, "test": 1}):
        weather = {day: how for how, day in (word.split("-") for word in one.words)}
        days = [word.split("-")[1] for word in one.words]
        assert sorted(days) == sorted(AFTER)
        assert one.tags == tuple(weather[AFTER[day]] for day in days)
        assert one.refers is not None
        assert [days[at] for at in one.refers] == [AFTER[day] for day in days]
        orders.add(tuple(days))
    assert len(orders) > 250


def test_no_symmetric_similarity_finds_the_day_after_and_one_with_projections_does() -> None:
    dice = random.Random(0)
    after = [(day + 1) % 7 for day in range(7)]
    for _ in range(2000):
        similar = [[0.0] * 7 for _ in range(7)]
        for a in range(7):
            for b in range(a):
                similar[a][b] = similar[b][a] = dice.gauss(0, 1)
        # itself left out
        found = [max((b for b in range(7) if b != a), key=similar[a].__getitem__) for a in range(7)]
        assert found != after
    x, step = torch.eye(7), torch.eye(7).roll(1, 1)  # W_q = step, W_k = I
    assert ((x @ step) @ x.T).argmax(1).tolist() == after


def test_plain_attention_looks_most_at_the_word_itself() -> None:
    x = torch.nn.functional.normalize(
        torch.randn(1, 7, 16, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    layer = PlainAttention(16, heads=1)
    mixed = layer.mix(x, None, None)
    weights = torch.softmax(x[0] @ x[0].T / 16**0.5, -1)  # the default score divides by √D
    torch.testing.assert_close(mixed[0], weights @ x[0])
    assert weights.argmax(1).tolist() == list(range(7))
