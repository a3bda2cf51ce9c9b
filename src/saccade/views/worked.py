"""Self-attention by hand, every step in words: the worked example of the lectures, and the reader's own sentence; x are the inputs."""

import hashlib
import html
import io
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from ..errors import SaccadeError
from .document import shorten

MOST_TOKENS = 30
DIM = 4


class Matrix(NamedTuple):
    """A matrix of a step, with names for its rows and columns."""

    name: str
    matrix: np.ndarray
    row_names: list[str]
    column_names: list[str]


class Step(NamedTuple):
    """One step of the calculation: what is done, in words, and the matrices it is about."""

    title: str
    text: str
    matrices: list[Matrix]


class Worked:
    """All numbers of one self-attention, in float64; `scores` are the plain dot products, before any scaling."""

    def __init__(self, tokens: list[str], inputs: Any, learned: Sequence[Any], scaled: bool) -> None:
        """outputs = softmax(x W_q (x W_k)ᵀ) x W_v; `scaled` divides by √d_k, which the lectures leave out."""
        self.tokens = tokens
        self.x, self.W_q, self.W_k, self.W_v = (np.asarray(matrix, dtype=np.float64) for matrix in (inputs, *learned))
        self.q, self.k, self.v = self.x @ self.W_q, self.x @ self.W_k, self.x @ self.W_v
        self.scores, self.scaled = self.q @ self.k.T, scaled
        logits = self.scores / np.sqrt(self.k.shape[1]) if scaled else self.scores
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))  # the maximum changes nothing but keeps e^s finite
        self.weights = powers / powers.sum(axis=1, keepdims=True)
        self.outputs = self.weights @ self.v

    def __repr__(self) -> str:
        return f"Worked({shorten(' '.join(self.tokens), 60)!r}, 7 steps; print it to read them)"

    def __str__(self) -> str:
        from rich.console import Console

        from .terminal import render

        page = io.StringIO()
        Console(file=page, width=110, color_system=None, force_jupyter=False).print(render(self))
        return page.getvalue()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Everything, and the steps, as plain lists and numbers for JSON."""
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}
        plain["steps"] = [step._asdict() for step in self.steps()]
        for step in plain["steps"]:
            step["matrices"] = [{**shown._asdict(), "matrix": shown.matrix.tolist()} for shown in step["matrices"]]
        return plain

    def steps(self) -> list[Step]:
        """The calculation in seven steps, explained for the first token and shown for all; the texts are in worked.txt."""
        (count, dim), width, first = self.x.shape, self.k.shape[1], self.weights[0]
        each_score, each_value = [], []
        for token, key, value, score, weight in zip(self.tokens, self.k, self.v, self.scores[0], first, strict=True):
            products = " + ".join(f"{_number(a)}·{_number(b)}" for a, b in zip(self.q[0], key, strict=True))
            each_score.append(f"with '{token}': {products} = {_number(score)}")
            each_value.append(f"{weight:.4f} · {_row(value)} = {_row(weight * value)}")
        winners = [f"'{token}'" for token, weight in zip(self.tokens, first, strict=True) if np.isclose(weight, first.max())]
        divide = f"First divide the scores by √{width} = {np.sqrt(width):.4f}, so that wide keys do not make them large. "
        words = {
            **{name: _row(getattr(self, name)[0]) for name in ("x", "q", "k", "v", "scores", "weights", "outputs")},
            **{"tokens": f"{count} token{'s' * (count > 1)}", "dim": dim, "first": self.tokens[0]},
            **{"each_score": _first_few(each_score), "each_value": _first_few(each_value)},
            "winners": " and ".join(dict.fromkeys(winners)),
            **({"divide": divide, "root": f" / √{width}"} if self.scaled else {"divide": "", "root": ""}),
        }
        learned = [Matrix(f"W_{name}", getattr(self, f"W_{name}"), _numbered("x", dim), _numbered(name, width)) for name in "qkv"]
        weights = self._matrix("weights", self.weights)
        shown = [
            [self._matrix("x", self.x, "x")],
            learned + [self._matrix(name, getattr(self, name), name) for name in "qkv"],
            [self._matrix("scores", self.scores)],
            [weights],
            [self._matrix("weight · v", self.weights[0][:, None] * self.v, "v")],
            [Matrix("output", self.outputs[:1], self.tokens[:1], _numbered("o", width))],
            [weights, self._matrix("V", self.v, "v"), self._matrix("outputs", self.outputs, "o")],
        ]
        blocks = files("saccade.views").joinpath("worked.txt").read_text(encoding="utf-8").strip().split("\n\n")
        texts = [block.split("\n", 1) for block in blocks]
        return [Step(title, text.format_map(words), each) for (title, text), each in zip(texts, shown, strict=True)]

    def _matrix(self, name: str, matrix: np.ndarray, letter: str = "") -> Matrix:
        """A matrix with one row per token, and one column per token too where no letter names the columns."""
        return Matrix(name, matrix, self.tokens, _numbered(letter, matrix.shape[1]) if letter else self.tokens)


def worked_example(scaled: bool = False) -> Worked:
    """The worked example of the lectures: three inputs of four numbers, projected to three."""
    x = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
    W_q = [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]
    W_k = [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]
    W_v = [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]
    return Worked(["input 1", "input 2", "input 3"], x, (W_q, W_k, W_v), scaled)


def worked_sentence(tokens: Sequence[str], scaled: bool = False) -> Worked:
    """The same calculation for the reader's own words, with small whole numbers that depend on the words alone."""
    if not tokens:
        raise SaccadeError("the sentence is empty; give at least one word")
    if len(tokens) > MOST_TOKENS:
        raise SaccadeError(f"the sentence has {len(tokens)} words, but {MOST_TOKENS} are the most one can follow; shorten it")
    # a vector of 0, 1 and 2 for each different word; one whose vector is taken draws again, in the end from larger numbers
    taken: dict[str, tuple[int, ...]] = {}
    for token in dict.fromkeys(tokens):
        attempt, vector = 0, (0,) * DIM
        while not any(vector) or vector in taken.values():
            numbers = (0, 0, 1, 1, 2) if attempt < 30 else range(3 + attempt // 30)
            # bytes that depend on the word alone, on every machine and with every version of numpy
            drawn = hashlib.shake_256(repr(("word", token, DIM, 0, attempt)).encode("utf-8", "surrogatepass")).digest(DIM)
            vector = tuple(numbers[value % len(numbers)] for value in drawn)
            attempt += 1
        taken[token] = vector
    # a single 1 in each column of W_q and W_k, so that scores stay small enough for a softmax with shades
    W_q = [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
    W_k = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    W_v = [[0, 1, 0], [2, 0, 2], [0, 2, 0], [0, 1, 1]]
    return Worked(list(tokens), [taken[token] for token in tokens], (W_q, W_k, W_v), scaled)


def _first_few(parts: list[str], most: int = 5) -> str:
    """The first parts, and how many more go the same way."""
    rest = f"; and so on for the other {len(parts) - most}" if len(parts) > most else ""
    return "; ".join(parts[:most]) + rest


def _numbered(letter: str, count: int) -> list[str]:
    """x1, x2, x3 …"""
    return [f"{letter}{index}" for index in range(1, count + 1)]


def _number(value: float) -> str:
    """A number as one would write it down: whole ones without a point, others with four digits."""
    return f"{value:.0f}" if value == round(value) else f"{value:.4f}"


def _row(values: np.ndarray) -> str:
    """[1, 0, 2]"""
    return "[" + ", ".join(_number(value) for value in values) + "]"
