"""The dates: every text means its day, and no other, by the calendar and by parsers that know nothing of the forms."""

from __future__ import annotations

import hashlib
import re
from calendar import monthrange
from collections import Counter
from datetime import date, datetime, timedelta

import dateutil.parser
import pytest
from tests.support import raises

from saccade.data.generated import Dice
from saccade.data.generated.dates import (
    FIRST,
    FORMS,
    LAST,
    MAX_EXAMPLES,
    WORDS,
    Form,
    dates,
    roman,
    year_words,
)
from saccade.data.pairs import Pair

BY_PATTERN = {form.pattern: form for form in FORMS}
# a form and how the standard library reads it (locale C, English names)
STRPTIME = {
    "{d} {M} {y}": "%d %B %Y",
    "{M} {d}, {y}": "%B %d, %Y",
    "{d}.{m}.{y}": "%d.%m.%Y",
    "{d:02}.{m:02}.{y}": "%d.%m.%Y",
    "{d}. {m}. {y}": "%d. %m. %Y",
    "{y}/{m}/{d}": "%Y/%m/%d",
    "{y}/{m:02}/{d:02}": "%Y/%m/%d",
    "{y}{m:02}{d:02}": "%Y%m%d",
    "{d}-{M}-{y}": "%d-%B-%Y",
    "{d} {U} {y}": "%d %B %Y",
    "{L} {d} {y}": "%B %d %Y",
    "{y}, {M} {d}": "%Y, %B %d",
    "{y} {M} {d}": "%Y %B %d",
    "{W}, {d} {M} {y}": "%A, %d %B %Y",
    "{W}, {M} {d}, {y}": "%A, %B %d, %Y",
    "{W:.3} {d} {M} {y}": "%a %d %B %Y",
    "day {n} of {y}": "day %j of %Y",
    "{d} {M} A.D. {y}": "%d %B A.D. %Y",
}
DATEUTIL = [
    "{d} {M} {y}", "{M} {d}, {y}", "{D} {M} {y}", "{M} {D}, {y}", "the {D} of {M} {y}", "the {D} of {M}, {y}", "{d}.{m}.{y}",
    "{d:02}.{m:02}.{y}", "{y}/{m}/{d}", "{y}/{m:02}/{d:02}", "{y}{m:02}{d:02}", "{d}-{M}-{y}", "{d} {U} {y}", "{L} {d} {y}", "{d} {S} {y}",
    "{S} {d}, {y}",
    "{y} {M} {d}", "in {y}, on the {D} of {M}", "{W}, {d} {M} {y}", "{W}, {M} {d}, {y}", "{W:.3} {d} {M} {y}",
    "{W} the {D} of {M} {y}",
]  # fmt: skip


def days(form: Form, count: int) -> list[date]:
    dice = Dice(5)
    return [form.pick(dice) for _ in range(count)]


@pytest.fixture(scope="module")
def book() -> dict[str, list[Pair]]:
    return dates(train=6000, dev=300, test=500)


@pytest.mark.parametrize("name", STRPTIME)
def test_the_standard_library_reads_the_same_day(name: str) -> None:
    for day in days(BY_PATTERN[name], 200):
        assert datetime.strptime(BY_PATTERN[name].write(day), STRPTIME[name]).date() == day


@pytest.mark.parametrize("name", DATEUTIL)
def test_dateutil_reads_the_same_day(name: str) -> None:
    for day in days(BY_PATTERN[name], 60):
        text = BY_PATTERN[name].write(day)
        year_first = text[:4].isdigit()
        found = dateutil.parser.parse(
            text, dayfirst=not year_first, yearfirst=year_first, fuzzy=True
        )
        assert found.date() == day, text


def words_to_year(text: str) -> int:
    """ "nineteen ninety-eight" → 1998, by adding up; "oh" is nothing, and "two thousand and five" has its own way."""
    small = {
        "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
        "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
        "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
        "oh": 0, "and": 0, "hundred": 0,
    }  # fmt: skip
    if text.startswith("two thousand"):
        return 2000 + sum(small[word] for word in text.split()[2:])
    first, *rest = text.replace("-", " ").split()
    return 100 * small[first] + sum(small[word] for word in rest)


def test_numbers_in_words() -> None:
    assert [year_words(year) for year in (1700, 1805, 1998, 2000, 2005, 2010, 2099)] == [
        "seventeen hundred", "eighteen oh five", "nineteen ninety-eight", "two thousand", "two thousand and five", "twenty ten",
        "twenty ninety-nine",
    ]  # fmt: skip
    assert [words_to_year(year_words(year)) for year in range(1700, 2100)] == list(
        range(1700, 2100)
    )
    assert [WORDS["short ordinals"][n] for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 31)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "31st",
    ]  # fmt: skip
    assert [WORDS["ordinals"][n] for n in (1, 8, 12, 20, 21, 30, 31)] == [
        "first", "eighth", "twelfth", "twentieth", "twenty-first", "thirtieth", "thirty-first",
    ]  # fmt: skip
    assert len({WORDS["ordinals"][n] for n in range(1, 32)}) == 31


def test_roman_numbers_add_up() -> None:
    signs = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}

    def value(text: str) -> int:
        worth = [signs[sign] for sign in text]
        return sum(
            -here if here < after else here
            for here, after in zip(worth, [*worth[1:], 0], strict=True)
        )

    assert [value(roman(n)) for n in range(1700, 2100)] == list(range(1700, 2100))
    assert [value(roman(n)) for n in range(1, 13)] == list(range(1, 13))
    assert [roman(n) for n in (1998, 1944, 1700)] == ["MCMXCVIII", "MCMXLIV", "MDCC"]


@pytest.mark.parametrize(
    "name",
    [
        "the {spelled} of {M} {y}",
        "{M} the {spelled}, {y}",
        "on the {spelled} of {M} in {y}",
        "{d}.{R}.{y}",
        "{d} {R} {y}",
    ],
)
def test_spelled_and_roman_forms_by_a_reader_of_their_own(name: str) -> None:
    numbers = {WORDS["ordinals"][n]: n for n in range(1, 32)}
    for day in days(BY_PATTERN[name], 100):
        tokens = re.findall(r"[\w-]+", BY_PATTERN[name].write(day))
        year = next(int(token) for token in tokens if re.fullmatch(r"\d{4}", token))
        month = next(
            n for n in range(1, 13) if WORDS["months"][n - 1] in tokens or roman(n) in tokens
        )
        number = next(
            numbers.get(token) or int(token)
            for token in tokens
            if token in numbers or re.fullmatch(r"\d{1,2}", token)
        )
        assert date(year, month, number) == day


def test_the_days_of_a_month_that_a_calendar_finds() -> None:
    for day in days(BY_PATTERN["the last day of {M} {y}"], 100):
        assert day.day == monthrange(day.year, day.month)[1]
    for day in days(BY_PATTERN["the day before the last of {M} {y}"], 100):
        assert day.day == monthrange(day.year, day.month)[1] - 1
    for day in days(BY_PATTERN["leap day {y}"], 50):
        assert BY_PATTERN["leap day {y}"].write(day) == f"leap day {day.year}"
        assert monthrange(day.year, 2)[1] == day.day == 29


def test_weekdays_of_a_month_by_counting() -> None:
    form = BY_PATTERN["the {week} {W} in {M} {y}"]
    for day in days(form, 200):
        match = re.fullmatch(
            r"the (first|second|third|fourth) (\w+) in (\w+) (\d+)", form.write(day)
        )
        assert match
        which, weekday = (
            ["first", "second", "third", "fourth"].index(match[1]),
            WORDS["weekdays"].index(match[2]),
        )
        month = [date(int(match[4]), WORDS["months"].index(match[3]) + 1, n) for n in range(1, 29)]
        assert [here for here in month if here.weekday() == weekday][which] == day
    form = BY_PATTERN["the last {W} of {M} {y}"]
    for day in days(form, 200):
        weekday, month = WORDS["weekdays"][day.weekday()], WORDS["months"][day.month - 1]
        assert form.write(day) == f"the last {weekday} of {month} {day.year}"
        assert (day + timedelta(days=7)).month != day.month


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("the day before Christmas 1998", date(1999, 12, 24)),
        ("the day after New Year's Eve 1998", date(2000, 1, 1)),
        ("two days before New Year's Day 1998", date(1998, 12, 30)),
        ("a week after Halloween 1998", date(1999, 11, 7)),
    ],
)
def test_feasts_by_hand(text: str, day: date) -> None:
    assert BY_PATTERN[text.replace("1998", "{y}")].write(day) == text.replace("1998", "1999")


def test_the_day_before_and_after_by_hand() -> None:
    assert (
        BY_PATTERN["the day before {d} {M} {y}"].write(date(1999, 12, 31))
        == "the day before 1 January 2000"
    )
    assert (
        BY_PATTERN["the day after {d} {M} {y}"].write(date(2000, 2, 29))
        == "the day after 28 February 2000"
    )


def test_a_year_of_two_digits_is_decided_by_its_weekday() -> None:
    """Of 3 May '98 there are four in 1700–2099; their weekdays all differ."""
    form = BY_PATTERN["{W}, {d} {M} '{y2:02}"]
    assert form.write(date(1998, 5, 3)) == "Sunday, 3 May '98"
    for year in range(1700, 1800):
        for month, day in ((1, 1), (2, 28), (2, 29), (3, 1), (12, 31)):
            there = [
                date(y, month, day)
                for y in range(year, 2100, 100)
                if day <= monthrange(y, month)[1]
            ]
            assert len({form.write(one) for one in there}) == len(there)
    assert all(1950 <= day.year <= 2049 for day in days(form, 200))


def test_no_text_means_two_days() -> None:
    """Every form for every day it can write in ten years, a century's turn among them."""
    seen: dict[str, date] = {}
    years = (1700, 1752, 1799, 1800, 1904, 1950, 1999, 2000, 2001, 2098)
    for year in years:
        for n in range(366):
            day = date(year, 1, 1) + timedelta(days=n)
            for form in FORMS[:35]:
                if "{y2:02}" not in form.pattern or 1950 <= year <= 2049:
                    assert seen.setdefault(form.write(day), day) == day
    dice = Dice(1)
    for form in FORMS[35:]:
        for _ in range(150):
            day = form.pick(dice)
            assert seen.setdefault(form.write(day), day) == day, form.pattern


@pytest.mark.slow
def test_there_are_many_forms_and_each_is_drawn(book: dict[str, list[Pair]]) -> None:
    assert len(BY_PATTERN) == len(FORMS) == 46 + len(WORDS["feasts"]) * len(WORDS["around"])
    drawn = {(pair.source, pair.target) for part in book.values() for pair in part}
    made: Counter[str] = Counter()
    for source, target in drawn:
        for form in FORMS[:46]:
            if form.write(date.fromisoformat(target)) == source:
                made[form.pattern] += 1
    assert set(made) == {form.pattern for form in FORMS[:46]}
    assert any("Christmas" in source for source, _ in drawn)


def test_parts_share_no_text_and_no_day(book: dict[str, list[Pair]]) -> None:
    sources = [pair.source for part in book.values() for pair in part]
    assert len(set(sources)) == len(sources) == 6800
    train, dev, test = ({pair.target for pair in book[name]} for name in ("train", "dev", "test"))
    assert not train & dev
    assert not train & test
    assert not dev & test
    for part in book.values():
        assert [pair.line for pair in part] == list(range(1, len(part) + 1))
        assert all(FIRST <= date.fromisoformat(pair.target) <= LAST for pair in part)


def test_the_same_seed_gives_the_same_corpus_everywhere() -> None:
    made = dates(train=50, dev=5, test=20)
    content = "\n".join(f"{pair.source}\t{pair.target}" for part in made.values() for pair in part)
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == "f82986ef83099e00"
    assert dates(train=7, dev=0, test=20)["test"] == made["test"], (
        "the test part does not depend on the other sizes"
    )
    assert dates(train=50, dev=5, test=20, seed=1) != made


@pytest.mark.parametrize("dev", [-3, MAX_EXAMPLES + 1])
def test_what_cannot_be_made_is_refused(dev: int) -> None:
    rule = f"but 'dates' has parts of 0 or more examples, at most {MAX_EXAMPLES:,} in all; ask for fewer"
    with raises("out-of-range", match=f"^train=0, dev={dev}, test=0, {rule}$"):
        dates(train=0, dev=dev, test=0)
