"""What a model answers, as small objects: short to print, drawn in a notebook, saved by one call. Nothing here runs a model."""

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
from .html_page import _escape as escape
from .html_page import small_table
from .worked_steps import plain

Numbers = NDArray[np.floating]
Pixels = NDArray[np.uint8]
MakeDocument = Callable[[], Document]


class Result:
    """What all results share: one line when printed, `save`, `document` (what the model looked at), equality that knows arrays."""

    look: MakeDocument | None = None
    # The field that a result prints as.
    printed: ClassVar[str] = "text"

    def __str__(self) -> str:
        return str(getattr(self, self.printed))

    def to_dict(self, *names: str) -> dict[str, Any]:
        """The result as lists, numbers, texts and None, for JSON, a table or an HTTP answer; with `names`, these fields alone.

        `json.dumps(result.to_dict())`, `pandas.DataFrame([one.to_dict() for one in results])`.
        """
        found = self.facts()
        return {name: plain(found[name]) for name in names or found}

    def row(self, given: str) -> dict[str, Any]:
        """The result as a JSON line, with the text or the name of the input."""
        return {"text": given, **self.to_dict()}

    def line(self, given: str) -> str:
        """The result as one line among those of other inputs."""
        return f"{self}\t{given}"

    def detail(self) -> str:
        """The result by itself, with what else was likely."""
        return str(self)

    def facts(self) -> dict[str, Any]:
        """The fields of the result, which are compared."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.compare}  # type: ignore[arg-type]

    @property
    def document(self) -> Document:
        """What the model looked at for this result, computed when it is asked for."""
        if self.look is None:
            raise SaccadeError(
                "this result does not know its model; ask the model: m.look(text)", code="no-model"
            )
        return self.look()

    def save(
        self, path: str | os.PathLike[str], site: str | None = None, heads: bool = False
    ) -> Path:
        """Writes the result itself as .json, or what the model looked at as a picture (.png, .svg, .pdf) or a page (.html)."""
        path = check_ending(path)
        if path.suffix.lower() != ".json":
            return self.document.save(path, site, heads)
        write_atomically(
            path, (json.dumps(self.to_dict(), ensure_ascii=False) + "\n").encode("utf-8", "replace")
        )
        return path

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shorten(str(self), 80)!r})"


class Written(Result):
    """A generated text: prints as the text, unpacks to text, log_prob."""

    text: str
    log_prob: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.text, self.log_prob))

    def _repr_html_(self) -> str:
        read = escape(getattr(self, "source", "") or getattr(self, "name", ""))
        return f'<p dir="auto">{read}<br>→ <b>{escape(self.text)}</b> <small>({self.log_prob:.3f})</small></p>'


def likeliest(answer: str, probabilities: dict[str, float]) -> str:
    """An answer with the probabilities of the likeliest ones."""
    best = sorted(probabilities.items(), key=lambda pair: -pair[1])[:5]
    several = [f"{name} {100 * chance:.1f} %" for name, chance in best]
    return f"{answer}   ({'  '.join(several) if len(several) > 1 else f'{100 * best[0][1]:.1f} %'})"


@dataclass(frozen=True, eq=False, repr=False)
class Seen(Result):
    """The label of a picture, the probability of each label, and how much each position of the encoder's grid counted (rows × columns)."""

    printed: ClassVar[str] = "label"
    label: str
    probabilities: dict[str, float]
    name: str
    weights: Numbers
    look: MakeDocument | None = field(default=None, compare=False)

    def row(self, given: str) -> dict[str, Any]:
        # equal weights are a mean of positions, not attention
        attends = float(self.weights.max()) > float(self.weights.min())
        names = ("label", "probabilities", *["weights"] * attends)
        return {"image": given, **self.to_dict(*names)}

    def detail(self) -> str:
        return likeliest(self.label, self.probabilities)


@dataclass(frozen=True, eq=False, repr=False)
class Caption(Written):
    """The caption of a picture: the text, how likely it is, whether it ended, what else a beam found, its words, how much each looked at
    each position of the image encoder's grid (words × rows × columns; None without attention), and the picture's name."""

    text: str
    log_prob: float
    finished: bool
    alternatives: list[str]
    words: list[str]
    weights: Numbers | None
    name: str
    look: MakeDocument | None = field(default=None, compare=False)

    def row(self, given: str) -> dict[str, Any]:
        facts = self.to_dict("log_prob", "finished", "alternatives")
        return {"image": given, "caption": self.text, **facts}

    def line(self, given: str) -> str:
        return f"{' '.join(given.split())}\t{self.text}"


@dataclass(frozen=True, eq=False, repr=False)
class Answered(Result):
    """The answer to a question about a picture, the probability of each answer, and where each piece of the question looked: pieces × rows
    × columns of the encoder's grid; unpacks to answer, probability."""

    printed: ClassVar[str] = "answer"
    answer: str
    probabilities: dict[str, float]
    question: str
    name: str
    pieces: list[str]
    weights: Numbers
    look: MakeDocument | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.answer, self.probabilities[self.answer]))

    def _repr_html_(self) -> str:
        said = f"<b>{escape(self.answer)}</b> ({self.probabilities[self.answer]:.3f})"
        return f'<p dir="auto">{escape(self.question)} <small>{escape(self.name)}</small><br>→ {said}</p>'

    def row(self, given: str) -> dict[str, Any]:
        facts = self.to_dict()
        return {"image": facts.pop("name"), **facts, "weights": self.weights.round(4).tolist()}

    def detail(self) -> str:
        return likeliest(self.answer, self.probabilities)


@dataclass(frozen=True, eq=False, repr=False)
class Reconstructed(Result):
    """What an autoencoder made of a picture: its squared error, PSNR in decibels, and the pictures (H × W × 3 bytes) before, as it was read
    (where noise was added) and after."""

    name: str
    error: float
    psnr: float
    before: Pixels
    noisy: Pixels | None
    after: Pixels

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "error": self.error, "psnr": self.psnr}

    def save(
        self, path: str | os.PathLike[str], site: str | None = None, heads: bool = False
    ) -> Path:
        """Writes the numbers as .json, or the pictures side by side as .png, .svg or .pdf."""
        if check_ending(path).suffix.lower() == ".json":
            return super().save(path)
        from .figures import before_after, save  # matplotlib takes a second to import

        return save(before_after([self]), path)

    def __str__(self) -> str:
        return f"{self.name}: PSNR {self.psnr:.1f} dB"

    def row(self, given: str) -> dict[str, Any]:
        return {"image": given, **self.to_dict("error", "psnr")}

    def line(self, given: str) -> str:
        return f"PSNR {self.psnr:.1f} dB\t{given}"

    def detail(self) -> str:
        return self.line(self.name)


@dataclass(frozen=True, eq=False, repr=False)
class Translated(Written):
    """One translation: the text, how likely it is, its tokens, whether it ended, and what else a beam found; unpacks to text, log_prob."""

    text: str
    log_prob: float
    score: float
    tokens: list[int]
    finished: bool
    alternatives: list[str]
    source: str = ""
    # (source word, its own word) of each unknown word that was replaced by one of the source
    copied: tuple[tuple[int, int], ...] = ()
    look: MakeDocument | None = field(default=None, compare=False)

    def row(self, given: str) -> dict[str, Any]:
        facts = self.to_dict("log_prob", "finished")
        return {"source": given, "translation": self.text, **facts}

    def line(self, given: str) -> str:
        return self.text


@dataclass(frozen=True, eq=False, repr=False)
class Classified(Result):
    """A text's label, the probability of each, and how much each of its pieces counted; unpacks to label, probability."""

    printed: ClassVar[str] = "label"
    label: str
    probabilities: dict[str, float]
    pieces: list[str]
    weights: Numbers
    look: MakeDocument | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.label, self.probabilities[self.label]))

    def _repr_html_(self) -> str:
        # the greatest in the orange of the terminal
        parts = self.weights.clip(0) / (self.weights.max(initial=0.0) or 1.0)
        style = [f"background:rgba(255, 140, 0, {part:.2f});padding:0 .2em" for part in parts]
        words = [
            f'<span style="{how}">{escape(shorten(one))}</span>'
            for how, one in zip(style, self.pieces, strict=True)
        ]
        return f'<p dir="auto"><b>{escape(self.label)}</b> ({self.probabilities[self.label]:.3f})<br>{" ".join(words)}</p>'

    def row(self, given: str) -> dict[str, Any]:
        weights = [list(pair) for pair in zip(self.pieces, self.weights.tolist(), strict=True)]
        return {"text": given, **self.to_dict("label", "probabilities"), "weights": weights}

    def detail(self) -> str:
        return likeliest(self.label, self.probabilities)


class Tagged(list[str], Result):
    """The tags of a sentence, one per word; `probabilities` is an array of words × `labels`."""

    def __init__(
        self,
        tags: Sequence[str],
        words: Sequence[str],
        labels: Sequence[str],
        probabilities: Numbers,
    ) -> None:
        super().__init__(tags)
        self.words, self.labels, self.probabilities = list(words), list(labels), probabilities

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(word, tag) of each word."""
        return list(zip(self.words, self, strict=True))

    def facts(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "tags": list(self),
            "labels": self.labels,
            "probabilities": self.probabilities,
        }

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in self.pairs)

    __repr__ = Result.__repr__

    def _repr_html_(self) -> str:
        return small_table([self.words, list(self)])

    def row(self, given: str) -> dict[str, Any]:
        return {"words": self.words, "tags": list(self)}


@dataclass(frozen=True, eq=False, repr=False)
class Aligned(Result):
    """What a model looked at while it generated a given target: weights of pieces (target × source), and the links of words."""

    source: Any  # encoded: its `pieces`
    target: Any
    weights: Numbers
    links: list[tuple[int, int]]

    @property
    def document(self) -> Document:
        """The weights as a document of one site, the mean of all attention to the source."""
        rows, columns = [*self.target.pieces, "<eos>"], [*self.source.pieces, "<eos>"]
        return Document(
            " ".join(columns[:-1]),
            columns[:-1],
            rows[:-1],
            [Site("alignment", rows, columns, self.weights[None])],
        )

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "source": list(self.source.pieces),
            "target": list(self.target.pieces),
        }

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.links)

    def _repr_html_(self) -> str:
        return self.document._repr_html_()


class Generated(Iterator[str]):
    """A text as it is generated: iterate over its pieces, or ask for all of it by `.text` or str(), without the prompt."""

    def __init__(self, prompt: str, pieces: Iterator[str]) -> None:
        self.prompt, self._pieces, self._seen = prompt, pieces, list[str]()

    def __next__(self) -> str:
        self._seen.append(next(self._pieces))
        return self._seen[-1]

    def __str__(self) -> str:
        for _ in self:
            pass
        return "".join(self._seen)

    text = property(__str__)

    def to_dict(self) -> dict[str, str]:
        """The prompt and all of the text."""
        return {"prompt": self.prompt, "text": self.text}

    def __repr__(self) -> str:  # of what is there: printing runs no model
        return f"Generated({shorten(''.join(self._seen), 60)!r} so far; str() gives all of it)"

    def _repr_html_(self) -> str:
        return f'<div dir="auto" style="white-space:pre-wrap"><b>{escape(self.prompt)}</b>{escape(self.text)}</div>'

    def row(self, given: str) -> dict[str, Any]:
        return self.to_dict()

    def line(self, given: str) -> str:
        return f"{given}{self}"


class Metrics(dict[str, Any]):
    """The metrics of an evaluation by name; a table in a notebook."""

    def _repr_html_(self) -> str:
        return small_table(
            [
                (name, f"{value:.4g}" if isinstance(value, float) else value)
                for name, value in self.items()
            ]
        )
