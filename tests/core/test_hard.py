"""Hard attention: one place per query, sampled in training and the best in use; what it leaves for the loss, and who may run it."""

from __future__ import annotations

import math

import pytest
import torch
from core_helpers import tensors
from torch import Tensor

from saccade.core import (
    Mechanism,
    attend,
    auxiliary_losses,
    backends,
    masks,
    positions,
    record,
    scores,
    weights,
    which_backend,
)
from saccade.core.attention import build_call
from saccade.core.normalizers import Hard, Softmax
from saccade.errors import SaccadeError
from saccade.layers.multihead_attention import MultiHeadAttention

ALLOWED = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]).bool().view(1, 1, 3, 5)


def left_by(
    part: Hard, given: Tensor, allowed: Tensor | None = None
) -> tuple[Tensor, auxiliary_losses.Sample]:
    with auxiliary_losses.collect() as left:
        found = part(given, allowed)
    [sample] = left.samples
    return found, sample


def test_samples_come_from_the_softmax_and_never_from_what_is_hidden() -> None:
    row = torch.tensor([0.3, -1.0, 2.0, 1.1, -0.4], dtype=torch.float64)
    part, many = Hard(), row.expand(20_000, 1, 3, 5)
    found = part(many, ALLOWED)
    assert ((found == 0) | (found == 1)).all()
    assert (found[:, 0, 1] == 0).all(), "a query that may look nowhere"
    assert (found[:, 0, 0].sum(-1) == 1).all()
    assert (found[:, 0, 2, 2] == 1).all()
    expected = Softmax()(row.expand(1, 1, 3, 5), ALLOWED)[0, 0, 0]
    torch.testing.assert_close(found[:, 0, 0].mean(0), expected, rtol=0, atol=0.015)
    assert (found[:, 0, 0][:, ~ALLOWED[0, 0, 0]] == 0).all()


def test_samples_follow_torchs_seed_and_use_draws_nothing() -> None:
    part, given = Hard(), torch.randn(4, 2, 6, 9)
    torch.manual_seed(5)
    first = part(given)
    torch.manual_seed(5)
    assert torch.equal(part(given), first)
    assert not torch.equal(part(given), first)
    before = torch.get_rng_state()
    used = part.eval()(given)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(used.argmax(-1), given.argmax(-1))
    assert torch.equal(used.sum(-1), torch.ones(4, 2, 6))


def test_expected_reads_the_softmax_in_use_and_samples_in_training() -> None:
    given = torch.randn(3, 2, 3, 5)
    part = Hard(soft=0.0, warmup=0, expected=True)
    found = part(given, ALLOWED)
    assert ((found == 0) | (found == 1)).all()
    torch.testing.assert_close(part.eval()(given, ALLOWED), Softmax()(given, ALLOWED))
    plain = Hard().eval()(given, ALLOWED)
    assert ((plain == 0) | (plain == 1)).all()


def test_log_probabilities_and_entropies_are_left_for_each_query_and_nothing_where_there_is_no_place() -> (
    None
):
    given = torch.randn(2, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    part = Hard(soft=0.0)
    found, sample = left_by(part, given, ALLOWED)
    for b in range(2):
        for query in range(3):
            log_prob = entropy = 0.0
            for head in range(2):
                places = ALLOWED[0, 0, query].nonzero().flatten().tolist()
                row = [given[b, head, query, j].item() for j in places]
                chances = [math.exp(s) / sum(map(math.exp, row)) for s in row]
                taken = [
                    c for j, c in zip(places, chances, strict=True) if found[b, head, query, j] == 1
                ]
                assert len(taken) == (query != 1)
                log_prob += sum(map(math.log, taken))
                entropy -= sum(c * math.log(c) for c in chances)
            assert sample.log_prob[b, query].item() == pytest.approx(log_prob, abs=1e-12)
            assert sample.entropy[b, query].item() == pytest.approx(entropy, abs=1e-12)
    [gradient] = torch.autograd.grad(
        sample.log_prob.sum() + sample.entropy.sum(), [given], retain_graph=True
    )
    assert torch.isfinite(gradient).all()
    assert (gradient[:, :, 1] == 0).all()
    assert (gradient.masked_select(~ALLOWED.expand_as(gradient)) == 0).all()
    assert sample.rows.all()


def test_nothing_is_left_in_use_or_when_no_loss_is_computed() -> None:
    given = torch.randn(2, 1, 3, 5, requires_grad=True)
    with auxiliary_losses.collect() as left:
        Hard().eval()(given)
    assert left.samples == []
    assert not Hard()(given).requires_grad
    with torch.no_grad():
        _, sample = left_by(Hard(), given)
    assert not sample.log_prob.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_sample_and_leave_float32(dtype: torch.dtype) -> None:
    given = (30_000 * torch.randn(2, 1, 3, 700).sign()).to(dtype).requires_grad_()
    found, sample = left_by(Hard(soft=0.0), given)
    assert found.dtype == dtype
    assert torch.equal(found.float().sum(-1), torch.ones(2, 1, 3))
    assert (found * given > 0).sum() == 6, "of scores this far apart, none but the largest"
    assert sample.log_prob.dtype == torch.float32
    [gradient] = torch.autograd.grad(sample.log_prob.sum(), [given])
    assert torch.isfinite(gradient).all()


def test_a_record_shows_the_places_that_were_sampled_and_changes_nothing() -> None:
    layer = MultiHeadAttention(8, 2, mechanism=Mechanism(normalize=Hard())).train()
    x = torch.randn(3, 6, 8)
    torch.manual_seed(2)
    plain, after = layer(x, mask=masks.causal()), torch.rand(1)
    torch.manual_seed(2)
    with record(layer) as seen:
        found = layer(x, mask=masks.causal())
    shown, again = seen["attention"].weights(), seen["attention"].weights(rows=[1, 4], heads=[1])
    assert torch.equal(torch.rand(1), after), "nothing more is drawn to look"
    assert torch.equal(found, plain)
    assert torch.equal(again, shown[:, 1:, [1, 4]])
    values = layer.split(layer.v(x), 2)
    torch.testing.assert_close(layer.out((shown @ values).transpose(1, 2).flatten(2)), found)
    assert (shown.triu(1) == 0).all()
    layer.eval()
    with record(layer) as seen:
        found = layer(x)
    torch.testing.assert_close(
        layer.out((seen["attention"].weights() @ values).transpose(1, 2).flatten(2)), found
    )


def test_dropout_falls_on_the_chosen_place() -> None:
    q, k, v = tensors(queries=200)
    found = attend(q, k, v, Mechanism(normalize=Hard().eval()), dropout=0.5)
    exact = attend(q, k, v, Mechanism(normalize=Hard().eval()))
    dropped = (found == 0).all(-1)
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(found[~dropped], 2 * exact[~dropped])


# --- backends ---


def test_only_eager_runs_it_in_training_and_a_place_is_gathered_in_use() -> None:
    q, k, v = tensors()
    made = Mechanism(normalize=Hard())
    for name in ("sdpa", "flex", "linear", "gather"):
        with pytest.raises(SaccadeError, match=f"backend '{name}' refuses"):
            attend(q, k, v, made, backend=name)
    assert which_backend(q, k, made).chosen == "eager"
    assert which_backend(q, k, made.eval()).chosen == "gather"
    assert which_backend(q, k, made.train()).chosen == "eager", (
        "what was chosen for use does not hold in training"
    )
    for name in ("sdpa", "flex", "linear"):
        with pytest.raises(SaccadeError, match=f"backend '{name}' refuses"):
            attend(q, k, v, made.eval(), backend=name)


REFUSALS = [
    (Mechanism(), 0.0, "the normalizer is not hard"),
    (Mechanism(normalize=Hard()), 0.0, "in training, what is sampled is learned by its weights"),
    (
        Mechanism(normalize=Hard(), position=positions.Shaw(4)).eval(),
        0.0,
        "the position adds to the values",
    ),
    (Mechanism(normalize=Hard()).eval(), 0.1, "dropout falls on weights"),
]


@pytest.mark.parametrize(("made", "dropout", "reason"), REFUSALS, ids=[one[2] for one in REFUSALS])
def test_gathering_refuses_what_needs_weights(made: Mechanism, dropout: float, reason: str) -> None:
    reasons = backends.table["gather"].refuses(build_call(*tensors(), made, None, None, dropout))
    assert reasons is not None
    assert reason in reasons
    assert attend(*tensors(), made, dropout=dropout).shape == (2, 2, 6, 4)


def test_a_normalizer_of_ones_own_is_not_gathered() -> None:
    class Second(Hard):
        """The second best place."""

        def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            place = scores.topk(2, -1).indices[..., 1:]
            return torch.zeros_like(scores).scatter_(-1, place, 1.0)

    q, k, v = tensors()
    made = Mechanism(normalize=Second()).eval()
    torch.testing.assert_close(attend(q, k, v, made), weights(q, k, made) @ v)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_gathered_places_are_eager_with_shared_heads_masks_and_gradients_of_values(
    kv_heads: int,
) -> None:
    q, k, v = tensors(queries=3, heads=4, kv_heads=kv_heads, requires_grad=True)
    mask = masks.matrix(torch.tensor([[1, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1]]))
    for score in (scores.ScaledDot(), scores.Additive(4, 4, heads=4)):
        made = Mechanism(score, Hard()).eval()
        found, expected = (
            attend(q, k, v, made, mask, backend=name) for name in ("gather", "eager")
        )
        assert torch.equal(found, expected)
        assert (found[:, :, 1] == 0).all()
        for one, other in zip(
            *(torch.autograd.grad(x.square().sum(), [v]) for x in (found, expected)), strict=True
        ):
            torch.testing.assert_close(one, other)
