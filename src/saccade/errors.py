"""The one error a user meets, and the hint that goes with a wrong name. Imports nothing of the package; every package may import it."""

import difflib
import functools
import json
from collections.abc import Iterable
from pathlib import Path

# arguments of Python as errors name them, and how they are typed on the command line
TYPED = {"pass resume=True": "use --resume", "resume=True": "--resume", "out=…": "--out"}


class SaccadeError(Exception):
    """A mistake in what was passed: the value, the rule and the way out.

    The command line prints the sentence and exits with 2.

    Args:
        message: The sentence. Its wording may change in any release.
        shell: The sentence on the command line, if the way out differs there.
        code: The kind of mistake in kebab case, such as `beam-and-sampling`. Stable: programs and tests compare it.
    """

    def __init__(self, message: str = "", shell: str = "", *, code: str = "invalid") -> None:
        super().__init__(message)
        self._shell, self.code = shell, code

    @property
    def shell(self) -> str:
        """The sentence in the words of the command line."""
        return self._shell or functools.reduce(
            lambda text, words: text.replace(*words), TYPED.items(), str(self)
        )


@functools.cache
def synonyms() -> dict[str, list[str]]:
    """What other toolkits call a key → the key here; of several, the first that there is."""
    rows = json.loads(Path(__file__).with_name("synonyms.json").read_text(encoding="utf-8"))
    return {name: keys.split() for keys, names in rows.items() for name in names}


def synonym(name: str, known: Iterable[str] = ()) -> str | None:
    """The key that other toolkits call so: as it is `known` (`dim`), else with its section (`model.dim`)."""
    names, keys = set(known), synonyms().get(name.strip("-").lower().replace("-", "_"), ())
    here = next((key.rpartition(".")[2] for key in keys if key.rpartition(".")[2] in names), None)
    return here or next((key for key in reversed(keys)), None)


def did_you_mean(name: str, known: Iterable[str], setting: bool = False) -> str:
    """The tail of an error about a wrong name: `; did you mean 'additive'?`, or the names there are."""
    names = sorted(known)
    usual = synonym(str(name), names) if setting else None
    close = [usual] if usual else difflib.get_close_matches(str(name), names, n=1, cutoff=0.65)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there are: {', '.join(names)}" if names else "; there are none"


def with_article(name: str) -> str:
    """`a tagging`, `an image-classification`"""
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
