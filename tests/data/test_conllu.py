"""Sentences and tags: read as the conllu package reads them, written so that only the tags differ."""

from __future__ import annotations

import gzip
import json
import lzma
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import conllu
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.conllu import Sentence, tag_conllu
from saccade.data.corpora import sentences as read_sentences

EXAMPLE = """# sent_id = 1
# text = Vámonos al mar
1-2	Vámonos	_	_	_	_	_	_	_	_
1	Vamos	ir	VERB	VM	Mood=Imp|Number=Plur	0	root	_	_
2	nos	nosotros	PRON	PP	Case=Acc	1	obj	_	_
3-4	al	_	_	_	_	_	_	_	_
3	a	a	ADP	SP	_	5	case	_	_
4	el	el	DET	DA	Definite=Def	5	det	_	_
5	mar	mar	NOUN	NC	Gender=Masc	1	obl	_	SpaceAfter=No

# text = 10 000 fell and he said it
1	10 000	10000	NUM	CD	_	2	nsubj	_	_
2	fell	fall	VERB	VBD	_	0	root	_	_
3	and	and	CCONJ	CC	_	4	cc	4.1:cc	_
4	he	he	PRON	PRP	_	2	conj	_	_
4.1	said	say	VERB	VBD	_	_	_	2:conj	CopyOf=2
4.2	again	again	ADV	RB	_	_	_	_	_
5	it	it	PRON	PRP	_	4	orphan	_	_

"""


def tag_lines(path: Path, tags: Iterable[Sequence[str]], column: str = "upos") -> list[str]:
    return list(
        tag_conllu(path, zip(read_sentences(path, None, column), tags, strict=True), column)
    )


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_the_example_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", EXAMPLE)
    assert read_sentences(path) == [
        Sentence(
            ("Vamos", "nos", "a", "el", "mar"),
            ("VERB", "PRON", "ADP", "DET", "NOUN"),
            1,
            (-1, 0, 4, 4, 0),
        ),
        Sentence(
            ("10 000", "fell", "and", "he", "it"),
            ("NUM", "VERB", "CCONJ", "PRON", "PRON"),
            11,
            (1, -1, 3, 1, 3),
        ),
    ]
    assert read_sentences(str(path), None, "xpos")[0].tags == ("VM", "PP", "SP", "DA", "NC")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.conllu", EXAMPLE.encode()),
        ("a.conllu", EXAMPLE.rstrip().encode()),
        ("a.conllu", b"\n\n" + EXAMPLE.replace("\n\n", "\n\n\n  \n").encode()),
        ("a.conllu", b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode()),
        ("A.CONLLU.GZ", gzip.compress(EXAMPLE.encode(), mtime=0)),
        ("a.conllu.xz", lzma.compress(EXAMPLE.encode())),
    ],
)
def test_blank_lines_line_ends_and_packing_change_nothing(
    tmp_path: Path, name: str, content: bytes
) -> None:
    expected = read_sentences(write(tmp_path, "plain.conllu", EXAMPLE))
    found = read_sentences(write(tmp_path, name, content))
    assert [(one.words, one.tags) for one in found] == [(one.words, one.tags) for one in expected]


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (("2", "0", "2"), (1, -1, 1)),
        (("_", "0", "2"), None),
        (("_", "_", "_"), None),
        (("0", "0", "3"), (-1, -1, 2)),
    ],
)
def test_heads_count_words_from_0_and_are_known_together_or_not_at_all(
    tmp_path: Path, heads: tuple[str, str, str], expected: tuple[int, ...] | None
) -> None:
    rows = [f"{n}\tw\t_\tX\t_\t_\t{head}\t_\t_\t_" for n, head in enumerate(heads, 1)]
    rows.insert(1, "1.1\tempty\t_\tX\t_\t_\t_\t_\t_\t_")
    rows.insert(2, "2-3\trange\t_\t_\t_\t_\t_\t_\t_\t_")
    assert [one.heads for one in read_sentences(write(tmp_path, "a.conllu", "\n".join(rows)))] == [
        expected
    ]


def test_the_package_reads_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", EXAMPLE)
    for column in ("upos", "xpos"):
        expected = [
            (
                tuple(t["form"] for t in one if isinstance(t["id"], int)),
                tuple(t[column] for t in one if isinstance(t["id"], int)),
            )
            for one in conllu.parse(EXAMPLE)
        ]
        assert [(one.words, one.tags) for one in read_sentences(path, None, column)] == expected
    heads = [
        tuple(t["head"] - 1 for t in one if isinstance(t["id"], int))
        for one in conllu.parse(EXAMPLE)
    ]
    assert [one.heads for one in read_sentences(path)] == heads


letters = st.characters(
    exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="_#|="
)
cells = st.text(letters, min_size=1, max_size=6)


@st.composite
def tagged(draw: st.DrawFn) -> tuple[list[str], list[str] | None]:
    words = draw(st.lists(cells, min_size=1, max_size=6))
    tags = draw(st.none() | st.lists(cells, min_size=len(words), max_size=len(words)))
    return words, tags


def as_conllu(given_sentences: list[tuple[list[str], list[str] | None]], column: str) -> str:
    """Written by the package."""
    lists = []
    for words, tags in given_sentences:
        names = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
        tokens = []
        for place, word in enumerate(words):
            row: dict[str, object] = dict.fromkeys(names)
            row.update({"id": place + 1, "form": word, column: tags[place] if tags else "_"})
            tokens.append(conllu.models.Token(**row))
        lists.append(
            conllu.TokenList(tokens, metadata=conllu.models.Metadata({"text": " ".join(words)}))
        )
    return "".join(one.serialize() for one in lists)


@settings(max_examples=30, deadline=None)
@given(st.lists(tagged(), min_size=1, max_size=4), st.sampled_from(["upos", "xpos"]))
def test_what_the_package_writes_comes_back(
    sentences: list[tuple[list[str], list[str] | None]], column: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "a.conllu", as_conllu(sentences, column))
        found = [
            (list(one.words), list(one.tags) if one.tags else None)
            for one in read_sentences(path, None, column)
        ]
    assert found == sentences


@settings(max_examples=30, deadline=None)
@given(
    st.lists(tagged(), min_size=1, max_size=4),
    st.sampled_from(["a.jsonl", "a.tsv", "a.txt"]),
    st.sampled_from(["upos", "xpos"]),
)
def test_simple_forms_become_conllu(
    sentences: list[tuple[list[str], list[str] | None]], name: str, column: str
) -> None:
    words = [words for words, _ in sentences]
    tags = [tags or ["X"] * len(words) for words, tags in sentences]
    content = {
        "a.jsonl": "\n".join(
            json.dumps({"words": one, "tags": two}) for one, two in zip(words, tags, strict=True)
        ),
        "a.tsv": "\n\n".join(
            "\n".join(map("\t".join, zip(one, two, strict=True)))
            for one, two in zip(words, tags, strict=True)
        ),
        "a.txt": "\n".join(" ".join(one) for one in words),
    }[name]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), name, content)
        read = read_sentences(path)
        assert [list(one.words) for one in read] == words
        assert [one.tags and list(one.tags) for one in read] == [
            None if name == "a.txt" else one for one in tags
        ]
        lines = "".join(tag_lines(path, tags, column))
        again = read_sentences(write(Path(folder), "out.conllu", lines), None, column)
    assert [list(one.words) for one in again] == words
    assert [list(one.tags or ()) for one in again] == tags
    oracle = conllu.parse(lines)
    assert [[token["form"] for token in one] for one in oracle] == words
    assert [[token[column] for token in one] for one in oracle] == tags
    assert [one.metadata["text"] for one in oracle] == [" ".join(one) for one in words]


@pytest.mark.parametrize("column", ["upos", "xpos"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        str.rstrip,
        lambda text: "\ufeff" + text,
    ],
)
def test_only_the_tags_of_words_change(tmp_path: Path, column: str, change: object) -> None:
    assert callable(change)
    content = change(EXAMPLE)
    path = write(tmp_path, "a.conllu", content)
    own = [one.tags or () for one in read_sentences(path, None, column)]
    assert "".join(tag_lines(path, own, column)) == content, "its own tags give the file itself"
    other = [[f"T{n}" for n, _ in enumerate(tags)] for tags in own]
    made = "".join(tag_lines(path, other, column))
    assert [
        list(one.tags or ())
        for one in read_sentences(write(tmp_path, "b.conllu", made), None, column)
    ] == other
    place = {"upos": 3, "xpos": 4}[column]
    changed = 0
    for before, after in zip(content.split("\n"), made.split("\n"), strict=True):
        left, right = before.split("\t"), after.split("\t")
        changed += left != right
        assert [cell for n, cell in enumerate(left) if n != place] == [
            cell for n, cell in enumerate(right) if n != place
        ]
    assert changed == 10


def test_tags_of_an_untagged_file_are_filled_in(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.conllu", "1\tthe\t_\t_\t_\t_\t_\t_\t_\t_\n2\tcat\t_\t_\t_\t_\t_\t_\t_\t_\n"
    )
    assert read_sentences(path) == [Sentence(("the", "cat"), None, 1)]
    assert tag_lines(path, [("DET", "NOUN")])[0] == "1\tthe\t_\tDET\t_\t_\t_\t_\t_\t_\n"


def test_plain_text_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "the  black\u00a0cat\n")
    assert tag_lines(path, [["DET", "ADJ", "NOUN"]]) == [
        "# text = the black cat\n",
        "1\tthe\t_\tDET\t_\t_\t_\t_\t_\t_\n",
        "2\tblack\t_\tADJ\t_\t_\t_\t_\t_\t_\n",
        "3\tcat\t_\tNOUN\t_\t_\t_\t_\t_\t_\n",
        "\n",
    ]
