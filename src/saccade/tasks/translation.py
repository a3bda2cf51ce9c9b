"""Translation: pairs to batches, texts through a model and back, BLEU, chrF and alignments. B batch, N source, T target."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..core import record
from ..core.record import source_weights, stretch_weights
from ..data.bad_lines import Skipped, lopsided
from ..data.batches import on, pad
from ..data.corpora import PAIRS
from ..data.pairs import Links, Pair
from ..data.unspaced_scripts import unspaced_script
from ..data.vocabulary import Vocabulary
from ..decoding import Hypothesis, decode
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.protocols import Seq2Seq
from ..recipe import Recipe
from ..training.losses import Batch
from ..training.work import Work
from ..views.answers import Aligned, Translated
from ..views.document import Document
from . import decoding_steps
from .attention_sites import attends, sites_between
from .generating import Generating
from .pair_work import PairWork, WorkWithBleu
from .search_options import SEARCH, Option, OutputLengths, make_search
from .task import GENERATING, ExampleTask, device_of, from_tokens, learn_vocabulary, one_text, table
from .text_scores import (
    alignment_error_rate,
    bleu_metric,
    bleu_tokenizer,
    by_length,
    diagonal_links,
    moses_tokenizer,
    scores,
    text_sums,
    word_links,
)

Pairs = Sequence[Pair]
Scores = dict[str, float | str]
LONGEST = 50_000  # characters of a text to translate
MOST_SHOWN = 1000  # tokens that are generated to be looked at, where a text is still longer
# position in an output → the word that is copied there, and its number in the source
Copies = dict[int, tuple[str, int]]


class Numbered(NamedTuple):
    """A pair in numbers: the source ends in <eos>, the target has neither <bos> nor <eos>."""

    source: list[int]
    target: list[int]
    pair: Pair
    line: int


FOR_PAIRS = (*GENERATING, "data.tokenize", "data.swap", "vocabulary.joint", "training.reward")


@table.add("translation", paper="Bahdanau et al. 2015")
class Translation(Generating):
    """From one text to another: two vocabularies and what can be done with a model between them."""

    needs, data = Seq2Seq, PAIRS
    settings = (*ExampleTask.settings, *FOR_PAIRS, "data.max_ratio")
    verbs: ClassVar[tuple[str, ...]] = ("translate", "align", "steps", "score")
    routes, looks, by_token = ("translate",), ("text", "target"), True
    counted, judged_tokens = "sentences", 8192
    shown = staticmethod(lambda pair: (pair.source, pair.target))
    predict_options = SEARCH | {"copy_unknown": Option(bool, "copy unknown words from the source")}
    example_types, example_form = (Pair,), "(source, target)"
    steps, score_target = decoding_steps.steps, decoding_steps.score
    # whether the sides of a pair should be about as long as each other
    alike: ClassVar[bool] = True
    # without and with BLEU on the dev set
    workers: ClassVar[tuple[type[PairWork], type[PairWork]]] = PairWork, WorkWithBleu
    options = Generating.options | {
        "quarters": bool,
        "moses": moses_tokenizer,
        "tokenize": bleu_metric,
        "copy_unknown": bool,
    }

    def __init__(
        self,
        source: Vocabulary,
        target: Vocabulary,
        tokenize: str = "auto",
        lengths: OutputLengths | None = None,
    ) -> None:
        """`tokenize` is sacrebleu's tokenizer, where an evaluation is asked for no other."""
        self.source, self.reads, self.target, self.tokenize = source, source, target, tokenize
        self.lengths = lengths or OutputLengths()

    @classmethod
    def read(cls, recipe: Recipe, where: str, skipped: Skipped | None = None) -> list[Pair]:
        pairs = super().read(recipe, where, skipped)
        return [swap(pair) for pair in pairs] if recipe.data.swap else pairs

    @classmethod
    def learn(
        cls,
        recipe: Recipe,
        train: Pairs,
        given: Vocabulary | None = None,
        target: Vocabulary | None = None,
    ) -> Self:
        if given is not None and target is not None:
            return cls(given, target, recipe.data.tokenize)
        sides = ([pair.source for pair in train], [pair.target for pair in train])
        if recipe.vocabulary.joint or given is not None:
            both = learn_vocabulary(recipe, itertools.chain(*sides), given)
            return cls(both, both, recipe.data.tokenize)
        return cls(
            learn_vocabulary(recipe, sides[0]),
            learn_vocabulary(recipe, sides[1]),
            recipe.data.tokenize,
        )

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        source = from_tokens(tokens, "joint", "source")
        target = source if "joint" in tokens else from_tokens(tokens, "target")
        return cls(source, target, recipe.data.tokenize, OutputLengths(**tokens.get("outputs", {})))

    @classmethod
    def vocabularies(cls, tokens: dict[str, Any]) -> tuple[Vocabulary, ...]:
        """Where the first model translates, also what it generates."""
        target = (from_tokens(tokens, "target"),) if "target" in tokens else ()
        return *super().vocabularies(tokens), *target

    def tokens(self) -> dict[str, Any]:
        names = (
            {"joint": self.source}
            if self.source is self.target
            else {"source": self.source, "target": self.target}
        )
        found = {name: vocabulary.to_json() for name, vocabulary in names.items()}
        return found | ({"outputs": asdict(self.lengths)} if self.lengths.longest else {})

    def texts(self, examples: Pairs) -> dict[str, tuple[Vocabulary, list[str]]]:
        source, target = [pair.source for pair in examples], [pair.target for pair in examples]
        return {"source": (self.source, source), "target": (self.target, target)}

    def build(self, builder: Builder) -> nn.Module:
        model = builder.make(Seq2Seq, len(self.source), len(self.target))
        if self.source is not self.target and model.shares_embedding:
            raise SaccadeError(
                "model.shared is true, and there are two vocabularies; set vocabulary.joint=true",
                code="vocabulary-not-joint",
            )
        return model

    def work(self, recipe: Recipe, train: Pairs, dev: Pairs, device: torch.device) -> Work:
        if recipe.training.dev_bleu or recipe.training.watch == "bleu":
            made = self.workers[1](self, recipe, train, dev, device)
        else:
            made = self.workers[0](self, recipe, train, dev, device)
            made.measures = ("loss",)
        self.lengths = OutputLengths.measure(made.lengths)
        return made

    def numbers(self, pairs: Pairs) -> list[Numbered]:
        sources = self.source.encode_ids([pair.source for pair in pairs])
        targets = self.target.encode_ids([pair.target for pair in pairs])
        eos = self.source.eos
        return [
            Numbered([*s, eos], t, pair, pair.line)
            for s, t, pair in zip(sources, targets, pairs, strict=True)
        ]

    def size(self, example: Numbered) -> tuple[int, int]:
        return len(example.source), len(example.target) + 1

    def misfit(self, example: Numbered, recipe: Recipe) -> tuple[str, str] | None:
        ratio, texts = recipe.data.max_ratio or 0, (example.pair.source, example.pair.target)
        if self.alike and lopsided((len(example.source) - 1, len(example.target)), texts, ratio):
            what = f"with one side more than {ratio:g} times as long as the other (data.max_ratio)"
            return (
                what,
                f"line {example.line} of the training data is a pair {what}; raise it, or remove the line",
            )
        return super().misfit(example, recipe)

    def batch(self, numbers: Sequence[Numbered], device: torch.device, multiple: int = 1) -> Batch:
        """Targets are read with <bos> in front of them, and asked for with <eos> behind them."""
        words = self.target
        source, lengths = pad([one.source for one in numbers], self.source.pad, multiple)
        target, sizes = pad([[*one.target, words.eos] for one in numbers], words.pad, multiple)
        read = target.roll(1, 1).masked_fill(
            torch.arange(target.shape[1]) >= sizes.unsqueeze(1), words.pad
        )
        read[:, 0] = words.bos
        source, lengths, read, target = on(device, source, lengths, read, target)
        return Batch(
            (source, lengths, read),
            target,
            words.pad,
            int(sizes.sum()),
            [one.line for one in numbers],
        )

    def inputs(self, given: Any) -> tuple[list[str], bool]:
        texts, alone = super().inputs(given)
        self.check_texts(texts)
        return texts, alone

    def check_texts(self, texts: Sequence[str], first: int = 1) -> None:
        """Each is to be a sentence: a whole book would take hours, and all memory."""
        for n, size in enumerate(map(len, texts), first):
            if size > LONGEST:
                raise SaccadeError(
                    f"line {n} has {size:,} characters, more than {LONGEST:,}; put one sentence on each line",
                    code="text-too-long",
                )

    def predict(
        self,
        model: nn.Module,
        texts: Sequence[str],
        budget: int = 3072,
        max_length: int | None = None,
        copy_unknown: bool = True,
        **options: Any,
    ) -> Iterator[tuple[int, Translated]]:
        """Translations as they come, each with the number of its text; texts of similar lengths, `budget` tokens of them, go together.
        Unknown words of an output are copied from the source, or stay."""
        model.eval()
        words, search = self.target, make_search(options)
        encoded = self.source_ids(texts)
        order = sorted(
            (n for n in range(len(texts)) if texts[n].strip()), key=lambda n: len(encoded[n])
        )
        for n in sorted(set(range(len(texts))) - set(order)):
            yield n, Translated("", 0.0, 0.0, [], True, [], texts[n])
        while order:
            # the longest of the next ones decides how many go together
            count = next(
                (k for k, n in enumerate(order) if k and (k + 1) * len(encoded[n]) > budget),
                len(order),
            )
            chosen, order = order[:count], order[count:]
            source, lengths = on(
                device_of(model), *pad([encoded[n] for n in chosen], self.source.pad)
            )
            started = search(words.bos, words.eos, self.never)
            limits = [max_length or self.lengths.limit(len(encoded[n])) for n in chosen]
            found = decode(model, source, lengths, started, limits)  # type: ignore[arg-type]
            given = [
                Numbered(encoded[n], one[0].tokens, Pair(texts[n], ""), 0)
                for n, one in zip(chosen, found, strict=True)
            ]
            yield from zip(chosen, self.spell(model, given, found, copy_unknown), strict=True)

    @property
    def never(self) -> tuple[int, ...]:
        """Tokens that no output has."""
        words = self.target
        return tuple({words.pad, words.bos} - {words.eos})

    def source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts to translate, each with its end."""
        return [[*ids, self.source.eos] for ids in self.source.encode_ids(list(texts))]

    def finish(
        self, model: nn.Module, text: str, ids: list[int], found: list[Hypothesis], **options: Any
    ) -> Translated:
        """The translation of a text from what a search found for its tokens."""
        given = [Numbered(ids, found[0].tokens, Pair(text, ""), 0)]
        return next(self.spell(model, given, [found], options.get("copy_unknown", True)))

    def spell(
        self,
        model: nn.Module,
        given: Sequence[Numbered],
        found: Sequence[list[Hypothesis]],
        copy_unknown: bool = True,
    ) -> Iterator[Translated]:
        """What was found for sources, the first of each being their targets, as text."""
        words = self.target
        copied = self.copy_unknown(model, given) if copy_unknown else [Copies() for _ in given]
        for one, hypotheses, copies in zip(given, found, copied, strict=True):
            best = hypotheses[0]
            text, *more = (words.decode(each.tokens, keep_unknown=True) for each in hypotheses)
            if copies:
                text = " ".join(
                    copies[at][0] if at in copies else words.token(id)
                    for at, id in enumerate(best.tokens)
                )
            links = tuple((word, at) for at, (_, word) in copies.items())
            yield Translated(
                text,
                best.log_prob,
                best.score,
                best.tokens,
                best.finished,
                more,
                one.pair.source,
                links,
            )

    @torch.no_grad()
    def copy_unknown(self, model: nn.Module, outputs: Sequence[Numbered]) -> list[Copies]:
        """For each output what replaces its unknown words: position → the source word looked at most and its number (Luong et al. 2015b)."""
        words: list[Copies] = [{} for _ in outputs]
        asked = [n for n, one in enumerate(outputs) if self.target.unk in one.target]
        if self.target.kind != "words" or not asked or not attends(model):
            return words
        weights = self.source_weights(
            model, self.batch([outputs[n] for n in asked], device_of(model))
        )
        for n, rows in zip(asked, weights, strict=True):
            text = outputs[n].pair.source
            source = self.source.encode(text)
            spelled = (
                source.pieces
                if self.source.kind == "words"
                else [text.split()[word] for word in source.words]
            )
            for position, id in enumerate(outputs[n].target):
                if id == self.target.unk and spelled:
                    most = int(rows[position, : len(spelled)].argmax())
                    words[n][position] = spelled[most], source.words[most]
        return words

    def source_weights(self, model: nn.Module, batch: Batch) -> NDArray[np.floating]:
        """The mean weights of all attention to the source while the batch's targets are generated: B T N."""
        with record(model, quiet=True) as seen:
            model(*batch.inputs)
        found = source_weights(seen).float()
        return stretch_weights(found, found.shape[-2], batch.inputs[0].shape[1]).cpu().numpy()

    @torch.no_grad()
    def align(self, model: nn.Module, pairs: Pairs, budget: int = 4096) -> list[Aligned]:
        """Where the model looks while it generates each pair's target, by all its attention to the source; links are between words,
        or characters on a side without spaces between words (gold links always count words)."""
        model.eval()
        free = [pair for pair in pairs if pair.alignment is None]
        scripts = (
            unspaced_script(pair.source for pair in free),
            unspaced_script(pair.target for pair in free),
        )
        found: dict[int, Aligned] = {}
        for indices, batch in self.batches(self.numbers(pairs), device_of(model), budget):
            for n, rows in zip(indices, self.source_weights(model, batch), strict=True):
                source = self.source.encode(pairs[n].source)
                target = self.target.encode(pairs[n].target)
                # the last row and column are <eos>
                weights = rows[: len(target.ids) + 1, : len(source.ids) + 1]
                found[n] = Aligned(
                    source, target, weights, word_links(weights, source, target, scripts)
                )
        return [found[n] for n in range(len(pairs))]

    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> Document:
        """All attention of a translation, its own or a given one, or one of them."""
        text = one_text(given)
        if target is None:
            most = MOST_SHOWN if len(text.split()) > MOST_SHOWN else None
            texts, _ = self.inputs(text)
            [(_, found)] = self.predict(model, texts, beam=how.get("beam", 1), max_length=most)
            target = found.text
        source, output = (
            [*side.label_text(one), "<eos>"]
            for side, one in ((self.source, text), (self.target, target))
        )
        batch = self.batch(self.numbers([Pair(text, target)]), device_of(model))
        sites = sites_between(model, batch.inputs, source, output, how.get("only"))
        return Document(text, text.split(), target.split(), sites)

    def count_tokens(self, given: Any, target: str = "") -> int:
        return 1 + max(
            len(self.source.encode_ids([given])[0]), len(self.target.encode_ids([target])[0])
        )

    def score(
        self, outputs: Sequence[str], pairs: Pairs, moses: str | None = None, tokenizer: str = "13a"
    ) -> Scores:
        return scores(outputs, [pair.target for pair in pairs], moses, tokenizer)

    def write(
        self, model: nn.Module, pairs: Pairs, **options: Any
    ) -> Iterator[tuple[int, Translated]]:
        return self.predict(model, [pair.source for pair in pairs], **options)

    def sums(
        self, outputs: Sequence[str], pairs: Pairs, tokenize: str = "", **_: Any
    ) -> dict[str, Any]:
        references = [pair.target for pair in pairs]
        tokenizer, _note = bleu_tokenizer(tokenize or self.tokenize, references)
        return text_sums(outputs, references, tokenizer)

    def judge(
        self,
        outputs: Sequence[str],
        pairs: Pairs,
        quarters: bool = False,
        moses: str | None = None,
        tokenize: str = "",
    ) -> dict[str, Any]:
        """BLEU, chrF and GLEU with their signatures, and BLEU by length quarter."""
        tokenizer, note = bleu_tokenizer(tokenize or self.tokenize, [pair.target for pair in pairs])
        found: dict[str, Any] = {**self.score(outputs, pairs, moses, tokenizer)}
        if note:
            found["bleu_tokenizer"] = f"{tokenizer} {note}"
        return found | ({"by_length": by_length(outputs, pairs, tokenizer)} if quarters else {})

    def evaluate(
        self, model: nn.Module, examples: Pairs, beam: int = 1, **options: Any
    ) -> dict[str, Any]:
        """The metrics of outputs, loss, and where there are gold links the alignment error rate, beside that of the diagonal."""
        found = super().evaluate(model, examples, beam, **options)
        gold = [pair for pair in examples if pair.alignment is not None]
        if gold and attends(model):
            predicted = [one.links for one in self.align(model, gold)]
            wanted = [(pair.alignment or (), pair.possible or ()) for pair in gold]
            diagonal = [
                diagonal_links(len(pair.source.split()), len(pair.target.split())) for pair in gold
            ]
            for name, guess in (("aer", predicted), ("aer_diagonal", diagonal)):
                found[name] = alignment_error_rate(guess, *zip(*wanted, strict=True))
        return found


def swap(pair: Pair) -> Pair:
    """The pair from its target to its source; tags are of the source alone, and go."""

    def turn(links: Links | None) -> Links | None:
        return None if links is None else tuple((j, i) for i, j in links)

    return Pair(pair.target, pair.source, pair.line, turn(pair.alignment), turn(pair.possible))
