"""Fused kernels in Triton, forward and backward. Each file is imported where its kernel is first run, so that saccade loads without Triton."""

import importlib.util
import os

import torch

MOST_TOKENS = 1 << 15  # of a vocabulary: a step of decoding holds a row's logits in registers
MOST_ROWS = 1 << 12  # that one program of a step takes down
OLDEST = 8  # compute capability: from here on there are bfloat16 and asynchronous copies
INSTALLED = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # as Triton reads it: when a kernel is made


def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on tensors of a CPU: slow, and for tests alone."""
    return INTERPRETED


def missing(device: torch.device) -> str | None:
    """Why no Triton kernel runs on a device, or None where they do."""
    if not INSTALLED:
        return "Triton is not installed"
    if device.type == "cpu":
        return None if INTERPRETED else "it needs a GPU (TRITON_INTERPRET=1, set at the start, runs it slowly on a CPU)"
    if device.type != "cuda":
        return f"it does not run on '{device.type}'"
    if INTERPRETED:
        return "TRITON_INTERPRET=1 is set, and the interpreter is for tensors of a CPU"
    found = torch.cuda.get_device_properties(device)
    return None if found.major >= OLDEST else f"it needs a GPU of compute capability {OLDEST}.0, got {found.major}.{found.minor}"


def available(device: torch.device) -> bool:
    return missing(device) is None
