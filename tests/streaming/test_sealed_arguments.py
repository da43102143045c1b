"""Arguments of a sealed evaluation, in the order of their table: the earlier fault is the one reported (M31, M30)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from episode_folders import entries_of, manifest_path

from skidpad.errors import AlreadyThereError, IntegrityError, UsageError
from skidpad.streaming.arguments import SealedArguments, check_arguments
from skidpad.streaming.episode import load_episode_index

# (row of the table, arguments, message), in the table's order.
FAULTS: list[tuple[int, dict[str, Any], str]] = [
    (2, {"max_episodes": 0}, "max_episodes = 0: must be a whole number of at least 1, or left out for all"),
    (2, {"max_episodes": True}, "max_episodes = True"),
    (2, {"max_episodes": 1.0}, "max_episodes = 1.0"),
    (3, {"policies": ["FUSE"]}, r'policies = \["FUSE"\]: OFF is missing; every policy is compared with it'),
    (3, {"policies": "OFF"}, "policies = 'OFF': must be a list of names"),
    (3, {"policies": ["OFF", "fuse"]}, "'fuse' is not one of .*did you mean 'FUSE'"),
    (3, {"policies": ["OFF", 3]}, "3 is not one of"),
    (3, {"policies": ["OFF", "FUSE", "OFF"]}, "OFF is named twice"),
    (4, {"controls": ["MEAN_FIELDS"]}, "'MEAN_FIELDS' is not one of .*did you mean 'MEAN_FIELD'"),
    (4, {"controls": ["WRONG_SCENE"], "policies": ["OFF", "FUSE"]}, "control WRONG_SCENE needs policy ALL or COMPLETE"),
    (4, {"controls": ["SHUFFLED_POSES"], "policies": ["OFF", "ALL"]}, "control SHUFFLED_POSES needs policy FUSE"),
    (5, {"residual_threshold": math.nan}, "residual_threshold = nan: must be a finite number, 0 or more"),
    (5, {"residual_threshold": -0.1}, "residual_threshold = -0.1"),
    (5, {"residual_threshold": True}, "residual_threshold = True"),
    (6, {"render_samples": 1}, "render_samples = 1: one ray needs at least 2 samples"),
    (6, {"ray_chunk": 0}, "ray_chunk = 0"),
    (7, {"warmup": 0}, "warmup = 0: must be a whole number of at least 1"),
    (7, {"stream": 0}, "stream = 0: must be a whole number of at least 1"),
    (7, {"queries": False}, "queries = False"),
    (8, {"max_units": math.inf}, "max_units = inf: give a finite budget; 1e12 binds nothing at this size"),
    (8, {"max_units": 0}, "max_units = 0"),
    (9, {"policies": ["OFF", "LEARNED"]}, 'policy LEARNED needs writer = "<file>"'),
    (9, {"writer": "w.safetensors"}, "writer = 'w.safetensors' needs policy LEARNED"),
    (11, {"split": "test", "official": True}, r"split test: not test are ep-\w+ \(dev\), ep-\w+ \(dev\)"),
    (11, {"split": "train"}, "never evaluated"),
    (11, {"stream": 4}, "the run wants 2 [+] 4 [+] 2"),
    (12, {"device": "gpu"}, "device = 'gpu'"),
    (12, {"device": "cuda:"}, "device = 'cuda:'"),
]
FITTING = {"warmup": 2, "stream": 3, "queries": 2}


def check(index: Path, out: Path, places: dict[str, str] | None = None, **changes: Any) -> list[Any]:
    loaded = load_episode_index(index)
    arguments = SealedArguments(**{**FITTING, **changes})
    return check_arguments(
        arguments, count=len(loaded.episodes), index=str(index), out=out, select=loaded.select, places=places
    )


def test_defaults_are_the_documented_ones() -> None:
    """M31: both doors share these values; changing one changes published figures."""
    assert vars(SealedArguments()) == {
        "max_episodes": None,
        "policies": ("OFF", "FUSE", "COMPLETE", "ALL"),
        "controls": (),
        "residual_threshold": 0.03,
        "render_samples": 96,
        "ray_chunk": 2048,
        "warmup": 4,
        "stream": 8,
        "queries": 4,
        "max_units": 1e12,
        "writer": None,
        "device": "cpu",
        "split": "dev",
        "official": False,
        "diagnostic": False,
        "release": "",
        "parent": None,
    }


def test_good_arguments(rooms_index: Path, tmp_path: Path) -> None:
    """M31, M32: what passes gives the provenances of the selected episodes, in order."""
    found = check(rooms_index, tmp_path, controls=["CACHE", "WRONG_SCENE"], max_units=10**7, residual_threshold=0)
    assert [one.episode_id for one in found] == [entry.episode_id for entry in entries_of(rooms_index)]
    assert len(check(rooms_index, tmp_path, max_episodes=1)) == 1
    assert len(check(rooms_index, tmp_path, policies=("OFF", "LEARNED"), writer="w.safetensors")) == 2


@pytest.mark.parametrize(("row", "changes", "match"), FAULTS)
def test_each_fault(rooms_index: Path, tmp_path: Path, row: int, changes: dict[str, Any], match: str) -> None:
    """M31: each row's message, with the file and line of the key where it came from a suite, and nothing written."""
    with pytest.raises(UsageError, match=match):
        check(rooms_index, tmp_path / "run", **changes)
    key = next(iter(changes))
    if row not in (9, 11):
        with pytest.raises(UsageError, match=f"suite.toml:7: .*{match}"):
            check(rooms_index, tmp_path / "run", dict.fromkeys(changes, "suite.toml:7"), **changes)
    assert list(tmp_path.iterdir()) == [], key


def test_earlier_fault_wins(rooms_index: Path, tmp_path: Path) -> None:
    """M31: of two faults in different rows the one of the earlier row is reported."""
    for row, changes, match in FAULTS:
        for later, other, _ in FAULTS:
            if later > row and not set(changes) & set(other):
                with pytest.raises(UsageError, match=match):
                    check(rooms_index, tmp_path, **changes, **other)


def test_no_episodes(tmp_path: Path) -> None:
    """M31: an index without entries is the first thing to be said."""
    with pytest.raises(UsageError, match=r"no episodes in data/x/index\.json"):
        check_arguments(
            SealedArguments(max_episodes=0), count=0, index="data/x/index.json", out=tmp_path, select=lambda _: []
        )


def test_finished_run(rooms_index: Path, tmp_path: Path) -> None:
    """M31: a finished run is never overwritten; an unfinished folder is the business of resuming."""
    (tmp_path / "manifest.json").write_text("{}")
    assert len(check(rooms_index, tmp_path)) == 2
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(AlreadyThereError, match=r"has report\.json: a finished run is never overwritten"):
        check(rooms_index, tmp_path, split="train")


def test_device_comes_after_the_data(index: Path, tmp_path: Path) -> None:
    """M31: a missing GPU is told after the split and the provenance, and by what is missing."""
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is visible here")
    with pytest.raises(UsageError, match='device = "cuda": no CUDA device is visible here'):
        check(index, tmp_path, device="cuda")
    path = manifest_path(index, "online")
    path.write_text(path.read_text() + " ")
    with pytest.raises(IntegrityError, match="root"):
        check(index, tmp_path, device="cuda")
