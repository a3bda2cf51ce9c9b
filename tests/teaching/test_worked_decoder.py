"""A trained model's own numbers: scores, weights, context and probabilities computed again from its parameters, in float64."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calculating import check_every_number

from saccade import api, record
from saccade.teaching.explain.worked_decoder import explain_step
from support import error_of, run_cli, tiny_recipe

SOURCE, TARGET = "the black cat ate the mouse", "le chat noir"
FAMILIES: dict[str, dict[str, Any]] = {
    "bahdanau": {"family": "bahdanau", "dim": 8, "hidden": 8},
    "luong": {"family": "luong", "dim": 8, "hidden": 8},
    "predicted": {
        "family": "luong",
        "dim": 8,
        "hidden": 8,
        "window": {"name": "predicted", "reach": 3},
    },
    "gated": {
        "family": "bahdanau",
        "dim": 8,
        "hidden": 20,
        "gated_context": True,
        "cell": "lstm",
        "depth": 2,
    },
    "transformer": {"family": "transformer", "dim": 16, "hidden": 16, "depth": 2, "heads": 2},
    "convs2s": {"family": "convs2s", "dim": 8, "hidden": 8, "depth": 2},
    "fixed": {"family": "fixed-context", "dim": 8, "hidden": 8},
}


@pytest.fixture(scope="module")
def systems() -> dict[str, api.System]:
    recipe = tiny_recipe(data={"options": {"train": 60, "dev": 5, "test": 5}})
    return {name: api.build({**recipe, "model": model}) for name, model in FAMILIES.items()}


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def test_bahdanau_by_hand(systems: dict[str, api.System]) -> None:
    """e_j = vᵀ tanh(W s_(t−1) + U h_j), a = softmax(e), c = Σ a h, and the state after it."""
    system, found = systems["bahdanau"], explain_step(systems["bahdanau"], SOURCE, TARGET, 2)
    score = system.model.decoder.cross.mechanism.score
    w, u, v = (one.detach().double().numpy()[0] for one in (score.w_q, score.w_k, score.v))
    e = np.array([v @ np.tanh(found.s_before @ w + h @ u) for h in found.h])
    np.testing.assert_allclose(found.e, e, atol=1e-5)
    np.testing.assert_allclose(found.a, softmax(e), atol=1e-6)
    np.testing.assert_allclose(found.c, softmax(e) @ found.h, atol=1e-5)
    task, model = system.task, system.model.eval()
    ids = torch.tensor([[*task.source.encode_ids([SOURCE])[0], task.source.eos]])
    memory, _ = model.encoder(model.source(ids), torch.tensor([ids.shape[1]]))
    np.testing.assert_allclose(found.h, memory[0].detach().numpy(), atol=1e-6)
    assert found.s_after.shape == found.s_before.shape == (8,)
    assert not np.allclose(found.s_after, found.s_before)
    assert "s_(t−1), asks (Bahdanau)" in found.steps()[1].text


def test_luong_by_hand(systems: dict[str, api.System]) -> None:
    """e_j = s_tᵀ W h_j: the state after the step asks."""
    found = explain_step(systems["luong"], SOURCE, TARGET, 3)
    weight = (
        systems["luong"].model.decoder.cross.mechanism.score.weight.detach().double().numpy()[0]
    )
    e = np.array([found.s_after @ weight @ h for h in found.h])
    np.testing.assert_allclose(found.e, e, atol=1e-5)
    np.testing.assert_allclose(found.a, softmax(e), atol=1e-6)
    np.testing.assert_allclose(found.c, softmax(e) @ found.h, atol=1e-5)
    assert "s_t, asks (Luong)" in found.steps()[1].text


@pytest.mark.parametrize(("layer", "head"), [(1, 1), (1, 2), (2, 1), (None, None)])
def test_a_transformers_layer_and_head_by_hand(
    systems: dict[str, api.System], layer: int | None, head: int | None
) -> None:
    """e_j = q·k_j / √D, and what a record of the whole pass sees at this row."""
    system = systems["transformer"]
    found = explain_step(system, SOURCE, TARGET, 2, layer, head)
    e = np.array([found.query @ k / math.sqrt(8) for k in found.keys])
    np.testing.assert_allclose(found.e, e, atol=1e-5)
    np.testing.assert_allclose(found.a, softmax(e), atol=1e-6)
    np.testing.assert_allclose(found.c, softmax(e) @ found.h, atol=1e-5)
    assert (found.site, found.head) == (f"decoder.{(layer or 2) - 1}.cross", head or 1)
    task = system.task
    batch = task.batch(task.numbers([task_pair(SOURCE, TARGET)]), torch.device("cpu"))
    with record(system.model.eval()) as seen, torch.no_grad():
        system.model(*batch.inputs)
    np.testing.assert_allclose(
        found.a, seen[found.site].weights([1], [(head or 1) - 1]).flatten().numpy(), atol=1e-5
    )


def task_pair(source: str, target: str) -> Any:
    from saccade.data.pairs import Pair

    return Pair(source, target)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "fixed"])
def test_every_model_that_attends_is_followed_at_every_step(
    systems: dict[str, api.System], name: str
) -> None:
    system = systems[name]
    scored = system.score(SOURCE, TARGET)
    for step, token in enumerate(scored.tokens, 1):
        found = explain_step(system, SOURCE, TARGET, step)
        assert found.token == token.token
        assert found.probability == pytest.approx(token.probability, abs=1e-5)
        np.testing.assert_allclose(found.a @ found.h, found.c, atol=1e-5)
        check_every_number(found, 2e-2)
        json.dumps(found.to_dict(), allow_nan=False)
        best = max(found.candidates, key=lambda one: one["probability"])
        assert best["probability"] == pytest.approx(token.likeliest_probability, abs=1e-5)


def test_without_a_target_the_models_own_translation_is_followed(
    systems: dict[str, api.System],
) -> None:
    system = systems["bahdanau"]
    own = system.steps(SOURCE, candidates=3)
    found = explain_step(system, SOURCE)
    assert [one["token"] for one in found.candidates[:1]] == [own.steps[0].candidates[0].token]
    assert found.token == own.steps[0].candidates[0].token
    assert "The model's own translation" in found.steps()[0].text


def test_looking_leaves_the_model_as_it_was(systems: dict[str, api.System]) -> None:
    system = systems["transformer"]
    before = system.score(SOURCE, TARGET).log_prob
    explain_step(system, SOURCE, TARGET, 1)
    assert system.score(SOURCE, TARGET).log_prob == before
    assert not [name for name, module in system.model.named_modules() if "look" in vars(module)]


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        (
            "fixed",
            {},
            "expected a model that attends to its source, which this one does not; use one with attention, such as bahdanau",
        ),
        (
            "bahdanau",
            {"step": 0},
            "expected a step from 1 to 4, the tokens of 'le chat noir' and its end, got 0",
        ),
        (
            "bahdanau",
            {"step": 5},
            "expected a step from 1 to 4, the tokens of 'le chat noir' and its end, got 5",
        ),
        (
            "bahdanau",
            {"layer": 2},
            "expected a layer from 1 to 1, those that attend to the source, got 2",
        ),
        ("bahdanau", {"head": 2}, "expected a head from 1 to 1, those of decoder.cross, got 2"),
        (
            "transformer",
            {"layer": 0},
            "expected a layer from 1 to 2, those that attend to the source, got 0",
        ),
        (
            "transformer",
            {"head": 3},
            "expected a head from 1 to 2, those of decoder.1.cross, got 3",
        ),
        ("bahdanau", {"source": "  "}, "the source is empty; give a sentence"),
        ("bahdanau", {"target": " "}, "the target is empty; give a text, or leave --target out"),
        (
            "bahdanau",
            {"source": "cat " * 300},
            "the source has 301 tokens, but at most 200 can be followed; shorten it",
        ),
        (
            "bahdanau",
            {"target": "chat " * 300},
            "the target has 301 tokens, but at most 200 can be followed; shorten it",
        ),
    ],
)
def test_what_cannot_be_followed(
    systems: dict[str, api.System], name: str, options: dict[str, Any], sentence: str
) -> None:
    assert (
        error_of(
            lambda: explain_step(systems[name], **{"source": SOURCE, "target": TARGET, **options})
        )
        == sentence
    )


def test_on_the_command_line(tmp_path: Path) -> None:
    api.fit(tiny_recipe(), tmp_path / "run")
    words = ("explain", "step", tmp_path / "run", SOURCE, "--target", TARGET, "--step", 2)
    found = run_cli(*words, "--json").json
    np.testing.assert_allclose(np.array(found["a"]) @ np.array(found["h"]), found["c"], atol=1e-5)
    printed = run_cli(*words)
    assert printed.code == 0
    assert "4. Weights a" in printed.out
    similar = run_cli("explain", "similar", "the", "a", "--model", tmp_path / "run", "--json").json
    system = api.load(tmp_path / "run", "cpu")
    ids = [system.task.source.id(word) for word in ("the", "a")]
    [embedding] = [
        one
        for name, one in system.model.named_parameters()
        if name.startswith("source") and one.dim() == 2
    ]
    np.testing.assert_allclose(similar["vectors"], embedding[ids].detach().numpy(), rtol=1e-6)
    assert similar["vocabulary"] == len(system.task.source)
    for extra, sentence in (
        ((tmp_path / "run",), "is a model; write: saccade explain step"),
        ((tmp_path / "run", SOURCE), "to explain a model: saccade explain step MODEL TEXT"),
        (("similar", "the", "zebra", "--model", tmp_path / "run"), "'zebra' is not a single token"),
        (("step", tmp_path / "run", SOURCE, "--heads", 2), "No such option: --heads"),
        (("step", tmp_path / "run"), "Missing argument 'TEXT'"),
    ):
        wrong = run_cli("explain", *extra)
        assert wrong.code == 2
        assert sentence in wrong.err
