"""Training by reward: GLEU by hand, the expected gradient by enumeration of all outputs, and a run that starts from another."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from tests.support import raises
from torch import Tensor, nn

from saccade import api
from saccade.config import recipes
from saccade.core import State
from saccade.tasks import rewards
from saccade.tasks.rewards import Reward, gleu
from saccade.training.losses import Batch
from support import tiny_recipe

PAD, BOS, EOS = 0, 1, 2


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ("a b c d", "a b c d", 1.0),
        ("", "", 1.0),
        ("", "a", 0.0),
        ("x y", "a b", 0.0),
        ("a b c", "a b d", 3 / 6),  # a, b, a b of 3 + 2 + 1
        ("a", "a b", 1 / 3),  # recall: 1 of a, b, a b
        ("a b", "a", 1 / 3),  # precision
        ("a a a", "a", 1 / 6),  # the second and third a match nothing
        ("a b c d e", "a b c d e f", 14 / 18),  # 5 + 4 + 3 + 2 of 6 + 5 + 4 + 3
    ],
)
def test_gleu_by_hand(output: str, reference: str, expected: float) -> None:
    assert gleu(output.split(), reference.split()) == pytest.approx(expected)


class Bigrams(nn.Module):
    """Each token depends on the one before it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 5).double())

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        return self.table[target]

    def start(self, source: Tensor, lengths: Tensor) -> State:
        return State(length=0)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.table[tokens], state


def test_the_expected_gradient_is_that_of_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a tiny vocabulary every output can be listed: the mean of many estimates is the gradient of the expected reward."""
    monkeypatch.setattr(rewards, "BEYOND", 0)
    torch.manual_seed(0)
    model, reference = Bigrams(), [3, 4]
    target = torch.tensor([[*reference, EOS]])
    batch = Batch(
        (torch.tensor([[3, 4]]), torch.tensor([2]), torch.tensor([[BOS, *reference]])),
        target,
        PAD,
        3,
        [1],
    )

    expected = torch.tensor(0.0).double()
    for tokens in itertools.product(range(5), repeat=3):  # cut after three, as samples are
        ended = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        if tokens[len(ended) :] != (PAD,) * (3 - len(ended)):  # each output once
            continue
        steps = zip((BOS, *ended), ended, strict=False)
        p = torch.stack([model.table[a].log_softmax(-1)[b] for a, b in steps]).sum().exp()
        expected = expected + p * gleu([t for t in ended if t != EOS], reference)
    (wanted,) = torch.autograd.grad(-expected, model.table)

    reward = Reward(BOS, EOS, samples=4, likelihood=0.0, smoothing=0.0)
    many = Batch(
        tuple(one.expand(1500, *one.shape[1:]) for one in batch.inputs),
        target.expand(1500, -1),
        PAD,
        4500,
        [1],
    )
    estimates = torch.stack(
        [torch.autograd.grad(reward(model, many) / 1500, model.table)[0] for _ in range(8)]
    )
    error = estimates.std(0) / 8**0.5
    assert ((estimates.mean(0) - wanted).abs() <= 5 * error + 1e-9).all()
    assert (wanted.abs() > 10 * error).any(), (
        "the estimate is far more exact than what it estimates is large"
    )


def test_likelihood_alone_is_the_token_loss() -> None:
    model, target = Bigrams(), torch.tensor([[3, 4, EOS], [4, EOS, PAD]])
    read = torch.tensor([[BOS, 3, 4], [BOS, 4, EOS]])
    batch = Batch((target, torch.tensor([3, 2]), read), target, PAD, 5, [1, 2])
    torch.manual_seed(1)
    mixed = Reward(BOS, EOS, 2, 1.5, 0.0)(model, batch)
    torch.manual_seed(1)
    alone = Reward(BOS, EOS, 2, 0.0, 0.0)(model, batch)
    losses = nn.functional.cross_entropy(
        model.table[read].flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(mixed - alone, 1.5 * losses.float(), check_dtype=False)


def test_a_run_continues_another_by_reward(tmp_path: Path) -> None:
    first = {"family": "gnmt", "dim": 16, "hidden": 16, "depth": 2, "dropout": 0.0}
    api.fit(tiny_recipe(model=first, training={"updates": 3}), tmp_path / "first")
    how = {"updates": 3, "reward": "gleu", "reward_samples": 4, "learning_rate": 1e-3, "warmup": 0}
    recipe = tiny_recipe(model=first, training=how, start_from=str(tmp_path / "first"))
    recipe.pop("vocabulary", None)
    taken = api.build(recipe)
    api.fit(recipe, tmp_path / "second")
    one, two = api.load(tmp_path / "first"), api.load(tmp_path / "second")
    kept = two.recipe.training
    assert (kept.reward, kept.reward_samples, kept.reward_likelihood) == ("gleu", 4, 0.017)
    for name, parameter in one.model.named_parameters():
        assert torch.equal(taken.model.get_parameter(name), parameter), (
            "head and all, since both are of one kind"
        )
    for words in ("source", "target"):
        assert getattr(two.task, words).to_json() == getattr(one.task, words).to_json()
    plain = {name: value for name, value in how.items() if not name.startswith("reward")}
    other, _ = api.fit({**recipe, "training": plain}, tmp_path / "plain")
    again, _ = api.fit(recipe, tmp_path / "again")
    ends = [dict(made.model.named_parameters()) for made in (two, again, other)]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
    assert not all(torch.equal(value, ends[2][name]) for name, value in ends[0].items()), (
        "it is the reward that is learned"
    )


def test_what_does_not_go_together_is_refused() -> None:
    for name, value in (("graphs", True), ("agreement", 0.5), ("parallel", "fsdp")):
        made = recipes.recipe(
            {"model": {"family": "gnmt"}, "training": {"reward": "gleu", name: value}}
        )
        with raises(
            "setting-without-effect",
            match=f"does not go with training.{name}={value}; leave one of them out",
        ):
            Reward.of(made.training, BOS, EOS)
    with raises("no-effect", match="reward_samples"):
        recipes.recipe({"model": {"family": "gnmt"}, "training": {"reward_samples": 4}})
