"""Work captured as CUDA graphs and replayed."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..core.cuda_graphs import pause_garbage_collection, reset_generators


class Captures:
    """CUDA graphs in one memory pool. No two of them run concurrently."""

    def __init__(self) -> None:
        # Work whose capture failed; it is not tried again.
        self.refused: set[str] = set()
        # A graph that is never freed, since a pool ends with its last graph.
        self.anchor: Any = None

    def __call__(self, what: str, work: Callable[[], object]) -> Any:
        """Captures work without running it. None if it cannot be captured."""
        if what in self.refused:
            return None
        try:
            if self.anchor is None:
                number = torch.zeros(1, device="cuda")
                self.anchor = capture(number.zero_, None)
            return capture(work, self.anchor.pool())
        except RuntimeError as error:
            self.refused.add(what)
            reset_generators(torch.device("cuda", torch.cuda.current_device()))
            why = (str(error).strip().splitlines() or [""])[0]
            warnings.warn(
                f"{what} cannot be captured as a CUDA graph ({why}); continuing kernel by kernel",
                stacklevel=2,
            )
            return None


def capture(work: Callable[[], object], pool: Any) -> Any:
    """Captures work in a memory pool. `torch.cuda.graph` would also empty PyTorch's cache."""
    here, stream, graph = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(here)
    # Another thread may prepare the next batch.
    how: dict[str, Any] = {"capture_error_mode": "thread_local"}
    with torch.cuda.stream(stream), pause_garbage_collection():
        graph.capture_begin(**how if pool is None else {"pool": pool, **how})
        try:
            work()
        finally:
            graph.capture_end()
    here.wait_stream(stream)
    return graph


captured = Captures()
