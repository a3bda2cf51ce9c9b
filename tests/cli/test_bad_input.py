"""Whatever is typed or lies on the disk: a mistake is one line that begins with `saccade:`, code 2, and nothing is lost."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from saccade.files import MANIFEST
from support import check_mistake, run_cli, split_words

LONG = "a" * 300
# words after `saccade`, and how the sentence begins or what it contains; all paths lie in one folder, see `folder`
ROWS: list[tuple[str, str]] = [
    # no such command, argument or value
    ("nope", "No such command 'nope'"),
    ("--nope", "No such option: --nope"),
    ("translate", "Missing argument 'model'; see saccade translate --help"),
    ("translate run the cat", "unexpected extra argument"),
    ("translate run the --beam three", "Invalid value for '--beam'"),
    ("translate run the --beam 99999999999999999999999999", "a beam of"),
    ("show run", "Missing argument 'text'"),
    ("train", "no recipe was named; write `saccade train RECIPE`, or `saccade train --resume RUN` to continue a run"),
    ("train --resume", "no recipe was named; write"),
    ("train --resume training.updates=5", "no recipe was named; write"),
    ("train run", "run is a run; continue it with `saccade train --resume run`, or repeat it with `saccade train run/recipe.json --out NEW`"),
    ("train run/recipe.json", "run already contains a run; use --resume to continue it, or choose another --out"),
    ("train empty", "empty is a folder and holds no run; give a recipe file, or a recipe's name"),
    ("train --resume empty", "empty holds no run to resume; start one with `saccade train RECIPE --out empty`"),
    ("train --resume runs/none", "runs/none holds no run to resume; start one with"),
    ("train --resume --out nowhere", "nowhere holds no run to resume"),
    ("train --resume run --out empty", "run and --out empty are two folders; name the one run to resume"),
    ("train good.yaml model.size=huge", "model.size is 'huge', and a size of transformer is one of: tiny, small, medium, base, big, auto"),
    ("train good.yaml model.size=[1]", "model.size is [1], and a size of transformer is one of"),
    ("train good.yaml training.minutes=-1", "training.minutes is -1.0; it must lie between 0 and"),
    ("evaluate run", "Missing argument 'data'"),
    ("check", "Missing argument 'data'"),
    ("demo --seed -1", "Invalid value for '--seed'"),
    # models
    ("translate nowhere x", "no model folder at nowhere; give the path of a folder written by `saccade train`"),
    (f"translate {LONG} x", "no model folder at aaa"),
    ("translate text.txt x", "text.txt is a file, not a model folder"),
    ("translate empty x", "empty is not an intact model folder: it has no manifest.json"),
    ("translate torn x", "model.safetensors is not what was written (its sha256 differs from the manifest)"),
    ("translate other x", "is (3, 3) there and"),
    ("evaluate nowhere phrasebook:test", "no model folder at nowhere"),
    ("show nowhere x --out x.png", "no model folder at nowhere"),
    ("translate run the --device tpu", "no device named 'tpu'; write auto, cpu, cuda or mps"),
    # texts
    ("translate run ''", "the text is empty; give a sentence"),
    ("translate run", "stdin is empty; give at least one line"),
    ("translate run the --input text.txt", "both a text and --input were given; give one of them"),
    ("translate run --input nowhere.txt", "no file 'nowhere.txt'"),
    ("translate run --input tetx.txt", "no file 'tetx.txt'; did you mean 'text.txt'?"),
    ("translate run --input empty", "empty is a folder, not a file"),
    ("translate run --input empty.txt", "empty.txt is empty; it needs at least one line"),
    ("translate . the", ". holds the runs fixed, other, run, torn; name one, such as fixed"),
    ("translate / the", "/ is not an intact model folder: it has no manifest.json"),
    ("translate '' the", ". holds the runs fixed, other, run, torn; name one"),
    ("consolidate . --out new", ". is not an intact"),
    ("translate run the --with .", ". holds the runs fixed"),
    ("translate run --input nul.txt", "nul.txt, line 2: a NUL character in the line at column 2; the text is damaged"),
    ("translate run --input book.txt", "line 2 has 60,001 characters, more than 50,000; put one sentence on each line"),
    ("evaluate run test --moses xx", "'xx' is not a language with Moses tokens; choose one of as, bn, ca, cs, de,"),
    ("evaluate run nope", "no file 'nope'; check the path"),
    ("translate run --input latin.txt", "latin.txt, line 2: not UTF-8 (byte 0xe9 at column 4)"),
    ("translate run --input torn.gz", "torn.gz"),
    ("translate run '\udcff'", "the text, line 1: not UTF-8 (byte 0xff); convert it first"),
    ("translate fixed the --align", "this model does not attend to the source, so it has no alignment; use a model with attention"),
    ("explain ''", "the sentence is empty"),
    # searches
    ("translate run the --beam 100000", "a beam of 100000; give a whole number from 1 to 1000"),
    ("translate run the --beam 0", "a beam of 0"),
    ("translate run the --length-penalty nan", "a length penalty of nan; give a number from -10 to 10"),
    ("translate run the --temperature nan", "temperature is nan; give a number of 0 or more"),
    ("translate run the --temperature -1", "temperature is -1.0"),
    ("translate run the --top-k 0", "top_k is 0; give at least 1, or leave it out"),
    ("translate run the --top-p 1.5", "top_p is 1.5; give a number above 0 and at most 1"),
    ("translate run the --top-p 0.5 --seed 99999999999999999999", "the seed is 99999999999999999999"),
    ("evaluate run phrasebook:test --beam -3", "a beam of -3"),
    ("show run the --out x.png --beam 5000", "a beam of 5000"),
    # data
    ("evaluate run nowhere.tsv", "no file 'nowhere.tsv'"),
    ("evaluate run phrasebook:tset", "'phrasebook:tset' is not a part of phrasebook; did you mean 'test'?"),
    ("evaluate run broken.tsv", "broken.tsv, line 2: 1 column instead of 2 or 3; a line is source<TAB>target"),
    ("evaluate run broken.jsonl", "broken.jsonl, line 1: not JSON"),
    ("evaluate run text.txt", "pairs cannot be read from 'text.txt'; give one .tsv, .csv or .jsonl file"),
    ("evaluate run text.txt,empty.txt", "empty.txt is empty"),
    ("evaluate run short.txt,text.txt", "short.txt has 1 lines and text.txt has 2"),
    ("check nowhere.tsv", "no file 'nowhere.tsv'"),
    ("check empty", "empty is a folder, not a file"),
    ("check a b c", "3 files were given"),
    ("list scors", "no slot named 'scors'; did you mean 'scores'?"),
    ("list --where zzz", "nothing in the catalogue contains 'zzz'"),
    # pictures
    ("show run the --out x.bmp", "cannot draw to 'x.bmp'; name a file ending in .png, .svg, .pdf, .html or .json"),
    ("show run the --out empty", "cannot draw to 'empty'"),
    ("show run the --out text.txt/x.png", "cannot write text.txt/x.png: "),
    ("show run the --out text.txt/x.html", "cannot write text.txt/x.html"),
    ("show run the --out folder.png", "folder.png"),
    ("show run the --out folder.html", "cannot write folder.html: Is a directory"),
    (f"show run the --out {LONG}.json", "File name too long"),
    ("show run the --out x.png --site decoder.cros", "no attention named 'decoder.cros'; did you mean 'decoder.cross'? (of decoder.cross)"),
    ("show run the --site encoder", "no attention named 'encoder'"),
    ("show run the --head 1", "no head 1 in decoder.cross; it has 0 to 0"),
    ("show run the --head -1", "no head -1 in decoder.cross"),
    ("show run the --head 0 --heads", "both --head and --heads were given; give one of them"),
    ("show run the --head 0 --out x.html", "a .html file has every head; leave --head out"),
    ("show run the --heads --out x.json", "a .json file has every head; leave --heads out"),
    ("show run '' --out x.png", "the text is empty; give a sentence"),
    ("show fixed the --out x.png", "the family fixed-context has no attention to show; train one that attends"),
    # recipes
    ("train nowhere.yaml", "no recipe file 'nowhere.yaml', and none of that name comes with saccade"),
    ("train phrasebook-bahdanu", "did you mean 'phrasebook-bahdanau'?"),
    ("train empty.txt", "empty.txt is empty; write at least `data:` and `model:`"),
    ("train broken.yaml", "broken.yaml, line 2: invalid YAML; write `key: value` lines"),
    ("train latin.txt", "latin.txt is not UTF-8 text; give a YAML file"),
    ("train good.yaml training.updatse=5", "no setting named 'training.updatse'; did you mean 'updates'?"),
    ("train good.yaml training.updates", "expected key=value, such as training.updates=500, got 'training.updates'"),
    ("train good.yaml training.learning_rate=.nan", "training.learning_rate is nan; it must be a finite number"),
    ("train good.yaml model.dim=1000000000000", "model.dim is 1000000000000; it must lie between 1 and 65,536"),
    ("train good.yaml model.score=dott", "no score named 'dott'; did you mean 'dot'?"),
    ("train good.yaml data.train=broken.tsv data.strict=true --out new", "broken.tsv, line 2: 1 column instead of 2 or 3"),
    ("train good.yaml data.train=empty.txt,empty.txt --out new", "empty.txt is empty"),
    ("train good.yaml data.options.train=1000000000000 --out new", "1,000,000"),
    ("train good.yaml model.family=transformer-encoder --out new", "'transformer-encoder', which is not an encoder–decoder; choose one of: "),
    ("train good.yaml device=cuda:77 --out new", "device"),
    # run folders
    ("train good.yaml --out run", "run already contains a run; use --resume to continue it, or choose another --out"),
    ("train --resume run model.dim=9", "run was started with a different model.dim; resume with the same recipe (only "),
    ("train good.yaml --out text.txt", "text.txt is a file; give a folder for the run with --out"),
    ("train good.yaml --out folder.png", "folder.png contains other files and no run; choose an empty or new folder"),
    ("train good.yaml --out text.txt/deep", "cannot write text.txt/deep"),
    (f"train good.yaml --out {LONG}", "File name too long"),
    ("demo --out folder.png", "folder.png contains other files than a demo's run; choose another --out"),
    ("demo --out text.txt", "text.txt is a file; choose a folder with --out"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(models: Path, recipe_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models and files, good and bad."""
    root = tmp_path_factory.mktemp("folder")
    shutil.copytree(models / "run", root / "run")
    for name in ("fixed", "torn", "other"):
        shutil.copytree(models / "fixed", root / name)
    torn = root / "torn" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1] + b"x")
    wrong_shape(root / "other")
    for name in ("empty", "folder.png", "folder.html"):
        (root / name).mkdir()
    (root / "folder.png" / "mine.txt").write_text("mine")
    texts = {
        "text.txt": "the cat\nthe dog\n",
        "short.txt": "le chat\n",
        "empty.txt": "",
        "broken.tsv": "the cat\tle chat\nno tab here\n",
        "broken.jsonl": '{"source": \n',
        "broken.yaml": "data: [\nmodel: }\n",
        "good.yaml": recipe_text,
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    (root / "latin.txt").write_bytes(b"the cat\ncaf\xe9\n")
    (root / "nul.txt").write_bytes(b"the cat\na\0b\n")
    (root / "book.txt").write_text("the cat\n" + "the " * 15_000 + "\u2028\n", encoding="utf-8")
    (root / "torn.gz").write_bytes(b"\x1f\x8b\x08\x00junk")
    return root


@pytest.fixture(scope="module")
def recipe_text() -> str:
    """Good in itself, and small, should it ever be trained."""
    return json.dumps(
        {
            "data": {
                "train": "phrasebook:train",
                "dev": "phrasebook:dev",
                "options": {"train": 20, "dev": 4, "test": 4},
            },
            "model": {"family": "transformer", "dim": 8, "hidden": 8, "depth": 1, "heads": 2},
            "vocabulary": {"kind": "words"},
            "training": {"updates": 1},
            "device": "cpu",
        }
    )


def wrong_shape(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[min(tensors)] = torch.zeros(3, 3)
    save_file(tensors, path)
    listed = json.loads((folder / MANIFEST).read_text())
    listed["files"][path.name] = {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
    }
    (folder / MANIFEST).write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("line", "sentence"),
    ROWS,
    ids=[
        f"{n}-{line[:50]}".encode("ascii", "replace").decode() for n, (line, _) in enumerate(ROWS)
    ],
)
def test_a_mistake_is_one_line_and_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    monkeypatch.chdir(folder)
    check_mistake(folder, line, sentence)


def test_json_changes_nothing_about_mistakes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for line in (
        "translate nowhere x",
        "train nowhere.yaml",
        "list scors",
        "check nowhere.tsv",
        "explain ''",
        "demo --out text.txt",
    ):
        plain, machine = run_cli(*split_words(line)), run_cli(*split_words(line), "--json")
        assert (plain.code, plain.err, plain.out) == (machine.code, machine.err, machine.out)
