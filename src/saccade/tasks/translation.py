"""Translation: pairs to batches, the loss, texts through a model and back, BLEU, chrF and alignments. B batch, N source, T target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import record
from ..data.batches import on, pad
from ..data.corpora import corpus
from ..data.pairs import Pair
from ..data.vocabulary import BOS, EOS, PAD, UNK, Encoded, Vocabulary
from ..decoding import Beam, Hypothesis, Search, decode, greedy
from ..errors import SaccadeError
from ..models.kinds import Seq2Seq
from ..recipe import Recipe
from ..training.losses import model_loss
from .alignment import Link, alignment_error_rate, links, word_weights
from .scoring import scores
from .task import Builder, ExampleWork, Task, from_tokens, in_batches, learned_vocabulary, table, to_tokens

NEVER = (PAD, BOS)  # tokens that are not put out
MakeSearch = Callable[[], Search]
Numbered = tuple[list[int], list[int], Pair, int]


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


@table.add("translation", paper="Bahdanau et al. 2015", system="T1")
class Translation(Task):
    """From one text to another: two vocabularies and what can be done with a model between them."""

    measures: ClassVar[dict[str, bool]] = {"loss": False, "bleu": True}

    def __init__(self, source: Vocabulary, target: Vocabulary) -> None:
        self.source, self.target = source, target

    @property
    def reads(self) -> Vocabulary:
        """The vocabulary of what is read."""
        return self.source

    @classmethod
    def read(cls, recipe: Recipe, where: str) -> list[Pair]:
        pairs = corpus(where, recipe.data.options(where))
        return [turned(pair) for pair in pairs] if recipe.data.swap else pairs

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Pair], given: Vocabulary | None = None) -> Self:
        if recipe.vocabulary.joint or given is not None:
            lines = (line for pair in train for line in (pair.source, pair.target))
            both = learned_vocabulary(recipe, lines, given)
            return cls(both, both)
        sides = ([pair.source for pair in train], [pair.target for pair in train])
        return cls(*(learned_vocabulary(recipe, lines) for lines in sides))

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        source = from_tokens(tokens, "joint", "source")
        return cls(source, source if "joint" in tokens else from_tokens(tokens, "target"))

    def tokens(self) -> dict[str, Any]:
        if self.source is self.target:
            return to_tokens(joint=self.source)
        return to_tokens(source=self.source, target=self.target)

    def texts(self, examples: Sequence[Pair]) -> dict[str, tuple[Vocabulary, list[str]]]:
        source, target = [pair.source for pair in examples], [pair.target for pair in examples]
        return {"source": (self.source, source), "target": (self.target, target)}

    def build(self, builder: Builder) -> nn.Module:
        model = builder.whole(len(self.source), len(self.target))
        if not isinstance(model, Seq2Seq):
            raise SaccadeError(
                f"a {builder.name} does not read one text and put out another; choose another model.family, such as transformer"
            )
        if self.source is not self.target and getattr(model, "source", None) is getattr(model, "target", ...):
            raise SaccadeError("model.shared is true, and there are two vocabularies; set vocabulary.joint=true")
        return model

    def work(self, recipe: Recipe, train: Sequence[Pair], dev: Sequence[Pair], device: torch.device) -> ExampleWork:
        kind = WorkWithBleu if recipe.training.dev_bleu or recipe.training.watch == "bleu" else ExampleWork
        return kind(self, recipe, train, dev, device)

    def numbers(self, pairs: Sequence[Pair]) -> list[Numbered]:
        """Pairs as token numbers: (source with <eos>, target, pair, line)."""
        sources = self.source.encode_ids([pair.source for pair in pairs])
        targets = self.target.encode_ids([pair.target for pair in pairs])
        return [([*s, EOS], t, pair, pair.line) for s, t, pair in zip(sources, targets, pairs, strict=True)]

    def size(self, example: Numbered) -> tuple[int, int]:
        return len(example[0]), len(example[1]) + 1

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> PairBatch:
        source, lengths = pad([s for s, *_ in numbers], PAD, multiple)
        read, _ = pad([[BOS, *t] for _, t, *_ in numbers], PAD, multiple)
        wanted, sizes = pad([[*t, EOS] for _, t, *_ in numbers], PAD, multiple)
        source, lengths, read, wanted = on(device, source, lengths, read, wanted)
        return PairBatch(source, lengths, read, wanted, int(sizes.sum()), [one[-1] for one in numbers])

    def loss(self, model: nn.Module, batch: PairBatch, smoothing: float = 0.0, agreement: float = 0.0) -> Tensor:
        """The summed loss of a batch."""
        return model_loss(model, (batch.source, batch.lengths, batch.read), batch.wanted, PAD, smoothing, agreement)

    @torch.no_grad()
    def figures(self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192) -> dict[str, float]:
        """Loss a token, nothing smoothed."""
        model.eval()
        device, total, tokens = next(model.parameters()).device, 0.0, 0
        for _, some in in_batches(self, numbers, budget):
            batch = self.batch(some, device)
            total += float(self.loss(model, batch))
            tokens += batch.tokens
        return {"loss": total / max(tokens, 1)}

    def translate(
        self, model: nn.Module, texts: Sequence[str], search: MakeSearch, budget: int = 3072
    ) -> Iterator[tuple[int, Translated]]:
        """Translations as they come, each with the number of its text: similar lengths go through the model together, at most
        `budget` source tokens of them. Words the target vocabulary lacks are copied from where the model looks (PosUnk)."""
        model.eval()
        encoded = [[*ids, EOS] for ids in self.source.encode_ids(list(texts))]
        order = sorted((n for n in range(len(texts)) if texts[n].strip()), key=lambda n: len(encoded[n]))
        for n in range(len(texts)):
            if not texts[n].strip():
                yield n, Translated("", 0.0, 0.0, [], True, [])
        device = next(model.parameters()).device
        at = 0
        while at < len(order):
            # the longest of the next ones decides how many go together
            count = next(
                k for k in range(1, len(order) - at + 1) if at + k == len(order) or (k + 1) * len(encoded[order[at + k]]) > budget
            )
            chosen = order[at : at + count]
            at += count
            source, lengths = pad([encoded[n] for n in chosen], PAD)
            limits = [2 * len(encoded[n]) + 10 for n in chosen]
            found = decode(model, source.to(device), lengths.to(device), search(), limits)  # type: ignore[arg-type]
            words = self.copied(model, [texts[n] for n in chosen], [encoded[n] for n in chosen], [one[0].tokens for one in found])
            for n, hypotheses, copies in zip(chosen, found, words, strict=True):
                yield n, self.translated(hypotheses, copies)

    def translated(self, hypotheses: list[Hypothesis], copies: dict[int, str]) -> Translated:
        best, *others = hypotheses
        text = self.target.decode(best.tokens, keep_unknown=True)
        if copies:
            text = " ".join(copies.get(n, self.target.token(id)) for n, id in enumerate(best.tokens))
        more = [self.target.decode(h.tokens, keep_unknown=True) for h in others]
        return Translated(text, best.log_prob, best.score, best.tokens, best.finished, more)

    @torch.no_grad()
    def copied(
        self, model: nn.Module, texts: list[str], encoded: list[list[int]], outputs: list[list[int]]
    ) -> list[dict[int, str]]:
        """For each output the source words that stand in for its unknown ones: place → the word looked at most (Luong et al. 2015b)."""
        words: list[dict[int, str]] = [{} for _ in outputs]
        asked = [n for n, tokens in enumerate(outputs) if UNK in tokens]
        if self.target.kind != "words" or not asked or not attends(model):
            return words
        numbers = [(encoded[n], outputs[n], Pair(texts[n], ""), 0) for n in asked]
        weights = self.looked(model, self.batch(numbers, next(model.parameters()).device))
        for n, rows in zip(asked, weights, strict=True):
            source = self.source.encode(texts[n])
            spelled = source.pieces if self.source.kind == "words" else [texts[n].split()[word] for word in source.words]
            for place, id in enumerate(outputs[n]):
                if id == UNK and spelled:
                    words[n][place] = spelled[int(rows[place, : len(spelled)].argmax())]
        return words

    def looked(self, model: nn.Module, batch: PairBatch) -> NDArray[np.floating]:
        """The mean weights of all attention to the source (sites named `cross`) while the batch's targets are put out: B T N."""
        with record(model) as seen:
            model(batch.source, batch.lengths, batch.read)
        names = [name for name in seen if name.split(".")[-1] == "cross"]
        if not names:
            raise SaccadeError(
                "this model attends to no source (one fixed context is all it has), so it has no alignment; use a model with attention"
            )
        found: NDArray[np.floating] = torch.stack([seen[name].weights().mean(1) for name in names]).mean(0).float().cpu().numpy()
        return found

    @torch.no_grad()
    def align(self, model: nn.Module, pairs: Sequence[Pair], sentences: int = 64) -> list[Aligned]:
        """Where the model looks while it puts out each pair's target, by all its attention to the source (sites named `cross`)."""
        model.eval()
        numbers, device = self.numbers(pairs), next(model.parameters()).device
        order = sorted(range(len(pairs)), key=lambda n: (len(numbers[n][0]), len(numbers[n][1])))
        found: dict[int, Aligned] = {}
        for start in range(0, len(order), sentences):
            chosen = order[start : start + sentences]
            weights = self.looked(model, self.batch([numbers[n] for n in chosen], device))
            for n, rows in zip(chosen, weights, strict=True):
                found[n] = self.aligned(pairs[n], rows)
        return [found[n] for n in range(len(pairs))]

    def aligned(self, pair: Pair, weights: NDArray[np.floating]) -> Aligned:
        source, target = self.source.encode(pair.source), self.target.encode(pair.target)
        weights = weights[: len(target.ids) + 1, : len(source.ids) + 1]  # the last row and column are <eos>
        by_word = word_weights(weights, target.words, source.words)
        end = word_weights(weights[:, len(source.ids) :], target.words, [0])[:, 0]
        return Aligned(source, target, weights, links(by_word, list(end)))

    def score(self, outputs: Sequence[str], pairs: Sequence[Pair], moses: str | None = None) -> dict[str, float | str]:
        """BLEU and chrF by sacrebleu, with its signatures; also as the literature counts it when a language for Moses is named."""
        return scores(outputs, [pair.target for pair in pairs], moses)

    def evaluate(
        self, model: nn.Module, pairs: Sequence[Pair], beam: int = 1, quarters: bool = False, moses: str | None = None
    ) -> dict[str, Any]:
        """BLEU and chrF with their signatures, loss, the alignment error rate where gold links are, and BLEU by length quarter when asked."""
        search: MakeSearch = (lambda: greedy(BOS, EOS, NEVER)) if beam == 1 else (lambda: Beam(BOS, EOS, NEVER, beam))
        found = dict(self.translate(model, [pair.source for pair in pairs], search))
        outputs = [found[n].text for n in range(len(pairs))]
        figures: dict[str, Any] = {"sentences": len(pairs), "beam": beam, **self.score(outputs, pairs, moses)}
        figures |= self.figures(model, self.numbers(pairs))
        if attends(model) and (error := self.alignment_error(model, pairs)) is not None:
            figures["aer"] = error
        if quarters:
            figures["by_length"] = self.quarter_scores(outputs, pairs)
        return figures

    def quarter_scores(self, outputs: Sequence[str], pairs: Sequence[Pair]) -> list[dict[str, float]]:
        """BLEU of each quarter of the pairs by source length (S5)."""
        rows = []
        for group in filter(None, by_length(pairs)):
            lengths = [len(pairs[n].source.split()) for n in group]
            bleu = self.score([outputs[n] for n in group], [pairs[n] for n in group])["bleu"]
            rows.append(
                {"shortest": min(lengths), "longest": max(lengths), "mean": sum(lengths) / len(lengths), "bleu": float(bleu)}
            )
        return rows

    def alignment_error(self, model: nn.Module, pairs: Sequence[Pair]) -> float | None:
        """The alignment error rate on pairs that have gold links, None when there are none."""
        gold = [pair for pair in pairs if pair.alignment is not None]
        if not gold:
            return None
        found = self.align(model, gold)
        return alignment_error_rate(
            [one.links for one in found], [pair.alignment or () for pair in gold], [pair.possible or () for pair in gold]
        )


def by_length(pairs: Sequence[Pair], parts: int = 4) -> list[list[int]]:
    """The pairs' numbers in `parts` equal groups by the source's length in words, the shortest first."""
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n].source.split()))
    return [order[math.floor(k * len(order) / parts) : math.floor((k + 1) * len(order) / parts)] for k in range(parts)]


def turned(pair: Pair) -> Pair:
    """The pair from its target to its source; tags are of the source alone, and go."""
    around = lambda links: None if links is None else tuple((j, i) for i, j in links)  # noqa: E731
    return Pair(pair.target, pair.source, pair.line, around(pair.alignment), around(pair.possible))


def attends(model: nn.Module) -> bool:
    """Whether a model has attention to a source."""
    return any(name.split(".")[-1] == "cross" for name, module in model.named_modules() if hasattr(module, "tape"))


class WorkWithBleu(ExampleWork):
    """Translation with greedy BLEU among the figures on the dev set."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        task, pairs = self.task, [one[2] for one in self.dev]
        assert isinstance(task, Translation)
        outputs = dict(task.translate(model, [pair.source for pair in pairs], lambda: greedy(BOS, EOS, NEVER)))
        bleu = float(task.score([outputs[n].text for n in range(len(pairs))], pairs)["bleu"])
        return {**super().evaluate(model), "bleu": bleu}


@table.add("text-to-text", paper="Raffel et al. 2020", system="T5")
class TextToText(Translation):
    """Any text to any text (summaries, dialogue, brackets, code): translation's path, judged also by how many outputs are right as a whole."""

    def score(self, outputs: Sequence[str], pairs: Sequence[Pair], moses: str | None = None) -> dict[str, float | str]:
        right = sum(output.strip() == pair.target.strip() for output, pair in zip(outputs, pairs, strict=True))
        return {"exact": 100 * right / max(len(pairs), 1), **super().score(outputs, pairs, moses)}
