"""Further metrics of texts against references, which `data.metrics` names, and the controls that a model is judged against."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.paired import arcs_of
from ..data.pairs import Pair
from ..errors import SaccadeError
from ..registry import Table
from .task import percent_of
from .text_scores import Sums, score_of

Pairs = Sequence[Pair]
Texts = dict[str, list[str]]  # control → its outputs
WORD = re.compile(r"\w+")


class TextMetric:
    """Numbers that outputs add up to, and its controls: the outputs of rules that are made of the training pairs."""

    def sums(self, outputs: Sequence[str], pairs: Pairs) -> Sums:
        raise NotImplementedError

    def controls(self, train: Pairs, pairs: Pairs) -> Texts:
        """The target of the training pair with the nearest source, and the most frequent target."""
        return {
            "nearest": nearest(train, pairs),
            "frequent": [most_frequent(pair.target for pair in train)] * len(pairs),
        }


table: Table[type[TextMetric]] = Table("metrics", "metric")


def chosen(names: str) -> list[TextMetric]:
    """The metrics of `code,rouge`."""
    return [table[name.strip()]() for name in names.split(",") if name.strip()]


class Exact(TextMetric):
    """Outputs that are entirely correct, in percent."""

    def sums(self, outputs: Sequence[str], pairs: Pairs) -> Sums:
        right = [
            [output.strip() == pair.target.strip(), 1]
            for output, pair in zip(outputs, pairs, strict=True)
        ]
        return {"exact": (np.array(right, dtype=np.float64).reshape(-1, 2), percent_of)}


@table.add("code", paper="Yin et al. 2018 (CoNaLa)")
class Code(TextMetric):
    """`bleu_code`: BLEU without smoothing on code tokens, as the CoNaLa baseline computes it."""

    def sums(self, outputs: Sequence[str], pairs: Pairs) -> Sums:
        import sacrebleu

        metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
        sides = [
            [" ".join(code_tokens(text)) for text in side]
            for side in (outputs, [pair.target for pair in pairs])
        ]
        counts = metric._extract_corpus_statistics(sides[0], [sides[1]])
        return {"bleu_code": (np.array(counts, dtype=np.float64), partial(score_of, metric))}


def code_tokens(code: str) -> list[str]:
    """Code split at all but letters, digits and underscores, and within camelCase; both quotes are one sign (Ling et al. 2016)."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", re.sub(r"([^A-Za-z0-9_])", r" \1 ", code))
    return re.sub(r"[\"']", "`", spaced).split()


@table.add("rouge", paper="Lin 2004")
class Rouge(TextMetric):
    """`rouge_1`, `rouge_2` and `rouge_l`: mean F1 of shared words, pairs of words and the longest common subsequence."""

    names = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}  # noqa: RUF012

    def sums(self, outputs: Sequence[str], pairs: Pairs) -> Sums:
        scorer = rouge_scorer([*self.names.values()])
        found = [
            scorer.score(pair.target, output) for output, pair in zip(outputs, pairs, strict=True)
        ]
        every = {
            name: [[one[theirs].fmeasure, 1] for one in found]
            for name, theirs in self.names.items()
        }
        return {
            name: (np.array(rows, dtype=np.float64).reshape(-1, 2), percent_of)
            for name, rows in every.items()
        }

    def controls(self, train: Pairs, pairs: Pairs) -> Texts:
        """Besides, the first words of the source, as many as a target has in the mean."""
        count = round(sum(len(pair.target.split()) for pair in train) / max(len(train), 1))
        return {
            **super().controls(train, pairs),
            "lead": [" ".join(pair.source.split()[:count]) for pair in pairs],
        }


def rouge_scorer(names: list[str]) -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        what = "data.metrics=rouge needs the package rouge-score"
        raise SaccadeError(
            f"{what}; install it with: pip install 'saccade-attention[metrics]'",
            code="package-missing",
        ) from None
    return RougeScorer(names)


@table.add("attachment", paper="Buchholz & Marsi 2006 (CoNLL-X)")
class Attachment(TextMetric):
    """`uas` and `las` of linearized trees: words with the right head, and with the right head and relation, in percent."""

    def sums(self, outputs: Sequence[str], pairs: Pairs) -> Sums:
        rows = []
        for output, pair in zip(outputs, pairs, strict=True):
            count = len(pair.source.split())
            both = list(zip(arcs_of(output, count), arcs_of(pair.target, count), strict=True))
            heads = sum(
                ours is not None and gold is not None and ours[0] == gold[0] for ours, gold in both
            )
            rows.append(
                [heads, sum(ours is not None and ours == gold for ours, gold in both), count]
            )
        counts = np.array(rows, dtype=np.float64).reshape(-1, 3)
        return {"uas": (counts[:, [0, 2]], percent_of), "las": (counts[:, [1, 2]], percent_of)}

    def controls(self, train: Pairs, pairs: Pairs) -> Texts:
        """Each word's most frequent arc in training (`word`), and each word attached to the next one with its most frequent relation, the
        last as the root (`next_word`)."""
        arcs = defaultdict[str, Counter[str]](Counter)
        relations = defaultdict[str, Counter[str]](Counter)
        for pair in train:
            for word, arc in zip(pair.source.lower().split(), pair.target.split(), strict=False):
                for name in (word, ""):  # "": a word that training never had
                    arcs[name][arc] += 1
                    relations[name][arc.partition("/")[2]] += 1

        def most(known: dict[str, Counter[str]], word: str) -> str:
            return most_frequent(known.get(word) or known[""])

        texts = [pair.source.lower().split() for pair in pairs]
        return {
            "word": [" ".join(most(arcs, word) for word in words) for words in texts],
            "next_word": [
                " ".join([*(f"+1/{most(relations, word)}" for word in words[:-1]), "0/root"])
                for words in texts
            ],
        }


def most_frequent(texts: Iterable[str]) -> str:
    """The most frequent one, of several the first in order."""
    counted = Counter(texts)
    return min(counted, key=lambda text: (-counted[text], text))


def nearest(train: Pairs, pairs: Pairs) -> list[str]:
    """The target of the training pair whose source is most like each source: the cosine of their TF-IDF vectors."""
    sources = [Counter(WORD.findall(pair.source.lower())) for pair in train]
    seen = Counter(word for words in sources for word in words)
    idf = {word: float(np.log(len(train) / count)) for word, count in seen.items()}
    found = defaultdict[str, list[tuple[int, float]]](list)
    for n, words in enumerate(sources):
        norm = sum((count * idf[word]) ** 2 for word, count in words.items()) ** 0.5 or 1.0
        for word, count in words.items():
            found[word].append((n, count * idf[word] / norm))
    postings: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {
        word: (np.array([n for n, _ in rows]), np.array([weight for _, weight in rows]))
        for word, rows in found.items()
    }

    def best(source: str) -> str:
        likeness = np.zeros(len(train))
        for word, count in Counter(WORD.findall(source.lower())).items():
            if word in postings:
                at, weights = postings[word]
                likeness[at] += count * idf[word] * weights
        return train[int(likeness.argmax())].target

    return [best(pair.source) for pair in pairs]


def unigram_loss(
    train: Sequence[Sequence[int]], other: Sequence[Sequence[int]], size: int, eos: int
) -> float:
    """Nats per token, the end of each text counted, of a model that knows how frequent each token is in training; each counts once more
    than it was seen."""
    counts = np.bincount([id for ids in train for id in (*ids, eos)], minlength=size) + 1.0
    return float(-np.log(counts / counts.sum())[[id for ids in other for id in (*ids, eos)]].mean())


def all_sums(metrics: Sequence[TextMetric], outputs: Sequence[str], pairs: Pairs) -> Sums:
    return {
        name: found for metric in metrics for name, found in metric.sums(outputs, pairs).items()
    }


def score_all(
    metrics: Sequence[TextMetric], outputs: Sequence[str], pairs: Pairs
) -> dict[str, float]:
    return {
        name: score(counts.sum(0))
        for name, (counts, score) in all_sums(metrics, outputs, pairs).items()
    }
