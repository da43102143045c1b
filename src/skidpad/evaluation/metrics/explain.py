"""What a metric means, for people: the page behind `skidpad metrics explain NAME` and behind each section of the docs.

A page joins three sources, so that none can drift: the registry line, the docstring of the function that computes the
value, and `pages.toml` beside this file for what code cannot say.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from skidpad.errors import UsageError, nearest
from skidpad.evaluation.metrics import called
from skidpad.evaluation.metrics.peer import PEER
from skidpad.evaluation.metrics.registry import LINES, Metric
from skidpad.evaluation.metrics.rollout_registry import PEER_ROLLOUT_METRICS, ROLLOUT_METRICS

WRITTEN = ("example", "differs", "blind")
# What is measured on one trace, and on a set of rollouts.
EXPLAINED: Mapping[str, Metric] = {**LINES, **ROLLOUT_METRICS, **PEER_ROLLOUT_METRICS}


class Page(NamedTuple):
    """The page of one metric, each part plain text.

    definition  from the docstring of its function
    history     one line per version
    example     worked out by hand
    differs     known differences from the reference
    blind       what it cannot see
    """

    metric: Metric
    definition: str
    history: tuple[str, ...]
    example: str
    differs: str
    blind: str


@cache
def written_pages() -> Mapping[str, Mapping[str, str | Sequence[str]]]:
    """The tables of `pages.toml`, by metric."""
    return tomllib.loads(Path(__file__).with_name("pages.toml").read_text(encoding="utf-8"))


def page(name: str) -> Page:
    """The page of a metric. Raises UsageError for an unknown name."""
    if name not in EXPLAINED:
        close = nearest(name, [*EXPLAINED, *called.CALLED])
        raise UsageError(f"unknown metric {name!r}{close} (`skidpad metrics list` prints all)")
    metric = EXPLAINED[name]
    written = written_pages().get(name, {})
    history = written.get("history") or (f"{metric.version}: first definition",)
    parts = (str(written.get(part, "")) for part in WRITTEN)
    definition = " ".join((inspect.getdoc(getattr(metric.function, "func", metric.function)) or "").split())
    return Page(metric, definition, tuple(history), *parts)


def facts(found: Page) -> list[tuple[str, str]]:
    """A page as (heading, text), in reading order."""
    metric = found.metric
    low, high = metric.range
    top = "" if high is None else f" to {high:g}"
    weighting = {"by_scene": "mean over cases", "by_agent": "sum over sum"}[metric.aggregation]
    parameters = ", ".join(f"{name} {value:g}" for name, value in metric.parameters.items())
    return [
        ("definition", found.definition),
        ("read it", metric.aid),
        ("unit", f"{metric.unit}, {low:g}{top or ' and above'}; better: {metric.direction}"),
        ("aggregation", f"{metric.shape}, {weighting}"),
        *([("needs", ", ".join(metric.needs))] if metric.needs else []),
        *([("parameters", parameters)] if parameters else []),
        ("source", metric.source),
        ("versions", "; ".join(found.history)),
        ("by hand", found.example),
        ("differs", found.differs),
        ("cannot see", found.blind),
    ]


def explained(name: str) -> str:
    """What a metric, or a function of `called`, is, for a terminal. Raises UsageError for an unknown name."""
    return _as_text(name, called.facts(name)) if name in called.CALLED else as_text(page(name))


def as_text(found: Page) -> str:
    """A page for a terminal."""
    return _as_text(f"{found.metric.name}/{found.metric.version}", facts(found))


def _as_text(title: str, told: Sequence[tuple[str, str]], width: int = 100) -> str:
    import textwrap

    lines = [title]
    for heading, text in told:
        lines += textwrap.wrap(text, width, initial_indent=f"  {heading:<12} ", subsequent_indent=" " * 15)
    return "\n".join(lines)


def as_markdown(found: Page) -> str:
    """A page as a section of a document."""
    lines = [f"### `{found.metric.name}`", ""]
    return "\n".join([*lines, *(f"- **{heading}**: {text}" for heading, text in facts(found))])


def list_text() -> str:
    """One line per metric, and below one per function that is called from Python, for a terminal."""
    rows = [(f"{m.name}/{m.version}", m.unit, m.direction, m.aid) for m in EXPLAINED.values()]
    functions = [(name, one.aid) for name, one in called.CALLED.items()]
    metrics = _aligned([("metric", "unit", "better", "how to read it"), *rows])
    return f"{metrics}\n\n{_aligned([('called from Python', 'how to read it'), *functions])}"


def peer_text() -> str:
    """One line per name of the peer, for a terminal."""
    rows = [(name, entry.ours, entry.differs) for name, entry in PEER.items()]
    return _aligned([("peer", "ours", "what the peer's differs in"), *rows])


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    padded = ([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)] for row in rows)
    return "\n".join("  ".join([*cells, row[-1]]) for cells, row in zip(padded, rows, strict=True))
