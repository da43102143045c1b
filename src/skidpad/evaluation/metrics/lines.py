"""Registry lines of whatever a record may hold: metrics of one drive, and of a set of rollouts."""

from __future__ import annotations

from collections.abc import Iterable

from skidpad.evaluation.metrics.registry import LINES, Metric


def lines_of(names: Iterable[str]) -> dict[str, Metric]:
    """The lines of these metrics by name, sorted; what no registry knows is left out. The second registry, which costs
    seconds to load, is read only where the first one does not know them all."""
    wanted = sorted(set(names))
    known = LINES
    if any(name not in LINES for name in wanted):
        from skidpad.evaluation.metrics.rollout_registry import ROLLOUT_METRICS

        known = {**LINES, **ROLLOUT_METRICS}
    return {name: known[name] for name in wanted if name in known}


def line_of(name: str) -> Metric:
    """The line of one metric. Raises KeyError for a name that no registry knows."""
    return lines_of([name])[name]
