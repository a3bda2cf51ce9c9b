"""Tensors that are divided over ranks: gathered, divided, and written by each rank its part (torch.distributed.checkpoint).

Reading such a checkpoint unpickles its `.metadata`, which can run any code: its folder's manifest is checked first, and one from a
stranger must never be read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from ..errors import SaccadeError

METADATA = ".metadata"


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its parts; every rank must ask, for the same tensors in the same order."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gather(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """All tensors whole, one at a time, so that only a rank that keeps them needs the memory of all."""
    found = {}
    for name, tensor in tensors.items():
        one = whole(tensor.detach())
        if keep:
            found[name] = one.cpu() if one is not tensor else one
    return found


def divide_like(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of `like`, and divided over the ranks as it is."""
    if hasattr(value, "full_tensor"):  # already divided
        return value
    value = value.to(like.device)
    if not hasattr(like, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turns what torch.distributed.checkpoint raises into one sentence."""
    from torch.distributed.checkpoint import CheckpointException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a single process, and about its own deprecated parts
            yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        why = str(getattr(cause, "strerror", None) or cause).split("\n")[0][:300]
        raise SaccadeError(f"rank {rank} cannot access its part of the checkpoint: {why}; check the path and the disk") from None


def write_parts(tensors: dict[str, Tensor], folder: Path) -> None:
    """Each rank writes its part of the tensors into the folder."""
    from torch.distributed import checkpoint

    with one_sentence():
        checkpoint.save(tensors, storage_writer=checkpoint.FileSystemWriter(folder))


def read_parts(tensors: dict[str, Tensor], folder: Path) -> None:
    """Fills the tensors, however they are divided and however those in the folder are."""
    from torch.distributed import checkpoint

    with one_sentence():
        checkpoint.load(tensors, storage_reader=checkpoint.FileSystemReader(folder))


def list_parts(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Name → size and type of the tensors in a sharded checkpoint, whose folder has been checked against its manifest."""
    from torch.distributed.checkpoint import FileSystemReader

    try:
        found = FileSystemReader(folder).read_metadata().state_dict_metadata
        return {name: (one.size, one.properties.dtype) for name, one in found.items()}  # type: ignore[union-attr]
    except Exception as error:  # unpickling may raise anything
        raise SaccadeError(f"{folder}/{METADATA} cannot be read ({type(error).__name__}); copy the checkpoint again") from None
