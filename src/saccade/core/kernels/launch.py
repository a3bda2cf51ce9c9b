"""Launches of the softmax kernels: what a call consists of, and which block sizes it gets."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..backends.call import CannotCompile
from ..tracing import can_sync
from . import interpreted
from .block_lists import WORD_BITS

Config = tuple[int, int, int, int]  # queries and keys of a block, warps, stages
# By kernel and width of a head, for 16 bits; the first is taken where nothing can be timed.
CONFIGS: dict[str, dict[int, list[Config]]] = {
    "forward": {
        64: [(64, 64, 4, 3), (64, 128, 4, 3), (128, 64, 4, 3), (128, 128, 8, 3)],
        128: [(128, 64, 8, 3), (128, 128, 8, 2)],
        256: [(64, 32, 4, 2), (128, 64, 8, 2)],
    },
    "queries": {
        64: [(64, 64, 4, 3), (128, 64, 8, 3)],
        128: [(128, 64, 8, 2), (64, 64, 4, 2)],
        256: [(64, 32, 8, 2)],
    },
    "keys": {
        64: [(64, 64, 4, 3), (64, 128, 8, 3), (32, 64, 4, 3)],
        # 128 × 128 numbers of dk and dv take all registers of 8 warps
        128: [(64, 64, 4, 2), (64, 64, 8, 2), (32, 128, 8, 2)],
        256: [(32, 64, 8, 2)],
    },
}
LISTED: dict[int, list[Config]] = {
    64: [(WORD_BITS, WORD_BITS, 4, 3)],
    128: [(WORD_BITS, WORD_BITS, 8, 2)],
    256: [(WORD_BITS, WORD_BITS, 8, 2)],
}
ROWS: dict[int, list[Config]] = {64: [(64, 32, 4, 2)], 128: [(64, 32, 8, 2)], 256: [(32, 32, 8, 1)]}
COLUMNS: dict[int, list[Config]] = {
    64: [(32, 64, 4, 2)],
    128: [(32, 64, 8, 2)],
    256: [(16, 32, 8, 1)],
}
# For 32-bit types.
FLOAT32_CONFIGS = {"forward": ROWS, "queries": ROWS, "keys": COLUMNS}
INTERPRETED: list[Config] = [(32, 16, 4, 1)]
chosen: dict[tuple[Any, ...], Config] = {}  # kind of launch → the fastest
# A launch that was made before, down to its sizes → what launches the compiled kernel, and all arguments that are not tensors. Triton would
# look at each of some sixty arguments again, which takes longer than a small kernel.
launchers: dict[tuple[Any, ...], tuple[Callable[..., None], tuple[Any, ...]]] = {}
MAX_LAUNCHERS = 4096
ALIGNMENT_BYTES = 16  # bytes; what Triton builds a kernel for


class Options(NamedTuple):
    """The numbers of a call; −1 for a side of the mask that is open, 0.0 for no cap and no dropout."""

    scale: float
    cap: float = 0.0
    drop: float = 0.0
    left: int = -1
    right: int = -1
    limit: int = 0


class Extras(NamedTuple):
    """The tensors of a call besides q, k and v: scores by distance (B|1 H Q|1 R), vectors added to values by distance (R E), slopes of
    ALiBi (H), lengths (B), the plan of a mask, the seed of dropout."""

    table: Tensor | None = None
    vectors: Tensor | None = None
    slopes: Tensor | None = None
    lengths: Tensor | None = None
    rows: Tensor | None = None
    columns: Tensor | None = None
    bits: Tensor | None = None
    seed: Tensor | None = None
    partly: Sequence[int] = (0, 0)


def describe(*tensors: Tensor | None) -> tuple[Any, ...]:
    """All of tensors that a launch depends on, but for where they lie."""
    return tuple(
        [
            None if one is None else (one.shape, one.stride(), one.dtype, one.device)
            for one in tensors
        ]
    )


def launch(kernel: Any, name: str, tensors: tuple[Tensor | None, ...], strided: tuple[Tensor, ...], given: tuple[Any, ...],
           options: Options, extras: Extras, **constants: Any) -> None:  # fmt: skip
    """Runs a kernel, whose first tensors are q, k and v, with the fastest of its block sizes. `given` describes all tensors but those that
    were made for it, which follow from them."""
    along = 1 if name == "keys" else 0
    again = (
        name,
        given,
        options,
        extras.partly[along],
        torch.get_float32_matmul_precision(),
        *constants.values(),
    )
    before = launchers.get(again)
    if before is not None:
        # numbers, which Triton need not ask the driver about
        places = [0 if one is None else one.data_ptr() for one in tensors]
        if not any(map((ALIGNMENT_BYTES - 1).__and__, places)):
            before[0](*places, *before[1])
            return
    ready = launch_anew(kernel, name, along, tensors, strided, options, extras, constants)
    if ready is not None and can_sync():
        if len(launchers) >= MAX_LAUNCHERS:
            launchers.clear()
        launchers[again] = launcher(*ready[:2]), ready[2]


def launcher(found: Any, grid: tuple[int, int, int]) -> Callable[..., None]:
    """What launches a compiled kernel: as Triton does, but without what it prepares for profilers while none listens."""
    plain: Callable[..., None] = found[grid]
    try:
        knobs, device = triton.knobs.runtime, torch._C._cuda_getDevice
        stream = torch._C._cuda_getCurrentRawStream
        run, fixed = found.run, (found.function, found.packed_metadata, None, None, None)
    except AttributeError:  # another version, or another kind of GPU
        return plain

    def direct(*given: Any) -> None:
        if getattr(knobs.launch_enter_hook, "calls", True) or getattr(
            knobs.launch_exit_hook, "calls", True
        ):
            return plain(*given)
        run(*grid, stream(device()), *fixed, *given)

    return direct


def launch_anew(kernel: Any, name: str, along: int, tensors: tuple[Tensor | None, ...], strided: tuple[Tensor, ...],
                options: Options, extras: Extras, constants: dict[str, Any]) -> Any:  # fmt: skip
    """The same through Triton, which compiles the kernel where it must; what it takes to launch it again, or None where that is not known."""
    q, k, v = (one for one in tensors[:3] if one is not None)
    plan, table = (extras.columns if along else extras.rows), extras.table
    # a kernel that is built without a tensor never looks at it
    there = [q if one is None else one for one in tensors]
    strides = [stride for one in strided for stride in one.stride()[:3]]
    of_table = (
        (0, 0, 0)
        if table is None
        else tuple(0 if table.shape[n] == 1 else table.stride(n) for n in range(3))
    )
    of_plan = (
        (0, 0, 0)
        if plan is None
        else tuple(0 if plan.shape[n] == 1 and n < 2 else plan.stride(n) for n in range(3))
    )
    group, (batch, heads, positions, _) = q.shape[1] // k.shape[1], (k if along else q).shape
    numbers = (*strides, *of_table, *of_plan, extras.partly[along], q.shape[1], group, q.shape[2], k.shape[2],
               options.left, options.right, options.scale, options.cap, options.drop)  # fmt: skip
    leans = options.right == 0 and plan is None  # no query sees a later key
    # see scoring.py
    bias = 2 if table is not None else 0 if extras.slopes is None else 3 if leans else 1
    exact = q.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    constants |= {
        "WIDTH": q.shape[3], "PADDED": padded(q.shape[3]), "WIDTH_V": v.shape[3], "PADDED_V": padded(v.shape[3]),
        "BIAS": bias, "LIMIT": options.limit,
        "CAPPED": options.cap > 0, "FAST": q.dtype != torch.float32 and not interpreted(), "LISTED": plan is not None,
        "HAS_LEFT": options.left >= 0, "HAS_RIGHT": options.right >= 0, "HAS_LENGTHS": extras.lengths is not None,
        "VALUES": extras.vectors is not None, "DROP": options.drop > 0, "PRECISION": "tf32x3" if exact else "tf32",
    }  # fmt: skip
    which = (name, q.dtype, q.device, group > 1, *constants.values())
    candidates = (
        [chosen[which]]
        if which in chosen
        else configs(name, q.dtype, q.shape[3], v.shape[3], plan is not None)
    )

    def run(config: Config) -> None:
        grid = (batch * heads * triton.cdiv(positions, config[along]),)
        sizes = {
            "BLOCK_Q": config[0],
            "BLOCK_K": config[1],
            "num_warps": config[2],
            "num_stages": config[3],
        }
        found = kernel[grid](*there, *numbers, **constants, **sizes)
        unusual = any(one.data_ptr() % ALIGNMENT_BYTES or one.device != q.device for one in there)
        if found is not None and not unusual:  # None: interpreted
            named = {**constants, **sizes}
            fixed = (named[param.name] for param in kernel.params if param.is_constexpr)
            ready[config] = (found, (*grid, 1, 1), (*numbers, *fixed))

    ready = dict[Config, Any]()
    if len(candidates) == 1 or not can_sync():
        best = fastest([candidates[0]], run)
    else:
        best = chosen[which] = fastest(candidates, run)
    return ready.get(best)


def padded(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def configs(
    name: str, dtype: torch.dtype, width: int, width_v: int, is_listed: bool
) -> list[Config]:
    """The block sizes worth trying."""
    size = max(64, padded(width), padded(width_v))
    if is_listed:
        return LISTED[size]
    if interpreted():
        return INTERPRETED
    return FLOAT32_CONFIGS[name][size] if dtype == torch.float32 else CONFIGS[name][size]


def fastest(candidates: list[Config], run: Any) -> Config:
    """Runs them all and says which took the least time; one that does not fit the GPU is left out, and where none fits, that is said."""
    best, least, wrong = None, float("inf"), ""
    for config in candidates:
        try:
            run(config)
            took = 0.0 if len(candidates) == 1 else milliseconds(run, config)
        except (torch.OutOfMemoryError, CannotCompile):
            raise
        except Exception as error:  # whatever Triton raises: shared memory, registers, an instruction that is missing
            wrong = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            continue
        if took < least:
            best, least = config, took
    if best is None:
        raise CannotCompile(f"its kernel does not compile here ({wrong})")
    return best


def milliseconds(run: Any, config: Config) -> float:
    """The shortest of a few runs."""
    times = []
    for _ in range(4):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run(config)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)
