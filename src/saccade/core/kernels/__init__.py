"""Fused kernels in Triton, forward and backward. Each file is imported where its kernel is first run, so that saccade loads without Triton."""

import functools
import importlib.util
import os

import torch

OLDEST = (8, 0)  # compute capability: from here on there are bfloat16 and asynchronous copies


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on tensors of a CPU: slow, and for tests alone."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def missing(device: torch.device) -> str | None:
    """Why no Triton kernel runs on a device, or None where they do."""
    if not installed():
        return "Triton is not installed"
    if device.type == "cpu":
        return None if interpreted() else "it needs a GPU (TRITON_INTERPRET=1, set at the start, runs it slowly on a CPU)"
    if device.type != "cuda":
        return f"it does not run on '{device.type}'"
    if interpreted():
        return "TRITON_INTERPRET=1 is set, and the interpreter is for tensors of a CPU"
    found = capability(device)
    return None if found >= OLDEST else f"it needs a GPU of compute capability 8.0, got {found[0]}.{found[1]}"


def available(device: torch.device) -> bool:
    return missing(device) is None
