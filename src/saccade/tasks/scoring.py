"""Scores of texts against references (BLEU and chrF by sacrebleu), word alignments from attention, and their error rate."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import SaccadeError

Link = tuple[int, int]
Sums = dict[
    str, tuple[NDArray[np.float64], Callable[[Any], float]]
]  # metric → examples × statistics, and the metric of their sum


def word_weights(weights: NDArray[np.floating], rows: Sequence[int], columns: Sequence[int]) -> NDArray[np.floating]:
    """Piece weights (T N) → weights of words: sums over the pieces of a source word (`columns`), means over a target word's (`rows`)."""
    to, of = (np.equal.outer(np.arange(max(words, default=-1) + 1), np.asarray(words, dtype=int)) for words in (rows, columns))
    return (to / np.maximum(to.sum(1, keepdims=True), 1)) @ weights[: len(rows), : len(columns)] @ of.T


def links(weights: NDArray[np.floating], nothing: Sequence[float] | None = None) -> list[Link]:
    """(source word, target word) for each target word: the largest weight, unless `nothing`, that of the source's end, is larger."""
    largest = enumerate(weights.max(1, initial=0.0))
    return [(int(weights[t].argmax()), t) for t, most in largest if most > 0 and (nothing is None or most >= nothing[t])]


def alignment_error_rate(
    predicted: Iterable[Collection[Link]], sure: Iterable[Collection[Link]], possible: Iterable[Collection[Link]]
) -> float:
    """1 − (|A∩S| + |A∩P|) / (|A| + |S|) over all sentences (Och & Ney 2003); sure links are possible too."""
    right = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        guessed, must = set(a), set(s)
        may = must | set(p)
        right += len(guessed & must) + len(guessed & may)
        total += len(guessed) + len(must)
    return 1.0 - right / total if total else 0.0


def scores(outputs: Sequence[str], references: Sequence[str], moses: str | None = None) -> dict[str, float | str]:
    """BLEU and chrF, cased, with signatures; `moses`, a language, adds BLEU on lowercase Moses tokens, as papers on Multi30k report it."""
    import sacrebleu  # slow to import, and needed here alone

    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    found: dict[str, float | str] = {
        "bleu": float(bleu.corpus_score(list(outputs), [list(references)]).score),
        "chrf": float(chrf.corpus_score(list(outputs), [list(references)]).score),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
    if moses is not None:
        tokenizer = moses_tokenizer(moses)
        texts = [[" ".join(tokenizer.tokenize(line, escape=False)).lower() for line in side] for side in (outputs, references)]
        found["bleu_tok_lc"] = float(sacrebleu.BLEU(tokenize="none", force=True).corpus_score(texts[0], [texts[1]]).score)
        found["bleu_tok_lc_how"] = f"sacremoses tokens ({moses}), lowercased, sacrebleu tokenize=none"
    return found


def text_sums(outputs: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Sums:
    """The counts of each sentence from which sacrebleu computes BLEU and chrF, and what computes them from a sum of counts."""
    import sacrebleu

    found: Sums = {}
    for name, metric in {"bleu": sacrebleu.BLEU(tokenize=tokenize, force=True), "chrf": sacrebleu.CHRF()}.items():
        counts = metric._extract_corpus_statistics(list(outputs), [list(references)])  # as its own tests of significance do
        found[name] = (np.array(counts, dtype=np.float64), partial(score_of, metric))
    return found


def score_of(metric: Any, total: NDArray[np.float64]) -> float:
    return float(metric._compute_score_from_stats(total).score)


def moses_tokenizer(language: str) -> Any:
    try:
        from sacremoses import MosesTokenizer
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise SaccadeError("Moses tokens need the package sacremoses; install it with: pip install 'saccade[scoring]'") from None
    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        raise SaccadeError(f"'{language}' is not a language with Moses tokens; choose one of {', '.join(known)}")
    return MosesTokenizer(lang=language)
