"""behavior_class: sections that inherit one template, classes that are too small alone, and what is pooled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from skidpad.errors import SettingsError
from skidpad.evaluation.evaluators import EVALUATORS, TYPES
from skidpad.evaluation.manager import evaluate_suite
from skidpad.evaluation.sources import SceneSources
from skidpad.evaluation.summary import arm_part
from skidpad.evaluation.verify import verify_run
from skidpad.reporting.report import run_page
from skidpad.runs.records import read_records
from skidpad.scenes.archive import save_scene
from skidpad.scenes.behaviour_scenes import behaviour_scene
from skidpad.settings.suite import load_suite

TEMPLATE = """
    [eval.behaviors_defaults]
    abstract = true
    type = "behavior_class"
    env.scenario_length = 15
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
    eval.worst_n = 0
    eval.skip_metrics = ["nuplan_*", "*dms_*", "carla_*", "b2d_*", "vmax_*", "puffer_*", "ttc.*", "thw", "drac", "pet"]
    eval.resamples = 200
    [eval.behaviors_merge]
    inherits = "behaviors_defaults"
    env.scenes = ["{scenes}/merge-0.scene", "{scenes}/yielding-0.scene"]
    [eval.behaviors_yielding]
    inherits = "behaviors_defaults"
    env.scenes = ["{scenes}/yielding-0.scene", "{scenes}/yielding-1.scene"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of two classes that share a scene, and its four scenes."""
    folder = tmp_path_factory.mktemp("behaviours")
    for name, seed in (("merge", 0), ("merge", 1), ("yielding", 0), ("yielding", 1)):
        save_scene(behaviour_scene(name, seed), folder / f"{name}-{seed}.scene")
    lines = [line.removeprefix("    ") for line in TEMPLATE.splitlines()]
    (folder / "suite.toml").write_text("\n".join(lines).replace("{scenes}", str(folder)))
    return folder


def test_classes_are_small_and_pooled(folder: Path, tmp_path: Path) -> None:
    """E66, E67, E68: one case per scene with one vehicle under test; every class says how small it is, and beside the
    classes stand all of their cases together, each once, although one scene is in two of them."""
    result = evaluate_suite(load_suite(folder / "suite.toml", types=TYPES), tmp_path / "run", page=run_page)
    assert result.ok
    assert result.report is not None
    parts, pool = result.report["evaluators"], result.report["pooled"]["behavior_class"]
    assert pool["evaluators"] == sorted(parts)
    assert [parts[name]["cases"] for name in parts] == [2, 2]
    assert "guess" in parts["behaviors_merge"]["size_note"]
    assert (pool["cases"], pool["clusters"]) == (3, 3)
    assert pool["arms"]["idm"]["n_cases"] == 3
    once = {record.case: record for record in read_records(result.folder.records) if record.arm == "idm"}
    assert len(once) == 3
    knobs = load_suite(folder / "suite.toml", types=TYPES).spec("behaviors_merge").tree["eval"]
    assert pool["arms"]["idm"] == arm_part([once[case] for case in sorted(once)], knobs)
    assert "2 behaviour classes, 3 cases together: idm has score" in result.report["verdict"]
    page = result.folder.page.read_text()
    assert "Behaviour classes" in page
    assert "all classes" in page
    assert verify_run(result.folder.path).exit_code == 0


def test_class_sample_stable_and_nested(folder: Path, tmp_path: Path) -> None:
    """class_sample_stable_and_nested E67: two instances draw the same scenes, three hold the two, another folder order
    changes nothing, and one more file changes at most one choice."""
    text = (folder / "suite.toml").read_text().replace('/yielding-1.scene"]', '/yielding-1.scene", "OTHER"]')

    def chosen(count: int, *others: str) -> set[str]:
        listed = ", ".join(f'"{folder / name}"' for name in others)
        body = text.replace('"OTHER"', listed) if others else text.replace(', "OTHER"', "")
        (tmp_path / "suite.toml").write_text(body + f"\neval.num_scenarios = {count}\n")
        spec = load_suite(tmp_path / "suite.toml", types=TYPES).spec("behaviors_yielding")
        return set(EVALUATORS["behavior_class"](spec, SceneSources()).plan.entries)

    assert chosen(1) == chosen(1) <= chosen(2)
    more = chosen(2, "merge-0.scene", "merge-1.scene")
    assert more == chosen(2, "merge-1.scene", "merge-0.scene")
    assert len(chosen(2, "merge-0.scene") & chosen(2)) >= 1
    assert more <= chosen(3, "merge-0.scene", "merge-1.scene")


OPENED: list[str] = []
WATCHING = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if (
        WATCHING
        and event == "open"
        and len(arguments) > 1
        and isinstance(arguments[1], str)
        and set("wax+") & set(arguments[1])
    ):
        OPENED.append(str(arguments[0]))
    elif WATCHING and event in ("os.mkdir", "os.symlink", "os.rename", "tempfile.mkdtemp"):
        OPENED.append(f"{event} {arguments[0]}")


def test_class_writes_nothing(folder: Path) -> None:
    """class_writes_nothing E67: choosing the scenes of a class is reading; the peer built folders of symbolic links and
    left them behind."""
    global WATCHING
    spec = load_suite(folder / "suite.toml", types=TYPES).spec("behaviors_merge")
    sys.addaudithook(_watch)
    WATCHING = True
    try:
        EVALUATORS["behavior_class"](spec, SceneSources())
        EVALUATORS["behavior_class"](spec, SceneSources())
    finally:
        WATCHING = False
    assert OPENED == []


def test_it_is_about_one_recorded_vehicle(folder: Path, tmp_path: Path) -> None:
    """E66, E67: a class drives the recorded vehicle; other populations are refused by the name of the type."""
    (tmp_path / "suite.toml").write_text((folder / "suite.toml").read_text() + '\nenv.control = "vehicles"\n')
    spec = load_suite(tmp_path / "suite.toml", types=TYPES).spec("behaviors_yielding")
    with pytest.raises(SettingsError, match="behavior_class drives one vehicle"):
        EVALUATORS["behavior_class"](spec, SceneSources())
