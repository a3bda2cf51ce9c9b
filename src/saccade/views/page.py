"""Self-contained HTML pages: the interactive view of a document, and reports of text, tables, pictures and such views.

A page loads nothing from anywhere, and its policy lets the browser run only the one script that this package ships.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from PIL import Image, UnidentifiedImageError

from ..errors import SaccadeError
from .document import Document

NOTHING_ELSE = "base-uri 'none'; form-action 'none'"
NUMBER = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?( ?[%×])?( ?± ?[\d.,]+)?", re.IGNORECASE)


@dataclass
class Section:
    """One part of a report; whatever is left empty is left out. The first row of a table is its header."""

    heading: str
    text: str = ""
    table: Sequence[Sequence[object]] | None = None
    picture: bytes | None = None
    document: Document | None = None
    code: str = ""


def attention_page(document: Document) -> str:
    """One HTML file in which each word shows where it looks, by pointer and by keyboard."""
    document.check()
    title = document.title or "attention"
    model = f'<p class="muted">{_escape(document.model)}</p>' if document.model else ""
    pair = list(zip(document.called, (document.source, document.target), strict=True))
    if document.source == document.target:
        pair = [("text", document.source)]
    sentences = "".join(
        f'<p class="muted">{name}: <span dir="auto">{_escape(" ".join(words))}</span></p>'
        for name, words in pair
        if words and " ".join(words) != document.title
    )
    return _page(title, f'<h1 dir="auto">{_escape(title)}</h1>{model}{sentences}{_view(document)}', interactive=True)


def report_page(title: str, sections: Sequence[Section]) -> str:
    """One HTML file with a heading, a list of contents and the sections in their order."""
    if not sections:
        raise SaccadeError("the report has no sections, so there is nothing to read: give it at least one")
    parts = [f"<h1>{_escape(title)}</h1>"]
    if len(sections) > 2:
        links = "".join(f'<li><a href="#part-{n}">{_escape(section.heading)}</a></li>' for n, section in enumerate(sections, 1))
        parts.append(f'<nav class="contents" aria-label="Contents"><ol>{links}</ol></nav>')
    parts += [_section(section, number) for number, section in enumerate(sections, 1)]
    return _page(title, "\n".join(parts), interactive=any(section.document is not None for section in sections))


def _section(section: Section, number: int) -> str:
    """A section in reading order: what it says, then what it shows."""
    parts = [f'<section class="section" id="part-{number}" aria-labelledby="head-{number}">']
    parts.append(f'<h2 id="head-{number}">{_escape(section.heading)}</h2>')
    paragraphs = re.split(r"\n\s*\n", section.text.strip())
    parts += [f"<p>{_escape(paragraph.strip())}</p>" for paragraph in paragraphs if paragraph.strip()]
    if section.table is not None:
        parts.append(_table(section.table, section.heading))
    if section.picture is not None:
        parts.append(_picture(section.picture, section.heading))
    if section.document is not None:
        section.document.check()
        parts.append(_view(section.document))
    if section.code:
        parts.append(f'<pre class="code" tabindex="0"><code>{_escape(section.code)}</code></pre>')
    return "\n".join([*parts, "</section>"])


def _table(rows: Sequence[Sequence[object]], heading: str) -> str:
    """A table whose numbers stand on the right; it scrolls by itself where the window is narrow."""
    if not rows or not rows[0]:
        raise SaccadeError(f"the table of '{heading}' is empty: its first row must name the columns")
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise SaccadeError(f"row {index} of the table of '{heading}' has {len(row)} cells, but its header has {len(rows[0])}")
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    numeric = [
        any(row[x] for row in texts[1:]) and all(NUMBER.fullmatch(row[x].strip()) for row in texts[1:] if row[x].strip(" –-"))
        for x in range(len(rows[0]))
    ]

    def line(row: list[str], tag: str, scope: str) -> str:
        kinds = [' class="number"' if is_number else "" for is_number in numeric]
        return "<tr>" + "".join(f"<{tag}{scope}{k}>{_escape(t)}</{tag}>" for t, k in zip(row, kinds, strict=True)) + "</tr>"

    head, body = line(texts[0], "th", ' scope="col"'), "".join(line(row, "td", "") for row in texts[1:])
    label = _escape(f"Table: {heading}")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="table"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
    )


def _picture(png: bytes, heading: str) -> str:
    """A PNG inside the page itself, as large as it would be on paper: its dots an inch against the 96 of a page."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            width = round(image.width * 96 / (image.info.get("dpi", (96, 96))[0] or 96))
    except (UnidentifiedImageError, OSError, SyntaxError):
        raise SaccadeError(
            f"the picture of '{heading}' is not a PNG: hand in the bytes of a file that `save` wrote as .png"
        ) from None
    data, alt = base64.b64encode(png).decode("ascii"), _escape(f"Picture: {heading}")
    return f'<figure class="picture"><img alt="{alt}" width="{width}" src="data:image/png;base64,{data}"></figure>'


def _view(document: Document) -> str:
    """The place where attention.js builds its view; to_json escapes what could end the script."""
    return (
        f'<div class="attention" role="group" aria-label="{_escape("Attention: " + (document.title or document.sites[0].name))}">'
        f'<script type="application/json">{document.to_json()}</script>'
        "<noscript><p>This view needs JavaScript; the weights are in the source of this page as JSON.</p></noscript></div>"
    )


def _page(title: str, body: str, interactive: bool) -> str:
    """The frame of every page, with style and script inside and a policy that forbids everything else.

    The empty icon keeps the browser from asking for /favicon.ico.
    """
    style = _asset("page.css")
    script = _asset("attention.js") if interactive else ""
    allowed_script = _digest(script) if interactive else "'none'"
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {allowed_script}; {NOTHING_ELSE}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{_escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
{f"<script>{script}</script>" if interactive else ""}
</body>
</html>
"""


def _asset(name: str) -> str:
    """A file that lies beside this one in the package."""
    return files("saccade.views").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The source expression that allows exactly this inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _escape(text: str) -> str:
    """Text for HTML; what UTF-8 or HTML cannot carry becomes a question mark, so that the page can always be written."""
    return html.escape(text.replace("\0", "?").encode("utf-8", "replace").decode("utf-8"), quote=True)
