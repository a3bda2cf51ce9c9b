"""The one error a user meets, and the hint that goes with a wrong name. Imports nothing; every package may import it."""

import difflib
from collections.abc import Iterable


class SaccadeError(Exception):
    """A mistake in what was passed: the value, the rule and the way out. The command line prints it, or its own words, and exits with 2."""

    def __init__(self, message: str = "", shell: str = "") -> None:
        """`shell` is the sentence of the command line, where the way out is another one there."""
        super().__init__(message)
        self._shell = shell

    @property
    def shell(self) -> str:
        return self._shell or str(self)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The tail of an error about a wrong name: `; did you mean 'additive'?`, or the names there are."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there are: {', '.join(names)}" if names else "; there are none"
