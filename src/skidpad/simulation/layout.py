"""What is observed: the observation layouts as tables.

Layouts are values: their digest goes into checkpoints, and a policy trained on one is refused on another. What the
features mean for a network is written by the kernels `observe_*.py`; nothing here touches an array of a scene.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf, pi
from typing import TYPE_CHECKING, Any

from skidpad.errors import SettingsError, nearest
from skidpad.scenes.index import Order
from skidpad.simulation.coefficients import COEFFICIENTS
from skidpad.simulation.layout_table import Block, Feature, Layout

if TYPE_CHECKING:
    from skidpad.settings.schema import EnvSettings


def _signed(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, unit, divisor, -1.0, 1.0, meaning)


def _share(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, unit, divisor, 0.0, 1.0, meaning)


def _open(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    """Never clipped, as the peer's: its range is that of the state."""
    return Feature(name, unit, divisor, -inf, inf, meaning)


def _unit(name: str, meaning: str = "") -> Feature:
    """A cosine or sine that is not clipped: products of rounded ones leave [-1, 1] by some last bits."""
    return Feature(name, "1", 1.0, -1.00001, 1.00001, meaning)


def _size(name: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, "m", divisor, 0.0, inf, meaning)


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
    family="compact",
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

# The 18th, the speed, is not shown (S87).
CONDITIONING = Block(
    "coefficients",
    1,
    0.0,
    tuple(_signed(one.name, one.unit, 1.0, "its lowest value is -1, its highest 1") for one in COEFFICIENTS[:17]),
)

_LANE_ROW = (
    _signed("x", "m", 100.0, "middle of the segment; order of the neighbour list"),
    _signed("y", "m", 100.0),
    _signed("z", "m", 4.0),
    _share("half length", "m", 10.0),
    _share("width", "m", 10.0),
    _signed("cos", "1", 1.0, "of its direction in the agent's frame"),
    _signed("sin", "1", 1.0),
    _share("goal distance", "m", 500.0, "left to drive from here to the next goal; 1 where there is no way"),
    _signed("relative goal distance", "m", 500.0, "minus that from where the agent is on its lane"),
    _share("on own route", "", 1.0),
)
DEFAULT = Layout(
    id="default/1",
    order="cell",
    list_cell=10.0,
    sectors=8,
    window=(40.0, 100.0, 40.0),
    family="default",
    blocks=(
        Block("ego", 1, 0.0, EGO_FEATURES),
        Block(
            "goals",
            3,
            200.0,
            (
                _signed("x", "m", 200.0, "next goals, forward; beyond 200 m the unit direction; 0 when none is left"),
                _signed("y", "m", 200.0, "left"),
                _signed("z", "m", 4.0, "up"),
                _share("is last", "", 1.0, "1 at the last goal of the set"),
            ),
        ),
        Block(
            "partners",
            16,
            100.0,
            (
                _signed("x", "m", 100.0, "nearest first, ties by track"),
                _signed("y", "m", 100.0),
                _signed("z", "m", 4.0),
                _signed("cos", "1", 1.0, "of the relative heading"),
                _signed("sin", "1", 1.0),
                _signed("speed", "m/s", 40.0, "signed, along its own heading"),
                _signed("relative velocity x", "m/s", 40.0, "along headings: minus the agent's, in its frame"),
                _signed("relative velocity y", "m/s", 40.0),
                _share("length", "m", 20.0),
                _share("width", "m", 5.0),
                _signed("kind", "", 1.0, "1 vehicle, -1 anybody else"),
                _share("seconds stopped", "s", 60.0),
            ),
        ),
        Block("lanes", 48, 100.0, _LANE_ROW, kinds=(0,)),
        Block(
            "edges",
            32,
            100.0,
            (
                *_LANE_ROW[:4],
                *_LANE_ROW[5:7],
                _share("median", "", 1.0),
            ),
            kinds=(2,),
        ),
        Block(
            "signals",
            4,
            100.0,
            (
                _signed("left x", "m", 100.0, "left end of the stop line; nearest first by its middle, ties by number"),
                _signed("left y", "m", 100.0),
                _signed("right x", "m", 100.0, "right end"),
                _signed("right y", "m", 100.0),
                _signed("z", "m", 4.0, "of its middle"),
                _share("red", "", 1.0),
                _share("yellow", "", 1.0),
                _share("green", "", 1.0),
                _share("unknown or off", "", 1.0, "of a light"),
                _share("stop sign", "", 1.0),
                _share("yield", "", 1.0),
                _share("controls own lane", "", 1.0),
            ),
        ),
    ),
)

# S86, the peer's 2025 rows. Columns in the peer's order.
_WIDE_EGO = (
    _open("goal x", "m", 200.0, "next goal, forward; 0 when none is left"),
    _open("goal y", "m", 200.0, "left"),
    _open("speed", "m/s", 100.0, "signed"),
    _size("width", 15.0),
    _size("length", 30.0),
    _share("collided", "", 1.0, "touching an agent, or off the road"),
    _share("respawned", "", 1.0),
)
_JERK_EGO = (
    _open("steering", "rad", pi),
    _open("longitudinal acceleration", "m/s^2", 4.0, "divisor 15 where it is negative"),
    _open("lateral acceleration", "m/s^2", 4.0),
)
_WIDE_PARTNER = (
    _open("x", "m", 50.0, "within 50 m; nearest first, ties by track"),
    _open("y", "m", 50.0),
    _size("width", 15.0),
    _size("length", 30.0),
    _unit("cos", "of the relative heading"),
    _unit("sin"),
    _open("speed", "m/s", 100.0, "signed"),
)
_WIDE_ROAD = (
    _open("x", "m", 50.0, "middle of the segment; order of the neighbour list"),
    _open("y", "m", 50.0),
    _size("half length", 100.0),
    _share("constant", "", 1000.0, "0.001"),
    _unit("cos", "of its direction in the agent's frame"),
    _unit("sin"),
    Feature("type", "", 1.0, 0.0, 2.0, "0 lane, 1 line, 2 edge"),
)
_HEIGHT = _open("z", "m", 50.0, "up")


def _wide(name: str, partners: int, road: int, *, heights: bool = False, deferred: bool = False) -> Layout:
    """A layout of the wide family; `heights` is the 2.0 form, where every row has a z."""

    def raised(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
        return (*features[:2], _HEIGHT, *features[2:]) if heights else features

    rows = Block("road", road, 50.0, raised(_WIDE_ROAD), kinds=(0, 1, 2))
    return Layout(
        id=name,
        order="cell",
        list_cell=10.0,
        sectors=8,
        window=(52.5, 52.5, 52.5),  # the peer shows 21 cells of 5 m around the agent's
        family="wide",
        lists=(rows,) if deferred else (),
        blocks=(
            Block("ego", 1, 0.0, raised(_WIDE_EGO)),
            Block("partners", partners, 50.0, raised(_WIDE_PARTNER)),
            _REFERENCE if deferred else rows,
        ),
    )


_REFERENCE = Block(
    "road reference",
    1,
    0.0,
    (
        Feature("map", "", 1.0, 0.0, inf, "slot number of the map"),
        _open("column", "", 1.0, "of the list cell; also outside the grid"),
        _open("row", "", 1.0),
        Feature("sector", "", 1.0, 0.0, 15.0, "heading sector of the list"),
        Feature("x", "m", 1.0, -5.001, 5.001, "from the middle of the list cell"),
        Feature("y", "m", 1.0, -5.001, 5.001),
        _open("z", "m", 1.0, "height on the map"),
        _unit("cos", "of the heading"),
        _unit("sin"),
    ),
)

# S87, the peer's 2026 rows.
_V3_ROAD = (
    _open("x", "m", 200.0, "middle of the segment; order of the neighbour list"),
    _open("y", "m", 200.0),
    _open("z", "m", 4.0),
    _size("half length", 10.0),
    _size("width", 5.0, "3.7 m where unknown"),
    _unit("cos", "of its direction in the agent's frame"),
    _unit("sin"),
    _share("goal distance", "m", 500.0, "left to drive from here to the next goal; 1 where there is no way"),
    _signed("relative goal distance", "m", 500.0, "minus that from where the agent is on its lane"),
)


def _v3(name: str, lanes: Block, boundaries: Block) -> Layout:
    counted = ("partners", "lanes", "boundaries", "signals")
    return Layout(
        id=name,
        order="cell",
        list_cell=10.0,
        sectors=16,
        window=(60.0, 200.0, 50.0),
        family="v3",
        blocks=(
            Block(
                "ego",
                1,
                0.0,
                (
                    _open("speed", "m/s", 40.0, "signed"),
                    _size("width", 5.0),
                    _size("length", 10.0),
                    _open("steering", "rad", 0.667),
                    _open("longitudinal acceleration", "m/s^2", 5.0),
                    _open("lateral acceleration", "m/s^2", 4.0),
                    _signed("lane offset", "m", 4.0, "left positive; 0 without lane"),
                    _unit("cos lane heading error", "0 without lane"),
                    Feature("limit", "m/s", 40.0, -0.025, inf, "-1/40 where unknown"),
                    _share("seconds stopped", "s", 60.0),
                ),
            ),
            Block(
                "goals",
                3,
                600.0,
                (
                    _signed("x", "m", 600.0, "goals of the set in order, 0 once reached; beyond 600 m the direction"),
                    _signed("y", "m", 600.0),
                    _open("z", "m", 4.0),
                ),
            ),
            Block(
                "partners",
                16,
                200.0,
                (
                    _open("x", "m", 200.0, "nearest first, ties by track"),
                    _open("y", "m", 200.0),
                    _open("z", "m", 4.0),
                    _size("length", 10.0),
                    _size("width", 5.0),
                    _unit("cos", "of the relative heading"),
                    _unit("sin"),
                    _open("speed", "m/s", 40.0, "signed"),
                    _share("seconds stopped", "s", 60.0),
                ),
            ),
            lanes,
            boundaries,
            Block(
                "signals",
                4,
                200.0,
                (
                    _open("left x", "m", 200.0, "left end of the line; nearest first by its middle, ties by number"),
                    _open("left y", "m", 200.0),
                    _open("right x", "m", 200.0, "right end"),
                    _open("right y", "m", 200.0),
                    _open("z", "m", 4.0),
                    Feature("signal kind", "", 1.0, 0.0, 3.0, "1 light, 2 stop sign, 3 yield"),
                    Feature("signal state", "", 1.0, 0.0, 4.0, "0 unknown, 1 red, 2 yellow, 3 green, 4 off"),
                ),
            ),
            Block("counts", 1, 0.0, tuple(Feature(block, "", 1.0, 0.0, inf, "rows filled") for block in counted)),
        ),
    )


def _v3_blocks(lanes: int, boundaries: int, listed: tuple[int, int] = (0, 0)) -> tuple[Block, Block]:
    return (
        Block("lanes", lanes, 200.0, _V3_ROAD, kinds=(0,), listed=listed[0]),
        Block("boundaries", boundaries, 200.0, _V3_ROAD, kinds=(2,), listed=listed[1]),
    )


_NATIVE_CELL = (
    COMPACT,
    DEFAULT,
    _wide("wide/1", 63, 200),
    _wide("wide_32/1", 31, 200),
    _wide("wide_20/1", 31, 128, heights=True),
    _v3("v3/1", *_v3_blocks(70, 50)),
    # In training 0.3 of 70 lanes and 0.4 of 50 boundaries are dropped, and the rows are those that are left.
    _v3("v3_train/1", *_v3_blocks(49, 30, (70, 50))),
)
_DEFERRED = (
    _wide("deferred/1", 63, 200, deferred=True),
    _wide("deferred_32/1", 31, 200, deferred=True),
)


def _ordered(layout: Layout, order: Order) -> Layout:
    """A layout with another order of road rows; the order is part of its id (S19)."""
    changes: dict[str, Any] = {"id": f"{layout.id}:{order}", "order": order}
    if order == "spiral":  # cells of the peer's size; a list knows no heading
        changes |= {"list_cell": 5.0, "sectors": 1}
    return replace(layout, **changes)


LAYOUTS: dict[str, Layout] = {
    layout.id: layout
    for layout in (
        *_NATIVE_CELL,
        *_DEFERRED,
        *(_ordered(layout, "exact") for layout in _NATIVE_CELL),
        *(_ordered(layout, "spiral") for layout in _NATIVE_CELL if layout.family == "wide"),
    )
}
"""Every layout by its id, as `env.layout` names it. `layout_of` adds what other settings add to it."""


def layout_of(settings: EnvSettings) -> Layout:
    """The layout of a world: jerk dynamics add the ego's steering and accelerations to the wide ones, conditioning the
    coefficients to those that show them. Raises SettingsError for a layout that is none, or that shows none."""
    layout = layout_with(settings.layout, jerk=settings.dynamics != "classic", conditioning=settings.conditioning)
    if settings.conditioning and CONDITIONING not in layout.blocks:
        raise SettingsError(
            f"env.conditioning is on, but layout {settings.layout} has no room for coefficients. Use default/1 or v3/1."
        )
    return layout


@cache
def layout_with(name: str, *, jerk: bool = False, conditioning: bool = False) -> Layout:
    """`layout_of`, from plain values."""
    layout = LAYOUTS.get(name)
    if layout is None:
        raise SettingsError(f"layout {name!r} does not exist{nearest(name, LAYOUTS)}. Layouts: {', '.join(LAYOUTS)}.")
    ego, *others = layout.blocks
    if jerk and layout.family == "wide":
        at = len(ego.features) - (0 if name.startswith("wide_20") else 1)  # version 2.0 moved `respawned` in front
        ego = ego._replace(features=(*ego.features[:at], *_JERK_EGO, *ego.features[at:]))
        layout = replace(layout, blocks=(ego, *others))
    if conditioning and layout.family in {"default", "v3"}:
        layout = replace(layout, blocks=(ego, CONDITIONING, *others))
    return layout
