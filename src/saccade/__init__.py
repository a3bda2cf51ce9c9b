"""saccade: one toolkit for attention, from the first alignment models to today's Transformers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import build, decode, fit, load, show
    from .core import Mechanism, attend, masks
    from .core import explain as explain
    from .layers.attention import MultiHeadAttention
    from .looking import look, record

__version__ = "0.2.0"
__all__ = ["Mechanism", "MultiHeadAttention", "attend", "build", "decode", "fit", "load", "look", "masks", "record", "show"]

# Where each name lives. They are fetched when they are asked for: PyTorch takes seconds to load, and `saccade --help` needs none of it.
_HOMES = {
    **dict.fromkeys(("build", "decode", "fit", "load", "show"), ".api"),
    **dict.fromkeys(("Mechanism", "attend", "explain", "masks"), ".core"),
    **dict.fromkeys(("look", "record"), ".looking"),
    "MultiHeadAttention": ".layers.attention",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'saccade' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
