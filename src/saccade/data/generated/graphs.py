"""Graphs: people in groups, drawn; and Zachary's karate club, as it was observed.

In a drawn graph every group wears a color. A person shows it half of the time, else any color; who is in one's own group is
mostly a `friend`, and of the others mostly a `rival`. The label is the group's color, which a node alone does not tell.

The karate club: who met whom outside of a university's karate club, whose members then followed its teacher ("Mr. Hi", member 1)
or its president ("Officer", member 34). Origin: W. W. Zachary, "An information flow model for conflict and fission in small
groups", Journal of Anthropological Research 33 (1977), figures 1 and 3; 34 members, 78 ties, factions after the split.
"""

from ...errors import SaccadeError
from ..graphs import LINKED, Edge, Graph
from . import Dice, draw_parts

MOST = 100_000
COLORS = ("red", "green", "blue", "yellow")
SHOWN = 0.5  # how often a node shows its group's color
WITHIN, ACROSS = 0.8, 0.3  # edges of a pair in one group, and in two
FRIENDS = 0.9  # of the edges within a group, and rivals of those across
KARATE = """1-2 1-3 1-4 1-5 1-6 1-7 1-8 1-9 1-11 1-12 1-13 1-14 1-18 1-20 1-22 1-32 2-3 2-4 2-8 2-14 2-18 2-20 2-22 2-31 3-4 3-8 3-9
3-10 3-14 3-28 3-29 3-33 4-8 4-13 4-14 5-7 5-11 6-7 6-11 6-17 7-17 9-31 9-33 9-34 10-34 14-34 15-33 15-34 16-33 16-34 19-33 19-34 20-34
21-33 21-34 23-33 23-34 24-26 24-28 24-30 24-33 24-34 25-26 25-28 25-32 26-32 27-30 27-34 28-34 29-32 29-34 30-33 30-34 31-33 31-34
32-33 32-34 33-34"""
MEMBERS, TEACHER, PRESIDENT = 34, "Mr. Hi", "Officer"
WITH_TEACHER = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22}


def draw_graph(dice: Dice, line: int) -> Graph:
    """Two or three groups of six to nine nodes, in any order."""
    colors = list(COLORS)
    groups = [colors.pop(dice.between(0, len(colors) - 1)) for _ in range(dice.between(2, 3))]
    nodes = [color for color in groups for _ in range(dice.between(6, 9))]
    labels = tuple(nodes.pop(dice.between(0, len(nodes) - 1)) for _ in range(len(nodes)))
    words = tuple(label if dice.chance(SHOWN) else dice.pick(COLORS) for label in labels)
    edges: list[Edge] = []
    for i in range(len(labels)):
        for j in range(i):
            same = labels[i] == labels[j]
            if dice.chance(WITHIN if same else ACROSS):
                edges.append((j, i, "friend" if dice.chance(FRIENDS) == same else "rival"))
    return Graph(words, labels, tuple(edges), line)


def graphs(train: int = 2000, dev: int = 100, test: int = 200, seed: int = 0) -> dict[str, list[Graph]]:
    """Graphs of people in two or three groups; the label of each node is the color of its group, which its friends tell better than itself."""
    dice = Dice(seed)
    return draw_parts("graphs", MOST, (train, dev, test), lambda line: draw_graph(dice, line), "source", "source")


def karate(train: int = 2, dev: int = 10, test: int = 22, seed: int = 0) -> dict[str, list[Graph]]:
    """Zachary's karate club (1977): one graph of 34 members and 78 ties; the sizes say how many members' factions each part knows.

    The first to train on are the teacher and the president, then others in an order drawn by the seed.
    """
    sizes = {"train": train, "dev": dev, "test": test}
    if min(sizes.values()) < 0 or sum(sizes.values()) > MEMBERS:
        asked = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise SaccadeError(f"{asked}, but 'karate' has {MEMBERS} members, each in one part; ask for fewer")
    dice, others = Dice(seed), [*range(2, MEMBERS)]
    order = [1, MEMBERS, *(others.pop(dice.between(0, len(others) - 1)) for _ in range(len(others)))]
    ends = [edge.split("-") for edge in KARATE.split()]
    edges = tuple((int(a) - 1, int(b) - 1, LINKED) for a, b in ends)
    words = tuple(f"member-{n}" for n in range(1, MEMBERS + 1))
    parts: dict[str, list[Graph]] = {}
    for name, size in sizes.items():
        known, order = set(order[:size]), order[size:]
        factions = (TEACHER if n in WITH_TEACHER else PRESIDENT for n in range(1, MEMBERS + 1))
        labels = tuple(faction if n in known else None for n, faction in enumerate(factions, 1))
        parts[name] = [Graph(words, labels, edges, 1)] if known else []
    return parts
