"""Which cases are looked at: the worst ones by a metric, and a random sample beside them, since whoever looks only at
failures learns nothing about the rest. Both are functions of the records, so the page and a sort of the table agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from skidpad.artifacts.digests import digest_value
from skidpad.runs.records import Record


def worst_cases(records: Iterable[Record], metric: str, direction: str, count: int) -> list[str]:
    """Ids of the `count` cases with the worst valid value, worst first, ties by case id.

    direction  of the metric: "higher" or "lower" is better
    """
    valued = [
        (record.result["metrics"][metric]["value"], record.case)
        for record in records
        if record.result is not None and record.result["metrics"].get(metric, {}).get("valid")
    ]
    sign = 1.0 if direction == "higher" else -1.0
    return [case for _, case in sorted((sign * value, case) for value, case in valued)[:count]]


def random_cases(records: Sequence[Record], seed: str, count: int) -> list[str]:
    """Ids of `count` finished cases drawn by their digest with `seed`, spread over scenes: one of each scene before a
    second of any."""

    def draw(kind: str, value: str) -> str:
        return digest_value([seed, value], kind)

    by_scene: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.result is not None:
            by_scene[record.scene_digest].append(record.case)
    queues = [
        sorted(by_scene[scene], key=lambda case: draw("random case", case))
        for scene in sorted(by_scene, key=lambda scene: draw("random scene", scene))
    ]
    rounds = max((len(queue) for queue in queues), default=0)
    return [queue[turn] for turn in range(rounds) for queue in queues if turn < len(queue)][:count]
