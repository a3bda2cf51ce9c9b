"""What may be asked for: one dataclass per route, from which requests are checked and /openapi.json is made."""

from dataclasses import dataclass, fields, make_dataclass
from typing import Any

from ..tasks.search_options import Option
from ..tasks.task import table
from ..teaching.explain.worked_attention import MAX_TOKENS
from .schema import given

TEXT = "the black cat ate the mouse"
ONE_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"
)
MAX_SEED = 2**63 - 1


def name_of_model() -> Any:
    return given(
        "the name of a model of /v1/models; by default the first that can do this", None, most=200
    )


def texts(example: str = TEXT, word: bool = False, **default: None) -> Any:
    """One text or several; required unless a default is given."""
    what = "a text, or a list of texts"
    return given(what, most="text", items="texts", example=example, word=word, **default)


def image() -> Any:
    return given(
        "an image file in base64 (PNG, JPEG, GIF, BMP, WebP, TIFF or PPM)",
        most="image_body",
        example=ONE_PIXEL,
    )


def look() -> Any:
    return given("what attention to answer with, for one text or picture", None)


def sampling(name: str) -> Any:
    least, most, text = {
        "temperature": (0, 100, "above 1 is bolder, below it is safer, 0 takes the likeliest"),
        "top_k": (1, 1_000_000, "sample from the k likeliest tokens"),
        "top_p": (0.000001, 1, "sample from the smallest set of tokens with this probability"),
        "seed": (0, MAX_SEED, "the seed of sampling"),
    }[name]
    return given(text, None, least=least, most=most)


def beam_width() -> Any:
    return given("the beam width; 1 is greedy", 1, least=1, most="beam")


def max_length(what: str) -> Any:
    return given(f"cut {what} after so many tokens", None, least=1, most="tokens")


def optional_image() -> Any:
    what = "an image file in base64, for a model of pictures"
    return given(what, None, most="image_body")


@dataclass(frozen=True)
class Look:
    """Which weights are wanted."""

    layer: str | None = given(
        "the name of an attention; by default the one that singles out the most words",
        None,
        most=200,
    )
    heads: list[int] | None = given(
        "the numbers of heads, from 0; by default all", None, least=0, most=10_000, items="texts"
    )
    rows: list[int] | None = given(
        "the first row and the one after the last; by default all", None, least=0, most=1_000_000
    )
    columns: list[int] | None = given("the same of columns", None, least=0, most=1_000_000)
    pool: int = given(
        "squares of so many rows and columns become one weight, the greatest; 0: as few as an answer holds",
        1,
        least=0,
        most=100_000,
    )
    mean: bool = given("one head instead of several: their mean", False)


@dataclass(frozen=True)
class Translate:
    """Translate texts."""

    text: str | list[str] = texts()
    model: str | None = name_of_model()
    beam: int = beam_width()
    length_penalty: float = given(
        "outputs of a beam are ranked by log-probability / length^this", 1.0, least=-10, most=10
    )
    temperature: float | None = sampling("temperature")
    top_k: int | None = sampling("top_k")
    top_p: float | None = sampling("top_p")
    seed: int | None = sampling("seed")
    max_length: int | None = max_length("an output")
    look: Look | None = look()


@dataclass(frozen=True)
class Tag:
    """Tag the words of texts."""

    text: str | list[str] = texts("the cats sleep", word=True)
    model: str | None = name_of_model()
    look: Look | None = look()


@dataclass(frozen=True)
class Classify:
    """Label texts, or an image."""

    text: str | list[str] | None = texts("not a bad film", word=True, default=None)
    image: str | None = optional_image()
    model: str | None = name_of_model()
    look: Look | None = look()


@dataclass(frozen=True)
class Generate:
    """Continue a text; streamed as server-sent events where `stream` is true."""

    prompt: str = given("the beginning", "", most="text", example="the cat")
    model: str | None = name_of_model()
    limit: int = given("the largest number of tokens", 200, least=1, most="tokens", example=20)
    temperature: float | None = sampling("temperature")
    top_k: int | None = sampling("top_k")
    top_p: float | None = sampling("top_p")
    seed: int | None = sampling("seed")
    stream: bool = given("answer piece by piece", False)
    look: Look | None = given(
        "what attention to the prompt to answer with; not with `stream`", None
    )


@dataclass(frozen=True)
class Describe:
    """Describe an image."""

    image: str = image()
    model: str | None = name_of_model()
    beam: int = beam_width()
    max_length: int | None = max_length("a caption")
    look: Look | None = look()


@dataclass(frozen=True)
class Answer:
    """Answer a question about an image."""

    image: str = image()
    question: str = given(
        "a question about the image", most="text", example="what color is the shape?", word=True
    )
    model: str | None = name_of_model()
    look: Look | None = look()


@dataclass(frozen=True)
class LookAt:
    """Show what a model looks at while it reads a text or an image, and while it generates a target."""

    text: str | None = given(
        "a text, or the question about an image",
        None,
        most="text",
        example="the black cat",
        word=True,
    )
    target: str | None = given(
        "a translation of the text, or a caption of the image",
        None,
        most="text",
        example="le chat noir",
    )
    image: str | None = optional_image()
    model: str | None = name_of_model()
    look: Look | None = given("which weights are wanted", None)


@dataclass(frozen=True)
class WorkOut:
    """Self-attention worked out by hand for one's own words, every step in words and numbers."""

    text: str = given(
        "a sentence of up to 30 words; nothing: the three inputs of the lectures",
        "",
        most=2000,
        example="the black cat",
        pattern=rf"^\s*(\S+(\s+\S+){{0,{MAX_TOKENS - 1}}}\s*)?$",
    )
    scaled: bool = given("divide the scores by the root of the keys' width", False)


@dataclass(frozen=True)
class LibreTranslate:
    """Translate as LibreTranslate does."""

    q: str | list[str] = texts()
    source: str = given("the code of a language of /languages, or auto", most=20, example="auto")
    target: str = given("the code of a language of /languages", most=20, example="target")
    format: str = given("text; nothing else is known here", "text", most=10)
    alternatives: int = given("how many further translations are wanted", 0, least=0, most="beam")
    api_key: str | None = given("a key, where one is needed", None, most=1000)


@dataclass(frozen=True)
class Detect:
    """Name the language of a text, where there is only one."""

    q: str = given("a text", most="text", example=TEXT)
    api_key: str | None = given("a key, where one is needed", None, most=1000)


@dataclass(frozen=True)
class StreamOptions:
    """What a stream ends with."""

    include_usage: bool = given("whether it ends with counts of tokens", False)


@dataclass(frozen=True)
class Completion:
    """Continue a text as OpenAI's completions do; of their other fields the neutral values are accepted."""

    model: str = given("the name of a model of /v1/models", most=200, example="words")
    prompt: str | list[str] = given(
        "the beginning; of a list, one", "", most="text", items=1, example="the cat"
    )
    max_tokens: int | None = given(
        "the largest number of tokens", 16, least=1, most="tokens", example=20
    )
    temperature: float | None = given("0 takes the likeliest token", 1.0, least=0, most=2)
    top_p: float | None = given(
        "sample from the smallest set of tokens with this probability", 1.0, least=0.000001, most=1
    )
    seed: int | None = sampling("seed")
    stop: str | list[str] | None = given(
        "texts that end the output", None, most=100, items="beam", word=False
    )
    stream: bool | None = given("answer piece by piece", False)
    stream_options: StreamOptions | None = given("what a stream ends with", None)
    echo: bool | None = given("begin with the prompt", False)
    n: int | None = given("1; one output is generated", 1, least=1, most=1)
    best_of: int | None = given("1", 1, least=1, most=1)
    frequency_penalty: float | None = given("0", 0, least=0, most=0)
    presence_penalty: float | None = given("0", 0, least=0, most=0)
    user: str | None = given("ignored: nothing is kept about users", None, most=1000)


OWN: dict[str, type] = {
    "translate": Translate,
    "tag": Tag,
    "classify": Classify,
    "generate": Generate,
    "caption": Describe,
    "answer": Answer,
}
# The service's limit of an option that makes work.
LIMITED = {"beam": "beam", "max_length": "tokens"}


@dataclass(frozen=True)
class Verb:
    """A route of our own: what it is asked, and the fields of an answer, with those that every answer has."""

    kind: type
    answers: tuple[str, ...] = ()
    always: tuple[str, ...] = ()

    @property
    def reads_images(self) -> bool:
        return any(one.name == "image" for one in fields(self.kind))


def message(verb: str, options: dict[str, Option]) -> type:
    """What a route is asked: the message that is written here, or a text; and the further options of its tasks."""
    base = OWN.get(verb, Tag)
    known = {"sample", *(one.name for one in fields(base))}
    more = []
    for name, one in options.items():
        if name not in known:
            about = given(one.text, None, least=one.least, most=LIMITED.get(name, one.most))
            more.append((name, one.kind | None, about))
    made = make_dataclass(verb.title(), more, bases=(base,), frozen=True)
    made.__doc__ = base.__doc__ if verb in OWN else f"{verb.title()} texts."
    return made if more or verb not in OWN else base


def verbs() -> dict[str, Verb]:
    """The routes of all tasks, and that of attention."""
    names = dict.fromkeys([*OWN, *(verb for one in table for verb in one.make.routes)])
    found = {}
    for verb in names:
        tasks = [one.make for one in table if verb in one.make.routes]
        options = {name: one for task in tasks for name, one in task.predict_options.items()}
        answers = dict.fromkeys(name for task in tasks for name in task.answers)
        always = tuple(name for name in answers if all(name in task.answers for task in tasks))
        found[verb] = Verb(message(verb, options), tuple(answers), always)
    return {**found, "look": Verb(LookAt)}


def options_of(asked: Any) -> dict[str, Any]:
    """The options of a prediction that a request gave."""
    about = ("text", "image", "question", "model", "look")
    found = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name not in about}
    return {name: value for name, value in found.items() if value is not None}


VERBS = verbs()
