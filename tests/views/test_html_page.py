"""Pages, read as a browser's parser reads them: whole, quiet on the network, and with every text of a user as text."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest
from PIL import Image

from saccade.views.document import Document
from saccade.views.html_page import Section, attention_page, report_page

EVIL = "<script>alert(1)</script>"
EVIL_QUOTES = "\" onmouseover='alert(1)' </title></style><img src=x onerror=alert(1)>"
VOID = {"meta", "link", "img"}


class Page(HTMLParser):
    """Tags with attributes, the text of each kind of tag, and whether all tags were closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def png(width: int = 300, dpi: int | None = 150) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, 10)).save(out, "PNG", **({"dpi": (dpi, dpi)} if dpi else {}))
    return out.getvalue()


def evil_document(document: Document, evil: str) -> Document:
    site = replace(document.sites[0], name=evil, rows=[evil] * 3, columns=[evil] * 4)
    return Document(evil, [evil, evil], [evil], [site], model=evil)


def test_the_page_carries_the_document_itself(document: Document) -> None:
    page = Page(attention_page(document))
    assert page.open == []
    assert page.text("h1") == page.text("title") == ["the blue house"]
    kinds = [attributes.get("type") for attributes in page.all("script")]
    assert kinds == ["application/json", None]
    carried, expected = json.loads(page.text("script")[0]), asdict(document)
    expected["sites"] = [
        {**site.labels, "weights": site.weights.tolist()} for site in document.sites
    ]
    assert carried == {name: expected[name] for name in carried}
    assert "a small model" in page.text("p")


@pytest.mark.parametrize("evil", [EVIL, EVIL_QUOTES, "</script><b>", "<!--", "]]>"])
def test_no_text_of_a_user_becomes_markup(document: Document, evil: str) -> None:
    calm, wild = Page(attention_page(document)), Page(attention_page(evil_document(document, evil)))
    report = Page(
        report_page(
            evil,
            [Section(evil, evil, [[evil, "b"], [evil, "c"]], png(), evil_document(document, evil))]
            * 3,
        )
    )
    assert [tag for tag, _ in wild.tags if tag not in {"p", "span"}] == [
        tag for tag, _ in calm.tags if tag not in {"p", "span"}
    ]
    for page in (wild, report):
        assert page.open == []
        assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
        assert page.text("title") == [evil]
        assert evil in page.text("h1")
    assert len(report.all("script")) == 4
    assert report.text("th").count(evil) == report.text("td").count(evil) == 3


def test_the_policy_forbids_the_network(document: Document) -> None:
    page = Page(attention_page(document))
    policy = next(
        meta["content"] or ""
        for meta in page.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == "'unsafe-inline'"
    assert rules["img-src"] == "data:"


def test_nothing_is_fetched_from_anywhere(document: Document) -> None:
    html = report_page("r", [Section("a", picture=png(), document=document)])
    page = Page(html)
    addresses = [
        v
        for _, attributes in page.tags
        for name, v in attributes.items()
        if name in {"src", "href", "srcset", "action"}
    ]
    assert addresses
    assert all((address or "").startswith("data:") for address in addresses)
    program = "".join(page.text("script")[1:] + page.text("style"))
    assert not re.search(
        r"https?:|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|innerHTML|outerHTML|eval\(|document\.write",
        program,
    )


def test_the_page_has_both_themes_and_fits_a_telephone(document: Document) -> None:
    html = attention_page(document)
    assert "prefers-color-scheme: dark" in html
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert '<html lang="en">' in html


def test_text_that_no_file_can_hold_is_replaced(document: Document) -> None:
    page = attention_page(evil_document(document, "a\ud800\0b"))
    assert page.encode("utf-8")
    assert Page(page).text("h1") == ["a??b"]


def test_a_text_that_is_its_own_target_is_shown_once(document: Document) -> None:
    words = ["one", "two"]
    same = Page(attention_page(replace(document, source=words, target=words)))
    assert same.text("span") == ["one two"]
    assert Page(attention_page(replace(document, source=words, target=["uno"]))).text("span") == [
        "one two",
        "uno",
    ]


@pytest.mark.parametrize(
    ("token", "seen"), [(" ", "␣"), ("\n", "↵"), ("the", "the"), ("▁the", "▁the")]
)
def test_a_token_that_nobody_sees_is_made_visible(
    document: Document, token: str, seen: str
) -> None:
    page = Page(
        attention_page(
            replace(
                document, title=" ".join(document.source), target=[token], called=("text", "next")
            )
        )
    )
    assert page.text("span") == [seen]


def test_a_report_has_contents_that_lead_to_its_sections() -> None:
    page = Page(
        report_page(
            "Report", [Section("One", "first\n\nsecond"), Section("Two", "a < b"), Section("Three")]
        )
    )
    targets = [attributes["id"] for attributes in page.all("section")]
    assert [link["href"] for link in page.all("a")] == [f"#{target}" for target in targets]
    assert page.text("h2") == ["One", "Two", "Three"]
    assert page.text("p") == ["first", "second", "a < b"]


def test_a_report_without_a_document_has_no_script() -> None:
    html = report_page("Report", [Section("One")])
    assert Page(html).all("script") == []
    assert Page(html).all("nav") == []


def test_columns_of_numbers_are_aligned_right() -> None:
    table: list[list[object]] = [
        ["model", "BLEU", "change", "note"],
        ["a", 27.3, "+0.4 %", "7 heads"],
        ["b", None, "–", ""],
        ["c", "19.1 ± 0.2", "-1e-3", 5],
    ]
    page = Page(report_page("Report", [Section("One", table=table)]))
    cells = page.all("td")
    assert [cell.get("class") for cell in cells[:4]] == [None, "number", "number", None]
    assert [cell.get("scope") for cell in page.all("th")] == ["col"] * 4
    assert "None" not in page.text("td")


@pytest.mark.parametrize(("dpi", "width"), [(150, "192"), (None, "300")])
def test_a_picture_is_inside_the_page_in_its_size_on_paper(dpi: int | None, width: str) -> None:
    data = png(300, dpi)
    (image,) = Page(report_page("Report", [Section("Loss", picture=data)])).all("img")
    assert image["width"] == width
    assert image["alt"] == "Picture: Loss"
    assert base64.b64decode((image["src"] or "").removeprefix("data:image/png;base64,")) == data


def test_each_document_of_a_report_has_a_view_of_its_own(document: Document) -> None:
    other = replace(document, title="another")
    page = Page(
        report_page("Report", [Section("One", document=document), Section("Two", document=other)])
    )
    assert [json.loads(text)["title"] for text in page.text("script")[:2]] == [
        "the blue house",
        "another",
    ]
    assert len(page.all("script")) == 3
