"""Text to numbers and back: words, byte-level BPE or characters over the `tokenizers` library, always with the same specials."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenizers import Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ..errors import SaccadeError, did_you_mean

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>")
KINDS = ("words", "bpe", "characters")
SPLITS = ("space", "punctuation")
LARGEST = 1_000_000

_HALF = re.compile("[\ud800-\udfff]")  # what a command line hands on for bytes that are not UTF-8
_SPACE = r"\s\x1c-\x1f"  # what str.split() separates at; \s alone lacks the four separators of ASCII there
_SPLITTERS = {
    "space": (rf"[^{_SPACE}]+", "removed", True),
    "punctuation": (rf"[^\W\d_]+['’](?=[^\W\d_])|[^\W\d_]{{1,2}}['’](?=\s|$)|\w+|[^\w{_SPACE}]", "removed", True),
    "characters": (r"[\s\S]", "isolated", False),
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text in pieces: `ids` (no <bos>, no <eos>), `pieces` as they stand in the text, and the white-space `words` they are in.

    With bpe and characters the pieces put together are the text again; of several pieces of one character, the first shows it.
    A piece of white space belongs to the word that follows it, or to the last one.
    """

    ids: list[int]
    pieces: list[str]
    words: list[int]


class Vocabulary:
    """The pieces a model knows and their numbers; `<pad>`, `<unk>`, `<bos>`, `<eos>` are 0, 1, 2, 3 and never come from text."""

    def __init__(self, tokenizer: Tokenizer, kind: str, split: str = "space", lowercase: bool = False) -> None:
        _check_names(kind, split)
        self.kind, self.split, self.lowercase = kind, split, lowercase
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab(with_added_tokens=True)
        if [ids.get(special) for special in SPECIALS] != [PAD, UNK, BOS, EOS] or sorted(ids.values()) != list(range(len(ids))):
            raise SaccadeError(f"not a vocabulary of saccade: {' '.join(SPECIALS)} must be 0 to 3, and no number may be left out")
        self._ids = ids
        self._tokens = sorted(ids, key=ids.__getitem__)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        kind: str = "words",
        size: int = 8000,
        split: str = "space",
        lowercase: bool = False,
        min_count: int = 1,
    ) -> Vocabulary:
        """The `size` most frequent pieces (specials included), those seen less than `min_count` times left out.

        bpe is byte-level (Radford et al. 2019; Sennrich et al. 2016): any text comes back as it was, after NFC, and nothing
        is unknown. The same lines give the same numbers, in any order of the lines: equal counts are ordered by text.
        """
        _check_names(kind, split)
        _check_sizes(kind, size, min_count)
        if isinstance(lines, str):
            raise SaccadeError("a vocabulary is learned from lines, not from one string; give a list of strings")
        seen = _Counted(lines)
        tokenizer = _bare_tokenizer(kind, split, lowercase)
        tokenizer.train_from_iterator(seen, _trainer(kind, size, min_count))
        if not seen.count:
            raise SaccadeError("there is no text to learn a vocabulary from; give at least one line with a word")
        if kind == "bpe":
            model = tokenizer.model
        else:
            # the trainer's own specials would go wrong where a special is also a word of the text, as <unk> is in wikitext
            found = tokenizer.get_vocab()
            kept = [token for token in sorted(found, key=found.__getitem__) if token not in SPECIALS]
            names = [*SPECIALS, *kept[: size - len(SPECIALS)]]
            model = models.WordLevel({name: number for number, name in enumerate(names)}, unk_token=SPECIALS[UNK])
        # a fresh tokenizer has no added tokens, so that "<eos>" in somebody's text is text and not the end of a sentence
        return cls(_bare_tokenizer(kind, split, lowercase, model), kind, split, lowercase)

    pad, unk, bos, eos = PAD, UNK, BOS, EOS

    def __len__(self) -> int:
        return len(self._tokens)

    def encode(self, text: str) -> Encoded:
        """The pieces of one text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoded]:
        """The pieces of each text."""
        texts = [_nfc(text) for text in texts]
        return [self._encoded(text, found) for text, found in zip(texts, self._run(texts), strict=True)]

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Only the numbers, for training: about twice as fast as `encode_batch`."""
        return [_without_specials(found.ids) for found in self._run([_nfc(text) for text in texts])]

    def decode(self, ids: Iterable[int], keep_unknown: bool = False) -> str:
        """The text of these numbers without specials; with `keep_unknown`, an unknown piece is shown as `<unk>`."""
        shown = [int(i) for i in ids]
        shown = [i for i in shown if i >= len(SPECIALS) or i < 0 or (keep_unknown and i == UNK)]
        tokens = [self.token(i) for i in shown]
        if self.kind == "bpe":
            return self._tokenizer.decode(shown, skip_special_tokens=False).removeprefix(" ")
        return (" " if self.kind == "words" else "").join(tokens)

    def decode_more(self, ids: Sequence[int]) -> str:
        """The text of these numbers inside a longer text: a space before its first word is kept."""
        if self.kind == "bpe":
            return self._tokenizer.decode([int(i) for i in ids if i >= len(SPECIALS)], skip_special_tokens=False)
        return self.decode(ids)

    def token(self, id: int) -> str:
        """The piece with this number, spelled as it is stored."""
        if not 0 <= id < len(self._tokens):
            raise SaccadeError(f"there is no piece number {id}; the vocabulary has 0 to {len(self._tokens) - 1}")
        return self._tokens[id]

    def id(self, token: str) -> int:
        """The number of a piece, or that of `<unk>`."""
        return self._ids.get(token, UNK)

    def unknown_share(self, lines: Iterable[str]) -> float:
        """Which part of all pieces of these lines is unknown, 0 to 1."""
        found = self.encode_ids(list(lines))
        return sum(ids.count(UNK) for ids in found) / max(1, sum(map(len, found)))

    def to_json(self) -> str:
        """Everything as text, the tokenizers library's own JSON inside; the same vocabulary gives the same text."""
        head = {"kind": self.kind, "split": self.split, "lowercase": self.lowercase}
        return json.dumps({**head, "tokenizer": json.loads(self._tokenizer.to_str())}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """A vocabulary from what `to_json` wrote."""
        not_ours = "not a vocabulary of saccade"
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SaccadeError(f"{not_ours}: broken JSON ({error}); take the tokenizer.json of a model folder") from None
        wanted = {"kind": str, "split": str, "lowercase": bool, "tokenizer": dict}
        for key, type_ in wanted.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(key), type_):
                what = f'"{key}" is missing or not of type {type_.__name__}'
                raise SaccadeError(f"{not_ours}: {what}; take the tokenizer.json of a model folder")
        try:
            tokenizer = Tokenizer.from_str(json.dumps(entry["tokenizer"]))
            tokenizer.encode("\u2603")  # a model without its <unk> fails only at an unknown piece
        except Exception as error:  # the library raises nothing narrower
            raise SaccadeError(f"{not_ours}: the tokenizers library refuses it ({error})") from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, entry["kind"], entry["split"], entry["lowercase"])

    def _run(self, texts: list[str]) -> list[Encoding]:
        return self._tokenizer.encode_batch(texts, add_special_tokens=False)

    def _encoded(self, text: str, found: Encoding) -> Encoded:
        offsets = found.offsets
        # the space put before the text makes its first word like every other; alone, it is a piece of which nothing is visible
        invisible = self.kind == "bpe" and found.tokens[:1] == ["Ġ"]
        pieces, shown = [], 0
        for number, (start, end) in enumerate(offsets):
            if number == 0 and invisible:
                pieces.append("")
                continue
            pieces.append(text[max(start, shown) : end])
            shown = end
        ends = [word.end() for word in re.finditer(r"\S+", text)]
        last = max(0, len(ends) - 1)
        words = [min(bisect_right(ends, start), last) for start, _ in offsets]
        return Encoded(_without_specials(found.ids), pieces, words)


class _Counted:
    """Lines in NFC as they pass, and how many of them had anything in them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines, self.count = lines, 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            composed = _nfc(line)
            self.count += bool(composed.strip())
            yield composed


def _check_names(kind: str, split: str) -> None:
    if kind not in KINDS:
        raise SaccadeError(f"no kind of vocabulary named '{kind}'{did_you_mean(kind, KINDS)}")
    if split not in SPLITS:
        raise SaccadeError(f"no way to split words named '{split}'{did_you_mean(split, SPLITS)}")


def _check_sizes(kind: str, size: int, min_count: int) -> None:
    # bpe starts from all bytes, and has to hold them before it can learn a first merge
    least = len(SPECIALS) + (256 if kind == "bpe" else 1)
    what = "4 specials and 256 bytes" if kind == "bpe" else "4 specials and one piece"
    if size < least:
        raise SaccadeError(f"a {kind} vocabulary of size {size} is too small; it holds {what}, so give at least {least}")
    if size > LARGEST:
        raise SaccadeError(f"a vocabulary of size {size:,} is too large; give at most {LARGEST:,}")
    if min_count < 1:
        raise SaccadeError(f"min_count is {min_count}, but a piece occurs at least once; give 1 or more")


def _nfc(text: str) -> str:
    """Composed here and not only by the tokenizer, whose offsets would cut the accent off a composed letter."""
    if not isinstance(text, str):
        raise SaccadeError(f"{type(text).__name__} instead of text; a vocabulary takes strings")
    half = None if text.isascii() else _HALF.search(text)
    if half:
        raise SaccadeError(f"half of a surrogate pair at column {half.start() + 1} of the text; save the text as UTF-8")
    return unicodedata.normalize("NFC", text)


def _without_specials(ids: list[int]) -> list[int]:
    """Text that spells `<eos>` is an unknown word, not the end of a sentence."""
    return [UNK if i < len(SPECIALS) else i for i in ids]


def _bare_tokenizer(kind: str, split: str, lowercase: bool, model: models.Model | None = None) -> Tokenizer:
    """The steps before and after the model; `Ġ` stands for a space in the byte-level alphabet."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if kind == "bpe":
        tokenizer = Tokenizer(model or models.BPE())
        steps.append(normalizers.Prepend(" "))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer = Tokenizer(model or models.WordLevel({}, unk_token=SPECIALS[UNK]))
        pattern, behavior, invert = _SPLITTERS[split if kind == "words" else "characters"]
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior, invert)
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def _trainer(kind: str, size: int, min_count: int) -> trainers.Trainer:
    if kind == "bpe":
        return trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_count,
            show_progress=False,
            special_tokens=list(SPECIALS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
    # without its specials here, so the four places they take are room for the four words that `train` may drop again
    return trainers.WordLevelTrainer(vocab_size=size, min_frequency=min_count, show_progress=False)
