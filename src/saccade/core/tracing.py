"""Checks for passes that are compiled or captured as a CUDA graph."""

from typing import Any

import torch


def can_sync() -> bool:
    """Whether device values may be read now, which compilation and graph capture forbid."""
    return not (
        torch.compiler.is_compiling()
        or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())
    )


def is_on_device(mask: Any, device: torch.device) -> bool:
    """Whether a compiled pass can use a built-in mask without copying it to the device.

    torch 2.11 cannot compile the copy. Outside of compilation, and for other masks, the answer is False: they are copied.
    """
    if not torch.compiler.is_compiling() or not type(mask).__module__.startswith(__package__):
        return False
    if hasattr(mask, "first"):
        return is_on_device(mask.first, device) and is_on_device(mask.second, device)
    values = getattr(mask, "values", None)
    return values is None or bool(values.device == device)
