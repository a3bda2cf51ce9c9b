"""Text to numbers and back: words, byte-level BPE or characters over the `tokenizers` library; special tokens are data."""

import json
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Self

from tokenizers import (
    Encoding,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from ..errors import SaccadeError, did_you_mean

# in the vocabularies trained here; a foreign one has its own, `Vocabulary.pad` …
PAD, UNK, BOS, EOS = (0, 1, 2, 3)
SPECIALS = {"pad": "<pad>", "unk": "<unk>", "bos": "<bos>", "eos": "<eos>"}
KINDS = ("words", "bpe", "characters")
SPLITS = ("space", "punctuation")
MAX_PIECE_CHARACTERS = 100_000  # characters; a longer word is not learned

# bytes that the byte-level alphabet spells as themselves
_SEEN = {*range(33, 127), *range(161, 173), *range(174, 256)}
_BYTES = {chr(byte): byte for byte in _SEEN} | {
    chr(256 + n): byte for n, byte in enumerate(sorted({*range(256)} - _SEEN))
}
_PARTS = "₁₂₃₄"
_HALF = re.compile("[\ud800-\udfff]")  # what a command line passes for bytes that are not UTF-8
_SPACE = r"\s\x1c-\x1f"  # what str.split() separates at; \s alone lacks the four separators of ASCII there
_SPLITTERS = {
    "space": (rf"[^{_SPACE}]+", "removed", True),
    "punctuation": (
        rf"[^\W\d_]+['’](?=[^\W\d_])|[^\W\d_]{{1,2}}['’](?=\s|$)|\w+|[^\w{_SPACE}]",
        "removed",
        True,
    ),
    "characters": (r"[\s\S]", "isolated", False),
}
# of a tokenizer's JSON; all else is fixed
_LEARNED = ("model", "vocab", "merges", "unk_token", "added_tokens", "version")
# others', harmless
_PLAIN: dict[str, Any] = {
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "normalizer": None,
    "decoder": None,
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text in pieces, without <bos> and <eos>."""

    ids: list[int]
    # as they are in the text; of several pieces of one character, the first shows it
    pieces: list[str]
    # the white-space word of each piece; white space belongs to the word that follows it, or to the last one
    words: list[int]


class Vocabulary:
    """The pieces a model knows and their numbers; `pad`, `unk`, `bos`, `eos` are those of the specials, which never come from text."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        kind: str,
        split: str = "space",
        lowercase: bool = False,
        specials: dict[str, str] = SPECIALS,
    ) -> None:
        """`specials` are what the tokenizer calls its special tokens; two of them may be the same token."""
        _check_names(kind, split)
        self.kind, self.split, self.lowercase, self.specials = kind, split, lowercase, specials
        self._tokenizer = tokenizer
        self._ids = ids = tokenizer.get_vocab(with_added_tokens=True)
        for role, name in specials.items():
            if name not in ids:
                raise SaccadeError(
                    f"the tokenizer has no token '{name}' for {role}; give its own name in specials",
                    code="token-missing",
                )
        self.pad, self.unk, self.bos, self.eos = (ids[specials[role]] for role in SPECIALS)
        self._special = {self.pad, self.unk, self.bos, self.eos}
        self._tokens, count = sorted(ids, key=ids.__getitem__), len(ids)
        if sorted(ids.values()) != list(range(count)):
            raise SaccadeError(
                f"the tokenizer has {count} tokens, but not the numbers 0 to {count - 1}; leave no number out",
                code="numbers-left-out",
            )

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        kind: str = "words",
        size: int = 8000,
        split: str = "space",
        lowercase: bool = False,
        min_count: int = 1,
    ) -> Self:
        """The `size` most frequent pieces (specials included) seen `min_count` times or more, whatever the order of the lines."""
        _check_names(kind, split)
        # bpe starts from all bytes, before it can learn a first merge
        least = len(SPECIALS) + (256 if kind == "bpe" else 1)
        if size < least:
            what = f"it holds {len(SPECIALS)} specials and {least - len(SPECIALS)} or more pieces"
            raise SaccadeError(
                f"a {kind} vocabulary of size {size} is too small; {what}, so give at least {least}",
                code="size-out-of-range",
            )
        texts = map(_nfc, lines)
        first = next(filter(str.strip, texts), None)
        if first is None:
            raise SaccadeError(
                "no text to learn a vocabulary from; give at least one line with a word",
                code="empty-text",
            )
        tokenizer = _bare_tokenizer(kind, split, lowercase)
        options: dict[str, Any] = {
            "vocab_size": size,
            "min_frequency": min_count,
            "show_progress": False,
        }
        if kind == "bpe":
            alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
            trainer = trainers.BpeTrainer(
                special_tokens=list(SPECIALS.values()), initial_alphabet=alphabet, **options
            )
            tokenizer.train_from_iterator(chain([first], texts), trainer)
            model = tokenizer.model
        else:
            if kind == "words":
                tokenizer.train_from_iterator(
                    chain([first], texts), trainers.WordLevelTrainer(**options)
                )
                found = tokenizer.get_vocab()
                ordered = sorted(
                    (name for name in found if len(name) <= MAX_PIECE_CHARACTERS),
                    key=found.__getitem__,
                )
            else:  # as the trainer would order them, in a fifteenth of its time
                counts = Counter(
                    chain.from_iterable(
                        _spelled(text, tokenizer, lowercase) for text in chain([first], texts)
                    )
                )
                ordered = sorted(
                    (one for one in counts if counts[one] >= min_count),
                    key=lambda one: (-counts[one], one),
                )
            # specials are added here: the trainer's own would go wrong where one is also a word, as <unk> is in wikitext
            names = dict.fromkeys([*SPECIALS.values(), *ordered])
            model = models.WordLevel(
                {name: n for n, name in enumerate(names) if n < size}, unk_token=SPECIALS["unk"]
            )
        # a fresh tokenizer has no added tokens, so that "<eos>" in a text is text and not the end of a sentence
        return cls(_bare_tokenizer(kind, split, lowercase, model), kind, split, lowercase)

    def __len__(self) -> int:
        return len(self._tokens)

    def encode(self, text: str) -> Encoded:
        """The pieces of one text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoded]:
        """The pieces of each text."""
        texts = [_nfc(text) for text in texts]
        return list(
            map(self._encoded, texts, self._tokenizer.encode_batch(texts, add_special_tokens=False))
        )

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Only the numbers, for training: about twice as fast as `encode_batch`; of characters thirty times."""
        texts = [_nfc(text) for text in texts]
        if self._numbers is not None:
            spelled = (_spelled(text, self._tokenizer, self.lowercase) for text in texts)
            return [list(map(self._numbers.get, text, repeat(self.unk))) for text in spelled]
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [self._plain(one.ids) for one in found]

    @cached_property
    def _numbers(self) -> dict[str, int] | None:
        """The number of each character, where they are all that the tokenizer looks for; of a foreign one that is not known."""
        if self.kind != "characters":
            return None
        bare = _bare_tokenizer(self.kind, self.split, self.lowercase)
        here, own = json.loads(self._tokenizer.to_str()), json.loads(bare.to_str())
        here["model"]["vocab"], own["model"]["unk_token"] = {}, self.specials["unk"]
        return (
            None
            if here != own
            else {name: number for name, number in self._ids.items() if number not in self._special}
        )

    def decode(self, ids: Iterable[int], keep_unknown: bool = False) -> str:
        """The text of these numbers without specials; with `keep_unknown`, an unknown piece is shown as `<unk>`."""
        text = self.decode_more(ids, keep_unknown)
        return text.removeprefix(" ") if self.kind == "bpe" else text

    def decode_more(self, ids: Iterable[int], keep_unknown: bool = False) -> str:
        """The text of these numbers inside a longer text: a space before its first word is kept."""
        shown = [
            i for i in map(int, ids) if i not in self._special or (keep_unknown and i == self.unk)
        ]
        tokens = [self.token(i) for i in shown]
        if self.kind == "bpe":
            return self._tokenizer.decode(shown, skip_special_tokens=False)
        return (" " if self.kind == "words" else "").join(tokens)

    def token(self, id: int) -> str:
        """The piece with this number, spelled as it is stored."""
        if not 0 <= id < len(self._tokens):
            raise SaccadeError(
                f"no piece has the number {id}; the vocabulary has 0 to {len(self._tokens) - 1}",
                code="unknown-piece",
            )
        return self._tokens[id]

    def id(self, token: str) -> int:
        """The number of a piece, or that of `<unk>`."""
        return self._ids.get(token, self.unk)

    def labels(self, ids: Iterable[int]) -> list[str]:
        """Pieces as people know them: ▁ is a space, `你₁` `你₂` are parts of one character, `<0xE4>` is a byte of none."""
        tokens = [self.token(id) for id in ids]
        # a foreign tokenizer has its own
        if self.kind != "bpe" or any(sign not in _BYTES for token in tokens for sign in token):
            return tokens
        owners = [n for n, token in enumerate(tokens) for _ in token]
        whole = bytes(_BYTES[sign] for token in tokens for sign in token)
        shown = [""] * len(tokens)
        at = 0
        while at < len(whole):
            size = 1 + sum(whole[at] >= least for least in (0xC0, 0xE0, 0xF0))
            sign = whole[at : at + size].decode(errors="ignore").replace(" ", "▁")
            if len(sign) != 1:  # generated, or cut off
                sign, size = f"<0x{whole[at]:02X}>", 1
            parts = sorted(set(owners[at : at + size]))
            for part, owner in zip(_PARTS, parts, strict=False):
                shown[owner] += sign + part * (len(parts) > 1)
            at += size
        return shown

    def label_text(self, text: str) -> list[str]:
        """The labels of a text's pieces; one that is unknown is shown as it is in the text."""
        found = self.encode(text)
        return self.labels(found.ids) if self.kind == "bpe" else found.pieces

    def unknown_share(self, lines: Iterable[str]) -> float:
        """Which part of all pieces of these lines is unknown, 0 to 1."""
        found = self.encode_ids(list(lines))
        return sum(ids.count(self.unk) for ids in found) / max(1, sum(map(len, found)))

    def to_json(self) -> dict[str, Any]:
        """Everything as values of JSON, the tokenizers library's own inside; the same vocabulary gives the same values."""
        head: dict[str, Any] = {"kind": self.kind, "split": self.split, "lowercase": self.lowercase}
        if self.specials != SPECIALS:
            head["specials"] = self.specials
        return {**head, "tokenizer": json.loads(self._tokenizer.to_str())}

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """A vocabulary from what `to_json` gave, in this version or an earlier one."""
        entry = {"specials": {}, **entry} if isinstance(entry, dict) else {}
        for key, type_ in {
            "kind": str,
            "split": str,
            "lowercase": bool,
            "tokenizer": dict,
            "specials": dict,
        }.items():
            if not isinstance(entry.get(key), type_):
                what = f'not a vocabulary of saccade: "{key}" is missing or not of type {type_.__name__}'
                raise SaccadeError(
                    f"{what}; take the vocabularies.json of a model folder", code="not-a-vocabulary"
                )
        _check_names(entry["kind"], entry["split"])
        _check_parts(
            entry["tokenizer"],
            json.loads(_bare_tokenizer(entry["kind"], entry["split"], entry["lowercase"]).to_str()),
        )
        try:
            tokenizer = Tokenizer.from_str(json.dumps(entry["tokenizer"]))
            tokenizer.encode("\u2603")  # a model without its <unk> fails only at an unknown piece
        except (
            BaseException
        ) as error:  # the library raises nothing narrower, and its panics are no Exceptions
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise SaccadeError(
                f"not a vocabulary of saccade: the tokenizers library refuses it ({error})",
                code="not-a-vocabulary",
            ) from None
        specials = SPECIALS | {role: str(name) for role, name in entry["specials"].items()}
        return cls(tokenizer, entry["kind"], entry["split"], entry["lowercase"], specials)

    def _plain(self, ids: list[int]) -> list[int]:
        """Text that spells `<eos>` is an unknown word, not the end of a sentence."""
        return [self.unk if i in self._special else i for i in ids]

    def _encoded(self, text: str, found: Encoding) -> Encoded:
        offsets = found.offsets
        # the space put before the text makes its first word like every other; alone, it is a piece of which nothing is visible
        invisible = self.kind == "bpe" and found.tokens[:1] == ["Ġ"]
        pieces, shown = [""] * invisible, 0
        for start, end in offsets[invisible:]:
            pieces.append(text[max(start, shown) : end])
            shown = end
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        last = max(0, len(ends) - 1)
        words = [min(bisect_right(ends, start), last) for start, _ in offsets]
        return Encoded(self._plain(found.ids), pieces, words)


def _check_names(kind: str, split: str) -> None:
    for what, name, known in (
        ("kind of vocabulary", kind, KINDS),
        ("way to split words", split, SPLITS),
    ):
        if name not in known:
            raise SaccadeError(
                f"no {what} named '{name}'{did_you_mean(name, known)}", code="unknown-choice"
            )


def _check_parts(given: dict[str, Any], own: dict[str, Any]) -> None:
    """Raises unless a tokenizer is made of the parts that we write, and its vocabulary of short strings and their numbers: the library would
    run any regex, replacement or padding in the file without a limit of time or memory."""
    model = given["model"] if isinstance(given.get("model"), dict) else {"type": None}
    here, wanted = {**given, **model}, {**own, **own["model"]}
    odd = [
        name
        for name in sorted({**here, **wanted})
        if name not in _LEARNED and here.get(name) != wanted.get(name)
    ]
    odd = [name for name in odd if name not in _PLAIN or here.get(name) != _PLAIN[name]]
    if odd:
        what = f"'{odd[0]}' of its tokenizer is not as saccade writes it"
        raise SaccadeError(
            f"not a vocabulary of saccade: {what}; take the vocabularies.json of a model folder",
            code="not-a-vocabulary",
        )
    pieces = model.get("vocab")
    merges = model.get("merges", [])
    added = given.get("added_tokens", [])
    is_piece = lambda value: isinstance(value, str) and len(value) <= MAX_PIECE_CHARACTERS
    if not (
        isinstance(pieces, dict)
        and isinstance(merges, list)
        and isinstance(added, list)
        and all(map(is_piece, pieces))
        and all(type(number) is int and 0 <= number < 2**31 for number in pieces.values())
        and all(
            isinstance(one, dict)
            and one.get("content")
            and pieces.get(one["content"]) == one.get("id")
            for one in added
        )
        and len(merges) <= len(pieces)
    ):
        raise SaccadeError(
            "not a vocabulary of saccade: its pieces are not short strings with numbers; take the vocabularies.json of a model folder",
            code="not-a-vocabulary",
        )


def _nfc(text: str) -> str:
    """Composed here and not only by the tokenizer, whose offsets would cut the accent off a composed letter."""
    if not isinstance(text, str):
        raise SaccadeError(
            f"{type(text).__name__} instead of text; a vocabulary takes strings", code="not-text"
        )
    half = None if text.isascii() else _HALF.search(text)
    if half:
        raise SaccadeError(
            f"half of a surrogate pair at column {half.start() + 1} of the text; save the text as UTF-8",
            code="damaged-text",
        )
    return unicodedata.normalize("NFC", text)


def _spelled(text: str, tokenizer: Tokenizer, lowercase: bool) -> str:
    """A composed text as the tokenizer normalizes it; plain ASCII need not be passed to it."""
    if text.isascii():
        return text.lower() if lowercase else text
    return str(tokenizer.normalizer.normalize_str(text))


def _bare_tokenizer(
    kind: str, split: str, lowercase: bool, model: models.Model | None = None
) -> Tokenizer:
    """The steps before and after the model; `Ġ` is a space in the byte-level alphabet."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if kind == "bpe":
        tokenizer = Tokenizer(model or models.BPE())
        steps.append(normalizers.Prepend(" "))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer = Tokenizer(model or models.WordLevel({}, unk_token=SPECIALS["unk"]))
        pattern, behavior, invert = _SPLITTERS[split if kind == "words" else "characters"]
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior, invert)
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer
