"""Tensors that are divided over ranks, and checkpoints to which each rank wrote its part. Reading such a checkpoint unpickles its
`.metadata`, which can run any code: its folder's manifest is checked first, and one from a stranger must never be read."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import SaccadeError

METADATA = ".metadata"


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its parts; every rank must ask, for the same tensors in the same order."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gather(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """All tensors whole, one at a time, so that only a rank that keeps them needs the memory of all."""
    each = ((name, whole(tensor.detach())) for name, tensor in tensors.items())
    return {name: one.cpu() for name, one in each if keep}


def divide_like(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of `like`, and divided over the ranks as it is."""
    value = value.to(like.device)
    if hasattr(value, "full_tensor") or not hasattr(like, "full_tensor"):  # already divided, or nothing is
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


@contextmanager
def library() -> Iterator[Any]:
    """torch.distributed.checkpoint; what it raises becomes one sentence."""
    from torch.distributed import checkpoint

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a single process, and about its own deprecated parts
            yield checkpoint
    except checkpoint.CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        why = str(getattr(cause, "strerror", None) or cause).split("\n")[0][:300]
        raise SaccadeError(f"rank {rank} cannot access its part of the checkpoint: {why}; check the path and the disk") from None


def list_parts(folder: Path, prefix: str) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Name after the prefix → size and type of tensors in a sharded checkpoint, whose folder was checked against its manifest."""
    try:
        with library() as checkpoint:
            found = checkpoint.FileSystemReader(folder).read_metadata().state_dict_metadata
        own = {name.removeprefix(prefix): one for name, one in found.items() if name.startswith(prefix)}
        return {name: (one.size, one.properties.dtype) for name, one in own.items()}
    except Exception as error:  # unpickling may raise anything
        raise SaccadeError(f"{folder}/{METADATA} cannot be read ({type(error).__name__}); copy the checkpoint again") from None
