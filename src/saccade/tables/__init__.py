"""Published tables made again with small models, and claims of the lectures measured, one command each: `saccade table NAME`."""

from .budgets import Lstm
from .claims import Barriers, Hard, Heads, Norms, Scores
from .efficient import Efficient
from .modifications import Modifications
from .plan import Study
from .positions import Positions
from .shuffling import Shuffle
from .tasks import Entailment, Tasks
from .translation import Translation

STUDIES: dict[str, type[Study]] = {
    "modifications": Modifications,
    "efficient": Efficient,
    "translation": Translation,
    "positions": Positions,
    **{claim.name: claim for claim in (Heads, Barriers, Norms, Scores, Hard, Lstm, Shuffle, Entailment, Tasks)},
}
