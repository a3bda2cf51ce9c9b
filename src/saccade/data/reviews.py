"""Reviews: short opinions on films, books, meals and more, each positive or negative by a small grammar, with no download.

What decides is order, not the count of good and bad words:
a clause's polarity is that of its word of opinion, turned by a word such as *not*, *never*, *hardly* or *anything but*;
`A , but B` is what B is, `although A , B` and `B , although A` are what B is, and A then says the opposite;
what others said (`critics called it dull`) counts for nothing; opinions in one review agree; the rest is small talk.
"""

from __future__ import annotations

from ..errors import SaccadeError
from . import review_words as words
from .dice import Dice, checked_sizes
from .labeled import Labeled

MOST = 200_000
TURNED = 0.08  # of the opinions that can be said either way; measured, so that a bag of words is right about five times in six
LABELS = ("negative", "positive")


class Reviewer(Dice):
    """Draws a review of one topic; every rule is handed the polarity it must come to."""

    topic: words.Topic

    def review(self, good: bool) -> str:
        """Small talk, one to three opinions, small talk: at least one sentence of opinion."""
        self.topic = self.pick(words.TOPICS)
        sentences = [self.opinion(good)]
        while len(sentences) < 3 and self.chance(0.5):
            sentences.append(self.opinion(good))
        for _ in range(2):
            if self.chance(0.35):
                sentences.insert(self.between(0, len(sentences)), self.pick((*self.topic.fillers, *words.SMALL_TALK)))
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
        said = self.pick(words.BAD if good else words.GOOD)
        return f"{self.pick(('critics', 'my friends', 'the papers'))} called it {said} , but {self.clause(good)}"

    def clause(self, good: bool) -> str:
        """One opinion: of a part or of the whole, by an adjective, a noun, a verb, or a word that depends on its noun."""
        return self.pick((*[self.part] * 6, *[self.whole, self.verb, self.noun] * 2, self.two_sided, self.roundabout))(good)

    def subject(self) -> tuple[str, bool]:
        """A part of what is reviewed, and whether it is plural."""
        part = self.pick((*self.topic.parts, self.topic.name))
        return f"the {part.removesuffix('+')}", part.endswith("+")

    def turned(self, good: bool) -> tuple[bool, bool]:
        """Whether to turn the opinion, and the polarity of the word that is then said."""
        turn = self.chance(TURNED)
        return turn, good != turn

    def part(self, good: bool) -> str:
        (subject, plural), (turn, said) = self.subject(), self.turned(good)
        verb = self.pick(("are", "were") if plural else ("is", "was"))
        adjective = self.pick(words.GOOD if said else words.BAD)
        if turn:
            return f"{subject} {verb} {self.pick(('not', 'never', 'hardly', 'anything but'))} {adjective}"
        return f"{subject} {verb} {self.intense()}{adjective}"

    def whole(self, good: bool) -> str:
        turn, said = self.turned(good)
        adjective = self.pick(words.GOOD if said else words.BAD)
        start = "it is not" if turn else self.pick(("it is", "this is", "what we got was"))
        return f"{start} {'an' if adjective[0] in 'aeiou' else 'a'} {adjective} {self.topic.name}"

    def verb(self, good: bool) -> str:
        (subject, _), (turn, said) = self.subject(), self.turned(good)
        verb = self.pick(words.LIKED if said else words.DISLIKED)
        if turn:
            return self.pick((f"i did not {words.PLAIN[verb]} {subject}", f"nobody at our table {verb} {subject}"))
        return f"{self.pick(('i', 'we', 'all of us'))} {verb} {subject}"

    def noun(self, good: bool) -> str:
        turn, said = self.turned(good)
        noun = self.pick(words.BEST if said else words.WORST)
        return f"the {self.topic.name} was {self.pick(('hardly', 'not', 'anything but')) + ' ' if turn else ''}a {noun}"

    def two_sided(self, good: bool) -> str:
        """The high quality, the low price; the low quality, the high price: only both words together tell."""
        turn, said = self.turned(good)
        word = self.pick(tuple(words.TWO_SIDED))
        good_of, bad_of = words.TWO_SIDED[word]
        return f"the {self.pick(good_of if said else bad_of)} was {'not ' if turn else self.intense()}{word}"

    def roundabout(self, good: bool) -> str:
        """Nothing about it is dull; an evening without a dull moment."""
        adjective = self.pick(words.BAD if good else words.GOOD)
        article = "an" if adjective[0] in "aeiou" else "a"
        ways = (f"nothing about the {self.topic.name} is {adjective}", f"it went by without {article} {adjective} moment")
        return self.pick(ways)

    def intense(self) -> str:
        return f"{self.pick(words.INTENSE)} " if self.chance(0.35) else ""


def reviews(train: int = 8000, dev: int = 500, test: int = 1000, seed: int = 0) -> dict[str, list[Labeled]]:
    """Opinions labeled positive or negative, half each, with negation and contrast, in three parts that share no text."""
    sizes = {"train": train, "dev": dev, "test": test}
    checked_sizes("reviews", "texts", sizes, MOST)
    reviewer = Reviewer(seed)
    seen: set[str] = set()
    parts: dict[str, list[Labeled]] = {name: [] for name in sizes}
    for name in ("test", "dev", "train"):  # the test part first, so that it does not depend on the other sizes
        while len(parts[name]) < sizes[name]:
            good = len(parts[name]) % 2 == 0
            text = reviewer.review(good)
            if text not in seen:
                seen.add(text)
                parts[name].append(Labeled(text, LABELS[good], len(parts[name]) + 1))
    return parts


def deciding_words(text: str) -> set[int]:
    """The places of the words that decide a review's label: words of opinion and what turns them, in the clauses that count."""
    tokens = text.split()
    opinions = {*words.GOOD, *words.BAD, *words.LIKED, *words.DISLIKED, *words.PLAIN.values(), *words.BEST, *words.WORST}
    nouns = {noun for sides in words.TWO_SIDED.values() for side in sides for noun in side}
    found: set[int] = set()
    start = 0
    for stop in (place for place, token in enumerate(tokens) if token == "."):
        counts = _deciding_clause(tokens, start, stop)
        opinion = {place for place in counts if tokens[place] in opinions}
        if not opinion:  # "long" also stands in small talk: it is an opinion only of a noun that it can be one of
            pair = {place for place in counts if tokens[place] in nouns}
            opinion = pair | {place for place in counts if tokens[place] in words.TWO_SIDED} if pair else set()
        if opinion:
            found |= opinion | {place for place in counts if tokens[place] in words.FLIPS}
        start = stop + 1
    if not found:
        raise SaccadeError(f"'{text[:60]}' has no word of opinion; give a text of the reviews")
    return found


def _deciding_clause(tokens: list[str], start: int, stop: int) -> range:
    """The part of a sentence that decides: after "but", or beside "although"."""
    sentence = tokens[start:stop]
    if "," not in sentence:
        return range(start, stop)
    comma = start + sentence.index(",")
    if sentence[0] == "although":
        return range(comma + 1, stop)
    return range(start, comma) if tokens[comma + 1] == "although" else range(comma + 2, stop)  # past "but"
