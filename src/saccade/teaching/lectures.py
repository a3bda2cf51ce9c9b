"""The lectures, live: the decks as rows of data, and an offline site whose drawings are computed anew."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..errors import SaccadeError, did_you_mean
from ..files import write_atomically

if TYPE_CHECKING:
    from ..views.html_page import Section

MAX_ROWS = 12  # of a drawing's numbers that a page has
MAX_LINES = 60  # lines of what a command prints that a page has
SLIPS = "slips"
Prints = Callable[[list[str]], str]  # runs a command, and returns what it prints


@dataclass(frozen=True)
class Row:
    """One or a few slides: what they show, the command, and the content of its page."""

    deck: str
    slide: str
    title: str
    shows: str
    run: str
    draw: str = ""
    look: str = ""
    with_: str = "runs/demo/bahdanau"
    text: bool = False
    worked: str | None = None
    measured: str = ""
    page: str = ""  # what a page shows instead of a command that prints too much

    @property
    def words(self) -> list[str]:
        """The command without `saccade`."""
        return shlex.split(self.run)[1:]

    @property
    def models(self) -> list[str]:
        """Folders of models that the command or the page reads."""
        looked = [self.with_] if self.look else []
        return list(dict.fromkeys([word for word in self.words if word in data()["runs"]] + looked))


@lru_cache(maxsize=1)
def data() -> Any:
    return yaml.safe_load(
        files("saccade.teaching").joinpath("lectures.yaml").read_text(encoding="utf-8")
    )


def rows(deck: str | None = None, slide: str | None = None) -> list[Row]:
    """All rows, a deck's, or one slide's by its name or its number in the deck."""
    found = [
        Row(**{key.replace("with", "with_"): value for key, value in one.items()})
        for one in data()["rows"]
    ]
    if deck is None:
        return found
    if deck not in data()["decks"]:
        raise SaccadeError(
            f"no deck named '{deck}'{did_you_mean(deck, data()['decks'])}", code="unknown-deck"
        )
    found = [row for row in found if row.deck == deck]
    if slide is None:
        return found
    names = [row.slide for row in found]
    at = int(slide) - 1 if slide.isdecimal() else names.index(slide) if slide in names else -1
    if not 0 <= at < len(found):
        raise SaccadeError(
            f"no slide named '{slide}' in deck {deck}{did_you_mean(slide, names)}",
            code="unknown-slide",
        )
    return [found[at]]


def slips() -> list[dict[str, str]]:
    return list(data()["slips"])


def slip_rows() -> list[list[str]]:
    """The slips as a table with its header."""
    keys = ("deck", "slide", "says", "right")
    rows = [[*(one[key] for key in keys), one["test"] or "nothing to compute"] for one in slips()]
    return [["deck", "slide", "the slide says", "right is", "checked by"], *rows]


def tiny_words(words: list[str]) -> list[str]:
    """The settings with which the trainings of a command take seconds."""
    recipe = words[1] if words[0] in ("train", "compare") else ""
    every = data()["tiny"].items()
    return [one for name, settings in every if recipe.startswith(name) for one in settings]


def build_site(
    folder: Path,
    lacking: Callable[[Row], str],
    prints: Prints,
    tiny: bool,
    note: Callable[[str], object],
) -> dict[str, Path]:
    """Writes index.html, a page per deck in the lectures' order and the page of slips into a folder; models that rows look at are trained
    there first, and those that are finished are used again."""
    from ..views.html_page import Section, report_page

    folder.mkdir(parents=True, exist_ok=True)
    models = train_models(folder, tiny, note)
    pages = [(f"{deck}.html", f"Deck {deck}") for deck in data()["decks"]]
    pages = [("index.html", "All lectures"), *pages, (f"{SLIPS}.html", "Slips")]
    overview, made = [], dict[str, Path]()
    for deck, title in data()["decks"].items():
        sections, table = list[Section](), [["slide", "what it shows", "command", "runs today"]]
        for row in rows(deck):
            note(f"{deck} {row.slide} …")
            wrong = lacking(row)
            sections.append(section_of(row, wrong, prints, models, tiny))
            table.append([row.title, row.shows, row.run, f"not yet: {wrong}" if wrong else "yes"])
        overview.append(Section(f"Deck {deck}: {title}", table=table))
        made[f"{deck}.html"] = folder / f"{deck}.html"
        page = report_page(f"Deck {deck}: {title}", sections, pages)
        write_atomically(folder / f"{deck}.html", page.encode())
    made["index.html"], made[f"{SLIPS}.html"] = folder / "index.html", folder / f"{SLIPS}.html"
    page = report_page("The lectures, live", overview, pages)
    write_atomically(made["index.html"], page.encode())
    about = "Where a slide slips, what is right, and the test that computes it."
    # names of tests wrap as words
    listed = [[*row, test.replace("::test_", ": ").replace("_", " ")] for *row, test in slip_rows()]
    page = report_page("Slips", [Section("Slips", about, listed)], pages)
    write_atomically(made[f"{SLIPS}.html"], page.encode())
    return made


def train_models(folder: Path, tiny: bool, note: Callable[[str], object]) -> dict[str, str]:
    """The folders that rows name → those of the models that were trained for the site."""
    from .. import api
    from ..config import recipes
    from ..training.loop import Watcher

    found = {}
    for name, recipe in data()["runs"].items():
        words = tiny_words(["train", recipe]) if tiny else []
        note(f"training {recipe} for the pages …")
        api.fit(recipes.read_recipe(recipe, words), folder / name, resume=True, watcher=Watcher())
        found[name] = str(folder / name)
    return found


def section_of(
    row: Row, wrong: str, prints: Prints, models: Mapping[str, str], tiny: bool
) -> Section:
    """A row's part of a page: its drawing, its live view, or what its command prints."""
    from .. import api
    from ..views.document import Document, Site
    from ..views.html_page import Section
    from . import draw as drawing
    from .explain.worked_attention import worked_example, worked_sentence

    text = row.shows + "." + (f"\n\nMeasured: {row.measured}" if row.measured else "")
    made = Section(row.title, text, code=f"$ {row.run}")
    if wrong:
        made.text += f"\n\nNot yet: {wrong}."
    elif row.text or row.page:
        words = [models.get(word, word) for word in shlex.split(row.page or row.run)[1:]]
        made.code += f"\n$ {row.page}" if row.page else ""
        lines = prints([word for word in words if word != "--json"]).rstrip().splitlines()
        cut = [f"… {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else []
        made.code += "\n\n" + "\n".join(line.rstrip() for line in [*lines[:MAX_LINES], *cut])
    if row.draw:
        what, *names = row.draw.split()
        given = (name.split("=", 1) for name in names if "=" in name)
        options = {key: int(value) for key, value in given}
        options |= data()["tiny_draw"].get(what, {}) if tiny else {}
        drawn = drawing.draw(what, [name for name in names if "=" not in name], **options)
        made.text += f"\n\n{drawn.text}"
        made.picture = drawn.picture()
        made.table = drawn.table if len(drawn.table) <= MAX_ROWS else None
    if row.look:
        made.document = api.show(api.load(models[row.with_], "cpu"), row.look)
        made.text += f"\n\nThe view is of a model by the recipe {data()['runs'][row.with_]}."
    if row.worked is not None:
        worked = worked_sentence(row.worked.split(), False) if row.worked else worked_example(False)
        site = Site("self-attention", worked.tokens, worked.tokens, [worked.weights])
        tokens = worked.tokens
        made.document = Document(" ".join(tokens), tokens, tokens, [site], "by hand")
    return made
