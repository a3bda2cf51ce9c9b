"""How a date can be written in English: each form writes a day as text that only that day in 1700–2099 can mean.

Read as follows: `3.5.1998` is day.month.year and `1998/5/3` year/month/day; a roman month stands between day and year; a
year of two digits is written only for 1950–2049 and with its weekday, and the weekdays of one day and month in four
centuries all differ, so that the weekday alone decides. Slashes with the year at the end are written nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from .dice import Dice

FIRST_YEAR, LAST_YEAR = 1700, 2099
DAY = timedelta(days=1)
FIRST, LAST = date(FIRST_YEAR, 1, 1), date(LAST_YEAR, 12, 31)
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
SHORT = ("Jan.", "Feb.", "Mar.", "Apr.", "May", "June", "July", "Aug.", "Sept.", "Oct.", "Nov.", "Dec.")
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ORDINALS = (
    "zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth",
)  # fmt: skip
SIGNS = (
    ("M", 1000), ("CM", 900), ("D", 500), ("CD", 400), ("C", 100), ("XC", 90), ("L", 50), ("XL", 40), ("X", 10), ("IX", 9),
    ("V", 5), ("IV", 4), ("I", 1),
)  # fmt: skip
FEASTS = {
    "New Year's Day": (1, 1), "Epiphany": (1, 6), "Valentine's Day": (2, 14), "St. Patrick's Day": (3, 17),
    "April Fools' Day": (4, 1), "May Day": (5, 1), "Midsummer Day": (6, 24), "Bastille Day": (7, 14), "Halloween": (10, 31),
    "All Saints' Day": (11, 1), "Christmas Eve": (12, 24), "Christmas": (12, 25), "New Year's Eve": (12, 31),
}  # fmt: skip
AROUND = {"{}": 0, "the day before {}": -1, "the day after {}": 1, "two days before {}": -2, "a week after {}": 7}


# --- numbers in words ---------------------------------------------------------------------------------------------------


def number(n: int) -> str:
    """Below a hundred: "twenty-one"."""
    return SMALL[n] if n < 20 else TENS[n // 10] + (f"-{SMALL[n % 10]}" if n % 10 else "")


def spelled(n: int) -> str:
    """Up to 31: "twenty-first"."""
    if n <= 20:
        return ORDINALS[n]
    return "thirtieth" if n == 30 else f"{TENS[n // 10]}-{ORDINALS[n % 10]}"


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 112th."""
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def year_words(year: int) -> str:
    """ "nineteen ninety-eight", "nineteen oh five", "eighteen hundred", "two thousand and five", "twenty twelve"."""
    century, rest = divmod(year, 100)
    if century == 20 and rest < 10:
        return "two thousand" + (f" and {number(rest)}" if rest else "")
    return f"{number(century)} {number(rest) if rest >= 10 else f'oh {number(rest)}' if rest else 'hundred'}"


def roman(n: int) -> str:
    """MCMXCVIII"""
    out = ""
    for sign, value in SIGNS:
        out += sign * (n // value)
        n %= value
    return out


# --- forms ----------------------------------------------------------------------------------------------------------------


def any_day(dice: Dice) -> date:
    return FIRST + DAY * dice.between(0, (LAST - FIRST).days)


@dataclass(frozen=True)
class Form:
    """One way to write a day: `pick` draws a day that can be written so, and of a hundred texts about `weight` are."""

    name: str
    write: Callable[[date], str]
    weight: float = 2.0
    pick: Callable[[Dice], date] = any_day


def _month(day: date) -> str:
    return MONTHS[day.month - 1]


def _weekday(day: date) -> str:
    return WEEKDAYS[day.weekday()]


# d day, m month, y year; D ordinal, M month's name, Y year; W weekday; S short month, R roman month, X roman year
PATTERNS = {
    "3 May 1998": (5, "{d} {M} {y}"),
    "May 3, 1998": (5, "{M} {d}, {y}"),
    "3rd May 1998": (3, "{D} {M} {y}"),
    "May 3rd, 1998": (3, "{M} {D}, {y}"),
    "the 3rd of May 1998": (4, "the {D} of {M} {y}"),
    "the 3rd of May, 1998": (2, "the {D} of {M}, {y}"),
    "the third of May 1998": (4, "the {spelled} of {M} {y}"),
    "May the third, 1998": (2, "{M} the {spelled}, {y}"),
    "on the third of May in 1998": (2, "on the {spelled} of {M} in {y}"),
    "3.5.1998": (4, "{d}.{m}.{y}"),
    "03.05.1998": (3, "{d:02}.{m:02}.{y}"),
    "3. 5. 1998": (1, "{d}. {m}. {y}"),
    "1998/5/3": (3, "{y}/{m}/{d}"),
    "1998/05/03": (3, "{y}/{m:02}/{d:02}"),
    "19980503": (2, "{y}{m:02}{d:02}"),
    "3.V.1998": (3, "{d}.{R}.{y}"),
    "3 V 1998": (2, "{d} {R} {y}"),
    "3-May-1998": (2, "{d}-{M}-{y}"),
    "3 MAY 1998": (2, "{d} {U} {y}"),
    "may 3 1998": (2, "{L} {d} {y}"),
    "3 Sept. 1998": (3, "{d} {S} {y}"),
    "Sept. 3, 1998": (3, "{S} {d}, {y}"),
    "1998, May 3": (2, "{y}, {M} {d}"),
    "1998 May 3": (2, "{y} {M} {d}"),
    "in 1998, on the 3rd of May": (2, "in {y}, on the {D} of {M}"),
    "the 3rd day of the 5th month of 1998": (2, "the {D} day of the {N} month of {y}"),
    "Sunday, 3 May 1998": (3, "{W}, {d} {M} {y}"),
    "Sunday, May 3, 1998": (3, "{W}, {M} {d}, {y}"),
    "Sun 3 May 1998": (2, "{W:.3} {d} {M} {y}"),
    "Sunday the 3rd of May 1998": (2, "{W} the {D} of {M} {y}"),
    "3 May MCMXCVIII": (1, "{d} {M} {X}"),
    "the third of May nineteen ninety-eight": (3, "the {spelled} of {M} {words}"),
    "May 3, nineteen ninety-eight": (2, "{M} {d}, {words}"),
    "3 May A.D. 1998": (1, "{d} {M} A.D. {y}"),
}


def _parts(day: date) -> dict[str, object]:
    return {
        "d": day.day, "m": day.month, "y": day.year, "D": ordinal(day.day), "N": ordinal(day.month), "spelled": spelled(day.day),
        "M": _month(day), "U": _month(day).upper(), "L": _month(day).lower(), "S": SHORT[day.month - 1], "R": ROMAN[day.month - 1],
        "W": _weekday(day), "X": roman(day.year), "words": year_words(day.year),
    }  # fmt: skip


def _pattern(name: str, weight: float, pattern: str) -> Form:
    return Form(name, lambda day: pattern.format(**_parts(day)), weight)


def _two_digits(dice: Dice) -> date:
    first = date(1950, 1, 1)
    return first + DAY * dice.between(0, (date(2049, 12, 31) - first).days)


def _day_of_month(back: int) -> Callable[[Dice], date]:
    """The first day of a month (0), the last (-1), the second-to-last (-2)."""

    def pick(dice: Dice) -> date:
        day = any_day(dice).replace(day=1)
        return day if back == 0 else (day + 31 * DAY).replace(day=1) + back * DAY

    return pick


def _day_of_year(month: int, day: int) -> Callable[[Dice], date]:
    return lambda dice: date(dice.between(FIRST_YEAR, LAST_YEAR), month, day)


def _leap_day(dice: Dice) -> date:
    while True:
        year = dice.between(FIRST_YEAR, LAST_YEAR)
        if (year % 4 == 0 and year % 100 != 0) or year % 400 == 0:
            return date(year, 2, 29)


def _early(dice: Dice) -> date:
    """A day that is one of the first four of its weekday in the month."""
    return any_day(dice).replace(day=dice.between(1, 28))


def _late(dice: Dice) -> date:
    """A day that is the last of its weekday in the month."""
    return _day_of_month(-1)(dice) - DAY * dice.between(0, 6)


def _feast(name: str, place: tuple[int, int], around: str, days: int) -> Form:
    """The year written is that of the feast, not that of the day: the day after New Year's Eve 1999 is in 2000."""

    def pick(dice: Dice) -> date:
        return date(dice.between(FIRST_YEAR + 1, LAST_YEAR - 1), *place) + days * DAY

    return Form(around.format(f"{name} 1998"), lambda day: around.format(f"{name} {(day - days * DAY).year}"), 0.1, pick)


def _next_to(text: str, days: int) -> Form:
    def pick(dice: Dice) -> date:
        return FIRST + DAY * dice.between(1, (LAST - FIRST).days - 1)

    def write(day: date) -> str:
        other = day - days * DAY
        return f"{text} {other.day} {_month(other)} {other.year}"

    return Form(f"{text} 3 May 1998", write, 1, pick)


FORMS: tuple[Form, ...] = (
    *(_pattern(name, weight, pattern) for name, (weight, pattern) in PATTERNS.items()),
    Form("Sunday, 3 May '98", lambda day: f"{_weekday(day)}, {day.day} {_month(day)} '{day.year % 100:02}", 2, _two_digits),
    Form("the first day of May 1998", lambda day: f"the first day of {_month(day)} {day.year}", 1, _day_of_month(0)),
    Form("the last day of May 1998", lambda day: f"the last day of {_month(day)} {day.year}", 2, _day_of_month(-1)),
    Form(
        "the day before the last of May 1998",
        lambda day: f"the day before the last of {_month(day)} {day.year}",
        1,
        _day_of_month(-2),
    ),
    Form("the first day of 1998", lambda day: f"the first day of {day.year}", 0.5, _day_of_year(1, 1)),
    Form("the last day of 1998", lambda day: f"the last day of {day.year}", 0.5, _day_of_year(12, 31)),
    Form("leap day 1996", lambda day: f"leap day {day.year}", 0.3, _leap_day),
    Form(
        "the first Monday in May 1998",
        lambda day: f"the {ORDINALS[(day.day + 6) // 7]} {_weekday(day)} in {_month(day)} {day.year}",
        1.5,
        _early,
    ),
    Form("the last Friday of May 1998", lambda day: f"the last {_weekday(day)} of {_month(day)} {day.year}", 1, _late),
    Form("day 123 of 1998", lambda day: f"day {day.timetuple().tm_yday} of {day.year}", 1),
    _next_to("the day before", -1),
    _next_to("the day after", 1),
    *(_feast(name, place, around, days) for name, place in FEASTS.items() for around, days in AROUND.items()),
)
