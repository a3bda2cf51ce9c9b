"""The weather of a week: seven words in any order, each a day with its weather, tagged with the weather of the day after.

`rainy-monday` must attend to `…-tuesday`, and the word most similar to it is itself. No symmetric similarity s can find the day after for
all seven days. It needs s(monday, tuesday) > s(monday, sunday), s(tuesday, wednesday) > s(tuesday, monday) and so on around the week; with
s(a, b) = s(b, a) the chain closes at s(monday, tuesday) > s(monday, tuesday). `refers` has the place of the day after.
"""

from ..conllu import Sentence
from . import Dice, draw_parts, load_words

MAX_EXAMPLES = 200_000
WORDS = load_words("week")


class Forecaster(Dice):
    """Draws the seven days in any order, each with its weather."""

    def sentence(self, line: int) -> Sentence:
        order = self.shuffled(range(len(WORDS["days"])))
        weather = [self.pick(WORDS["weather"]) for _ in order]
        after = [(day + 1) % len(order) for day in order]
        words = tuple(f"{weather[day]}-{WORDS['days'][day]}" for day in order)
        tags = tuple(weather[day] for day in after)
        return Sentence(words, tags, line, None, tuple(map(order.index, after)))


def week(
    train: int = 4000, dev: int = 200, test: int = 500, seed: int = 0
) -> dict[str, list[Sentence]]:
    """The weather of seven days in any order, each tagged with that of the day after: attention to the most similar word fails."""
    return draw_parts("week", MAX_EXAMPLES, (train, dev, test), Forecaster(seed).sentence, "words")
