"""Fused kernels in Triton, forward and backward. Each file is imported where its kernel is first run, so that saccade loads without Triton."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

Result = TypeVar("Result")

MAX_VOCABULARY = 1 << 15  # of a vocabulary: a step of decoding holds a row's logits in registers
MAX_STEP_ROWS = 1 << 12  # that one program of a step takes down
MIN_CAPABILITY = 8  # compute capability: from here on there are bfloat16 and asynchronous copies
INSTALLED = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # as Triton reads it: when a kernel is made


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on tensors of a CPU: slow, and for tests alone."""
    return INTERPRETED


def why_unavailable(device: torch.device) -> str | None:
    """Why no Triton kernel runs on a device, or None where they do."""
    if not INSTALLED:
        return "Triton is not installed"
    if device.type == "cpu":
        if INTERPRETED:
            return None
        return "it needs a GPU (TRITON_INTERPRET=1, set at the start, runs it slowly on a CPU)"
    if device.type != "cuda":
        return f"it does not run on '{device.type}'"
    if INTERPRETED:
        return "TRITON_INTERPRET=1 is set, and the interpreter is for tensors of a CPU"
    found = torch.cuda.get_device_properties(device)
    return (
        None
        if found.major >= MIN_CAPABILITY
        else f"it needs a GPU of compute capability {MIN_CAPABILITY}.0, got {found.major}.{found.minor}"
    )


def available(device: torch.device) -> bool:
    return why_unavailable(device) is None


tried: set[str] = set()
# kernels that did not compile here, and why; what calls them has another way
failed: dict[str, str] = {}


def attempt(name: str, call: Callable[[], Result]) -> Result | None:
    """What `call` makes by the kernel of this name, or None where it does not compile here, which is tried once."""
    if name in failed:
        return None
    try:
        return call()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever Triton raises
        failed[name] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        return None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor | None:
    """Rotary positions with gradients (see `rotary`), or None where PyTorch's operations do: without gradients, in a compiled pass, which has
    one kernel for them anyway, and where the kernel does not compile."""
    if (
        not x.requires_grad
        or cos.dim() != 2
        or torch.compiler.is_compiling()
        or not available(x.device)
    ):
        return None
    from .rotary import Rotate

    return attempt("rotary", lambda: Rotate.apply(x, cos, sin))


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b, where kernels run with a gradient of b that is faster than PyTorch's; a compiled pass joins that with others."""
    if bias is None or not sums_columns(x):
        return F.linear(x, weight, bias)
    from .bias_gradient import BiasGradient

    found: Tensor = BiasGradient.apply(F.linear(x, weight, bias.detach()), bias)
    return found


def affine_parts(
    x: Tensor, weight: Tensor, bias: Tensor | None, widths: Sequence[int]
) -> Sequence[Tensor]:
    """W x + b in parts of these widths; the gradients of three are joined by the kernel that makes that of b."""
    if bias is None or len(widths) != 3 or not sums_columns(x):
        return affine(x, weight, bias).split(list(widths), -1)
    from .bias_gradient import ThreeParts

    found: tuple[Tensor, ...] = ThreeParts.apply(F.linear(x, weight, bias.detach()), bias, *widths)
    return found


def sums_columns(x: Tensor) -> bool:
    """Whether gradients of biases are made by kernels here, which sum in float32."""
    if (
        torch.compiler.is_compiling()
        or not torch.is_grad_enabled()
        or x.dtype == torch.float64
        or not available(x.device)
    ):
        return False
    if "columns" not in tried:  # what does not compile must show before the pass back
        from .bias_gradient import column_sums, joined

        tried.add("columns")
        zeros = x.detach().new_zeros(2, 16)
        attempt("columns", lambda: (column_sums(zeros), joined([zeros] * 3, torch.float32)))
    return "columns" not in failed


def losses_and_slopes(
    logits: Tensor, target: Tensor, ignore: int, smoothing: float
) -> Tensor | None:
    """As in `losses`, or None where the kernel does not compile; the logits are then as they were."""
    from . import logit_losses

    if torch.compiler.is_compiling():
        if "losses" in failed:
            return None
        return logit_losses.losses_and_slopes(logits, target, ignore, smoothing)
    return attempt("losses", lambda: logit_losses.compute(logits, target, ignore, smoothing))
