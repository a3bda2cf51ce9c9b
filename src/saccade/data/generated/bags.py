"""Bags of numbers: the label is the largest one, whatever the order they are written in."""

from dataclasses import replace
from functools import partial

from ...errors import SaccadeError
from ..labeled import Labeled
from . import Dice, draw_parts

MAX_EXAMPLES = 100_000
# the largest number of a bag, and how many are in it: the least and the most
LABELS, SIZES = ((5, 24), (3, 12))


def draw_bag(dice: Dice, line: int) -> Labeled:
    """A bag in ascending order, so that two orders of one bag are the same text. All labels are about equally frequent."""
    highest = dice.between(*LABELS)
    others = [dice.between(1, highest) for _ in range(dice.between(*SIZES) - 1)]
    return Labeled(" ".join(map(str, sorted([*others, highest]))), str(highest), line)


def bags(
    train: int = 2000, dev: int = 300, test: int = 1000, seed: int = 0, ordered: bool = False
) -> dict[str, list[Labeled]]:
    """Bags of numbers; the label is the largest. With `ordered` those of train and dev are in ascending order, and those of test never."""
    if not isinstance(ordered, bool):
        raise SaccadeError(
            f"ordered is {ordered!r}, expected true or false; leave it out for bags in any order",
            code="wrong-type",
        )
    dice = Dice(seed)
    draw = partial(draw_bag, dice)
    parts = draw_parts("bags", MAX_EXAMPLES, (train, dev, test), draw, "text")
    for name in ("test",) if ordered else tuple(parts):
        mixed = (" ".join(dice.shuffled(one.text.split())) for one in parts[name])
        parts[name] = [
            replace(one, text=text) for one, text in zip(parts[name], mixed, strict=True)
        ]
    return parts
