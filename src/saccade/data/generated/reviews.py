"""Reviews: short opinions on films, books, meals and more, each positive or negative by a small grammar.

What decides is order, not the count of good and bad words:
a clause's polarity is that of its word of opinion, reversed by a word such as *not*, *never*, *hardly* or *anything but*;
`A , but B` is what B is, `although A , B` and `B , although A` are what B is, and A then says the opposite;
what others said (`critics called it dull`) counts for nothing; opinions in one review agree; the rest is small talk.
"""

import re
from typing import Any

from ..labeled import Labeled
from . import Dice, draw_parts, load_words

MAX_EXAMPLES = 200_000
REVERSED = 0.08  # of the opinions that can be said either way; measured, so that a bag of words is right about five times in six
LABELS = ("negative", "positive")
WORDS = load_words("reviews")


class Reviewer(Dice):
    """Draws a review of one topic by the rules of reviews.json; each takes the polarity it must come to."""

    topic: dict[str, Any]

    def review(self, good: bool) -> str:
        """Small talk, one to three opinions, small talk: at least one sentence of opinion."""
        self.topic = self.pick(WORDS["topics"])
        sentences = [self.opinion(good)]
        while len(sentences) < 3 and self.chance(0.5):
            sentences.append(self.opinion(good))
        for _ in range(2):
            if self.chance(0.35):
                at, small_talk = self.between(0, len(sentences)), WORDS["small_talk"]
                sentences.insert(at, self.pick((*self.topic["fillers"], *small_talk)))
        return " ".join(f"{sentence} ." for sentence in dict.fromkeys(sentences))

    def opinion(self, good: bool) -> str:
        """A clause, or two of which one decides."""
        draw = self.random()
        for share, pattern in WORDS["opinions"]:
            if draw < share:
                return re.sub("[+-]", lambda sign: self.clause(good == (sign[0] == "+")), pattern)
        said = self.pick(WORDS["bad" if good else "good"])
        return f"{self.pick(WORDS['others'])} called it {said} , but {self.clause(good)}"

    def clause(self, good: bool) -> str:
        """One opinion, `plain` or `reversed` by a word such as "not"; with two-sided words the thing decides: high quality, low price."""
        name = self.pick(WORDS["clauses"])
        rule = WORDS["rules"][name]
        parts = (*self.topic["parts"], self.topic["name"])
        part = self.pick(parts) if name in ("part", "verb") else ""
        reverse = self.chance(REVERSED) if rule["plain"] else True
        said = good != reverse
        forms = ("are", "were") if part.endswith("+") else ("is", "was")
        be = self.pick(forms) if name == "part" else ""
        word = self.pick(tuple(WORDS[rule["words"][said]]))
        thing = self.pick(WORDS["two_sided"][word][not said]) if name == "two_sided" else ""
        patterns = rule["reversed" if reverse else "plain"]
        pattern: str = self.pick(patterns) if len(patterns) > 1 else patterns[0]
        is_intense = "{intense}" in pattern and self.chance(0.35)
        intense = f"{self.pick(WORDS['intense'])} " if is_intense else ""
        words = {"subject": f"the {part.removesuffix('+')}", "be": be, "word": word, "thing": thing}
        words |= {"intense": intense, "name": self.topic["name"]}
        words |= {"plain": WORDS["plain"].get(word), "a": "an" if word[0] in "aeiou" else "a"}
        return pattern.format(**words)


def reviews(
    train: int = 8000, dev: int = 500, test: int = 1000, seed: int = 0
) -> dict[str, list[Labeled]]:
    """Opinions labeled positive or negative, half each, with negation and contrast, in three parts that share no text."""
    reviewer = Reviewer(seed)

    def draw(line: int) -> Labeled:
        return Labeled(reviewer.review(good=line % 2 == 1), LABELS[line % 2], line)

    return draw_parts("reviews", MAX_EXAMPLES, (train, dev, test), draw, "text")
