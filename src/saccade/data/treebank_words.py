"""Raw text to words as treebanks of English write them: punctuation and contractions by themselves, numbers and addresses whole."""

import re

SPLITS = ("space", "words")
_WORD = re.compile(
    r"""(?ix) (?:https?://|www\.)[^\s<>]*[\w/] | [\w.+-]+@[\w-]+\.[\w.]+\w    # addresses
    | (?:[a-z]\.){2,} | (?:mr|mrs|ms|dr|prof|st|jr|sr|vs|inc|ltd|corp|co|no|vol|gen|sen|rep|gov|jan|feb|aug|sept?|oct|nov|dec)\.(?=\s)
    | n['’]t\b | ['’](?:s|m|d|re|ve|ll)\b | can(?=not\b)    # did|n't, it|'s, can|not
    | \d+(?:[.,:/]\d+)* (?:(?:st|nd|rd|th|s)\b)?    # 1,000  10:30  2nd
    | [:;=8]-?[)(DPp/|](?!\w) | [^\W\d_]\w*?(?=n['’]t\b) | [^\W\d_]\w*(?:['’](?!(?:s|m|d|re|ve|ll)\b)[^\W\d_]+)*
    | _+ | \.{2,} | -{2,} | [!?]{2,} | \*+ | \S"""
)


def split_words(text: str) -> list[str]:
    """The words of a raw text."""
    return [word for part in text.split() for word in _WORD.findall(part + " ")]
