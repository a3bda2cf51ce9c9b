"""The exact sentences of common errors: code, how to provoke it, sentence. Other tests assert codes."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.support import raises

from saccade import (
    Mechanism,
    MultiHeadAttention,
    attend,
    masks,
    normalizers,
    positions,
    record,
    scores,
)
from saccade.core import Positions
from saccade.decoding import Beam, Sample
from saccade.layers.embeddings import Tokens
from saccade.layers.feedforward import Experts, activation_of
from saccade.layers.linformer import Linformer
from saccade.layers.output_heads import LinearHead
from saccade.models.builder import Builder
from saccade.models.protocols import Seq2Seq

X = torch.zeros(1, 2, 4, 8)
INPUT = torch.zeros(1, 4, 8)


def layer() -> MultiHeadAttention:
    return MultiHeadAttention(8, heads=2)


def read_without_call() -> None:
    with record(layer(), quiet=True) as seen:
        pass
    seen["attention"].weights()


def record_twice() -> None:
    model = layer()
    with record(model), record(model):
        pass


def read_index() -> None:
    model = layer()
    with record(model) as seen:
        model(INPUT)
    seen["attention"].weights(rows=[4])


def misnamed_site() -> None:
    model = layer()
    with record(model) as seen:
        model(INPUT)
    seen["attentoin"]


SENTENCES: list[tuple[str, Callable[[], object], str]] = [
    (
        "not-a-mechanism",
        lambda: attend(X, X, X, "dot"),
        "expected a Mechanism, got 'dot'; pass Mechanism(score, normalize, mask, position)",
    ),
    (
        "not-a-mask",
        lambda: attend(X, X, X, mask=torch.ones(4, 4)),
        "expected a mask, got Tensor; make one with saccade.masks, such as masks.matrix(allowed) of 0/1 numbers",
    ),
    (
        "not-positions",
        lambda: attend(X, X, X, positions=3),
        "expected Positions, got int; pass Positions(i, j), or Positions.line(Q, K)",
    ),
    (
        "dropout-out-of-range",
        lambda: attend(X, X, X, dropout=1.0),
        "dropout must be in [0, 1), got 1.0",
    ),
    (
        "positions-do-not-fit",
        lambda: attend(X, X, X, positions=Positions.line(3, 4)),
        "positions are given for 3 queries and 4 keys, got 4 and 4; pass one position per query and key",
    ),
    (
        "more-queries-than-keys",
        lambda: attend(X, X[:, :, :2], X[:, :, :2], mask=masks.causal()),
        "mask Causal() compares positions and needs Q ≤ K, got 4 queries and 2 keys; use a mask on keys alone, such as padding",
    ),
    (
        "dtypes-differ",
        lambda: attend(X, X.double(), X),
        "q, k and v must have one type, got torch.float32, torch.float64 and torch.float32; convert them first",
    ),
    (
        "not-a-float-tensor",
        lambda: attend(X.long(), X, X),
        "q must be a floating-point tensor such as float32 or bfloat16, got torch.int64",
    ),
    (
        "shapes-do-not-fit",
        lambda: attend(X, X[..., :4], X),
        "q (1, 2, 4, 8), k (1, 2, 4, 4), v (1, 2, 4, 8): this score compares equal widths; use bilinear, reduced-rank or additive, or project first",
    ),
    (
        "unknown-argument",
        lambda: attend(X, X, X, is_causal=True),
        "attend has no argument 'is_causal'; pass mask=masks.causal()",
    ),
    (
        "backend-refuses",
        lambda: attend(X, X, X, Mechanism(normalize=normalizers.Relu()), backend="sdpa"),
        "backend 'sdpa' refuses: the normalizer is not softmax; leave `backend` out to let one be chosen",
    ),
    (
        "mask-truth-value",
        lambda: masks.causal() and masks.full(),
        "the mask Causal() is neither true nor false; combine masks with & and |, not with `and` and `or`",
    ),
    (
        "mask-not-boolean",
        lambda: masks.matrix(torch.ones(4, 4)),
        "a mask must be booleans or 0/1 integers (1 = may attend), got floating-point numbers",
    ),
    (
        "not-a-predicate",
        lambda: masks.where(3),
        "expected a function of (b, h, i, j), got 3; for a 0/1 matrix use masks.matrix",
    ),
    (
        "window-out-of-range",
        lambda: masks.window(-1),
        "a window must reach 0 or more positions to each side, got -1 and -1",
    ),
    (
        "mask-batch-differs",
        lambda: attend(X, X, X, mask=masks.padding([4, 2])),
        "the padding mask was made for a batch of 2, got a batch of 1; make the mask from the same batch",
    ),
    (
        "mask-too-short",
        lambda: attend(X, X, X, mask=masks.documents([[0, 0]])),
        "document ids are given for 2 positions, got 4 keys; give one per key",
    ),
    (
        "mask-shape",
        lambda: attend(X, X, X, mask=masks.matrix(torch.ones(2, 3, dtype=torch.bool))),
        "the mask is 2 × 3, the scores are 4 × 4; give one row per query, one column per key",
    ),
    (
        "not-a-tensor",
        lambda: masks.matrix([[1], [1, 0]]),
        "a mask must be a tensor, or lists of equal lengths, got list",
    ),
    (
        "parts-do-not-combine",
        lambda: Mechanism(normalize=normalizers.Sum()),
        "the normalizer `sum` divides by the sum of scores that are never negative; use a kernel score such as elu-kernel and a position that adds no bias, or the normalizer softmax",
    ),
    (
        "wrong-kind-of-part",
        lambda: Mechanism(score="dot"),
        "expected a Score object, got 'dot'; build one from saccade.core.scores",
    ),
    (
        "position-out-of-range",
        lambda: attend(X, X, X, Mechanism(position=positions.Added(8, max_len=3))),
        "position 3 is beyond the learned table of 3; shorten the text, or train with a larger max_len or with sinusoidal positions",
    ),
    (
        "width-not-even",
        lambda: attend(X[..., :3], X[..., :3], X, Mechanism(position=positions.Rotary())),
        "rotary positions rotate pairs and need an even head width, got 3; change dim or heads",
    ),
    ("heads-out-of-range", lambda: positions.Alibi(0), "heads must be at least 1, got 0"),
    (
        "buckets-out-of-range",
        lambda: positions.T5Buckets(2, buckets=8, max_distance=8),
        "expected at least 4 buckets and max_distance > buckets, got 8 and 8",
    ),
    (
        "distance-out-of-range",
        lambda: positions.Shaw(8, max_distance=0),
        "max_distance must be at least 1, got 0",
    ),
    (
        "relation-missing",
        lambda: attend(X, X, X, Mechanism(position=positions.SyntaxDistance(8))),
        "syntax positions need parse trees; pass `Positions.line(Q, K, relation=tree_distances(heads))`",
    ),
    (
        "rank-out-of-range",
        lambda: scores.ReducedRank(8, 8, rank=0),
        "rank must be at least 1, got 0",
    ),
    (
        "width-differs",
        lambda: attend(X, X, X, Mechanism(scores.Bilinear(4, 8))),
        "the score expects vectors of width 4, got 8; build it with that width",
    ),
    (
        "heads-differ",
        lambda: attend(X, X, X, Mechanism(scores.Bilinear(8, 8, heads=4))),
        "the score expects 4 heads, got 2; build it with heads=2",
    ),
    (
        "sharpness-out-of-range",
        lambda: scores.Cosine(sharpness=0.0),
        "sharpness must be above 0, got 0.0",
    ),
    ("index-out-of-range", read_index, "row must be in 0 … 3, got 4"),
    ("unknown-site", misnamed_site, "no attention named 'attentoin'; did you mean 'attention'?"),
    (
        "site-not-called",
        read_without_call,
        "'attention' was not called while the record was open; run the model inside the `with`",
    ),
    ("record-already-open", record_twice, "a record of this model is already open; close it first"),
    ("not-a-module", lambda: record(3).__enter__(), "expected a model or a layer, got int"),
    (
        "not-a-number",
        lambda: MultiHeadAttention(INPUT),
        "expected dim, a number, got a tensor; make the layer first: MultiHeadAttention(dim, heads)(x)",
    ),
    (
        "heads-do-not-divide",
        lambda: MultiHeadAttention(8, heads=3),
        "dim must be a multiple of heads, got dim=8 and heads=3; choose heads that divide it",
    ),
    (
        "argument-order",
        lambda: layer()(INPUT, None, INPUT),
        "the third argument is the mask, got a tensor of shape (1, 4, 8); self-attention is layer(x), and layer(x, memory) reads keys and values from a memory",
    ),
    (
        "batch-sizes-differ",
        lambda: layer()(INPUT, torch.zeros(2, 4, 8)),
        "x is a batch of 1, memory a batch of 2; give one memory per row of x",
    ),
    (
        "mask-not-supported",
        lambda: Linformer(8, 2, 2, 8)(INPUT, masks.causal()),
        "a linformer knows padding masks alone, got Causal(); use mixer=attention for others",
    ),
    (
        "cannot-generate",
        lambda: Linformer(8, 2, 2, 8).start(INPUT),
        "a linformer cannot read position by position; choose mixer=attention for a model that generates",
    ),
    (
        "unknown-activation",
        lambda: activation_of(3),
        "expected an activation, got 3; pass a name such as 'gelu', or a class such as torch.nn.GELU",
    ),
    (
        "experts-out-of-range",
        lambda: Experts(8, 8, count=2, top=3),
        "top must be at most count, got 3 of 2 experts",
    ),
    (
        "not-token-ids",
        lambda: Tokens(5, 8)(torch.zeros(1, 2, 3, dtype=torch.long)),
        "this model reads token ids alone, batch × positions, got shape (1, 2, 3); or choose model.embedding=characters-cnn",
    ),
    (
        "vocabulary-differs",
        lambda: LinearHead(8, 6, tied=Tokens(5, 8)),
        "the head needs 6 tokens, the embedding it is tied to has 5; use one vocabulary",
    ),
    (
        "unknown-name",
        lambda: Builder({"family": "transformr"}),
        "no model named 'transformr'; did you mean 'transformer'?",
    ),
    (
        "unknown-setting",
        lambda: Builder({"family": "transformer", "dimm": 8}).make(Seq2Seq, 9, 9),
        "no setting named 'model.dimm' for transformer; did you mean 'dim'?",
    ),
    (
        "temperature-out-of-range",
        lambda: Sample(1, 2, temperature=-1.0),
        "temperature is -1.0; give a number of 0 or more (0 takes the likeliest token)",
    ),
    (
        "top-p-out-of-range",
        lambda: Sample(1, 2, top_p=0.0),
        "top_p is 0.0; give a number above 0 and at most 1, or leave it out",
    ),
    (
        "unknown-length-rule",
        lambda: Beam(2, 2, length_rule="gmnt"),
        "the length rule is 'gmnt'; give one of: power, gnmt",
    ),
    (
        "coverage-penalty-out-of-range",
        lambda: Beam(2, 2, coverage_penalty=-1),
        "a coverage penalty of -1; give a number from 0 to 100 (0 for none)",
    ),
]


@pytest.mark.parametrize(
    ("code", "provoke", "sentence"), SENTENCES, ids=[row[0] for row in SENTENCES]
)
def test_error_sentence(code: str, provoke: Callable[[], object], sentence: str) -> None:
    with raises(code) as error:
        provoke()
    assert str(error.value) == sentence


def test_sentences_name_the_rule_or_the_way_out() -> None:
    for _, _, sentence in SENTENCES:
        assert not sentence.endswith(".")
        assert sentence == sentence.strip()
