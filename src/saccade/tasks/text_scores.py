"""Scores of texts against references (BLEU and chrF by sacrebleu), word alignments from attention, and their error rate."""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.pairs import Pair
from ..data.unspaced_scripts import length, unspaced_script
from ..data.vocabulary import Encoded
from ..errors import SaccadeError, did_you_mean
from ..recipe import TOKENIZERS
from .rewards import gleu

Link = tuple[int, int]
# metric → examples × statistics, and the metric of their sum
Sums = dict[str, tuple[NDArray[np.float64], Callable[[Any], float]]]


def word_weights(
    weights: NDArray[np.floating], rows: Sequence[int], columns: Sequence[int]
) -> NDArray[np.floating]:
    """Piece weights (T N) → weights of words: sums over the pieces of a source word (`columns`), means over a target word's (`rows`)."""
    to, of = (np.asarray(words, dtype=int) for words in (rows, columns))
    # no matrix of pieces × words: a picture has many thousands of both
    columns_of = np.zeros((of.max(initial=-1) + 1, len(to)))
    np.add.at(columns_of, of, weights[: len(to), : len(of)].T)
    found = np.zeros((to.max(initial=-1) + 1, len(columns_of)))
    np.add.at(found, to, columns_of.T)
    return found / np.maximum(np.bincount(to, minlength=len(found)), 1)[:, None]


def links(weights: NDArray[np.floating], nothing: Sequence[float] | None = None) -> list[Link]:
    """(source word, target word) for each target word: the largest weight, unless `nothing`, that of the source's end, is larger."""
    largest = enumerate(weights.max(1, initial=0.0))
    return [
        (int(weights[t].argmax()), t)
        for t, most in largest
        if most > 0 and (nothing is None or most >= nothing[t])
    ]


def diagonal_links(sources: int, targets: int) -> list[Link]:
    """Each target word with the source word at the same share of the sentence: an alignment that knows the lengths alone, as a control."""
    return [((2 * t + 1) * sources // (2 * targets), t) for t in range(targets)]


def alignment_error_rate(
    predicted: Iterable[Collection[Link]],
    sure: Iterable[Collection[Link]],
    possible: Iterable[Collection[Link]],
) -> float:
    """1 − (|A∩S| + |A∩P|) / (|A| + |S|) over all sentences (Och & Ney 2003); sure links are possible too."""
    right = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        guessed, must = set(a), set(s)
        may = must | set(p)
        right += len(guessed & must) + len(guessed & may)
        total += len(guessed) + len(must)
    return 1.0 - right / total if total else 0.0


def word_links(
    weights: NDArray[np.floating],
    source: Encoded,
    target: Encoded,
    scripts: tuple[str, str] = ("", ""),
) -> list[Link]:
    """Links of words by the weights of pieces, <eos> last (T N); in a script without spaces each character is linked as its piece."""

    def pieces_and_words(encoded: Encoded, script: str) -> tuple[list[int], list[int]]:
        if not script:
            return list(range(len(encoded.ids))), encoded.words
        pieces = [
            n
            for n, piece in enumerate(encoded.pieces)
            for character in piece
            if not character.isspace()
        ]
        return pieces, list(range(len(pieces)))

    (of, sources) = pieces_and_words(source, scripts[0])
    (at, targets) = pieces_and_words(target, scripts[1])
    end = word_weights(weights[at, len(source.ids) :], targets, [0])[:, 0]
    return links(word_weights(weights[np.ix_(at, of)], targets, sources), list(end))


def with_copies(found: Iterable[Link], copied: Collection[Link]) -> list[Link]:
    """Links in which a word that was copied from the source is linked to the word it was copied from."""
    own = {target for _, target in copied}
    return sorted(
        [*(link for link in found if link[1] not in own), *copied], key=lambda link: link[1]
    )


def bleu_tokenizer(name: str, references: Sequence[str]) -> tuple[str, str]:
    """The tokenizer for BLEU, for `auto` by the references' script; and a note where there is something to say about it."""
    script = unspaced_script(references)
    here = f"{script} without spaces between words"
    if name != "auto" or not script:
        note = (
            f"does not split {here}, so that a sentence is one word; use zh, ja-mecab or char"
            if name == "13a" and script
            else ""
        )
        return "13a" if name == "auto" else name, note
    if script == "kana" and all(map(find_spec, ("MeCab", "ipadic"))):
        return "ja-mecab", f"is chosen for {here}"
    more = "; pip install 'sacrebleu[ja]' for ja-mecab" if script == "kana" else ""
    return "zh" if script == "Han" else "char", f"is chosen for {here}{more}"


def bleu_metric(name: str) -> Any:
    """sacrebleu's BLEU with one of its tokenizers; tokenized text is scored as it is, without sacrebleu's own warning."""
    import sacrebleu  # slow to import, and needed here alone

    if name not in TOKENIZERS:
        raise SaccadeError(
            f"no tokenizer for BLEU named '{name}'{did_you_mean(name, TOKENIZERS)}",
            code="unknown-tokenizer",
        )
    try:
        return sacrebleu.BLEU(
            tokenize={"auto": "13a", "spm": "flores101"}.get(name, name), force=True
        )
    except (ImportError, RuntimeError):
        package = {"ja-mecab": "'sacrebleu[ja]'", "ko-mecab": "'sacrebleu[ko]'"}.get(
            name, "sentencepiece"
        )
        raise SaccadeError(
            f"the tokenizer {name} needs more packages; install them with: pip install {package}",
            code="package-missing",
        ) from None
    except OSError as error:
        raise SaccadeError(
            f"the tokenizer {name} cannot be fetched ({error}); check the network, or use char",
            code="cannot-fetch",
        ) from None


def scores(
    outputs: Sequence[str],
    references: Sequence[str],
    moses: str | None = None,
    tokenize: str = "13a",
) -> dict[str, float | str]:
    """BLEU and chrF with signatures and the sentences' mean GLEU, all cased; `moses`, a language, adds BLEU on lowercase Moses tokens, as
    papers on Multi30k report it."""
    import sacrebleu

    bleu, chrf = bleu_metric(tokenize), sacrebleu.CHRF()
    found: dict[str, float | str] = {
        "bleu": float(bleu.corpus_score(list(outputs), [list(references)]).score),
        "chrf": float(chrf.corpus_score(list(outputs), [list(references)]).score),
        "gleu": percent_mean(sentence_gleu(outputs, references, bleu).sum(0)),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
    if moses is not None:
        tokenizer = moses_tokenizer(moses)
        texts = [
            [" ".join(tokenizer.tokenize(line, escape=False)).lower() for line in side]
            for side in (outputs, references)
        ]
        found["bleu_tok_lc"] = float(
            sacrebleu.BLEU(tokenize="none", force=True).corpus_score(texts[0], [texts[1]]).score
        )
        found["bleu_tok_lc_how"] = (
            f"sacremoses tokens ({moses}), lowercased, sacrebleu tokenize=none"
        )
    return found


def by_length(outputs: Sequence[str], pairs: Sequence[Pair], tokenize: str) -> list[dict[str, Any]]:
    """BLEU by the source's length in words (or characters), the shortest first: quarters, as equal as whole lengths allow."""
    script = unspaced_script(pair.source for pair in pairs)
    words = [length(pair.source, script) for pair in pairs]
    unit = {"unit": "characters"} if script else {}
    order = sorted(range(len(pairs)), key=words.__getitem__)
    sorted_words, groups = sorted(words), [list[int]() for _ in range(4)]
    # all sentences of a length belong to the quarter in which the middle one of them is
    for n in order:
        middle = (bisect_left(sorted_words, words[n]) + bisect_right(sorted_words, words[n])) / 2
        groups[min(3, int(4 * middle / len(order)))].append(n)
    rows = []
    for group in filter(None, groups):
        lengths = [words[n] for n in group]
        bleu = scores(
            [outputs[n] for n in group], [pairs[n].target for n in group], None, tokenize
        )["bleu"]
        mean = sum(lengths) / len(lengths)
        rows.append(
            {
                "shortest": lengths[0],
                "longest": lengths[-1],
                "mean": mean,
                "bleu": float(bleu),
                **unit,
            }
        )
    return rows


def text_sums(outputs: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Sums:
    """The counts of each sentence from which sacrebleu computes BLEU and chrF, each one's GLEU, and what computes them from a sum."""
    import sacrebleu

    bleu = bleu_metric(tokenize)
    found: Sums = {"gleu": (sentence_gleu(outputs, references, bleu), percent_mean)}
    for name, metric in {"bleu": bleu, "chrf": sacrebleu.CHRF()}.items():
        # as its own tests of significance do
        counts = metric._extract_corpus_statistics(list(outputs), [list(references)])
        found[name] = (np.array(counts, dtype=np.float64), partial(score_of, metric))
    return found


def sentence_gleu(
    outputs: Sequence[str], references: Sequence[str], bleu: Any
) -> NDArray[np.float64]:
    """GLEU of each sentence (Wu et al. 2016) on the words that BLEU counts, and 1: sentences × 2."""
    words = [[bleu.tokenizer(text).split() for text in texts] for texts in (outputs, references)]
    return np.array(
        [[gleu(*pair), 1.0] for pair in zip(*words, strict=True)], dtype=np.float64
    ).reshape(-1, 2)


def score_of(metric: Any, total: NDArray[np.float64]) -> float:
    return float(metric._compute_score_from_stats(total).score)


ORDERS = (1, 2, 3, 4)  # of the n-grams of BLEU
CAPTION_BLEU = "lowercase words without punctuation; clipped n-grams of all references, closest reference length, no smoothing"
_AROUND = re.compile(r"^[\W_]+|[\W_]+$")


def caption_words(text: str) -> list[str]:
    """The words of a caption as papers compare them: in lowercase, without punctuation around them or by itself."""
    return [word for one in text.lower().split() if (word := _AROUND.sub("", one))]


class CaptionScores:
    """Captions against the references of each: BLEU-1 to 4 as papers on captions report it (Papineni et al. 2002), with and without the
    brevity penalty, CIDEr-D (Vedantam et al. 2015) in percent, exact matches, and sacrebleu's BLEU in lowercase.

    `counts` has a row for each caption: n-grams found in a reference and n-grams of each order, its length, the closest reference's.
    """

    def __init__(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        self.outputs = list(outputs)
        most = max(map(len, references), default=1)
        self.streams = [
            [each[n] if n < len(each) else None for each in references] for n in range(most)
        ]
        words = [
            (caption_words(output), [*map(caption_words, each)])
            for output, each in zip(outputs, references, strict=True)
        ]
        self.counts = np.array([ngram_counts(*each) for each in words], dtype=np.float64).reshape(
            -1, 10
        )
        self.cider = cider_scores(words)
        self.exact = np.array(
            [[output in each, 1] for output, each in words], dtype=np.float64
        ).reshape(-1, 2)

    @property
    def sacrebleu(self) -> float:
        return float(self.metric().corpus_score(self.outputs, self.streams).score)

    @staticmethod
    def metric() -> Any:
        import sacrebleu

        return sacrebleu.BLEU(lowercase=True, force=True)

    def metrics(self) -> dict[str, float | str]:
        metric = self.metric()
        bleu = float(metric.corpus_score(self.outputs, self.streams).score)
        total = self.counts.sum(0)
        found: dict[str, float | str] = {f"bleu_{n}": caption_bleu(n, total) for n in ORDERS}
        found |= {f"bleu_{n}_unpenalized": caption_bleu(n, total, False) for n in ORDERS}
        found |= {
            "brevity_penalty": brevity_penalty(total),
            "cider": percent_mean(self.cider.sum(0)),
        }
        exact = 100 * float(self.exact[:, 0].mean()) if len(self.exact) else 0.0
        return {
            **found,
            "exact": exact,
            "bleu": bleu,
            "bleu_signature": str(metric.get_signature()),
            "bleu_n_how": CAPTION_BLEU,
        }

    def sums(self) -> Sums:
        """What the metrics of all captions add up from."""
        metric = self.metric()
        found: Sums = {f"bleu_{n}": (self.counts, partial(caption_bleu, n)) for n in ORDERS}
        found["cider"] = self.cider, percent_mean
        counts = np.array(
            metric._extract_corpus_statistics(self.outputs, self.streams), dtype=np.float64
        )
        exact = (self.exact, lambda total: float(100 * total[0] / max(total[1], 1)))
        return {**found, "exact": exact, "bleu": (counts, partial(score_of, metric))}


def ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[n:] for n in range(order)), strict=False))


def ngram_counts(output: Sequence[str], references: Sequence[Sequence[str]]) -> list[int]:
    """A row of `CaptionScores.counts`; of two references equally close in length, the shorter one counts."""
    found, there = [], []
    for order in ORDERS:
        own, known = ngrams(output, order), Counter[tuple[str, ...]]()
        for reference in references:
            known |= ngrams(reference, order)
        found.append((own & known).total())
        there.append(own.total())
    closest = min(map(len, references), key=lambda size: (abs(size - len(output)), size))
    return [*found, *there, len(output), closest]


def caption_bleu(order: int, total: NDArray[np.float64], penalized: bool = True) -> float:
    """BLEU of n-grams up to an order: brevity penalty × geometric mean of the precisions, of a sum of `CaptionScores.counts`, in percent."""
    found, there = total[:order], total[4 : 4 + order]
    if not found.all():
        return 0.0
    return float(
        100 * (brevity_penalty(total) if penalized else 1.0) * np.exp(np.log(found / there).mean())
    )


def brevity_penalty(total: NDArray[np.float64]) -> float:
    """min(1, e^(1 − r/c)) of a sum of `CaptionScores.counts`: c words of the outputs, r of the closest references."""
    length, closest = total[8], total[9]
    return float(np.exp(min(0.0, 1 - closest / length))) if length else 0.0


def cider_scores(
    texts: Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]], sigma: float = 6.0
) -> NDArray[np.float64]:
    """CIDEr-D of each output among its references, and 1: examples × 2.

    10 × the mean over n = 1 … 4 and references of e^(−(c − r)²/2σ²) · Σ min(g, g′) g′ / (‖g‖ ‖g′‖). g counts the n-grams of the output,
    g′ of the reference, times ln(pictures / pictures with that n-gram in a reference); c and r are their numbers of words.
    """

    def grams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
        return Counter({gram: n for order in ORDERS for gram, n in ngrams(words, order).items()})

    counted = [(grams(output), [*map(grams, references)]) for output, references in texts]
    seen = Counter(
        gram for _, references in counted for gram in set[tuple[str, ...]]().union(*references)
    )

    def weighed(counts: Counter[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
        return {gram: n * math.log(len(texts) / max(1, seen[gram])) for gram, n in counts.items()}

    def likeness(
        ours: dict[tuple[str, ...], float], theirs: dict[tuple[str, ...], float], order: int
    ) -> float:
        shared = sum(
            min(ours[gram], theirs[gram]) * theirs[gram]
            for gram in ours.keys() & theirs.keys()
            if len(gram) == order
        )
        norms = [
            math.sqrt(sum(w * w for gram, w in one.items() if len(gram) == order))
            for one in (ours, theirs)
        ]
        return shared / (norms[0] * norms[1]) if all(norms) else 0.0

    found = []
    for (output, references), (own, others) in zip(texts, counted, strict=True):
        ours, total = weighed(own), 0.0
        for words, other in zip(references, map(weighed, others), strict=True):
            near = math.exp(-((len(output) - len(words)) ** 2) / (2 * sigma**2))
            total += near * sum(likeness(ours, other, order) for order in ORDERS) / len(ORDERS)
        found.append([10 * total / max(1, len(references)), 1.0])
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def percent_mean(total: NDArray[np.float64]) -> float:
    return float(100 * total[0] / max(total[1], 1))


def moses_tokenizer(language: str) -> Any:
    try:
        from sacremoses import MosesTokenizer
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise SaccadeError(
            "Moses tokens need the package sacremoses; install it with: pip install 'saccade-attention[scoring]'",
            code="package-missing",
        ) from None
    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        raise SaccadeError(
            f"'{language}' is not a language with Moses tokens; choose one of {', '.join(known)}",
            code="unknown-language",
        )
    return MosesTokenizer(lang=language)
