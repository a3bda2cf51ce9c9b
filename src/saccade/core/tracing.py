"""What must be known while a pass is compiled, or captured as a CUDA graph."""

from typing import Any

import torch


def can_sync() -> bool:
    """Whether a number on the device may be read now: not while a pass is compiled, or captured as a CUDA graph."""
    return not (
        torch.compiler.is_compiling()
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


def is_on_device(mask: Any, device: torch.device) -> bool:
    """Whether a pass is compiled and all tensors of one of saccade's own masks are on a device already. Of another mask this is not known,
    and elsewhere the answer is no: a copy is cheap there, while torch 2.11 cannot compile one."""
    if not torch.compiler.is_compiling() or not type(mask).__module__.startswith(__package__):
        return False
    if hasattr(mask, "first"):
        return is_on_device(mask.first, device) and is_on_device(mask.second, device)
    values = getattr(mask, "values", None)
    return values is None or bool(values.device == device)
