"""Pairs that are made of one file: parses of CoNLL-U, headings of sections, turns of dialogues."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from tests.support import raises

from saccade.config import recipes
from saccade.data.corpora import PAIRS, inputs, read
from saccade.data.lines import LineError
from saccade.data.paired import arcs_of, heading_of, linearized, overlapping, pairs_of
from saccade.data.pairs import Pair
from saccade.tasks.text_to_text import TextToText

TREE = """\
1	The	the	DET	DT	_	2	det	_	_
2	cat	cat	NOUN	NN	_	3	nsubj:pass	_	_
3	was	be	VERB	VBD	_	0	root	_	_
4-5	fed.	_	_	_	_	_	_	_	_
4	fed	feed	VERB	VBN	_	3	xcomp	_	_
5	.	.	PUNCT	.	_	3	punct	_	_
"""
SCENE = "Anna:\nWho is there?\n\nBert:\nNobody.\nGo to sleep.\n\nAnna:\nGood night.\n"


def put(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_bytes(lzma.compress(text.encode()) if name.endswith(".xz") else text.encode())
    return str(file)


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.xz"])
def test_a_parse_is_each_words_distance_to_its_head_and_its_relation(
    tmp_path: Path, name: str
) -> None:
    file = put(tmp_path, name, TREE + "\n" + "1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n")
    trees = "+1/det +1/nsubj 0/root -1/xcomp -2/punct", "0/root"
    assert read(PAIRS, file, None, "given") == [
        Pair("The cat was fed .", trees[0], 1),
        Pair("Go", trees[1], 8),
    ]
    assert list(inputs(PAIRS, file)) == ["The cat was fed .", "Go"]
    with raises("number-of-files"):
        read(PAIRS, file)  # as translation reads files


def test_a_linearized_tree_is_read_back_and_what_is_no_arc_is_none() -> None:
    arcs = [(1, "det"), (2, "nsubj"), (-1, "root"), (2, "obj")]
    assert arcs_of(linearized(arcs), 4) == arcs
    assert arcs_of("+1/det:x +9/obj nonsense -3/obj 0/root", 6) == [
        (1, "det"),
        None,
        None,
        (0, "obj"),
        (-1, "root"),
        None,
    ]
    # its head is outside a sentence of one word
    assert arcs_of("+1/det +1/nsubj 0/root", 1) == [None]


@pytest.mark.parametrize("column", [6, 7])
def test_a_sentence_without_a_tree_is_named_by_its_line(tmp_path: Path, column: int) -> None:
    cells = TREE.splitlines()[0].split("\t")
    cells[column] = "_"
    file = put(
        tmp_path, "a.conllu", TREE + "\n" + "\t".join([*cells]).replace("\t2\t", "\t1\t") + "\n"
    )
    with raises(
        "line-heads",
        match=r"line 8: the sentence has a word without HEAD or DEPREL.*fill both columns",
    ):
        read(PAIRS, file, None, "given")
    good, bad = pairs_of(file, "given")
    assert isinstance(good, Pair)
    assert isinstance(bad, LineError)


def test_headings_of_wikis_and_markdown() -> None:
    found = [
        " = Robert = ",
        "= = Early life = =",
        "== Early life ==",
        "## Early life",
        "# C # is a note #",
    ]
    assert [heading_of(line) for line in found] == [
        "Robert",
        "Early life",
        "Early life",
        "Early life",
        "C # is a note",
    ]
    for line in ("a = b", "= a = =", "=", "= = =", "#tag", "", "x == y"):
        assert heading_of(line) == ""


def test_the_beginning_of_a_section_has_its_heading_as_target(tmp_path: Path) -> None:
    long = " ".join(f"w{n}" for n in range(150))
    text = f" = Robert = \n \n = = Life = = \n \n He acted . \n He sang . \n \n = = <unk> career = = \n more\n = = Work = = \n {long} \n"
    file = put(tmp_path, "a.txt.xz", text)
    found = read(PAIRS, file, None, "headings")
    assert found == [
        Pair("He acted . He sang .", "Life", 3),
        Pair(" ".join(long.split()[:100]), "Work", 10),
    ]


def test_a_turn_has_the_next_one_as_target(tmp_path: Path) -> None:
    found = read(PAIRS, put(tmp_path, "a.txt", SCENE), None, "turns")
    said = ["Anna: Who is there?", "Bert: Nobody. Go to sleep.", "Anna: Good night."]
    assert found == [Pair(said[0], said[1], 1), Pair(said[1], said[2], 4)]


def test_a_damaged_line_is_an_error_and_no_part_of_a_pair(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(SCENE.encode() + b"\nBert:\n\xff\n\nAnna:\nYes?\n\nBert:\nNo.\n")
    good, other, bad, last = pairs_of(str(file), "turns")
    assert isinstance(bad, LineError)
    assert bad.line == 12
    assert [one.source for one in (good, other, last) if isinstance(one, Pair)][2] == "Anna: Yes?"
    file.write_bytes(b"= A =\nsome\n\xff\nwords\n")
    wrong, pair = pairs_of(str(file), "headings")
    assert isinstance(wrong, LineError)
    assert pair == Pair("some words", "A", 1)


def test_the_end_of_a_dialogue_is_held_out_and_elsewhere_pairs_from_everywhere() -> None:
    turns = [Pair(f"turn {n}", f"turn {n + 1}", n) for n in range(40)]
    assert overlapping(turns)
    assert TextToText.divide(turns, 0.1) == (turns[:36], turns[36:])
    others = [Pair(f"a {n}", f"b {n}", n) for n in range(40)]
    assert not overlapping(others)
    train, dev = TextToText.divide(others, 0.1)
    assert len(dev) == 4
    assert dev != others[36:]
    assert sorted([*train, *dev], key=lambda pair: pair.line) == others


def test_only_files_of_text_to_text_are_made_into_pairs() -> None:
    values = {
        "task": "text-to-text",
        "model": {"family": "bahdanau"},
        "data": {"train": "dates:train", "pairs": "turns"},
    }
    with raises(
        "no-effect",
        match=r"data.pairs has no effect here: it is for task=text-to-text, and files of plain text",
    ):
        recipes.recipe(values)
    assert (
        recipes.recipe({**values, "data": {"train": "play.txt", "pairs": "turns"}}).data.pairs
        == "turns"
    )
    with raises("unknown-choice", match=r"data.pairs is 'turn'; did you mean 'turns'"):
        recipes.recipe({**values, "data": {"train": "play.txt", "pairs": "turn"}})
