"""Writes the golden values of the metrics of rollouts: `python tests/realism/golden_rollouts.py`.

They are read by `test_rollout_metrics.py` and enter the spec digest. A changed value needs a raised version first; this
refuses to give one version two sets of values.
"""

from __future__ import annotations

import json
from pathlib import Path

from rollout_world import world

from skidpad.evaluation.metrics import rollout_registry as registry

FILE = Path(registry.__file__).with_name("golden_rollouts.json")
SEEDS = range(4)


def golden() -> dict[str, dict]:
    """Values of four random worlds, to eight digits."""
    lines = {**registry.ROLLOUT_METRICS, **registry.PEER_ROLLOUT_METRICS}
    views = [registry.RolloutView(*world(seed)) for seed in SEEDS]
    values = {name: [registry.value_of(metric, view).value for view in views] for name, metric in lines.items()}
    return {
        name: {
            "version": metric.version,
            "values": [None if value is None else float(f"{value:.8g}") for value in values[name]],
        }
        for name, metric in lines.items()
    }


def refusals(old: dict[str, dict], new: dict[str, dict]) -> list[str]:
    """Metrics whose values changed while their version did not."""
    return [
        name
        for name, entry in new.items()
        if name in old and old[name]["version"] == entry["version"] and old[name]["values"] != entry["values"]
    ]


if __name__ == "__main__":
    before, after = json.loads(FILE.read_text()) if FILE.exists() else {}, golden()
    if changed := refusals(before, after):
        raise SystemExit(f"{', '.join(changed)}: values changed under one version. Raise the version.")
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in after.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
