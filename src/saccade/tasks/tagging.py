"""Tagging: one label a word. B batch, N tokens, W words, C tags."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..data.batches import Rows, on, pad, pad_rows
from ..data.conllu import Sentence
from ..data.corpora import sentences
from ..data.vocabulary import PAD, UNK, Vocabulary
from ..models.labels import Tagger
from ..recipe import Recipe
from ..training.losses import model_loss, token_loss
from .reading import with_bytes
from .task import Builder, ExampleWork, Labels, LabelTask, WrongExample, in_batches, learned_vocabulary, table

Numbered = tuple[Rows, list[int], list[int], int]
UNTAGGED = -100


@dataclass(frozen=True)
class SentenceBatch:
    """Tokens, the place of each word's first one, and each word's tag."""

    read: Tensor
    lengths: Tensor
    at: Tensor
    wanted: Tensor
    tokens: int
    lines: Sequence[int]


@table.add("tagging", paper="Ling et al. 2015", system="T3")
class Tagging(LabelTask):
    """One label for each word, such as its part of speech; a word of several pieces is tagged at its first."""

    outcome: ClassVar[str] = "tags"
    command: ClassVar[str] = "tag {model} your.conllu"

    @classmethod
    def read(cls, recipe: Recipe, where: str) -> list[Sentence]:
        return sentences(where, recipe.data.options(where), recipe.data.column)

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Sentence], given: Vocabulary | None = None) -> Self:
        all_tagged(train, "of the training data has no tags; give every word one")
        labels = Labels.of((tag for one in train for tag in one.tags or ()), "tag")
        return cls(learned_vocabulary(recipe, (" ".join(one.words) for one in train), given), labels)

    def texts(self, examples: Sequence[Sentence]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {"text": (self.text, [" ".join(one.words) for one in examples])}

    def build(self, builder: Builder) -> nn.Module:
        body = builder.body(len(self.text))
        self.reads_bytes = body.embedding.reads_bytes
        return Tagger(body, len(self.labels), builder.dropout)

    def work(self, recipe: Recipe, train: Sequence[Sentence], dev: Sequence[Sentence], device: torch.device) -> ExampleWork:
        all_tagged(dev, "of the dev data has no tags; give every word one")
        return ExampleWork(self, recipe, train, dev, device)

    def numbers(self, examples: Sequence[Sentence]) -> list[Numbered]:
        """Sentences as rows of tokens, the place of each word's first token, its tags and line."""
        words = {word: n for n, word in enumerate(dict.fromkeys(word for one in examples for word in one.words))}
        pieces = self.text.encode_ids(list(words))
        return [self._numbered(one, [pieces[words[word]] or [UNK] for word in one.words]) for one in examples]

    def _numbered(self, one: Sentence, pieces: list[list[int]]) -> Numbered:
        if self.text.kind == "words":
            pieces = [ids[:1] for ids in pieces]  # a word with a space in it stays one word
        ids = [id for some in pieces for id in some]
        spelled = [word if n == 0 else "" for word, some in zip(one.words, pieces, strict=True) for n in range(len(some))]
        rows = with_bytes(ids, spelled) if self.reads_bytes else [[id] for id in ids]
        at, place = [], 0
        for some in pieces:
            at.append(place)
            place += len(some)
        tags = [self.labels.number(tag, one.line, "tag") for tag in one.tags] if one.tags else [UNTAGGED] * len(one.words)
        return rows, at, tags, one.line

    def size(self, example: Numbered) -> tuple[int, int]:
        return len(example[0]), 0

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> SentenceBatch:
        read, lengths = pad_rows([rows for rows, *_ in numbers], PAD, multiple)
        at, words = pad([places for _, places, *_ in numbers], 0, multiple)
        wanted, _ = pad([tags for _, _, tags, _ in numbers], UNTAGGED, multiple)
        read, lengths, at, wanted = on(device, read, lengths, at, wanted)
        return SentenceBatch(read, lengths, at, wanted, int(words.sum()), [line for *_, line in numbers])

    def loss(self, model: nn.Module, batch: SentenceBatch, smoothing: float = 0.0, agreement: float = 0.0) -> Tensor:
        """The summed loss of a batch's words."""
        return model_loss(model, (batch.read, batch.lengths, batch.at), batch.wanted, UNTAGGED, smoothing, agreement)

    @torch.no_grad()
    def guesses(self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192) -> tuple[list[list[int]], float]:
        """The likeliest tag of every word, and the summed loss of those that have one."""
        model.eval()
        device, total = next(model.parameters()).device, 0.0
        found: list[list[int]] = [[] for _ in numbers]
        for indices, some in in_batches(self, numbers, budget):
            batch = self.batch(some, device)
            logits = model(batch.read, batch.lengths, batch.at)
            total += float(token_loss(logits, batch.wanted, UNTAGGED))
            for n, row in zip(indices, logits.argmax(-1).tolist(), strict=True):
                found[n] = row[: len(numbers[n][1])]
        return found, total

    def right(self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192) -> tuple[list[list[bool]], float]:
        """Which words of each sentence got their tag, and the loss a word."""
        guessed, total = self.guesses(model, numbers, budget)
        right = [[a == b for a, b in zip(row, one[2], strict=True)] for row, one in zip(guessed, numbers, strict=True)]
        return right, total / max(sum(map(len, right)), 1)

    def figures(self, model: nn.Module, numbers: Sequence[Numbered], budget: int = 8192) -> dict[str, float]:
        """Loss a word and the share of right tags, in percent."""
        right, loss = self.right(model, numbers, budget)
        return {"loss": loss, "accuracy": percent(itertools.chain(*right))}

    def evaluate(self, model: nn.Module, examples: Sequence[Sentence]) -> dict[str, Any]:
        """Accuracy over all words, and over those that the vocabulary lacks, which a model knows by their bytes and neighbors alone."""
        all_tagged(examples, "has no tags to compare with; give tags, or use `tag`")
        numbers = self.numbers(examples)
        right, loss = self.right(model, numbers)
        figures: dict[str, Any] = {"sentences": len(numbers), "loss": loss, "accuracy": percent(itertools.chain(*right))}
        if self.text.kind == "words":
            unknown = [
                good
                for row, (rows, at, *_) in zip(right, numbers, strict=True)
                for good, place in zip(row, at, strict=True)
                if rows[place][0] == UNK
            ]
            figures["unknown_words"] = len(unknown)
            if unknown:
                figures["accuracy_unknown"] = percent(unknown)
        return figures

    def tag(self, model: nn.Module, examples: Sequence[Sentence]) -> list[list[str]]:
        """A tag for each word of each sentence."""
        bare = [Sentence(one.words, None, one.line) for one in examples]
        guessed, _ = self.guesses(model, self.numbers(bare))
        return [[self.labels.names[tag] for tag in row] for row in guessed]

    def look(self, model: nn.Module, text: str) -> tuple[list[str], str]:
        """Reads a sentence of words between spaces; its tokens, and the words' tags."""
        words = tuple(text.split())
        tags = self.tag(model, [Sentence(words, None, 1)])[0]
        pieces = (
            list(words)
            if self.text.kind == "words"
            else [self.text.token(row[0]) for row in self.numbers([Sentence(words, None, 1)])[0][0]]
        )
        return pieces, " ".join(tags)


def percent(right: Iterable[bool]) -> float:
    """How many of a hundred are right."""
    each = list(right)
    return 100 * sum(each) / max(len(each), 1)


def all_tagged(examples: Sequence[Sentence], sentence: str) -> None:
    """Raises at the first sentence without tags."""
    bare = next((one for one in examples if one.tags is None), None)
    if bare is not None:
        raise WrongExample(f"the sentence at line {bare.line} {sentence}")
