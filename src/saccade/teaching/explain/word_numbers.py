"""Words in numbers: tf·idf of a corpus, and one-hot vectors against embeddings."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import SaccadeError
from ...layers.pooling import TfIdf
from ...views.worked_steps import How, Matrix, Step, Worked, number, numbered, quote

MAX_ROWS, MAX_COMMON_WORDS = 20, 10
MAX_COLUMNS = 8  # numbers of a wide vector
MAX_WORDS = 1_000_000  # different words of a corpus
MAX_DOCUMENTS = 1_000_000
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# "David" is common and "Beckham" is not: the example of the slide as a corpus
LECTURE = [
    "David Beckham scored and David smiled",
    "David Bowie sang and the crowd sang",
    "David Attenborough filmed the birds",
    "Michelangelo carved David and the crowd came",
    "the birds sang and David listened",
]
SLIDE, SLIDE_WORDS = "the slide's numbers", 3000  # of the corpus that it names
DOG, CAT = [0.3645, 0.9507, 0.7320, 0.5987], [0.2949, 0.7559, 0.6172, 0.4943]


def words_of(line: str) -> list[str]:
    return [found[0].casefold() for found in WORD.finditer(line)]


def explain_tf_idf(documents: Callable[[], Iterable[str]], name: str) -> Worked:
    """tf·log(N / n_j) of a corpus, one document per line: the words that weigh most. `documents` is read from its start several times."""
    ids: dict[str, int] = {}
    held: Counter[int] = Counter()
    count = 0
    for line in documents():
        count += 1
        held.update({ids.setdefault(word, len(ids)) for word in words_of(line)})
        if len(ids) > MAX_WORDS or count > MAX_DOCUMENTS:
            what = f"{MAX_DOCUMENTS:,} documents"
            what = f"{MAX_WORDS:,} different words" if len(ids) > MAX_WORDS else what
            raise SaccadeError(
                f"{name} has more than {what}, which is more than tf·idf is explained for; give a part of it",
                code="text-too-long",
            )
    if not ids:
        raise SaccadeError(
            f"{name} has no words in {count} line{'s' * (count != 1)}; give one document per line",
            code="no-words",
        )

    def texts() -> Iterable[list[int]]:
        return ([ids[word] for word in words_of(line) if word in ids] for line in documents())

    pool = TfIdf(len(ids)).double()
    pool.prepare(texts())
    idf, names = pool.idf.tolist(), list(ids)
    best: list[tuple[float, int, int, int, int]] = []
    for n, text in enumerate(texts(), 1):
        for token, times in Counter(text).items():
            entry = (times / len(text) * idf[token], -n, -token, times, len(text))
            (heapq.heappush if len(best) < MAX_ROWS else heapq.heappushpop)(best, entry)
    highest = [
        {"word": names[-token], "document": -n, "count": times, "length": size, "tf": times / size, "documents_with_it": held[-token],
         "idf": idf[-token], "tf_idf": value}
        for value, n, token, times, size in sorted(best, reverse=True)
    ]  # fmt: skip
    often = sorted(held, key=lambda token: (-held[token], names[token]))[:MAX_COMMON_WORDS]
    common = [(names[token], held[token], idf[token]) for token in often]
    facts = {"documents": count, "words": len(ids), "highest": highest}
    return Worked(f"tf·idf of {name}", tf_idf_steps(highest, common, count), **facts)


def tf_idf_steps(
    highest: list[dict[str, Any]], common: list[tuple[str, int, float]], count: int
) -> list[Step]:
    columns = ["document", "count", "words", "tf", "n_j", "idf", "tf·idf"]
    keys = ["document", "count", "length", "tf", "documents_with_it", "idf", "tf_idf"]
    numbers = np.array([[one[key] for key in keys] for one in highest], dtype=np.float64)

    def of(text: str, *at: int) -> How:
        return {"text": text, "uses": [["tf·idf", "i", n] for n in at]}

    how: list[How] = [
        {"text": "{row} in document {value}"}, {"text": "{row} occurs {value} times there"}, {"text": "the document has {value} words"},
        of("{0} / {1} = {value}", 1, 2), {"text": "{value} documents contain {row}"}, of(f"log({count} / {{0}}) = {{value}}", 4),
        of("{0}·{1} = {value}", 3, 5),
    ]  # fmt: skip
    n_j: How = {"text": "{value} documents contain {row}"}
    log: How = {"text": f"log({count} / {{0}}) = {{value}}", "uses": [["most common", "i", 0]]}
    top = highest[0]
    text = (
        "tf = how often a word occurs in a document / the number of its words; idf = log(N / n_j), N documents of which n_j contain the word. "
        f"{quote(top['word'])} in document {top['document']}: {number(top['tf'])} · {number(top['idf'])} = {number(top['tf_idf'])}. These "
        "weights are counted, not learned, and do not depend on the sentence around a word: static attention."
    )
    counted = np.array([one[1:] for one in common], dtype=np.float64)
    words = [one[0] for one in common]
    table = Matrix("most common", counted, words, ["n_j", "idf"], [n_j, log])
    largest = Matrix("tf·idf", numbers, [one["word"] for one in highest], columns, how)
    about = f"N = {count:,} documents. A word that all of them contain has idf = log(N / N) = 0."
    return [
        Step("1. Common words say little", about, [table]),
        Step("2. The words that weigh most", text, [largest]),
    ]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    sizes = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / sizes if sizes else 0.0


def pearson(a: np.ndarray, b: np.ndarray) -> float:
    return cosine(a - a.mean(), b - b.mean())


def explain_similar(pair: Sequence[str], vectors: np.ndarray, source: str, known: int) -> Worked:
    """One-hot against embedding: two words' cosine and correlation (Pearson) in both. A one-hot vector is `known` words wide."""
    a, b = np.asarray(vectors, dtype=np.float64)
    same = pair[0] == pair[1]
    facts: dict[str, Any] = {"words": list(pair), "vectors": np.stack([a, b]), "source": source}
    facts["vocabulary"] = known
    facts["one_hot"] = {"cosine": float(same), "pearson": 1.0 if same else -1 / (known - 1)}
    facts |= {"dot": float(a @ b), "cosine": cosine(a, b), "pearson": pearson(a, b)}
    return Worked(" ".join(pair), similar_steps(list(pair), a, b, facts), **facts)


def similar_steps(
    pair: list[str], a: np.ndarray, b: np.ndarray, facts: dict[str, Any]
) -> list[Step]:
    both, width, known = np.stack([a, b]), len(a), facts["vocabulary"]
    letters = numbered("x", min(width, MAX_COLUMNS))
    shown = f", of which {MAX_COLUMNS} are shown" if width > MAX_COLUMNS else ""
    hot = np.eye(4)[[0, int(pair[0] != pair[1])]]
    own: How = {"text": "1 where the column is the row's own word: {value}"}
    product: How = {"text": "{0}·{1} = {value}", "uses": [["vectors", 0, "j"], ["vectors", 1, "j"]]}
    minus: How = {"text": "{0} minus the mean of {row} = {value}", "uses": [["vectors", "i", "j"]]}
    means = both.mean(1, keepdims=True)
    slip = " The slide says approximately 0.996." if facts["source"] == SLIDE else ""
    lengths = f"√{number(float(a @ a))} · √{number(float(b @ b))}"
    texts = [
        f"A 1 for the word itself, 0 for each other of {known:,} words: {quote(pair[0])} · {quote(pair[1])} = {number(hot[0] @ hot[1])}. All "
        f"pairs of different words are equally unlike (cosine 0, correlation −1 / {known - 1:,}): nothing says which are related.",
        f"A vector of {width} numbers each: {facts['source']}{shown}.",
        f"a·b / (‖a‖ ‖b‖) = {number(facts['dot'])} / ({lengths}) = {number(facts['cosine'])}.",
        f"The cosine of the vectors minus their means ({number(means[0, 0])} and {number(means[1, 0])}): {number(facts['pearson'])}.{slip}",
    ]
    plain: How = {"text": "{column} of {row} = {value}"}
    matrices = [
        Matrix("one-hot", hot, pair, [*pair, "another", "…"], own),
        Matrix("vectors", both[:, :MAX_COLUMNS], pair, letters, plain),
        Matrix("products", (a * b)[None, :MAX_COLUMNS], ["a·b"], letters, product),
        Matrix("centered", (both - means)[:, :MAX_COLUMNS], pair, letters, minus),
    ]
    titles = ["1. One-hot", "2. Embedding", "3. Cosine", "4. Correlation (Pearson)"]
    return [
        Step(title, text, [one]) for title, text, one in zip(titles, texts, matrices, strict=True)
    ]


def slide_vectors(pair: Sequence[str]) -> np.ndarray | None:
    """The slide's vectors of dog and cat, in the order asked for; None for other words."""
    known = {"dog": DOG, "cat": CAT}
    found = [known.get(word.casefold()) for word in pair]
    return None if None in found else np.array(found)
