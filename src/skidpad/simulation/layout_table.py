"""What an observation layout is: blocks of rows of features, with their numbers.

The layouts themselves stand in `layout.py`. Kernels, spaces, documents and checkpoints read the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import pi, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import SettingsError
from skidpad.scenes.index import Order

F32 = NDArray[np.float32]


def _constant(values: object) -> F32:
    array = np.array(values, np.float32)
    array.flags.writeable = False
    return array


class Feature(NamedTuple):
    """One number of an observation row: value / divisor, clipped to [low, high]."""

    name: str
    unit: str
    divisor: float
    low: float
    high: float
    meaning: str = ""


# What a column of a road row holds, by the name of the feature it becomes; names that are absent here are written by
# the kernel, row by row.
COLUMN_OF = {name: name for name in ("x", "y", "z", "half length", "width", "cos", "sin", "median")} | {
    "kind": "side",
    "type": "kind",
    "constant": "one",
}
UNSCALED = ("x", "y", "z")  # differences: scaled after the subtraction, so that far from the origin no bits are lost
EDGES_ONLY, UNKNOWN_WIDTH = (2,), 3.7


class Block(NamedTuple):
    """Rows of one kind. `reach` is how far its rows are looked for; rows beyond the found ones are zero.

    kinds   of road rows: 0 lanes, 1 lines, 2 edges; empty for other blocks
    listed  of road rows: how many a neighbour list holds, where dropout leaves no more than `rows` of them; 0 = `rows`
    """

    name: str
    rows: int
    reach: float
    features: tuple[Feature, ...]
    kinds: tuple[int, ...] = ()
    listed: int = 0

    @property
    def columns(self) -> tuple[tuple[str, float], ...]:
        """The eight columns of a row in the map's index, quantity and factor: the leading features, then the height
        for the level gate."""
        found = []
        for feature in self.features[:8]:
            quantity = COLUMN_OF.get(feature.name)
            if quantity is None:
                break
            factor = 1.0 if feature.name in UNSCALED else 1.0 / feature.divisor
            if feature.name == "width" and self.kinds == EDGES_ONLY:  # an edge has none: as a lane of unknown width
                quantity, factor = "one", UNKNOWN_WIDTH / feature.divisor
            found.append((quantity, factor))
        if all(quantity != "z" for quantity, _ in found):
            found.append(("z", 1.0))
        return (*found, *[("zero", 1.0)] * (8 - len(found)))

    @property
    def size(self) -> int:
        return self.rows * len(self.features)


# Rows of `Layout.spans`, and the blocks that fill them.
EGO, COEFFICIENTS, GOALS, PARTNERS, ROAD, EDGES, SIGNALS, COUNTS, REFERENCE = range(9)
ROLES = {
    "ego": EGO,
    "coefficients": COEFFICIENTS,
    "goal": GOALS,
    "goals": GOALS,
    "partners": PARTNERS,
    "road": ROAD,
    "lanes": ROAD,
    "edges": EDGES,
    "boundaries": EDGES,
    "signal": SIGNALS,
    "signals": SIGNALS,
    "counts": COUNTS,
    "road reference": REFERENCE,
}
# Columns of `Layout.spans`.
START, ROWS, FEATURES = range(3)


@dataclass(frozen=True)
class Layout:
    """What a policy sees.

    order      how road rows are ordered (S19): "cell", "exact" or "spiral"
    list_cell  m, edge of the cells that own a neighbour list
    sectors    heading sectors of the lists
    window     m, (back, front, side) of the road that is shown, in the agent's frame
    family     which kernel writes it
    lists      road blocks whose lists the index holds though no row is written (`deferred/1`)

    Raises SettingsError where the sectors are so few that the road straight ahead could fall out of the window.
    """

    id: str
    blocks: tuple[Block, ...]
    order: Order
    list_cell: float
    sectors: int
    window: tuple[float, float, float]
    family: str = ""
    lists: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        _, front, side = self.window
        if self.order == "cell" and front * sin(pi / self.sectors) > side:
            raise SettingsError(
                f"layout {self.id}: the road straight ahead is cut {front:g} m ahead in a window of {side:g} m to each "
                f"side; {self.sectors} heading sectors are too few. Use more, or a wider window."
            )

    @property
    def road_blocks(self) -> tuple[Block, ...]:
        """The blocks that the map's index keeps lists for."""
        return self.lists or tuple(block for block in self.blocks if block.kinds)

    @property
    def shows_distances(self) -> bool:
        """Whether rows say how far it is to the goal: then goals must be known by lane, and lanes by distance."""
        return any(feature.name == "goal distance" for block in self.blocks for feature in block.features)

    @cached_property
    def spans(self) -> NDArray[np.int32]:
        """Where kernels write, (9, 3) i32: first column, rows and features of each role; no rows where the layout has
        no such block."""
        spans = np.zeros((9, 3), np.int32)
        start = 0
        for block in self.blocks:
            spans[ROLES[block.name]] = start, block.rows, len(block.features)
            start += block.size
        spans.flags.writeable = False
        return spans

    @cached_property
    def size(self) -> int:
        """Floats per agent."""
        return sum(block.size for block in self.blocks)

    def span(self, name: str) -> slice:
        """Columns of one block."""
        start = 0
        for block in self.blocks:
            if block.name == name:
                return slice(start, start + block.size)
            start += block.size
        raise KeyError(name)

    def block(self, name: str) -> Block:
        """One block by its name."""
        return next(block for block in self.blocks if block.name == name)

    def bounds(self) -> tuple[F32, F32]:
        """Declared low and high of every column, (D,) f32 each."""
        low = [f.low for block in self.blocks for _ in range(block.rows) for f in block.features]
        high = [f.high for block in self.blocks for _ in range(block.rows) for f in block.features]
        return _constant(low), _constant(high)

    @cached_property
    def digest(self) -> str:
        """Identity of the layout: what a checkpoint was trained on."""
        return digest_value(
            {
                "id": self.id,
                "order": self.order,
                "list_cell": self.list_cell,
                "sectors": self.sectors,
                "window": list(self.window),
                "blocks": [
                    {
                        "name": block.name,
                        "rows": block.rows,
                        "reach": block.reach,
                        "features": [list(feature[:5]) for feature in block.features],
                    }
                    # Lanes and edges go without saying: so does the digest of `compact/1`.
                    | ({"kinds": list(block.kinds)} if block.kinds not in {(), (0, 2)} else {})
                    | ({"listed": block.listed} if block.listed else {})
                    for block in self.blocks
                ],
            },
            "observation layout",
        )

    def document(self) -> str:
        """The layout as a Markdown table: this is its documentation."""
        lines = [f"`{self.id}`: {self.size} floats, digest `{self.digest[:12]}`", ""]
        lines += ["| columns | block | feature | unit | divisor | range | meaning |", "|---|---|---|---|---|---|---|"]
        column = 0
        for block in self.blocks:
            for index, feature in enumerate(block.features):
                columns = str(column + index) + (f" + {len(block.features)} i" if block.rows > 1 else "")
                title = f"{block.name} ({block.rows} rows)" if block.rows > 1 else block.name
                bounds = f"[{feature.low:g}, {feature.high:g}]"
                lines.append(
                    f"| {columns} | {title} | {feature.name} | {feature.unit} | {feature.divisor:g} | {bounds} "
                    f"| {feature.meaning} |"
                )
            column += block.size
        return "\n".join(lines)
