"""What a pass over a text costs: seconds, bytes, how both grow with its length; paths and steps counted on live models."""

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .. import models
from ..models.builder import Builder
from ..models.protocols import CarryingLM, Encoder
from ..training.cost import synchronized_time
from .study import Values

MEMORY_SHARE = 0.6  # of what is free, that a pass may take
SEGMENT = 512  # tokens that a model with a state reads at once


def too_much(
    length: int,
    seconds: dict[int, float],
    memory: dict[int, float],
    device: torch.device,
    most: float,
) -> str:
    """Why a longer text is not tried: what it would take, if it grows as it did from the last but one to the last."""
    if len(seconds) < 2:
        return ""
    grown: Callable[[float, float], float] = lambda last, before: (
        last * max(last / max(before, 1e-12), 1.5)
    )
    soon, large = (grown(*list(values.values())[:-3:-1]) for values in (seconds, memory))
    if soon > most:
        return f"{length:,} tokens would take about {soon:.0f} s"
    there = (
        os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if device.type == "cpu"
        else torch.cuda.mem_get_info()[0]
    )
    return (
        f"{length:,} tokens would take about {large / 2**30:.0f} GiB"
        if large > MEMORY_SHARE * there
        else ""
    )


def cost_of_pass(
    settings: Values, length: int, device: torch.device, texts: int = 1
) -> tuple[float, float]:
    """Seconds (the best of a few) and the peak of bytes of a forward and backward pass over texts of a length."""
    torch.manual_seed(0)
    carries = not is_encoder(settings)
    model: Any = Builder(settings).make(CarryingLM if carries else Encoder, 256).to(device).train()
    tokens = torch.randint(4, 256, (texts, length), device=device)
    lengths = torch.full((texts,), length, device=device)

    def once() -> None:
        model.zero_grad(set_to_none=True)
        state = model.start(tokens[:, :0], lengths * 0) if carries else None
        for piece in tokens.split(SEGMENT, 1) if carries else (tokens,):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                out, state = (
                    model.forward_from(piece, state) if carries else (model(piece, lengths), None)
                )
            out.float().square().mean().backward()

    once()  # libraries set themselves up, kernels are compiled
    peak = peak_of(once, device)
    taken = list[float]()
    while len(taken) < 3 and sum(taken) < 2.0:
        start = synchronized_time()
        once()
        taken.append(synchronized_time() - start)
    return min(taken), peak


def is_encoder(settings: Values) -> bool:
    """Whether a family gives a vector per token; one that does not reads its text in segments, and carries a state."""
    return models.table[settings["family"]].build(Encoder) is not None


def peak_of(once: Any, device: torch.device) -> float:
    """The most bytes that tensors had at a time, besides what there was before."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        once()
        return float(torch.cuda.max_memory_allocated() - before)
    with Allocated() as seen:
        once()
    return float(seen.most)


class Allocated(TorchDispatchMode):
    """Counts the bytes of the tensors that operations make within the `with`, until they are freed; `most` at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.there, self.most = dict[int, int](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if (
                isinstance(one, Tensor)
                and (key := (storage := one.untyped_storage())._cdata) not in self.there
            ):
                self.there[key] = storage.nbytes()
                weakref.finalize(storage, self.there.pop, key, None)
        self.most = max(self.most, sum(self.there.values()))
        return out


def exponent(values: Mapping[int, float], lengths: set[int]) -> float:
    """The slope of a line through the logarithms, by least squares."""
    x, y = np.log([(length, max(values[length], 1e-12)) for length in sorted(lengths)]).T
    return float(np.polyfit(x, y, 1)[0])


def follow_paths(settings: Values, length: int) -> Values:
    """On live models: how many layers it takes until the last output has a gradient at the first input, and whether the longest chain of
    operations that wait for one another grows with the length. Nothing of a model whose gradients end where a segment begins."""
    if not is_encoder(settings):
        return {}
    depth, step = 0, 1
    deep: Callable[[int], Values] = lambda layers: {**settings, "depth": layers}
    while not reaches(deep(depth + step), length):
        depth, step = depth + step, 2 * step
        if depth > 4 * length:
            return {"layers": "none"}
    low, high = depth, depth + step  # it does not reach with `low` layers
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(deep(middle), length) else (middle, high)
    short, long = (
        longest_chain(run_small(settings, size)[0].grad_fn) for size in (length // 4, length // 2)
    )
    return {"layers": high, "sequential": "n" if long > short else "1", "chain": [short, long]}


def run_small(settings: Values, length: int) -> tuple[Tensor, Tensor]:
    """The last output of a model in double precision, where each step of a recurrence is an operation of its own, and what it embedded."""
    torch.manual_seed(0)
    model = Builder(settings).make(Encoder, 16).double().eval()
    kept = list[Tensor]()
    model.embedding.register_forward_hook(lambda module, given, out: kept.append(out))
    out = model(torch.arange(length).remainder(12).add(4)[None], torch.tensor([length]))
    last = out[0, -1]
    return (last * torch.linspace(-1, 1, len(last), dtype=last.dtype)).sum(), kept[0]


def reaches(settings: Values, length: int) -> bool:
    last, embedded = run_small(settings, length)
    return bool(torch.autograd.grad(last, embedded)[0][0, 0].abs().max() > 0)


def longest_chain(node: Any) -> int:
    """The longest chain of operations in an autograd graph."""
    depth: dict[Any, int] = {}
    waiting = [node]
    while waiting:
        one = waiting[-1]
        before = [inner for inner, _ in one.next_functions if inner is not None]
        missing = [inner for inner in before if inner not in depth]
        if missing:
            waiting += missing
            continue
        depth[waiting.pop()] = 1 + max((depth[inner] for inner in before), default=0)
    return depth[node]
