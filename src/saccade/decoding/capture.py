"""Work captured as CUDA graphs and replayed."""

import warnings
from collections.abc import Callable
from typing import Any

import torch


class Captures:
    """Work captured as CUDA graphs, all in one pool of memory: no two of them run at the same time."""

    def __init__(self) -> None:
        self.refused: set[str] = set()  # what could not be captured, and is not tried again
        self.pool: Any = None

    def __call__(self, what: str, work: Callable[[], object]) -> Any:
        """The work as a graph, which has not run yet; None where it cannot be captured."""
        if what in self.refused:
            return None
        here, stream, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(here)
        try:
            with torch.cuda.stream(stream):  # `torch.cuda.graph` would also empty PyTorch's memory each time
                graph.capture_begin(pool=self.pool) if self.pool is not None else graph.capture_begin()
                try:
                    work()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            self.refused.add(what)
            why = (str(error).strip().splitlines() or [""])[0]
            warnings.warn(f"{what} cannot be captured as a CUDA graph ({why}); continuing kernel by kernel", stacklevel=2)
            return None
        here.wait_stream(stream)
        self.pool = graph.pool() if self.pool is None else self.pool
        return graph


captured = Captures()
