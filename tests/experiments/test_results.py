"""Result files: what was measured, on what, by which command."""

from __future__ import annotations

import datetime
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch

from saccade import cli
from saccade.experiments.results import Table, check_table_path
from saccade.system import provenance
from support import raises

KEYS = [
    "name",
    "recipe",
    "command",
    "commit",
    "date",
    "device",
    "versions",
    "seeds",
    "rows",
    "peers",
    "notes",
]


def test_a_result_has_all_that_is_needed_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["/somewhere/bin/saccade", "evaluate", "runs/my run", "--beam", "5"]
    )
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789ab")
    rows = {"r.yaml": {"bleu": 98.25, "aer": [0.05, 0.06]}}
    table = Table("a.b-1", rows, "r.yaml", [0, 1], {"other": {"bleu": 97}}, "note é")
    path = table.write(tmp_path / "deep")
    assert path == tmp_path / "deep" / "a.b-1.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert list(found) == KEYS
    assert found["command"] == "saccade evaluate 'runs/my run' --beam 5"
    assert (found["seeds"], found["peers"]) == ([0, 1], {"other": {"bleu": 97}})
    assert found["rows"] == rows
    assert Table.read(path)["bleu_cased"] == 98.25, "BLEU also has the name that papers give it"
    assert (found["name"], found["recipe"], found["notes"]) == ("a.b-1", "r.yaml", "note é")
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found["date"])
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=5)
    # a package may not name its kind of build
    assert found["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["device"]


@pytest.mark.parametrize("argv", ["python -m saccade/__main__.py", "benchmarks/deep.py"])
def test_the_command_is_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: str
) -> None:
    monkeypatch.setattr("sys.argv", [argv, "--quick"])
    found = json.loads(Table("x", {}).write(tmp_path).read_text())
    assert found["command"] == (
        "saccade --quick" if "__main__" in argv else "benchmarks/deep.py --quick"
    )


ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
# measured on a GPU with uncommitted changes, before such files were marked; they say so themselves
DIRTY = {
    "bench-decode-gpu",
    "cifar10",
    "multi30k-de-en",
    "multi30k-en-fr",
    "table-efficient-recurrent",
    "hard",
}


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("/x/bin/saccade compare a --out /tmp/r/a --result a", "saccade compare a --result a"),
        ("saccade train a --out=/tmp/r/a seed=1", "saccade train a seed=1"),
        (
            "saccade train a model.weights=/home/me/scratch/w.safetensors",
            "saccade train a model.weights=w.safetensors",
        ),
        ("saccade train a data.train=~/x/a.en,/srv/b.fr", "saccade train a data.train=a.en,b.fr"),
        ("saccade heads ../shared/runs/one senses:test", "saccade heads one senses:test"),
        ("tests/robust/record.py /tmp/tmp.7FXW5VBG8P", "tests/robust/record.py"),
        (
            "benchmarks/serve_page.py en-fr=runs/serving",
            "benchmarks/serve_page.py en-fr=runs/serving",
        ),
        (
            f"{ROOT}/benchmarks/deep.py --data {ROOT}/data/x.txt",
            "benchmarks/deep.py --data data/x.txt",
        ),
        (
            "saccade compare a --peer b:c=1@https://example.org/a",
            "saccade compare a --peer b:c=1@https://example.org/a",
        ),
    ],
)
def test_a_command_has_no_path_of_one_machine(
    typed: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert provenance.command(typed.split()) == kept


def test_a_dirty_checkout_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789ab+")
    found = json.loads(Table("x", {}).write(tmp_path).read_text())
    assert (found["commit"], found["commit_dirty"]) == ("0123456789ab", True)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_result_can_be_repeated(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert set(found) - {"commit_dirty", "best"} == set(KEYS)
    assert found["name"] == path.stem
    words = shlex.split(found["command"])
    assert not re.search(r"(?:^|[\s=,'\"])(?:/|~|\.\.)", found["command"]), "a path of one machine"
    assert not any(word.startswith(("--out", "tmp")) for word in words)
    if words[0] == "saccade":
        assert words[1] in cli.NAMES
    else:
        assert (ROOT / words[0]).is_file(), "a program that does not exist"
    assert re.fullmatch(r"[0-9a-f]{7,12}", found["commit"])
    assert bool(found.get("commit_dirty")) == (path.stem in DIRTY)
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["versions"]["saccade"])
    assert found["versions"]["torch"]
    assert found["date"]
    assert found["device"]
    trained = words[:2] in (["saccade", "compare"], ["saccade", "table"]) or "--seeds" in words
    assert (len(found["seeds"]) > 0) if trained else isinstance(found["seeds"], list)
    if "--seeds" in words:
        assert found["seeds"] == list(range(int(words[words.index("--seeds") + 1])))
    for who, facts in found["peers"].items():
        assert facts.get("published") or facts.get("left_out"), (
            f"{who}: measured by nothing, and no source"
        )


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", ".hidden", "a/b", "é"])
def test_a_name_that_is_not_a_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with raises("bad-result-name"):
        Table(name, {}).write(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_metric_that_is_not_a_number_is_refused(tmp_path: Path, bad: float) -> None:
    with raises("result-not-finite"):
        Table("x", {"x": {"bleu": bad}}).write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_commit_shows_when_the_sources_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.commit() == "", "outside a checkout there is none"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1\n")
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    clean = provenance.commit()
    assert len(clean) == 12
    (tmp_path / "notes.txt").write_text("x")
    assert provenance.commit() == clean, "files beside the sources do not count"
    (tmp_path / "src" / "a.py").write_text("2\n")
    assert provenance.commit() == clean + "+"


def test_a_copy_gets_its_commit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_COMMIT", "0123456789ab")
    assert provenance.commit() == "0123456789ab"


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert provenance.commit() == ""


def test_the_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert provenance.device().startswith("CPU: ")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert provenance.device() == "a GPU"


def compared() -> Table:
    return Table(
        "x",
        {
            "best_one": {"bleu": [40.0, 42.0], "bleu_signature": ["a", "a"], "count": 3},
            "other": {"bleu": [30.0, 31.0], "bleu_p": 0.01},
            "third": {"bleu": [40.0, 41.0], "bleu_p": 0.5},
        },
        best="best_one",
    )


@pytest.mark.parametrize(
    ("ending", "lines"),
    [
        (
            "md",
            [
                "|  | bleu | count |",
                "|---|---|---|",
                "| best_one | **41 ± 1.414** | 3 |",
                "| other | 30.5 ± 0.7071\\* | – |",
                "| third | 40.5 ± 0.7071 | – |",
                "",
                "Bold: the best row. *: the best row is better (p < 0.05).",
            ],
        ),
        (
            "tex",
            [
                r"\begin{tabular}{lrr}",
                r"\hline",
                r" & bleu & count \\",
                r"\hline",
                r"best\_one & \textbf{41 $\pm$ 1.414} & 3 \\",
                r"other & 30.5 $\pm$ 0.7071$^{*}$ & -- \\",
                r"third & 40.5 $\pm$ 0.7071 & -- \\",
                r"\hline",
                r"\end{tabular}",
                r"% Bold: the best row. *: the best row is better (p < 0.05).",
            ],
        ),
        (
            "csv",
            [
                "row,bleu,bleu_spread,bleu_seeds,bleu_p,count,count_spread,count_seeds",
                "best_one,41.0,1.4142135623730951,2,,3.0,0.0,1",
                "other,30.5,0.7071067811865476,2,0.01,,,0",
                "third,40.5,0.7071067811865476,2,0.5,,,0",
            ],
        ),
    ],
)
def test_every_text_form_has_means_spreads_and_significance(
    tmp_path: Path, ending: str, lines: list[str]
) -> None:
    path = tmp_path / f"table.{ending}"
    compared().save(path)
    assert path.read_text(encoding="utf-8").splitlines() == lines


def test_another_ending_is_refused() -> None:
    with raises("unknown-table-format"):
        check_table_path(Path("table.docx"))


def test_a_file_of_version_0_3_is_read(tmp_path: Path) -> None:
    """The metrics of the best row and the names of papers stood there twice."""
    old = {"name": "x", "recipe": "a b", "seeds": [0], "peers": {}, "notes": "n", "commit": "c"}
    path = tmp_path / "x.json"

    def read(recipe: str = "a b", **figures: object) -> Table:
        path.write_text(json.dumps({**old, "recipe": recipe, "figures": figures}))
        return Table.read(path)

    rows = {"lr=0.1.bleu": [1.0], "b.bleu": [2.0], "lr=0.1.bleu_p": 0.5}
    table = read(best="b", bleu=[2.0], bleu_cased=[2.0], **rows)
    assert table.rows == {"lr=0.1": {"bleu": [1.0], "bleu_p": 0.5}, "b": {"bleu": [2.0]}}
    assert (table.best, table["bleu_cased"], table["lr=0.1.bleu"]) == ("b", [2.0], [1.0])
    assert (table.notes, table.about) == ("n", {"commit": "c"})
    assert read("one", loss=[0.5], val_loss=[0.5]).rows == {"one": {"loss": [0.5]}}
    assert read("a b", tests=3, groups={"core": {"tests": 3}}).rows == {
        "x": {"tests": 3},
        "groups": {"core": {"tests": 3}},
    }
    bench = read(scale="full", train=[{"case": "GPT", "ratio": 0.5}], left_out={"jax": "missing"})
    assert bench.rows == {"train: GPT": {"case": "GPT", "ratio": 0.5}}
    assert (bench.peers, bench.recipe) == ({"jax": {"left_out": "missing"}}, "scale full")
    path.write_text("{}")
    with raises("not-a-result-file"):
        Table.read(path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table = compared()
    again = Table.read(table.write(tmp_path))
    assert (again.rows, again.best, again.seeds) == (table.rows, "best_one", [])
    assert Table.read(again.write(tmp_path / "copy")) == again, "provenance is kept"
    with pytest.raises(KeyError):
        again["best_one.nothing"]
    assert again["other.bleu"] == [30.0, 31.0]
    assert again["bleu"] == [40.0, 42.0]
