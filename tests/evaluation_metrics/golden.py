"""Writes the golden values of all metrics: `python tests/evaluation_metrics/golden.py`.

They are read by `test_golden.py` and enter the metric-spec digest. A changed value needs a raised version first; this
refuses to give one version two sets of values.
"""

from __future__ import annotations

import json
from pathlib import Path

from driving import LONGER, cruise, drive

import skidpad.evaluation.metrics.registry as registry

FILE = Path(registry.__file__).with_name("golden.json")
SEEDS, CRUISES = range(6), range(6)


def golden() -> dict[str, dict]:
    """Case values on six wild and six orderly drives, to nine digits: enough to see any change, few enough for other
    machines."""
    made = [*map(drive, SEEDS), *map(cruise, CRUISES)]
    cases = [registry.compute(*case) for case in made]
    for case, seed in zip(cases[: len(SEEDS)], SEEDS, strict=True):
        for name, steps in LONGER.items():
            case |= registry.compute(*drive(seed, steps=steps), [name])
    return {
        name: {
            "version": metric.version,
            "values": [None if (value := case[name].value) is None else float(f"{value:.9g}") for case in cases],
        }
        for name, metric in registry.METRICS.items()
    }


def refusals(old: dict[str, dict], new: dict[str, dict]) -> list[str]:
    """Metrics whose values changed while their version did not. Cases may be added at the end."""
    return [
        name
        for name, entry in new.items()
        if name in old
        and old[name]["version"] == entry["version"]
        and old[name]["values"] != entry["values"][: len(old[name]["values"])]
    ]


if __name__ == "__main__":
    before, after = json.loads(FILE.read_text()) if FILE.exists() else {}, golden()
    if changed := refusals(before, after):
        raise SystemExit(f"{', '.join(changed)}: values changed under one version. Raise the version in registry.py.")
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in after.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
