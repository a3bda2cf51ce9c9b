"""Attention as a soft dictionary: from one value to the mean of all, by temperature."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...core import normalizers, scores
from ...core.attention import attend, weights
from ...core.mechanism import Mechanism
from ...errors import SaccadeError
from ...views.worked_steps import How, Matrix, Step, Worked, in_order, number, numbered, quote
from .attention_steps import array
from .worked_attention import check_words, draw_bytes

KEYS = ["a", "b", "c", "d", "e"]  # the slide's dictionary; its query is d
TEMPERATURES = (0.05, 0.2, 0.5, 1.0, 2.0, 10.0)
WIDTH = 6
MAX_COSINE = 0.9  # the greatest cosine of two keys, so that a dictionary can keep them apart


def draw_keys(words: Sequence[str]) -> Tensor:
    """A vector of small numbers for each word, of which no two point nearly the same way."""
    made: list[np.ndarray] = []
    for word in words:
        for attempt in range(10_000):
            drawn = draw_bytes("key", word, WIDTH, attempt)
            vector = np.array([value % 5 - 2.0 for value in drawn])
            limit = MAX_COSINE * np.linalg.norm(vector)
            if limit > 0 and all(vector @ other <= limit * np.linalg.norm(other) for other in made):
                break
        made.append(vector)
    return torch.tensor(np.array(made))


@torch.no_grad()
def cosine_attention(temperature: float, normalize: normalizers.Normalizer) -> Mechanism:
    """Attention by cosines divided by a temperature, in float64."""
    score = scores.Cosine().double()
    score.log_sharpness.fill_(-math.log(temperature))
    return Mechanism(score, normalize).eval()


@torch.no_grad()
def explain_lookup(words: Sequence[str] | None = None, query: int | None = None) -> Worked:
    """Look one key up: by a dictionary, softly at several temperatures (a cosine score, sharpness 1/T), and as a mean."""
    names = KEYS if words is None else list(dict.fromkeys(words))
    check_words(names)
    if len(names) < 2:
        raise SaccadeError(
            f"expected at least 2 different words for a dictionary, got {len(names)}; give more",
            code="too-few-words",
        )
    if query is not None and not 1 <= query <= len(names):
        raise SaccadeError(
            f"expected a query from 1 to {len(names)}, the number of keys, got {query}",
            code="out-of-range",
        )
    at = query - 1 if query else 3 if words is None else 0
    k, v = draw_keys(names), torch.arange(1, len(names) + 1, dtype=torch.float64).unsqueeze(1) * 10
    given = k[None, None, at : at + 1], k[None, None], v[None, None]
    hard = cosine_attention(1.0, normalizers.Hard())
    mechanisms = [hard, *(cosine_attention(t, normalizers.Softmax()) for t in TEMPERATURES)]
    cosines = hard.score(*given[:2])[0, 0, 0]
    each = [
        *(weights(*given[:2], one)[0, 0, 0] for one in mechanisms),
        torch.full((len(names),), 1 / len(names), dtype=torch.float64),
    ]
    found = [*(attend(*given, one)[0, 0, 0] for one in mechanisms), v.mean(0)]
    steps = lookup_steps(names, at, k, v, cosines, torch.stack(each), torch.stack(found))
    facts = {"tokens": names, "query": at + 1, "temperatures": [0, *TEMPERATURES, None]}
    arrays = {"keys": k, "values": v[:, 0], "cosines": cosines, "weights": torch.stack(each)}
    arrays["found"] = torch.stack(found)[:, 0]
    facts |= {name: array(one) for name, one in arrays.items()}
    return Worked(" ".join(names), steps, **facts)


def lookup_steps(
    names: list[str], at: int, k: Tensor, v: Tensor, cosines: Tensor, each: Tensor, found: Tensor
) -> list[Step]:
    """The steps; the first row of `each` and `found` is hard, the last the mean, and those between are the temperatures'."""
    of, between, ends = quote(names[at]), [f"T = {t:g}" for t in TEMPERATURES], ["hard", "mean"]
    divided = np.stack([array(cosines) / t for t in TEMPERATURES])
    power: How = {"text": "{column}: e^({1}) / ({e0}) = {value}"}
    power["uses"] = [["cosines / T", "i", None], ["cosines / T", "i", "j"]]
    by: How = {"text": "{0} divided by the temperature = {value}", "uses": [["cosines", 0, "j"]]}
    whole: How = {"text": "{row}: {column} gets {value}", "uses": [["cosines", 0, None]]}
    alike: How = {"text": "how alike {row} and {column} point, −1 to 1: {value}"}
    alike["uses"] = [["keys", at, None], ["keys", "j", None]]
    total, last = (
        {"text": "{row}: {0·1} = {value}", "uses": [[name, "i", None], ["values", None, 0]]}
        for name in ("weights", "both ends")
    )
    text = [
        f"Each key has one value, and looking {of} up gives {number(float(v[at, 0]))}: all or nothing.",
        f"The query is the key of {of}. Its cosine with itself is 1, with others less.",
        "weights = softmax(cosines / T): the lower the temperature T, the harder. A query that is not a key finds nothing in a dictionary; "
        "here it finds what is near.",
        "Σ weight · value. At a low temperature it is the dictionary's value, at a high one nearly the mean of all.",
        f"T → 0 is the dictionary, {number(float(found[0, 0]))}; T → ∞ is the mean, {number(float(found[-1, 0]))}.",
    ]
    own: How = {"text": "{column} of {row} is {value}"}
    keys = Matrix("keys", array(k), names, numbered("k", WIDTH), own)
    own = {"text": "the dictionary has {value} for {row}"}
    values = Matrix("values", array(v), names, ["value"], own)
    compared = Matrix("cosines", array(cosines)[None], [names[at]], names, alike)
    cooled = Matrix("cosines / T", divided, between, names, by)
    soft = Matrix("weights", array(each[1:-1]), between, names, power)
    both = Matrix("both ends", array(each[[0, -1]]), ends, names, whole)
    there = Matrix("found there", array(found[[0, -1]]), ends, ["found"], last)
    shown = [
        Step("A dictionary", text[0], [keys, values]),
        Step("Compare the query with every key", text[1], [compared]),
        Step("Soft: weights by temperature", text[2], [cooled, soft]),
        Step(
            "What is found",
            text[3],
            [Matrix("found", array(found[1:-1]), between, ["found"], total)],
        ),
        Step("Both ends", text[4], [both, there]),
    ]
    return in_order(shown)
