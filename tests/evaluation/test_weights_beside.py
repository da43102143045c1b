"""Drivers with weights among `eval.baselines`: run as they would be under test, never twice, and refused before there
is a folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from stub_evaluator import STUBS

from skidpad.artifacts.files import parse_json
from skidpad.artifacts.weights import load_weights, save_weights
from skidpad.cli import run as command_line
from skidpad.cli import shipped_driver
from skidpad.errors import SettingsError
from skidpad.evaluation.evaluators import TYPES
from skidpad.evaluation.kept import KeptRecords
from skidpad.evaluation.manager import EvalManager
from skidpad.policies.checkpoint import architecture_for, load_checkpoint, save_checkpoint
from skidpad.policies.library import library_drivers
from skidpad.policies.network import ActorCritic
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record, read_records
from skidpad.settings.schema import EnvSettings, NetworkSettings
from skidpad.settings.suite import load_suite, spec_of

FEWEST = '"stationary", "constant_velocity", "idm", "log"'
STUB = f"""
    [eval.a]
    type = "stub"
    env.scenes = ["{{scenes}}/straight-0.scene", "{{scenes}}/crossing.scene"]
    keep_traces = "none"
    eval.worst_n = 0
    eval.resamples = 100
    eval.baselines = [{FEWEST}, "older=older.safetensors"]
"""
REAL = f"""
    [eval.a]
    type = "human_replay"
    env.scenes = ["{{scenes}}/straight-0.scene", "{{scenes}}/crossing.scene"]
    env.scenario_length = 10
    eval.worst_n = 1
    eval.resamples = 100
    eval.baselines = [{FEWEST}, "older=older.safetensors"]
"""


def written(path: Path, seed: int = 0, *, memory: Any = "none", **env: Any) -> Path:
    """A small driver with random weights, for worlds with these settings."""
    sizes = NetworkSettings(hidden=(16,), encoder=8, memory=memory, memory_width=8)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        architecture = architecture_for(EnvSettings(**env), sizes)
        save_checkpoint(
            path, ActorCritic(architecture.network), architecture, step=seed + 1, run="first", overwrite=True
        )
    return path


def by_arm(folder: Path, arm: str) -> dict[str, Record]:
    """The records of one arm by case."""
    return {record.case: record for record in read_records(RunFolder(folder).records) if record.arm == arm}


def test_their_records_are_their_own(load, stub, tmp_path: Path) -> None:
    """E71, E104, E115: weights beside have records under their name with their digest, stand in the manifest with file,
    run and step, and are kept by digest: the same weights under another name of file cost nothing, others run, and
    nobody else does."""
    kept = KeptRecords(tmp_path / "kept")
    older = written(tmp_path / "older.safetensors", 1)
    driver = written(tmp_path / "driver.safetensors", 2)
    result = evaluate_with(load(STUB), tmp_path / "one", kept, checkpoint=driver)
    assert result["arms"].keys() == {"policy", "stationary", "constant_velocity", "idm", "log", "older"}
    assert result["paired"]["older"]["score"]["n"] == 2
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    said = manifest["evaluators"]["a"]["weights"]["older"]
    digest = load_checkpoint(older).digest
    assert (said["digest"], said["run"], said["step"], said["path"]) == (digest, "first", 2, str(older))
    assert manifest["identity"]["evaluators"]["a"]["weights"] == {"older": digest}
    assert {record.checkpoint for record in by_arm(tmp_path / "one", "older").values()} == {digest}

    stub.ran.clear()
    older.rename(tmp_path / "moved.safetensors")
    moved = STUB.replace("older.safetensors", "moved.safetensors")
    evaluate_with(load(moved), tmp_path / "two", kept, checkpoint=driver)
    assert stub.ran == []
    written(tmp_path / "moved.safetensors", 3)
    evaluate_with(load(moved), tmp_path / "three", kept, checkpoint=driver)
    assert {arm for _, arm, _ in stub.ran} == {"older"}


def evaluate_with(suite: Any, folder: Path, kept: KeptRecords | None = None, **driver: Any) -> dict[str, Any]:
    """The report's part of section `a`."""
    with EvalManager(suite, folder, evaluators=STUBS, kept=kept, **driver) as manager:
        manager.run_all()
        part: dict[str, Any] = manager.finish()["evaluators"]["a"]
    assert part["ok"]
    return part


def test_nobody_drives_beside_himself(load, stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E71: a suite with a fixed opponent runs for that opponent too. Its weights are run once, as the driver under
    test, and a line says so; differences from itself are refused before there is a folder."""
    older = written(tmp_path / "older.safetensors", 1)
    shutil.copy(older, tmp_path / "copy.safetensors")
    part = evaluate_with(load(STUB), tmp_path / "one", checkpoint=tmp_path / "copy.safetensors")
    assert part["arms"].keys() == {"policy", "stationary", "constant_velocity", "idm", "log"}
    said = capsys.readouterr().err
    assert "a: older holds the weights of the driver under test, so it is not run beside it" in said
    suite = load(STUB, 'eval.reference="older"')
    assert evaluate_with(suite, tmp_path / "two", checkpoint=written(tmp_path / "d", 2))["reference"] == "older"
    with pytest.raises(SettingsError, match="nothing is compared with itself"):
        evaluate_with(suite, tmp_path / "three", checkpoint=older)
    assert not (tmp_path / "three").exists()


def test_training_keeps_them(load, stub, tmp_path: Path) -> None:
    """E25, E71: in training the driver under test has other weights with every pass, those beside it the same: they
    drive once, and stand in the report of the last pass."""
    written(tmp_path / "older.safetensors", 1)
    with EvalManager(load(STUB, "interval=1"), tmp_path / "run", evaluators=STUBS) as manager:
        for epoch, seed in ((1, 1), (2, 2)):  # the first pass has the very weights that stand beside it
            manager.maybe_run(epoch, epoch * 10, checkpoint=written(tmp_path / f"{epoch}", seed))
        arms = manager.finish()["evaluators"]["a"]["arms"]
    assert arms["older"]["n_cases"] == arms["policy"]["n_cases"] == 2
    assert sum(arm == "older" for _, arm, _ in stub.ran) == 2
    assert sum(arm == "policy" for _, arm, _ in stub.ran) == 4


def foreign(path: Path) -> None:
    """A checkpoint of something else."""
    save_weights(path, dict(load_weights(shipped_driver("logs_small")).arrays), {"kind": "mapper/1"})


def unknown_layout(path: Path) -> None:
    """A driver that reads a layout which this version does not have."""
    weights = load_weights(written(path))
    text = json.dumps(weights.meta).replace("compact/1", "cosmic/9")
    save_weights(path, dict(weights.arrays), parse_json(text.encode()), overwrite=True)


def damaged(path: Path) -> None:
    """A driver with one other byte among its numbers."""
    data = bytearray(written(path).read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("entry", "make", "said"),
    [
        ("selfplay_smal", None, "is no driver; known are stationary, constant_velocity, random, idm, log, log_actions"),
        ("selfplay_smal", None, "logs_small, selfplay_small, and NAME=FILE.safetensors"),
        ("selfplay_smal", None, "did you mean 'selfplay_small'?"),
        ("x.safetensors", written, "write NAME=x.safetensors"),
        ("x=x.safetensors", None, "x.safetensors' is not there"),
        ("x=x.bin", None, "expected one that ends in .safetensors"),
        ("random=x.safetensors", written, "another driver's name"),
        ("policy=x.safetensors", written, "another driver's name"),
        ("a/b=x.safetensors", written, "expected letters and digits"),
        ("log=x.safetensors", written, "names a baseline twice"),
        ("x=x.safetensors", foreign, "driver 'x': "),
        ("x=x.safetensors", damaged, "driver 'x': "),
        ("x=x.safetensors", lambda path: path.write_bytes(b"x" * 40), "driver 'x': "),
        ("x=x.safetensors", unknown_layout, "asks for a world that there is not here"),
    ],
)
def test_what_cannot_drive_is_refused_at_load(
    load, tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str, make: Any, said: str
) -> None:
    """E13, E16, E71: exit code 2 with the line of the suite, before there is a folder, for an unknown name (the known
    ones are listed), a file without a name, one that is not there, foreign or damaged, and a layout of another
    version."""
    if make is not None:
        make(tmp_path / "x.safetensors")
    written(tmp_path / "older.safetensors")
    load(REAL)
    suite = tmp_path / "suite.toml"
    suite.write_text(suite.read_text().replace("older=older.safetensors", entry))
    out = tmp_path / "out"
    assert command_line(["eval", str(suite), "--out", str(out)]) == 2
    text = capsys.readouterr().err
    assert said in text
    assert "suite.toml:8" in text
    assert not out.exists()


def test_a_suite_with_them_survives_being_written_down(load, tmp_path: Path) -> None:
    """E17, E18, E38: printed, a suite names the same files from anywhere; handed over, a section has them; its digest
    says nothing of them, since their own digests stand beside it."""
    older = written(tmp_path / "older.safetensors")
    suite = load(STUB, f'eval.baselines=[{FEWEST}, "selfplay_small", "older={older}"]')
    spec = load(STUB).spec("a")
    printed = tmp_path / "elsewhere" / "printed.toml"
    printed.parent.mkdir()
    printed.write_text(load(STUB).print_config())
    again = load_suite(printed, types={**TYPES, "stub": STUBS["stub"].TYPE})
    assert again.spec("a").weights == spec.weights == (("older", older),)
    assert suite.spec("a").weights == (("selfplay_small", library_drivers()["selfplay_small"]), ("older", older))
    there = spec_of(json.loads(json.dumps(suite.spec("a").document())), STUBS["stub"].TYPE)
    assert there.weights == suite.spec("a").weights
    plain = load(STUB, f"eval.baselines=[{FEWEST}]").spec("a")
    assert plain.section_digest([]) == spec.section_digest([]) == there.section_digest([])


def test_they_drive_as_under_test(load, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E16, E53, E71, E105 (real): a recurrent driver with a layout of its own, beside one with another, comes to the
    very results that it has under test; its records, and its kept traces, hold when they are verified and driven
    again."""
    older = written(tmp_path / "older.safetensors", 1, memory="gru", layout="default/1")
    driver = written(tmp_path / "driver.safetensors", 2)
    load(REAL)
    suite, out = str(tmp_path / "suite.toml"), tmp_path / "out"
    assert command_line(["eval", suite, "--checkpoint", str(driver), "--out", str(out)]) == 0
    alone = ["eval", suite, f"eval.baselines=[{FEWEST}]", "--checkpoint", str(older)]
    assert command_line([*alone, "--out", str(tmp_path / "alone")]) == 0
    beside, under_test = by_arm(out, "older"), by_arm(tmp_path / "alone", "policy")
    assert beside.keys() == under_test.keys()
    for case, record in beside.items():
        other = under_test[case]
        assert record.checkpoint == other.checkpoint
        assert record.result is not None
        assert other.result is not None
        assert {**record.result, "trace_digest": ""} == {**other.result, "trace_digest": ""}
    assert list((out / "traces" / "a").glob("*@older_step0.trace"))
    page = (out / "report.html").read_text()
    assert all(f"<small>{name}.safetensors</small>" in page for name in ("driver", "older"))
    assert f"{load_checkpoint(older).digest}; step 2 of run first" in page
    capsys.readouterr()
    older.rename(tmp_path / "moved.safetensors")
    check = ["verify", str(out), "--replay", "9", "--assets", str(tmp_path)]
    assert command_line(check) == 2
    assert "Say --checkpoints" in capsys.readouterr().out
    assert command_line([*check, "--checkpoints", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "12 records of 2 cases simulated again, 12 repeat exactly" in said
    assert "2 of 2 weights" in said
