"""Published tables made again with small models, one command each: `saccade table modifications | efficient | translation | positions`."""

from .efficient import Efficient
from .modifications import Modifications
from .plan import Study
from .positions import Positions
from .translation import Translation

STUDIES: dict[str, type[Study]] = {
    "modifications": Modifications,
    "efficient": Efficient,
    "translation": Translation,
    "positions": Positions,
}
