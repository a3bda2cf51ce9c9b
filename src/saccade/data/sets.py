"""The public sets that recipes name as `data/NAME/FILE`: what they are (`sets.json`), and where they are found."""

import functools
import json
import os
from pathlib import Path
from typing import Any

from ..errors import SaccadeError


@functools.cache
def sets() -> dict[str, dict[str, Any]]:
    """Name → what it is, license, citation, `downloads` (url, sizes, sha256) and `files` (how each is made of the downloads); a
    set without downloads has its `origin` instead, and people put its files into `data/NAME` themselves."""
    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("sets.json").read_text(encoding="utf-8")
    )
    return found


def cache() -> Path:
    """Where fetched sets are kept: $SACCADE_DATA, else the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(
        os.environ.get("SACCADE_DATA") or os.path.join(home, "saccade", "data")
    ).expanduser()


def set_of(path: Path) -> str | None:
    """The set that `data/NAME/FILE` is a file of, if it is one."""
    first, name, file = path.parts if len(path.parts) == 3 else ("", "", "")
    return name if first == "data" and file in sets().get(name, {}).get("files", ()) else None


def located(path: Path) -> Path:
    """The path itself; a set's file that the working directory lacks is taken from the cache, where it has been fetched."""
    name = None if os.path.exists(path) else set_of(path)
    return (
        path
        if name is None or not os.path.isfile(cache() / name / path.name)
        else cache() / name / path.name
    )


def has_no_download(name: str | None) -> bool:
    """Whether people must get the files of a set themselves."""
    return "origin" in sets().get(name or "", {})


def by_hand(name: str) -> str:
    """The sentence about a set that has no download."""
    row = sets()[name]
    where = f"data/{name} or {cache() / name}"
    return f"the set '{name}' has no download; put {', '.join(row['files'])} into {where}, made from {row['origin']}"


def found_or_fetch(path: Path) -> Path:
    """`located`, or an error that says how to get a set's file."""
    found = located(path)
    if not os.path.exists(found) and (name := set_of(path)):
        raise SaccadeError(
            by_hand(name)
            if has_no_download(name)
            else f"{path} is not there; `saccade fetch {name}` gets it",
            code="set-not-fetched",
        )
    return found
