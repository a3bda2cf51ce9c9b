"""Graphs whose nodes have labels: JSONL, one graph per line, or one graph as a table of its nodes and one of its edges."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SaccadeError
from . import lines
from .delimited import split_name
from .lines import LineError
from .surface_meshes import Surface, surface_of

FORM = (
    'a .jsonl file of graphs, {"nodes": ["red", "blue"], "labels": ["a", null], "edges": [[0, 1], [1, 0, "kind"]]}, '
    "or a table of nodes and one of edges, nodes.tsv,edges.tsv"
)
# of the tables of nodes and of edges; a `split` and a `kind` may be among them
COLUMNS = (("node", "label", "words"), ("a", "b"))
MAX_NODES = 20_000  # of one graph: most layers read all pairs of them
LINKED = "linked"  # the kind of an edge that has none of its own
Edge = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, each with a word or more that say what is known of it, and a label if that is known; edges between them, without a
    direction."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    edges: tuple[Edge, ...]
    line: int = 0

    @property
    def source(self) -> tuple[tuple[str, ...], tuple[Edge, ...]]:
        """What is read: all but the labels."""
        return self.words, self.edges


def each_graph(where: str | Path) -> Iterator[Graph | Surface | LineError]:
    """Each graph of a file, or the error that its line is; `nodes.tsv,edges.tsv#train` is one graph in two tables, in which only the labels
    of the nodes whose split is `train` are known."""
    name, parts = split_name(where)
    paths = [lines.one_file(path, FORM) for path in lines.paths_of(name)]
    if len(paths) == 2 and {lines.bare_suffix(path) for path in paths} == {".tsv"}:
        return iter([graph_in_tables(paths[0], paths[1], parts[0] if parts else None)])
    if len(paths) > 1 or parts or lines.bare_suffix(paths[0]) != ".jsonl":
        raise SaccadeError(
            f"'{where}' is neither .jsonl nor two tables of a graph, so its format is not known; give {FORM}",
            code="unknown-ending",
        )
    return lines.convert(paths[0], lines.full_lines(paths[0]), lines.from_json(graph_of))


def graph_in_tables(nodes: Path, edges: Path, part: str | None) -> Graph:
    """The graph of a table of nodes (node, label, words, perhaps the split) and one of edges (a, b, perhaps the kind): TSV with a header."""
    numbers: dict[str, int] = {}
    words, labels, splits = list[str](), list[str | None](), set[str]()
    for at, row in table_of(nodes, COLUMNS[0]):
        if numbers.setdefault(row["node"], len(numbers)) < len(words):
            what = f"the node '{row['node'][:60]}' is there twice; give each node one line"
            raise LineError("nodes", what, nodes, at)
        splits.add(row.get("split", ""))
        words.append(row["words"])
        labels.append(row["label"] or None if part is None or row.get("split") == part else None)
    if part is not None and part not in splits:
        raise SaccadeError(
            f"no node of {nodes} is in the split '{part}'; its splits are: {', '.join(sorted(splits - {''})) or 'none'}",
            code="unknown-split",
        )
    if len(words) > MAX_NODES:
        raise SaccadeError(
            f"{nodes} has {len(words):,} nodes, more than {MAX_NODES:,}; divide the graph",
            code="too-large",
        )
    found = list[Edge]()
    for at, row in table_of(edges, COLUMNS[1]):
        strange = next((row[end] for end in COLUMNS[1] if row[end] not in numbers), None)
        if strange is not None:
            what = f"'{strange[:60]}' is not a node of {nodes}; write the names of its column node"
            raise LineError("edges", what, edges, at)
        found.append((numbers[row["a"]], numbers[row["b"]], row.get("kind") or LINKED))
    return Graph(tuple(words), tuple(labels), tuple(found), 1)


def table_of(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """The numbered rows of a TSV file whose first line names its columns; these must be among them."""
    rows = ((number, line.split("\t")) for number, line in enumerate(lines.open_text(path), 1))
    _, header = next(rows)
    if missing := [name for name in columns if name not in header]:
        what = f"no column '{missing[0]}'; the first line names the columns {', '.join(columns)}"
        raise LineError("columns", what, path, 1)
    for number, cells in rows:
        if len(cells) != len(header):
            what = f"{len(cells)} cells and {len(header)} columns; write a tab between two cells"
            raise LineError("columns", what, path, number)
        yield number, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}


def graph_of(number: int, entry: dict[str, Any]) -> Graph | Surface:
    """The graph of a row: a list of words, one text per node, as many labels (null where unknown), and pairs of nodes, counted from 0; or the
    mesh of a row with faces."""
    if "faces" in entry:
        vertices = entry.get("vertices")
        count = len(vertices) if isinstance(vertices, list) else 0
        return surface_of(number, entry, labels_of(entry, count))
    words, edges = entry.get("nodes"), entry.get("edges")
    if not isinstance(words, list) or not words or not all(map(is_word, words)):
        raise LineError(
            "JSON", '"nodes" must be a list of words, one for each node and at least one'
        )
    if len(words) > MAX_NODES:
        raise LineError(
            "long line", f"{len(words):,} nodes, more than {MAX_NODES:,}; divide the graph"
        )
    labels = labels_of(entry, len(words))
    if not isinstance(edges, list):
        raise LineError(
            "JSON", '"edges" must be a list of pairs of nodes, such as [[0, 1], [1, 2, "friend"]]'
        )
    for text in words:
        lines.readable(text, "graph")
    return Graph(tuple(words), labels, tuple(edge_of(one, len(words)) for one in edges), number)


def labels_of(entry: dict[str, Any], count: int) -> tuple[str | None, ...]:
    """The labels of as many nodes."""
    labels = [None] * count if entry.get("labels") is None else entry["labels"]
    if not isinstance(labels, list) or not all(one is None or is_word(one) for one in labels):
        raise LineError(
            "JSON", '"labels" must be a list of words, and null for a node whose label is not known'
        )
    if len(labels) != count:
        raise LineError(
            "labels", f"{len(labels)} labels for {count} nodes; give each node one, or null"
        )
    for text in filter(None, labels):
        lines.readable(text, "graph")
    return tuple(labels)


def is_word(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def edge_of(one: Any, nodes: int) -> Edge:
    """An edge from [node, node] or [node, node, kind]."""
    if (
        not isinstance(one, list)
        or len(one) not in (2, 3)
        or not all(type(end) is int and 0 <= end < nodes for end in one[:2])
    ):
        raise LineError(
            "edges",
            f"{str(one)[:60]} is not an edge; write [node, node] with nodes from 0 to {nodes - 1}, and its kind if any",
        )
    kind = one[2] if len(one) == 3 else LINKED
    if not is_word(kind):
        raise LineError(
            "edges",
            f"the kind of the edge {str(one)[:60]} is not a word; write one, or leave it out",
        )
    return one[0], one[1], kind
