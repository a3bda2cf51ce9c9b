"""Published tables made again with small models, and claims of the lectures measured, one command each: `saccade table NAME`."""

from ...experiments.study import Study
from .efficient import Efficient
from .equal_budgets import Lstm
from .family_tasks import Entailment, Tasks
from .lecture_claims import Barriers, Hard, Heads, Norms, Scores
from .narang import Modifications
from .position_lengths import Positions
from .shuffling import Shuffle
from .translation_systems import Translation

STUDIES: dict[str, type[Study]] = {
    "modifications": Modifications,
    "efficient": Efficient,
    "translation": Translation,
    "positions": Positions,
    **{
        claim.name: claim
        for claim in (Heads, Barriers, Norms, Scores, Hard, Lstm, Shuffle, Entailment, Tasks)
    },
}
