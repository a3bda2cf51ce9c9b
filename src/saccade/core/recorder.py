"""`record`: opening and closing a record. It is opened for single calls of single layers too, so little is done here: no generator, one walk
through the model, and nobody listens to a model all of whose attention passes saccade's sites."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from types import TracebackType

from torch import nn

from ..errors import SaccadeError
from .record import Look, Looks, Seen, Site, paths_in, sites_of

# What else listens to a model while a record of it is open, and adds to what is seen: core/intercepts.py, huggingface.py
listeners: list[Callable[[nn.Module, Seen, Sequence[nn.Module]], AbstractContextManager[None]]] = []
NOTHING_SEEN = (
    "no attention was seen: inside the `with`, the model called none of saccade.attend, F.scaled_dot_product_attention, "
    "nn.MultiheadAttention and Hugging Face's attention functions; run it inside, or see docs/foreign-models.md for what cannot be seen"
)


@cache
def is_own(kind: type[nn.Module]) -> bool:
    """Whether all attention of a module of this class by itself passes a Site."""
    other = issubclass(kind, nn.MultiheadAttention | nn.TransformerEncoderLayer)
    homes = ("saccade.", "torch.nn.modules.", "torch._dynamo")
    return issubclass(kind, Site) or (kind.__module__.startswith(homes) and not other)


class Record:
    """A record of a model, open from `__enter__` to `__exit__`."""

    listening: ExitStack | None = None

    def __init__(self, model: nn.Module, quiet: bool) -> None:
        self.model, self.quiet = model, quiet

    def __enter__(self) -> Seen:
        if not isinstance(self.model, nn.Module):
            raise SaccadeError(f"expected a model or a layer, got {type(self.model).__name__}")
        modules = paths_in(self.model)
        found, seen = sites_of(modules), Seen()
        if [site for site in found.values() if site.tape is not None]:
            raise SaccadeError("a record of this model is already open; close it first")
        self.found, self.seen = found, seen
        for name, site in found.items():
            tape: list[Look] = []  # not `list[Look]()`, which takes longer than all else here
            # a module would first look for it among its parameters
            object.__setattr__(site, "tape", tape)
            seen[name] = Looks(name, site.cross, tape)
        if not all(map(is_own, set(map(type, modules)))):
            self.listen(list(modules))
        return seen

    def listen(self, modules: list[nn.Module]) -> None:
        self.listening = stack = ExitStack()
        try:
            for listen in listeners:
                stack.enter_context(listen(self.model, self.seen, modules))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        found, seen, listening = self.found, self.seen, self.listening
        del self.found, self.seen  # what was seen lives as long as whoever reads it
        self.listening = None
        try:
            if listening is not None:
                listening.__exit__(kind, error, trace)
        finally:
            for site in found.values():
                # not `= None`, which would be a third version to torch.compile
                object.__delattr__(site, "tape")
        if kind is None and not seen and not self.quiet:
            warnings.warn(NOTHING_SEEN, stacklevel=2)


def record(model: nn.Module, quiet: bool = False) -> Record:
    """Within the `with`, every attention of the model keeps q and k, also in layers that are not saccade's; it can be read afterwards.
    A record that saw nothing warns, unless it is `quiet`."""
    return Record(model, quiet)
