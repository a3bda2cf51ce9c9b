"""Dates: days as people write them and as ISO 8601 writes them. Each form writes text that only that day in 1700–2099 can mean.

`3.5.1998` is day.month.year and `1998/5/3` year/month/day; slashes with the year at the end are never written. A year of two
digits is written only for 1950–2049 and with its weekday, since the weekdays of one day and month in four centuries all differ.
"""

import re
from bisect import bisect
from calendar import isleap, monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate

from ..pairs import Pair
from . import Dice, draw_parts, load_words

MAX_EXAMPLES = 100_000
FIRST, LAST = date(1700, 1, 1), date(2099, 12, 31)
DAY = timedelta(days=1)
WORDS = load_words("dates")


def year_words(year: int) -> str:
    """ "nineteen ninety-eight", "nineteen oh five", "eighteen hundred", "two thousand and five", "twenty twelve"."""
    century, rest = divmod(year, 100)
    numbers = WORDS["numbers"]
    if century == 20 and rest < 10:
        return "two thousand" + (f" and {numbers[rest]}" if rest else "")
    return f"{numbers[century]} {numbers[rest] if rest >= 10 else f'oh {numbers[rest]}' if rest else 'hundred'}"


def roman(n: int) -> str:
    """MCMXCVIII"""
    out = ""
    for sign, value in WORDS["roman signs"].items():
        out += sign * (n // value)
        n %= value
    return out


@dataclass(frozen=True)
class Form:
    """One way to write a day: `pick` draws a day that can be written so; the text names the day `shift` days before it."""

    weight: float
    pattern: str
    pick: Callable[[Dice], date]
    shift: int = 0

    def write(self, day: date) -> str:
        day -= self.shift * DAY
        month = WORDS["months"][day.month - 1]
        weekday = WORDS["weekdays"][day.weekday()]
        short = WORDS["short ordinals"]
        numbers = {"d": day.day, "m": day.month, "y": day.year, "y2": day.year % 100}
        numbers |= {"n": day.timetuple().tm_yday}
        words = {"D": short[day.day], "N": short[day.month], "words": year_words(day.year)}
        words |= {"M": month, "U": month.upper(), "L": month.lower(), "W": weekday}
        words |= {"S": WORDS["short"][day.month - 1], "spelled": WORDS["ordinals"][day.day]}
        words |= {"X": roman(day.year), "R": roman(day.month)}
        words |= {"week": WORDS["ordinals"][(day.day + 6) // 7]}
        return self.pattern.format(**numbers, **words)


def pick_between(dice: Dice, first: date = FIRST, last: date = LAST) -> date:
    return first + DAY * dice.between(0, (last - first).days)


def pick_yearly(month: int, day: int, shift: int = 0, margin: int = 0) -> Callable[[Dice], date]:
    """Draws the year of a day that is in every year."""
    return lambda dice: (
        date(dice.between(FIRST.year + margin, LAST.year - margin), month, day) + shift * DAY
    )


def pick_leap_day(dice: Dice) -> date:
    year = dice.between(FIRST.year, LAST.year)
    return date(year, 2, 29) if isleap(year) else pick_leap_day(dice)


def end_of_month(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


PICKS: dict[str, Callable[[Dice], date]] = {
    "any": pick_between,
    "1950 to 2049": lambda dice: pick_between(dice, date(1950, 1, 1), date(2049, 12, 31)),
    "not at either end": lambda dice: pick_between(dice, FIRST + DAY, LAST - DAY),
    "first of month": lambda dice: pick_between(dice).replace(day=1),
    "last of month": lambda dice: end_of_month(pick_between(dice)),
    "second-to-last of month": lambda dice: end_of_month(pick_between(dice)) - DAY,
    "January 1": pick_yearly(1, 1),
    "December 31": pick_yearly(12, 31),
    "leap day": pick_leap_day,
    "first four weeks": lambda dice: pick_between(dice).replace(day=dice.between(1, 28)),
    "last week": lambda dice: end_of_month(pick_between(dice)) - DAY * dice.between(0, 6),
}
FORMS = (
    *(
        Form(weight, pattern, PICKS[rest[0] if rest else "any"], *rest[1:])
        for weight, pattern, *rest in WORDS["forms"]
    ),
    # the year written is that of the feast, not that of the day: the day after New Year's Eve 1999 is in 2000
    *(
        Form(
            0.1, around.format(f"{name} {{y}}"), pick_yearly(day[0], day[1], shift, margin=1), shift
        )
        for name, day in WORDS["feasts"].items()
        for around, shift in WORDS["around"].items()
    ),
)
# what names a day by its number among others: "the second Monday", "day 123"
CALENDAR = re.compile(r"\{week\}|last \{W\}|\{n\}")


def dates(
    train: int = 10_000, dev: int = 500, test: int = 1000, seed: int = 0, calendar: bool = True
) -> dict[str, list[Pair]]:
    """Days of 1700–2099 in about a hundred written forms → ISO 8601, in three parts that share no text and no day.

    `calendar=False` leaves out the three forms, 3 % of the texts, that can only be read with a calendar of that year.
    """
    dice = Dice(seed)
    forms = [form for form in FORMS if calendar or not CALENDAR.search(form.pattern)]
    shares = tuple(accumulate(form.weight for form in forms))

    def draw(line: int) -> Pair:
        form = forms[bisect(shares, dice.random() * shares[-1])]
        day = form.pick(dice)
        return Pair(form.write(day), day.isoformat(), line)

    return draw_parts("dates", MAX_EXAMPLES, (train, dev, test), draw, "source", "target")
