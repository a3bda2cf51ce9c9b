"""Graphs: people in groups, drawn; and Zachary's karate club, as it was observed.

In a drawn graph every group wears a color. A person shows it half of the time, else any color; who is in one's own group is
mostly a `friend`, and of the others mostly a `rival`. The label is the group's color, which a node alone does not know.

The karate club: who met whom outside of a university's karate club, whose members then followed its teacher ("Mr. Hi", member 1)
or its president ("Officer", member 34). karate.json has its ties, and where they were published.
"""

from functools import partial

from ...errors import SaccadeError
from ..node_graphs import LINKED, Edge, Graph
from . import Dice, draw_parts, load_words

MAX_EXAMPLES = 100_000
COLORS, KINDS = (load_words("graphs")[name] for name in ("colors", "kinds"))
CLUB = load_words("karate")  # members are counted from 1
SHOWN = 0.5  # how often a node shows its group's color
WITHIN, ACROSS = 0.8, 0.3  # edges of a pair in one group, and in two
FRIENDS = 0.9  # of the edges within a group, and rivals of those across


def draw_graph(dice: Dice, line: int) -> Graph:
    """Two or three groups of six to nine nodes, in any order."""
    colors = list(COLORS)
    groups = [dice.take(colors) for _ in range(dice.between(2, 3))]
    nodes = [color for color in groups for _ in range(dice.between(6, 9))]
    labels = tuple(dice.shuffled(nodes))
    words = tuple(label if dice.chance(SHOWN) else dice.pick(COLORS) for label in labels)
    edges: list[Edge] = []
    for i in range(len(labels)):
        for j in range(i):
            same = labels[i] == labels[j]
            if dice.chance(WITHIN if same else ACROSS):
                edges.append((j, i, KINDS[dice.chance(FRIENDS) != same]))
    return Graph(words, labels, tuple(edges), line)


def graphs(
    train: int = 2000, dev: int = 100, test: int = 200, seed: int = 0
) -> dict[str, list[Graph]]:
    """Graphs of people in two or three groups; the label of each node is the color of its group, which its friends show better than it does."""
    draw = partial(draw_graph, Dice(seed))
    return draw_parts("graphs", MAX_EXAMPLES, (train, dev, test), draw, "source")


def karate(train: int = 2, dev: int = 10, test: int = 22, seed: int = 0) -> dict[str, list[Graph]]:
    """Zachary's karate club (1977): one graph of 34 members and 78 ties; the sizes say how many members' factions each part knows.

    The first to train on are the teacher and the president, then others in an order drawn by the seed.
    """
    sizes, members = {"train": train, "dev": dev, "test": test}, int(CLUB["members"])
    if min(sizes.values()) < 0 or sum(sizes.values()) > members:
        asked = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise SaccadeError(
            f"{asked}, but 'karate' has {members} members, each in one part; ask for fewer",
            code="out-of-range",
        )
    order = [1, members, *Dice(seed).shuffled(range(2, members))]
    edges = tuple((a - 1, b - 1, LINKED) for a, b in CLUB["ties"])
    words = tuple(f"member-{n}" for n in range(1, members + 1))
    factions = [CLUB["factions"][n not in CLUB["with_the_first"]] for n in range(1, members + 1)]
    parts: dict[str, list[Graph]] = {}
    for name, size in sizes.items():
        known, order = set(order[:size]), order[size:]
        labels = tuple(faction if n in known else None for n, faction in enumerate(factions, 1))
        parts[name] = [Graph(words, labels, edges, 1)] if known else []
    return parts
