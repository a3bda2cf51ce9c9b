"""Nodes: one label per node of a graph, from its word and its neighbors. B batch, N nodes, C classes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..data.batches import on, pad, pad_tensors
from ..data.corpora import GRAPHS
from ..data.node_graphs import Graph
from ..data.surface_meshes import Surface
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..layers.meshes import Mesh, components
from ..models.builder import Builder
from ..models.classifiers import NodeTagger
from ..models.protocols import AttendingEncoder, GraphLabeler, MeshLabeler
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.answers import Tagged
from ..views.document import Document
from .label_task import UNLABELED, LabelTask, Numbered, make_rows
from .task import Each, WrongExample, from_tokens, items, percent_of, table

OWN = 1  # the kind of edge from a node to itself; those of the data follow


class Part(NamedTuple):
    """A tensor that a model reads of a graph; in a batch it is filled up with `fill` along its first `free` dimensions."""

    values: Tensor
    fill: int = 0
    free: int = 1


@table.add("node-classification", paper="Kipf & Welling 2017")
class Nodes(LabelTask):
    """One label for each node of a graph, from its own words and those of its neighbors; some labels may be unknown."""

    needs, data = AttendingEncoder, GRAPHS
    label, unit = "label", "graph"
    text_of = staticmethod(lambda example: " ".join(example.words))
    labels_of = staticmethod(
        lambda example: [name for name in example.labels if name is not None] or None
    )
    outcome: ClassVar[str] = "labels"
    command: ClassVar[str] = "evaluate {model} graphs.jsonl"
    method: ClassVar[str] = 'm.evaluate("graphs.jsonl")'
    verbs, example_types = ("label",), (Graph, Surface)
    example_form: ClassVar[str] = "a Graph or a Surface, with all its parts, from a data file"

    def __init__(self, text: Vocabulary, labels: Sequence[str], kinds: Sequence[str] = ()) -> None:
        super().__init__(text, labels)
        self.kinds = {name: n for n, name in enumerate(kinds, OWN + 1)}
        self.parts_of: Callable[[Any], tuple[Part, ...]] = self.words_of

    @classmethod
    def learn(
        cls, recipe: Recipe, train: Sequence[Graph | Surface], given: Vocabulary | None = None
    ) -> Self:
        # vertices of meshes have no words
        if given is None and not any(one.words for one in train):
            given = Vocabulary.train(["vertex"], "words")
        if recipe.vocabulary.kind != "words" and given is None:
            wrong = f"expected vocabulary.kind=words for nodes, got {recipe.vocabulary.kind}"
            raise SaccadeError(f"{wrong}; set vocabulary.kind=words", code="wrong-vocabulary")
        made = super().learn(recipe, train, given)
        kinds = sorted({kind for one in train for *_, kind in one.edges})
        return cls(made.text, made.labels, kinds)

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(from_tokens(tokens, "text"), tokens["labels"], tokens.get("kinds", ()))

    def tokens(self) -> dict[str, Any]:
        return {**super().tokens(), "kinds": list(self.kinds)}

    def build(self, builder: Builder) -> nn.Module:
        if builder.family.build(MeshLabeler):
            self.parts_of = self.vectors_of
            return builder.make(MeshLabeler, len(self.labels))
        if builder.family.build(GraphLabeler):
            self.parts_of = self.bags_of
            return builder.make(GraphLabeler, len(self.text), len(self.labels))
        self.parts_of = self.words_of
        body = self.encoder(builder)
        assert isinstance(body, AttendingEncoder)
        return NodeTagger(body, len(self.labels), builder.dropout)

    def numbers(self, examples: Sequence[Graph | Surface]) -> list[Numbered]:
        found = []
        for one in examples:
            if isinstance(one, Surface) != (self.parts_of == self.vectors_of):
                has, family = (
                    ("a mesh", "mesh-network")
                    if isinstance(one, Surface)
                    else ("a graph, no mesh", "graph-network")
                )
                raise WrongExample(
                    f"line {one.line} is {has}, which this model does not read; choose model.family={family}",
                    code="wrong-relation",
                )
            self.label_numbers(one, 0)  # a label that was never seen is named
            labels = [UNLABELED if name is None else self.known[name] for name in one.labels]
            found.append(Numbered(self.parts_of(one), labels, one.line))
        return found

    def words_of(self, one: Graph) -> tuple[Part, ...]:
        """For an encoder, as which a task begins: a word per node, and the edges between all pairs of nodes."""
        several = next((n for n, words in enumerate(one.words) if len(words.split()) != 1), None)
        if several is not None:
            what = f"line {one.line}: node {several} has {len(one.words[several].split())} words, and this model reads one per node"
            raise WrongExample(f"{what}; choose model.family=graph-network", code="wrong-relation")
        ids = [(pieces or [self.text.unk])[0] for pieces in self.text.encode_ids(list(one.words))]
        rows = torch.tensor(make_rows(ids, one.words, self.reads_bytes))
        rows = rows if self.reads_bytes else rows[:, 0]
        return Part(rows, self.text.pad, rows.dim()), Part(self.edges_of(one), 0, 2)

    def bags_of(self, one: Graph) -> tuple[Part, ...]:
        """For a graph network: all words of each node, and its edges in both directions, with one from each node to itself."""
        words, _ = pad(self.text.encode_ids(list(one.words)), self.text.pad)
        pairs = {(n, n) for n in range(len(words))} | {
            pair for i, j, _ in one.edges for pair in ((i, j), (j, i))
        }
        return Part(words, self.text.pad, 2), Part(torch.tensor(sorted(pairs)), -1)

    def vectors_of(self, one: Surface) -> tuple[Part, ...]:
        """For a mesh network: each vertex's vector in its frame, and the edges with their angles."""
        vertices, vectors, frames = (
            torch.tensor(each, dtype=torch.float64)
            for each in (one.vertices, one.vectors, one.frames)
        )
        faces = torch.tensor(one.faces)
        mesh = Mesh.from_faces(vertices, faces).with_frames(frames)
        given = components(vectors, vertices, faces, frames)
        edges, angles = (
            torch.stack(pair, 1)
            for pair in ((mesh.target, mesh.source), (mesh.angle, mesh.transport))
        )
        return Part(given), Part(edges, -1), Part(angles)

    def edges_of(self, one: Graph) -> Tensor:
        """The kinds of edges between all nodes, N N; a kind that was never seen is none, but an edge nevertheless: the one after the last."""
        edges = torch.eye(len(one.words), dtype=torch.long) * OWN
        strange = OWN + 1 + len(self.kinds)
        for i, j, kind in one.edges:
            edges[i, j] = edges[j, i] = self.kinds.get(kind, strange)
        return edges

    def size(self, example: Numbered) -> tuple[int, int]:
        return len(example.labels), 0

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        target, lengths = pad([one.labels for one in numbers], UNLABELED, multiple)
        every = zip(*(one.rows for one in numbers), strict=True)
        nodes, *rest = (
            pad_tensors([one.values for one in parts], parts[0].fill, multiple, parts[0].free)
            for parts in every
        )
        count = int((target != UNLABELED).sum())
        target, *inputs = on(device, target, nodes, lengths, *rest)
        return Batch(tuple(inputs), target, UNLABELED, count, [one.line for one in numbers])

    def evaluate(
        self, model: nn.Module, examples: Sequence[Graph | Surface], confusion: bool | None = None
    ) -> dict[str, Any]:
        """Accuracy over all nodes whose label is known; precision, recall and F1 of each label."""
        self.check_labeled(examples, more=" to compare with")
        metrics, guessed, wanted = self.judge(model, self.numbers(examples))
        return {
            "graphs": len(examples),
            "nodes": len(wanted),
            **metrics,
            **self.by_class(guessed, wanted, confusion),
        }

    def per_example(
        self, model: nn.Module, examples: Sequence[Graph | Surface], **options: Any
    ) -> Each:
        """Right labels of all labels: of each graph, or of each node of the only graph."""
        each = super().per_example(model, examples, **options)
        if len(examples) > 1:
            return each
        [one] = self.numbers(examples)
        labels = torch.tensor(one.labels)
        right = (
            (self.logits(model, [one])[0].argmax(-1) == labels)[labels != UNLABELED]
            .double()
            .numpy()
        )
        return each._replace(
            sums={"accuracy": (np.stack([right, np.ones_like(right)], 1), percent_of)}
        )

    def inputs(self, given: Any) -> tuple[list[Graph | Surface], bool]:
        """Graphs or meshes, such as `m.read("graphs.jsonl")` gives."""
        alone = isinstance(given, self.example_types)
        each = [given] if alone else items(given, 'm.predict(m.read("graphs.jsonl"))')
        return [self.example(one, n) for n, one in enumerate(each, 1)], alone

    def read_inputs(self, recipe: Recipe, where: str) -> Iterator[Graph | Surface]:
        return iter(self.read(recipe, where))

    def predict(
        self, model: nn.Module, graphs: Sequence[Graph | Surface]
    ) -> Iterator[tuple[int, Tagged]]:
        """The label of each node, beside its words or, in a mesh, its number."""
        logits = self.logits(model, self.numbers(graphs))
        for n, (one, rows) in enumerate(zip(graphs, logits, strict=True)):
            names = list(one.words) or [str(at) for at in range(len(rows))]
            labels = [self.labels[best] for best in rows.argmax(-1).tolist()]
            yield n, Tagged(labels, names, self.labels, rows.double().softmax(-1).numpy())

    def attention(self, *_: Any, **__: Any) -> Document:
        raise SaccadeError(
            "a model of nodes reads graphs, and a text has no edges; use `saccade evaluate` with a file of graphs",
            code="reads-graphs",
        )
