"""Scores of texts against references: BLEU and chrF by sacrebleu, and BLEU as the translation literature counts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import SaccadeError


def scores(outputs: Sequence[str], references: Sequence[str], moses: str | None = None) -> dict[str, float | str]:
    """BLEU and chrF, cased, on sacrebleu's own tokens, with their signatures; `moses` (a language, such as `de`) adds `bleu_tok_lc`."""
    import sacrebleu  # slow to import, and needed here alone

    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    found: dict[str, float | str] = {
        "bleu": float(bleu.corpus_score(list(outputs), [list(references)]).score),
        "chrf": float(chrf.corpus_score(list(outputs), [list(references)]).score),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
    if moses is not None:
        found["bleu_tok_lc"] = moses_bleu(outputs, references, moses)
        found["bleu_tok_lc_how"] = f"sacremoses tokens ({moses}), lower-cased, sacrebleu tokenize=none"
    return found


def moses_bleu(outputs: Sequence[str], references: Sequence[str], language: str) -> float:
    """BLEU on lower-cased Moses tokens, as papers on Multi30k report it."""
    import sacrebleu

    tokenizer = moses_tokenizer(language)
    sides = [[" ".join(tokenizer.tokenize(line, escape=False)).lower() for line in side] for side in (outputs, references)]
    return float(sacrebleu.BLEU(tokenize="none", force=True).corpus_score(sides[0], [sides[1]]).score)


def moses_tokenizer(language: str) -> Any:
    """The tokenizer of a language, with its abbreviations."""
    try:
        from sacremoses import MosesTokenizer
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise SaccadeError("Moses tokens need the package sacremoses; install it with: pip install 'saccade[scoring]'") from None
    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    if language not in known:
        raise SaccadeError(f"'{language}' is no language for Moses tokens; there are {', '.join(known)}")
    return MosesTokenizer(lang=language)
