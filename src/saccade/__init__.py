"""saccade: one toolkit for attention, from the first alignment models to today's Transformers."""

MYPY = False  # not typing.TYPE_CHECKING: nothing is imported before `__main__` can answer Ctrl-C

if MYPY:
    from .api import (
        align,
        average,
        build,
        caption,
        classify,
        decode,
        ensemble,
        evaluate,
        fit,
        generate,
        load,
        show,
    )
    from .api import tag as tag
    from .api import translate as translate
    from .core import Mechanism, attend, masks, normalizers, positions, scores, which_backend
    from .errors import SaccadeError
    from .interop.foreign_models import look, record
    from .layers.multihead_attention import MultiHeadAttention
    from .teaching.explain.sentence import explain
    from .version import __version__ as __version__

__all__ = [
    "Mechanism",
    "MultiHeadAttention",
    "SaccadeError",
    "align",
    "attend",
    "average",
    "build",
    "caption",
    "classify",
    "decode",
    "ensemble",
    "evaluate",
    "explain",
    "fit",
    "generate",
    "load",
    "look",
    "masks",
    "normalizers",
    "positions",
    "record",
    "scores",
    "show",
    "tag",
    "translate",
    "which_backend",
]

# Where each name lives. They are fetched when they are asked for: PyTorch takes seconds to load, and `saccade --help` needs none of it.
_NAMES = {
    ".api": "align average build caption classify decode ensemble evaluate fit generate load show tag translate",
    ".core": "Mechanism attend masks normalizers positions scores which_backend",
    ".interop.foreign_models": "look record",
    ".layers.multihead_attention": "MultiHeadAttention",
    ".teaching.explain.sentence": "explain",
    ".errors": "SaccadeError",
    ".version": "__version__",
}
_HOMES = {_name: _home for _home, _names in _NAMES.items() for _name in _names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'saccade' has no attribute '{name}'")
    from importlib import import_module as _import_module

    found = globals()[name] = getattr(_import_module(_HOMES[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
