"""Draw captions of the first pictures of a set with the attention of their words, right or wrong.

Writes docs/images/shapes-captions.png.

python benchmarks/looking_picture.py runs/shapes-captions-soft [shapes:test] [count] [FILE.png]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image

from saccade import api
from saccade.views.figures import save
from saccade.views.overlay import contact_sheet

ROOT = Path(__file__).resolve().parents[1]


def main(
    model: str,
    data: str = "shapes:test",
    count: str = "4",
    out: str = str(ROOT / "docs/images/shapes-captions.png"),
) -> None:
    system = api.load(model)
    documents, right = [], 0
    for example in system.read(data)[: int(count)]:
        document = system.caption(example.image, beam=3).document
        said = " ".join(document.target)
        right += said in example.captions
        if said not in example.captions and len(example.captions) == 1:
            document = replace(document, title=f"expected: {example.captions[0]}")
        documents.append(document)
    note = f"the first {len(documents)} pictures of {data}; circles: where each content word looks most, in their order"
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    save(contact_sheet(documents, "Where a captioner looks, word by word", note), out)
    with Image.open(out) as drawn:  # 256 colors are enough, and a third of the size
        drawn.convert("RGB").quantize(256).save(out, optimize=True)
    print(f"{out}: {right} of {len(documents)} captions are among the expected ones")


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 5:
        sys.exit(
            "expected MODEL [DATA] [COUNT] [FILE.png]; train one with: saccade train shapes-captions-soft"
        )
    main(*sys.argv[1:])
