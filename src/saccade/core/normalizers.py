"""Normalizers turn a row of scores into a row of weights.

`allowed` is True where a query may attend; None means everywhere. Every normalizer computes in float32 or wider. Hidden positions get
zero. A fully masked row gets zeros and finite gradients.

>>> import torch
>>> from saccade import normalizers
>>> normalizers.Sparsemax()(torch.tensor([2.0, 1.5, -1.0]))
tensor([0.7500, 0.2500, 0.0000])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor, nn

from ..registry import Table
from ..settings import Range
from . import auxiliary_losses

if TYPE_CHECKING:
    from .positions import Position
    from .scores import Score

table: Table[type[Normalizer]] = Table("normalizers", "normalizer", facts=("heads",))


class Normalizer(nn.Module):
    """Base class: handles float32, hidden positions and empty rows. A subclass overrides `rows` and may have parameters."""

    sums_to_one = True
    # The weights are sampled in training, so they have no gradient.
    samples = False

    def forward(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
        if allowed is None:
            return self.rows(wide, None).to(scores.dtype)
        hidden = ~allowed
        return self.rows(wide, hidden).masked_fill(hidden, 0.0).to(scores.dtype)

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        """The weights. The caller zeroes hidden positions; all weights must be finite, even in a fully masked row."""
        raise NotImplementedError

    def mismatch(self, score: Score, position: Position) -> str | None:
        """The reason why this normalizer does not fit a score and a position, or None."""
        wrong = "this score is known up to one factor per row, which the normalizer `sum` alone takes out; use normalize=sum"
        return wrong if score.needs_sum else None


def count_visible(scores: Tensor, hidden: Tensor | None) -> Tensor:
    """The number of visible keys per row, at least 1."""
    if hidden is None:
        return scores.new_full((), scores.shape[-1])
    return (
        (~hidden)
        .expand(*hidden.shape[:-1], scores.shape[-1])
        .sum(-1, keepdim=True)
        .clamp_min(1)
        .to(scores.dtype)
    )


@table.add("softmax", paper="Bahdanau et al. 2015")
class Softmax(Normalizer):
    """exp(s_j) / Σ exp(s)"""

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        return softmax_rows(scores, hidden)


def softmax_rows(scores: Tensor, hidden: Tensor | None) -> Tensor:
    # The lowest finite number instead of −∞: exp is zero too, and a fully masked row has no NaN gradient.
    seen = scores if hidden is None else scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return seen.softmax(-1)


class Pointwise(Normalizer):
    """A normalizer that looks at one score at a time; rows need not sum to one. `by_count` tames long rows."""

    sums_to_one = False

    def __init__(self, by_count: bool = False) -> None:
        super().__init__()
        self.by_count = by_count

    def extra_repr(self) -> str:
        return f"by_count={self.by_count}"


@table.add("relu", paper="Wortsman et al. 2023")
class Relu(Pointwise):
    """max(s_j, 0); with `by_count` divided by the number of keys."""

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        weights = scores.relu()
        return weights / count_visible(scores, hidden) if self.by_count else weights


@table.add("relu-sum")
class ReluSum(Normalizer):
    """r_j / max(1, Σ r), r = max(s_j + b, 0); b is learned and 1 at first, so that scores near 0 do not begin as zeros, from which none learns."""

    sums_to_one = False

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.ones(()))

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        weights = (scores + self.offset).relu()
        weights = weights if hidden is None else weights.masked_fill(hidden, 0.0)
        return weights / weights.sum(-1, keepdim=True).clamp_min(1.0)


@table.add("sigmoid", paper="Ramapuram et al. 2024")
class Sigmoid(Pointwise):
    """1 / (1 + exp(−s_j)); with `by_count` shifted by −log n."""

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        if self.by_count:
            return (scores - count_visible(scores, hidden).log()).sigmoid()
        return scores.sigmoid()


@table.add("sum", paper="Katharopoulos et al. 2020")
class Sum(Normalizer):
    """s_j / Σ s, for kernel scores, which are never negative."""

    def mismatch(self, score: Score, position: Position) -> str | None:
        way_out = "use a kernel score such as elu-kernel and a position that adds no bias, or the normalizer softmax"
        wrong = (
            f"the normalizer `sum` divides by the sum of scores that are never negative; {way_out}"
        )
        return None if score.kernel and not position.biases else wrong

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        kept = scores if hidden is None else scores.masked_fill(hidden, 0.0)
        return kept / kept.sum(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)


class Entmax(Normalizer):
    """argmax_p p·s + H_α(p): sparse weights [max(0, (α−1)s_j − τ)]^(1/(α−1)), with τ such that a row sums to one.

    Sorting finds τ. Its derivatives, of any order, are those of the formula of τ over the support. A NaN or ∞ in a row makes the row NaN.
    """

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        # Shift the largest score to 0 to keep float32 precision. Hidden positions stay below every support.
        known, floor = scores.detach(), torch.finfo(scores.dtype).min
        shifted = scores - (known if hidden is None else known.masked_fill(hidden, floor)).amax(
            -1, keepdim=True
        )
        return self.project(shifted if hidden is None else shifted.masked_fill(hidden, -1e4))

    def project(self, scores: Tensor) -> Tensor:
        """The weights of rows whose largest score is 0."""
        raise NotImplementedError


def sort_descending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The detached rows in descending order, and the ranks 1, 2, 3 …"""
    rank = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    return scores.detach().sort(-1, descending=True).values, rank


def last_threshold(thresholds: Tensor, inside: Tensor) -> Tensor:
    """The threshold at the end of the support. A row of NaN has no support and takes the first."""
    return thresholds.gather(-1, inside.sum(-1, keepdim=True).sub(1).clamp_min(0))


@table.add("sparsemax", paper="Martins & Astudillo 2016")
class Sparsemax(Entmax):
    """The Euclidean projection of the scores onto the simplex: max(0, s_j − τ), Σ = 1."""

    def project(self, scores: Tensor) -> Tensor:
        values, rank = sort_descending(scores)
        thresholds = (values.cumsum(-1) - 1) / rank
        above = (scores - last_threshold(thresholds, values > thresholds)).relu()
        support = above > 0
        # 0, but for its gradient
        moved = (above.sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
        return above - torch.where(support, moved - moved.detach(), 0.0)


@table.add("entmax-1.5", paper="Peters et al. 2019")
class Entmax15(Entmax):
    """Between softmax and sparsemax: max(0, s_j/2 − τ)², Σ = 1."""

    def project(self, scores: Tensor) -> Tensor:
        values, rank = sort_descending(scores / 2)
        mean = values.cumsum(-1) / rank
        spread = values.square().cumsum(-1) - rank * mean.square()
        thresholds = mean - ((1 - spread) / rank).clamp_min(0).sqrt()
        root = (scores / 2 - last_threshold(thresholds, values >= thresholds)).relu()
        support, squares = root > 0, root.square()
        size, mean = support.sum(-1, keepdim=True), root.sum(-1, keepdim=True)
        mean = mean / size
        # 0, but for its gradient
        moved = mean - ((1 - squares.sum(-1, keepdim=True)) / size + mean.square()).sqrt()
        moved = moved - moved.detach()
        return squares - 2 * moved * root + torch.where(support, moved.square(), 0.0)


def gumbel_noise(like: Tensor) -> Tensor:
    """Gumbel noise: argmax_j(s_j + noise_j) samples from softmax(s). No device synchronization."""
    drawn = torch.empty_like(like, memory_format=torch.contiguous_format).exponential_()
    return -drawn.clamp_min_(torch.finfo(like.dtype).tiny).log_()


@table.add("hard", paper="Xu et al. 2015")
class Hard(Normalizer):
    """1 at one position and 0 elsewhere: in training sampled from softmax(s) and learned by REINFORCE, outside of it argmax(s)."""

    samples = True
    mean_loss: Tensor
    mean_weight: Tensor
    share: Tensor

    def __init__(
        self,
        reward: Annotated[float, Range(0.0, 1000.0)] = 0.1,
        baseline: Annotated[float, Range(0.0, 1.0)] = 0.9,
        entropy: Annotated[float, Range(0.0, 1000.0)] = 0.01,
        soft: Annotated[float, Range(0.0, 1.0)] = 0.5,
        warmup: Annotated[int, Range(0, 10**9)] = 500,
        discount: Annotated[float, Range(0.0, 1.0)] = 1.0,
        expected: bool = False,
    ) -> None:
        """
        Args:
            reward: λ_r, the weight of the REINFORCE term.
            baseline: decay of the moving average that is subtracted from the loss; 1 subtracts nothing.
            entropy: λ_e, the weight of the entropy term.
            soft: probability that a batch row reads softmax(s) instead of a sample, which lowers the variance.
            warmup: updates over which the share of soft rows falls from 1 to `soft`.
            discount: factor per later output by which a loss counts for a choice.
            expected: read softmax(s) outside of training, as the authors' code does.
        """
        super().__init__()
        self.reward, self.baseline, self.entropy = reward, baseline, entropy
        self.soft, self.warmup, self.discount, self.expected = soft, warmup, discount, expected
        # Moving average of the loss per token, not yet divided by `mean_weight` (bias correction).
        self.register_buffer("mean_loss", torch.zeros(()))
        self.register_buffer("mean_weight", torch.zeros(()))
        # Share of soft rows at this update.
        self.register_buffer("share", torch.tensor(soft), persistent=False)

    def extra_repr(self) -> str:
        terms = f"reward={self.reward}, baseline={self.baseline}, entropy={self.entropy}"
        return f"{terms}, soft={self.soft}, warmup={self.warmup}, discount={self.discount}, expected={self.expected}"

    def before_update(self, number: int, generator: torch.Generator) -> None:
        """Sets the share of soft rows; the training loop calls it. Without a call, the share after the warm-up holds."""
        left = max(0.0, 1 - (number - 1) / self.warmup) if self.warmup else 0.0
        self.share.fill_(self.soft + (1 - self.soft) * left)

    @staticmethod
    def largest(scores: Tensor, hidden: Tensor | None) -> Tensor:
        """The index of the largest visible score, 0 in a fully masked row."""
        return (scores if hidden is None else scores.masked_fill(hidden, float("-inf"))).argmax(-1)

    def rows(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        if self.expected and not self.training:
            return softmax_rows(scores, hidden)
        with torch.no_grad():
            at = self.largest(
                scores + gumbel_noise(scores) if self.training else scores, hidden
            ).unsqueeze(-1)
            weights = torch.zeros_like(scores).scatter_(-1, at, 1.0)
        if self.training and auxiliary_losses.is_collecting():
            return self.leave(weights, scores, hidden, at)
        return weights

    def leave(self, weights: Tensor, scores: Tensor, hidden: Tensor | None, at: Tensor) -> Tensor:
        """The weights (B H Q K), softmax(s) in soft rows. Registers log p of the samples and the entropies with the loss."""
        log_p = (
            scores if hidden is None else scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        ).log_softmax(-1)
        chosen, p = log_p.gather(-1, at).squeeze(-1), log_p.exp()
        entropy = -(p * (log_p if hidden is None else log_p.masked_fill(hidden, 0.0))).sum(-1)
        if hidden is not None:
            nowhere = hidden.all(-1)
            chosen, entropy = chosen.masked_fill(nowhere, 0.0), entropy.masked_fill(nowhere, 0.0)
        sampled = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
        if self.soft or self.warmup:
            draw = lambda: torch.rand(len(scores), device=scores.device) >= self.share
            # A batch row is soft or sampled in the whole model.
            sampled = auxiliary_losses.draw_once(("soft", len(scores)), draw)
            chosen = chosen * sampled.view(-1, 1, 1)
            weights = torch.where(sampled.view(-1, 1, 1, 1), weights, p)
        return auxiliary_losses.add_sample(
            weights, auxiliary_losses.Sample(self, chosen.sum(1), entropy.sum(1), sampled)
        )

    def estimate(
        self, samples: Sequence[auxiliary_losses.Sample], losses: Tensor, counted: Tensor
    ) -> Tensor:
        """Σ λ_r (L − b) log p(position) − λ_e H, the first with the value 0: its gradient is, in the mean over all samples, that of the
        expected loss (Williams 1992; Xu et al. 2015, eq. 12).

        L is the loss (losses: B T, where counted) that a choice can change: of its own and later outputs in a decoder, else of the
        whole row. The baseline b is a moving average of the loss per token over the batches before this one; ranks of a DDP training
        use that of rank 0, of FSDP each its own.
        """
        losses = losses.detach()
        usual = self.mean_loss / self.mean_weight.clamp_min(
            torch.finfo(self.mean_weight.dtype).tiny
        )
        above = torch.where(counted, losses - usual, 0.0)
        sizes = [one.log_prob.shape for one in samples]
        (rows, outputs) = losses.shape
        ends = [one.first + size[1] for one, size in zip(samples, sizes, strict=True)]
        if all(one.in_order for one in samples) and max(ends) == outputs and sizes[0][0] == rows:
            spans = [slice(one.first, end) for one, end in zip(samples, ends, strict=True)]
            at = torch.arange(outputs, device=losses.device)
            later = (
                above
                @ (self.discount ** (at.unsqueeze(1) - at).clamp_min(0)).to(above.dtype).tril()
            )
            gain = torch.cat([later[:, span] for span in spans], 1)
            share = torch.cat([counted[:, span] for span in spans], 1)
        else:
            queries = sum(size.numel() for size in sizes) // rows
            gain, share = above.sum(1, keepdim=True), counted.sum(1, keepdim=True) / queries
        log_prob, entropy = (
            torch.cat([each.reshape(rows, -1) for each in some], 1)
            for some in ([one.log_prob for one in samples], [one.entropy for one in samples])
        )
        self.follow(losses, counted & samples[0].rows.view(rows, -1).any(1, keepdim=True))
        return (
            self.reward * (gain * (log_prob - log_prob.detach())).sum()
            - self.entropy * (share * entropy).sum()
        )

    @torch.no_grad()
    def follow(self, losses: Tensor, counted: Tensor) -> None:
        """Updates the baseline with a batch's loss per token, unless nothing was sampled."""
        count = counted.sum()
        step = ((1 - self.baseline) * (count > 0)).to(self.mean_loss.dtype)
        mean = (torch.where(counted, losses, 0.0).sum() / count.clamp_min(1)).to(
            self.mean_loss.dtype
        )
        self.mean_loss.lerp_(mean, step)
        self.mean_weight.lerp_(torch.ones_like(step), step)
