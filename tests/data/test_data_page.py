"""docs/data.md tells the truth: every example file on it is read, as what its section says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from saccade.data.corpora import CAPTIONED, DOCUMENTS, LABELED, PAIRS, SENTENCES, table
from saccade.data.findings import check

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```\w+ (\S+)\n(.*?)```", PAGE, flags=re.DOTALL))
COUNTS = {
    "pairs.tsv": 2, "pairs.jsonl": 2, "tags.conllu": 1, "tags.tsv": 2, "tags.jsonl": 2, "tags.txt": 1, "labels.tsv": 2,
    "labels.jsonl": 2, "labels.csv": 1, "labels.train": 2, "labels.fasttext": 2, "text.txt": 1, "text.jsonl": 1, "graphs.jsonl": 1,
    "graphs.mesh.jsonl": 1,
}  # fmt: skip
# with their images in test_pictures.py
ABOUT_PICTURES = {"pictured.tsv", "captioned.jsonl", "asked.tsv", "asked.json"}


@pytest.mark.parametrize("name", COUNTS)
def test_each_example_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(EXAMPLES[name], encoding="utf-8")
    report = check([str(tmp_path / name)], name.split(".")[0])
    assert (report.count, report.errors) == (COUNTS[name], 0)


def test_no_example_is_left_out() -> None:
    assert set(EXAMPLES) == {*COUNTS, *ABOUT_PICTURES}


def test_the_table_of_corpora_is_right() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|(.*?)\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|", PAGE, flags=re.MULTILINE
    )
    assert [name for name, *_ in rows] == table.names()
    for name, *cells in rows:
        assert [cell.strip() == "yes" for cell in cells] == [
            name in kind.generated for kind in (PAIRS, SENTENCES, LABELED, DOCUMENTS, CAPTIONED)
        ]
