"""Training by the reward of sampled outputs, beside the likelihood of references. B rows, M samples of each, T tokens."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core import auxiliary_losses
from ..errors import SaccadeError
from ..recipe import Recipe, TrainingRecipe
from ..training.losses import Batch, token_loss

BEYOND = (
    5  # a sample is cut where it is so many tokens longer than the longest reference of its batch
)


def gleu(output: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """The smaller of precision and recall of all sequences of 1 to 4 tokens (Wu et al. 2016); 1 for two equal outputs."""
    found, wanted = (
        Counter(
            tuple(tokens[at : at + n]) for n in range(1, 5) for at in range(len(tokens) - n + 1)
        )
        for tokens in (list(output), list(reference))
    )
    most = max(found.total(), wanted.total())
    return (found & wanted).total() / most if most else 1.0


@torch.no_grad()
def sample(
    model: nn.Module, source: Tensor, lengths: Tensor, bos: int, eos: int, limit: int, count: int
) -> Tensor:
    """`count` outputs of each row, drawn token by token: (B M) T, <eos> behind each that ended and behind nothing else."""
    rows = torch.arange(len(source), device=source.device).repeat_interleave(count)
    state = model.start(source, lengths).reorder(rows)  # type: ignore[operator]
    last = torch.full_like(rows, bos)
    drawn: list[Tensor] = []
    ended = torch.zeros_like(rows, dtype=torch.bool)
    while len(drawn) < limit and not bool(ended.all()):
        logits, state = model.step(last, state)  # type: ignore[operator]
        last = torch.multinomial(logits.float().softmax(-1), 1).squeeze(-1).masked_fill(ended, eos)
        ended = ended | (last == eos)
        drawn.append(last)
    return torch.stack(drawn, 1)


@dataclass(frozen=True)
class Reward:
    """The loss −(α log p(reference) + Σ p(output) gleu(output)), estimated from `samples` outputs per row against their mean reward."""

    bos: int
    eos: int
    samples: int
    likelihood: float  # α
    smoothing: float

    @classmethod
    def of(cls, how: TrainingRecipe, bos: int, eos: int) -> "Reward":
        beside = {name: getattr(how, name) for name in ("agreement", "doubly_stochastic")}
        beside |= {"graphs": how.graphs is True, "parallel": how.parallel == "fsdp"}
        for name, value in beside.items():
            if value:
                wrong = f"training.reward draws outputs, which does not go with training.{name}={getattr(how, name)}"
                raise SaccadeError(f"{wrong}; leave one of them out", code="setting-without-effect")
        return cls(bos, eos, how.reward_samples, how.reward_likelihood, how.smoothing)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        source, lengths, read = batch.inputs
        plain, limit = getattr(model, "module", model), batch.target.shape[1] + BEYOND
        drawn = sample(plain, source, lengths, self.bos, self.eos, limit, self.samples)
        ends = (drawn == self.eos).cumsum(1)
        # what was drawn: all up to the first <eos>
        real = (ends == 0) | ((ends == 1) & (drawn == self.eos))
        rewards = self.rewards(drawn, real, batch).to(source.device)
        # the references and the outputs in one pass
        width = max(drawn.shape[1], read.shape[1])
        before = torch.cat([torch.full_like(drawn[:, :1], self.bos), drawn[:, :-1]], 1)
        first = [widened(one, width, batch.ignore) for one in (read, before)]
        each = torch.arange(len(source), device=source.device)
        times = torch.cat([each, each.repeat_interleave(self.samples)])
        with auxiliary_losses.collect() as left:
            logits = model(source[times], lengths[times], torch.cat(first))
        if left.samples:
            wrong = "training.reward draws outputs, and model.normalize=hard draws positions, which would not learn by it"
            raise SaccadeError(f"{wrong}; leave one of them out", code="setting-without-effect")
        known = logits[: len(source), : read.shape[1]]
        own = logits[len(source) :, : drawn.shape[1]].float()
        log_probs = own.log_softmax(-1).gather(-1, drawn.unsqueeze(-1)).squeeze(-1)
        log_probs = log_probs.masked_fill(~real, 0.0).sum(1).view(-1, self.samples)
        # divided by samples − 1: the mean has the output itself in it, and so the expectation is that of the whole reward
        gained = ((rewards - rewards.mean(1, keepdim=True)) * log_probs).sum() / (self.samples - 1)
        counts = torch.cat([(batch.target != batch.ignore).sum(1), real.sum(1)])
        # as many as references alone would leave
        costs = left.total(counts) * (batch.tokens / int(counts.sum()))
        likely = token_loss(known, batch.target, batch.ignore, self.smoothing) + costs
        loss: Tensor = self.likelihood * likely - gained
        return loss

    def rewards(self, drawn: Tensor, real: Tensor, batch: Batch) -> Tensor:
        """B M"""
        outputs = [
            [token for token in row if token != self.eos]
            for row in drawn.masked_fill(~real, self.eos).tolist()
        ]
        wanted = [
            [t for t in row if t not in (self.eos, batch.ignore)] for row in batch.target.tolist()
        ]
        found = [gleu(output, wanted[n // self.samples]) for n, output in enumerate(outputs)]
        return torch.tensor(found).view(len(wanted), self.samples)


def widened(tokens: Tensor, width: int, pad: int) -> Tensor:
    return nn.functional.pad(tokens, (0, width - tokens.shape[1]), value=pad)


def reward_of(recipe: Recipe, bos: int, eos: int) -> Reward | None:
    """What a recipe asks for besides the likelihood."""
    return None if recipe.training.reward is None else Reward.of(recipe.training, bos, eos)
