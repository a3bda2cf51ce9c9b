"""Dates: days as people write them and as ISO 8601 writes them, made when asked for, with no download.

`date_forms` says how a day can be written and read. A few forms need a calendar rather than a reader ("the first Monday in
March 2011", "day 123 of 1998"): about one text in thirty.
"""

from __future__ import annotations

from bisect import bisect
from datetime import date
from itertools import accumulate

from .date_forms import FORMS
from .dice import Dice, checked_sizes
from .pairs import Pair

MOST = 100_000
_SHARES = tuple(accumulate(form.weight for form in FORMS))


def draw(dice: Dice) -> tuple[str, date]:
    """A text and the day it means."""
    form = FORMS[bisect(_SHARES, dice.random() * _SHARES[-1])]
    day = form.pick(dice)
    return form.write(day), day


def dates(train: int = 10_000, dev: int = 500, test: int = 1000, seed: int = 0) -> dict[str, list[Pair]]:
    """Days of 1700–2099 in about a hundred written forms → ISO 8601, in three parts that share no text and no day."""
    sizes = {"train": train, "dev": dev, "test": test}
    checked_sizes("dates", "texts", sizes, MOST)
    dice = Dice(seed)
    seen: set[str] = set()
    taken: set[date] = set()  # days of the parts made so far
    parts: dict[str, list[Pair]] = {name: [] for name in sizes}
    for name in ("test", "dev", "train"):  # the test part first, so that it does not depend on the other sizes
        here: set[date] = set()
        while len(parts[name]) < sizes[name]:
            source, day = draw(dice)
            if source not in seen and day not in taken:
                seen.add(source)
                here.add(day)
                parts[name].append(Pair(source, day.isoformat(), len(parts[name]) + 1))
        taken |= here
    return parts
