"""What attention is: mechanisms, how they are run, and how they are looked at. Needs torch alone."""

from . import graphs, grids, listening, masks, normalizers, positions, relative, scores
from .attention import attend, explain, read, weights, which_backend
from .mechanism import Mechanism, Ready
from .positions import Positions
from .record import Site, sites
from .recording import record
from .state import Cache, KeyValues, State
from .table import Table

__all__ = ["Cache", "KeyValues", "Mechanism", "Positions", "Ready", "Site", "State", "Table", "attend", "explain"]
__all__ += ["listening", "masks", "normalizers", "positions", "read", "record", "relative", "scores", "sites", "weights"]
__all__ += ["graphs", "grids", "which_backend"]
