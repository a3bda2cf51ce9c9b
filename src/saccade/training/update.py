"""One update: the gradients of some batches, clipped, and a step of the optimizer. See `capture` for its faster form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..recipe import TrainingRecipe
from .parallel import Layout
from .sharded import whole
from .work import Work

Parts = Sequence[tuple[Any, int]]  # this rank's part of each batch, and how often it counts (0 or 1)
Report = Callable[[list[Tensor], Tensor], None]  # gets each batch's loss and the gradient's norm, which nobody has read yet


class Update:
    """Makes updates kernel by kernel, from any number of batches on any number of ranks."""

    captured = False

    def __init__(self, work: Work, settings: TrainingRecipe, layout: Layout, note: Callable[[str], None]) -> None:
        self.work, self.settings, self.layout, self.note = work, settings, layout, note
        self.device = next(layout.model.parameters()).device
        rate: Any = settings.learning_rate
        self.optimizer = torch.optim.AdamW(
            layout.model.parameters(),
            lr=torch.tensor(rate, device=self.device) if self.captured else rate,  # a graph would keep a number as it is
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
            capturable=self.captured,
        )

    def __call__(self, parts: Parts, tokens: int, rate: float, report: Report) -> None:
        """`tokens` are those of all parts on all ranks; an error that `report` raises leaves the parameters as they were."""
        losses = []
        for n, (batch, counts) in enumerate(parts, 1):
            with self.layout.batch(last=n == len(parts)):
                loss = counts * self.loss(self.layout.forward, batch) / max(tokens, 1)  # 0 tokens: unknown words alone
                self.layout.scaled(loss).backward()
            losses.append(loss.detach())
        report(losses, self.clip())
        self.set_rate(rate)
        self.move()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        kind = self.settings.autocast
        with torch.autocast(self.device.type, kind, enabled=kind is not None):
            return self.work.loss(model, batch)

    def clip(self) -> Tensor:
        """Clips the gradients; their norm before."""
        most = self.settings.clip or float("inf")
        return whole(nn.utils.clip_grad_norm_(self.layout.model.parameters(), most))

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def move(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
