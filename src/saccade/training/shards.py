"""Tensors that are divided over ranks: made whole, put in place, and written each rank its part (torch.distributed.checkpoint).

Reading such a checkpoint unpickles its `.metadata`, which can run anything: its folder's manifest is checked first, and one from a
stranger is never to be read.
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
MODEL, TRAINING = "model/", "training/"  # what a tensor's name begins with


def whole(tensor: Tensor) -> Tensor:
    """The tensor with all its parts; every rank must ask, for the same tensors in the same order."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gathered(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """All tensors made whole, one at a time; only who keeps them needs the memory of all."""
    found = {}
    for name, tensor in tensors.items():
        one = whole(tensor.detach())
        if keep:
            found[name] = one.cpu() if one is not tensor else one
    return found


def placed(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor where `like` is: on its device, and divided over the ranks as it is."""
    if hasattr(value, "full_tensor"):  # it is there
        return value
    value = value.to(like.device)
    if not hasattr(like, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


@contextmanager
def told() -> Iterator[None]:
    """What torch.distributed.checkpoint raises, as one sentence; what it warns of is known here."""
    from torch.distributed.checkpoint import CheckpointException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        why = str(getattr(cause, "strerror", None) or cause).split("\n")[0][:300]
        raise SaccadeError(
            f"rank {rank} cannot write or read its part of the checkpoint: {why}; check the place and its space"
        ) from None


def write_shards(tensors: dict[str, Tensor], folder: Path) -> None:
    """Each rank writes its part of the tensors into the folder."""
    from torch.distributed import checkpoint

    with told():
        checkpoint.save(tensors, storage_writer=checkpoint.FileSystemWriter(folder))


def stored(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Name → size and type of the tensors in a sharded checkpoint, whose folder has been checked against its manifest."""
    from torch.distributed.checkpoint import FileSystemReader

    try:
        found = FileSystemReader(folder).read_metadata().state_dict_metadata
        return {name: (one.size, one.properties.dtype) for name, one in found.items()}  # type: ignore[union-attr]
    except Exception as error:  # unpickling raises whatever it likes
        raise SaccadeError(f"{folder}/{METADATA} cannot be read ({type(error).__name__}); copy the checkpoint again") from None


def read_shards(tensors: dict[str, Tensor], folder: Path) -> None:
    """Fills the tensors, however they are divided and however those in the folder are."""
    from torch.distributed import checkpoint

    with told():
        checkpoint.load(tensors, storage_reader=checkpoint.FileSystemReader(folder))
