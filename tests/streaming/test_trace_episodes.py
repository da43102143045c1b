"""Traffic recorded in a run becomes a street: traces as tracks, and as sources of the compiler (M13)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from episode_folders import entries_of, small_spec

from skidpad.cli import run
from skidpad.errors import UsageError
from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.runs.trace_file import write_trace
from skidpad.runs.trace_tracks import tracks_of
from skidpad.scenes.events import Status
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.streaming.compile import compile_episodes
from skidpad.streaming.provenance import validate_episodes
from skidpad.streaming.sources import find_logs
from skidpad.streaming.vault import open_vault


def replayed(scene: Scene) -> Trace:
    """A trace in which every agent does what its log says."""
    tracks = scene.tracks
    sizes = {"R": 1, "T": tracks.valid.shape[1], "N": tracks.count, "U": tracks.valid.shape[1] - 1}
    arrays = {}
    for spec in TRACE_ARRAYS:
        shape = tuple(sizes.get(axis, int(axis) if axis.isdigit() else 1) for axis in spec.shape.split(","))
        arrays[spec.name] = np.zeros(shape, spec.dtype)
    for name in ("x", "y", "z", "heading", "length", "width", "height"):
        arrays[name][0] = getattr(tracks, name).T
    arrays["speed"][0] = np.hypot(tracks.vx, tracks.vy).T
    arrays["status"][0] = np.where(tracks.valid.T, Status.ACTIVE, Status.ABSENT)
    for name in ("type", "subtype", "source_id"):
        arrays[name][:] = getattr(tracks, name)
    meta = TraceMeta(
        case="c" * 20,
        arm="log",
        evaluator="e",
        scene_id=scene.meta.scene_id,
        scene_digest=scene.digest,
        dt_us=scene.meta.dt_us,
        start_row=0,
        action_selection="deterministic",
        profile="clean",
        ego=-1,
        ego_rule="",
        end_reason="length",
        settings={},
        observed={},
        state_hash=("a" * 16,) * sizes["T"],
    )
    return Trace(meta, arrays)


def test_tracks_of_a_replay_are_the_log() -> None:
    """M13: a replay's trace gives back the tracks it replayed: poses, sizes, what exists when, and what agents are."""
    scene = synthetic("merge", 4)
    tracks = tracks_of(replayed(scene))
    for name in (
        "x",
        "y",
        "heading",
        "length",
        "width",
        "height",
        "valid",
        "type",
        "subtype",
        "source_id",
        "first",
        "last",
    ):
        np.testing.assert_array_equal(getattr(tracks, name), getattr(scene.tracks, name), err_msg=name)
    moving = scene.tracks.valid & (np.hypot(scene.tracks.vx, scene.tracks.vy) > 0.1)
    np.testing.assert_allclose(tracks.vx[moving], scene.tracks.vx[moving], atol=0.3)
    row = scene.tracks.last[0]
    np.testing.assert_array_equal(tracks.goal[0, :2], [scene.tracks.x[0, row], scene.tracks.y[0, row]])
    assert tracks.route(0).size == 0


def test_removed_agents_leave() -> None:
    """M13: an agent without a body is not in the street."""
    trace = replayed(synthetic("straight", 1))
    trace.arrays["status"][0, 10:, 2] = Status.REMOVED
    tracks = tracks_of(trace)
    assert tracks.valid[2, :10].all()
    assert not tracks.valid[2, 10:].any()
    assert tracks.last[2] == 9


def test_traces_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M96, M13: `--traces` compiles streets out of recorded traffic; the vault names scene and trace."""
    scene = synthetic("crossing", 3)
    trace = replayed(scene)
    write_trace(trace, tmp_path / "one.trace")
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'salt = "s"\nwarmup = 2\nstream = 3\nqueries = 2\n[[parts]]\ntrack = "street_dynamic"\nsplit = "dev"\n'
        'scenes = ["synthetic:crossing:3"]\nimage_size = [12, 24]\n'
    )
    out = tmp_path / "data"
    words = ["episodes", "compile", str(spec), "--traces", str(tmp_path / "one.trace"), "--out", str(out)]
    assert run(words) == 0
    found = validate_episodes(entries_of(out / "index.json"))[0]
    origin = found.vault.manifest.origin
    assert (origin.scene_digest, origin.trace_digest) == (scene.digest, trace.digest)
    street = {"track": "street_dynamic", "split": "dev", "scenes": ["synthetic:crossing:3"], "image_size": [12, 24]}
    logged = small_spec(street, salt="s")
    compile_episodes(logged, tmp_path / "logged")
    same = validate_episodes(entries_of(tmp_path / "logged" / "index.json"))[0]
    shown = [[frame.depth.sha256 for frame in one.online.manifest.frames] for one in (found, same)]
    assert shown[0] == shown[1]
    assert found.episode_id != same.episode_id
    assert len(open_vault(found.vault).queries) == 2
    assert json.loads((out / "compile.json").read_text())["spec"]["parts"][0]["traces"]


def test_trace_of_another_scene(tmp_path: Path) -> None:
    """M13: a trace whose scene is not given is refused; so are traces where nobody can read them."""
    with pytest.raises(UsageError, match="read_trace"):
        find_logs(["synthetic:curve:1"], ["x.trace"], None)
    write_trace(replayed(synthetic("curve", 2)), tmp_path / "two.trace")
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'salt = "s"\nwarmup = 1\nstream = 1\nqueries = 1\n[[parts]]\ntrack = "street_static"\nsplit = "dev"\n'
        'scenes = ["synthetic:curve:1"]\n'
    )
    words = ["episodes", "compile", str(spec), "--traces", str(tmp_path / "two.trace"), "--out", str(tmp_path / "d")]
    assert run(words) == 2
    for text in ("synthetic:curve:x", "synthetic:nowhere:1", "library:nothing*"):
        with pytest.raises(UsageError):
            find_logs([text], [], None)
