"""Whether what runs now is being written down to be run again, so that no number may be read and nothing kept for others."""

from __future__ import annotations

import torch


def written_down(device: torch.device | str) -> bool:
    """Within `torch.compile`, or while a CUDA graph is recorded on this device."""
    if torch.compiler.is_compiling():
        return True
    return str(device).startswith("cuda") and torch.cuda.is_current_stream_capturing()
