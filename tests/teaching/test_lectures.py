"""Every slide's row: its command runs with tiny settings and ends with 0, one test each; the site; the slips."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from saccade import api
from saccade.cli import lecture as command
from saccade.config import recipes
from saccade.studies.tables import STUDIES
from saccade.teaching import lectures
from saccade.teaching.lectures import Row, data, rows, tiny_words
from support import error_of, run_cli

ROOT = Path(__file__).parents[2]
ROWS = {f"{row.deck}-{row.slide}": row for row in rows()}
# what takes longer than two seconds: trainings of pictures, measurements, maps, whole tables and the demo
LONG = {"table", "compare", "demo"}
SLOW_ROWS = {
    "001-landscape",
    "000-vision",
    "001-captions",
    "002-autoencoder",
    "003-questions",
    "000-cnn-rnn-attention",
    "001-blocks",
    "000-graphs",
    "002-embeddings",
}
TINY_TABLES = {
    "translation": "bahdanau",
    "modifications": "geglu",
    "efficient": "linformer",
    "positions": "alibi",
    "barriers": "no-mlp",
}
TINY_TABLES |= {
    "scores": "dot",
    "entailment": "pretrained-few",
    "hard": "hard",
    "tasks": "tagging-transformer",
}


OWN_FILES = {"001-photographs"}  # train on files that people get themselves


def is_slow(name: str, row: Row) -> bool:
    return row.words[0] in LONG or name in SLOW_ROWS


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The models that rows read, after a few updates."""
    folder = tmp_path_factory.mktemp("lectures")
    small = ["model.dim=16", "model.hidden=16"]
    for name, recipe in data()["runs"].items():
        api.fit(
            recipes.read_recipe(recipe, [*tiny_words(["train", recipe]), *small]), folder / name
        )
    return {name: str(folder / name) for name in data()["runs"]}


def test_there_are_48_rows_with_names_of_their_own() -> None:
    assert len(rows()) == len(ROWS) == 48
    assert {row.deck for row in rows()} == set(data()["decks"])


def run_row(row: Row, models: dict[str, str], folder: Path) -> None:
    """Runs a row's command as it is, but for sizes and the folders it reads and writes."""
    words = [models.get(word, word) for word in row.words]
    if "--out" in words:
        words[words.index("--out") + 1] = str(folder / Path(words[words.index("--out") + 1]).name)
    if words[0] == "table":
        first = TINY_TABLES.get(words[1]) or next(iter(STUDIES[words[1]]("tiny", folder).rows()))
        words = [*words[:2], "--only", first, "--out", str(folder / "table")]
    if words[0] == "demo":
        words += ["--out", str(folder / "demo")]
    if words[0] == "draw":
        options = data()["tiny_draw"].get(words[1], {})
        words += [
            f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in options.items()
        ]
    if words[0] == "evaluate":
        words[2] = str(folder / "test.tsv")
        Path(words[2]).write_text(
            "".join(f"the black cat ate the mouse{n}\tle chat\n" for n in range(8))
        )
    done = run_cli(*words, *tiny_words(words))
    assert done.code == 0, done.err
    if "--out" in words:
        assert Path(words[words.index("--out") + 1]).exists()
    else:
        assert done.out.strip()


def test_every_row_names_commands_options_and_settings_that_exist() -> None:
    """Also of rows that take long to run: each recipe is read with each of its variations, each option and table is known."""
    assert not [name for name, row in ROWS.items() if command.missing(row)]


@pytest.mark.parametrize(
    "name", [name for name, row in ROWS.items() if not is_slow(name, row) and name not in OWN_FILES]
)
def test_a_row_runs(name: str, models: dict[str, str], tmp_path: Path) -> None:
    run_row(ROWS[name], models, tmp_path)


@pytest.mark.parametrize("name", sorted(OWN_FILES))
def test_a_row_without_its_files_says_where_they_go(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "cache"))
    done = run_cli(*ROWS[name].words)
    assert done.code == 2
    assert "has no download; put" in done.err
    assert str(tmp_path / "cache") in done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if is_slow(name, row)])
def test_a_longer_row_runs(name: str, models: dict[str, str], tmp_path: Path) -> None:
    run_row(ROWS[name], models, tmp_path)


TRAINED = [
    name
    for name, row in ROWS.items()
    if is_slow(name, row) and row.words[0] in ("train", "compare")
]


@pytest.mark.parametrize("name", TRAINED)
def test_what_a_longer_row_trains_can_be_built(name: str) -> None:
    """The cheap part of a row that trains for long: its models are made, for a few examples of its data."""
    for recipe in command.recipes_of(ROWS[name].words):
        small = recipes.read_recipe(
            recipe[0], [*recipe[1], *tiny_words(["train", recipe[0]]), "device=cpu"]
        )
        assert api.build(small).model is not None


@pytest.mark.parametrize(
    ("run", "wrong"),
    [
        ("saccade explain", ""),
        ("saccade symmetries --all", "`saccade symmetries` is not a command"),
        ("saccade explain --nothing", "`saccade explain` has no option --nothing"),
        ("saccade draw cats", "`saccade draw` has no cats"),
        ("saccade table nothing", "`saccade table` has no nothing"),
        ("saccade train phrasebook-bahdanau model.score=none", "no score named 'none'"),
        (
            "saccade compare phrasebook-bahdanau --vary model.score=dot,nothing",
            "no score named 'nothing'",
        ),
    ],
)
def test_what_is_missing_is_found_by_asking(run: str, wrong: str) -> None:
    found = command.missing(Row("000", "x", "x", "x", run))
    assert wrong in found
    assert bool(found) == bool(wrong)


def test_decks_and_slides_are_listed_and_one_is_run() -> None:
    listed = run_cli("lecture", "--json")
    assert listed.out.count("\n") == 48
    assert run_cli("lecture", "004").out.count("\n") == 1 + len(rows("004"))
    by_name, by_number = (run_cli("lecture", "003", slide) for slide in ("additive", "3"))
    assert by_name.code == 0
    assert by_name.out == by_number.out
    assert "tanh" in by_name.out


def test_wrong_words_are_answered_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no deck named '005'" in error_of(lambda: rows("005"))
    assert "no slide named 'scalin' in deck 001; did you mean 'scaling'" in error_of(
        lambda: rows("001", "scalin")
    )
    assert "--tiny is for the pages" in run_cli("lecture", "--tiny").err
    assert (
        "make it first: saccade train phrasebook-bahdanau"
        in run_cli("lecture", "001", "alignment").err
    )
    (tmp_path / "file").write_text("")
    assert "file is a file; choose a folder" in run_cli("lecture", "--page", "file").err


def test_every_slip_names_a_slide_and_a_test_that_exists() -> None:
    names = {row.slide for row in rows()}
    for slip in lectures.slips():
        assert slip["slide"] in names
        file, _, test = slip["test"].partition("::")
        assert not file or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), slip
    assert sum(not slip["test"] for slip in lectures.slips()) == 1, (
        "only what nothing can compute has no test"
    )
    assert "0.9968" in run_cli("lecture", "slips").out


@pytest.mark.slow
def test_the_site_has_every_deck_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    assert run_cli("lecture", "--page", tmp_path, "--tiny").code == 0
    pages = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    assert set(pages) == {"index.html", "slips.html", *(f"{deck}.html" for deck in data()["decks"])}
    for name, text in pages.items():
        links = set(re.findall(r'(?:href|src)="([^"#][^"]*)"', text))
        assert all(link.startswith("data:") or link in pages for link in links), name
    drawn = sum(bool(row.draw) for row in rows())
    assert sum(text.count("<img ") for text in pages.values()) == drawn
    assert all(row.run.split()[1] in pages["index.html"] for row in rows())
