"""Corpora of every kind: generated ones by name (`phrasebook:test`), datasets as `hub:…`, users' own by path."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import SaccadeError, did_you_mean
from ..registry import Table
from .bad_lines import Skipped
from .conllu import Sentence, each_sentence, sentence_of
from .delimited import SOURCES, SUFFIXES, TARGETS, TEXTS, each_entry, split_name
from .documents import Document, document_of, each_document
from .generated.bags import bags
from .generated.dates import dates
from .generated.entailment import entailment
from .generated.graph_corpora import graphs, karate
from .generated.phrasebook import phrasebook
from .generated.reviews import reviews
from .generated.senses import senses
from .generated.shapes import Drawing, asked, asked_openly, captioned, pictured, shapes
from .generated.surfaces import surfaces
from .generated.week import week
from .hub import each_row, in_hub
from .image_tables import each_asked, each_captioned, each_pictured, each_shown
from .labeled import LABEL, Labeled, each_labeled, labeled_of
from .labeled import PREFIX as MARK
from .lines import LineError, bare_suffix, one_file, open_text, paths_of, strict
from .memory import within_memory
from .node_graphs import Graph, each_graph
from .paired import GIVEN, pairs_of
from .pairs import Pair, pair_of
from .surface_meshes import Surface

Options = dict[str, Any] | None
Parts = Mapping[str, Sequence[Pair | Labeled | Drawing | Graph | Surface | Sentence]]

table: Table[Callable[..., Parts]] = Table("corpora", "corpus")
for _corpus in (phrasebook, dates, reviews, shapes, senses, entailment, week, bags, graphs):
    table.add(_corpus.__name__)(_corpus)
table.add("karate", paper="Zachary 1977")(karate)
table.add("surfaces")(surfaces)


class Kind(NamedTuple):
    """One kind of data: what its examples are called and which of their fields is the input; its readers of files and of datasets,
    the generated corpora that have it, and how their examples become it (one of them, or a list)."""

    what: str
    thing: str
    input: str
    from_file: Callable[..., Iterable[Any]]
    from_hub: Callable[..., Iterable[Any]]
    generated: tuple[str, ...]
    make: Callable[[Any], Any] = lambda example: example


def pairs_from_hub(where: str, _: str = "given") -> Iterable[Any]:
    """Rows of a dataset are pairs already."""
    return each_row(where, make=pair_of, usual=(("source",), ("target",)), least=2)


PAIRS = Kind("pairs", "pair", "source", pairs_of, pairs_from_hub, ("phrasebook", "dates"))
SENTENCES = Kind(
    "sentences with tags",
    "sentence",
    "words",
    each_sentence,
    lambda where, column="upos": each_row(
        where, sentence_of, (("tokens", "words"), (column, "pos_tags", "tags"))
    ),
    ("phrasebook", "senses", "week"),
    lambda one: (
        one
        if isinstance(one, Sentence)
        else Sentence(tuple(one.source.split()), one.tags, one.line)
    ),
)
labeled_from_hub = partial(each_row, make=labeled_of, usual=(TEXTS[:2], (LABEL,)))
_LABELED = ("reviews", "entailment", "bags")
LABELED = Kind("texts with labels", "text", "text", each_labeled, labeled_from_hub, _LABELED)


def files_only(what: str, give: str, where: str, *_: str) -> Iterable[Any]:
    """Refuses a dataset of the hub: its rows have no files of pictures and no edges."""
    raise SaccadeError(
        f"'{where}' is a dataset, and {what} are read from files only; give {give}",
        code="hub-not-supported",
    )


_GRAPHS = ("graphs", "karate", "surfaces")
no_graphs = partial(files_only, "graphs", "a .jsonl file")
GRAPHS = Kind("graphs", "graph", "source", each_graph, no_graphs, _GRAPHS)


def of_pictures(
    what: str, thing: str, reader: Callable[..., Any], make: Callable[..., Any]
) -> Kind:
    """A kind of data about pictures."""
    no_dataset = partial(files_only, "pictures", "a file, a folder or an archive")
    return Kind(what, thing, "image", reader, no_dataset, ("shapes",), make)


CAPTIONED = of_pictures("pictures with captions", "picture", each_captioned, captioned)
ASKED = of_pictures("questions about pictures", "question", each_asked, asked)
OPEN = of_pictures("questions about pictures", "question", each_asked, asked_openly)
SHOWN = of_pictures("pictures", "picture", each_shown, pictured)
PICTURED = of_pictures("pictures with labels", "picture", each_pictured, pictured)


def document_from(example: Any) -> Document:
    """The text of an example of a generated corpus: the input, or the caption of a picture."""
    if isinstance(example, Drawing):
        return Document(captioned(example).captions[0], example.line)
    if isinstance(example, Sentence):
        return Document(" ".join(example.words), example.line)
    return Document(example.text if isinstance(example, Labeled) else example.source, example.line)


DOCUMENTS = Kind(
    "documents",
    "document",
    "text",
    each_document,
    lambda where, _="file": each_row(where, document_of, (("text",),)),
    ("phrasebook", "dates", "reviews", "shapes", "senses", "entailment", "week"),
    document_from,
)


def text_alone(example: Any) -> Pair:
    """The text of an example as both sides of a pair."""
    document = example if isinstance(example, Document) else document_from(example)
    return Pair(document.text.strip(), document.text.strip(), document.line)


def each_alone(documents: Iterable[Document | LineError]) -> Iterator[Pair | LineError]:
    return (one if isinstance(one, LineError) else text_alone(one) for one in documents)


TEXTS_ALONE = Kind(
    "texts",
    "text",
    "target",
    lambda where: each_alone(each_document(where, "line")),
    lambda where: each_alone(DOCUMENTS.from_hub(where)),
    DOCUMENTS.generated,
    text_alone,
)


def read(
    kind: Kind, where: str, options: Options = None, *how: str, skipped: Skipped | None = None
) -> list[Any]:
    """The examples of `phrasebook:test` (generated with `options`), of a dataset, or of files; `how` is for the kind's own reader.
    The first bad line is an error, unless `skipped` counts them."""
    items = each_item(kind, where, options, *how)
    if skipped is None:
        found = list(strict(items))
    elif whole_files(kind, where, how):
        found = skipped.good(where, items, "line", lambda document: document.text.count("\n") + 1)
    else:
        found = skipped.good(where, items, kind.thing)
    if not found and not is_generated(where):
        raise SaccadeError(f"{where} holds no {kind.what}; add at least one", code="empty-file")
    return found


def whole_files(kind: Kind, where: Any, how: Sequence[str] = ("file",)) -> bool:
    """Whether each document is a whole text file, so that many lines make one example."""
    names = (
        [] if kind is not DOCUMENTS or "file" not in how or is_generated(where) else paths_of(where)
    )
    return bool(names) and not any(
        in_hub(name) or "#" in name or bare_suffix(Path(name)) == ".jsonl" for name in names
    )


corpus, labeled = partial(read, PAIRS), partial(read, LABELED)
sentences = partial(read, SENTENCES)  # `how` is the column of the tags, upos or xpos
documents = partial(read, DOCUMENTS)  # `how` is what a document is: file, line or blank


def inputs(kind: Kind, where: str, second: bool = False, options: Options = None) -> Iterator[str]:
    """The texts to work on, as they are read, without gold labels or targets: a column of a table or a dataset, else the lines of a file;
    a broken line is an error and an empty one is kept, so that outputs can be matched. `second`: the target's side of pairs."""
    if is_generated(where) or in_hub(where):
        return (
            on_one_line(getattr(one, "target" if second else kind.input))
            for one in read(kind, where, options)
        )
    name, columns = split_name(where)
    parts = paths_of(name)
    path = one_file(parts[min(second, len(parts) - 1)], "a file of texts")
    if bare_suffix(path) == ".conllu" and kind is PAIRS and not second:
        return (one.source for one in read(kind, str(path), None, GIVEN))
    if bare_suffix(path) == ".conllu":
        raise SaccadeError(
            f"{path} holds sentences with tags, not texts; give a file with one text per line",
            code="wrong-format",
        )
    if bare_suffix(path) not in SUFFIXES:
        return (
            line.partition(" ")[2] if line.startswith(MARK) else line for line in open_text(path)
        )
    usual = {PAIRS: (SOURCES, TARGETS)}.get(kind, (TEXTS,))[second : second + 1]
    take = lambda number, entry, column: on_one_line(str(entry.get(column) or ""))
    cell = lambda number, line: [*line.split("\t"), ""][second]
    items = each_entry(path, take, usual, columns[-1:] if second else columns[:1], cell)
    return strict(
        "" if isinstance(one, LineError) and one.kind == "empty line" else one for one in items
    )


def on_one_line(text: str) -> str:
    return " ".join(text.splitlines())


def overlap(kind: Kind, train: Iterable[Any], other: Iterable[Any]) -> int:
    """How many of the other examples have an input that is also in the training examples."""
    texts = [getattr(one, kind.input) for one in other]
    shared = set(texts) & {getattr(one, kind.input) for one in train}
    return sum(text in shared for text in texts)


def each_item(kind: Kind, where: Any, options: Options = None, *how: str) -> Iterable[Any]:
    """Each item of that kind, or the `LineError` it is; more than fit into memory are an error."""
    if not is_generated(where):
        return within_memory(
            (kind.from_hub if isinstance(where, str) and in_hub(where) else kind.from_file)(
                where, *how
            ),
            where,
        )
    name, _, split = where.partition(":")
    if name not in kind.generated:
        raise SaccadeError(
            f"the corpus '{name}' has no {kind.what}; those that have: {', '.join(kind.generated)}",
            code="corpus-without-part",
        )
    try:
        parts = generate(name, tuple(sorted((options or {}).items())))
    except TypeError as error:
        raise SaccadeError(
            f"the corpus '{name}' cannot be generated with {options}: {error}", code="bad-option"
        ) from None
    if split not in parts:
        raise SaccadeError(
            f"'{where}' is not a part of {name}{did_you_mean(split, parts)}", code="unknown-split"
        )
    made = (kind.make(example) for example in parts[split])
    return [
        one for several in made for one in (several if isinstance(several, list) else [several])
    ]


def is_generated(where: Any) -> bool:
    """Whether this names a generated corpus, such as `phrasebook:test`."""
    return isinstance(where, str) and where.partition(":")[0] in table


@lru_cache(maxsize=4)
def generate(name: str, options: tuple[tuple[str, Any], ...]) -> Parts:
    """A generated corpus; the last few are kept, since train, dev and test are asked for one after another."""
    return table[name](**dict(options))
