"""Offline HTML pages: the interactive view of a document, and reports with text, tables, pictures and views."""

import base64
import html
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from PIL import Image

from .document import UNSAFE_IN_SCRIPT, Document, shorten
from .worked_steps import Worked

NUMBER = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?( ?[%×])?( ?± ?[\d.,]+)?", re.IGNORECASE)
MAX_TITLE_LENGTH = 1000  # characters of a heading
# a frame from the same notebook may set its own height; one that may not keeps what it was given
FIT_FRAME = """<style>main { padding: .25rem .25rem .5rem; }</style>
<script>try {
  const frame = window.frameElement, fit = () => { frame.style.height = document.body.offsetHeight + 2 + "px"; };
  if (frame) new ResizeObserver(() => requestAnimationFrame(fit)).observe(document.body);
} catch { }</script>"""


@dataclass
class Section:
    """One part of a report. Empty fields are left out; the first row of a table is its header."""

    heading: str
    text: str = ""
    table: Sequence[Sequence[object]] | None = None
    picture: bytes | None = None
    document: Document | None = None
    code: str = ""  # what a terminal shows


def attention_page(document: Document) -> str:
    """One HTML file in which each word shows where it looks, by pointer and by keyboard."""
    title = document.title or "attention"
    if len(title) > MAX_TITLE_LENGTH:
        title = f"{title[: MAX_TITLE_LENGTH - 1]}…"
    model = f'<p class="muted">{_escape(document.model)}</p>' if document.model else ""
    pair = list(zip(document.called, (document.source, document.target), strict=True))
    if document.source == document.target:
        pair = [("text", document.source)]
    sentences = "".join(
        f'<p class="muted">{name}: <span dir="auto">{_escape(shorten(" ".join(words), 10_000))}</span></p>'
        for name, words in pair
        if words and " ".join(words) != document.title
    )
    body = f'<h1 dir="auto">{_escape(title)}</h1>{model}{sentences}{_view(document)}'
    return _page(title, body, "attention.js")


def explained_page(worked: Worked) -> str:
    """One HTML file in which every number of an explanation shows its origin, by pointer and by keyboard."""
    title = _escape(shorten(worked.title or "explained", MAX_TITLE_LENGTH))
    data = json.dumps(worked.to_dict(), allow_nan=False).translate(UNSAFE_IN_SCRIPT)
    body = (
        f'<h1 dir="auto">{title}</h1><div class="explained" role="group" aria-label="{title}">'
        f'<script type="application/json">{data}</script><div class="steps"></div>'
        '<p class="explains" role="status" aria-live="polite"></p>'
        "<noscript><p>This view needs JavaScript; the numbers are in the source of this page as JSON.</p></noscript></div>"
    )
    return _page(worked.title[:MAX_TITLE_LENGTH] or "explained", body, "attention.js", "worked.js")


def notebook_view(document: Document) -> str:
    """The page of a document in a frame of its own: alive in a notebook without a kernel, apart from all others, as high as it needs."""
    page = attention_page(document).replace("</body>", f"{FIT_FRAME}\n</body>")
    # until, or unless, the script may set it
    height = min(900, 480 + 30 * max(len(site.rows) for site in document.sites))
    style = f"width:100%;height:{height}px;border:0;background:transparent"
    return f'<iframe title="{_escape("Attention: " + document.title)}" style="{style}" srcdoc="{_escape(page)}"></iframe>'


def small_table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as a plain HTML table for a notebook cell, which styles it."""
    cell = lambda value: f'<td style="text-align:left">{_escape(str(value))}</td>'
    lines = [f"<tr>{''.join(map(cell, row))}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def report_page(
    title: str, sections: Sequence[Section], pages: Sequence[tuple[str, str]] = ()
) -> str:
    """One HTML file with a heading, links to other `pages` beside it (file, name), a list of contents and the sections in their order."""
    parts = [f"<h1>{_escape(title)}</h1>"]
    if pages:
        others = " · ".join(
            f'<a href="{_escape(file)}">{_escape(name)}</a>' for file, name in pages
        )
        parts.insert(0, f'<nav class="muted" aria-label="Pages">{others}</nav>')
    if len(sections) > 2:
        links = "".join(
            f'<li><a href="#part-{n}">{_escape(section.heading)}</a></li>'
            for n, section in enumerate(sections, 1)
        )
        parts.append(f'<nav class="contents" aria-label="Contents"><ol>{links}</ol></nav>')
    for number, section in enumerate(sections, 1):
        parts += _section(number, section)
    views = any(section.document is not None for section in sections)
    return _page(title, "\n".join(parts), *["attention.js"] * views)


def _section(number: int, section: Section) -> list[str]:
    head = f'<section class="section" id="part-{number}" aria-labelledby="head-{number}">'
    parts = [head, f'<h2 id="head-{number}">{_escape(section.heading)}</h2>']
    paragraphs = [one.strip() for one in re.split(r"\n\s*\n", section.text.strip())]
    parts += [f"<p>{_escape(one)}</p>" for one in paragraphs if one]
    if section.code:
        parts.append(f'<pre class="scroll" tabindex="0">{_escape(section.code)}</pre>')
    if section.table:
        parts.append(_table(section.table, section.heading))
    if section.picture:
        parts.append(_picture(section.picture, section.heading))
    if section.document:
        parts.append(_view(section.document))
    return [*parts, "</section>"]


def _picture(content: bytes, heading: str) -> str:
    """A PNG or SVG inside the page, as large as on paper: its dots per inch against the 96 of a page."""
    if content.startswith(b"<?xml"):
        kind, points = "svg+xml", re.search(rb'<svg[^>]* width="([\d.]+)pt"', content)
        width = round(float(points[1]) * 4 / 3) if points else 600
    else:
        with Image.open(io.BytesIO(content)) as image:
            kind, width = "png", round(image.width * 96 / image.info.get("dpi", (96, 96))[0])
    data, alt = base64.b64encode(content).decode("ascii"), _escape(f"Picture: {heading}")
    source = f"data:image/{kind};base64,{data}"
    return f'<figure class="picture"><img alt="{alt}" width="{width}" src="{source}"></figure>'


def _table(rows: Sequence[Sequence[object]], heading: str) -> str:
    """A table with numbers aligned right; it scrolls by itself where the window is narrow."""
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    kinds = []
    for column in zip(*texts[1:], strict=True):
        filled = [text.strip() for text in column if text.strip(" –-")]
        is_number = any(column) and all(map(NUMBER.fullmatch, filled))
        kinds.append(' class="number"' if is_number else "")

    def line(row: list[str], tag: str, scope: str = "") -> str:
        cells = zip(row, kinds, strict=True)
        made = [f"<{tag}{scope}{kind}>{_escape(text)}</{tag}>" for text, kind in cells]
        return f"<tr>{''.join(made)}</tr>"

    head = line(texts[0], "th", ' scope="col"')
    body = "".join(line(row, "td") for row in texts[1:])
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(f"Table: {heading}")}">'
        f'<table class="table"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
    )


def _view(document: Document) -> str:
    """The element in which attention.js builds its view; to_json escapes what could end the script."""
    return (
        f'<div class="attention" role="group" aria-label="{_escape("Attention: " + (document.title[:MAX_TITLE_LENGTH] or document.sites[0].name))}">'
        f'<script type="application/json">{document.to_json()}</script>'
        "<noscript><p>This view needs JavaScript; the weights are in the source of this page as JSON.</p></noscript></div>"
    )


def _page(title: str, body: str, *scripts: str) -> str:
    """The frame of every page; its empty icon keeps the browser from asking for /favicon.ico."""
    frame, style, *code = (
        files("saccade.views").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", *scripts)
    )
    script = "".join(f"<script>{one}</script>" for one in code)
    return Template(frame).substitute(title=_escape(title), style=style, body=body, script=script)


def _escape(text: str) -> str:
    """Text for HTML. Characters that UTF-8 or HTML cannot carry become question marks."""
    return html.escape(
        text.replace("\0", "?").encode("utf-8", "replace").decode("utf-8"), quote=True
    )
