"""Decoding made visible: steps are what the search saw, and a given output has the probability that the model gives it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api, cli
from saccade.data.pairs import Pair
from saccade.errors import SaccadeError
from saccade.training.checkpoints import RunFolder

PAIRS = [
    Pair("the black cat", "le chat noir", 1),
    Pair("a cat eats", "un chat mange", 2),
    Pair("the mouse", "la souris", 3),
]
TEXT = "the black mouse"
SMALL: dict[str, Any] = {
    "bahdanau": {"dim": 8, "hidden": 8},
    "transformer": {"dim": 8, "hidden": 8, "depth": 1, "heads": 2},
    "fixed-context": {"dim": 8, "hidden": 8},
}


@pytest.fixture(params=SMALL)
def system(request: pytest.FixtureRequest) -> api.System:
    recipe = {
        "task": "translation",
        "data": {"train": "x"},
        "vocabulary": {"kind": "words"},
        "seed": 3,
    }
    made = api.build({**recipe, "model": {"family": request.param, **SMALL[request.param]}}, PAIRS)
    with torch.no_grad():  # so that outputs are neither empty nor all alike
        for parameter in made.model.parameters():
            parameter.mul_(3)
    return made


@pytest.mark.parametrize("beam", [1, 3])
def test_steps_lead_to_the_translation(system: api.System, beam: int) -> None:
    found, wanted = (
        system.steps(TEXT, beam, candidates=4, max_length=6),
        system.translate(TEXT, beam, max_length=6),
    )
    # before unknown words are copied from the source
    text = system.task.target.decode(wanted.tokens, keep_unknown=True)
    assert (found.text, found.log_prob) == (text, pytest.approx(wanted.log_prob, abs=1e-4))
    assert len([one for one in found.steps if one.number == 1]) == 1, "one beginning at first"
    for one in found.steps:
        assert one.prefix.split() == one.prefix.split()[: one.number - 1]
        probabilities = [each.probability for each in one.candidates[:4]]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(each.probability for each in one.candidates) <= 1 + 1e-6
    if beam == 1:
        taken = [each.token for one in found.steps for each in one.candidates if each.taken]
        assert [token for token in taken if token != "<eos>"] == found.text.split()
        product = math.fsum(
            math.log(each.probability)
            for one in found.steps
            for each in one.candidates
            if each.taken
        )
        assert product == pytest.approx(found.log_prob, abs=1e-4)
    else:
        assert max(sum(one.number == n for one in found.steps) for n in range(1, 7)) == beam


def test_candidates_are_the_models_own_probabilities(system: api.System) -> None:
    """The same numbers by a whole pass over each beginning."""
    found, words = system.steps(TEXT, 2, candidates=3, max_length=4), system.task.target
    for one in found.steps:
        read = torch.tensor([[words.bos, *(words.id(word) for word in one.prefix.split())]])
        source = torch.tensor([[*system.task.source.encode_ids([TEXT])[0], system.task.source.eos]])
        with torch.no_grad():
            p = system.model(source, torch.tensor([source.shape[1]]), read)[0, -1].softmax(-1)
        for each in one.candidates:
            assert each.probability == pytest.approx(float(p[words.id(each.token)]), abs=1e-5)


def test_a_given_translation_token_by_token(system: api.System) -> None:
    found = system.score("the black cat", "le chat noir")
    assert [one.token for one in found.tokens] == ["le", "chat", "noir", "<eos>"]
    loss = system.evaluate([PAIRS[0]])["loss"]
    assert found.log_prob == pytest.approx(-4 * loss, abs=1e-4)
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    for one in found.tokens:
        assert (one.rank == 1) == (one.token == one.likeliest)
        assert one.probability <= one.likeliest_probability + 1e-6
    own = system.translate(TEXT, max_length=30)
    if own.finished and not own.copied:
        assert system.score(TEXT, own.text).log_prob == pytest.approx(own.log_prob, abs=1e-4)
    if system.name == "fixed-context":
        assert (found.links, found.tokens[0].source) == ((), None)
    else:
        assert list(found.links) == system.align("the black cat", "le chat noir").links
        assert all(one.source in ("the", "black", "cat", "<eos>") for one in found.tokens)


def test_mistakes_are_told(system: api.System) -> None:
    with pytest.raises(SaccadeError, match="the text is empty"):
        system.steps(" ")
    with pytest.raises(SaccadeError, match="the text is empty"):
        system.score(" ", "le")
    with pytest.raises(SaccadeError, match="expected 1 to 1,000 candidates, got 0"):
        system.steps(TEXT, candidates=0)


def test_the_command_shows_steps_and_given_translations(
    system: api.System, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from saccade.system.system import model_files

    RunFolder(tmp_path, model_files(system)).save("model", system.model)
    model = str(tmp_path / "model")

    def run(*words: str, code: int = 0) -> str:
        assert cli.run(["translate", model, *words]) == code
        heard = capsys.readouterr()
        return heard.out if code == 0 else heard.err

    assert run(TEXT, "--steps", "--beam", "2", "--max-length", "3").splitlines()[0].split()[:2] == [
        "step",
        "beginning",
    ]
    steps = json.loads(run(TEXT, "--steps", "--candidates", "2", "--max-length", "3", "--json"))
    assert [len(one["candidates"]) for one in steps["steps"]] == [2] * len(steps["steps"])
    given = json.loads(run("the black cat", "--given", "le chat noir", "--json"))
    assert given["log_prob"] == pytest.approx(sum(one["log_prob"] for one in given["tokens"]))
    if system.name == "fixed-context":
        assert "which an alignment needs; leave --align out" in run(
            "the cat", "--given", "le chat", "--align", code=2
        )
    else:
        assert run("the cat", "--given", "le chat", "--align").splitlines()[-1] == str(
            system.align("the cat", "le chat")
        )
    assert "leave out --steps, --beam" in run("the cat", "--given", "le chat", "--steps", code=2)
    assert "--candidates is for --steps" in run("the cat", "--candidates", "3", code=2)
    assert "leave --align out" in run("the cat", "--steps", "--align", code=2)
