"""transformer-base and transformer-big are the paper's models: their settings, their counts, and a joint vocabulary by default."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import recipes
from saccade.data.pairs import Pair
from saccade.layers.residuals import PostNorm
from saccade.layers.token_inputs import Sinusoidal
from saccade.models import Seq2Seq
from saccade.models.builder import Builder, NoInit
from support import error_of

SMALL = {"dim": 8, "hidden": 8, "depth": 1, "heads": 2}
TOKENS = 37_000


def built(family: str, **changed: Any) -> Seq2Seq:
    with torch.device("meta"), NoInit():
        return Builder({"family": family, **changed}).make(Seq2Seq, TOKENS, TOKENS)


@pytest.mark.parametrize(
    ("family", "dim", "hidden", "heads", "dropout", "paper"),
    [
        ("transformer-base", 512, 2048, 8, 0.1, 65e6),
        ("transformer-big", 1024, 4096, 16, 0.3, 213e6),
    ],
)
def test_the_models_of_the_paper_by_one_word(
    family: str, dim: int, hidden: int, heads: int, dropout: float, paper: float
) -> None:
    model = built(family)
    attention, mlp, norm = 4 * (dim * dim + dim), 2 * dim * hidden + dim + hidden, 2 * dim
    layers = 6 * (attention + mlp + 2 * norm) + 6 * (2 * attention + mlp + 3 * norm)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert counted == layers + TOKENS * dim, "no norm ends a stack, and one embedding does all"
    assert counted == pytest.approx(paper, rel=0.03)
    block = model.decoder.block(5)
    assert (len(model.encoder), len(model.decoder), block.mixer.heads) == (6, 6, heads)
    assert {
        type(one) for one in (block.around_mixer, block.around_cross, block.around_feedforward)
    } == {PostNorm}
    assert block.around_mixer.dropout.p == model.source.dropout.p == dropout
    assert isinstance(model.source.position, Sinusoidal)
    assert model.source is model.target
    assert model.head._tied == (model.target.tokens,)


def test_everything_can_still_be_overridden() -> None:
    made = built(
        "transformer-big", dim=64, heads=4, depth=2, residual="pre-norm", shared=False, dropout=0.0
    )
    assert (made.encoder.block(0).mixer.heads, len(made.decoder), made.source is made.target) == (
        4,
        2,
        False,
    )
    assert built("transformer-base", size="tiny").source.tokens.dim == 64


def recipe(**changed: Any) -> dict[str, Any]:
    return {
        "model": {"family": "transformer-base", **SMALL, **changed.pop("model", {})},
        "vocabulary": {"kind": "words"},
        **changed,
    }


PAIRS = [Pair("the cat", "le chat", 1), Pair("the black dog", "le chien noir", 2)]


def test_the_vocabulary_is_joint_unless_a_recipe_says_otherwise() -> None:
    made = recipes.recipe(recipe())
    assert made.vocabulary.joint
    assert made.to_dict()["vocabulary"]["joint"] is True
    assert recipes.recipe(made.to_dict()) == made, "what is written out is read back"
    system = api.build(made, PAIRS)
    assert system.task.source is system.task.target
    assert not recipes.recipe(recipe(model={"shared": False})).vocabulary.joint, (
        "two embeddings need no joint vocabulary"
    )
    assert not recipes.recipe(recipe(model={"family": "transformer"})).vocabulary.joint
    apart = recipe(vocabulary={"kind": "words", "joint": False})
    sentence = error_of(lambda: api.build(recipes.recipe(apart), PAIRS))
    assert "set vocabulary.joint=true" in sentence
    labels = recipes.recipe({**recipe(), "task": "classification"})
    assert "joint" not in labels.to_dict()["vocabulary"], "other tasks have no pairs"
