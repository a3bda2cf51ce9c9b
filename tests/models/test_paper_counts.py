"""The parameters of Transformers at the size of Narang et al. 2021: activations, norms, depths, sharing, embeddings and softmaxes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from saccade.building import Builder, Undrawn
from saccade.models import Seq2Seq

T5 = {"family": "transformer", "dim": 768, "hidden": 3072, "depth": 12, "heads": 12, "head_width": 64, "position": "t5"}
BASELINE: dict[str, Any] = {**T5, "shared": True, "tied": True}
VOCAB = 32128
FACTORIZED = {"name": "factorized", "rank": 128}
NORMED = {"name": "rezero", "normed": True}

ROWS: dict[str, tuple[dict[str, Any], float]] = {
    "vanilla": ({}, 223),
    "elu": ({"feedforward": {"activation": "elu"}}, 223),
    "softplus": ({"feedforward": {"activation": "softplus"}}, 223),
    "rms-norm": ({"norm": "rms"}, 223),
    "rezero": ({"residual": "rezero"}, 223),
    "rezero-layer-norm": ({"residual": NORMED}, 223),
    "rezero-rms-norm": ({"residual": NORMED, "norm": "rms"}, 223),
    "fixup": ({"residual": "fixup"}, 223),
    "24-layers": ({"depth": 24, "hidden": 1536, "heads": 6}, 224),
    "18-layers": ({"depth": 18, "hidden": 2048, "heads": 8}, 223),
    "8-layers": ({"depth": 8, "hidden": 4608, "heads": 18}, 223),
    "6-layers": ({"depth": 6, "hidden": 6144, "heads": 24}, 223),
    "block-sharing": ({"stack": "shared", "tied": False}, 65),
    "block-sharing-factorized": ({"stack": "shared", "embedding": FACTORIZED, "tied": False}, 45),
    "block-sharing-factorized-shared": ({"stack": "shared", "embedding": FACTORIZED}, 20),
    "encoder-only-sharing": ({"stack": {"name": "shared", "only": "encoder"}, "tied": False}, 170),
    "decoder-only-sharing": ({"stack": {"name": "shared", "only": "decoder"}, "tied": False}, 144),
    "factorized": ({"embedding": FACTORIZED, "tied": False}, 227),
    "factorized-shared": ({"embedding": FACTORIZED}, 202),
    "tied-inputs": ({"tied": False}, 248),
    "tied-decoder": ({"shared": False}, 248),
    "untied": ({"shared": False, "tied": False}, 273),
    "adaptive-inputs": ({"embedding": "adaptive"}, 204),
    "adaptive-softmax": ({"embedding": "adaptive", "head": "adaptive"}, 204),
    "adaptive-softmax-without-projection": ({"head": "adaptive"}, 223),
    "mixture-of-softmaxes": ({"head": {"name": "mixture", "count": 15}}, 232),
}


COUNTED: dict[str, int] = {}


def count(**changed: Any) -> int:
    """Parameters on the meta device, where they take no memory; a model is built once for all tests."""
    if str(changed) not in COUNTED:
        COUNTED[str(changed)] = build_and_count(**changed)
    return COUNTED[str(changed)]


def build_and_count(**changed: Any) -> int:
    with torch.device("meta"), Undrawn():
        model = Builder({**BASELINE, **changed}).make(Seq2Seq, VOCAB, VOCAB)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_the_papers_number_of_parameters(name: str) -> None:
    changed, millions = ROWS[name]
    assert abs(count(**changed) / 1e6 - millions) < 1, "the paper rounds some counts and truncates others"


def block(attentions: int) -> int:
    """A block with its biases and norms; a bucket's bias per head in self-attention."""
    return attentions * (4 * 768 * 768 + 4 * 768) + 2 * 768 * 3072 + 3072 + 768 + (attentions + 1) * 2 * 768 + 32 * 12


def test_the_counts_by_hand() -> None:
    encoder, decoder, norms, tokens = block(1), block(2), 2 * 2 * 768, VOCAB * 768
    assert count() == 12 * (encoder + decoder) + norms + tokens
    assert count(**ROWS["block-sharing"][0]) == encoder + decoder + norms + 2 * tokens
    assert count(**ROWS["encoder-only-sharing"][0]) == encoder + 12 * decoder + norms + 2 * tokens
    assert count(**ROWS["decoder-only-sharing"][0]) == 12 * encoder + decoder + norms + 2 * tokens
    without_norms = 12 * (encoder + decoder) - 60 * 2 * 768
    assert count(residual="fixup") == without_norms + 60 * 3 + tokens, "three scalars around each of 60 parts"
    assert count(residual="deepnorm") == 12 * (encoder + decoder) + tokens
    sizes, widths = (3077, 7692, 21359), (768, 192, 48)
    adaptive = sum(n * width for n, width in zip(sizes, widths, strict=True)) + (192 + 48) * 768
    assert count(embedding="adaptive") == count() - tokens + adaptive
    assert count(embedding="adaptive", head="adaptive") == count() - tokens + adaptive + 2 * 768, "and a vector per cluster"
    assert count(head="adaptive") == count() + 2 * 768
