"""The catalogue: slot → table. The docs page, `index.json` and the tests are made from it."""

from typing import Any

from .. import models, tasks
from ..core import backends, masks, normalizers, positions, scores
from ..data import corpora
from ..layers import (
    block,
    decoder_windows,
    embeddings,
    feedforward,
    mixers,
    norms,
    output_heads,
    pooling,
    recurrent,
    residuals,
    stack,
    token_inputs,
)
from ..layers.feature_attention import table as feature_attention
from ..layers.graph_mixers import layers as graph_layers
from ..layers.groups import table as group_convolutions
from ..layers.image_inputs import table as grid_embeddings
from ..layers.meshes import table as mesh_layers
from ..models import bytenet, modifications
from ..registry import Table
from ..tasks import metrics, objectives
from ..training import schedules

CORE = (scores.table, normalizers.table, masks.table, positions.table, backends.table)
BLOCKS = (
    mixers.table,
    feedforward.table,
    feedforward.activations,
    residuals.table,
    norms.table,
    block.table,
    stack.table,
)
ENDS = (
    embeddings.table,
    token_inputs.table,
    token_inputs.joins,
    output_heads.table,
    recurrent.cells,
    bytenet.units,
    pooling.pools,
    decoder_windows.table,
)
IMAGES = (grid_embeddings, feature_attention, group_convolutions, graph_layers, mesh_layers)
WHOLE = (
    models.table,
    modifications.table,
    tasks.table,
    objectives.table,
    metrics.table,
    schedules.table,
    corpora.table,
)
SLOTS: dict[str, Table[Any]] = {
    table.slot: table for table in (*CORE, *BLOCKS, *ENDS, *IMAGES, *WHOLE)
}
