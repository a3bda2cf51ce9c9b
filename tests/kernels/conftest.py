"""Triton's interpreter with a NumPy that no longer takes an array of one number for a number."""

from __future__ import annotations

import importlib.util
from typing import Any

if importlib.util.find_spec("triton") is not None:
    from triton.runtime import interpreter

    plain = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched
