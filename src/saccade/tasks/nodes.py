"""Nodes: one label per node of a graph, from its word and its neighbors. B batch, N nodes, C classes."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from ..building import Builder
from ..data.batches import Rows, on, pad, pad_rows
from ..data.corpora import GRAPHS
from ..data.graphs import Graph
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.kinds import AttendingEncoder
from ..models.labels import NodeTagger
from ..recipe import Recipe
from ..training.losses import Batch
from .labels import UNLABELED, LabelTask, make_rows
from .task import from_tokens, table

OWN = 1  # the kind of edge from a node to itself; those of the data follow


class Numbered(NamedTuple):
    """A graph in numbers: a row of token numbers and a label per node, and N N kinds of edges, 0 where there is none."""

    rows: Rows
    labels: list[int]
    line: int
    edges: Tensor


@table.add("node-classification", paper="Kipf & Welling 2017")
class Nodes(LabelTask):
    """One label for each node of a graph, from its own word and those of its neighbors; some labels may be unknown."""

    needs, data = AttendingEncoder, GRAPHS
    label, unit = "label", "graph"
    text_of = staticmethod(lambda example: " ".join(example.words))
    labels_of = staticmethod(lambda example: [name for name in example.labels if name is not None] or None)
    outcome: ClassVar[str] = "labels"
    command: ClassVar[str] = "evaluate {model} graphs.jsonl"
    method: ClassVar[str] = 'm.evaluate("graphs.jsonl")'

    def __init__(self, text: Vocabulary, labels: Sequence[str], kinds: Sequence[str] = ()) -> None:
        super().__init__(text, labels)
        self.kinds = {name: n for n, name in enumerate(kinds, OWN + 1)}

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Graph], given: Vocabulary | None = None) -> Self:
        if recipe.vocabulary.kind != "words" and given is None:
            wrong = f"expected vocabulary.kind=words for nodes, which have one word each, got {recipe.vocabulary.kind}"
            raise SaccadeError(f"{wrong}; set vocabulary.kind=words")
        made = super().learn(recipe, train, given)
        kinds = sorted({kind for one in train for *_, kind in one.edges})
        return cls(made.text, made.labels, kinds)

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(from_tokens(tokens, "text"), tokens["labels"], tokens.get("kinds", ()))

    def tokens(self) -> dict[str, Any]:
        return {**super().tokens(), "kinds": list(self.kinds)}

    def build(self, builder: Builder) -> nn.Module:
        body = self.encoder(builder)
        assert isinstance(body, AttendingEncoder)
        return NodeTagger(body, len(self.labels), builder.dropout)

    def numbers(self, examples: Sequence[Graph]) -> list[Numbered]:
        found = []
        for one in examples:
            ids = [(pieces or [self.text.unk])[0] for pieces in self.text.encode_ids(list(one.words))]
            self.label_numbers(one, 0)  # a label that was never seen is named
            labels = [UNLABELED if name is None else self.known[name] for name in one.labels]
            found.append(Numbered(make_rows(ids, one.words, self.reads_bytes), labels, one.line, self.edges_of(one)))
        return found

    def edges_of(self, one: Graph) -> Tensor:
        """The kinds of edges between all nodes, N N; a kind that was never seen is none, but an edge nevertheless: the one after the last."""
        edges, strange = torch.eye(len(one.words), dtype=torch.long) * OWN, OWN + 1 + len(self.kinds)
        for i, j, kind in one.edges:
            edges[i, j] = edges[j, i] = self.kinds.get(kind, strange)
        return edges

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        tokens, lengths = pad_rows([one.rows for one in numbers], self.text.pad, multiple)
        target, _ = pad([one.labels for one in numbers], UNLABELED, multiple)
        edges = torch.zeros(len(numbers), target.shape[1], target.shape[1], dtype=torch.long)
        for n, one in enumerate(numbers):
            edges[n, : len(one.edges), : len(one.edges)] = one.edges
        count = int((target != UNLABELED).sum())
        tokens, lengths, edges, target = on(device, tokens, lengths, edges, target)
        return Batch((tokens, lengths, edges), target, UNLABELED, count, [one.line for one in numbers])

    def evaluate(self, model: nn.Module, examples: Sequence[Graph], confusion: bool | None = None) -> dict[str, Any]:
        """Accuracy over all nodes whose label is known; precision, recall and F1 of each label."""
        self.check_labeled(examples, more=" to compare with")
        metrics, guessed, wanted = self.judge(model, self.numbers(examples))
        return {"graphs": len(examples), "nodes": len(wanted), **metrics, **self.by_class(guessed, wanted, confusion)}

    def look(self, model: nn.Module, text: str) -> tuple[list[str], str]:
        raise SaccadeError("a model of nodes reads graphs, and a text has no edges; use `saccade evaluate` with a file of graphs")
