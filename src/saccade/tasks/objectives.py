"""What a language model learns on plain text: causal, masked, denoising and permutation objectives. B blocks, N tokens, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..core import masks
from ..data.batches import on, pad
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.classifiers import MaskedModel
from ..models.protocols import AttendingEncoder, CausalLM, Encoder, Seq2Seq
from ..models.two_stream import TwoStream
from ..models.xlnet import RecurrentTwoStream, XLNet
from ..recipe import LanguageRecipe
from ..registry import Table
from ..training.losses import Batch
from .task import with_separator, without_trees

table: Table[type[Objective]] = Table("objectives", "objective")
HIDDEN = "<mask>"  # hides a token in a text that is looked at
Fractions = NDArray[np.float64]  # drawn from [0, 1)


@dataclass(frozen=True)
class Blocks:
    """Blocks of a stream, B (N + 1) tokens with <pad> behind the end of the text."""

    tokens: Tensor
    # the same outside the model's device, so that reading them waits for no GPU
    here: NDArray[np.int64]
    documents: Tensor | None  # the number of each token's document, where there are several
    seeds: Sequence[tuple[int, ...]]  # of what is drawn
    lines: Sequence[int]

    @cached_property
    def chances(self) -> list[np.random.PCG64]:
        """One per block, made only for objectives that draw; numpy promises the raw numbers for all its versions."""
        return [np.random.PCG64(seed) for seed in self.seeds]

    def draw(self) -> Fractions:
        """The next number of each token's position, B N: each block draws by itself."""
        return np.stack([draw(chance, self.here.shape[1] - 1) for chance in self.chances])

    @property
    def packing(self) -> tuple[Any, ...]:
        """The mask and the positions of packed documents; nothing where there is one text."""
        documents = None if self.documents is None else self.documents[:, :-1]
        return (
            () if documents is None else (masks.documents(documents), restart_positions(documents))
        )


def draw(chance: np.random.PCG64, count: int) -> Fractions:
    return (np.asarray(chance.random_raw(count), dtype=np.uint64) >> np.uint64(11)).astype(
        np.float64
    ) / 2.0**53


def restart_positions(documents: Tensor) -> Tensor:
    """Positions counted from each document's first token in the block: B N."""
    at = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return at - torch.where(begins, at, 0).cummax(1).values


class Objective:
    """One objective with its settings; the embedding has `extra` rows behind the vocabulary's own, for masks."""

    needs: type[nn.Module] = Encoder
    extra = 0
    attends = True  # the model takes a mask and positions
    outcome = "hidden"  # what the model says about a text
    build: Callable[[Builder], nn.Module]
    batch: Callable[[Blocks], Batch]

    def __init__(self, text: Vocabulary, how: LanguageRecipe) -> None:
        self.text, self.how, self.vocab = text, how, len(text)

    def hidden(self, number: int) -> int:
        """What a text holds instead of its n-th hidden token, or span."""
        return self.vocab if self.extra else self.text.unk

    def reading(self, ids: list[int], hidden: list[int]) -> tuple[list[Tensor], list[str]]:
        """The model's inputs for one text, in which tokens are hidden, and the names of positions behind its tokens."""
        return [torch.tensor([ids]), torch.tensor([len(ids)])], []

    def count(self, tokens: NDArray[np.int64]) -> int:
        """How many tokens are asked for of a causal model: neither padding nor what begins a document."""
        return int(np.isin(tokens, (self.text.pad, self.text.bos), invert=True).sum())


@table.add("causal", paper="Radford et al. 2018")
class Causal(Objective):
    """Each token from those before it in its own document; a recurrent model sees by <bos> where a document begins."""

    needs = CausalLM
    outcome = "next"

    def reading(self, ids: list[int], hidden: list[int]) -> tuple[list[Tensor], list[str]]:
        return [torch.tensor([ids])], []

    def build(self, builder: Builder) -> nn.Module:
        model = builder.make(CausalLM, self.vocab)
        self.attends = model.attends
        return model

    def batch(self, blocks: Blocks) -> Batch:
        text, tokens, target = self.text, blocks.tokens[:, :-1], blocks.tokens[:, 1:]
        # where a document begins cannot be known from the one before it
        if blocks.documents is not None:
            target = target.masked_fill(target == text.bos, text.pad)
        inputs = (tokens, *(blocks.packing if self.attends else ()))
        return Batch(inputs, target, text.pad, self.count(blocks.here[:, 1:]), blocks.lines)


class OfPositions(Objective):
    """An objective on an encoder: the tokens at some positions are asked for."""

    separator: int | None = None  # a token between segments, which is never asked for

    def body(self, builder: Builder) -> Encoder:
        body, self.separator = with_separator(
            without_trees(builder.make(Encoder, self.vocab + self.extra)), self.text
        )
        if not body.sees_ahead:
            what = f"{builder.name} is causal and cannot be trained with the {self.how.objective} objective"
            raise SaccadeError(
                f"{what}; choose another model.family, such as transformer-encoder",
                code="family-not-supported",
            )
        if body.embedding.reads_bytes:
            raise SaccadeError(
                "model.embedding reads the bytes of a word, which would leak the masked token; choose another one",
                code="embedding-not-supported",
            )
        self.attends = isinstance(body, AttendingEncoder)
        return body

    def choose(self, blocks: Blocks) -> NDArray[np.bool_]:
        """Which positions are asked for, B N: `share` of each row, never padding, an unknown word, a separator or what begins a document."""
        never = (
            self.text.pad,
            self.text.unk,
            self.text.bos,
            *([] if self.separator is None else [self.separator]),
        )
        real = np.isin(blocks.here[:, :-1], never, invert=True)
        rank = np.where(real, blocks.draw(), 2.0).argsort(1).argsort(1)
        wanted = np.maximum(1, (self.how.share * real.sum(1, keepdims=True)).round())
        first: NDArray[np.bool_] = rank < wanted
        return first & real

    def ask(self, blocks: Blocks, asked: NDArray[np.bool_]) -> tuple[Tensor, ...]:
        """The blocks' lengths, the asked positions, B W, and the tokens there; shorter rows are filled with position 0 and <pad>."""
        at, counts = pad([np.flatnonzero(row).tolist() for row in asked], 0)
        target = torch.from_numpy(np.take_along_axis(blocks.here, at.numpy(), 1))
        target = target.masked_fill(torch.arange(at.shape[1]) >= counts.unsqueeze(1), self.text.pad)
        lengths = torch.from_numpy((blocks.here[:, :-1] != self.text.pad).sum(1))
        return on(blocks.tokens.device, lengths, at, target)


@table.add("masked", paper="Devlin et al. 2019")
class Masked(OfPositions):
    """`share` of the tokens are asked for; of these 80 % are hidden, 10 % replaced by any token, 10 % left as they are."""

    extra = 1

    def build(self, builder: Builder) -> nn.Module:
        return MaskedModel(self.body(builder), self.vocab + self.extra)

    def batch(self, blocks: Blocks) -> Batch:
        asked = self.choose(blocks)
        how, other = blocks.draw(), blocks.draw()
        special = (self.text.pad, self.text.unk, self.text.bos, self.text.eos)
        words = np.setdiff1d(np.arange(self.vocab), special)
        if not len(words):
            raise SaccadeError(
                "the vocabulary has no words to put where others are hidden; lower vocabulary.min_count or raise its size",
                code="vocabulary-too-small",
            )
        replaced = words[(other * len(words)).astype(np.int64)]
        shown = np.where(
            asked & (how < 0.8),
            self.vocab,
            np.where(asked & (how >= 0.9), replaced, blocks.here[:, :-1]),
        )
        lengths, at, target = self.ask(blocks, asked)
        [tokens] = on(blocks.tokens.device, torch.from_numpy(shown))
        inputs = (tokens, lengths, at, *(blocks.packing if self.attends else ()))
        return Batch(inputs, target, self.text.pad, int(asked.sum()), blocks.lines)


@table.add("permutation", paper="Yang et al. 2019 (XLNet)")
class Permutation(OfPositions):
    """Each asked token from those before it in a random order: the last `share` of the order is asked for, in two streams."""

    def build(self, builder: Builder) -> nn.Module:
        body = self.body(builder)
        return (RecurrentTwoStream if isinstance(body, XLNet) else TwoStream)(body, self.vocab)

    def reading(self, ids: list[int], hidden: list[int]) -> tuple[list[Tensor], list[str]]:
        """What is hidden, or else the last token, is asked for from all others, which come first, from left to right."""
        asked = torch.tensor([hidden or [len(ids) - 1]])
        late = torch.zeros(1, len(ids)).scatter(1, asked, len(ids))
        inputs, _ = super().reading(ids, hidden)
        return [*inputs, (torch.arange(len(ids)) + late).argsort(1).argsort(1), asked], [
            "<query>"
        ] * asked.shape[1]

    def batch(self, blocks: Blocks) -> Batch:
        asked = self.choose(blocks)
        order = np.where(asked, 1.0, 0.0) + 0.999 * blocks.draw()  # what is asked for comes last
        lengths, at, target = self.ask(blocks, asked)
        [rank] = on(blocks.tokens.device, torch.from_numpy(order.argsort(1).argsort(1)))
        documents = None if blocks.documents is None else blocks.documents[:, :-1]
        return Batch(
            (blocks.tokens[:, :-1], lengths, rank, at, documents),
            target,
            self.text.pad,
            int(asked.sum()),
            blocks.lines,
        )


@table.add("denoising", paper="Raffel et al. 2020 (T5)")
class Denoising(Objective):
    """Spans of about `span` tokens are cut out, `share` of the text in all; the decoder generates them, each behind its own mark."""

    needs = Seq2Seq

    def __init__(self, text: Vocabulary, how: LanguageRecipe) -> None:
        super().__init__(text, how)
        self.extra = self.spans(how.block)[1]

    def hidden(self, number: int) -> int:
        if number >= self.extra:
            raise SaccadeError(
                f"the text hides more than {self.extra} spans ({HIDDEN}), the most this model knows; hide fewer",
                code="too-many-spans",
            )
        return self.vocab + number

    def spans(self, length: int) -> tuple[int, int]:
        """How many tokens of `length` are cut out, and in how many spans."""
        noise = min(max(round(self.how.share * length), 1), max(length - 1, 1))
        return noise, max(1, min(round(noise / self.how.span), noise, length - noise))

    def build(self, builder: Builder) -> nn.Module:
        return builder.make(Seq2Seq, self.vocab + self.extra, self.vocab + self.extra)

    def batch(self, blocks: Blocks) -> Batch:
        text, rows = self.text, zip(blocks.here[:, :-1], blocks.chances, strict=True)
        sources, targets = zip(
            *(self.cut(row[row != text.pad].tolist(), chance) for row, chance in rows), strict=True
        )
        source, lengths = pad(sources, text.pad)
        read, _ = pad([[text.bos, *target] for target in targets], text.pad)
        target, sizes = pad([[*target, text.eos] for target in targets], text.pad)
        *inputs, target = on(blocks.tokens.device, source, lengths, read, target)
        return Batch(tuple(inputs), target, text.pad, int(sizes.sum()), blocks.lines)

    def cut(self, tokens: list[int], chance: np.random.PCG64) -> tuple[list[int], list[int]]:
        """The text with a mark instead of each span, and each mark with its span."""
        if len(tokens) < 2:
            return tokens or [self.text.eos], [self.vocab, *tokens]
        noise, spans = self.spans(len(tokens))
        hidden = split_total(noise, spans, chance)
        kept = split_total(len(tokens) - noise, spans, chance)
        source, target, at = [], [], 0
        for n, (keep, hide) in enumerate(zip(kept, hidden, strict=True)):
            source += [*tokens[at : at + keep], self.vocab + n]
            target += [self.vocab + n, *tokens[at + keep : at + keep + hide]]
            at += keep + hide
        return source, target


def split_total(total: int, parts: int, chance: np.random.PCG64) -> list[int]:
    """`total` as a sum of `parts` numbers of at least 1, all such sums equally likely."""
    borders = np.sort(draw(chance, total - 1).argsort()[: parts - 1]) + 1
    return list(np.diff([0, *borders.tolist(), total]).tolist())
