"""Language modelling: text as a stream of tokens in blocks, its perplexity, and going on with a text. B blocks, N tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from ..data.corpora import documents
from ..data.text import Document
from ..data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from ..decoding import Sample
from ..errors import SaccadeError
from ..models.kinds import CarryingLM
from ..recipe import LanguageRecipe, Recipe
from ..training.losses import token_loss
from .objectives import LanguageBatch, Objective, counted
from .objectives import table as objectives
from .stream import CarriedWork, Stream, StreamWork
from .task import Builder, Task, from_tokens, learned_vocabulary, table, to_tokens


@table.add("language-modelling", paper="Bengio et al. 2003; Radford et al. 2018", system="T2")
class LanguageModelling(Task):
    """What comes next in plain text, or what was hidden in it: the objective says which."""

    measures: ClassVar[dict[str, bool]] = {"loss": False, "perplexity": False}
    outcome: ClassVar[str] = "next"
    command: ClassVar[str] = 'generate {model} "Once upon a time"'

    def __init__(self, text: Vocabulary, how: LanguageRecipe, several: bool) -> None:
        self.text, self.how, self.several = text, how, several
        self.objective: Objective = objectives[how.objective](len(text), how)

    @property
    def reads(self) -> Vocabulary:
        """The vocabulary of what is read."""
        return self.text

    @property
    def lines_end(self) -> bool:
        """Whether <eos> stands for a line's end: words know no other sign for it."""
        return self.text.kind == "words"

    @classmethod
    def usage(cls, recipe: Recipe) -> str:
        return cls.command if recipe.language.objective == "causal" else "train my.yaml start_from={model}"

    @classmethod
    def read(cls, recipe: Recipe, where: str) -> list[Document]:
        return documents(where, recipe.data.options(where), recipe.data.documents)

    @classmethod
    def divide(cls, examples: list[Document], share: float) -> tuple[list[Document], list[Document]]:
        """Any documents; of a single one its end."""
        if len(examples) > 1:
            return super().divide(examples, share)
        text = examples[0].text
        cut = int((1 - share) * len(text))
        if not 0 < cut < len(text):
            raise SaccadeError("the text is too short to keep a part of it back; give more text, or data.dev")
        return [Document(text[:cut], 1)], [Document(text[cut:], 1 + text.count("\n", 0, cut))]

    @classmethod
    def learn(cls, recipe: Recipe, train: Sequence[Document], given: Vocabulary | None = None) -> Self:
        return cls(learned_vocabulary(recipe, (one.text for one in train), given), recipe.language, len(train) > 1)

    @classmethod
    def restore(cls, recipe: Recipe, tokens: dict[str, Any]) -> Self:
        return cls(from_tokens(tokens, "text"), recipe.language, bool(tokens["several"]))

    def tokens(self) -> dict[str, Any]:
        return {**to_tokens(text=self.text), "several": self.several}

    def texts(self, examples: Sequence[Document]) -> dict[str, tuple[Vocabulary, list[str]]]:
        return {"text": (self.text, [one.text[:100_000] for one in examples])}

    def build(self, builder: Builder) -> nn.Module:
        return self.objective.build(builder)

    def work(self, recipe: Recipe, train: Sequence[Document], dev: Sequence[Document], device: torch.device) -> StreamWork:
        if self.how.carry and self.how.objective != "causal":
            raise SaccadeError(f"language.carry is for the causal objective, this is {self.how.objective}; leave it out")
        if self.how.carry and (recipe.training.compile or distributed.is_initialized()):
            raise SaccadeError("language.carry is for one process and a model that is not compiled; leave it out")
        kind = CarriedWork if self.how.carry else StreamWork
        return kind(self, recipe, self.numbers(train), self.numbers(dev), device)

    def numbers(self, examples: Sequence[Document]) -> list[NDArray[np.int64]]:
        """Each document's tokens: <bos> … <eos> where there are several; between words <eos> stands for a line's end."""
        found = []
        for one in examples:
            ids = self.encode(one.text.removesuffix("\n") if self.several and self.lines_end else one.text)
            found.append(np.array([BOS, *ids, EOS] if self.several else ids, dtype=np.int64))
        return found

    def encode(self, text: str) -> list[int]:
        if not self.lines_end:
            return self.text.encode_ids([text])[0]
        found: list[int] = []
        for ids in self.text.encode_ids(text.split("\n")):
            found += [*ids, EOS]
        return found[:-1]  # nothing ends the last line: it is empty where the text ends in a line's end

    def loss(self, model: nn.Module, batch: LanguageBatch, smoothing: float = 0.0) -> Tensor:
        return self.objective.loss(model, batch, smoothing)

    @torch.no_grad()
    def figures(self, model: nn.Module, stream: Stream, budget: int, rows: int = 1) -> dict[str, float]:
        """Loss and perplexity a wanted token: every token of the stream once, in blocks one after another. A recurrent model
        carries its state through the whole stream, which is cut into `rows` read side by side."""
        model.eval()
        if isinstance(model, CarryingLM):
            total, tokens = self.carried(model, stream, rows)
        else:
            total, tokens = 0.0, 0
            starts, count = stream.starts(0), max(1, budget // self.how.block)
            for at in range(0, len(starts), count):
                batch = self.objective.batch(stream.blocks(starts[at : at + count], 0))
                total += float(self.loss(model, batch))
                tokens += batch.tokens
        loss = total / max(tokens, 1)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}

    def carried(self, model: nn.Module, stream: Stream, rows: int) -> tuple[float, int]:
        """The summed loss of a recurrent model that reads each row from its first token to its last, and the tokens counted."""
        size = -(-(len(stream.here) - 1) // rows)
        at = np.arange(rows)[:, None] * size + np.arange(size + 1)
        here = np.where(at < len(stream.here), stream.here[at.clip(max=len(stream.here) - 1)], PAD)
        ids, total = torch.from_numpy(here).to(stream.device), 0.0
        state = model.start(ids[:, :0], torch.zeros(rows, dtype=torch.long))  # type: ignore[operator]
        for begin in range(0, size, self.how.block):
            read, wanted = ids[:, begin : begin + self.how.block], ids[:, begin + 1 : begin + self.how.block + 1]
            logits, state = model.forward_from(read[:, : wanted.shape[1]], state)  # type: ignore[operator]
            total += float(token_loss(logits, wanted.masked_fill(wanted == BOS, PAD), PAD))
        return total, counted(here[:, 1:])

    def evaluate(self, model: nn.Module, examples: Sequence[Document], stride: int = 0) -> dict[str, Any]:
        """Loss, perplexity, and bits a character of a causal model; with a `stride`, a window slides by so many tokens, so that
        each is guessed from at least block − stride tokens before it."""
        stream = Stream(self.numbers(examples), self.how.block, self.several, 0, next(model.parameters()).device)
        if stride:
            self.check_stride(stride)
        characters = sum(len(one.text) for one in examples)
        found: dict[str, Any] = {"documents": len(examples), "characters": characters}
        found |= self.figures(model, stream, 16 * self.how.block)
        if self.how.objective == "causal":
            tokens, unknown = counted(stream.here[1:]), int((stream.here[1:] == UNK).sum())
            found["tokens"] = tokens
            if unknown:  # what stands behind an <unk> is never paid for, and bits a character would be too few
                found["unknown_tokens"] = unknown
            else:
                found["bits_per_character"] = found["loss"] * tokens / characters / math.log(2)
        if stride:
            found |= {f"sliding_{name}": value for name, value in self.sliding(model, stream, stride).items()}
            found["stride"] = stride
        return found

    def check_stride(self, stride: int) -> None:
        if self.several or self.how.objective != "causal":
            raise SaccadeError("a sliding window needs a causal model of one long text; leave out --stride")
        if not 1 <= stride <= self.how.block:
            raise SaccadeError(f"a stride of {stride}; give 1 to {self.how.block}, the tokens the model reads at once")

    @torch.no_grad()
    def sliding(self, model: nn.Module, stream: Stream, stride: int) -> dict[str, float]:
        """Loss and perplexity with a window that moves by `stride` tokens; of each window the new tokens count."""
        self.check_stride(stride)
        model.eval()
        total, ids, block = 0.0, stream.tokens, self.how.block
        for at in range(0, len(ids) - 1, stride):
            end = min(at + stride, len(ids) - 1)  # the tokens at+1 … end are new here
            begin = max(0, end - block)
            logits = model(ids[begin:end].unsqueeze(0))[0, at - begin :].float()
            total += float(nn.functional.cross_entropy(logits, ids[at + 1 : end + 1], reduction="sum"))
        loss = total / max(len(ids) - 1, 1)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700))}

    def generate(self, model: nn.Module, prompt: str, search: Sample, limit: int) -> Iterator[str]:
        """Goes on with a prompt, piece by piece, until <eos> ends a document or `limit` tokens are put out."""
        if self.how.objective != "causal":
            raise SaccadeError(
                f"a {self.how.objective} model does not go on with a text; train one with language.objective=causal"
            )
        model.eval()
        return self.going_on(model, self.begun(prompt), search, limit, Speller(self, not prompt or prompt[-1].isspace()))

    def going_on(self, model: nn.Module, ids: list[int], search: Sample, limit: int, shown: Speller) -> Iterator[str]:
        device = next(model.parameters()).device
        most = math.inf if isinstance(model, CarryingLM) else self.how.block  # a recurrent model reads on and on
        search.begin([limit], device)
        search.tokens = torch.tensor(ids[-1:], device=device)
        state, used = None, 0
        while search.active:
            with torch.inference_mode():
                if state is None or used >= most:  # what the model can read at once is full: go on from its second half
                    before = ids[:-1] if len(ids) <= most else ids[:-1][-max(self.how.block // 2, 1) :]
                    source = torch.tensor([before], dtype=torch.long, device=device)
                    state, used = model.start(source, torch.tensor([len(before)])), len(before)  # type: ignore[operator]
                logits, state = model.step(search.tokens, state)  # type: ignore[operator]
                search.advance(logits.float().log_softmax(-1))
            used += 1
            if search.finished[0]:
                break
            ids.append(search.outputs[0][-1])
            yield shown.add(ids[-1])
        yield shown.rest()

    @torch.no_grad()
    def look(self, model: nn.Module, text: str) -> tuple[list[str], str]:
        """Reads a text; its tokens, and the likeliest next one."""
        if self.how.objective != "causal":
            raise SaccadeError(
                f"a {self.how.objective} model has no text of its own to show; show one with language.objective=causal"
            )
        model.eval()
        ids = self.begun(text)[-self.how.block :]
        logits = model(torch.tensor([ids], device=next(model.parameters()).device))
        return [self.text.token(id) for id in ids], self.text.token(int(logits[0, -1].argmax()))

    def begun(self, prompt: str) -> list[int]:
        """The prompt's tokens; a prompt of nothing begins where a document or a line does."""
        ids = self.text.encode_ids([prompt])[0] if not self.lines_end else self.encode(prompt) if prompt else []
        if self.several:
            return [BOS, *ids]
        if ids:
            return ids
        newline = self.text.encode_ids(["\n"])[0]
        return [EOS] if self.lines_end else newline[-1:] or [UNK]


class Speller:
    """Tokens to text as they come; bytes that are no whole character yet wait for the next ones. No space stands where it `begins`."""

    def __init__(self, task: LanguageModelling, begins: bool = True) -> None:
        self.task, self.waiting, self.begins = task, list[int](), begins

    def add(self, id: int) -> str:
        self.waiting.append(id)
        text = self.text()
        return "" if text.endswith("\ufffd") and len(self.waiting) < 8 else self.said(text)

    def text(self) -> str:
        if not self.task.lines_end:
            return self.task.text.decode_more(self.waiting)
        return "".join("\n" if id == EOS else " " + self.task.text.decode([id], keep_unknown=True) for id in self.waiting)

    def said(self, text: str) -> str:
        shown = text.removeprefix(" ") if self.begins and (self.task.several or self.task.lines_end) else text
        self.waiting, self.begins = [], text.endswith("\n") if self.task.lines_end else self.begins and not text
        return shown

    def rest(self) -> str:
        return self.said(self.text()) if self.waiting else ""
