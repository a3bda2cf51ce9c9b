"""Tagging: one label per word. B batch, N tokens, W words, C tags."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..data.bad_lines import Skipped, many
from ..data.batches import ancestors, on, pad, pad_rows, tree_depths, tree_distances
from ..data.conllu import Sentence, each_sentence
from ..data.corpora import SENTENCES, is_generated
from ..data.hub import in_hub
from ..data.lines import bare_suffix, open_text, strict
from ..data.treebank_words import SPLITS, split_words
from ..data.vocabulary import Vocabulary
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.classifiers import Tagger
from ..recipe import Recipe
from ..training.losses import Batch
from ..views.answers import Tagged
from ..views.document import Document
from .attention_sites import Read, attention_of_reading
from .label_task import UNLABELED, LabelTask, Numbered, make_rows, percent
from .task import ExampleWork, WrongExample, items, one_text, table


@table.add("tagging", paper="Ling et al. 2015")
class Tagging(LabelTask):
    """One label for each word, such as its part of speech; a word of several pieces is tagged at its first."""

    data = SENTENCES
    settings = (*LabelTask.settings, "data.column")
    label, unit = "tag", "word"
    text_of = staticmethod(lambda example: " ".join(example.words))
    labels_of = staticmethod(lambda example: example.tags)
    outcome: ClassVar[str] = "tags"
    command: ClassVar[str] = "tag {model} your.conllu"
    method: ClassVar[str] = 'm.tag("your sentence")'
    verbs, routes, answers = ("tag",), ("tag",), ("words", "tags")
    example_types, example_form = (Sentence,), "(words, tags)"

    # of each token of a vocabulary of words, the tag that it has most often in training
    usual: Sequence[int] = ()

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return (recipe.data.column,)

    @classmethod
    def learn(
        cls, recipe: Recipe, train: Sequence[Sentence], given: Vocabulary | None = None
    ) -> Self:
        made = super().learn(recipe, train, given)
        if made.text.kind == "words":
            counts: dict[int, Counter[int]] = defaultdict(Counter)
            for one in made.numbers(train):
                for [id], tag in zip(one.rows, one.labels, strict=True):
                    counts[id][tag] += 1
            made.usual = usual_of(counts, len(made.text))
        return made

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        made = super().restore(recipe, tokens)
        made.usual = tokens.get("usual", ())
        known = range(len(made.labels))
        if made.usual and (
            len(made.usual) != len(made.text)
            or not all(type(tag) is int and tag in known for tag in made.usual)
        ):
            raise TypeError("usual tags must be numbers of labels, one per token")
        return made

    def tokens(self) -> dict[str, Any]:
        return {**super().tokens(), **({"usual": list(self.usual)} if self.usual else {})}

    @property
    def split(self) -> str:
        """How raw text becomes words such as the model knows: at `space`, or as `words` where punctuation was by itself in training."""
        return SPLITS[
            self.text.kind != "words"
            or self.text.id(".") != self.text.unk
            or self.text.id(",") != self.text.unk
        ]

    def words(self, text: str, split: str = "") -> tuple[str, ...]:
        """The words of a raw text, split at spaces or as in the training data, unless asked for one of `SPLITS`."""
        return tuple(split_words(text) if (split or self.split) == "words" else text.split())

    def build(self, builder: Builder) -> nn.Module:
        return Tagger(self.encoder(builder), len(self.labels), builder.dropout)

    def numbers(self, examples: Sequence[Sentence]) -> list[Numbered]:
        """Sentences as rows of tokens, their tags and line, and the position of each word's first token."""
        words = {
            word: n
            for n, word in enumerate(dict.fromkeys(word for one in examples for word in one.words))
        }
        pieces = self.text.encode_ids(list(words))
        return [
            self.number(one, [pieces[words[word]] or [self.text.unk] for word in one.words])
            for one in examples
        ]

    def number(self, one: Sentence, pieces: list[list[int]]) -> Numbered:
        if self.text.kind == "words":
            pieces = [ids[:1] for ids in pieces]  # a word with a space in it stays one word
        spelled = [
            word if n == 0 else ""
            for word, ids in zip(one.words, pieces, strict=True)
            for n in range(len(ids))
        ]
        rows = make_rows([id for ids in pieces for id in ids], spelled, self.reads_bytes)
        sizes = [len(ids) for ids in pieces]
        tree = token_tree(one, sizes) if self.needs_relation else None
        return Numbered(
            rows, self.label_numbers(one, len(sizes)), one.line, [0, *accumulate(sizes[:-1])], tree
        )

    def work(
        self,
        recipe: Recipe,
        train: Sequence[Sentence],
        dev: Sequence[Sentence],
        device: torch.device,
    ) -> ExampleWork:
        """Where the model needs trees, sentences without one are counted and left out, as other bad examples are."""
        if not self.needs_relation or recipe.data.strict:
            return super().work(recipe, train, dev, device)
        skipped, data = Skipped(), recipe.data
        kept = (
            with_trees(train, data.train, skipped),
            with_trees(dev, data.dev or data.train, skipped),
        )
        work = super().work(recipe, *kept, device)
        skipped.merge(work.skipped)
        work.skipped = skipped
        return work

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        tokens, lengths = pad_rows([one.rows for one in numbers], self.text.pad, multiple)
        at, words = pad([one.at for one in numbers], 0, multiple)
        target, _ = pad([one.labels for one in numbers], UNLABELED, multiple)
        trees = [one.tree for one in numbers if one.tree is not None]
        relation = torch.zeros(len(trees), tokens.shape[1], tokens.shape[1], dtype=torch.long)
        depth = torch.zeros(len(trees), tokens.shape[1], dtype=torch.long)
        for n, (square, row) in enumerate(trees):
            relation[n, : len(square), : len(square)], depth[n, : len(row)] = square, row
        tokens, lengths, at, target, *more = on(
            device, tokens, lengths, at, target, *([relation, depth] if trees else [])
        )
        return Batch(
            (tokens, lengths, at, *more),
            target,
            UNLABELED,
            int(words.sum()),
            [one.line for one in numbers],
        )

    def evaluate(
        self, model: nn.Module, examples: Sequence[Sentence], confusion: bool | None = None
    ) -> dict[str, Any]:
        """Accuracy over all words, and over those that the vocabulary lacks, which a model knows by their bytes and neighbors alone; that of
        the tag that each word has most often in training (`usual_accuracy`); precision, recall and F1 of each tag."""
        self.check_labeled(examples, more=" to compare with, or use `tag`")
        numbers = self.numbers(examples)
        metrics, guessed, wanted = self.judge(model, numbers)
        found: dict[str, Any] = {"sentences": len(numbers), **metrics}
        if self.text.kind == "words":
            unknown = torch.tensor([row[0] == self.text.unk for one in numbers for row in one.rows])
            found["unknown_words"] = int(unknown.sum())
            if unknown.any():
                found["accuracy_unknown"] = percent((guessed == wanted)[unknown])
        if self.usual:
            usual = torch.tensor([self.usual[row[0]] for one in numbers for row in one.rows])
            found["usual_accuracy"] = percent(usual == wanted)
        return {**found, **self.by_class(guessed, wanted, confusion)}

    @classmethod
    def from_values(cls, parts: Sequence[Any], line: int) -> Sentence:
        words, tags = (
            tuple(each.split()) if isinstance(each, str) else tuple(each) for each in parts
        )
        return Sentence(words, tags, line)

    def inputs(self, given: Any) -> tuple[list[Sentence], bool]:
        """Sentences: each a text whose words are what spaces separate, a list of words or a Sentence."""
        alone = isinstance(given, str | Sentence)
        each = [given] if alone else items(given, self.method)
        return [sentence_of(one, n) for n, one in enumerate(each, 1)], alone

    def input_from(self, text: Any) -> Sentence:
        """A raw text, split as the training data is."""
        return sentence_of(list(self.words(text)), 1)

    def read_inputs(self, recipe: Recipe, where: str) -> Iterator[Sentence]:
        if not is_generated(where) and bare_suffix(Path(where)) == ".txt":
            return (self.input_from(line) for line in open_text(Path(where)) if line.strip())
        if is_generated(where) or in_hub(where):
            return (replace(one, tags=None) for one in self.read(recipe, where))
        found = strict(each_sentence(where, recipe.data.column))
        return (replace(one, tags=None) for one in found)

    def predict(
        self, model: nn.Module, sentences: Sequence[Sentence]
    ) -> Iterator[tuple[int, Tagged]]:
        """The tags of each sentence."""
        numbers = self.numbers([replace(one, tags=None) for one in sentences])
        found = zip(sentences, self.logits(model, numbers), strict=True)
        for n, (one, rows) in enumerate(found):
            tags = [self.labels[tag] for tag in rows.argmax(-1).tolist()]
            yield n, Tagged(tags, one.words, self.labels, rows.double().softmax(-1).numpy())

    def seen_with(self, given: Any, answer: Any) -> tuple[Any, ...]:
        return (" ".join(answer.words),)

    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> Document:
        """All attention inside the encoder while a sentence is tagged."""
        self.refuse_target(target)

        def read(text: str) -> Read:
            sentence = Sentence(self.words(text), None, 1)
            pieces = self.text.labels(row[0] for row in self.numbers([sentence])[0].rows)
            [(_, tagged)] = self.predict(model, [sentence])
            shown = list(sentence.words) if self.text.kind == "words" else pieces
            return shown, " ".join(tagged), []

        return attention_of_reading(model, one_text(given), read, self.outcome, how.get("only"))


def sentence_of(one: Any, n: int) -> Sentence:
    """A sentence from itself, a text or a list of words."""
    words = one.words if isinstance(one, Sentence) else one.split() if isinstance(one, str) else one
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise SaccadeError(
            f"sentence {n} is {str(one)[:40]!r}; expected a text, a list of words or a Sentence",
            code="wrong-input",
        )
    if not words:
        raise SaccadeError(f"sentence {n} has no words; give at least one", code="empty-text")
    return one if isinstance(one, Sentence) else Sentence(tuple(words), None, n)


def usual_of(counts: dict[int, Counter[int]], size: int) -> list[int]:
    """Of each of `size` tokens the tag that it has most often; one that was never seen has the most frequent tag of all."""
    most: Callable[[Counter[int]], int] = lambda seen: min(seen, key=lambda tag: (-seen[tag], tag))
    commonest = most(sum(counts.values(), Counter[int]()))
    return [most(counts[id]) if id in counts else commonest for id in range(size)]


def token_tree(one: Sentence, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Steps between a sentence's tokens along its parse tree, N N, and from each up to the root: a token is where its word is (word n
    has sizes[n] tokens)."""
    fault = tree_fault(one)
    if fault:
        raise WrongExample(fault[1], code="tree-missing")
    assert one.heads is not None
    word = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    steps = tree_distances([one.heads], signed=True)[0].short()
    depths = tree_depths([one.heads])[0].short()
    return steps[word][:, word], depths[word]


def with_trees(examples: Sequence[Sentence], where: str, skipped: Skipped) -> list[Sentence]:
    """The sentences that have a parse tree, at least half of them; the others are counted."""
    faults = [(one, fault) for one in examples if (fault := tree_fault(one))]
    if 2 * len(faults) > len(examples):
        of = f"{len(faults):,} of {many(len(examples), 'sentence')} in {where}"
        raise SaccadeError(f"{of} cannot be used; {faults[0][1][1]}", code="examples-unusable")
    for one, (kind, _) in faults:
        skipped.add(where, kind, one.line)
    bad = {id(one) for one, _ in faults}
    return [one for one in examples if id(one) not in bad]


def tree_fault(one: Sentence) -> tuple[str, str] | None:
    """Why a sentence has no parse tree: the kind of reason for a count, and a sentence."""
    if one.heads is None:
        what = f"line {one.line}: the sentence has no parse tree, which the positions of this model need"
        way = "give a .conllu file whose HEAD column is filled, or train with other positions than syntax and depth"
        return "without a parse tree", f"{what}; {way}"
    try:
        ancestors(one.heads)
    except SaccadeError as error:
        return "whose heads form no tree", f"line {one.line}: {error}"
    return None
