"""Numbers and names as a person reads them: units, signs, counts, and cells that say why they are empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ARM_WORDS = {
    "policy": "policy under test",
    "stationary": "stationary",
    "constant_velocity": "constant velocity",
    "random": "random",
    "idm": "IDM along the route",
    "log": "log replay",
    "log_actions": "log through the dynamics",
}


@dataclass(frozen=True)
class Strip:
    """A bar from 0 to 100: where an interval lies on its column's scale, and where the value does."""

    low: float
    width: float
    at: float


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the text, a smaller note under it, a hover text, and the bar."""

    text: str
    note: str = ""
    why: str = ""
    missing: bool = False
    strip: Strip | None = None


def plural(count: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def number(value: float, unit: str, *, signed: bool = False) -> str:
    """A value with its unit: rates as per cent, everything else with three significant digits or one decimal."""
    sign = "+" if signed else ""
    if unit == "rate":
        return f"{100 * value:{sign}.1f} %"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    text = f"{value:{sign}.{digits}f}"
    return f"{text} {unit}" if unit and unit not in ("1", "count") else text


def signed(value: float | None, unit: str) -> str:
    """A difference with its sign; words where there is none."""
    return "without end" if value is None else number(value, unit, signed=True)


def cell_of(entry: Mapping[str, Any] | None, scale: tuple[float, float] | None) -> Cell:
    """The cell of a summarised metric; without a value it says why, and is never a zero."""
    if entry is None:
        return Cell("no data", why="not computed for this driver", missing=True)
    if not entry["valid"]:
        return Cell("no data", why=str(entry.get("reason") or "no valid case"), missing=True)
    value, unit, interval = entry["value"], entry["unit"], entry["interval"]
    if interval:
        note = f"{bare(interval[0], unit)} to {bare(interval[1], unit)}"
    else:
        note = entry.get("bound") or "no interval"
    return Cell(number(value, unit), note, str(entry.get("interval_reason") or ""), strip=strip(value, interval, scale))


def bare(value: float | None, unit: str) -> str:
    """A number without its unit, for the ends of an interval; an interval of a ratio may have no upper end."""
    if value is None:
        return "without end"
    return number(value, unit).removesuffix(f" {unit}").removesuffix(" %")


def strip(value: float, interval: Any, scale: tuple[float, float] | None) -> Strip | None:
    """Where a value and its interval lie on a column's scale; None where nothing would be seen."""
    if scale is None or scale[1] <= scale[0]:
        return None
    low, high = interval or (value, value)
    high = scale[1] if high is None else high
    place = 98.0 / (scale[1] - scale[0])
    return Strip(
        round((low - scale[0]) * place, 2),
        round(max((high - low) * place, 0.8), 2),
        round((value - scale[0]) * place, 2),
    )
