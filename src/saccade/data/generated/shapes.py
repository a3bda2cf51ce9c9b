"""Shapes: small pictures of one to four colored shapes on a noisy ground, with a caption, questions, a label, and where each object is.

No two objects of a picture have the same color. The caption names the two whose colors come first in the rainbow (red, orange,
yellow, green, cyan, blue, purple), in that order: "a small red circle above a large blue square". Objects may hide parts of each
other, at most 30% of one. For labels one object is large, and its shape is the label. All geometry is in whole numbers.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import SaccadeError
from ..image_examples import Asked, Captioned, Named, Picture, Pictured
from . import Dice, draw_parts, load_words

if TYPE_CHECKING:
    from torch import Tensor

MAX_EXAMPLES, MIN_PIXELS, MAX_PIXELS = 1_000_000, 32, 128
VISIBLE_PERCENT = 70  # percent of each object
NOISE_LEVELS = 32  # brightness that a pixel may vary by; a power of two
WORDS = load_words("shapes")
COLORS, SHAPES = tuple(WORDS["colors"]), tuple(WORDS["shapes"])
SMALL_SIDES, LARGE_SIDES = (12, 15), (23, 27)  # sides in 64ths of the picture


class Thing(NamedTuple):
    """One object: its kind, its color as drawn, and the square it fills, by its corner and side."""

    shape: str
    color: str
    large: bool
    shade: tuple[int, int, int]
    x: int
    y: int
    side: int

    @property
    def size(self) -> str:
        return str(WORDS["sizes"][self.large])

    @property
    def words(self) -> str:
        return f"{self.size} {self.color} {self.shape}"


@lru_cache(maxsize=1024)
def outline(shape: str, side: int) -> NDArray[np.bool_]:
    """The pixels of a shape in a square of that side: those whose middle is inside, by whole numbers alone."""
    # from -1000 to 1000, times the side
    middles = 1000 * (2 * np.arange(side, dtype=np.int64) - side + 1)
    u, v = middles[None, :], middles[:, None]
    corners = [(x * side, y * side) for x, y in WORDS["shapes"][shape]]
    if not corners:
        return u * u + v * v <= (1000 * side) ** 2
    inside = np.zeros((side, side), dtype=bool)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if y0 != y1:  # a ray to the right crosses the edge
            crosses = (y0 <= v) != (y1 <= v)
            inside ^= crosses & (((u - x0) * (y1 - y0) < (v - y0) * (x1 - x0)) == (y1 > y0))
    return inside


def owners(things: tuple[Thing, ...], size: int) -> NDArray[np.uint8]:
    """Which object each pixel shows, from 1; 0 is the ground. Later ones lie over earlier ones."""
    found = np.zeros((size, size), dtype=np.uint8)
    for n, one in enumerate(things, 1):
        found[one.y : one.y + one.side, one.x : one.x + one.side][outline(one.shape, one.side)] = n
    return found


def relation(one: Thing, other: Thing, size: int) -> str | None:
    """Where one object is, seen from another; None where it is about as far to the side as up or down."""
    dx = 2 * (one.x - other.x) + one.side - other.side
    dy = 2 * (one.y - other.y) + one.side - other.side
    if abs(abs(dx) - abs(dy)) < size // 4 or max(abs(dx), abs(dy)) < size // 3:
        return None
    return str(
        WORDS["relations"][dx > 0] if abs(dx) > abs(dy) else WORDS["relations"][2 + (dy > 0)]
    )


def rainbow(things: tuple[Thing, ...]) -> list[Thing]:
    return sorted(things, key=lambda one: COLORS.index(one.color))


class Painter(Dice):
    """Draws what is in a picture."""

    def thing(self, color: str, large: bool, size: int) -> Thing:
        low, high = LARGE_SIDES if large else SMALL_SIDES
        side = self.between(low * size // 64, high * size // 64)
        red, green, blue = (value + self.between(-12, 12) for value in WORDS["colors"][color])
        x, y = self.between(0, size - side), self.between(0, size - side)
        return Thing(self.pick(SHAPES), color, large, (red, green, blue), x, y, side)

    def things(self, size: int, one_large: bool) -> tuple[Thing, ...]:
        """Objects that can all be recognized, of which the two in the caption are clearly beside or above each other."""
        count = self.between(1, 4)
        while True:
            colors = list(COLORS)
            drawn = []
            for n in range(count):
                color = self.take(colors)
                drawn.append(self.thing(color, n == 0 if one_large else self.chance(0.5), size))
            found = tuple(drawn[1:] + drawn[:1] if self.chance(0.5) else drawn)
            named = rainbow(found)[:2]
            if count == 1 or (relation(named[0], named[1], size) and self.all_visible(found, size)):
                return found

    def all_visible(self, things: tuple[Thing, ...], size: int) -> bool:
        shown = np.bincount(owners(things, size).ravel(), minlength=len(things) + 1)
        return all(
            100 * shown[n] >= VISIBLE_PERCENT * outline(one.shape, one.side).sum()
            for n, one in enumerate(things, 1)
        )


@dataclass(frozen=True, slots=True)
class Drawing(Picture):
    """A picture that is drawn from its number whenever it is asked for."""

    number: int
    side: int
    line: int
    one_large: bool = False

    @property
    def name(self) -> str:
        return f"shapes, picture {self.line}"

    def things(self) -> tuple[Thing, ...]:
        return Painter(self.number).things(self.side, self.one_large)

    def pixels(self, size: tuple[int, int] | None = None) -> "Tensor":
        import torch  # only where pixels are asked for

        from ..image_decoding import resized

        things = self.things()
        count = 3 * self.side**2
        # its raw stream never changes, unlike that of numpy's distributions
        bits = np.random.PCG64(self.number)
        raw = bits.random_raw(count // 8 + 2).astype("<u8").view(np.uint8)
        ground = 30 + int(raw[-1]) % 60
        colors = np.array(
            [(ground, ground, ground), *(one.shade for one in things)], dtype=np.uint8
        )
        image = np.take(colors.T, owners(things, self.side), axis=1) + (
            raw[:count] % NOISE_LEVELS
        ).reshape(3, self.side, self.side)
        return resized(torch.from_numpy(image), size) if size else torch.from_numpy(image)


def captioned(drawing: Drawing) -> Captioned:
    """The one caption of a picture, and the boxes around what it names."""
    named = rainbow(drawing.things())[:2]
    caption, places = "", []
    for n, one in enumerate(named):
        caption += f"{' ' + str(relation(named[0], named[1], drawing.side)) + ' ' if n else ''}a {one.words}"
        last = len(caption.split()) - 1
        rows, columns = np.nonzero(outline(one.shape, one.side))
        x0, y0, x1, y1 = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        box = (one.x + int(x0), one.y + int(y0), one.x + int(x1), one.y + int(y1))
        places.append(Named((last - 2, last - 1, last), box))
    return Captioned(drawing, (caption,), drawing.line, tuple(places))


def pictured(drawing: Drawing) -> Pictured:
    """A picture with one large object, whose shape is the label."""
    other = replace(drawing, one_large=True)
    [shape] = [one.shape for one in other.things() if one.large]
    return Pictured(other, shape, other.line)


def asked(drawing: Drawing) -> list[Asked]:
    """Questions about color, shape, number and relation, and some to be answered with yes or no, as often the one as the other."""
    things = drawing.things()
    dice = Asker(drawing.number + 1)
    found = [dice.color(things), dice.shape(things), dice.count(things)]
    found += [dice.relation(things, drawing.side), dice.existence(things)]
    return [Asked(drawing, *both, drawing.line) for both in filter(None, found)]


def asked_openly(drawing: Drawing) -> list[Asked]:
    """Questions that are answered with sentences: what the picture is about, what an object is, which colors there are, and where one object
    is seen from another."""
    things, dice, said = drawing.things(), Dice(drawing.number + 2), WORDS["open questions"]
    named, one = rainbow(things)[:2], dice.pick(things)
    facts = {"caption": captioned(drawing).captions[0], "color": one.color}
    facts |= {"object": f"{one.size} {one.shape}"}
    colors = " and ".join(other.color for other in rainbow(things))
    found = [said["about"], said["object"], said["colors"][len(things) > 1]]
    if len(named) > 1:
        seen, other = named if dice.chance(0.5) else named[::-1]
        facts |= {"seen": seen.color, "shape": seen.shape}
        facts |= {"other": other.color, "other_shape": other.shape}
        facts["relation"] = str(relation(seen, other, drawing.side))
        found.append(said["relation"])
    facts |= {"colors": colors, "count": said["counts"][len(things) - 1]}
    return [
        Asked(drawing, question.format(**facts), answer.format(**facts), drawing.line)
        for question, answer in found
    ]


class Asker(Dice):
    """Draws questions and their answers; none where the picture allows no such question."""

    def color(self, things: tuple[Thing, ...]) -> tuple[str, str] | None:
        kinds = [one.shape for one in things]
        sized = [(one.shape, one.large) for one in things]
        one = self.pick(things)
        if kinds.count(one.shape) == 1:
            return WORDS["questions"]["color"].format(shape=one.shape), one.color
        if sized.count((one.shape, one.large)) == 1:
            question = WORDS["questions"]["sized color"]
            return question.format(size=one.size, shape=one.shape), one.color
        return None

    def shape(self, things: tuple[Thing, ...]) -> tuple[str, str]:
        one = self.pick(things)
        return WORDS["questions"]["shape"].format(color=one.color), one.shape

    def count(self, things: tuple[Thing, ...]) -> tuple[str, str]:
        if self.chance(0.5):
            return WORDS["questions"]["count"][0], str(len(things))
        size = self.pick(WORDS["sizes"])
        count = sum(one.size == size for one in things)
        return WORDS["questions"]["count"][1].format(size=size), str(count)

    def relation(self, things: tuple[Thing, ...], size: int) -> tuple[str, str] | None:
        """Of the two in the caption, since those are clearly beside or above each other."""
        if len(things) == 1:
            return None
        one, other = rainbow(things)[:2] if self.chance(0.5) else rainbow(things)[1::-1]
        truth, both = str(relation(one, other, size)), {"color": one.color, "other": other.color}
        if self.chance(0.5):
            return WORDS["questions"]["relation"].format(**both), WORDS["answers"][truth]
        yes = self.chance(0.5)
        said = truth if yes else self.pick([name for name in WORDS["relations"] if name != truth])
        return WORDS["questions"]["is it"].format(**both, relation=said), "yes" if yes else "no"

    def existence(self, things: tuple[Thing, ...]) -> tuple[str, str]:
        """Where the answer is no, one half of what is asked for is there."""
        one, by_color, yes = self.pick(things), self.chance(0.5), self.chance(0.5)
        words = {"color": one.color, "shape": one.shape, "size": one.size}
        there = {one.words for one in things} | {f"{one.size} {one.shape}" for one in things}
        while not yes:
            changed = self.pick(("color" if by_color else "size", "shape", "shape"))
            choice = {"color": COLORS, "size": WORDS["sizes"], "shape": SHAPES}[changed]
            words[changed] = self.pick(choice)
            wanted = f"{' ' + words['color'] if by_color else words['size']} {words['shape']}"
            if not any(one.endswith(wanted) if by_color else one == wanted for one in there):
                break
        words["a"] = "an" if by_color and words["color"][0] in "aeiou" else "a"
        return WORDS["questions"]["is there"][not by_color].format(**words), "yes" if yes else "no"


def shapes(
    train: int = 4000, dev: int = 300, test: int = 300, seed: int = 0, size: int = 64
) -> dict[str, list[Drawing]]:
    """Pictures of `size` × `size` pixels in three parts, drawn when they are looked at."""
    if not MIN_PIXELS <= size <= MAX_PIXELS:
        raise SaccadeError(
            f"size={size}, expected {MIN_PIXELS} to {MAX_PIXELS} pixels for the pictures of 'shapes'; choose one in between",
            code="out-of-range",
        )
    dice = Dice(seed)
    draw = lambda line: Drawing(int(dice.random() * 2**53), size, line)
    return draw_parts("shapes", MAX_EXAMPLES, (train, dev, test), draw, "number")
