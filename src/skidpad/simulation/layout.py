"""What is observed: the observation layouts as tables.

Layouts are values: their digest goes into checkpoints, and a policy trained on one is refused on another. What the
features mean for a network is `kernels/observe.py`; nothing here touches an array of a scene.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import pi, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
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


@dataclass(frozen=True)
class Layout:
    """What a policy sees.

    order      how road rows are ordered: "cell" (S19)
    list_cell  m, edge of the cells that own a neighbour list
    sectors    heading sectors of the lists
    window     m, (back, front, side) of the road that is shown, in the agent's frame
    """

    id: str
    blocks: tuple[Block, ...]
    order: Order
    list_cell: float
    sectors: int
    window: tuple[float, float, float]

    def __post_init__(self) -> None:
        _, front, side = self.window
        if front * sin(pi / self.sectors) > side:
            raise ValueError(f"layout {self.id}: the road straight ahead is cut; {self.sectors} sectors are too few")

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


def _signed(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, unit, divisor, -1.0, 1.0, meaning)


def _share(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, unit, divisor, 0.0, 1.0, meaning)


EGO_FEATURES = (
    _signed("speed", "m/s", 40.0, "signed"),
    _signed("speed over limit", "1", 2.0, "speed / lane limit; 0 where the limit is unknown"),
    _signed("steering", "rad", 0.667),
    _signed("longitudinal acceleration", "m/s^2", 5.0, "realised in the last step"),
    _signed("lateral acceleration", "m/s^2", 5.0, "realised, left positive"),
    _signed("yaw rate", "rad/s", 1.0, "realised"),
    _share("length", "m", 20.0),
    _share("width", "m", 5.0),
    _signed("lane offset", "m", 4.0, "left positive; 0 without lane"),
    _signed("cos lane heading error", "1", 1.0, "0 without lane"),
    _signed("sin lane heading error", "1", 1.0, "0 without lane"),
    _share("limit", "m/s", 40.0, "of the lane; 0 where unknown"),
    _share("limit known", "", 1.0),
    _share("seconds stopped", "s", 60.0, "below 0.2 m/s"),
    _share("on a lane", "", 1.0),
    _share("dt", "s", 0.5, "length of one step"),
)

COMPACT = Layout(
    id="compact/1",
    order="cell",
    list_cell=10.0,
    sectors=8,
    window=(20.0, 60.0, 30.0),
    blocks=(
        Block("ego", 1, 0.0, EGO_FEATURES),
        Block(
            "goal",
            1,
            200.0,
            (
                _signed("x", "m", 200.0, "next goal, forward; beyond 200 m the unit direction; 0 when none is left"),
                _signed("y", "m", 200.0, "left"),
                _signed("z", "m", 4.0, "up"),
                _share("is last", "", 1.0, "1 at the last goal of the set"),
            ),
        ),
        Block(
            "partners",
            8,
            60.0,
            (
                _signed("x", "m", 60.0, "nearest first, ties by track"),
                _signed("y", "m", 60.0),
                _signed("cos", "1", 1.0, "of the relative heading"),
                _signed("sin", "1", 1.0),
                _signed("speed", "m/s", 40.0, "signed, along its own heading"),
                _share("length", "m", 20.0),
                _share("width", "m", 5.0),
                _signed("kind", "", 1.0, "1 vehicle, -1 anybody else"),
            ),
        ),
        Block(
            "road",
            32,
            60.0,
            (
                _signed("x", "m", 60.0, "middle of the segment; order of the neighbour list"),
                _signed("y", "m", 60.0),
                _share("half length", "m", 10.0),
                _signed("cos", "1", 1.0, "of its direction in the agent's frame"),
                _signed("sin", "1", 1.0),
                _signed("kind", "", 1.0, "1 lane centre line, -1 road edge"),
            ),
            kinds=(0, 2),
        ),
        Block(
            "signal",
            1,
            100.0,
            (
                _signed("x", "m", 100.0, "middle of the next stop line on the agent's lane or one of its exits"),
                _signed("y", "m", 100.0),
                _signed("cos", "1", 1.0, "of the direction of travel through it, in the agent's frame"),
                _signed("sin", "1", 1.0),
                _share("red", "", 1.0),
                _share("yellow", "", 1.0),
                _share("green", "", 1.0, "all three zero: unknown, off, or a sign"),
                _share("sign", "", 1.0, "1 stop sign, 0.5 yield, 0 light"),
            ),
        ),
    ),
)
LAYOUTS: dict[str, Layout] = {layout.id: layout for layout in (COMPACT,)}
