"""Counts the package's files, functions, calls and switches between files in one update, one `show` and one prediction.

    python scripts/trace_calls.py

A small Transformer translates a few pairs of the phrasebook on the CPU. Everything is run once before it is counted, so that imports and
caches are left out. A switch is a call from one file of the package to another.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import saccade
from saccade.training.update import Update

PACKAGE = str(Path(saccade.__file__).parent)
RECIPE: dict[str, Any] = {
    "data": {
        "train": "phrasebook:train",
        "dev": "phrasebook:dev",
        "options": {"train": 60, "dev": 5, "test": 5},
    },
    "vocabulary": {"kind": "words"},
    "model": {"family": "transformer", "size": "tiny"},
    "training": {
        "updates": 12,
        "tokens": 200,
        "evaluate_every": 1000,
        "checkpoint_every": 1000,
        "log_every": 1000,
    },
    "device": "cpu",
}


class Trace:
    """Counts calls of the package's functions while it is open."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.switches = 0
        self.around = False  # leave out what a model's forward pass calls
        self.inside: FrameType | None = None  # the forward pass that runs

    def __enter__(self) -> "Trace":
        sys.setprofile(self.event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def event(self, frame: FrameType, kind: str, _: object) -> None:
        file = frame.f_code.co_filename
        if kind == "return" and frame is self.inside:
            self.inside = None
        if kind == "call" and file.startswith(PACKAGE) and self.inside is None:
            if self.around and frame.f_code.co_name == "forward":
                self.inside = frame
            self.calls[file, frame.f_code.co_qualname] += 1
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            self.switches += caller.startswith(PACKAGE) and caller != file

    def row(self) -> dict[str, int]:
        """The four counts."""
        files = len({file for file, _ in self.calls})
        return {
            "files": files,
            "functions": len(self.calls),
            "calls": sum(self.calls.values()),
            "switches": self.switches,
        }


def one_update(folder: Path, around: bool) -> Trace:
    """From the start of the eighth update to the start of the ninth, batch making and bookkeeping included."""
    trace, made, call = Trace(), 0, Update.__call__
    trace.around = around

    def counted(update: Update, *given: Any) -> Any:
        nonlocal made
        made += 1
        if made == 9:
            trace.__exit__()
        elif made == 8:
            trace.__enter__()
        return call(update, *given)

    Update.__call__ = counted  # type: ignore[method-assign]
    try:
        saccade.fit(RECIPE, folder)
    finally:
        sys.setprofile(None)
        Update.__call__ = call  # type: ignore[method-assign]
    return trace


def second(work: Callable[[], object]) -> Trace:
    """The second time that something is done."""
    work()
    with Trace() as trace:
        work()
    return trace


def main() -> None:
    """Prints a table."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        traces = {
            "one update": one_update(run, around=False),
            "around the model": one_update(Path(folder) / "again", around=True),
        }
        model = saccade.load(run)
        text = "the black cat ate the mouse"
        traces["look"] = second(lambda: model.look(text).sites[0].weights.sum())
        traces["one prediction"] = second(lambda: model.translate(text))
        traces["load and predict"] = second(lambda: saccade.load(run).translate(text))
    print(f"{'':18}{'files':>8}{'functions':>12}{'calls':>8}{'switches':>10}")
    for name, trace in traces.items():
        print(
            f"{name:18}{{files:>8}}{{functions:>12}}{{calls:>8}}{{switches:>10}}".format(
                **trace.row()
            )
        )
        if "--functions" in sys.argv:
            for (file, function), count in trace.calls.most_common(40):
                print(f"{count:8}  {Path(file).relative_to(PACKAGE)}  {function}")


if __name__ == "__main__":
    main()
