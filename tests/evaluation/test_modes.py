"""Where an evaluation runs is no input: the same records inline, in a process of its own and on a pool of workers, and
whatever happens to a worker costs no more than its share.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_evaluator import HostileEvaluator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stub_evaluator import STUBS

from skidpad.evaluation import places
from skidpad.evaluation.evaluator import PlannedCase
from skidpad.evaluation.evaluators import TYPES
from skidpad.evaluation.manager import EvalManager, evaluate_suite
from skidpad.evaluation.schedule import EvalResult
from skidpad.evaluation.sources import SceneSources
from skidpad.evaluation.summary import deterministic_report
from skidpad.evaluation.verify import verify_run
from skidpad.evaluation.worlds import Worlds
from skidpad.policies.checkpoint import architecture_for, save_checkpoint
from skidpad.policies.network import ActorCritic
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import deterministic, read_records
from skidpad.scenes.case import Case
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.settings.suite import EvaluatorSpec, load_suite, spec_of

KINDS = {**STUBS, "hostile": HostileEvaluator}
FEWER = 'eval.baselines = ["stationary", "constant_velocity", "idm", "log"]'
REAL = f"""
    [eval.a]
    type = "human_replay"
    env.scenes = "{{scenes}}/*.scene"
    env.scenario_length = 12
    eval.egos = "each"
    eval.num_scenarios = 4
    eval.resamples = 100
    eval.worst_n = 1
    {FEWER}
"""
BESIDE = REAL.replace('"log"]', '"log", "older=older.safetensors"]')
HOSTILE = f"""
    [eval.{{name}}]
    type = "hostile"
    mode = "{{mode}}"
    keep_traces = "none"
    env.scenes = ["{{scenes}}/straight-0.scene", "{{scenes}}/straight-1.scene"]
    vec.num_worlds = 2
    vec.workers = 2
    eval.worst_n = 3
    eval.resamples = 100
    {FEWER}
"""


def network_file(path: Path, seed: int = 0) -> dict[str, Any]:
    """A small recurrent driver with random weights; what it fixes in a suite."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        architecture = architecture_for(
            EnvSettings(), NetworkSettings(hidden=(16,), encoder=8, memory="lstm", memory_width=8)
        )
        save_checkpoint(path, ActorCritic(architecture.network), architecture, step=3, overwrite=True)
    return architecture.settings()


def lasting(folder: Path) -> dict[str, Any]:
    """What must not depend on where a run was done: everything but times."""
    run = RunFolder(folder)
    names = [path.relative_to(folder).as_posix() for path in run.files()]
    kept = [name for name in names if name.startswith("traces/") or name.endswith("episodes.csv")]
    return {
        "names": names,
        "records": {record.key: deterministic(record) for record in read_records(run.records)},
        "report": deterministic_report(run.read_report())["evaluators"],
        "bytes": [(folder / name).read_bytes() for name in kept],
    }


@pytest.mark.slow
def test_four_modes_equal_records(load, tmp_path: Path) -> None:
    """four_modes_equal_records, pool_equals_fresh E36, E43, E46, E48, EF30: records, traces, tables and report of a
    recurrent network, another beside it and the baselines are byte for byte those of an inline run, on 1, 2 and 7
    workers, one to 64 worlds at a time; no folder of a pass is left (E42)."""
    fixed = network_file(tmp_path / "driver")
    network_file(tmp_path / "older.safetensors", seed=1)
    places_of = {
        "inline": [],
        "inline-1": ["vec.num_worlds=1"],
        "subprocess": ['mode="subprocess"', "vec.num_worlds=3"],
        "pool-1": ['mode="pool"', "vec.workers=1"],
        "pool-2": ['mode="pool"', "vec.workers=2"],
        "pool-7": ['mode="pool"', "vec.workers=7", "vec.num_worlds=2"],
    }
    for name, overrides in places_of.items():
        suite = load(BESIDE, *overrides, architecture=fixed)
        result = evaluate_suite(suite, tmp_path / name, checkpoint=tmp_path / "driver")
        assert (result.ok, result.exit_code) == (True, 0), result.report
        assert lasting(tmp_path / name) == lasting(tmp_path / "inline"), name
        assert not list((tmp_path / name).glob("pass.tmp-*"))


@pytest.mark.slow
def test_ray_equals_inline(load, tmp_path: Path) -> None:
    """ray_equals_inline E36, E45: through the command line on a cluster of two processes, the files of an inline run;
    where no cluster answers, a usage error at once."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'skidpad[cluster]'")
    fixed = network_file(tmp_path / "driver")
    network_file(tmp_path / "older.safetensors", seed=1)
    load(BESIDE, architecture=fixed)
    paths = os.pathsep.join(path for path in sys.path if path)
    for name, more in {
        "inline": ["--mode", "inline"],
        "ray": ["--mode", "ray", "--workers", "2", "ray_address=local"],
        "none": ["--mode", "ray", "ray_address=127.0.0.1:9"],
    }.items():
        command = ["eval", "suite.toml", "--checkpoint", "driver", "--out", name, *more]
        done = subprocess.run(
            [sys.executable, "-m", "skidpad", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert done.returncode == (2 if name == "none" else 0), done.stderr[-3000:]
    assert "no Ray cluster answers at '127.0.0.1:9'" in done.stderr
    one, other = lasting(tmp_path / "inline"), lasting(tmp_path / "ray")
    assert one == other


@pytest.mark.slow
def test_the_shipped_suite_in_every_mode(tmp_path: Path) -> None:
    """E36, E45, E63, E116: self-play, recorded traffic, one recorded vehicle, twelve behaviour classes and realism of
    `library:driving`, with the shipped network, inline, in a process, on a pool and, where Ray is installed, on a local
    cluster: the same records, tables and kept traces. Cases of every section, driven again from the folder, repeat."""
    modes = ["inline", "subprocess", "pool", *(["ray"] if importlib.util.find_spec("ray") else [])]
    paths = os.pathsep.join(path for path in sys.path if path)
    for mode in modes:
        # Nothing may come from what earlier runs have kept: that would be the same wherever this one ran.
        command = ["eval", "library:driving", "--policy", "selfplay_small", "--mode", mode, "--workers", "2", "--rerun"]
        fewer = ["--no-render", "--num-scenarios", "1", "ray_address=local", "--out", str(tmp_path / mode)]
        done = subprocess.run(
            [sys.executable, "-m", "skidpad", *command, *fewer],
            capture_output=True,
            text=True,
            timeout=1800,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert done.returncode == 0, (mode, done.stderr[-3000:])
        assert lasting(tmp_path / mode) == lasting(tmp_path / "inline"), mode
    assert len(RunFolder(tmp_path / "inline").read_report()["evaluators"]) == 16
    found = verify_run(tmp_path / "inline", replay=1000)
    assert (found.problems, found.undone, found.exit_code) == ([], [], 0)


def hostile(load: Any, folder: Path, name: str, mode: str, *overrides: str) -> tuple[EvalResult, EvalManager]:
    """A run of one hostile section and, after it, of one that does no harm."""
    text = "".join(HOSTILE.replace("{name}", one).replace("{mode}", mode) for one in (name, "well"))
    load(text)
    suite = load_suite(folder / "suite.toml", list(overrides), types={**TYPES, "hostile": HostileEvaluator.TYPE})
    with EvalManager(suite, folder / "run", evaluators=KINDS) as manager:
        results = manager.run_all()
        manager.finish()
    assert results["well"].ok
    assert not list((folder / "run").glob("pass.tmp-*"))
    return results[name], manager


@pytest.fixture
def hostile_load(load, monkeypatch):
    """`load` that knows the hostile type."""
    monkeypatch.setitem(TYPES, "hostile", HostileEvaluator.TYPE)  # type: ignore[arg-type]
    return load


@pytest.mark.parametrize("mode", [pytest.param("subprocess", marks=pytest.mark.slow), "pool"])
def test_pool_worker_dies(hostile_load, tmp_path: Path, mode: str) -> None:
    """pool_worker_dies E43, F38, EF16, EF32: a worker that is killed costs its share; each of the share's cases runs
    once more alone, and only the one that kills its worker again has crashed. The next section runs; the exit is 1."""
    result, manager = hostile(hostile_load, tmp_path, "dies", mode)
    assert (result.ok, result.status, manager.exit_code) == (False, "failed", 1)
    records = {(r.arm, r.case_index): r for r in read_records(manager.folder.records) if r.evaluator == "dies"}
    assert len(records) == 8
    assert {key: r.status for key, r in records.items() if r.status != "ok"} == {("idm", 1): "crashed"}
    crashed = records["idm", 1]
    assert crashed.error is not None
    assert crashed.error["type"] == "WorkerDied"
    assert "its worker died twice" in crashed.error["message"]
    assert "SIGKILL" in crashed.error["message"]


@pytest.mark.slow
def test_a_case_that_leaks_has_crashed(hostile_load, tmp_path: Path) -> None:
    """EF16: a case that holds more than `vec.memory_gib` ends its worker, not the machine; alone it does so again and
    has crashed, saying what it held. All others are well."""
    result, manager = hostile(hostile_load, tmp_path, "leaks", "pool", "eval.leaks.vec.memory_gib=0.9")
    assert (result.ok, result.status, manager.exit_code) == (False, "failed", 1)
    bad = [r for r in read_records(manager.folder.records) if r.status != "ok"]
    assert [(r.evaluator, r.arm, r.case_index, r.status) for r in bad] == [("leaks", "idm", 1, "crashed")]
    assert bad[0].error is not None
    assert "vec.memory_gib allows 0.9" in bad[0].error["message"]


@pytest.mark.slow
def test_a_share_that_is_well_alone_is_well(hostile_load, tmp_path: Path) -> None:
    """F38, EF32: what only dies in company has a good record after its second try, and the run is ok."""
    result, manager = hostile(hostile_load, tmp_path, "dies_once", "pool")
    assert (result.ok, manager.exit_code) == (True, 0)


def test_a_hanging_case_ends_with_its_time(hostile_load, tmp_path: Path) -> None:
    """E41, F38: the pass ends as `timeout` when its time is over; what had finished stays, what was running says so."""
    result, manager = hostile(hostile_load, tmp_path, "hangs", "subprocess", "eval.hangs.timeout_seconds=15.0")
    assert (result.ok, result.status, manager.exit_code) == (False, "timeout", 1)
    assert result.error is not None
    assert "timeout_seconds = 15" in result.error["message"]
    statuses = [(r.arm, r.status) for r in read_records(manager.folder.records) if r.evaluator == "hangs"]
    assert set(statuses) == {("stationary", "ok"), ("constant_velocity", "ok"), ("idm", "timeout")}
    assert manager.folder.read_report()["evaluators"]["hangs"]["status"] == "timeout"


def test_an_evaluator_that_raises_elsewhere(hostile_load, tmp_path: Path, capsys) -> None:
    """E29, EF24: its traceback, from the worker, is printed and recorded as if it had run here."""
    result, manager = hostile(hostile_load, tmp_path, "raises", "pool")
    assert (result.ok, result.status, manager.exit_code) == (False, "error", 1)
    assert result.error is not None
    assert result.error["type"] == "ZeroDivisionError"
    assert "hostile_evaluator.py" in result.error["traceback"]
    assert "ZeroDivisionError: asked to raise" in capsys.readouterr().err


def test_child_sees_parent_overrides(hostile_load, tmp_path: Path) -> None:
    """child_sees_parent_overrides E38: what was set on the command line is what the child ran with, and what the
    manifest says; it reads nothing else."""
    _, manager = hostile(hostile_load, tmp_path, "well_too", "subprocess", "eval.worst_n=7")
    records = list(read_records(manager.folder.records))
    assert {record.result["steps"] for record in records if record.result} == {7}


def test_child_digest_mismatch_rejected(hostile_load, tmp_path: Path, monkeypatch) -> None:
    """child_digest_mismatch_rejected E38, EF14: one byte of the hand-over changed, and the pass is a mismatch: nothing
    of it is recorded or logged."""

    def flipped(path: Path, data: bytes) -> None:
        at = data.index(b'"worst_n":3') + len(b'"worst_n":')
        path.write_bytes(data[:at] + b"4" + data[at + 1 :] if b'"name":"well_x"' in data else data)

    monkeypatch.setattr(places, "create", flipped)
    result, manager = hostile(hostile_load, tmp_path, "well_x", "subprocess")
    assert (result.ok, result.status, manager.exit_code) == (False, "mismatch", 1)
    assert not [r for r in read_records(manager.folder.records) if r.evaluator == "well_x"]
    assert "well_x/score" not in result.values
    assert result.values["well_x/ok"] == 0.0


@pytest.mark.slow
def test_a_checkpoint_exchanged_on_the_way(load, tmp_path: Path) -> None:
    """EF14, E38: weights that are exchanged after the run was registered are noticed by the digest of what was read."""
    fixed = network_file(tmp_path / "driver")
    suite = load(REAL, 'mode="subprocess"', architecture=fixed)
    with EvalManager(suite, tmp_path / "run", checkpoint=tmp_path / "driver") as manager:
        network_file(tmp_path / "driver", seed=1)
        result = manager.run_all()["a"]
    assert (result.status, manager.exit_code) == ("mismatch", 1)
    assert not list(read_records(manager.folder.records))


def test_leftovers_are_swept(hostile_load, tmp_path: Path) -> None:
    """no_temp_left E42: the folder of a pass whose run was killed goes when the next run holds the lock, and never
    counts as a file of the run."""
    left = tmp_path / "run" / "pass.tmp-1-0123abcd"
    left.mkdir(parents=True)
    (left / "handover.json").write_text("{}")
    _, manager = hostile(hostile_load, tmp_path, "well_y", "inline")
    assert not left.exists()
    assert not [name for name in manager.folder.read_report()["files"] if "tmp-" in name]


def sections(load: Any, *overrides: str) -> EvaluatorSpec:
    spec: EvaluatorSpec = load(REAL, *overrides).spec("a")
    return spec


def test_a_section_survives_the_hand_over(load) -> None:
    """E38, E4: a section written down and read again is the section, whatever it sets; only the origins stay behind."""
    spec = sections(load, "env.goal_spacing=[3.0, 9.5]", 'eval.skip_metrics=["pet"]', "timeout_seconds=2.5")
    again = spec_of(spec.document(), TYPES["human_replay"])
    assert dataclasses.replace(spec, origin_items=()) == again
    assert again.section_digest(["x"]) == spec.section_digest(["x"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(0, 10_000), min_size=1, max_size=40),
    worlds=st.integers(1, 9),
    workers=st.integers(1, 17),
    gone=st.sets(st.integers(0, 39)),
)
def test_shards_disjoint_and_complete(sizes: list[int], worlds: int, workers: int, gone: set[int]) -> None:
    """shards_disjoint_and_complete E46: for any number of workers, any sizes of scenes, any cut and any set that is
    recorded already, shares are disjoint, their union is what is missing, and none has more cases than worlds."""
    from skidpad.evaluation.evaluators import EVALUATORS
    from skidpad.settings.schema import VecSettings

    class Sources(SceneSources):
        def size(self, digest: str) -> int:
            return sizes[int(digest)]

    kind = EVALUATORS["multi_scenario"]
    evaluator = kind.__new__(kind)
    evaluator.sources = Sources.__new__(Sources)
    evaluator.spec = type("Spec", (), {"vec": VecSettings(num_worlds=worlds)})  # type: ignore[assignment]
    planned = [PlannedCase(Case(str(k), "", 0), k, None) for k in range(len(sizes)) if k not in gone]
    shares = list(evaluator.batches(planned, workers))
    assert sorted(item.position for share in shares for item in share) == [item.position for item in planned]
    assert all(0 < len(share) <= worlds for share in shares)


def test_pool_swaps_maps(load) -> None:
    """pool_swaps_maps, pool_equals_fresh E43: other scenes are put into the simulators that are there, and after A, B
    and A again every trace is the one of a new simulator. One in whose use something was raised is not used again."""
    spec = sections(load)
    kind = STUBS["human_replay"]
    kept, sources = Worlds(), SceneSources()
    evaluator = kind(spec, sources, worlds=kept)
    arms = [arm for arm in _arms(spec) if arm.name in ("constant_velocity", "idm", "log")]
    first, second = evaluator.plan.cases[:3], evaluator.plan.cases[3:5]

    def digests(worlds: Worlds, cases: Any) -> list[list[str]]:
        own = kind(spec, sources, worlds=worlds)
        return [[o.trace.digest for o in own.simulate(arm, cases).outcomes if o.trace] for arm in arms]

    fresh = [digests(Worlds(), cases) for cases in (first, second)]
    assert [digests(kept, cases) for cases in (first, second, first)] == [fresh[0], fresh[1], fresh[0]]
    assert kept.built == len(arms)
    with (
        pytest.raises(ZeroDivisionError),
        kept.taken(
            [item.case for item in first],
            spec.env,
            {item.case.scene_digest: sources.load(item.case.scene_digest) for item in first},
            threads=spec.vec.threads,
            cache=sources.cache,
            substitute=None,
        ) as simulator,
    ):
        raise ZeroDivisionError
    assert simulator._closed
    assert digests(kept, first) == fresh[0]
    assert kept.built == len(arms) + 1
    kept.close()


def _arms(spec: EvaluatorSpec) -> Any:
    from skidpad.evaluation.drivers import Driver

    return Driver().arms(spec, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('mode = "cluster"', "should be 'inline', 'subprocess', 'pool' or 'ray'"),
        ("timeout_seconds = 0", "greater than 0"),
        ("vec.workers = 0", "greater than 0"),
        ("vec.workers = 2.0", "vec.workers"),
        ("blocking = false", r'blocking = false in \[eval.a\] needs mode = "pool" or "ray", not .inline.'),
    ],
)
def test_places_that_cannot_be_are_refused(load, text: str, said: str) -> None:
    """E11, F2, F3: where and how long is checked at load, as everything else."""
    from skidpad.errors import SettingsError

    with pytest.raises(SettingsError, match=said):
        load(REAL + f"    {text}\n")


@pytest.mark.slow
def test_a_reader_of_road_lists_drives_the_same_anywhere(load, tmp_path: Path) -> None:
    """S94, E43, E48: a driver whose observations refer to lists of its simulator's maps has the same records inline,
    two scenes at a time or one, and on a pool of two workers, each with maps and lists of its own."""
    env = EnvSettings(layout="deferred_32/1")
    architecture = architecture_for(env, NetworkSettings(hidden=(16,), encoder=16))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        save_checkpoint(tmp_path / "driver", ActorCritic(architecture.network), architecture)
    for name, overrides in {
        "inline": [],
        "inline-1": ["vec.num_worlds=1"],
        "pool-1": ['mode="pool"', "vec.workers=1"],
        "pool-2": ['mode="pool"', "vec.workers=2"],
    }.items():
        suite = load(REAL, *overrides, architecture=architecture.settings())
        result = evaluate_suite(suite, tmp_path / name, checkpoint=tmp_path / "driver")
        assert (result.ok, result.exit_code) == (True, 0), result.report
        assert lasting(tmp_path / name) == lasting(tmp_path / "inline"), name
