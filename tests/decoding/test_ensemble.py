"""Several models as one: probabilities by hand, searches through them, and what cannot be put together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import recipes
from saccade.data.conllu import Sentence
from saccade.data.documents import Document
from saccade.data.pairs import Pair
from saccade.data.vocabulary import BOS, EOS
from saccade.decoding import Beam, Ensemble, decode
from saccade.errors import SaccadeError
from saccade.training.checkpoints import RunFolder

PAIRS = [
    Pair("the black cat", "le chat noir", 1),
    Pair("the dog ate", "le chien a mangé", 2),
    Pair("cat", "chat", 3),
]


def system(
    seed: int = 0, family: str = "bahdanau", pairs: list[Pair] = PAIRS, **more: Any
) -> api.System:
    sizes = {"heads": 2, "depth": 1} if family == "transformer" else {}
    made = api.build(
        recipes.recipe(
            {
                "model": {"family": family, "dim": 8, "hidden": 8, "dropout": 0.0, **sizes, **more},
                "vocabulary": {"kind": "words"},
                "seed": seed,
                "device": "cpu",
            }
        ),
        pairs,
    )
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.mul_(2.0)
    return made


def told(work: Any) -> str:
    with pytest.raises(SaccadeError) as error:
        work()
    return str(error.value)


def test_the_probabilities_are_the_mean_of_the_models() -> None:
    systems = [system(0), system(1), system(2, "luong"), system(3, "transformer")]
    both = api.ensemble(systems)
    batch = both.task.batch(both.task.numbers(PAIRS), torch.device("cpu"))
    source, lengths, read = batch.inputs
    with torch.no_grad():
        expected = sum(one.model.eval()(*batch.inputs).double().softmax(-1) for one in systems) / 4
        torch.testing.assert_close(
            both.model(*batch.inputs).double().exp(), expected, atol=1e-6, rtol=1e-5
        )
        state = both.model.start(source, lengths)
        for at in range(read.shape[1]):
            logits, state = both.model.step(read[:, at], state)
            torch.testing.assert_close(logits.double().exp(), expected[:, at], atol=1e-5, rtol=1e-4)
    assert api.evaluate(both, PAIRS)["loss"] == pytest.approx(
        float(
            -expected.log()
            .gather(-1, batch.target.unsqueeze(-1))
            .squeeze(-1)[batch.target != 0]
            .mean()
        ),
        rel=1e-4,
    )


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_a_model_with_itself_is_itself(family: str) -> None:
    one = system(4, family)
    both = api.ensemble([one, one])
    texts = ["the black cat", "the dog ate the cat", "cat"]
    for beam in (1, 3):
        for alone, together in zip(
            api.decode(one, texts, beam), api.decode(both, texts, beam), strict=True
        ):
            assert (alone.text, alone.alternatives) == (together.text, together.alternatives)
            assert alone.log_prob == pytest.approx(together.log_prob, abs=1e-4)


def test_a_beam_reorders_every_models_state() -> None:
    """The log-probability of what a beam gives is that of the mean, read anew."""
    both = api.ensemble([system(0), system(1, "transformer")])
    batch = both.task.batch(both.task.numbers(PAIRS), torch.device("cpu"))
    source, lengths, _ = batch.inputs
    for sentence, found in enumerate(
        decode(both.model, source, lengths, Beam(BOS, EOS, (0, BOS), 4), [8, 8, 8])
    ):
        for one in found:
            wanted = [*one.tokens, EOS] if one.finished else one.tokens
            read = torch.tensor([[BOS, *one.tokens]])[:, : len(wanted)]
            with torch.no_grad():
                rows = both.model(
                    source[sentence : sentence + 1], lengths[sentence : sentence + 1], read
                )[0]
            assert one.log_prob == pytest.approx(
                float(rows[range(len(wanted)), wanted].sum()), abs=1e-3
            )


def test_the_attention_of_an_ensemble_is_the_mean_of_its_models() -> None:
    first, second = system(0), system(1)
    [a], [b] = api.align(first, PAIRS[:1]), api.align(second, PAIRS[:1])
    [both] = api.align(api.ensemble([first, second]), PAIRS[:1])
    torch.testing.assert_close(
        torch.from_numpy(both.weights), torch.from_numpy((a.weights + b.weights) / 2)
    )


def test_what_cannot_be_put_together_is_told() -> None:
    other = system(0, pairs=PAIRS[:2])
    assert (
        "model 2 (bahdanau) has a different vocabulary than the first (bahdanau); train them on"
        in told(lambda: api.ensemble([system(), other]))
    )
    assert told(lambda: api.ensemble([])) == "an ensemble of no models; give at least one"
    assert told(lambda: Ensemble([])) == "an ensemble of no models; give at least one"
    tags = [Sentence(("the", "cat"), ("DET", "NOUN"), 1)]
    tagger = api.build(
        {"task": "tagging", "model": {"family": "bag", "dim": 4}, "vocabulary": {"kind": "words"}},
        tags,
    )
    assert "a tagging model cannot be ensembled (no token-by-token output)" in told(
        lambda: api.ensemble([tagger, tagger])
    )


def language(seed: int, family: str = "transformer-decoder") -> api.System:
    sizes = {
        "dim": 8,
        "hidden": 8,
        "depth": 1,
        "dropout": 0.0,
        **({"heads": 2} if family == "transformer-decoder" else {}),
    }
    made = {
        "task": "language-modelling",
        "model": {"family": family, **sizes},
        "seed": seed,
        "device": "cpu",
    }
    return api.build(
        {**made, "vocabulary": {"kind": "characters"}, "language": {"block": 8}},
        [Document("the cat saw the dog", 1)],
    )


def test_recurrent_language_models_carry_their_states_together() -> None:
    """A text longer than a block is measured as for one of them: its state goes on from block to block."""
    systems, text = (
        [language(seed, "rnn-decoder") for seed in (0, 1)],
        "the cat saw the dog and the dog saw the cat",
    )
    both = api.ensemble(systems)
    ids = both.task.numbers([Document(text, 1)])[0].tolist()
    with torch.no_grad():
        mean = (
            sum(
                one.model.eval()(torch.tensor([ids[:-1]]))[0].double().softmax(-1)
                for one in systems
            )
            / 2
        )
    by_hand = -sum(math.log(float(mean[at, id])) for at, id in enumerate(ids[1:])) / (len(ids) - 1)
    assert api.evaluate(both, [Document(text, 1)])["loss"] == pytest.approx(by_hand, rel=1e-5)
    alone = api.evaluate(systems[0], [Document(text, 1)])["loss"]
    assert api.evaluate(api.ensemble([systems[0]] * 2), [Document(text, 1)])[
        "loss"
    ] == pytest.approx(alone, rel=1e-6)


def test_language_models_go_on_together() -> None:
    systems = [language(0), language(1)]
    both = api.ensemble(systems)
    ids = both.task.encode_prompt("the cat")
    with torch.no_grad():
        mean = (
            sum(
                one.model.eval()(torch.tensor([ids]))[0, -1].double().softmax(-1) for one in systems
            )
            / 2
        )
    mean[:4] = 0
    assert "".join(api.generate(both, "the cat", 1, {"temperature": 0})) == both.task.text.token(
        int(mean.argmax())
    )
    losses = [api.evaluate(one, [Document("the cat", 1)])["loss"] for one in systems]
    assert api.evaluate(both, [Document("the cat", 1)])["loss"] <= sum(losses) / 2 + 1e-6, (
        "by Jensen"
    )


# --- the mean of parameters


def saved(made: api.System, folder: Path) -> Path:
    RunFolder(folder.parent, api.model_files(made)).save(folder.name, made.model)
    return folder


def test_the_mean_of_models_is_the_mean_of_their_parameters(tmp_path: Path) -> None:
    systems = [system(seed) for seed in range(3)]
    folders = [saved(one, tmp_path / f"m{n}") for n, one in enumerate(systems)]
    made = api.average(folders, tmp_path / "deep" / "mean")
    for name, value in made.model.state_dict().items():
        each = [one.model.state_dict()[name].double() for one in systems]
        torch.testing.assert_close(
            value.double(), (each[0] + each[1] + each[2]) / 3, atol=1e-7, rtol=0
        )
    again = api.load(tmp_path / "deep" / "mean", "cpu")
    assert api.decode(again, ["the cat"]) == api.decode(made, ["the cat"])
    alone = api.average(folders[:1], tmp_path / "one")
    assert all(
        torch.equal(a, b)
        for a, b in zip(alone.model.parameters(), systems[0].model.parameters(), strict=True)
    )


def test_models_that_differ_have_no_mean_and_nothing_is_overwritten(tmp_path: Path) -> None:
    first, wider = saved(system(0), tmp_path / "a"), saved(system(0, dim=10), tmp_path / "b")
    others = saved(system(0, pairs=PAIRS[:2]), tmp_path / "c")
    for other in (wider, others):
        assert told(lambda other=other: api.average([first, other], tmp_path / "mean")) == (
            f"{other} is a different model than {first}; average models of one shape and vocabulary"
        )
    assert (
        told(lambda: api.average([first], wider))
        == f"{wider} already exists, with other content; choose a new folder with out=…"
    )
    assert (
        told(lambda: api.average([], tmp_path / "mean"))
        == "the mean of no models; give at least one model folder"
    )
    assert "no model folder at" in told(
        lambda: api.average([first, tmp_path / "nowhere"], tmp_path / "mean")
    )
    assert not (tmp_path / "mean").exists()
