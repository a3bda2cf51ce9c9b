"""Tensors that are divided over ranks, and checkpoints to which each rank wrote its part.

torch.distributed.checkpoint keeps a pickle, `.metadata`, in such a checkpoint. An ordinary unpickler would run whatever program a stranger
put there; the one below admits the few classes that describe tensors, and nothing else. Tensors are read by `weights_only`.
"""

import math
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import SaccadeError
from ..files import listed

METADATA = ".metadata"
LIBRARY = "torch.distributed.checkpoint"
DESCRIPTIONS = "Metadata TensorStorageMetadata TensorProperties ChunkStorageMetadata MetadataIndex StorageMeta _MEM_FORMAT_ENCODING"
ADMITTED = {
    f"{LIBRARY}.metadata": DESCRIPTIONS.split(),
    f"{LIBRARY}.filesystem": ["_StorageInfo"],
    "torch": ["Size"],
}


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor. Every rank must call it, for the same tensors in the same order."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gather(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """All full tensors, gathered one at a time. Only ranks with `keep` need the memory for all."""
    each = ((name, full_tensor(tensor.detach())) for name, tensor in tensors.items())
    return {name: one.cpu() for name, one in each if keep}


def divide_like(value: Tensor, like: Tensor) -> Tensor:
    """A full tensor, moved to the device of `like` and sharded in the same way."""
    value = value.to(like.device)
    # Already sharded, or not sharded at all.
    if hasattr(value, "full_tensor") or not hasattr(like, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]


@contextmanager
def checkpoint_library() -> Iterator[Any]:
    """torch.distributed.checkpoint with errors as SaccadeError."""
    from torch.distributed import checkpoint

    try:
        with warnings.catch_warnings():
            # Warnings about single processes and deprecated internals.
            warnings.simplefilter("ignore")
            yield checkpoint
    except checkpoint.CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        why = str(getattr(cause, "strerror", None) or cause).split("\n")[0][:300]
        raise SaccadeError(
            f"rank {rank} cannot access its part of the checkpoint: {why}; check the path and the disk",
            code="checkpoint-damaged",
        ) from None


class MetadataReader(pickle.Unpickler):
    """Restricted unpickler: only classes that describe tensors, so a file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.serialization", "_get_layout"):
            return lambda _: torch.strided
        if (module, name) == ("pathlib", "PosixPath"):
            return lambda *parts: "/".join(parts)
        if name in ADMITTED.get(module, ()) or (
            module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        ):
            return super().find_class(module, name)
        raise SaccadeError(
            f"it names {module}.{name}, which no checkpoint needs and which may be an attack; do not use this folder",
            code="checkpoint-unsafe",
        )


def read_metadata(folder: Path) -> Any:
    """Reads and checks the metadata of a sharded checkpoint: tensors only, all in files of that folder."""
    try:
        with (folder / METADATA).open("rb") as file:
            found = MetadataReader(file).load()
        parts, places = found.state_dict_metadata.values(), found.storage_data.values()
        # Entries of raw bytes have no size.
        wanted = sum(
            math.prod(map(abs, part.size)) * part.properties.dtype.itemsize for part in parts
        )
        names = set(listed(folder))
        foreign = [
            place.relative_path
            for place in places
            if place.relative_path not in names or place.transform_descriptors
        ]
    except SaccadeError as error:
        raise SaccadeError(
            f"{folder}/{METADATA} is not a checkpoint's: {error}", code="checkpoint-damaged"
        ) from None
    except Exception as error:  # unpickling may raise anything
        raise SaccadeError(
            f"{folder}/{METADATA} cannot be read ({type(error).__name__}); copy the checkpoint again",
            code="checkpoint-damaged",
        ) from None
    there = sum((folder / name).stat().st_size for name in names)
    if foreign or wanted > there or any(number < 0 for part in parts for number in part.size):
        why = (
            f"it names the file {foreign[0]!r}"
            if foreign
            else f"it describes {wanted:,} bytes, and there are {there:,}"
        )
        raise SaccadeError(
            f"{folder}/{METADATA} is not this checkpoint's: {why}; copy the checkpoint again",
            code="checkpoint-damaged",
        )
    return found


def load_parts(tensors: dict[str, Tensor], folder: Path) -> None:
    """Fills the tensors from a sharded checkpoint."""
    found = read_metadata(folder)
    with checkpoint_library() as checkpoint:
        reader = checkpoint.FileSystemReader(folder)
        # The default reader would unpickle arbitrary objects.
        reader.read_metadata = lambda *_, **__: found
        checkpoint.load(tensors, storage_reader=reader)


def list_parts(folder: Path, prefix: str) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Name after the prefix → size and type of the tensors in a sharded checkpoint."""
    found = read_metadata(folder).state_dict_metadata
    own = {name.removeprefix(prefix): one for name, one in found.items() if name.startswith(prefix)}
    return {name: (one.size, one.properties.dtype) for name, one in own.items()}
