"""Opening and closing records. Kept cheap, since records are opened for single calls too.

There is one walk through the model and no generator. Foreign functions are intercepted only if the model has attention outside of sites.
"""

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

# Interceptors of foreign attention: core/intercepts.py, interop/huggingface.py.
listeners: list[Callable[[nn.Module, Seen, Sequence[nn.Module]], AbstractContextManager[None]]] = []
NOTHING_SEEN = (
    "no attention was seen: inside the `with`, the model called none of saccade.attend, F.scaled_dot_product_attention, "
    "nn.MultiheadAttention and Hugging Face's attention functions; run it inside, or see docs/foreign-models.md for what cannot be seen"
)


@cache
def is_own(kind: type[nn.Module]) -> bool:
    """Whether all attention of a module class goes through a Site."""
    other = issubclass(kind, nn.MultiheadAttention | nn.TransformerEncoderLayer)
    homes = ("saccade.", "torch.nn.modules.", "torch._dynamo")
    return issubclass(kind, Site) or (kind.__module__.startswith(homes) and not other)


class Record:
    """Context manager: records a model between `__enter__` and `__exit__`."""

    listening: ExitStack | None = None

    def __init__(self, model: nn.Module, quiet: bool) -> None:
        self.model, self.quiet = model, quiet

    def __enter__(self) -> Seen:
        if not isinstance(self.model, nn.Module):
            raise SaccadeError(
                f"expected a model or a layer, got {type(self.model).__name__}", code="not-a-module"
            )
        modules = paths_in(self.model)
        found, seen = sites_of(modules), Seen()
        if [site for site in found.values() if site.tape is not None]:
            raise SaccadeError(
                "a record of this model is already open; close it first", code="record-already-open"
            )
        self.found, self.seen = found, seen
        for name, site in found.items():
            # `list[Look]()` and `site.tape =` would take longer than everything else here.
            tape: list[Look] = []
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
        del self.found, self.seen
        self.listening = None
        try:
            if listening is not None:
                listening.__exit__(kind, error, trace)
        finally:
            for site in found.values():
                # `= None` would make torch.compile build a third version.
                object.__delattr__(site, "tape")
        if kind is None and not seen and not self.quiet:
            warnings.warn(NOTHING_SEEN, stacklevel=2)


def record(model: nn.Module, quiet: bool = False) -> Record:
    """Records every attention of a model inside the `with`, in layers of other libraries too.

    Args:
        model: A model or a layer.
        quiet: Do not warn if no attention was seen.

    Returns:
        A context manager that gives a mapping from module paths to recorded calls. Read their weights at any time.

    >>> import torch
    >>> from saccade import MultiHeadAttention
    >>> from saccade.core import record
    >>> layer = MultiHeadAttention(8, heads=2)
    >>> with record(layer) as seen:
    ...     output = layer(torch.randn(1, 5, 8))
    >>> seen["attention"].weights().shape
    torch.Size([1, 2, 5, 5])
    """
    return Record(model, quiet)
