"""Graphs whose nodes have labels: JSONL, one graph per line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from . import lines
from .lines import LineError

FORM = 'a .jsonl file of graphs, {"nodes": ["red", "blue"], "labels": ["a", null], "edges": [[0, 1], [1, 0, "kind"]]}'
MOST_NODES = 20_000  # of one graph: a layer reads all pairs of them
LINKED = "linked"  # the kind of an edge that has none of its own
Edge = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, each with a word that says what is known of it and a label if that is known; edges between them, without a direction."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    edges: tuple[Edge, ...]
    line: int = 0

    @property
    def source(self) -> tuple[tuple[str, ...], tuple[Edge, ...]]:
        """What is read: all but the labels."""
        return self.words, self.edges


def each_graph(where: str | Path) -> Iterator[Graph | LineError]:
    """Each graph of a file, or the error that its line is."""
    path = lines.one_file(where, FORM)
    if lines.bare_suffix(path) != ".jsonl":
        raise SaccadeError(f"'{path}' does not end in .jsonl, so its format is not known; give {FORM}")
    return lines.convert(path, lines.full_lines(path), lines.from_json(graph_of))


def graph_of(number: int, entry: dict[str, Any]) -> Graph:
    """The graph of a row: a list of words, one per node, as many labels (null where unknown), and pairs of nodes, counted from 0."""
    words, labels, edges = (entry.get(name) for name in ("nodes", "labels", "edges"))
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise LineError("JSON", '"nodes" must be a list of words, one for each node and at least one')
    if len(words) > MOST_NODES:
        raise LineError("long line", f"{len(words):,} nodes, more than {MOST_NODES:,}; divide the graph")
    labels = [None] * len(words) if labels is None else labels
    if not isinstance(labels, list) or not all(one is None or (isinstance(one, str) and one.strip()) for one in labels):
        raise LineError("JSON", '"labels" must be a list of words, and null for a node whose label is not known')
    if len(labels) != len(words):
        raise LineError("labels", f"{len(labels)} labels for {len(words)} nodes; give each node one, or null")
    if not isinstance(edges, list):
        raise LineError("JSON", '"edges" must be a list of pairs of nodes, such as [[0, 1], [1, 2, "friend"]]')
    for text in (*words, *(one for one in labels if one)):
        lines.readable(text, "graph")
    return Graph(tuple(words), tuple(labels), tuple(edge_of(one, len(words)) for one in edges), number)


def edge_of(one: Any, nodes: int) -> Edge:
    """An edge from [node, node] or [node, node, kind]."""
    if not isinstance(one, list) or len(one) not in (2, 3) or not all(type(end) is int and 0 <= end < nodes for end in one[:2]):
        raise LineError(
            "edges", f"{str(one)[:60]} is not an edge; write [node, node] with nodes from 0 to {nodes - 1}, and its kind if any"
        )
    kind = one[2] if len(one) == 3 else LINKED
    if not isinstance(kind, str) or not kind.strip():
        raise LineError("edges", f"the kind of the edge {str(one)[:60]} is not a word; write one, or leave it out")
    return one[0], one[1], kind
