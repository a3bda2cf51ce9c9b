"""The report of a run: complete, in one file that loads nothing, safe against hostile text, and never a reason for a run to fail."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.support import raises

from saccade import api
from saccade.system import run_report
from saccade.system.recipe_data import SAMPLES
from saccade.training.loop import Watcher
from saccade.training.signals import Stopped
from support import run_cli, tiny_recipe

RECIPE = tiny_recipe(
    data={"options": {"train": 60, "dev": 8, "test": 4}},
    model={"family": "bahdanau", "dim": 8, "hidden": 8, "dropout": 0.0},
    training={
        "updates": 6,
        "tokens": 300,
        "evaluate_every": 3,
        "log_every": 1,
        "learning_rate": 0.01,
    },
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    api.fit(RECIPE, folder)
    return folder


class Elements(HTMLParser):
    """Everything that a page could load, and the text of its headings and cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {"h2": [], "td": [], "th": []}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [
            value for name, value in attrs if name in ("src", "href", "data", "action") and value
        ]
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in self.texts:
            self.texts[self.tags[-1]][-1] += data


def check_page(page: str) -> Elements:
    found = Elements(page)
    assert "default-src 'none'" in page, "the policy of every page"
    assert all(load.startswith(("#part-", "data:")) for load in found.loads)
    assert not re.search(r"url\((?!data:)|@import|https?://(?!www\.w3\.org)", page)
    return found


def test_every_run_writes_its_curves_and_its_page(run: Path) -> None:
    assert (run / "curves.png").read_bytes()[:4] == b"\x89PNG"
    page = (run / "report.html").read_text(encoding="utf-8")
    found = check_page(page)
    heads = ["Metrics", "Curves", "Evaluations", "Samples"]
    assert found.texts["h2"][:4] == heads
    assert [head for head in found.texts["h2"][4:] if not head.startswith("Attention: ")] == [
        "Data",
        "Settings",
        "Cost",
    ]
    assert sum(head.startswith("Attention: ") for head in found.texts["h2"]) == 2
    cells = found.texts["td"]
    dev = api.load(run).read("dev")
    shown = [pair for pair in dev if pair.source in cells]
    assert len(shown) == SAMPLES
    for pair in shown:
        at = cells.index(pair.source)
        assert cells[at + 1] == pair.target, "the reference beside it"
        assert cells[at + 2] == run_report.cut(api.load(run).decode([pair.source])[0].text)
    for name, value in {
        "examples, train": "60",
        "examples, dev": "8",
        "model.dim": "8",
        "training.updates": "6",
    }.items():
        assert cells[cells.index(name) + 1] == value
    assert cells[cells.index("model.dim") + 2] == "256", "the default"
    assert "seed" not in cells, "what is as by default is not listed"
    assert {"parameters", "device", "versions.torch", "time"} <= set(cells)
    last = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
    assert f"{last['dev_loss']:.3f}" in cells


def test_the_command_makes_the_page_again_and_of_several_runs(run: Path, tmp_path: Path) -> None:
    before = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    printed = run_cli("report", run)
    assert printed.code == 0
    assert f"Report: {run}/report.html" in printed.out
    assert (run / "report.html").read_bytes() == before
    other = tmp_path / "other"
    api.fit({**RECIPE, "model": {**RECIPE["model"], "family": "fixed-context"}, "seed": 1}, other)
    facts = run_cli("report", run, other, "--out", tmp_path / "both.html", "--json").json
    assert facts["out"] == str(tmp_path / "both.html")
    assert [one["run"] for one in facts["runs"]] == [str(run), str(other)]
    assert all(one["update"] in (3, 6) and one["dev_loss"] > 0 for one in facts["runs"])
    found = check_page((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert found.texts["th"].count(str(other)) >= 4, "a column in every table"
    cells = found.texts["td"]
    assert cells[cells.index("model.family") : cells.index("model.family") + 3] == [
        "model.family",
        "bahdanau",
        "fixed-context",
    ]
    assert "training.updates" not in cells, "only what differs"
    assert (tmp_path / "both.png").exists()


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    (tmp_path / "texts.tsv").write_text(f'{evil} good\t<b>yes</b>\n{evil} bad\t"no"\n' * 3)
    made = {
        "task": "classification",
        "data": {"train": str(tmp_path / "texts.tsv"), "dev": str(tmp_path / "texts.tsv")},
        "vocabulary": {"kind": "words"},
        "model": {"family": "transformer-encoder", "dim": 8, "heads": 2, "depth": 1, "hidden": 8},
        "training": {"updates": 2, "evaluate_every": 1, "tokens": 200},
        "device": "cpu",
    }
    run = tmp_path / "<i>run"
    api.fit(made, run)
    (run / "run.json").write_text(json.dumps({"data": {evil: evil}, "cost": [evil]}))
    with (run / "log.jsonl").open("a") as file:
        file.write(
            json.dumps({"update": 3, "loss": "x", "dev_loss": 1.0, f"dev_{evil}": 1.0})
            + '\n{"update": {}}\n[1]\n{"up'
        )
    assert run_cli("report", run).code == 0
    found = check_page((run / "report.html").read_text(encoding="utf-8"))
    assert found.tags.count("img") == 1, "the curves"
    assert found.tags.count("script") == 3, "two attention views and their program"
    assert "b" not in found.tags
    assert "i" not in found.tags


def test_what_cannot_be_reported_is_a_sentence(run: Path, tmp_path: Path) -> None:
    for words, sentence in (
        (
            (tmp_path,),
            f"{tmp_path} is not a run folder: it has no recipe.json; give folders that `saccade train` wrote",
        ),
        ((run, run), "several runs were given; name the page to write, such as --out runs.html"),
        ((run, "--out", tmp_path / "x.png"), "name a file ending in .html"),
    ):
        printed = run_cli("report", *words)
        assert printed.code == 2
        assert sentence in printed.err
    with raises("not-a-run", match="is not a run folder"):
        run_report.read_run(tmp_path / "nowhere")


class Listening(Watcher):
    def __init__(self, stop_at: int = 0) -> None:
        self.notes: list[str] = []
        self.stop_at = stop_at

    def note(self, text: str) -> None:
        self.notes.append(text)

    def update(self, at: Any, row: dict[str, float]) -> None:
        if at.update == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_failing_picture_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "saccade.views.figures", None)
    listening = Listening()
    _, ended = api.fit(RECIPE, tmp_path / "run", watcher=listening)
    assert ended.done
    assert not (tmp_path / "run" / "report.html").exists()
    [note] = [
        note
        for note in listening.notes
        if note.startswith("note: no report was written (ModuleNotFoundError: ")
    ]
    assert f"saccade report {tmp_path / 'run'}" in note


def test_a_stopped_run_has_curves_and_can_be_reported(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        api.fit(RECIPE, tmp_path / "run", watcher=Listening(stop_at=2))
    assert (tmp_path / "run" / "curves.png").exists()
    assert not (tmp_path / "run" / "report.html").exists()
    printed = run_cli("report", tmp_path / "run")
    assert printed.code == 0, "before the first evaluation there is no best model, and no sample"
    check_page((tmp_path / "run" / "report.html").read_text(encoding="utf-8"))


def test_without_the_data_the_page_has_no_samples_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text(
        "a good film\tgood\na bad film\tbad\nfun\tgood\nno fun\tbad\n"
    )
    made = {
        "task": "classification",
        "data": {"train": str(tmp_path / "texts.tsv"), "held_out": 0.5},
        "vocabulary": {"kind": "words"},
        "model": {"family": "bag", "dim": 4},
        "training": {"updates": 1},
        "device": "cpu",
    }
    api.fit(made, tmp_path / "run")
    (tmp_path / "texts.tsv").unlink()
    assert run_cli("report", tmp_path / "run").code == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "The dev data could not be read: " in page
    assert "Samples" not in check_page(page).texts["h2"]
