"""Reviews: short opinions on films, books, meals and more, each positive or negative by a small grammar.

What decides is order, not the count of good and bad words:
a clause's polarity is that of its word of opinion, reversed by a word such as *not*, *never*, *hardly* or *anything but*;
`A , but B` is what B is, `although A , B` and `B , although A` are what B is, and A then says the opposite;
what others said (`critics called it dull`) counts for nothing; opinions in one review agree; the rest is small talk.
"""

from __future__ import annotations

from typing import Any

from ..labeled import Labeled
from . import Dice, draw_parts, load_words

MOST = 200_000
REVERSED = 0.08  # of the opinions that can be said either way; measured, so that a bag of words is right about five times in six
LABELS = ("negative", "positive")
WORDS = load_words("reviews")


class Reviewer(Dice):
    """Draws a review of one topic; every rule takes the polarity it must come to."""

    topic: dict[str, Any]

    def review(self, good: bool) -> str:
        """Small talk, one to three opinions, small talk: at least one sentence of opinion."""
        self.topic = self.pick(WORDS["topics"])
        sentences = [self.opinion(good)]
        while len(sentences) < 3 and self.chance(0.5):
            sentences.append(self.opinion(good))
        for _ in range(2):
            if self.chance(0.35):
                sentences.insert(self.between(0, len(sentences)), self.pick((*self.topic["fillers"], *WORDS["small_talk"])))
        return " ".join(f"{sentence} ." for sentence in dict.fromkeys(sentences))

    def opinion(self, good: bool) -> str:
        """A clause, or two of which one decides."""
        draw = self.random()
        if draw < 0.87:
            return self.clause(good)
        if draw < 0.93:
            return f"{self.clause(not good)} , but {self.clause(good)}"
        if draw < 0.955:
            return f"although {self.clause(not good)} , {self.clause(good)}"
        if draw < 0.98:
            return f"{self.clause(good)} , although {self.clause(not good)}"
        said = self.pick(WORDS["bad" if good else "good"])
        return f"{self.pick(('critics', 'my friends', 'the papers'))} called it {said} , but {self.clause(good)}"

    def clause(self, good: bool) -> str:
        """One opinion: of a part or of the whole, by an adjective, a noun, a verb, or a word that depends on its noun."""
        return self.pick((*[self.part] * 6, *[self.whole, self.verb, self.noun] * 2, self.two_sided, self.roundabout))(good)

    def subject(self) -> tuple[str, bool]:
        """A part of what is reviewed, and whether it is plural."""
        part = self.pick((*self.topic["parts"], self.topic["name"]))
        return f"the {part.removesuffix('+')}", part.endswith("+")

    def reverse(self, good: bool) -> tuple[bool, bool]:
        """Whether to reverse the opinion, and the polarity of the word that is then said."""
        reverse = self.chance(REVERSED)
        return reverse, good != reverse

    def part(self, good: bool) -> str:
        (subject, plural), (reverse, said) = self.subject(), self.reverse(good)
        verb = self.pick(("are", "were") if plural else ("is", "was"))
        adjective = self.pick(WORDS["good" if said else "bad"])
        if reverse:
            return f"{subject} {verb} {self.pick(('not', 'never', 'hardly', 'anything but'))} {adjective}"
        return f"{subject} {verb} {self.intense()}{adjective}"

    def whole(self, good: bool) -> str:
        reverse, said = self.reverse(good)
        adjective = self.pick(WORDS["good" if said else "bad"])
        start = "it is not" if reverse else self.pick(("it is", "this is", "what we got was"))
        return f"{start} {with_article(adjective)} {self.topic['name']}"

    def verb(self, good: bool) -> str:
        (subject, _), (reverse, said) = self.subject(), self.reverse(good)
        verb = self.pick(WORDS["liked" if said else "disliked"])
        if reverse:
            return self.pick((f"i did not {WORDS['plain'][verb]} {subject}", f"nobody at our table {verb} {subject}"))
        return f"{self.pick(('i', 'we', 'all of us'))} {verb} {subject}"

    def noun(self, good: bool) -> str:
        reverse, said = self.reverse(good)
        noun = self.pick(WORDS["best" if said else "worst"])
        return f"the {self.topic['name']} was {self.pick(('hardly', 'not', 'anything but')) + ' ' if reverse else ''}a {noun}"

    def two_sided(self, good: bool) -> str:
        """The high quality, the low price; the low quality, the high price: only both words together decide."""
        reverse, said = self.reverse(good)
        word = self.pick(tuple(WORDS["two_sided"]))
        good_of, bad_of = WORDS["two_sided"][word]
        return f"the {self.pick(good_of if said else bad_of)} was {'not ' if reverse else self.intense()}{word}"

    def roundabout(self, good: bool) -> str:
        """Nothing about it is dull; an evening without a dull moment."""
        adjective = self.pick(WORDS["bad" if good else "good"])
        name, moment = self.topic["name"], f"{with_article(adjective)} moment"
        return self.pick((f"nothing about the {name} is {adjective}", f"it went by without {moment}"))

    def intense(self) -> str:
        return f"{self.pick(WORDS['intense'])} " if self.chance(0.35) else ""


def with_article(adjective: str) -> str:
    return f"{'an' if adjective[0] in 'aeiou' else 'a'} {adjective}"


def reviews(train: int = 8000, dev: int = 500, test: int = 1000, seed: int = 0) -> dict[str, list[Labeled]]:
    """Opinions labeled positive or negative, half each, with negation and contrast, in three parts that share no text."""
    reviewer = Reviewer(seed)

    def draw(line: int) -> tuple[str, str, Labeled]:
        good = line % 2 == 1
        text = reviewer.review(good)
        return text, text, Labeled(text, LABELS[good], line)

    return draw_parts("reviews", MOST, "texts", (train, dev, test), draw)
