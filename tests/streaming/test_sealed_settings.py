"""Sections of type sealed_stream, and the verbs that take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sealed_runs import make_world

from skidpad.cli import run
from skidpad.errors import SettingsError
from skidpad.settings.sealed import chosen_section, sealed_sections

SUITE = """\
[eval.base]
type = "sealed_stream"
abstract = true
index = "rooms/index.json"
checkpoint = "mapper.safetensors"
policies = ["OFF", "FUSE"]
warmup = 1
stream = 2
queries = 1
render_samples = 16
workers = 1

[eval.tight]
inherits = "base"
max_units = 1e9

[eval.sealed]
inherits = "base"
enabled = false
controls = ["CONSTANT_DEPTH"]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of two sections, one of them off."""
    (tmp_path / "suite.toml").write_text(SUITE)
    return tmp_path / "suite.toml"


def test_sections(suite: Path) -> None:
    """Sections inherit, paths are relative to the file that writes them, and each value knows its line."""
    found = sealed_sections(suite)
    assert found is not None
    assert list(found) == ["tight", "sealed"]
    tight = chosen_section(suite, found, None)
    assert (tight.name, tight.values["max_units"], tight.places["max_units"]) == ("tight", 1e9, f"{suite}:15")
    assert tight.values["index"] == suite.parent / "rooms/index.json"
    assert chosen_section(suite, found, "sealed").values["controls"] == ("CONSTANT_DEPTH",)
    with pytest.raises(SettingsError, match="did you mean 'tight'"):
        chosen_section(suite, found, "tigth")


def test_command_line_is_strongest(suite: Path) -> None:
    """Values of the command line are typed by their key; paths in them are relative to where one stands."""
    found = sealed_sections(
        suite, ["stream=3", 'policies=["OFF"]', "eval.tight.max_episodes=None", "eval.tight.checkpoint=x.safetensors"]
    )
    assert found is not None
    values = found["tight"].values
    assert (values["stream"], values["policies"], values["max_episodes"]) == (3, ("OFF",), None)
    assert values["checkpoint"] == Path("x.safetensors")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polices = []", "unknown key 'polices'.*did you mean 'policies'"),
        ("env.dt = 0.1", "unknown key"),
        ("[eval.other]\ninherits = 'base'\nenabled = 1", "must be true or false"),
        ("writer = 3", "must be a path"),
        ('[eval.drive]\ntype = "multi_scenario"', "a file of its own"),
    ],
)
def test_bad_sections(text: str, message: str, suite: Path) -> None:
    """F1, F2: what is unknown, mistyped or mixed is refused with file and line, before anything heavy is loaded."""
    suite.write_text(SUITE + text)
    with pytest.raises(SettingsError, match=rf"suite\.toml:\d+.*{message}"):
        sealed_sections(suite)


def test_other_suites_are_left_alone(tmp_path: Path) -> None:
    """A suite without sealed sections is none of this module's business."""
    (tmp_path / "a.toml").write_text('[eval.drive]\ntype = "multi_scenario"\n')
    assert sealed_sections(tmp_path / "a.toml") is None


def test_faults_name_their_line(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M31: from a suite the same checks run in the same order, and the message begins with file and line."""
    make_world(tmp_path, count=1)
    before = sorted(tmp_path.iterdir())
    assert run(["eval", str(suite), "--out", str(tmp_path / "run"), "--evaluator", "sealed", "render_samples=1"]) == 2
    assert "command line: render_samples = 1: one ray needs at least 2 samples" in capsys.readouterr().err
    suite.write_text(SUITE.replace("stream = 2", "stream = 0"))
    assert run(["eval", str(suite), "--out", str(tmp_path / "run")]) == 2
    assert f"{suite}:8: stream = 0: must be a whole number" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_no_data(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An index that is not there is bad input for both verbs, exit 2, and leaves nothing behind."""
    before = sorted(tmp_path.iterdir())
    for verb in ("eval", "register"):
        assert run([verb, str(suite), "--out", str(tmp_path / "out")]) == 2
        assert "no such file, expected an index" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_useless_options(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that means nothing for a mapper is refused, and so is a registration for a drive."""
    assert run(["eval", str(suite), "--policy", "idm"]) == 2
    assert "--policy does nothing for a sealed_stream section" in capsys.readouterr().err


@pytest.mark.slow
def test_register_then_eval(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M41, M96: `register` prints the run id that `eval --registration` then has; finished runs stay as they are."""
    make_world(tmp_path, count=1)
    file, out = tmp_path / "registration.json", tmp_path / "run"
    assert run(["register", str(suite), "--out", str(file)]) == 0
    run_id = capsys.readouterr().out.strip()
    assert run(["register", str(suite), "--out", str(file)]) == 2
    assert run(["eval", str(suite), "--registration", str(file), "--out", str(out), "stream=2", "max_units=1e8"]) == 2
    assert "budget_protocol.max_units" in capsys.readouterr().err
    assert run(["eval", str(suite), "--registration", str(file), "--out", str(out)]) == 0
    assert json.loads((out / "report.json").read_bytes())["run_id"] == run_id
    assert run(["eval", str(suite), "--registration", str(file), "--out", str(out)]) == 2
