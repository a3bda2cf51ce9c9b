"""Self-attention by any parts: against plain loops in float64 with the parameters that are printed, and every sentence as arithmetic."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from calculating import check_every_number

import saccade
from saccade.core import masks, normalizers, scores
from saccade.errors import SaccadeError
from saccade.layers.multihead_attention import PlainAttention
from saccade.teaching.explain.worked_attention import choose_parts, explain
from saccade.views.worked_steps import Worked
from support import error_of

WORDS = ["the", "black", "cat", "sat"]
Vector = list[float]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(vector: Vector, matrix: list[Vector]) -> Vector:
    return [
        sum(vector[i] * matrix[i][j] for i in range(len(vector))) for j in range(len(matrix[0]))
    ]


def additive(q: Vector, k: Vector, p: dict[str, Any]) -> float:
    pairs = zip(times(q, p["w_q"][0]), times(k, p["w_k"][0]), p["v"][0], strict=True)
    return sum(v * math.tanh(a + b) for a, b, v in pairs)


def elu(x: float) -> float:
    return x + 1 if x > 0 else math.exp(x)


def favor(q: Vector, k: Vector, p: dict[str, Any]) -> float:
    def phi(x: Vector) -> Vector:
        small = [one / len(x) ** 0.25 for one in x]
        return [math.exp(dot(w, small) - dot(small, small) / 2) for w in p["omega"]]

    return dot(phi(q), phi(k))


ORACLES: dict[str, Callable[[Vector, Vector, dict[str, Any]], float]] = {
    "dot": lambda q, k, p: dot(q, k),
    "scaled-dot": lambda q, k, p: dot(q, k) / math.sqrt(len(q)),
    "soft-capped": lambda q, k, p: 50 * math.tanh(dot(q, k) / math.sqrt(len(q)) / 50),
    "bilinear": lambda q, k, p: dot(times(q, p["weight"][0]), k),
    "reduced-rank": lambda q, k, p: dot(times(q, p["u"][0]), times(k, p["v"][0])),
    "additive": additive,
    "gat": lambda q, k, p: max(
        one := dot(q, np.ravel(p["a_q"]).tolist()) + dot(k, np.ravel(p["a_k"]).tolist()), 0.2 * one
    ),
    "cosine": lambda q, k, p: (
        math.exp(p["log_sharpness"][0][0][0]) * dot(q, k) / (math.sqrt(dot(q, q) * dot(k, k)) or 1)
    ),
    "elu-kernel": lambda q, k, p: dot([elu(x) for x in q], [elu(x) for x in k]),
    "favor": favor,
}


@pytest.mark.parametrize("name", scores.table.names())
def test_a_score_is_its_formula_with_the_numbers_that_are_printed(name: str) -> None:
    normalize = "sum" if name in ("elu-kernel", "favor") else "softmax"
    worked = explain(WORDS, choose_parts(score=name, normalize=normalize))
    p = {key: value.tolist() for key, value in worked.parameters.items()}
    by_hand = np.array(
        [[ORACLES[name](q, k, p) for k in worked.k.tolist()] for q in worked.q.tolist()]
    )
    found = worked.scores if name != "favor" else worked.weights  # known up to one factor per row
    by_hand = by_hand if name != "favor" else by_hand / by_hand.sum(1, keepdims=True)
    np.testing.assert_allclose(found, by_hand, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(worked.outputs, worked.weights @ worked.v, rtol=1e-12)
    assert check_every_number(worked) > 0
    shown = {one.name: one.matrix for step in worked.steps() for one in step.matrices}
    for key in p:
        np.testing.assert_array_equal(
            shown[f"{key} of the score"].ravel(), np.ravel(p[key]), err_msg="as they are used"
        )


def test_every_score_of_the_catalogue_has_its_formula_here() -> None:
    assert set(ORACLES) == set(scores.table.names())


def sparsemax(row: Vector) -> Vector:
    low, high = min(row) - 1, max(row)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(0, s - middle) for s in row) > 1 else (low, middle)
    return [max(0.0, s - low) for s in row]


RULES: dict[str, Callable[[Vector], Vector]] = {
    "relu": lambda row: [max(s, 0) for s in row],
    "relu-sum": lambda row: [max(s + 1, 0) / max(1, sum(max(t + 1, 0) for t in row)) for s in row],
    "sigmoid": lambda row: [1 / (1 + math.exp(-s)) for s in row],
    "softmax": lambda row: [math.exp(s) / sum(map(math.exp, row)) for s in row],
    "sparsemax": sparsemax,
    "hard": lambda row: [float(n == row.index(max(row))) for n in range(len(row))],
}


@pytest.mark.parametrize("name", RULES)
def test_a_normalizer_by_hand(name: str) -> None:
    worked = explain(WORDS, choose_parts(normalize=name))
    np.testing.assert_allclose(
        worked.weights, [RULES[name](row) for row in worked.scores.tolist()], rtol=1e-9, atol=1e-12
    )
    check_every_number(worked)


@pytest.mark.parametrize("normalize", normalizers.table.names())
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_every_normalizer_can_be_followed_with_heads_and_a_mask(normalize: str, heads: int) -> None:
    score = "elu-kernel" if normalize == "sum" else None
    worked = explain(
        WORDS, choose_parts(score=score, normalize=normalize, mask="causal", heads=heads)
    )
    check_every_number(worked)
    json.dumps(worked.to_dict(), allow_nan=False)
    weights = worked.weights if heads > 1 else worked.weights[None]
    assert (np.triu(weights, 1) == 0).all()


@pytest.mark.parametrize(
    ("mask", "may"),
    [
        ("causal", lambda i, j: j <= i),
        ({"name": "window", "left": 1}, lambda i, j: abs(i - j) <= 1),
        ({"name": "window", "left": 2, "right": 0}, lambda i, j: i - 2 <= j <= i),
        ("full", lambda i, j: True),
    ],
)
def test_what_a_mask_hides_gets_no_weight(mask: Any, may: Callable[[int, int], bool]) -> None:
    worked = explain(WORDS, choose_parts(mask=mask, scaled=True))
    for i, row in enumerate(worked.scores.tolist()):
        powers = [math.exp(s / math.sqrt(3)) if may(i, j) else 0.0 for j, s in enumerate(row)]
        np.testing.assert_allclose(worked.weights[i], np.array(powers) / sum(powers), rtol=1e-12)
    assert check_every_number(worked) > 20
    texts = " ".join(step.text for step in worked.steps())
    if mask == "causal":
        assert "'the' may look at all but 'black' and 'cat' and 'sat'" in texts
        assert worked.to_dict()["steps"][3]["matrices"][2]["matrix"][0][1] is None, (
            "−∞ is null in JSON"
        )


@pytest.mark.parametrize("heads", [2, 4])
def test_heads_by_hand(heads: int) -> None:
    worked, width = explain(None, choose_parts(heads=heads)), 4 // heads
    x = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]], dtype=float)
    parts = []
    for h in range(heads):
        q, k, v = (
            x @ getattr(worked, name)[:, h * width : (h + 1) * width]
            for name in ("W_q", "W_k", "W_v")
        )
        powers = np.exp(q @ k.T)
        np.testing.assert_allclose(
            worked.weights[h], powers / powers.sum(1, keepdims=True), rtol=1e-12
        )
        parts.append(worked.weights[h] @ v)
    np.testing.assert_allclose(worked.outputs, np.concatenate(parts, 1) @ worked.W_o, rtol=1e-12)
    assert check_every_number(worked) > 50
    learned = sum(getattr(worked, f"W_{name}").size for name in "qkvo")
    assert learned == 64
    assert "with W_o all are 64" in worked.steps()[-1].text


def test_plain_attention_has_no_parameters_and_is_the_layers() -> None:
    import torch

    worked = explain(WORDS, choose_parts(plain=True))
    powers = np.exp(worked.x @ worked.x.T)
    np.testing.assert_allclose(worked.weights, powers / powers.sum(1, keepdims=True), rtol=1e-12)
    assert not [name for name in worked.facts if name.startswith("W_")]
    check_every_number(worked)
    for heads in (1, 2):
        layer = PlainAttention(4, heads, saccade.Mechanism(scores.Dot())).double()
        own = explain(WORDS, choose_parts(plain=True, heads=heads)).outputs
        np.testing.assert_allclose(
            own, layer(torch.tensor(worked.x)[None])[0].detach().numpy(), rtol=1e-12
        )


@pytest.mark.parametrize("query", [1, 2, 3])
def test_one_query_alone_in_detail(query: int) -> None:
    whole, one = explain(None), explain(None, query=query)
    assert check_every_number(one) > 10
    shown = {matrix.name: matrix for step in one.steps() for matrix in step.matrices}
    np.testing.assert_array_equal(shown["scores"].matrix, whole.scores[query - 1 : query])
    np.testing.assert_array_equal(shown["output"].matrix, whole.outputs[query - 1 : query])
    assert shown["weights"].row_names == [f"input {query}"]
    assert len(one.steps()) == 6, "all outputs at once are left out"


def test_the_second_query_of_the_lectures() -> None:
    text = " ".join(step.text for step in explain(None, query=2).steps())
    assert "with 'input 3': 2·2 + 2·3 + 2·1 = 12" in text
    assert "softmax([4, 16, 12])" in text


def test_the_sentence_of_a_number() -> None:
    worked = explain()
    known = {matrix.name: matrix for step in worked.steps() for matrix in step.matrices}
    assert (
        worked.arithmetic(known["scores"], 0, 1)
        == "the query of 'input 1' with the key of 'input 2' = 1·4 + 0·4 + 2·0 = 4"
    )
    assert worked.arithmetic(known["q"], 0, 2) == "'q3' of 'input 1' = 1·1 + 0·0 + 1·1 + 0·1 = 2"
    said = "'input 1' looks at 'input 2' with e^(4) / (e^(2) + e^(4) + e^(4)) = 0.4683"
    assert worked.arithmetic(known["weights"], 0, 1) == said


def test_words_that_look_like_templates_stay_words() -> None:
    worked = explain(
        ["{0}", "{value}", "{row}", "'", "\\", "<b>"], choose_parts(score="additive", mask="causal")
    )
    [matrix] = [one for step in worked.steps() for one in step.matrices if one.name == "weight · v"]
    assert worked.arithmetic(matrix, 1, 0).startswith("'{0}' takes 0 of ")
    check_every_number(worked)


def test_python_names_the_same_parts() -> None:
    own = saccade.explain(
        "the black cat", score="additive", mask={"name": "window", "left": 1}, query=2
    )
    assert isinstance(own, Worked)
    assert own.score == {"name": "additive", "hidden": None, "layers": 1}
    assert (
        own.to_dict()
        == explain(
            ["the", "black", "cat"], choose_parts("additive", mask={"name": "window", "left": 1}), 2
        ).to_dict()
    )


def test_numbers_that_are_not_there_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no number named 'nothing'"):
        _ = explain().nothing


def test_parameters_do_not_move_the_random_numbers_of_others() -> None:
    import torch

    before = torch.get_rng_state()
    explain(None, choose_parts("additive"))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"score": "aditive"}, "no score named 'aditive'; did you mean 'additive'?"),
        (
            {"score": {"name": "dot", "left": 1}},
            "score: score 'dot' has no option 'left'; there are none",
        ),
        ({"score": ["dot"]}, "score is ['dot']; write a score's name, or {name: …, option: …}"),
        ({"normalize": "softmx"}, "no normalizer named 'softmx'; did you mean 'softmax'?"),
        ({"mask": "window"}, "mask: mask 'window' needs left; write {name: window, left: …}"),
        (
            {"mask": "padding"},
            "mask is 'padding', which is built per batch and cannot be set in a recipe; leave it out",
        ),
        (
            {"heads": 3},
            "expected 1, 2 or 4 heads, among which an input's 4 numbers are divided, got 3",
        ),
        (
            {"heads": 0},
            "expected 1, 2 or 4 heads, among which an input's 4 numbers are divided, got 0",
        ),
        (
            {"score": "additive", "scaled": True},
            "both a score and scaled were given, which is the score scaled-dot; leave one of them out",
        ),
    ],
)
def test_wrong_parts_are_refused(options: dict[str, Any], sentence: str) -> None:
    assert error_of(lambda: choose_parts(**options)) == sentence


def test_parts_too_wide_to_follow_and_parts_that_do_not_fit() -> None:
    wide = choose_parts(score={"name": "reduced-rank", "rank": 60000})
    assert error_of(lambda: explain(None, wide)).startswith(
        "the score's 'u' has 60000 numbers per row, and at most 16 can be followed"
    )
    assert "use normalize=sum" in error_of(lambda: explain(None, choose_parts(score="favor")))
    assert (
        error_of(lambda: explain(None, query=4))
        == "expected a query from 1 to 3, the number of inputs, got 4"
    )
    assert (
        error_of(lambda: explain(None, query=0))
        == "expected a query from 1 to 3, the number of inputs, got 0"
    )


def test_masks_with_sizes_of_their_own() -> None:
    for name in masks.table.names():
        entry = masks.table.entry(name)
        if entry.per_batch:
            continue
        try:
            worked = explain(WORDS, choose_parts(mask={"name": name, **entry.example}))
        except SaccadeError:
            assert name == "blocks", "made for another length"
            continue
        check_every_number(worked)
