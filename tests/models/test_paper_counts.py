"""The parameters of Transformers at the size of Narang et al. 2021, by hand; each row against the paper's: test_rows.py."""

from __future__ import annotations

from typing import Any

import torch

from saccade.models import Seq2Seq
from saccade.models.builder import Builder, NoInit

T5 = {
    "family": "transformer",
    "dim": 768,
    "hidden": 3072,
    "depth": 12,
    "heads": 12,
    "head_width": 64,
    "position": "t5",
}
BASELINE: dict[str, Any] = {**T5, "shared": True, "tied": True}
VOCAB = 32128
COUNTED: dict[str, int] = {}


def count(**changed: Any) -> int:
    """Parameters on the meta device, where they take no memory; a model is built once for all tests."""
    if str(changed) not in COUNTED:
        COUNTED[str(changed)] = build_and_count(**changed)
    return COUNTED[str(changed)]


def build_and_count(**changed: Any) -> int:
    with torch.device("meta"), NoInit():
        model = Builder({**BASELINE, **changed}).make(Seq2Seq, VOCAB, VOCAB)
    return sum(parameter.numel() for parameter in model.parameters())


def block(attentions: int) -> int:
    """A block with its biases and norms; a bucket's bias per head in self-attention."""
    return (
        attentions * (4 * 768 * 768 + 4 * 768)
        + 2 * 768 * 3072
        + 3072
        + 768
        + (attentions + 1) * 2 * 768
        + 32 * 12
    )


def test_the_counts_by_hand() -> None:
    encoder, decoder, norms, tokens = block(1), block(2), 2 * 2 * 768, VOCAB * 768
    assert count() == 12 * (encoder + decoder) + norms + tokens
    assert count(stack="shared", tied=False) == encoder + decoder + norms + 2 * tokens
    assert (
        count(stack={"name": "shared", "only": "encoder"}, tied=False)
        == encoder + 12 * decoder + norms + 2 * tokens
    )
    assert (
        count(stack={"name": "shared", "only": "decoder"}, tied=False)
        == 12 * encoder + decoder + norms + 2 * tokens
    )
    without_norms = 12 * (encoder + decoder) - 60 * 2 * 768
    assert count(residual="fixup") == without_norms + 60 * 3 + tokens, (
        "three scalars around each of 60 parts"
    )
    assert count(residual="deepnorm") == 12 * (encoder + decoder) + tokens
    sizes, widths = (3077, 7692, 21359), (768, 192, 48)
    adaptive = sum(n * width for n, width in zip(sizes, widths, strict=True)) + (192 + 48) * 768
    assert count(embedding="adaptive") == count() - tokens + adaptive
    assert count(embedding="adaptive", head="adaptive") == count() - tokens + adaptive + 2 * 768, (
        "and a vector per cluster"
    )
    assert count(head="adaptive") == count() + 2 * 768
