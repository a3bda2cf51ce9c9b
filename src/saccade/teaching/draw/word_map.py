"""A map of words: vectors of a model, or of counts, projected onto their two principal components."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ... import api
from ...data.corpora import corpus
from ...errors import SaccadeError
from ...layers.embeddings import Embedding
from ...views.plots.layout import panels
from ...views.plots.scatter import Scatter
from .drawing import Drawing

MAX_WORDS = 300
TAGS = {"NOUN": "nouns", "VERB": "verbs", "ADJ": "adjectives", "NUM": "numbers"}
WINDOW = 2  # words to each side that count as neighbors
PHRASEBOOK = {"train": 3000, "dev": 1, "test": 1}


def project(vectors: np.ndarray) -> np.ndarray:
    """The two directions of greatest variance (principal components), each with its largest entry positive: count × 2."""
    centered = vectors - vectors.mean(0)
    _, _, directions = np.linalg.svd(centered, full_matrices=False)
    chosen = directions[:2]
    signs = np.sign(chosen[np.arange(len(chosen)), np.abs(chosen).argmax(1)])
    return np.asarray(centered @ (chosen * signs[:, None]).T)


def nearest(vectors: np.ndarray, count: int = 3) -> np.ndarray:
    """For each vector, the numbers of those with the greatest cosine."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -2)
    return np.asarray(np.argsort(-cosine, axis=1, kind="stable")[:, :count])


def from_counts(sentences: list[list[str]], words: list[str], dim: int = 16) -> np.ndarray:
    """Vectors from how often words are neighbors: the singular vectors of max(0, log p(a, b) / p(a) p(b)) (Levy & Goldberg 2014)."""
    every = dict.fromkeys(word for line in sentences for word in line)
    vocabulary = {word: n for n, word in enumerate(every)}
    counts = np.zeros((len(vocabulary), len(vocabulary)))
    for line in sentences:
        for at, word in enumerate(line):
            for other in line[max(0, at - WINDOW) : at]:
                counts[vocabulary[word], vocabulary[other]] += 1
    counts += counts.T
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / max(counts.sum(), 1)
    information = np.log(np.maximum(counts, 1e-12) / np.maximum(expected, 1e-12)).clip(0)
    left, values, _ = np.linalg.svd(information)
    return np.asarray((left[:, :dim] * np.sqrt(values[:dim]))[[vocabulary[word] for word in words]])


def from_model(folder: str, words: list[str]) -> tuple[list[str], np.ndarray, int]:
    """The words that a model knows as one token each, its vectors of them, and how many tokens it knows in all."""
    system = api.load(folder, "cpu")
    task: Any = system.task
    vocabulary = getattr(task, "source", None) or getattr(task, "text", None)
    tables = (module for module in system.model.modules() if isinstance(module, Embedding))
    table = next(tables, None)
    if vocabulary is None or table is None or table.reads_bytes:
        raise SaccadeError(
            f"{folder} has no vectors of words; choose a model that reads texts as tokens",
            code="no-word-vectors",
        )
    ids = dict(zip(words, vocabulary.encode_ids(words), strict=True))
    unknown = [getattr(vocabulary, "unk", -1)]
    known = [word for word, found in ids.items() if len(found) == 1 and found != unknown]
    with torch.no_grad():
        found = table(torch.tensor([[ids[word][0] for word in known]], dtype=torch.long))[0]
        return known, np.asarray(found.double().numpy()), len(vocabulary)


def draw(names: list[str], most: int = 70) -> Drawing:
    """The words of a run folder's model, or of the phrasebook by counts, on a plane; more names are the words to draw."""
    if not 3 <= most <= MAX_WORDS:
        raise SaccadeError(f"expected 3 to {MAX_WORDS} words, got {most}", code="out-of-range")
    pairs = corpus("phrasebook:train", PHRASEBOOK)
    lines = [pair.source.split() for pair in pairs]
    tagged = (zip(pair.source.split(), pair.tags, strict=True) for pair in pairs)
    tags = {word: tag for words in tagged for word, tag in words}
    counts = Counter(word for line in lines for word in line).most_common()
    frequent = [word for word, _ in counts if tags[word] in TAGS]
    folder = names[0] if names and Path(names[0]).is_dir() else None
    given = names[1:] if folder else names
    if folder:
        words, vectors, _ = from_model(folder, given or frequent)
        words, vectors = words[:most], vectors[:most]
    else:
        if missing := [word for word in given if word not in tags]:
            raise SaccadeError(
                f"'{missing[0]}' is neither a run folder nor a word of the phrasebook; name a run first",
                code="unknown-word",
            )
        words = (given or frequent)[:most]
        vectors = from_counts(lines, words)
    if len(words) < 3:
        raise SaccadeError(
            f"of these words {len(words)} are single tokens of the model; name at least 3 that are",
            code="too-few-words",
        )
    at, close = project(vectors), nearest(vectors)
    title = f"Map of {len(words)} words"
    note = f"{folder or 'from counts of neighbors in the phrasebook'} · first two principal components of {vectors.shape[1]} numbers"
    places = {word: (float(x), float(y)) for word, (x, y) in zip(words, at, strict=True)}
    groups = {word: TAGS.get(tags.get(word, ""), "others") for word in words}
    shown = Scatter("", "", "", 8.0, 6.2, places, groups, ticks=False)
    near = [", ".join(words[n] for n in one) for one in close]
    rows = [["word", "nearest by cosine"], *map(list, zip(words, near, strict=True))]
    text = "Words that are used alike have vectors that lie close together. Two of many dimensions are drawn; the table uses all."
    return Drawing(title, text, rows, panels(title, note, [[shown]]))
