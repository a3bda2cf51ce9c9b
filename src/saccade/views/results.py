"""What a model answers, as small objects: short to print, drawn in a notebook, saved by one call. Plain values; nothing here runs a model."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import SaccadeError
from ..files import write_atomically
from .document import Document, Site, check_ending, shorten
from .page import _escape as escape
from .page import small_table

Numbers = NDArray[np.floating]
STRONGEST = (255, 140, 0)  # the color of the greatest weight, as in the terminal
MakeDocument = Callable[[], Document]


class Result:
    """What all results share: `save`, `document` (what the model looked at), and equality that knows arrays."""

    look: MakeDocument | None = None

    def facts(self) -> dict[str, Any]:
        """What is written as JSON."""
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}  # type: ignore[arg-type]
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in named.items()}

    @property
    def document(self) -> Document:
        """What the model looked at for this result, computed when it is asked for."""
        if self.look is None:
            raise SaccadeError("this result does not know its model; ask the model: m.look(text)")
        return self.look()

    def save(self, path: str | os.PathLike[str], site: str | None = None, heads: bool = False) -> Path:
        """Writes the result itself as .json, or what the model looked at as a picture (.png, .svg, .pdf) or a page (.html)."""
        path = check_ending(path)
        if path.suffix.lower() != ".json":
            return self.document.save(path, site, heads)
        write_atomically(path, (json.dumps(self.facts(), ensure_ascii=False, indent=2) + "\n").encode("utf-8", "replace"))
        return path

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return type(self) is type(other) and self.facts() == other.facts()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class Translated(Result):
    """One translation: the text, how likely it is, its tokens, whether it ended, and what else a beam found."""

    text: str
    log_prob: float
    score: float
    tokens: list[int]
    finished: bool
    alternatives: list[str]
    source: str = ""
    copied: tuple[
        tuple[int, int], ...
    ] = ()  # (source word, its own word) of each unknown word that was replaced by one of the source
    look: MakeDocument | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Translated({shorten(self.text, 80)!r}, log_prob={self.log_prob:.3f}{'' if self.finished else ', unfinished'})"

    def __iter__(self) -> Iterator[Any]:
        """text, log_prob = translation"""
        return iter((self.text, self.log_prob))

    def _repr_html_(self) -> str:
        return f'<p dir="auto">{escape(self.source)}<br>→ <b>{escape(self.text)}</b> <small>({self.log_prob:.3f})</small></p>'


@dataclass(frozen=True, eq=False, repr=False)
class Classified(Result):
    """A text's label, the probability of each, and how much each of its pieces counted."""

    label: str
    probabilities: dict[str, float]
    pieces: list[str]
    weights: Numbers
    look: MakeDocument | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"Classified({shorten(self.label, 60)!r}, {self.probabilities[self.label]:.3f})"

    def __iter__(self) -> Iterator[Any]:
        """label, probability = found"""
        return iter((self.label, self.probabilities[self.label]))

    def _repr_html_(self) -> str:
        most, words = float(self.weights.max(initial=0.0)) or 1.0, []
        for piece, weight in zip(self.pieces, self.weights, strict=True):
            shade = "rgba({}, {}, {}, {:.2f})".format(*STRONGEST, max(0.0, weight) / most)
            words.append(f'<span title="{weight:.3f}" style="background:{shade};padding:0 .2em">{escape(shorten(piece))}</span>')
        likeliest = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:5]
        chances = "  ".join(f"{name} {chance:.3f}" for name, chance in likeliest)
        return f'<p dir="auto"><b>{escape(self.label)}</b> <small>({escape(chances)})</small><br>{" ".join(words)}</p>'


class Tagged(list[str], Result):
    """The tags of a sentence, one per word; `words` are these, `probabilities` an array of words × `labels`."""

    def __init__(self, tags: Sequence[str], words: Sequence[str], labels: Sequence[str], probabilities: Numbers) -> None:
        super().__init__(tags)
        self.words, self.labels, self.probabilities = list(words), list(labels), probabilities

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(word, tag) of each word."""
        return list(zip(self.words, self, strict=True))

    def facts(self) -> dict[str, Any]:
        return {"words": self.words, "tags": list(self), "labels": self.labels, "probabilities": self.probabilities.tolist()}

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in self.pairs)

    def __repr__(self) -> str:
        return f"Tagged({shorten(str(self), 80)!r})"

    def _repr_html_(self) -> str:
        return small_table([self.words, list(self)], "tags") if self else ""


@dataclass(frozen=True, eq=False, repr=False)
class Aligned(Result):
    """What a model looked at while it generated a given target: weights of pieces (target × source), and the links of words."""

    source: Any  # the pieces of each text
    target: Any
    weights: Numbers
    links: list[tuple[int, int]]

    @property
    def document(self) -> Document:
        """The weights as a document of one site, the mean of all attention to the source."""
        rows, columns = [*self.target.pieces, "<eos>"], [*self.source.pieces, "<eos>"]
        return Document(" ".join(columns[:-1]), columns[:-1], rows[:-1], [Site("alignment", rows, columns, self.weights[None])])

    def facts(self) -> dict[str, Any]:
        pieces = {"source": list(self.source.pieces), "target": list(self.target.pieces)}
        return {**pieces, "links": [list(link) for link in self.links], "weights": self.weights.tolist()}

    def __str__(self) -> str:
        """The links in Pharaoh's format."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def __repr__(self) -> str:
        return f"Aligned({shorten(str(self), 80)!r})"

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The links, (source word, target word)."""
        return iter(self.links)

    def _repr_html_(self) -> str:
        return self.document._repr_html_()


class Generated(Iterator[str]):
    """A text as it is generated: iterate over its pieces, or ask for all of it by `.text` or str()."""

    def __init__(self, prompt: str, pieces: Iterator[str]) -> None:
        self.prompt, self._pieces, self._seen = prompt, pieces, list[str]()

    def __next__(self) -> str:
        self._seen.append(next(self._pieces))
        return self._seen[-1]

    @property
    def text(self) -> str:
        """All that the model generates, without the prompt: what was taken already, and the rest."""
        for _ in self:
            pass
        return "".join(self._seen)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        """What is there so far: printing runs no model."""
        return f"Generated({shorten(''.join(self._seen), 60)!r} so far; str() gives all of it)"

    def _repr_html_(self) -> str:
        style = "white-space:pre-wrap"
        return f'<div dir="auto" style="{style}"><b>{escape(self.prompt)}</b>{escape(self.text)}</div>'


class Metrics(dict[str, Any]):
    """The metrics of an evaluation by name; a table in a notebook."""

    def _repr_html_(self) -> str:
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in self.items()}
        return small_table([(name, value) for name, value in shown.items() if not isinstance(value, list | dict)])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the metrics as .json."""
        found = Path(path)
        if found.suffix.lower() != ".json":
            raise SaccadeError(f"metrics are numbers and cannot be drawn to '{found}'; name a file ending in .json")
        write_atomically(found, (json.dumps(self, ensure_ascii=False, indent=2) + "\n").encode())
        return found
