"""`python scripts/coverage_table.py`: which share of each package's lines the tests ran, after `make coverage`."""

from __future__ import annotations

import sys
from pathlib import Path

import coverage

PACKAGE = Path(__file__).parents[1] / "src/saccade"
LOW = 0.85  # a package with a smaller share is named
DETAILS = ("core/kernels",)  # folders with a row of their own


def package_of(file: str) -> str:
    """`core` for core/masks.py, `root` for the modules of the package itself."""
    path = Path(file).relative_to(PACKAGE)
    found = next((name for name in DETAILS if path.is_relative_to(name)), path.parts[0])
    return found if len(path.parts) > 1 else "root"


def count_lines(data: coverage.Coverage) -> dict[str, tuple[int, int]]:
    """Package → lines that were run and all lines, of all files of the package."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        _, lines, _, missing, _ = data.analysis2(str(path))
        name = package_of(str(path))
        run, every = found.get(name, (0, 0))
        found[name] = run + len(lines) - len(missing), every + len(lines)
    return found


def main() -> None:
    data = coverage.Coverage()
    data.load()
    if not data.get_data().measured_files():
        sys.exit("no line was measured, so there is no table; run make coverage")
    found = dict(sorted(count_lines(data).items()))
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))  # type: ignore[assignment]
    print(f"{'package':16} {'lines':>7} {'not run':>8} {'share':>7}")
    for name, (run, every) in found.items():
        print(f"{name:16} {every:7,} {every - run:8,} {run / max(every, 1):7.1%}")
    low = [
        f"{name} ({run / every:.1%})"
        for name, (run, every) in found.items()
        if every and run < LOW * every
    ]
    print(f"below {LOW:.0%}: {', '.join(low) or 'none'}")


if __name__ == "__main__":
    main()
