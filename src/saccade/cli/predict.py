"""The command `predict`, of which translate, tag, classify, generate, caption, answer and reconstruct are special cases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import SaccadeError
from .answer_files import check_place, file_kind, save_rows
from .common_options import FILES, RUNNING, SAMPLING, SEARCH, Inputs, Model, takes
from .input_stream import answer_each
from .shared import Unknown, keep_given, load, note, note_cut, print_json, visible, write

if TYPE_CHECKING:
    from ..experiments.batch import How
    from ..system.system import System

# inputs that are answered together; pictures take more memory than texts
MANY, MANY_PICTURES = 1000, 64
Show = Callable[["System", list[str]], None]  # prints something else of some texts


@takes(*SEARCH, *SAMPLING, "limit", "noise", *FILES, *RUNNING)
def predict(model: Model, inputs: Inputs = None, **how: Any) -> None:
    """Predict with a model of any task: texts, images, a file or stdin.

    Output keeps the input order; stdin is streamed. In a terminal, without an input: type one per line; Ctrl-D ends.
    The ending of --out chooses the format; a table keeps the other columns of the input.

    Examples:
        saccade predict runs/mine "the black cat"
        saccade predict runs/reviews --input reviews.csv --out labeled.csv
        saccade predict runs/photos photos/ --json
        saccade predict runs/questions dog.jpg "what color is the dog?"
        echo "the black cat" | saccade predict runs/mine
    """
    prediction(model, **how).run(inputs)


def prediction(
    model: Path,
    verb: str = "",
    *,
    input_file: str | None = None,
    out_file: Path | None = None,
    others: list[Path] | None = None,
    on: str = "here",
    jobs: int = 2,
    device: str = "auto",
    precision: str = "float32",
    json_: bool = False,
    align: bool = False,
    show: Show | None = None,
    made_of: type[Prediction] | None = None,
    **options: Any,
) -> Prediction:
    """A prediction that is ready to run; mistakes in its options are reported here.

    Args:
        verb: The command that was typed; models that do not do this are refused.
        align: Whether answers have alignments.
        show: What is printed of some texts instead of answers.
        made_of: The class, if answers are treated in a way of their own.
    """
    from ..experiments.batch import How
    from ..tasks.search_options import make_search

    chosen = keep_given(**options)
    if chosen.keys() & {"beam", "length_rule", "coverage_penalty"}:
        make_search(chosen)  # a mistake is reported before anything is loaded
    kind = file_kind(out_file, json_)
    check_place(on, out_file, input_file, show is not None)
    system = load(model, device, others, precision)
    if verb:
        system.require(verb)
    system.task.check_predict(chosen)
    folders = str(model), tuple(map(str, others or ()))
    how = How(*folders, device, precision, tuple(chosen.items()), align)
    made = made_of or Prediction
    return made(system, how, input_file, json_, show, out_file, kind, on, jobs)


@dataclass
class Prediction:
    """Answers to inputs, group by group and in their order: printed as lines or JSON, or written into a file."""

    system: System
    how: How
    where: str | None
    as_json: bool
    show: Show | None = None
    out_file: Path | None = None
    kind: str = ""  # the ending that chooses the format
    on: str = "here"
    jobs: int = 2
    image: str | None = None  # that questions are about
    cut: int = 0
    count: int = 0
    unread: int = 0
    missing: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        self.task, self.unknown = self.system.task, Unknown(self.system)
        self.asks, self.tags = "question" in self.task.fields, "tag" in self.task.verbs
        self.reads_images = "image" in self.task.fields and not self.asks

    def run(self, given: list[str] | None) -> None:
        """Answers texts, the paths of images, or an image and questions; or a file; or stdin as it comes."""
        texts = list(given or ())
        if self.asks:
            texts = self.take_image(texts)
        typed = self.where is None and sys.stdin is not None and sys.stdin.isatty()
        folder = self.reads_images and any(Path(one).expanduser().is_dir() for one in texts)
        self.alone = (len(texts) == 1 and not folder) or (not texts and typed)
        self.check_ready()
        if self.copies_conllu():
            self.copy_conllu()
        elif self.out_file is not None or self.on == "ray":
            self.write_file(list(self.read_file(self.where)) if self.where else texts)
        else:
            answer_each(texts, self.where, self.answer_group, self.read_file, self.size)
        self.finish()

    def finish(self) -> None:
        """Says how many outputs were cut and how many images could not be read."""
        note_cut(self.cut, self.count)
        if self.unread and self.count > 1:
            note(f"saccade: {self.unread:,} of {self.count:,} images could not be read")
        if self.unread or self.missing:
            raise typer.Exit(2)

    def check_ready(self) -> None:
        """Raises where an option does not go with what was given."""

    @property
    def size(self) -> int:
        """How many inputs are answered together."""
        return MANY if not (self.reads_images or self.asks) else MANY_PICTURES

    def take_image(self, texts: list[str]) -> list[str]:
        """The questions; the image, which comes first, is read before anybody types a question."""
        from ..data.image_decoding import read_image

        if bool(texts) == bool(self.where):
            wrong = "both an image and --input were given" if texts else "no image was given"
            raise SaccadeError(
                f"{wrong}; give an image and a question, or --input FILE", code="one-image"
            )
        if texts:
            self.image = texts[0]
            read_image(Path(self.image))
        if any(not one.strip() for one in texts[1:]):
            raise SaccadeError(
                "the question is empty; ask something, such as 'what color is the shape?'",
                code="empty-question",
            )
        return texts[1:]

    # --- inputs

    def read_file(self, where: str) -> Iterator[Any]:
        """The inputs in data; of a model of images, a .txt file has their paths."""
        from ..data.lines import bare_suffix, open_text

        if self.reads_images and bare_suffix(Path(where)) == ".txt":
            return open_text(Path(where))
        return self.system.each_input(where)

    def inputs_of(self, group: list[Any], number: int) -> list[Any]:
        """What the model reads of texts, of paths of images or of questions; whatever is an input already stays."""
        if not all(isinstance(one, str) for one in group):
            return group
        if self.reads_images:
            return self.images_of(group)
        if self.asks:
            filled = iter(self.task.inputs([(self.image, q) for q in group if q.strip()])[0])
            return [next(filled) if question.strip() else question for question in group]
        self.task.check_texts(group, number)
        if self.tags:  # an empty line is no sentence
            group = [line for line in group if line.strip()]
        return [self.input_from(line) if line.strip() else line for line in group]

    def input_from(self, line: str) -> Any:
        """What the model reads of a text."""
        return self.task.input_from(line)

    def images_of(self, paths: list[str]) -> list[Any]:
        """The images of files and folders; where one of several has none, that is said."""
        found = list[Any]()
        for path in paths:
            try:
                found += self.task.inputs(path)[0] if path.strip() else []
            except SaccadeError as error:
                if len(paths) == 1:
                    raise
                note(f"saccade: {error.shell}")
                self.missing = True
        return found

    # --- answers

    def answer_group(self, group: list[Any], number: int) -> None:
        """Prints the answers to some inputs, with a bar on stderr."""
        from .progress import bars

        inputs = self.inputs_of(group, number)
        if self.show is not None:
            self.unknown.note(inputs)
            return self.show(self.system, inputs)
        if self.alone and not self.as_json and "prompt" in self.task.fields:
            return self.stream(inputs[0])
        blank = not any(not isinstance(one, str) or one.strip() for one in inputs)
        if blank and number == 1 and not self.task.by_token and not self.reads_images:
            raise SaccadeError("the lines are empty; give at least one text", code="empty-lines")
        progress = bars()
        progress.disable |= len(inputs) == 1  # nothing to wait for
        name = "predicting" if number == 1 else f"predicting from line {number:,}"
        with progress:  # and answers after it: the two would be mixed in a terminal
            at = progress.add_task(name, total=len(inputs), state="")
            made = self.answer(inputs, partial(progress.advance, at))
        for one, line, row in made:
            if self.as_json:
                print_json(row)
            elif self.alone and one is not None:
                self.print_alone(one, line, row)
            elif one is not None or not self.reads_images:
                write(line)
        sys.stdout.flush()
        return None

    def stream(self, prompt: str) -> None:
        """A continuation, printed as it is generated."""
        [(_, pieces)] = self.system.predictions([prompt], **dict(self.how.options))
        self.unknown.note([prompt])
        for piece in chain([prompt], pieces):
            write(piece, end="")
            sys.stdout.flush()
        write("")

    def answer(
        self, inputs: list[Any], tick: Callable[[int], object] = int
    ) -> list[tuple[Any, str, dict[str, Any]]]:
        """Each answer with its line and its row; None where an input is empty or cannot be read, which is said."""
        from ..data.image_examples import decode_each
        from ..experiments.batch import answer_inputs, count_cut, name_of

        wrong = dict[int, str]()
        good = (
            decode_each(inputs, self.task.image_size, wrong) if self.reads_images else list(inputs)
        )
        answers = answer_inputs(self.system, good, self.how, tick)
        if not self.reads_images and not self.tags:
            self.unknown.note([name_of(one) for one in good])
        self.cut, self.count = self.cut + count_cut(answers), self.count + len(inputs)
        made = [
            (one, line, row)
            for one, (line, row) in zip(answers, self.printed(good, answers), strict=True)
        ]
        for n, why in sorted(wrong.items()):
            note(f"saccade: {why}")
            made.insert(n, (None, "", {"image": inputs[n].name, "error": why}))
        self.unread += len(wrong)
        return made

    def printed(self, inputs: list[Any], answers: list[Any]) -> list[tuple[str, dict[str, Any]]]:
        """The line and the row of each answer."""
        from ..experiments.batch import printed

        return printed(self.system, inputs, answers, self.how)

    def print_alone(self, answer: Any, line: str, row: dict[str, Any]) -> None:
        """One answer by itself, with what else was likely."""
        from ..views.answers import Classified
        from .attention_output import print_classified

        if isinstance(answer, Classified):
            print_classified(answer, row)
        else:
            write(line if self.how.align or self.tags else answer.detail())

    # --- files

    def write_file(self, inputs: list[Any]) -> None:
        """The answers to all inputs in a file; of texts in parts, which are kept until it is whole, or sent to other machines."""
        from ..experiments.batch import answer_all, kept
        from .progress import bars

        if not inputs:
            raise SaccadeError(
                "--out needs inputs; give texts, images or --input FILE", code="needs-input"
            )
        plain = not (self.reads_images or self.asks or self.tags)
        texts = plain and all(isinstance(one, str) for one in inputs)
        if self.on == "ray" and not texts:
            raise SaccadeError("--on ray is for texts; leave it out", code="ray-without-texts")
        if texts:
            self.task.check_texts(inputs)
        lines, rows, progress, path = list[str](), list[dict[str, Any]](), bars(), self.out_file
        folder = None if path is None or not texts else path.with_name(path.name + ".parts")
        with kept(folder, self.how, inputs if texts else ()) as keep, progress:
            at = progress.add_task("predicting", total=len(inputs), state="")
            tick = partial(progress.advance, at)
            if texts:
                parts = answer_all(inputs, self.how, self.system, self.on, self.jobs, keep, tick)
            else:
                parts = self.parts_of(inputs, tick)
            for done in parts:
                self.cut += done["cut"]
                lines += done["lines"]
                rows += done["rows"]
                if path is None:
                    progress.stop()  # a bar and outputs would be mixed in a terminal
                    for line, row in zip(done["lines"], done["rows"], strict=True):
                        print_json(row) if self.as_json else write(line)
                    sys.stdout.flush()
                    progress.start()
            if path is not None:
                save_rows(path, self.kind, lines, rows, self.where)
                if keep is not None:
                    keep.remove()
        if texts:
            self.count = len(inputs)
        if path is not None:
            note(f"{path}: {len(rows):,} lines")

    def parts_of(
        self, inputs: list[Any], tick: Callable[[int], object]
    ) -> Iterator[dict[str, Any]]:
        for start in range(0, len(inputs), self.size):
            made = self.answer(self.inputs_of(inputs[start : start + self.size], start + 1), tick)
            yield {"lines": [one[1] for one in made], "rows": [one[2] for one in made], "cut": 0}

    def copies_conllu(self) -> bool:
        from ..data.lines import bare_suffix

        plain = not self.as_json and self.kind in ("", ".conllu", ".txt")
        return self.tags and plain and bare_suffix(Path(self.where or "")) == ".conllu"

    def copy_conllu(self) -> None:
        """A CoNLL-U file with other tags, byte for byte otherwise."""
        from ..data.conllu import tag_conllu
        from ..files import write_atomically

        def tagged() -> Iterator[tuple[Any, list[str]]]:
            source = self.read_file(str(self.where))
            while some := list(islice(source, MANY)):
                for given, (answer, _, _) in zip(some, self.answer(some), strict=True):
                    yield given, [visible(tag) for tag in answer]

        found = tagged()
        first = list(islice(found, 1))  # a mistake is reported before anything is printed
        column = self.system.recipe.data.column
        lines = tag_conllu(str(self.where), chain(first, found), column)
        whole = (line if line.endswith("\n") else line + "\n" for line in lines)
        if self.out_file is None:
            sys.stdout.writelines(whole)
        else:
            write_atomically(self.out_file, "".join(whole).encode())
            note(f"{self.out_file}: {self.count:,} sentences")
