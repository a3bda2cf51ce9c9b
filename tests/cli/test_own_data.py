"""Data as people have it: corpora with bad lines, CSV from elsewhere, raw text; read, cleaned, trained on and used from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import run_cli, tiny_recipe

GOOD = [f"the cat number {n}\tle chat numéro {n}" for n in range(40)]
BAD = ["\tvide", "", "one column", "word " * 80 + "\t" + "mot " * 80, "yes\t" + "non " * 30]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.tsv").write_text("\n".join([*GOOD[:20], *BAD, *GOOD[20:]]) + "\n")
    Path("good.tsv").write_text("\n".join(GOOD) + "\n")
    made = tiny_recipe(training={"tokens": 100, "updates": 1})
    made["data"] = {"train": "bad.tsv"}
    Path("mine.yaml").write_text(json.dumps(made))


def train(*words: str) -> list[str]:
    """The notes of a training run, which must succeed."""
    printed = run_cli("train", "mine.yaml", *words)
    assert printed.code == 0, printed.err
    # the run is named by its folder, which is last
    return [line.removeprefix(f"{words[-1]}: ") for line in printed.err.splitlines()]


def test_bad_pairs_are_skipped_and_reported_first() -> None:
    first, second, *_ = train("--out", "a")
    assert first.startswith(
        "data: 26 pairs to train on in bad.tsv, 14 pairs held out of it (0.333) for dev; vocabulary: "
    )
    assert first.endswith(" tokens (source and target)")
    assert second == (
        "skipped 5 of 45 pairs in bad.tsv: 1 with an empty side (line 21), 1 empty (line 22), 1 with wrong columns (line 23), "
        "1 of more tokens than a batch holds (training.tokens=100) (line 24), "
        "1 with one side more than 9 times as long as the other (data.max_ratio) (line 25)"
    )


def test_strict_stops_at_the_first_and_names_it() -> None:
    printed = run_cli("train", "mine.yaml", "data.strict=true", "--out", "a")
    assert (printed.code, printed.err) == (
        2,
        "saccade: bad.tsv, line 21: the source is empty; remove this line\n",
    )
    for n, (line, sentence) in enumerate(
        ((BAD[3], "more than a batch may hold (training.tokens=100)"), (BAD[4], "(data.max_ratio)"))
    ):
        Path("bad.tsv").write_text("\n".join([*GOOD, line]) + "\n")
        printed = run_cli(
            "train", "mine.yaml", "data.strict=true", "data.dev=good.tsv", "--out", f"b{n}"
        )
        assert printed.code == 2
        assert printed.err.startswith("saccade: line 41 of the training data ")
        assert sentence in printed.err


def test_max_length_and_max_ratio_change_what_is_skipped() -> None:
    Path("bad.tsv").write_text("\n".join([*GOOD, "a cat\tun chat", BAD[4]]) + "\n")
    [*_, skipped] = [
        note
        for note in train("data.max_length=4", "data.dev=good.tsv", "--out", "a")
        if note.startswith("skipped")
    ]
    assert skipped.startswith(
        "skipped 41 of 42 pairs in bad.tsv: 40 longer than data.max_length=4 (first: line 1), 1 with one side"
    )
    assert not [
        note for note in train("data.max_ratio=null", "--out", "b") if note.startswith("skipped")
    ]
    printed = run_cli("train", "mine.yaml", "data.max_length=2", "--out", "c")
    assert printed.code == 2
    assert (
        "cannot be used; line 1 of the training data has 5 tokens on a side, more than data.max_length=2"
        in printed.err
    )


def test_a_batch_too_small_for_most_pairs_is_a_mistake() -> None:
    printed = run_cli("train", "mine.yaml", "training.tokens=9", "--out", "a")
    assert printed.code == 2
    assert (
        "examples cannot be used; line 1 of the training data has 5 + 5 tokens, more than a batch may hold"
        in printed.err
    )
    assert not Path("a").exists()


def test_what_dev_shares_with_train_is_noticed() -> None:
    Path("dev.tsv").write_text("\n".join([*GOOD[:5], "quite\tnouveau"]) + "\n")
    notes = train("data.dev=dev.tsv", "--out", "a")
    assert (
        "warning: 5 of 6 dev pairs also occur in the training data (the same input), so dev metrics say less about new text"
        in notes
    )
    assert [
        note
        for note in train("data.train=good.tsv", "data.dev=good.tsv", "--out", "b")
        if "40 of 40 dev pairs also occur" in note
    ]
    assert not [note for note in train("--out", "c") if "also occur" in note]


def test_a_label_that_only_dev_has_is_skipped() -> None:
    Path("t.tsv").write_text(
        "".join(f"text {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(20))
    )
    Path("d.tsv").write_text("text 50\tgood\ntext 51\tbad\ntext 52\tsingular\n")
    words = [
        "task=classification",
        "model.family=bag",
        "data.train=t.tsv",
        "data.dev=d.tsv",
        "model={family: bag, dim: 4}",
    ]
    notes = train(*words, "--out", "a")
    assert (
        "skipped 1 of 3 texts in d.tsv: 1 with a label that no training example has (line 3)"
        in notes
    )


def test_evaluation_skips_nothing(shelf: Path) -> None:
    printed = run_cli("evaluate", shelf / "run", "bad.tsv")
    assert (printed.code, printed.err) == (
        2,
        "saccade: bad.tsv, line 21: the source is empty; remove this line\n",
    )
    Path("long.tsv").write_text("\n".join([*GOOD[:3], BAD[3], BAD[4]]) + "\n")
    assert run_cli("evaluate", shelf / "run", "long.tsv", "--json").json["sentences"] == 5


# --- check


def test_a_clean_copy_is_written_once() -> None:
    printed = run_cli("check", "bad.tsv", "--write", "clean.tsv")
    assert printed.code == 0
    assert printed.err.splitlines()[0] == "clean.tsv: 41 pairs written"
    assert "1 with one side more than 9 times as long (line 25)" in printed.err
    assert (
        Path("clean.tsv").read_text()
        == "\n".join(
            [
                *GOOD[:20],
                "\t".join(" ".join(side.split()) for side in BAD[3].split("\t")),
                *GOOD[20:],
            ]
        )
        + "\n"
    )
    again = run_cli("check", "bad.tsv", "--write", "clean.tsv")
    assert (again.code, again.out, again.err) == (
        2,
        "",
        "saccade: clean.tsv already exists; choose a new file with --write\n",
    )
    assert run_cli("check", "clean.tsv").code == 0


def test_a_clean_copy_is_shorter_without_long_and_repeated_pairs() -> None:
    Path("bad.tsv").write_text("\n".join([*GOOD, *GOOD[:3], *BAD]) + "\n")
    printed = run_cli(
        "check", "bad.tsv", "--write", "clean.en,clean.fr", "--unique", "--max-length", "50"
    )
    assert "3 repeating an earlier one (first: line 41)" in printed.err
    assert "1 longer than 50 words or characters (line 47)" in printed.err
    assert Path("clean.en").read_text().splitlines() == [line.split("\t")[0] for line in GOOD]
    assert Path("clean.fr").read_text().splitlines() == [line.split("\t")[1] for line in GOOD]
    assert run_cli("check", "clean.en", "clean.fr", "--write", "both.jsonl").code == 0
    assert json.loads(Path("both.jsonl").read_text().splitlines()[0]) == dict(
        zip(("source", "target"), GOOD[0].split("\t"), strict=True)
    )


def test_clean_copies_of_labels_and_text() -> None:
    Path("l.csv").write_text('review;stars\n"a\ttab;\nand a line";5\n;4\nfine;1\n')
    assert run_cli("check", "l.csv", "--write", "l.tsv").code == 0
    assert Path("l.tsv").read_text() == "a tab; and a line\t5\nfine\t1\n"
    Path("t.txt").write_bytes(b"one\ncaf\xe9\n\ntwo\n")
    assert run_cli("check", "t.txt", "--documents", "blank", "--write", "c.txt").code == 0
    assert Path("c.txt").read_text() == "two\n\n"
    assert run_cli("check", "t.txt", "--write", "d.txt").code == 0
    assert Path("d.txt").read_text() == "one\n\n\ntwo\n"


def test_parallel_files_out_of_step_are_not_written() -> None:
    Path("a.en").write_text("one\ntwo\nthree\n")
    Path("a.fr").write_text("un\ntrois\n")
    printed = run_cli("check", "a.en", "a.fr", "--write", "clean.tsv")
    assert printed.code == 2
    assert printed.err.endswith(
        "line n of one must translate line n of the other; nothing was written\n"
    )
    assert not Path("clean.tsv").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("check bad.tsv --write clean.xml", "cannot write pairs to 'clean.xml'; name a .tsv or .jsonl file, or two files as clean.en,clean.fr"),
        ("check bad.tsv --as labels --write a.en,a.fr", "cannot write labels to 'a.en,a.fr'; name a .tsv or .jsonl file"),
        ("check bad.tsv --unique", "--unique and --max-length are for a clean copy; add --write FILE"),
        ("check good.tsv --dev nowhere.tsv", "no file 'nowhere.tsv'"),
    ],
)  # fmt: skip
def test_a_mistake_writes_nothing(line: str, sentence: str) -> None:
    before = sorted(Path().iterdir())
    printed = run_cli(*line.split())
    assert (printed.code, printed.out) == (2, "")
    assert sentence in printed.err
    assert sorted(Path().iterdir()) == before


def test_several_sets_are_compared() -> None:
    Path("dev.tsv").write_text("\n".join([*GOOD[:5], "quite\tnouveau"]) + "\n")
    printed = run_cli("check", "good.tsv", "--dev", "dev.tsv", "--dev", "good.tsv")
    assert printed.code == 0
    assert (
        "warning: 5 of 6 pairs also in good.tsv (the same source); remove them from one of the two"
        in printed.out
    )
    assert "warning: 40 of 40 pairs also in good.tsv" in printed.out
    found = [
        json.loads(line)
        for line in run_cli("check", "good.tsv", "--dev", "dev.tsv", "--json").out.splitlines()
    ]
    assert [one["name"] for one in found] == ["good.tsv", "dev.tsv"]
    assert found[1]["findings"][0]["kind"] == "overlap"


# --- the same reader for --input


def test_the_input_of_classify_is_the_column_of_texts(shelf: Path) -> None:
    Path("d.csv").write_text("label,text\ngood,a good film\nbad,no fun\n")
    Path("d.txt").write_text("a good film\nno fun\n")
    expected = run_cli("classify", shelf / "labels", "--input", "d.txt").out
    assert run_cli("classify", shelf / "labels", "--input", "d.csv").out == expected
    assert run_cli("classify", shelf / "labels", "--input", "d.csv#text").out == expected
    assert run_cli("evaluate", shelf / "labels", "d.csv#text,label", "--json").json["texts"] == 2


def test_the_input_of_translate_is_the_source(shelf: Path) -> None:
    Path("d.tsv").write_text("the black cat\tle chat noir\n\nthe dog\tle chien\n")
    Path("d.en").write_text("the black cat\n\nthe dog\n")
    expected = run_cli("translate", shelf / "run", "--input", "d.en").out
    assert run_cli("translate", shelf / "run", "--input", "d.tsv").out == expected
    assert len(expected.splitlines()) == 3
    printed = run_cli("translate", shelf / "run", "--input", "phrasebook:test")
    assert len(printed.out.splitlines()) == 12, "generated with the sizes of the recipe"
    assert "no file 'none.en'" in run_cli("translate", shelf / "run", "--input", "none.en").err


# --- raw text for taggers


def test_a_tagger_takes_raw_text_with_empty_lines(shelf: Path) -> None:
    Path("a.txt").write_text("the cats\n\nsleep.\n")
    printed = run_cli("tag", shelf / "tags", "a.txt", "--json")
    assert printed.code == 0
    assert [json.loads(line)["words"] for line in printed.out.splitlines()] == [
        ["the", "cats"],
        ["sleep."],
    ]
    assert (
        printed.err
        == "note: text is split at spaces, as the training data is; --split space or words changes it\n"
    )
    printed = run_cli("tag", shelf / "tags", "a.txt", "--json", "--split", "words")
    assert [json.loads(line)["words"] for line in printed.out.splitlines()] == [
        ["the", "cats"],
        ["sleep", "."],
    ]
    assert "split into words and punctuation;" in printed.err
    assert run_cli("tag", shelf / "words", "a.txt").err.startswith(
        "saccade: a language-modelling model cannot tag words"
    )


def test_a_tagger_trained_on_split_punctuation_splits_it() -> None:
    Path("t.tsv").write_text(
        "cats\tNOUN\nsleep\tVERB\n.\tPUNCT\n\nyes\tINTJ\n,\tPUNCT\nsleep\tVERB\n.\tPUNCT\n\n" * 4
    )
    words = [
        "task=tagging",
        "model={family: rnn-encoder, dim: 4, hidden: 4, depth: 1}",
        "data.train=t.tsv",
        "data.dev=t.tsv",
    ]
    train(*words, "--out", "a")
    printed = run_cli("tag", "a", "-", "--json", stdin="Yes, cats didn't sleep.\n")
    assert printed.json["words"] == ["Yes", ",", "cats", "did", "n't", "sleep", "."]
    assert "into words and punctuation, as the training data is" in printed.err
