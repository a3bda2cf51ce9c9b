"""How contenders are measured: built one by one, run once, then timed in turns; the machine's own limits beside them."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...core.kernels import available
from ...experiments.pass_costs import peak_of
from ...training.cost import synchronized_time

# builds what one contender needs; what is timed is called again and again
Make = Callable[[], Callable[[], Any]]
ROUNDS = 7
FAILURE = 100  # letters of why a contender failed


@dataclass(frozen=True)
class Case:
    """Ours and the peers at the same task. Of an endless machine it would take `limit` seconds; `tokens` are those of one call."""

    name: str
    ours: Mapping[str, Make]
    peers: Mapping[str, Make]
    limit: Callable[[Limits], float] | None = None
    tokens: int = 0
    about: str = ""  # such as the backend that was chosen
    warm: int = 1  # calls before the first that is timed
    whole: bool = (
        False  # memory is counted from building on: what is captured once takes none later
    )


@dataclass(frozen=True)
class Plan:
    """All cases of a measurement, who is left out and why, and the seconds that each contender is timed for."""

    cases: Sequence[Case]
    left_out: Mapping[str, str]
    seconds: float
    notes: str
    setup: float = (
        0.5  # seconds to build and run a contender for the first time, as far as is known
    )

    @property
    def cost(self) -> float:
        """Seconds, roughly: a contender is timed for about as long as it may be."""
        return sum(
            (self.seconds + self.setup) * len({**case.ours, **case.peers}) for case in self.cases
        )


@dataclass
class Figure:
    """What was measured of one contender: seconds and bytes, or why it failed."""

    seconds: list[float] = field(default_factory=list)
    bytes: float = 0.0
    failed: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_json(self, tokens: int = 0) -> dict[str, Any]:
        if self.failed:
            return {"failed": self.failed}
        found = {
            "milliseconds": round(1000 * self.median, 4),
            "mebibytes": round(self.bytes / 2**20, 1),
        }
        return found | ({"tokens_per_second": round(tokens / self.median)} if tokens else {})


@dataclass(frozen=True)
class Limits:
    """What this machine can do: multiplications and additions, bytes copied, and tanh per second."""

    matmul: float
    copy: float
    tanh: float

    def seconds(self, operations: float = 0.0, bytes: float = 0.0, tanhs: float = 0.0) -> float:
        return max(operations / self.matmul, bytes / self.copy, tanhs / self.tanh)


def measure_limits(device: torch.device, dtype: torch.dtype) -> Limits:
    """On random numbers, since zeros multiply faster."""
    side = 8192 if device.type == "cuda" else 768
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    long = torch.randn(side * side, device=device)
    target = torch.empty_like(long)
    copied = 2 * long.nbytes / best(lambda: target.copy_(long))
    return Limits(2 * side**3 / best(lambda: a @ b), copied, tanhs_per_second(long, target))


def tanhs_per_second(x: Tensor, target: Tensor) -> float:
    """By a kernel that repeats the instruction, where there is one: PyTorch's own function waits for memory."""
    if available(x.device):
        from ...core.kernels.tanh_rate import REPEATS, run

        return x.numel() * REPEATS / best(lambda: run(x))
    return x.numel() / best(lambda: torch.tanh(x, out=target))


def best(call: Callable[[], Any], seconds: float = 0.2) -> float:
    """The least seconds of a call."""
    call()
    found, end = list[float](), synchronized_time() + seconds
    while not found or synchronized_time() < end:
        start = synchronized_time()
        call()
        found.append(synchronized_time() - start)
    return min(found)


def measure(case: Case, device: torch.device, seconds: float) -> dict[str, Figure]:
    """Every contender's median, timed in turns, so that what slows the machine down slows all; one that fails does not stop the others."""
    found, calls = dict[str, Figure](), dict[str, tuple[Callable[[], Any], int]]()
    for name, make in {**case.ours, **case.peers}.items():
        figure = found[name] = Figure()
        try:
            call, figure.bytes = built(case, make, device)
            taken = timed(call, 1)
            calls[name] = call, max(1, min(100, int(seconds / ROUNDS / max(taken, 1e-6))))
            figure.seconds.append(taken)
        except Exception as error:  # a library may raise anything, such as when it does not compile
            figure.failed = reason(error)
    spent = dict.fromkeys(calls, 0.0)
    for _ in range(ROUNDS):
        for name, (call, repeats) in calls.items():
            if spent[name] < seconds and not found[name].failed:
                try:
                    taken = timed(call, repeats)
                except Exception as error:
                    found[name].failed = reason(error)
                    continue
                spent[name] += taken * repeats
                found[name].seconds.append(taken)
    del calls
    gc.collect()
    return found


def built(case: Case, make: Make, device: torch.device) -> tuple[Callable[[], Any], float]:
    """What is timed, warm, and the bytes that it takes at most."""
    made = list[Callable[[], Any]]()

    def build() -> None:
        made.append(make())
        for _ in range(case.warm):
            made[0]()

    if case.whole:
        taken = peak_of(build, device)
        return made[0], taken
    build()
    return made[0], peak_of(made[0], device)


def reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:FAILURE]


def timed(call: Callable[[], Any], repeats: int) -> float:
    start = synchronized_time()
    for _ in range(repeats):
        call()
    return (synchronized_time() - start) / repeats


def row_of(case: Case, found: Mapping[str, Figure], limits: Limits) -> dict[str, Any]:
    """What is printed and written of a case: the best of ours, the best peer, the ratio of their times, and the share of the limit."""
    row: dict[str, Any] = {"case": case.name} | ({"about": case.about} if case.about else {})
    ours, peer = (
        fastest({name: found[name] for name in group}) for group in (case.ours, case.peers)
    )
    if ours is not None:
        row |= {"ours": ours, **found[ours].as_json(case.tokens)}
    if peer is not None:
        row |= {"peer": peer, "peer_milliseconds": round(1000 * found[peer].median, 4)}
    if ours is not None and peer is not None:
        row["ratio"] = round(found[ours].median / found[peer].median, 3)
    if ours is not None and case.limit is not None:
        row["of_limit"] = round(case.limit(limits) / found[ours].median, 4)
    return row | {"all": {name: figure.as_json(case.tokens) for name, figure in found.items()}}


def fastest(group: Mapping[str, Figure]) -> str | None:
    able = [name for name, figure in group.items() if not figure.failed]
    return min(able, key=lambda name: group[name].median) if able else None


def run(plan: Plan, device: torch.device, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    """The rows, as they come."""
    limits = measure_limits(device, dtype)
    for case in plan.cases:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        yield row_of(case, measure(case, device, plan.seconds), limits)


def device_and_type() -> tuple[torch.device, torch.dtype]:
    """A GPU with 16 bits, or the processor with 32."""
    return (
        (torch.device("cuda"), torch.bfloat16)
        if torch.cuda.is_available()
        else (torch.device("cpu"), torch.float32)
    )
