"""Language modelling: text as a stream of tokens in blocks, its perplexity, and the continuation of a text. B blocks, N tokens."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn

from ..data.batches import on
from ..data.corpora import DOCUMENTS
from ..data.documents import Document
from ..data.vocabulary import Vocabulary
from ..decoding import Sample, SlidingWindow, decode, steps
from ..errors import SaccadeError
from ..models.builder import Builder
from ..models.protocols import Carrying, CarryingLM, Seq2Seq
from ..models.transformer_xl import MAX_MEMORY, TransformerXL
from ..recipe import LanguageRecipe, Recipe
from ..training.losses import token_loss
from ..views.answers import Generated
from ..views.document import Document as View
from .attention_sites import Read, attention_of_reading, sites_between
from .objectives import HIDDEN, Objective
from .objectives import table as objectives
from .search_options import SAMPLING, Option, sampling
from .task import (
    HELD_OUT,
    Each,
    Task,
    device_of,
    from_tokens,
    learn_vocabulary,
    one_text,
    sum_loss,
    table,
)
from .token_stream import CarriedWork, Stream, StreamWork


@table.add("language-modelling", paper="Bengio et al. 2003; Radford et al. 2018")
class LanguageModelling(Task):
    """What comes next in plain text, or what was hidden in it, by the objective."""

    data = DOCUMENTS
    settings = (*Task.settings, "language", "data.documents")
    measures: ClassVar[dict[str, bool]] = {"loss": False, "perplexity": False}
    options: ClassVar[dict[str, Callable[[Any], object]]] = {"stride": int, "memory": int}
    command: ClassVar[str] = 'generate {model} "Once upon a time"'
    method: ClassVar[str] = 'm.generate("Once upon a time")'
    verbs, fields, by_token = ("generate",), ("prompt",), True
    routes: tuple[str, ...] = ("generate",)
    answers = ("text", "tokens", "finished")
    predict_options: ClassVar[dict[str, Option]] = {
        "limit": Option(int, "the largest number of tokens", 1, 1_000_000),
        **SAMPLING,
    }
    example_types = (Document,)

    def __init__(self, text: Vocabulary, how: LanguageRecipe, several: bool) -> None:
        self.text, self.reads, self.how, self.several = text, text, how, several
        self.objective: Objective = objectives[how.objective](text, how)
        self.needs, self.outcome = self.objective.needs, self.objective.outcome
        # <eos> is a line's end: words have no other sign for it
        self.lines_end = text.kind == "words"
        self.routes = ("generate",) if how.objective == "causal" else ()

    @classmethod
    def needs_of(cls, values: Mapping[str, Any]) -> type[Any]:
        needs: type[Any] = objectives[values.get("language", {}).get("objective", "causal")].needs
        return needs

    @classmethod
    def usage(cls, recipe: Recipe) -> str:
        return (
            cls.command
            if recipe.language.objective == "causal"
            else "train my.yaml start_from={model}"
        )

    @classmethod
    def call(cls, recipe: Recipe) -> str:
        causal = recipe.language.objective == "causal"
        return cls.method if causal else 'saccade.fit({"start_from": "its folder", …}, "runs/new")'

    @classmethod
    def reading(cls, recipe: Recipe) -> tuple[str, ...]:
        return (recipe.data.documents,)

    @classmethod
    def divide(
        cls, examples: list[Document], share: float
    ) -> tuple[list[Document], list[Document]]:
        """Any documents; of a single one its end."""
        if len(examples) > 1:
            return super().divide(examples, share)
        text = examples[0].text
        cut = int((1 - (share or HELD_OUT)) * len(text))
        if not 0 < cut < len(text):
            raise SaccadeError(
                "the text is too short to hold a part of it out; give more text, or data.dev",
                code="text-too-short",
            )
        return [Document(text[:cut], 1)], [Document(text[cut:], 1 + text.count("\n", 0, cut))]

    @classmethod
    def learn(
        cls, recipe: Recipe, train: Sequence[Document], given: Vocabulary | None = None
    ) -> Self:
        return cls(
            learn_vocabulary(recipe, (one.text for one in train), given),
            recipe.language,
            len(train) > 1,
        )

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(from_tokens(tokens, "text"), recipe.language, bool(tokens["several"]))

    def tokens(self) -> dict[str, Any]:
        return {"text": self.text.to_json(), "several": self.several}

    def texts(self, examples: Sequence[Document]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {"text": (self.text, [one.text[:100_000] for one in examples])}

    def build(self, builder: Builder) -> nn.Module:
        return self.objective.build(builder)

    def work(
        self,
        recipe: Recipe,
        train: Sequence[Document],
        dev: Sequence[Document],
        device: torch.device,
    ) -> StreamWork:
        if self.how.carry and (recipe.training.compile is True or distributed.is_initialized()):
            raise SaccadeError(
                "language.carry is for one process and a model that is not compiled; leave it out",
                code="carry-not-supported",
            )
        return (CarriedWork if self.how.carry else StreamWork)(self, recipe, train, dev, device)

    def stream(self, examples: Sequence[Document], seed: int, device: torch.device) -> Stream:
        stream = Stream(
            self.numbers(examples), self.how.block, self.several, seed, device, self.text.pad
        )
        lines = [one.line for one in examples]
        # documents of several files are counted
        stream.lines = lines if lines == sorted(set(lines)) else stream.lines
        return stream

    def numbers(self, examples: Sequence[Document]) -> list[NDArray[np.int64]]:
        """Each document's tokens: <bos> … <eos> where there are several; between words <eos> is a line's end."""
        if not self.several:
            return [np.array(self.encode(one.text), dtype=np.int64) for one in examples]
        texts = (one.text.removesuffix("\n") if self.lines_end else one.text for one in examples)
        return [
            np.array([self.text.bos, *self.encode(text), self.text.eos], dtype=np.int64)
            for text in texts
        ]

    def encode(self, text: str) -> list[int]:
        if not self.lines_end:
            return self.text.encode_ids([text])[0]
        found = [
            id for ids in self.text.encode_ids(text.split("\n")) for id in (*ids, self.text.eos)
        ]
        # nothing ends the last line: it is empty where the text ends in a line's end
        return found[:-1]

    @torch.no_grad()
    def metrics(
        self, model: nn.Module, stream: Stream, budget: int, rows: int = 1
    ) -> dict[str, float]:
        """Loss and perplexity per asked token, in blocks; a model with a state carries it through `rows` read side by side."""
        if isinstance(model, Carrying):
            return loss_and_perplexity(*np.sum(self.read_rows(model.eval(), stream, rows), 0))
        starts, count = stream.starts(0), max(1, budget // self.how.block)
        groups = (starts[at : at + count] for at in range(0, len(starts), count))
        return loss_and_perplexity(
            *sum_loss(model, (self.objective.batch(stream.blocks(group, 0)) for group in groups))
        )

    def read_rows(self, model: Carrying, stream: Stream, rows: int) -> list[tuple[float, int]]:
        """The summed losses of a model that reads each row from its first block to its last, and the tokens counted, by block."""
        starts, found = stream.starts(0), []
        rows = min(rows, len(starts))
        steps = -(-len(starts) // rows)
        starts += [len(stream.here)] * (rows * steps - len(starts))  # nothing but padding
        state = model.start(stream.tokens.new_zeros(rows, 0), torch.zeros(rows, dtype=torch.long))
        for step in range(steps):
            batch = self.objective.batch(stream.blocks(starts[step::steps], 0))
            logits, state = model.forward_from(*batch.inputs, state)
            found.append((float(token_loss(logits, batch.target, batch.ignore)), batch.tokens))
        return found

    @torch.no_grad()
    def per_example(self, model: nn.Module, examples: Sequence[Document], **options: Any) -> Each:
        """Loss and tokens of each block."""
        stream = self.stream(examples, 0, device_of(model))
        if isinstance(model, Carrying):
            found = self.read_rows(model.eval(), stream, 1)
        else:
            blocks = (stream.blocks([start], 0) for start in stream.starts(0))
            found = [sum_loss(model, [self.objective.batch(block)]) for block in blocks]
        sums = np.array(found, dtype=np.float64)
        return Each(
            [], {"perplexity": (sums, lambda total: loss_and_perplexity(*total)["perplexity"])}
        )

    def samples(self, model: nn.Module, examples: Sequence[Document]) -> list[tuple[str, str, str]]:
        """A few beginnings cut out of the texts, how each continues there, and how the model continues it."""
        causal, each = self.how.objective == "causal", -(-4 // max(len(examples), 1))
        rows = []
        for text, part in (
            (one.text, part)
            for one in examples
            for part in range(each)
            if causal and one.text.strip()
        ):
            at = text.find(" ", part * len(text) // each) + 1 if part else 0
            begin, there = text[at : at + 80], text[at + 80 : at + 200]
            rows.append((begin, there, "".join(self.generate(model, begin, 40, {"seed": 0}))))
        return rows

    def evaluate(
        self, model: nn.Module, examples: Sequence[Document], stride: int = 0, memory: int = 0
    ) -> dict[str, Any]:
        """Loss, perplexity, the loss of a unigram model, and bits per character of a causal model; with a `stride`, also of a window that
        moves by so many tokens, and with a `memory`, also of a Transformer-XL that remembers so many positions instead of those of its training."""
        stream = self.stream(examples, 0, device_of(model))
        if stride and (self.several or self.how.objective != "causal"):
            wrong = "a sliding window needs a causal model of one long text; leave out"
            raise SaccadeError(
                f"{wrong} stride", shell=f"{wrong} --stride", code="stride-without-effect"
            )
        if stride and not 1 <= stride <= self.how.block:
            raise SaccadeError(
                f"a stride of {stride}; give 1 to {self.how.block}, the tokens the model reads at once",
                code="out-of-range",
            )
        if memory and not (isinstance(model, TransformerXL) and 1 <= memory <= MAX_MEMORY):
            wrong = f"a memory of {memory}; give 1 to {MAX_MEMORY:,} to a model of the family transformer-xl, or leave out"
            raise SaccadeError(
                f"{wrong} memory", shell=f"{wrong} --memory", code="memory-without-effect"
            )
        characters = sum(len(one.text) for one in examples)
        found: dict[str, Any] = {"documents": len(examples), "characters": characters}
        found |= self.metrics(model, stream, 16 * self.how.block)
        found["unigram_loss"] = self.unigram_loss(stream)
        if self.how.objective == "causal":
            found["tokens"] = self.objective.count(stream.here[1:])
            unknown = int((stream.here[1:] == self.text.unk).sum())
            if unknown:  # the loss does not cover the characters behind an <unk>, and bits per character would be too few
                found["unknown_tokens"] = unknown
            else:
                found["bits_per_character"] = (
                    found["loss"] * found["tokens"] / characters / math.log(2)
                )
        if stride:
            found |= {
                f"sliding_{name}": value
                for name, value in self.slide(model, stream, stride).items()
            }
            found["stride"] = stride
        if isinstance(model, TransformerXL) and memory:
            before, model.memory = model.memory, memory
            try:
                found |= {
                    f"memory_{name}": value
                    for name, value in self.metrics(model, stream, 0).items()
                }
            finally:
                model.memory = before
            found["memory"] = memory
        return found

    @torch.no_grad()
    def slide(self, model: nn.Module, stream: Stream, stride: int) -> dict[str, float]:
        """Loss and perplexity with a window that moves by `stride` tokens; of each window the new tokens count."""
        model.eval()
        total, ids, block = 0.0, stream.tokens, self.how.block
        for at in range(0, len(ids) - 1, stride):
            end = min(at + stride, len(ids) - 1)  # the tokens at+1 … end are new here
            begin = max(0, end - block)
            logits = model(ids[begin:end].unsqueeze(0))[0, at - begin :].float()
            total += float(
                nn.functional.cross_entropy(logits, ids[at + 1 : end + 1], reduction="sum")
            )
        return loss_and_perplexity(total, len(ids) - 1)

    def unigram_loss(self, stream: Stream) -> float:
        """−Σ p log p, p the share of each token among those asked for in this very text: no model that knows nothing else has a lower loss."""
        counts = np.zeros(len(self.text) + self.objective.extra, np.int64)
        for start in stream.starts(0):
            batch = self.objective.batch(stream.blocks([start], 0))
            counts += np.bincount(
                batch.target[batch.target != batch.ignore].cpu().numpy(), minlength=len(counts)
            )
        shares = counts[counts > 0] / max(counts.sum(), 1)
        return float(-(shares * np.log(shares)).sum())

    def check_causal(self, what: str) -> None:
        if self.how.objective != "causal":
            raise SaccadeError(
                f"a model with the {self.how.objective} objective {what}; use one with language.objective=causal",
                code="wrong-objective",
            )

    def predict(
        self,
        model: nn.Module,
        prompts: Sequence[str],
        limit: int = 200,
        sample: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Iterator[tuple[int, Generated]]:
        """What follows each prompt, piece by piece; `saccade.decoding.Sample` has the options of sampling."""
        chosen = sampling(sample, how) or {}
        for n, prompt in enumerate(prompts):
            yield n, Generated(prompt, self.generate(model, prompt, limit, chosen))

    def generate(
        self, model: nn.Module, prompt: str, limit: int, sample: Mapping[str, Any]
    ) -> Iterator[str]:
        """Continues a prompt, piece by piece, until <eos> ends a document or `limit` tokens are generated."""
        model.eval()
        ids, search, device = *self.begin(prompt, sample), device_of(model)
        reader = model if isinstance(model, CarryingLM) else SlidingWindow(model, self.how.block)
        before = torch.tensor([ids], dtype=torch.long, device=device)
        decided = steps(reader, before, torch.tensor([len(ids)]), search, [limit])
        return self.spell(prompt, (step[0] for step in decided if step))

    def begin(self, prompt: str, sample: Mapping[str, Any]) -> tuple[list[int], Sample]:
        """The tokens of a prompt but its last, and the search that begins with the last."""
        self.check_causal("cannot continue a text")
        text, ids = self.text, self.encode_prompt(prompt)
        never = {text.pad, text.bos, text.unk, text.eos} - (
            {text.eos} if self.several or self.lines_end else set()
        )
        end = text.eos if self.several else -1  # in one long text <eos> ends a line at most
        return ids[:-1], Sample(ids[-1], end, tuple(never), **sample)

    def spell(self, prompt: str, tokens: Iterable[int]) -> Iterator[str]:
        """The pieces of text that tokens add to a prompt, one per token and one for what is left."""
        return spell(self, tokens, not prompt or prompt[-1].isspace())

    @torch.no_grad()
    def attention(self, model: nn.Module, given: Any, target: Any = None, **how: Any) -> View:
        """All attention while a text is read, or while the decoder of a denoising model fills what is hidden."""
        self.refuse_target(target)
        text = one_text(given)
        if self.needs is Seq2Seq:
            return self.denoising(model, text, how.get("only"))
        read: Callable[[str], Read] = lambda text: (*self.read_text(model, text), [])
        return attention_of_reading(model, text, read, self.outcome, how.get("only"))

    def count_tokens(self, given: Any, target: str = "") -> int:
        return min(super().count_tokens(given), self.how.block)

    def denoising(self, model: nn.Module, text: str, only: str | None) -> View:
        """What is generated for each <mask> of a text, or after its end without one, and all attention meanwhile."""
        words, device = self.text, device_of(model)
        ids, _ = self.encode_hidden(text if HIDDEN in text else text + HIDDEN)
        source = torch.tensor([ids], device=device)
        lengths = torch.tensor([len(ids)], device=device)
        search = Sample(words.bos, words.eos, (words.pad, words.bos), 0.0)
        output = decode(model.eval(), source, lengths, search, [self.how.block])[0][0].tokens  # type: ignore[arg-type]
        names, target = self.names(ids), [*self.names(output), "<eos>"]
        inputs = source, lengths, torch.tensor([[words.bos, *output]], device=device)
        sites = sites_between(model, inputs, names, target, only)
        return View(text, names, target[:-1], sites, called=("text", self.outcome))

    def read_text(self, model: nn.Module, text: str) -> tuple[list[str], str]:
        """A text's tokens, and the likeliest next one, or what a model that was trained to find it says instead of each <mask>."""
        ids, hidden = self.encode_hidden(text)
        inputs, shown = self.objective.reading(ids, hidden)
        logits = model.eval()(*on(device_of(model), *inputs))[0]
        if self.how.objective == "masked":
            logits = logits[hidden]
        named = self.text.labels(
            int(row[: len(self.text)].argmax()) for row in logits[-max(len(hidden), 1) :]
        )
        return self.names(ids, hidden) + shown, " ".join(named) if len(logits) else "nothing"

    def names(self, ids: Sequence[int], hidden: Collection[int] = ()) -> list[str]:
        """The labels of tokens; those at the positions of `hidden`, and the marks of spans that were cut out, are <mask>."""
        masks = {at for at, id in enumerate(ids) if at in hidden or id >= len(self.text)}
        known = iter(self.text.labels(id for at, id in enumerate(ids) if at not in masks))
        return [HIDDEN if at in masks else next(known) for at in range(len(ids))]

    def encode_hidden(self, text: str) -> tuple[list[int], list[int]]:
        """A text's tokens, at most a block of them, and where a <mask> hides one; a causal model knows no masks."""
        if self.how.objective == "causal":
            return self.encode_prompt(text)[-self.how.block :], []
        parts = [self.encode(part) if part else [] for part in text.split(HIDDEN)]
        ids = [self.text.bos] * self.several + parts[0]
        hidden = []
        for part in parts[1:]:
            hidden.append(len(ids))
            ids += [self.objective.hidden(len(hidden) - 1), *part]
        if len(ids) > self.how.block:
            raise SaccadeError(
                f"the text has {len(ids)} tokens, and the model reads {self.how.block} at once; shorten it",
                code="text-too-long",
            )
        return ids, hidden

    def encode_prompt(self, prompt: str) -> list[int]:
        """The prompt's tokens; an empty prompt begins where a document or a line does."""
        ids = self.encode(prompt) if prompt else []
        if self.several:
            return [self.text.bos, *ids]
        newline = [self.text.eos] if self.lines_end else self.text.encode_ids(["\n"])[0][-1:]
        return ids or newline or [self.text.unk]


def loss_and_perplexity(total: float, tokens: int) -> dict[str, float]:
    loss = total / max(tokens, 1)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700))}


def spell(task: LanguageModelling, tokens: Iterable[int], begins: bool = True) -> Iterator[str]:
    """The text of tokens as they come, without a space where it `begins`; bytes that are not a whole character yet wait for more."""
    words, waiting = task.text, list[int]()
    for token in chain(tokens, [None]):
        if token is not None:
            waiting.append(token)
        text = words.decode_more(waiting)
        if task.lines_end:
            text = "".join(
                "\n" if id == words.eos else " " + words.decode([id], keep_unknown=True)
                for id in waiting
            )
        if token is not None and text.endswith("\ufffd") and len(waiting) < 8:
            yield ""
            continue
        yield text.removeprefix(" ") if begins and (task.several or task.lines_end) else text
        begins, waiting = text.endswith("\n") if task.lines_end else begins and not text, []
