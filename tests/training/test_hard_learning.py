"""Hard attention in training: the estimator is exact in the mean over all samples, its baseline is kept, and it learns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from saccade import api
from saccade.config import recipes
from saccade.core import auxiliary_losses, sites
from saccade.core.normalizers import Hard
from saccade.errors import SaccadeError
from saccade.models import CausalLM, Seq2Seq
from saccade.models.builder import Builder
from saccade.training.loop import Watcher
from saccade.training.losses import Batch, batch_loss, token_loss

PLAIN = {"name": "hard", "entropy": 0.0, "soft": 0.0, "warmup": 0, "reward": 1.0}
SMALL = {"dim": 4, "hidden": 4, "dropout": 0.0}
TRANSFORMER = {"dim": 4, "hidden": 4, "depth": 1, "heads": 1, "dropout": 0.0}
PAIRS = Batch(
    (torch.tensor([[3, 1, 4], [2, 5, 0]]), torch.tensor([3, 2]), torch.tensor([[1, 4], [1, 6]])),
    torch.tensor([[4, 2], [6, 0]]),
    0,
    3,
    (1, 2),
)
ONE = Batch(
    (torch.tensor([[3, 1]]), torch.tensor([2]), torch.tensor([[1, 4, 2]])),
    torch.tensor([[4, 2, 5]]),
    0,
    3,
    (1,),
)
SHORT = Batch(
    (torch.tensor([[3, 1]]), torch.tensor([2]), torch.tensor([[1, 4]])),
    torch.tensor([[4, 2]]),
    0,
    2,
    (1,),
)
TEXT = Batch((torch.tensor([[3, 1, 4]]),), torch.tensor([[1, 4, 2]]), 0, 3, (1,))


def built(
    family: str, kind: type[nn.Module] = Seq2Seq, normalize: Any = None, **changed: Any
) -> Any:
    """A small model whose parameters are large enough for every choice to matter, in training and in float64."""
    torch.manual_seed(3)
    sizes = TRANSFORMER if "transformer" in family else SMALL
    vocabularies = (7, 7) if kind is Seq2Seq else (7,)
    made = Builder({"family": family, **sizes, "normalize": normalize or PLAIN, **changed}).make(
        kind, *vocabularies
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.6 * torch.randn_like(parameter))
    return made.double().train()


def hard_parts(model: nn.Module) -> list[Hard]:
    return [part for part in model.modules() if isinstance(part, Hard)]


class Forced:
    """Makes every call take the places that it is told to, and notes which it could take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Tensor] | None = None
        self.free: list[Tensor] = []  # B H Q K of each call: what is visible
        monkeypatch.setattr(Hard, "largest", self)

    def __call__(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        if self.told is not None:
            return self.told.pop(0)
        visible = (
            torch.ones_like(scores, dtype=torch.bool)
            if hidden is None
            else (~hidden).expand(scores.shape)
        )
        self.free.append(visible)
        return visible.int().argmax(-1)

    def everything(self) -> Iterator[list[Tensor]]:
        """All choices of all queries of all calls."""
        cells = [
            [row.nonzero().flatten().tolist() or [0] for row in one.flatten(0, 2)]
            for one in self.free
        ]
        for chosen in itertools.product(*itertools.chain(*cells)):
            left = iter(chosen)
            yield [
                torch.tensor([next(left) for _ in some]).view(one.shape[:3])
                for some, one in zip(cells, self.free, strict=True)
            ]


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


@pytest.mark.parametrize(
    ("family", "batch", "changed", "usual"),
    [
        ("bahdanau", PAIRS, {}, 1.3),
        ("bahdanau", ONE, {"gated_context": True}, 0.0),
        ("bahdanau", ONE, {"gated_context": True}, 1.3),
        ("luong", ONE, {}, 1.3),
        ("luong", ONE, {"input_feeding": True}, 1.3),
        ("luong", ONE, {"window": {"name": "predicted", "reach": 1}}, 1.3),
        ("transformer", SHORT, {"mask": "causal"}, 0.0),
        ("transformer", SHORT, {"mask": "causal"}, 1.3),
        ("transformer-decoder", TEXT, {"heads": 2}, 1.3),
    ],
    ids=lambda one: "" if isinstance(one, Batch) else str(one),
)
def test_the_mean_over_all_choices_is_the_gradient_of_the_expected_loss(
    family: str,
    batch: Batch,
    changed: dict[str, Any],
    usual: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, forced = (
        built(family, CausalLM if len(batch.inputs) == 1 else Seq2Seq, **changed),
        Forced(monkeypatch),
    )
    batch_loss(model, batch)
    expected, mean, total, count = (
        torch.zeros((), dtype=torch.float64),
        [torch.zeros_like(p) for p in model.parameters()],
        0.0,
        0,
    )
    for told in list(forced.everything()):
        forced.told = list(told)
        with auxiliary_losses.collect() as left:
            logits = model(*batch.inputs)
        chance = sum(one.log_prob.sum() for one in left.samples).exp()
        loss = token_loss(logits, batch.target, 0)
        expected, total, count = expected + chance * loss, total + chance.item(), count + 1
        for part in hard_parts(model):  # a baseline from earlier batches
            part.mean_loss.fill_(0.9 * usual)
            part.mean_weight.fill_(0.9)
        forced.told = list(told)
        found = batch_loss(model, batch)
        assert found.item() == pytest.approx(loss.item(), rel=1e-12), (
            "the loss that is shown is that of the outputs"
        )
        for one, more in zip(mean, gradients(found, model), strict=True):
            one += chance.detach() * more
    assert count >= 8
    assert total == pytest.approx(1.0, rel=1e-12)
    wanted = gradients(expected, model)
    through_choices = [
        name for name, _ in model.named_parameters() if "mechanism" in name or ".q." in name
    ]
    assert through_choices or family == "luong"
    for (name, _), one, other in zip(model.named_parameters(), mean, wanted, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}"
        )
        if name in through_choices and not name.endswith("bias"):
            assert other.abs().max() > 1e-6, name


def test_a_choice_is_credited_with_its_own_and_later_outputs_in_a_decoder_and_with_the_whole_row_elsewhere() -> (
    None
):
    losses = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 99.0]], dtype=torch.float64)
    counted = torch.tensor([[True, True, True], [True, True, False]])

    def credit(in_order: bool, firsts: list[int], width: int) -> list[list[float]]:
        part = Hard(reward=1.0, entropy=0.0, soft=0.0, baseline=1.0).double()
        log_probs = [torch.zeros(2, width, dtype=torch.float64, requires_grad=True) for _ in firsts]
        every = torch.ones(2, dtype=torch.bool)
        samples = [
            auxiliary_losses.Sample(part, p, torch.zeros_like(p), every, first, in_order)
            for p, first in zip(log_probs, firsts, strict=True)
        ]
        return torch.cat(
            torch.autograd.grad(part.estimate(samples, losses, counted), log_probs), 1
        ).tolist()

    later = [[7.0, 6.0, 4.0], [24.0, 16.0, 0.0]]
    assert credit(True, [0, 1, 2], 1) == later
    assert credit(True, [0], 3) == later
    assert credit(False, [0], 3) == [[7.0] * 3, [24.0] * 3]
    assert credit(True, [0], 2) == [[7.0] * 2, [24.0] * 2], "not one query per output: all of a row"
    assert credit(False, [0], 1) == [[7.0], [24.0]]


def test_the_baseline_is_a_moving_mean_of_the_loss_per_token_over_earlier_batches() -> None:
    part = Hard(reward=1.0, entropy=0.0, soft=0.0, baseline=0.9).double()
    counted = torch.tensor([[True, True], [True, False]])
    by_hand, weight = 0.0, 0.0
    for step in range(1, 4):
        losses = torch.tensor([[3.0 * step, 1.0], [2.0, 77.0]], dtype=torch.float64)
        log_prob = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
        sample = auxiliary_losses.Sample(
            part, log_prob, torch.zeros_like(log_prob), torch.tensor([True, True]), 0, True
        )
        [gradient] = torch.autograd.grad(part.estimate([sample], losses, counted), [log_prob])
        usual = by_hand / weight if weight else 0.0
        torch.testing.assert_close(gradient[0, 1].item(), 1.0 - usual)
        torch.testing.assert_close(gradient[0, 0].item(), 3.0 * step + 1.0 - 2 * usual)
        assert gradient[1, 1] == 0, "nothing comes after the end of a row"
        by_hand, weight = 0.9 * by_hand + 0.1 * (3.0 * step + 1 + 2) / 3, 0.9 * weight + 0.1
    torch.testing.assert_close((part.mean_loss.item(), part.mean_weight.item()), (by_hand, weight))
    part.follow(losses, torch.zeros(2, 2, dtype=torch.bool))  # nothing was sampled
    torch.testing.assert_close((part.mean_loss.item(), part.mean_weight.item()), (by_hand, weight))


def test_the_entropy_is_taken_off_the_loss_per_token() -> None:
    model, batch = built("bahdanau", normalize={**PLAIN, "entropy": 0.5}), PAIRS
    torch.manual_seed(0)
    with auxiliary_losses.collect() as left:
        logits = model(*batch.inputs)
    entropies = torch.cat([one.entropy for one in left.samples], 1)
    assert entropies.shape == (2, 2)
    torch.manual_seed(0)
    found = batch_loss(model, batch)
    counted = entropies[0, 0] + entropies[0, 1] + entropies[1, 0]  # the second row has one token
    torch.testing.assert_close(found, token_loss(logits, batch.target, 0) - 0.5 * counted)


def test_rows_that_are_read_softly_are_those_of_soft_attention() -> None:
    soft = built("bahdanau", normalize={**PLAIN, "soft": 1.0})
    plain = built("bahdanau", normalize="softmax")
    plain.load_state_dict(
        {name: one for name, one in soft.state_dict().items() if "mean_" not in name}
    )
    found, expected = batch_loss(soft, PAIRS), batch_loss(plain, PAIRS)
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, soft), gradients(expected, plain), strict=True):
        torch.testing.assert_close(one, other)
    assert hard_parts(soft)[0].mean_weight == 0, "the baseline is that of samples"


def test_a_row_is_read_in_one_way_at_every_step_and_in_every_layer() -> None:
    model = built("transformer", normalize={**PLAIN, "soft": 0.5}, depth=2)
    many = Batch(
        tuple(torch.cat([one] * 8) for one in PAIRS.inputs),
        torch.cat([PAIRS.target] * 8),
        0,
        24,
        (),
    )
    with auxiliary_losses.collect() as left:
        model(*many.inputs)
    [*each] = {tuple(one.rows.tolist()) for one in left.samples}
    assert len(each) == 1
    assert 0 < sum(each[0]) < 16


@pytest.mark.parametrize("option", ["reward", "baseline", "entropy", "soft", "discount"])
def test_every_option_changes_the_gradient(option: str) -> None:
    def second(options: dict[str, float]) -> list[Tensor]:
        model = built("bahdanau", normalize={**PLAIN, "soft": 0.5, "entropy": 0.01, **options})
        torch.manual_seed(1)
        for _ in range(4):  # a baseline of one batch is that batch, whatever its share
            batch_loss(model, PAIRS)
        return gradients(batch_loss(model, PAIRS), model)

    assert all(map(torch.equal, second({}), second({})))
    assert not all(map(torch.equal, second({}), second({option: 0.25})))
    assert f"{option}=0.25" in repr(built("bahdanau", normalize={"name": "hard", option: 0.25}))


def test_all_rows_read_softly_at_first_and_fewer_until_the_warm_up_is_over() -> None:
    part, generator = Hard(soft=0.2, warmup=4), torch.Generator()
    assert part.share.item() == pytest.approx(0.2), "in a loop that counts no updates"
    shares = []
    for number in range(1, 7):
        part.before_update(number, generator)
        shares.append(round(part.share.item(), 6))
    assert shares == [1.0, 0.8, 0.6, 0.4, 0.2, 0.2]
    at_once = Hard(soft=0.2, warmup=0)
    at_once.before_update(1, generator)
    assert at_once.share.item() == pytest.approx(0.2)
    assert "share" not in part.state_dict()


def test_a_later_loss_may_be_discounted() -> None:
    part = Hard(reward=1.0, entropy=0.0, soft=0.0, baseline=1.0, discount=0.5).double()
    log_prob = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    sample = auxiliary_losses.Sample(
        part, log_prob, torch.zeros_like(log_prob), torch.tensor([True]), 0, True
    )
    losses = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    [gradient] = torch.autograd.grad(part.estimate([sample], losses, losses > 0), [log_prob])
    assert gradient.tolist() == [[1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4.0]]


def test_reading_each_row_twice_and_smoothing_go_with_it() -> None:
    model = built("luong", normalize={"name": "hard"})
    found = batch_loss(model, PAIRS, smoothing=0.1, agreement=1.0)
    assert all(torch.isfinite(one).all() for one in gradients(found, model))


def test_bfloat16_by_autocast_gives_finite_gradients_and_moves_the_baseline() -> None:
    model = built("bahdanau", normalize={"name": "hard", "soft": 0.0}).float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = batch_loss(model, PAIRS)
    assert loss.dtype == torch.float32
    assert all(torch.isfinite(one).all() for one in gradients(loss, model))
    assert hard_parts(model)[0].mean_weight == pytest.approx(0.1)


# --- in a run ---


def recipe(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    words = "a b c d e f g h".split()  # noqa: SIM905
    lines = [" ".join(words[(n * 3 + at) % 8] for at in range(2 + n % 4)) for n in range(40)]
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{one}\t{one}\n" for one in lines), encoding="utf-8"
    )
    model = {
        "family": "bahdanau",
        "dim": 8,
        "hidden": 8,
        "normalize": {"name": "hard", "soft": 0.0, "warmup": 0},
    }
    training = {
        "updates": 4,
        "tokens": 60,
        "evaluate_every": 4,
        "checkpoint_every": 2,
        "log_every": 1,
        "warmup": 1,
        "threads": 1,
    }
    values = {
        "data": {"train": str(tmp_path / "pairs.tsv"), "dev": str(tmp_path / "pairs.tsv")},
        "vocabulary": {"kind": "words"},
    }
    return {
        **values,
        "device": "cpu",
        "model": {**model, **changed.pop("model", {})},
        "training": {**training, **changed},
    }


def last(path: Path) -> dict[str, Tensor]:
    return load_file(path / "last" / "model.safetensors")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_run_is_the_run_that_was_not_interrupted_baseline_and_all(
    tmp_path: Path, accumulate: int
) -> None:
    values = recipe(tmp_path, accumulate=accumulate)
    api.fit(values, tmp_path / "whole", watcher=Watcher())
    cut = {**values, "training": {**values["training"], "updates": 2}}
    api.fit(cut, tmp_path / "parts", watcher=Watcher())
    api.fit(values, tmp_path / "parts", resume=True, watcher=Watcher())
    whole, parts = last(tmp_path / "whole"), last(tmp_path / "parts")
    weight = whole["decoder.cross.mechanism.normalize.mean_weight"].item()
    assert weight == pytest.approx(1 - 0.9 ** (4 * accumulate), rel=1e-5), (
        "measuring before the run has left no trace"
    )
    assert whole.keys() == parts.keys()
    changed = [name for name in whole if not torch.equal(whole[name], parts[name])]
    # the default schedule does not depend on the number of updates
    if values["training"].get("schedule") is None:
        assert changed == []


def test_a_loaded_model_answers_the_same_twice_and_a_reward_of_outputs_is_refused(
    tmp_path: Path,
) -> None:
    best, _ = api.fit(recipe(tmp_path), tmp_path / "run", watcher=Watcher())
    pairs = best.read(str(tmp_path / "pairs.tsv"))
    assert best.evaluate(pairs) == api.load(tmp_path / "run" / "best").evaluate(pairs)
    with pytest.raises(
        SaccadeError,
        match=r"model.normalize=hard draws positions, which would not learn by it; leave one of them out",
    ):
        api.fit(
            recipe(tmp_path, reward="gleu", reward_samples=2), tmp_path / "gleu", watcher=Watcher()
        )


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_it_may_start_from_a_model_with_soft_attention_head_and_all(
    tmp_path: Path, family: str
) -> None:
    sizes = {
        "family": family,
        "dim": 8,
        "hidden": 8,
        **({"heads": 2, "depth": 1} if family == "transformer" else {}),
    }
    first = recipe(tmp_path)
    del first["vocabulary"]
    api.fit({**first, "model": sizes}, tmp_path / "soft", watcher=Watcher())
    begun = {
        **first,
        "start_from": str(tmp_path / "soft" / "best"),
        "model": {**sizes, "normalize": "hard"},
    }
    begun["training"] = {**first["training"], "learning_rate": 0.0, "updates": 1}
    api.fit(begun, tmp_path / "hard", watcher=Watcher())
    soft, hard = (
        load_file(tmp_path / name / "best" / "model.safetensors") for name in ("soft", "hard")
    )
    assert (
        {name for name in hard if name not in soft}
        == {name for name in hard if "normalize.mean_" in name}
        != set()
    )
    assert all(torch.equal(hard[name], soft[name]) for name in soft)


@pytest.mark.parametrize("task", ["classification", "tagging", "language-modelling"])
def test_one_word_in_a_recipe_makes_any_task_learn_by_it(task: str) -> None:
    from saccade.data.conllu import Sentence
    from saccade.data.documents import Document
    from saccade.data.labeled import Labeled

    texts = [f"the {word} cats saw a dog {word}" for word in "one two six ten red".split()]  # noqa: SIM905
    data: dict[str, list[Any]] = {
        "classification": [Labeled(one, str(n % 2), n) for n, one in enumerate(texts)],
        "tagging": [
            Sentence(tuple(one.split()), tuple("AB"[len(w) % 2] for w in one.split()), n)
            for n, one in enumerate(texts)
        ],
        "language-modelling": [Document(f"{one}.\n", n) for n, one in enumerate(texts)],
    }
    family = "transformer-decoder" if task == "language-modelling" else "transformer-encoder"
    model = {"family": family, "dim": 8, "hidden": 8, "depth": 1, "heads": 2, "normalize": "hard"}
    values: dict[str, Any] = {
        "task": task,
        "device": "cpu",
        "model": model,
        "vocabulary": {"size": 270},
    }
    if task == "language-modelling":
        values["language"] = {"block": 8}
    made = recipes.recipe({**values, "data": {"train": "x", "dev": "x"}})
    system = api.build(made, data[task])
    work = system.task.work(made, data[task], data[task], system.device)
    work.loss(system.model.train(), work.batch(work.epoch(0)[0])).backward()
    for name, site in sites(system.model).items():
        normalize = site.mechanism.normalize
        if isinstance(normalize, Hard):
            assert normalize.mean_weight > 0, name
    asks = {name: one.grad for name, one in system.model.named_parameters() if ".q.weight" in name}
    assert asks
    assert all(one is not None and one.any() for one in asks.values())


# looks anywhere, and never learns where
BLIND = {"name": "hard", "reward": 0.0, "entropy": 0.0, "soft": 0.0, "warmup": 0}


@pytest.mark.slow
# dynamo makes one of torch itself when it meets an autograd.Function
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_leaves_its_samples_too() -> None:
    model = built("transformer", normalize={**PLAIN, "soft": 1e-6})
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    torch.manual_seed(0)
    found, weight = batch_loss(compiled, PAIRS), hard_parts(model)[0].mean_weight.item()  # type: ignore[arg-type]
    assert weight == pytest.approx(0.1)
    assert all(torch.isfinite(one).all() for one in gradients(found, model))
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_decoder_with_hard_attention_learns_to_copy(tmp_path: Path, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    words = [f"w{n}" for n in range(12)]
    lines = [
        " ".join(
            words[int(n)]
            for n in torch.randint(
                0, 12, (int(torch.randint(4, 9, (1,), generator=generator)),), generator=generator
            )
        )
        for _ in range(2000)
    ]
    (tmp_path / "copy.tsv").write_text(
        "".join(f"{one}\t{one}\n" for one in lines), encoding="utf-8"
    )
    model = {"family": "bahdanau", "dim": 32, "hidden": 32, "normalize": "hard"}
    training = {
        "updates": 600,
        "tokens": 800,
        "learning_rate": 0.006,
        "warmup": 50,
        "smoothing": 0.0,
        "evaluate_every": 600,
    }
    values = {
        "data": {"train": str(tmp_path / "copy.tsv")},
        "vocabulary": {"kind": "words"},
        "device": "cpu",
        "seed": seed,
    }
    losses = {}
    for name, normalize in (("hard", {"name": "hard"}), ("blind", BLIND)):
        made = {**values, "model": {**model, "normalize": normalize}, "training": training}
        api.fit(made, tmp_path / name, watcher=Watcher())
        rows = [
            json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()
        ]
        losses[name] = next(row["dev_loss"] for row in rows if "dev_loss" in row)
    assert losses["hard"] < 0.5 * losses["blind"], losses
