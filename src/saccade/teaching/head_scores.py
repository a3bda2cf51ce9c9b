"""Scores of each attention head against position, syntax, coreference and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.conllu import Sentence
from ..errors import SaccadeError
from ..views.document import Document, Site

PRONOUNS = re.compile(
    "it|he|she|they|him|her|them|its|his|their|hers|theirs|himself|herself|itself", re.IGNORECASE
)
SPECIAL = {"<eos>", "<bos>", "<global>", "<cls>", "<sep>"}
Targets = NDArray[np.bool_]  # words × words: which words would be a hit, for each word that looks


def neighbor(by: int) -> Callable[[Sentence], Targets]:
    return lambda one: np.eye(len(one.words), k=by, dtype=bool)


def to_first(one: Sentence) -> Targets:
    return np.repeat(np.arange(len(one.words))[None] == 0, len(one.words), 0)


def to_head(one: Sentence) -> Targets:
    """The word above, in a dependency tree."""
    return linked(one.heads, len(one.words))


def to_dependents(one: Sentence) -> Targets:
    return to_head(one).T


def linked(to: Sequence[int] | None, size: int) -> Targets:
    found = np.zeros((size, size), dtype=bool)
    for n, other in enumerate(to or ()):
        found[n, other] = other >= 0
    return found


def is_pronoun(one: Sentence) -> Targets:
    return np.array([[bool(PRONOUNS.fullmatch(word))] for word in one.words])


def to_antecedent(one: Sentence) -> Targets:
    return linked(one.refers, len(one.words)) & is_pronoun(one)


def to_cue(one: Sentence) -> Targets:
    """The word by which an ambiguous word is understood."""
    return linked(one.refers, len(one.words)) & ~is_pronoun(one)


def to_names(one: Sentence) -> Targets:
    """Proper nouns by their tag; without such tags, words that begin with a capital, but for the first of a sentence and "I"."""
    tags = one.tags or ()
    if "PROPN" in tags or "VERB" in tags:
        names = [tag == "PROPN" for tag in tags]
    else:
        names = [word[:1].isupper() and len(word) > 1 and n > 0 for n, word in enumerate(one.words)]
    return np.repeat(np.array(names)[None], len(names), 0) & ~np.eye(len(names), dtype=bool)


RELATIONS: dict[str, Callable[[Sentence], Targets]] = {
    "itself": neighbor(0),
    "previous": neighbor(-1),
    "next": neighbor(1),
    "first": to_first,
    "head": to_head,
    "dependents": to_dependents,
    "antecedent": to_antecedent,
    "cue": to_cue,
    "names": to_names,
}


@dataclass(frozen=True)
class HeadScore:
    """One head: for each relation, of the words that have it, the share whose greatest weight falls on it; the mean weight there; and
    the share that a head would reach that looks anywhere."""

    site: str
    head: int
    hits: dict[str, float]
    weight: dict[str, float]
    chance: dict[str, float]

    @property
    def best(self) -> str:
        """The relation it follows most, beyond chance."""
        return max(self.hits, key=lambda name: self.hits[name] - self.chance[name])

    def to_dict(self) -> dict[str, Any]:
        about = {"site": self.site, "head": self.head, "looks_at": self.best}
        return {**about, "hits": self.hits, "weight": self.weight, "chance": self.chance}


def score_heads(look: Callable[[str], Document], sentences: Iterable[Sentence]) -> list[HeadScore]:
    """The heads of every attention of a text to itself, in the order of the layers; `look` reads a text."""
    sums: dict[tuple[str, int], dict[str, NDArray[np.float64]]] = {}
    counted = skipped = 0
    for one in sentences:
        every = look(" ".join(one.words)).words().sites
        sites = [found for site in every if (found := between_words(site, len(one.words)))]
        counted, skipped = counted + bool(sites), skipped + (not sites)
        targets = {name: make(one) for name, make in RELATIONS.items()}
        for name, weights in sites:
            for head, each in enumerate(weights):
                add_up(sums.setdefault((name, head), {}), each, targets)
    if not counted:
        wrong = f"no attention between the words of a sentence was found in {skipped} sentences"
        raise SaccadeError(
            f"{wrong}; give a model whose encoder attends to its own words, such as transformer-encoder, and sentences in words",
            code="no-self-attention",
        )
    scored = []
    for (name, head), by in sums.items():
        shares = {
            relation: (total[1:] / total[0]).tolist() for relation, total in by.items() if total[0]
        }
        columns = [{relation: values[n] for relation, values in shares.items()} for n in range(3)]
        scored.append(HeadScore(name, head, *columns))
    return scored


def between_words(site: Site, words: int) -> tuple[str, NDArray[np.float64]] | None:
    """The weights of a site from each word to each word, heads × words × words, if it is a text's attention to itself."""
    real = [n for n, name in enumerate(site.columns) if name not in SPECIAL]
    if list(site.rows) != list(site.columns) or len(real) != words or site.grid is not None:
        return None
    return site.name, np.asarray(site.weights, dtype=np.float64)[:, real][:, :, real]


def add_up(
    sums: dict[str, NDArray[np.float64]], weights: NDArray[np.float64], targets: dict[str, Targets]
) -> None:
    """Count, for each relation, the words that have it, the hits, the weight on it and the expected hits by chance."""
    most = weights.argmax(-1)
    for name, wanted in targets.items():
        there = wanted.any(-1)
        hits = wanted[np.arange(len(most)), most] & there
        on_target, share = (weights * wanted).sum(-1)[there].sum(), wanted[there].mean(-1).sum()
        sums[name] = sums.get(name, np.zeros(4)) + np.array(
            [there.sum(), hits.sum(), on_target, share]
        )
