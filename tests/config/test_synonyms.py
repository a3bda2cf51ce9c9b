"""The hint of an error about a wrong name: what other toolkits call a thing is known, and where nothing is near there is no guess."""

from __future__ import annotations

import pytest

from saccade.config import index, recipes
from saccade.errors import did_you_mean, synonyms
from support import error_of, run_cli

MODEL = {"family": "transformer"}


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("training.epochs", "epochs updates"),
        ("training.batch_size", "tokens"),
        ("training.lr", "learning_rate"),
        ("training.max_steps", "updates"),
        ("training.eval_steps", "evaluate_every"),
        ("training.early_stopping", "patience"),
        ("training.fp16", "precision"),
        ("training.weight-decay", "weight_decay"),
        ("model.n_layers", "depth"),
        ("model.d_model", "dim"),
        ("model.num_heads", "heads"),
        ("model.ffn_dim", "hidden"),
        ("model.dropout_rate", "dropout"),
        ("vocabulary.vocab_size", "size"),
        ("lr", "training.learning_rate"),
        ("model.lr", "training.learning_rate"),
        ("training.layers", "model.depth"),
        ("training.updatess", "updates"),
        ("epochs", "training.epochs"),
        ("num_train_epochs", "training.epochs"),
        ("steps", "training.updates"),
        ("patience", "training.patience"),
        ("held_out", "data.held_out"),
        ("dim", "model.dim"),
        ("block", "language.block"),
    ],
)
def test_the_usual_word_for_a_key_is_understood(word: str, key: str) -> None:
    if word.partition(".")[2] in {name.partition(".")[2] for name, _ in index.keys("training.")}:
        return  # it is a key here
    sentence = error_of(lambda: recipes.recipe({"model": MODEL}, [f"{word}=1"]))
    assert any(sentence.endswith(f"; did you mean '{name}'?") for name in key.split()), sentence


def test_every_synonym_leads_to_a_key() -> None:
    known = {key for key, _ in index.keys("")} | {"model.feedforward.activation"}
    for name, keys in synonyms().items():
        assert keys[-1] in known, name


@pytest.mark.parametrize(
    "word", ["training.zzz", "training.foo", "model.qqq", "vocabulary.xyzzy", "bar"]
)
def test_there_is_no_guess_where_nothing_is_near(word: str) -> None:
    sentence = error_of(lambda: recipes.recipe({"model": MODEL}, [f"{word}=1"]))
    assert "; there are: " in sentence
    assert "did you mean" not in sentence


def test_names_that_are_not_settings_have_no_synonyms() -> None:
    assert did_you_mean("lr", ["bleu", "loss"]) == "; there are: bleu, loss"
    assert "did you mean" not in run_cli("list", "foo").err
    assert "did you mean 'scores'?" in run_cli("list", "score").err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "train x --lr 3",
            "no option --lr; settings are written without dashes: training.learning_rate=…; see saccade train --help",
        ),
        (
            "train x --n-layers=3",
            "no option --n-layers; settings are written without dashes: model.depth=…",
        ),
        (
            "compare x --updates 3",
            "settings are written without dashes: training.updates=…; see saccade compare --help",
        ),
        ("train x --zzz", "No such option: --zzz; see saccade train --help"),
        ("translate x --lr 3", "see saccade translate --help"),
        ("nope", "No such command 'nope'; see saccade --help"),
    ],
)
def test_a_setting_written_as_an_option_is_named(line: str, sentence: str) -> None:
    printed = run_cli(*line.split())
    assert printed.code == 2
    assert sentence in printed.err
