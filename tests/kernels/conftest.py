"""Triton's interpreter, as it is run by `make test-kernels`."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_index(tensor, scope) -> None:  # type: ignore[no-untyped-def]
        """NumPy 2.4 makes no number of an array of one number, and the interpreter of Triton 3.6 asks for that in loops."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_index
