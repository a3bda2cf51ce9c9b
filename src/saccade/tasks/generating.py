"""What tasks share whose answers are generated texts: their search, outputs on examples, and BLEU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import nn

from ..decoding import searcher
from .search_options import SEARCH, Option, OutputLengths, check_length, make_search
from .task import Each, ExampleTask


class Generating(ExampleTask):
    """A task whose model generates a text for each example."""

    measures: ClassVar[dict[str, bool]] = {"loss": False, "bleu": True}
    options: ClassVar[dict[str, Callable[[Any], object]]] = {
        "beam": searcher,
        "max_length": check_length,
        "length_penalty": partial(searcher, 2),
    }
    predict_options: ClassVar[dict[str, Option]] = SEARCH
    answers: ClassVar[tuple[str, ...]] = ("text", "log_prob", "finished", "alternatives")
    counted: ClassVar[str]  # what an evaluation counts
    judged_tokens: ClassVar[int]  # tokens of a batch whose loss is measured
    lengths: OutputLengths
    # What is generated for examples, each with its number, `text` and whether it is `finished`.
    write: Callable[..., Iterator[tuple[int, Any]]]
    # The metrics of outputs; what they add up from; and the input and a reference of an example, for people.
    judge: Callable[..., dict[str, Any]]
    sums: Callable[..., dict[str, Any]]
    shown: Callable[[Any], tuple[str, str]]

    @classmethod
    def check_predict(cls, options: Mapping[str, Any]) -> None:
        super().check_predict(options)
        make_search(options)

    def outputs(
        self, model: nn.Module, examples: Sequence[Any], **search: Any
    ) -> tuple[list[str], int]:
        """The model's own texts, and how many of them were cut at the length limit."""
        found = dict(self.write(model, examples, **search))
        texts = [found[n].text for n in range(len(examples))]
        return texts, sum(not one.finished for one in found.values())

    def split(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The options of an evaluation that are for the search, and the others."""
        known = self.predict_options
        search = {name: value for name, value in options.items() if name in known}
        return search, {name: value for name, value in options.items() if name not in known}

    def per_example(self, model: nn.Module, examples: Sequence[Any], **options: Any) -> Each:
        search, how = self.split(options)
        outputs, _ = self.outputs(model, examples, **search)
        rows = [(*self.shown(one), text) for one, text in zip(examples, outputs, strict=True)]
        return Each(rows, self.sums(outputs, examples, **how))

    def evaluate(
        self, model: nn.Module, examples: Sequence[Any], beam: int = 1, **options: Any
    ) -> dict[str, Any]:
        """The metrics of the model's own texts, and its loss on the references."""
        search, how = self.split(options)
        outputs, cut = self.outputs(model, examples, beam=beam, **search)
        found = {self.counted: len(examples), "beam": beam, **self.judge(outputs, examples, **how)}
        if cut:
            found["cut_outputs"] = cut
        return found | self.metrics(model, self.numbers(examples), self.judged_tokens)
