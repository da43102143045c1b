"""What the records of one arm measured, as arrays: what is asked of the statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.lines import lines_of
from skidpad.evaluation.metrics.registry import Metric
from skidpad.evaluation.statistics import Column, Sample
from skidpad.runs.records import Record

F64 = NDArray[np.float64]

NOTHING = {"numerator": 0.0, "denominator": 0.0, "valid": False, "reason": None}
PARTS = itemgetter("numerator", "denominator", "valid")


class Measures:
    """Every metric of every record that has a result.

    records  those records, in the order given
    lines    registry lines of all metrics that one of them holds, by name, sorted
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = [record for record in records if record.result is not None]
        self._held: list[Mapping[str, Any]] = [record.result["metrics"] for record in self.records if record.result]
        names = set().union(*self._held)
        self.lines: Mapping[str, Metric] = lines_of(names)
        # Record by record, since what a record holds lies together in memory.
        parts = [[PARTS(held.get(name, NOTHING)) for name in self.lines] for held in self._held]
        table = np.array(parts, np.float64).reshape(len(parts), len(self.lines), 3).transpose(1, 2, 0)
        self._table = dict(zip(self.lines, np.ascontiguousarray(table), strict=True))
        self._absent = np.zeros((3, len(parts)))

    def _of(self, name: str) -> tuple[F64, F64, NDArray[np.bool_]]:
        top, bottom, valid = self._table.get(name, self._absent)
        return top, bottom, valid != 0

    def columns(self, line: Metric, chosen: Any = slice(None)) -> dict[str, Column]:
        """Both weightings of a metric over the records, or over the chosen ones; exposure metrics are sums over sums in
        both."""
        top, bottom, valid = (part[chosen] for part in self._of(line.name))
        exposure = line.shape == "exposure"
        # An exposure metric keeps its numerator where it is not valid: metres without an infraction still count.
        by_agent = Column(top if exposure else np.where(valid, top, 0.0), np.where(valid, bottom, 0.0), "by_agent")
        return {"by_scene": by_agent if exposure else by_agent._replace(weighting="by_scene"), "by_agent": by_agent}

    def missing(self, name: str) -> Counter[str]:
        """How often a metric has no value, by reason."""
        valid = self._of(name)[2]
        return Counter(self._held[row][name]["reason"] for row in np.flatnonzero(~valid) if name in self._held[row])

    def sample(self, knobs: Mapping[str, Any]) -> Sample:
        """Every metric by its own weighting, to have an interval."""
        columns = {name: self.columns(line)[line.aggregation] for name, line in self.lines.items()}
        return Sample(clusters_of(self.records, knobs), columns)

    def against(self, reference: Measures, knobs: Mapping[str, Any]) -> Sample:
        """Every metric beside that of another arm, over the cases that both finished."""
        place = {record.case: row for row, record in enumerate(reference.records)}
        first = [row for row, record in enumerate(self.records) if record.case in place]
        second = [place[self.records[row].case] for row in first]
        pairs = {
            name: (
                self.columns(line, first)[line.aggregation],
                reference.columns(line, second)[line.aggregation],
                line.direction,
            )
            for name, line in self.lines.items()
            if first
        }
        return Sample(clusters_of([self.records[row] for row in first], knobs), pairs=pairs)


def clusters_of(records: Sequence[Record], knobs: Mapping[str, Any]) -> list[str]:
    """What each record's fate is shared with (E107): its log or map, or in self-play on maps that are no sample, nobody
    but its own case."""
    return [record.case if knobs["cluster"] == "case" else record.scene_digest for record in records]
