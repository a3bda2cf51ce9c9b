"""Choices that a forward pass samples: the gradient is that of the expected loss, by enumeration of all choices."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from saccade.core.auxiliary_losses import Sample, add_sample
from saccade.core.normalizers import Hard
from saccade.training.losses import Batch, batch_loss, token_loss


class Choosing(nn.Module):
    """Each row takes one of three vectors, as it is made to, and leaves the log-probability of its choice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scores = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))  # of each row's input
        self.vectors = nn.Parameter(torch.randn(3, 5, dtype=torch.float64))
        self.choice = torch.zeros(2, dtype=torch.long)
        self.estimator = Hard(reward=1.0, baseline=1.0, entropy=0.0).double()

    def chances(self, inputs: Tensor) -> Tensor:
        return self.scores[inputs].log_softmax(-1)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = torch.arange(len(inputs))
        logits = self.vectors[self.choice].unsqueeze(1).expand(-1, 2, -1)  # B N V
        chosen = self.chances(inputs)[rows, self.choice].unsqueeze(1)
        return add_sample(
            logits,
            Sample(self.estimator, chosen, torch.zeros_like(chosen), torch.ones(len(rows)).bool()),
        )


def test_the_mean_over_all_choices_is_the_gradient_of_the_expected_loss() -> None:
    model, inputs, target = Choosing(), torch.tensor([1, 3]), torch.tensor([[0, 4], [2, 9]])
    batch = Batch((inputs,), target, 9, 3, (1, 2))
    expected, mean = torch.zeros((), dtype=torch.float64), torch.zeros_like(model.scores)
    for choice in itertools.product(range(3), repeat=2):
        model.choice = torch.tensor(choice)
        chance = model.chances(inputs)[torch.arange(2), model.choice].sum().exp()
        expected = expected + chance * token_loss(model(inputs), target, 9).double()
        [gradient] = torch.autograd.grad(batch_loss(model, batch), [model.scores])
        mean += chance.detach() * gradient
    [wanted] = torch.autograd.grad(expected, [model.scores])
    assert float(wanted.abs().max()) > 0.01
    torch.testing.assert_close(mean, wanted, rtol=1e-10, atol=1e-12)


def test_a_row_alone_is_weighed_by_its_loss_and_nobody_collects_nothing() -> None:
    model = Choosing()
    model.choice = torch.tensor([1])
    inputs, target = torch.tensor([2]), torch.tensor([[0, 4]])
    loss = batch_loss(model, Batch((inputs,), target, 9, 2, (1,)))
    plain = token_loss(model(inputs), target, 9)
    log_prob = model.chances(inputs)[0, 1]
    torch.testing.assert_close(loss, plain)
    [found] = torch.autograd.grad(loss, [model.scores])
    [expected] = torch.autograd.grad(plain.detach() * log_prob, [model.scores])
    torch.testing.assert_close(found, expected)
    assert torch.equal(model(inputs), model.vectors[1].expand(1, 2, -1))
