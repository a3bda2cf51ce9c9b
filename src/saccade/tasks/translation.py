"""Translation: pairs to batches, the loss, texts through a model and back, BLEU, chrF and alignments. B batch, N source, T target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import record
from ..data.batches import pad, plan
from ..data.pairs import Pair
from ..data.vocabulary import BOS, EOS, PAD, Encoded, Vocabulary
from ..decoding import Hypothesis, Search, decode
from ..errors import SaccadeError
from ..training.losses import token_loss
from .alignment import Link, alignment_error_rate, links, word_weights

NEVER = (PAD, BOS)  # tokens that are not put out
MakeSearch = Callable[[], Search]


@dataclass(frozen=True)
class PairBatch:
    """Sources ending in <eos>; targets once with <bos> before them (read) and once with <eos> behind them (wanted)."""

    source: Tensor
    lengths: Tensor
    read: Tensor
    wanted: Tensor
    tokens: int
    lines: Sequence[int]


@dataclass(frozen=True)
class Translated:
    """One translation: the text, how likely, its pieces, and the word links when they were asked for."""

    text: str
    log_prob: float
    score: float
    tokens: list[int]
    finished: bool
    alternatives: list[str]


@dataclass(frozen=True)
class Aligned:
    """What a model looked at while it put out a given target: weights of pieces, and the links of words."""

    source: Encoded
    target: Encoded
    weights: NDArray[np.floating]
    links: list[Link]


class Translation:
    """The task: two vocabularies and what can be done with a model between them."""

    def __init__(self, source: Vocabulary, target: Vocabulary) -> None:
        self.source, self.target = source, target

    def numbers(self, pairs: Sequence[Pair]) -> list[tuple[list[int], list[int], int]]:
        """Pairs as token numbers: (source with <eos>, target, line)."""
        sources = self.source.encode_ids([pair.source for pair in pairs])
        targets = self.target.encode_ids([pair.target for pair in pairs])
        return [([*s, EOS], t, pair.line) for s, t, pair in zip(sources, targets, pairs, strict=True)]

    def batch(self, numbers: Sequence[tuple[list[int], list[int], int]], device: torch.device) -> PairBatch:
        source, lengths = pad([s for s, _, _ in numbers], PAD)
        read, _ = pad([[BOS, *t] for _, t, _ in numbers], PAD)
        wanted, sizes = pad([[*t, EOS] for _, t, _ in numbers], PAD)
        source, lengths, read, wanted = (tensor.to(device, non_blocking=True) for tensor in (source, lengths, read, wanted))
        return PairBatch(source, lengths, read, wanted, int(sizes.sum()), [line for _, _, line in numbers])

    def loss(self, model: nn.Module, batch: PairBatch, smoothing: float = 0.0) -> Tensor:
        """The summed loss of a batch."""
        return token_loss(model(batch.source, batch.lengths, batch.read), batch.wanted, PAD, smoothing)

    @torch.no_grad()
    def mean_loss(self, model: nn.Module, pairs: Sequence[Pair], budget: int = 8192) -> float:
        """Loss a token, nothing smoothed."""
        numbers, device = self.numbers(pairs), next(model.parameters()).device
        total, tokens = 0.0, 0
        for indices in plan([(len(s), len(t) + 1) for s, t, _ in numbers], max(budget, longest(numbers)), 0, 0):
            batch = self.batch([numbers[n] for n in indices], device)
            total += float(self.loss(model, batch))
            tokens += batch.tokens
        return total / max(tokens, 1)

    def translate(
        self, model: nn.Module, texts: Sequence[str], search: MakeSearch, sentences: int = 64
    ) -> Iterator[tuple[int, Translated]]:
        """Translations as they come, each with the number of its text: similar lengths go through the model together."""
        model.eval()
        encoded = [[*ids, EOS] for ids in self.source.encode_ids(list(texts))]
        order = sorted((n for n in range(len(texts)) if texts[n].strip()), key=lambda n: len(encoded[n]))
        for n in range(len(texts)):
            if not texts[n].strip():
                yield n, Translated("", 0.0, 0.0, [], True, [])
        device = next(model.parameters()).device
        for start in range(0, len(order), sentences):
            chosen = order[start : start + sentences]
            source, lengths = pad([encoded[n] for n in chosen], PAD)
            limits = [2 * len(encoded[n]) + 10 for n in chosen]
            found = decode(model, source.to(device), lengths.to(device), search(), limits)  # type: ignore[arg-type]
            for n, hypotheses in zip(chosen, found, strict=True):
                yield n, self.translated(hypotheses)

    def translated(self, hypotheses: list[Hypothesis]) -> Translated:
        best, *others = hypotheses
        text = self.target.decode(best.tokens, keep_unknown=True)
        more = [self.target.decode(h.tokens, keep_unknown=True) for h in others]
        return Translated(text, best.log_prob, best.score, best.tokens, best.finished, more)

    @torch.no_grad()
    def align(self, model: nn.Module, pairs: Sequence[Pair], sentences: int = 64) -> list[Aligned]:
        """Where the model looks while it puts out each pair's target, by all its attention to the source (sites named `cross`)."""
        model.eval()
        numbers, device = self.numbers(pairs), next(model.parameters()).device
        order = sorted(range(len(pairs)), key=lambda n: (len(numbers[n][0]), len(numbers[n][1])))
        found: dict[int, Aligned] = {}
        for start in range(0, len(order), sentences):
            chosen = order[start : start + sentences]
            with record(model) as seen:
                batch = self.batch([numbers[n] for n in chosen], device)
                model(batch.source, batch.lengths, batch.read)
            names = [name for name in seen if name.split(".")[-1] == "cross"]
            if not names:
                raise SaccadeError(
                    "this model attends to no source (one fixed context is all it has), so it has no alignment; use a model with attention"
                )
            weights = torch.stack([seen[name].weights().mean(1) for name in names]).mean(0).float().cpu().numpy()  # B T N
            for n, rows in zip(chosen, weights, strict=True):
                found[n] = self.aligned(pairs[n], rows)
        return [found[n] for n in range(len(pairs))]

    def aligned(self, pair: Pair, weights: NDArray[np.floating]) -> Aligned:
        source, target = self.source.encode(pair.source), self.target.encode(pair.target)
        weights = weights[: len(target.ids) + 1, : len(source.ids) + 1]  # the last row and column are <eos>
        by_word = word_weights(weights, target.words, source.words)
        end = word_weights(weights[:, len(source.ids) :], target.words, [0])[:, 0]
        return Aligned(source, target, weights, links(by_word, list(end)))

    def score(self, outputs: Sequence[str], pairs: Sequence[Pair]) -> dict[str, float | str]:
        """BLEU and chrF by sacrebleu, with its signatures."""
        import sacrebleu  # slow to import, and needed here alone

        bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
        references = [[pair.target for pair in pairs]]
        return {
            "bleu": float(bleu.corpus_score(list(outputs), references).score),
            "chrf": float(chrf.corpus_score(list(outputs), references).score),
            "bleu_signature": str(bleu.get_signature()),
            "chrf_signature": str(chrf.get_signature()),
        }

    def alignment_error(self, model: nn.Module, pairs: Sequence[Pair]) -> float | None:
        """The alignment error rate on pairs that have gold links, None when there are none."""
        gold = [pair for pair in pairs if pair.alignment is not None]
        if not gold:
            return None
        found = self.align(model, gold)
        return alignment_error_rate(
            [one.links for one in found], [pair.alignment or () for pair in gold], [pair.possible or () for pair in gold]
        )


def longest(numbers: Sequence[tuple[list[int], list[int], int]]) -> int:
    return max((len(s) + len(t) + 1 for s, t, _ in numbers), default=1)


def by_length(pairs: Sequence[Pair], parts: int = 4) -> list[list[int]]:
    """The pairs' numbers in `parts` equal groups by the source's length in words, the shortest first."""
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n].source.split()))
    return [order[math.floor(k * len(order) / parts) : math.floor((k + 1) * len(order) / parts)] for k in range(parts)]


class TranslationWork:
    """What the training loop asks for: batches of the train pairs, the loss, figures on the dev pairs."""

    def __init__(
        self, task: Translation, train: Sequence[Pair], dev: Sequence[Pair], device: torch.device, options: WorkOptions
    ) -> None:
        self.task, self.dev, self.device, self.options = task, dev, device, options
        self.examples = task.numbers(train)
        self.lengths = [(len(s), len(t) + 1) for s, t, _ in self.examples]
        limit = options.tokens
        for s, t, line in self.examples:
            if len(s) + len(t) + 1 > limit:
                raise SaccadeError(
                    f"line {line} of the training data has {len(s)} + {len(t) + 1} tokens, more than a batch may hold "
                    f"(training.tokens={limit}); raise training.tokens or take the line out"
                )

    def epoch(self, epoch: int) -> Sequence[list[int]]:
        return plan(self.lengths, self.options.tokens, self.options.seed, epoch)

    def batch(self, indices: list[int]) -> PairBatch:
        return self.task.batch([self.examples[n] for n in indices], self.device)

    def loss(self, model: nn.Module, batch: PairBatch) -> Tensor:
        return self.task.loss(model, batch, self.options.smoothing)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        figures = {"loss": self.task.mean_loss(model, self.dev, self.options.tokens)}
        if self.options.search is not None:
            outputs = dict(self.task.translate(model, [pair.source for pair in self.dev], self.options.search))
            figures["bleu"] = float(self.task.score([outputs[n].text for n in range(len(self.dev))], self.dev)["bleu"])
        return figures


@dataclass(frozen=True)
class WorkOptions:
    """Tokens a batch, label smoothing, the seed of the order, and a search when dev BLEU is wanted."""

    tokens: int = 4096
    smoothing: float = 0.1
    seed: int = 0
    search: MakeSearch | None = None
