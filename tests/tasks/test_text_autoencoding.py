"""Autoencoding of texts: one vector between encoder and decoder, noise that is the same where it is judged, controls by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import saccade
from saccade import api
from saccade.config import recipes
from saccade.data.pairs import Pair
from saccade.models import TextAutoencoder
from saccade.recipe import AutoencodingRecipe
from saccade.tasks.text_autoencoding import noisy
from saccade.training.loop import Watcher
from support import error_of, raises, run_cli

TEXTS = [
    "the cat saw the dog",
    "a bird ate",
    "the dog ran to the old house",
    "a cat",
    "the bird saw a house",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "lines.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def recipe(file: Path, *words: str, **how: Any) -> recipes.Recipe:
    values = {
        "task": "text-autoencoding",
        "data": {"train": str(file), "dev": str(file)},
        "vocabulary": {"kind": "words"},
        "autoencoding": {"latent": 7, **how},
        "model": {"family": "fixed-context", "dim": 16, "hidden": 24, "dropout": 0.0},
        "training": {
            "tokens": 60,
            "updates": 2,
            "warmup": 1,
            "evaluate_every": 1,
            "threads": 1,
            "smoothing": 0.0,
        },
        "device": "cpu",
    }
    return recipes.recipe(values, words)


@pytest.mark.parametrize("family", ["fixed-context", "fixed-first"])
def test_all_that_the_decoder_knows_goes_through_the_latent(file: Path, family: str) -> None:
    system, _ = api.prepared(recipe(file, f"model.family={family}"))
    model, task = system.model.eval(), system.task
    assert isinstance(model, TextAutoencoder)
    pairs = [Pair(TEXTS[0], TEXTS[1], 1), Pair(TEXTS[2], TEXTS[1], 2)]
    source, lengths, target = task.batch(task.numbers(pairs), torch.device("cpu")).inputs
    latent = model.latent(source, lengths)
    assert latent.shape == (2, 7)
    end = model.encoder(model.source(source), lengths)[1]
    for b in range(2):
        by_hand = [model.squeeze.bias[n] + sum(model.squeeze.weight[n] * end[b]) for n in range(7)]
        torch.testing.assert_close(latent[b], torch.stack(by_hand))
    logits, state = [], model.start_from(latent)
    for t in range(target.shape[1]):
        step, state = model.step(target[:, t], state)
        logits.append(step)
    torch.testing.assert_close(model(source, lengths, target), torch.stack(logits, 1))
    assert not torch.allclose(latent[0], latent[1])


def test_a_family_whose_decoder_sees_the_text_is_refused(file: Path) -> None:
    wrong = error_of(lambda: recipe(file, "model.family=bahdanau"))
    assert wrong.startswith(
        "model.family is 'bahdanau', which is not a model whose decoder reads one vector; choose one of: fixed"
    )


TEXT = st.lists(st.sampled_from(["a", "bird", "saw", "the", "dog"]), min_size=1, max_size=12).map(
    " ".join
)


@given(TEXT, st.integers(0, 4), st.floats(0, 0.9), st.binary(max_size=3))
def test_noise_drops_words_and_moves_them_a_few_positions(
    text: str, shuffle: int, drop: float, salt: bytes
) -> None:
    words = [f"{word}{n}" for n, word in enumerate(text.split())]  # each is itself alone
    moved = noisy(" ".join(words), AutoencodingRecipe(shuffle=shuffle), salt).split()
    assert sorted(moved) == sorted(words)
    assert all(abs(n - words.index(word)) <= shuffle for n, word in enumerate(moved))
    lost = noisy(" ".join(words), AutoencodingRecipe(drop=drop), salt).split()
    assert lost
    assert lost == [word for word in words if word in lost], "those that stay are in order"
    both = AutoencodingRecipe(drop=drop, shuffle=shuffle)
    assert noisy(text, both, salt) == noisy(text, both, salt)


def test_the_share_of_lost_words_is_that_of_the_recipe() -> None:
    text = " ".join(map(str, range(20_000)))
    assert len(noisy(text, AutoencodingRecipe(drop=0.3)).split()) == pytest.approx(14_000, rel=0.02)


def test_noise_is_new_in_training_and_the_same_where_it_is_judged(file: Path) -> None:
    system, work = api.prepared(recipe(file, drop=0.4, shuffle=3))
    plan = list(range(len(TEXTS)))
    one, other = work.batch(plan), work.batch(plan[::-1])
    assert torch.equal(one.inputs[0], work.batch(plan).inputs[0])
    assert torch.equal(one.target, other.target.flip(0)), "the whole texts are learned"
    assert one.inputs[0].shape != other.inputs[0].shape or not torch.equal(
        one.inputs[0], other.inputs[0].flip(0)
    )
    read = system.read("dev")
    assert [pair.target for pair in read] == TEXTS
    assert [pair.source for pair in read] == [pair.source for pair in system.read("dev")]
    assert any(pair.source != pair.target for pair in read)
    assert [pair.source for pair in api.prepared(recipe(file))[0].read("dev")] == TEXTS


def test_controls_by_hand(file: Path) -> None:
    system, _ = api.prepared(recipe(file, drop=0.4))
    pairs = [Pair("a", "a b c d", 1), Pair("x y z w", "x y z w", 2), Pair("b", "a b c d", 3)]
    found = system.task.score(["a b c d", "x y z v", "a b c d"], pairs)
    assert found["exact"] == pytest.approx(200 / 3)
    # the last is compared with the first output
    assert found["exact_other_text"] == pytest.approx(100 / 3)
    assert found["exact_noisy"] == pytest.approx(100 / 3)
    assert found["bleu"] > found["bleu_other_text"] > 0
    assert "exact_noisy" not in api.prepared(recipe(file))[0].task.score(["a"] * 3, pairs)


@pytest.fixture(scope="module")
def trained(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, saccade.System]:
    folder = tmp_path_factory.mktemp("runs") / "texts"
    longer = ("training.updates=120", "training.evaluate_every=60", "training.learning_rate=0.02")
    return folder, saccade.fit(recipe(file, *longer), folder, watcher=Watcher())[0]


def test_a_trained_model_reconstructs_texts_and_decodes_vectors(
    trained: tuple[Path, saccade.System],
) -> None:
    folder, system = trained
    found = system.evaluate("dev")
    assert found["exact"] == 100
    assert found["exact_other_text"] == 0
    assert str(system.reconstruct(TEXTS[0])) == TEXTS[0]
    vectors = system.encode(TEXTS)
    assert vectors.shape == (5, 7)
    assert np.allclose(system.encode(TEXTS[1]), vectors[1], atol=1e-5)
    assert system.from_latent(vectors) == TEXTS
    assert len(system.from_latent((vectors[:1] + vectors[1:2]) / 2)) == 1
    again = saccade.load(folder, "cpu")
    assert np.array_equal(again.encode(TEXTS), vectors)
    assert "give rows of 7 numbers, as `encode` does" in error_of(
        lambda: system.from_latent(vectors[0])
    )
    assert "expected a text or a list of texts" in error_of(lambda: system.encode(["", "a cat"]))
    with raises("unknown-predict-option"):
        system.reconstruct("a cat", noise=0.1)


def test_the_command_prints_the_reconstruction(trained: tuple[Path, saccade.System]) -> None:
    folder, _ = trained
    assert run_cli("reconstruct", folder, TEXTS[0]).out == TEXTS[0] + "\n"
    assert run_cli("reconstruct", folder, TEXTS[0], "--json").json["text"] == TEXTS[0]
    refused = run_cli("reconstruct", folder, TEXTS[0], "--noise", 1)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "has no option 'noise'" in refused.err
