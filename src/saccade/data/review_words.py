"""The words of the reviews: what is reviewed, what can be said of it, and what is said beside the point."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """Something people review: its name, its parts (plural ones with a plus), and what was done before judging it."""

    name: str
    parts: tuple[str, ...]
    fillers: tuple[str, ...]


TOPICS = (
    Topic(
        "film",
        ("story", "ending", "dialogue", "music", "cast", "script", "actors+", "jokes+", "scenes+", "costumes+", "opening", "villain"),
        ("we saw it on a rainy tuesday", "it lasts two hours", "the cinema was half full", "it is set in a small town in norway"),
    ),
    Topic(
        "book",
        ("plot", "style", "translation", "hero", "last chapter", "first page", "characters+", "dialogues+", "descriptions+", "humor"),
        ("i read it on the train", "it has four hundred pages", "a neighbor lent it to me", "it was written in the sixties"),
    ),
    Topic(
        "restaurant",
        ("soup", "service", "fish", "bread", "wine list", "waiter", "desserts+", "vegetables+", "view", "kitchen", "dumplings+"),
        ("we went there for lunch", "it is near the station", "there were five of us", "we sat by the window"),
    ),
    Topic(
        "hotel",
        ("room", "bed", "breakfast", "staff", "pool", "bathroom", "corridors+", "pillows+", "location", "reception", "rooms+"),
        ("we stayed for three nights", "our room was on the second floor", "it was built in 1912", "we came by bus"),
    ),
    Topic(
        "concert",
        ("sound", "singer", "drummer", "orchestra", "program", "songs+", "solos+", "lighting", "conductor", "encore", "strings+"),
        ("it started at eight", "we had seats in the third row", "the hall holds two thousand people", "my sister came along"),
    ),
    Topic(
        "game",
        ("story", "soundtrack", "graphics+", "controls+", "levels+", "puzzles+", "tutorial", "map", "combat", "dialogues+", "interface"),
        ("i played it over the weekend", "it runs on an old laptop", "there are twelve levels", "my brother plays it too"),
    ),
)  # fmt: skip

GOOD = (
    "brilliant", "charming", "delightful", "excellent", "fantastic", "fine", "flawless", "fresh", "funny", "good", "gorgeous",
    "graceful", "great", "impressive", "inspired", "lively", "lovely", "magnificent", "marvelous", "memorable", "moving",
    "original", "outstanding", "perfect", "pleasant", "polished", "remarkable", "rewarding", "satisfying", "splendid",
    "stunning", "superb", "terrific", "thoughtful", "touching", "vivid", "warm", "witty", "wonderful",
)  # fmt: skip
BAD = (
    "annoying", "awful", "awkward", "bad", "bland", "boring", "careless", "cheap", "clumsy", "confusing", "disappointing",
    "dismal", "dreadful", "dreary", "dull", "empty", "flat", "forgettable", "gloomy", "hollow", "horrible", "lazy", "lifeless",
    "mediocre", "messy", "painful", "pathetic", "pointless", "poor", "predictable", "sloppy", "stale", "tasteless", "tedious",
    "terrible", "tiresome", "ugly", "uninspired", "weak",
)  # fmt: skip
LIKED = ("loved", "enjoyed", "admired", "liked", "adored", "praised")
DISLIKED = ("hated", "disliked", "regretted", "detested", "endured", "deplored")
# after "did not": the plain form
PLAIN = {
    "loved": "love", "enjoyed": "enjoy", "admired": "admire", "liked": "like", "adored": "adore", "praised": "praise",
    "hated": "hate", "disliked": "dislike", "regretted": "regret", "detested": "detest", "endured": "endure", "deplored": "deplore",
}  # fmt: skip
BEST = ("masterpiece", "triumph", "joy", "gem", "success", "pleasure", "treat")
WORST = ("disaster", "failure", "waste", "mess", "disgrace", "letdown", "bore")
# the same word praises one thing and blames another
TWO_SIDED = {
    "high": (("quality", "value"), ("price", "noise")),
    "low": (("price", "noise"), ("quality", "value")),
    "long": (("fun",), ("wait",)),
    "short": (("wait",), ("fun",)),
}
INTENSE = ("very", "really", "truly", "quite", "utterly", "rather", "simply", "so", "remarkably", "surprisingly")
FLIPS = ("not", "never", "hardly", "nothing", "nobody", "without", "anything")  # each turns what follows it in its clause
SMALL_TALK = (
    "i had read about it before", "a friend told me about it", "it was a long day", "i am writing this on my phone",
    "tickets were sold at the door", "the weather was mild", "i will keep this short", "we took a taxi home",
    "this is my first review here", "it was my birthday", "we talked about it on the way home", "i went there alone",
)  # fmt: skip
