"""ORACLE and the writers that a choice must beat: which subsets, how many writes, and where they may stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sealed_runs import make_world, run_sealed

from skidpad.errors import UsageError
from skidpad.evaluation.verify import verify_run
from skidpad.reporting.sealed_page import sealed_page
from skidpad.streaming.oracle import best_choice, choices
from skidpad.streaming.policies import FEATURES, Action, Feedback, make_policy

WRITE = 100
UNITS = {Action.OFF: 0, Action.FUSE: WRITE, Action.COMPLETE: 1000, Action.ALL: 1000 + WRITE}


def writes_of(name: str, steps: int, budget: int, scene: int = 0) -> list[int]:
    """Steps, from 1, at which a policy writes when its budget holds so many writes."""
    policy, left, found = make_policy(name), float(budget * WRITE + WRITE // 2), []
    for step in range(1, steps + 1):
        features = dict.fromkeys(FEATURES, 0.01 * step + scene)
        feedback = Feedback(features, 0.1, step, steps - step + 1, left, UNITS)
        feasible = tuple(action for action in Action if UNITS[action] <= left)
        action = policy.choose(feedback, feasible)
        assert action in feasible
        if action is Action.FUSE:
            found.append(step)
            left -= WRITE
    return found


@given(steps=st.integers(1, 12), budget=st.integers(0, 15), scene=st.integers(0, 50))
def test_equal_work(steps: int, budget: int, scene: int) -> None:
    """M88: RANDOM and EVEN spend exactly what the budget holds, so that a choice is compared at equal work; EVEN's gaps
    differ by at most one step and its last write is the last step."""
    wanted = min(steps, budget)
    assert len(writes_of("RANDOM", steps, budget, scene)) == wanted
    even = writes_of("EVEN", steps, budget, scene)
    assert len(even) == wanted
    if wanted:
        assert even[-1] == steps
        gaps = [b - a for a, b in zip([0, *even], even, strict=False)]
        assert max(gaps) - min(gaps) <= 1


def test_random_differs_and_repeats() -> None:
    """M88, M61: the draw follows from what the policy sees: other scenes other steps, the same scene the same ones, and
    every step is drawn about as often."""
    found = [writes_of("RANDOM", 6, 2, scene) for scene in range(300)]
    assert found == [writes_of("RANDOM", 6, 2, scene) for scene in range(300)]
    counts = [sum(step in steps for steps in found) for step in range(1, 7)]
    assert all(70 <= count <= 130 for count in counts), counts  # 100 each, four standard deviations


def test_subsets() -> None:
    """M60: no write, each one, each two: 1 + 6 + 15 for six frames; of equal errors the first wins."""
    steps = [sorted(choice.steps) for choice in choices(6)]
    assert len(steps) == 22
    assert steps[:3] == [[], [1], [2]]
    assert steps[-1] == [5, 6]
    errors = {(): 0.5, (2,): 0.2, (1, 2): 0.2}
    found = best_choice(3, lambda policy: policy, lambda one: errors.get(tuple(sorted(one.steps)), 0.4))  # type: ignore[arg-type, return-value, attr-defined]
    assert sorted(found.steps) == [2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two rooms and a mapper."""
    return make_world(tmp_path_factory.mktemp("oracle"))


def test_only_in_a_diagnostic_run(world: tuple[Path, Path], tmp_path: Path) -> None:
    """M60: ORACLE in a sealed run is refused before a file exists, and so is a registered run that calls itself one."""
    with pytest.raises(UsageError, match="ORACLE reads the vault, so no sealed run has it"):
        run_sealed(world, tmp_path / "run", policies=["OFF", "ORACLE"])
    with pytest.raises(UsageError, match="a diagnostic run is not a registered one"):
        run_sealed(world, tmp_path / "run", diagnostic=True, registration=tmp_path / "none.json")
    assert not (tmp_path / "run").exists()


def test_a_diagnostic_run(world: tuple[Path, Path], tmp_path: Path) -> None:
    """M60, M88: ORACLE is no worse than any write it could have chosen, says in the chain that it read the vault, is
    neither ranked nor on the frontier, and the run says what it is; the same as a development run is found out."""
    policies = ["OFF", "FUSE", "RANDOM", "EVEN", "ORACLE"]
    report = run_sealed(world, tmp_path / "run", policies=policies, diagnostic=True, page=sealed_page)
    assert report["kind"] == report["registration"]["kind"] == "diagnostic"
    rows = {row["arm"]: row for row in report["summaries"]}
    means = {arm: row["metrics"]["depth_absrel"]["mean"] for arm, row in rows.items()}
    assert all(means["ORACLE"] <= means[arm] + 1e-9 for arm in policies)
    assert rows["ORACLE"]["kind"] == "diagnostic"
    assert rows["ORACLE"]["verdict"] is None
    assert "ORACLE" not in {point["arm"] for track in report["frontier"]["tracks"] for point in track["points"]}
    assert report["caveats"][0].startswith("This run is a diagnostic")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "diagnostic run" in page
    assert "not ranked" in page
    events = [json.loads(line) for line in (tmp_path / "run" / "chain.jsonl").read_text().splitlines()]
    for number, event in enumerate(events):
        if event["event"] == "sealed" and event["data"]["pair_id"].endswith("@ORACLE"):
            before = [other for other in events[:number] if other["event"] == "oracle_opened"]
            assert event["data"]["pair_id"] in {other["data"]["pair_id"] for other in before}
    assert verify_run(tmp_path / "run", page=sealed_page).exit_code == 0
    found = _as_development(tmp_path / "run")
    assert any("ORACLE reads the vault, and this run is development" in problem for problem in found)
    assert any("was given a vault while streaming" in problem for problem in found)


def _as_development(folder: Path) -> list[str]:
    path = folder / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text())
    manifest["identity"]["registration"]["kind"] = "development"
    path.write_text(json.dumps(manifest))
    return verify_run(folder).problems
