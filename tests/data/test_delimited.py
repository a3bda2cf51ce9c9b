"""Columns by name or number, whatever separates them, and the texts of any data without its gold."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.config import recipes
from saccade.data.bad_lines import Skipped
from saccade.data.corpora import LABELED, PAIRS, corpus, inputs, labeled, read
from saccade.data.findings import check
from saccade.data.labeled import Labeled
from saccade.system.build import prepared
from support import TINY_RECIPE, error_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("my.csv#review,sentiment", 'id,review,sentiment\n1,"fine, really",pos\n2,bad,neg\n'),
        ("my.csv#Review , Sentiment", 'id,review,sentiment\n1,"fine, really",pos\n2,bad,neg\n'),
        ("my.csv#2,3", 'id,review,sentiment\n1,"fine, really",pos\n2,bad,neg\n'),
        ("my.csv#2,3", '1,"fine, really",pos\n2,bad,neg\n'),
        ("my.csv", "sentiment;text;id\npos;fine, really;1\nneg;bad;2\n"),
        ("my.csv", "label\ttext\npos\tfine, really\nneg\tbad\n"),
        ("my.csv", 'Review,Sentiment\r\n"fine, really",pos\r\nbad,neg\r\n'),
        ("my.csv", 'text,label,category\n"fine, really",pos,x\nbad,neg,y\n'),
        ("my.tsv#r,s", "id\ts\tr\n1\tpos\tfine, really\n2\tneg\tbad\n"),
        ("my.tsv#2,1", "pos\tfine, really\nneg\tbad\n"),
        ("my.tsv", "sentence\tlabel\nfine, really\tpos\nbad\tneg\n"),
        ("my.jsonl#r,s", '{"r": "fine, really", "s": "pos"}\n{"r": "bad", "s": "neg"}\n'),
    ],
)
def test_columns_are_found(name: str, content: str) -> None:
    Path(name.partition("#")[0]).write_text(content)
    assert [(one.text, one.label) for one in labeled(name)] == [
        ("fine, really", "pos"),
        ("bad", "neg"),
    ]


def test_columns_of_pairs() -> None:
    Path("p.csv").write_text("id;en;de;alignment\n1;the cat;die Katze;0-0 1-1\n")
    [pair] = corpus("p.csv#en,de")
    assert (pair.source, pair.target, pair.line, pair.alignment) == (
        "the cat",
        "die Katze",
        2,
        ((0, 0), (1, 1)),
    )
    assert corpus("p.csv#de,en")[0].source == "die Katze"
    Path("p.tsv").write_text("target\tsource\tid\nle chat\tthe cat\t7\n")
    assert corpus("p.tsv")[0].source == "the cat"
    Path("q.tsv").write_text("the cat\tle chat\n")
    assert corpus("q.tsv#2,1")[0].source == "le chat"
    Path("odd#name,x.tsv").write_text("a\tb\n")
    assert corpus("odd#name,x.tsv")[0].source == "a", "a file that is there is taken as it is"


@pytest.mark.parametrize(
    ("where", "content", "sentence"),
    [
        ("a.csv", "review_body,stars_given\nx,y\n",
         "expected one column named text and one named label, got: 'review_body', 'stars_given'; rename them, or choose columns by name "
         "or number, such as a.csv#1,2"),
        ("a.csv#revew,label", "review,label\nx,y\n", "a.csv has no column 'revew' (line 1 has 2); did you mean 'review'?"),
        ("a.csv#1,3", "x,y\n", "a.csv has no column '3' (line 1 has 2)"),
        ("a.csv#text", "text,label\nx,y\n", "1 column after the # of a.csv, but 2 are read; write it as a.csv#text,label, with your names"),
        ("a.csv#", "text,label\nx,y\n", "'a.csv#' names no column after the #; write it as a.csv#a,b"),
        ("a.train#1,2", "1 fine\n", "a.train has no columns to choose with a #"),
    ],
)  # fmt: skip
def test_a_wrong_column_is_answered_with_those_there_are(
    where: str, content: str, sentence: str
) -> None:
    Path(where.partition("#")[0]).write_text(content)
    assert sentence in error_of(lambda: labeled(where))


def test_inputs_are_the_texts_alone() -> None:
    Path("d.csv").write_text('label,text\npos,"one\nline"\nneg,two\n')
    assert list(inputs(LABELED, "d.csv")) == ["one line", "two"], "a line of output for each"
    Path("only.csv").write_text("review\nfine\n")
    assert list(inputs(LABELED, "only.csv")) == ["fine"], "gold labels need not be there"
    Path("p.tsv").write_text("the cat\tle chat\n\nthe dog\tle chien\n")
    assert list(inputs(PAIRS, "p.tsv")) == ["the cat", "", "the dog"], (
        "an empty line keeps its number"
    )
    assert list(inputs(PAIRS, "p.tsv", second=True)) == ["le chat", "", "le chien"]
    Path("s.tsv").write_text("only a source\n")
    assert list(inputs(PAIRS, "s.tsv")) == ["only a source"]
    Path("p.jsonl").write_text('{"source": "a", "target": "b"}\n{"source": "c"}\n')
    assert list(inputs(PAIRS, "p.jsonl")) == ["a", "c"]
    Path("x.csv").write_text("q,en,de\n1,a,b\n")
    assert list(inputs(PAIRS, "x.csv#en,de")) == list(inputs(PAIRS, "x.csv#en")) == ["a"]
    assert list(inputs(PAIRS, "x.csv#en,de", second=True)) == ["b"]
    Path("a.en").write_text("one\t1\n\ntwo\n")
    Path("a.fr").write_text("un\n\ndeux\n")
    assert list(inputs(PAIRS, "a.en")) == ["one\t1", "", "two"], "plain text is read as it is"
    assert list(inputs(PAIRS, "a.en,a.fr", second=True)) == ["un", "", "deux"]
    Path("fast.txt").write_text("__label__pos fine\n")
    assert list(inputs(LABELED, "fast.txt")) == ["fine"]
    sizes = {"train": 9, "dev": 3, "test": 3}
    assert list(inputs(PAIRS, "phrasebook:test", options=sizes)) == [
        pair.source for pair in corpus("phrasebook:test", sizes)
    ]
    assert list(inputs(LABELED, "reviews:test", options=sizes)) == [
        one.text for one in labeled("reviews:test", sizes)
    ]
    Path("bad.jsonl").write_text('{"source": "a"}\n{oops\n')
    assert "bad.jsonl, line 2: not JSON" in error_of(lambda: list(inputs(PAIRS, "bad.jsonl"))), (
        "nothing is left out"
    )


def test_lines_of_a_table_are_those_of_its_file() -> None:
    Path("m.csv").write_text('text,label\n"two\nlines",a\nnext,b\n')
    assert labeled("m.csv") == [Labeled("two\nlines", "a", 2), Labeled("next", "b", 4)]


WIDE = "review_id,customer,stars,review text,sentiment\n" + "".join(
    f"{n},customer {n % 77},{n % 5},the {n} film was long and {'good' if n % 3 else 'bad'},{'good' if n % 3 else 'bad'}\n"
    for n in range(90)
)


def test_the_columns_that_are_suggested_are_texts_and_labels() -> None:
    Path("a.csv").write_text(WIDE)
    assert "by name or number, such as 'a.csv#review text,sentiment'" in error_of(
        lambda: labeled("a.csv")
    )
    right = labeled("a.csv#review text,sentiment")
    assert (len(right), right[0]) == (90, Labeled("the 0 film was long and bad", "bad", 2))
    assert labeled("a.csv#4,5") == right, "the names of the columns are no example"
    Path("b.csv").write_text(
        WIDE.replace("review text", "review, as text").replace(
            "review, as text", '"review, as text"'
        )
    )
    assert "such as b.csv#4,5" in error_of(lambda: labeled("b.csv")), (
        "a name with a comma cannot be named"
    )
    Path("c.csv").write_text(WIDE.partition("\n")[2])
    assert "such as c.csv#4,5" in error_of(lambda: labeled("c.csv"))
    assert len(labeled("c.csv#4,5")) == 90, "the first line is an example"
    Path("p.csv").write_text(
        "no,deutsch,cat,english\n" + "".join(f"{n},die Katze {n},x,the cat {n}\n" for n in range(9))
    )
    assert "such as p.csv#deutsch,english" in error_of(lambda: corpus("p.csv"))


HEADERS = {
    "name\tdate\n": "July {n}\t1988-03-{n}\n",  # usual names
    "wer\twann\n": "July\t1988-03-{n}\n",  # no digits, where each value has some
    "opinion\tverdict\n": "a long and {n} times fine film\tgood\na film {n} times as long as a bad one\tbad\n",  # a label that no text has
}
NO_HEADERS = {
    "cat\tchat\n": "dog\tchien\n",
    "good film\tgood\n": "a long and fine film\tgood\na film as long as a bad one\tbad\n",
    "July\t1988-03-01\n": "July {n}\t1988-03-{n}\n",
    "the cat sat on the mat and looked at the dog\tthe date\n": "July\t1988-03-{n}\n",  # too long for a name
    "name\tname\n": "mat\tMatte\n",
}


@pytest.mark.parametrize("first", [*HEADERS, *NO_HEADERS])
def test_a_first_line_that_clearly_names_columns_is_no_pair(first: str) -> None:
    below = (HEADERS | NO_HEADERS)[first]
    Path("a.tsv").write_text(first + "".join(below.format(n=n) for n in range(40)))
    count = 40 * below.count("\n")
    found, skipped = check(["a.tsv"], "pairs"), Skipped()
    named = [one for one in found.findings if one.kind == "header"]
    train = read(PAIRS, "a.tsv", skipped=skipped)
    if first in HEADERS:
        assert (found.count, found.errors, [one.level for one in named]) == (count, 0, ["note"])
        assert (
            "line 1 is taken for the names of the columns; if it is an example, put a line of names above it"
            in str(named[0])
        )
        assert skipped.notes() == [
            f"skipped 1 of {count + 1} pairs in a.tsv: 1 taken for the names of the columns (line 1)"
        ]
        assert train == corpus("a.tsv")
        assert train[0].line == 2
        assert len(list(inputs(PAIRS, "a.tsv"))) == count
        Path("a.tsv").write_text("source\ttarget\n" + Path("a.tsv").read_text())
        assert corpus("a.tsv")[0].source == first.split("\t")[0], (
            "a line of names above it makes it an example"
        )
    else:
        assert (found.count, named, skipped.notes()) == (count + 1, [], [])
        assert train[0].source == first.split("\t")[0]


def test_labels_that_teach_nothing_are_said() -> None:
    Path("one.csv").write_text(
        "text,label\n" + "".join(f"film {n},{'bad' if n == 7 else 'good'}\n" for n in range(300))
    )
    [found] = [one for one in check(["one.csv"]).findings if one.kind == "one label"]
    assert str(found).startswith("warning: 299 of 300 labels are 'good', more than 99%")
    Path("each.csv").write_text(
        "text,label\n" + "".join(f"the cat {n},le chat {n}\n" for n in range(300))
    )
    [found] = [one for one in check(["each.csv"]).findings if one.kind == "as many labels"]
    assert (
        "300 different labels for 300 texts; if they are pairs of texts, check them with --as pairs"
        in str(found)
    )
    Path("fine.csv").write_text("text,label\n" + "".join(f"film {n},{n % 9}\n" for n in range(300)))
    assert check(["fine.csv"]).findings == ()


def test_training_says_so_too() -> None:
    for name in ("train.csv", "dev.csv"):
        Path(name).write_text(
            "text,label\n" + "".join(f"the cat {n},{'good' if n else 'bad'}\n" for n in range(150))
        )
    data = {"train": "train.csv", "dev": "dev.csv"}
    recipe = recipes.recipe(
        {
            **TINY_RECIPE,
            "task": "classification",
            "data": data,
            "model": {"family": "bag", "dim": 4},
        }
    )
    [said] = [note for note in prepared(recipe)[0].notes if "of 150 labels" in note]
    assert said.startswith("warning: 149 of 150 labels are 'good', more than 99%")
