"""E70: the two phases of a sealed evaluation: what is committed when, what is left, and what is refused."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mapper_world import single_thread
from sealed_runs import SMALL, make_world, remembered, run_sealed, settings_of, stopping

from skidpad.errors import AlreadyThereError, IntegrityError, RefusedError, UsageError
from skidpad.evaluation.evaluators import sealed_stream
from skidpad.evaluation.sealed_registration import read_registration, run_id_of, write_registration
from skidpad.runs.chain import read_chain
from skidpad.runs.records import read_records
from skidpad.streaming import sealed as phases
from skidpad.streaming.episode import load_episode_index
from skidpad.streaming.mapper_file import load_mapper
from skidpad.streaming.policies import Action, Feedback, Fixed, make_policy
from skidpad.streaming.provenance import validate_episodes
from skidpad.streaming.report_format import RECORD_KEYS, REPORT_KEYS
from skidpad.streaming.write_rule import Gate

ALL_CONTROLS = ("CACHE", "WRONG_SCENE", "SHUFFLED_POSES", "CONSTANT_DEPTH", "HARMONIC_FILL")
World = tuple[Path, Path]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two rooms and a mapper; nobody may change them, but the ledger of attempts grows."""
    return make_world(tmp_path_factory.mktemp("sealed"))


@pytest.fixture
def own_world(world: World, tmp_path: Path) -> World:
    """A copy that a test may change."""
    shutil.copytree(world[0].parent, tmp_path / "rooms")
    (tmp_path / "rooms" / "attempts.jsonl").unlink(missing_ok=True)
    return tmp_path / "rooms" / "index.json", world[1]


@pytest.fixture(scope="session")
def finished(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """A finished run with every control that needs no learned part: folder, report, and what was said."""
    out, said = tmp_path_factory.mktemp("finished") / "run", list[str]()
    report = run_sealed(world, out, policies=["OFF", "FUSE", "ALL"], controls=ALL_CONTROLS, say=said.append)
    return out, report, said


def events(out: Path) -> list[dict[str, Any]]:
    """The chain."""
    return read_chain(out / "chain.jsonl")


# -- what a run leaves ------------------------------------------------------------------------------------------------


def test_files_of_a_run(finished: tuple[Path, dict[str, Any], list[str]]) -> None:
    """M46: exactly these files; no image, weight or state remains."""
    out, report, _ = finished
    pairs = {f"sealed/pairs/{row['pair_id']}.json" for row in report["records"]}
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    tables = {f"sealed/{name}" for name in ("episodes.csv", "queries.csv", "summary.csv", "opened.jsonl")}
    whole = {"manifest.json", "chain.jsonl", "records.jsonl", "report.json", "run.lock"}
    assert found == pairs | tables | whole
    assert not (out / "sealed/states").exists()
    assert len(list(read_records(out / "records.jsonl"))) == len(pairs)
    assert json.loads((out / "report.json").read_bytes()) == report


def test_one_line_per_pair_and_phase(finished: tuple[Path, dict[str, Any], list[str]]) -> None:
    """M46: progress can be followed from a log: `sealed rooms-017 ALL 0.8 s (31/144)`."""
    _, report, said = finished
    sealing = [line for line in said if re.fullmatch(r"sealed ep-\w+ [A-Z+_]+ \d+\.\d s \(\d+/12\)", line)]
    scoring = [line for line in said if re.fullmatch(r"scored ep-\w+ [A-Z+_]+ \d+\.\d s \(\d+/18\)", line)]
    assert len(sealing) == len(scoring) == 12
    assert said == sealing + scoring
    assert len(report["records"]) == 18


def test_commit_before_reveal(finished: tuple[Path, dict[str, Any], list[str]]) -> None:
    """M70: the last seal stands before the first vault; each opening repeats the hash that was committed to."""
    chain = events(finished[0])
    names = [event["event"] for event in chain]
    assert max(n for n, name in enumerate(names) if name == "sealed") < names.index("vault_opened")
    hashes = {event["data"]["pair_id"]: event["data"]["state_hash"] for event in chain if event["event"] == "sealed"}
    opened = [event["data"] for event in chain if event["event"] == "vault_opened"]
    assert len(opened) == len(hashes) == 12
    assert all(row["state_hash"] == hashes[row["pair_id"]] for row in opened)
    assert names[0] == "registered"
    assert names[-1] == "finished"


def test_records(finished: tuple[Path, dict[str, Any], list[str]], world: World) -> None:
    """M47, M48: exact fields; every arm observed the same frames, warm-up and stream in order, whatever it wrote."""
    out, report, _ = finished
    online = {one.episode_id: one.online.manifest for one in validate_episodes(load_episode_index(world[0]).select())}
    for path in sorted((out / "sealed/pairs").iterdir()):
        record = json.loads(path.read_bytes())
        assert set(record) == set(RECORD_KEYS)
        frames = online[record["episode_id"]].frames
        wanted = [
            {"frame_id": frame.frame_id, "digests": {"rgb": frame.rgb.sha256, "depth": frame.depth.sha256}}
            for frame in frames
            if frame.depth
        ]
        assert record["sealed"]["observed"] == wanted
        assert record["times"]["total_s"] == pytest.approx(sum(record["times"].values()) / 2)
        assert record["budget"]["operations"]["query_render"]["count"] == SMALL["queries"]
    assert set(report) == set(REPORT_KEYS)


def test_controls(finished: tuple[Path, dict[str, Any], list[str]]) -> None:
    """M82, M59: each control differs from its arm where it must, and CACHE is FUSE for an untrained gate."""
    report = finished[1]
    by_arm = {
        row["policy"]: row for row in report["records"] if row["episode_id"] == report["subset"]["episode_ids"][0]
    }
    hashes = {name: row["sealed"]["fast_state_hash"] for name, row in by_arm.items()}
    assert hashes["ALL+WRONG_SCENE"] != hashes["ALL"]
    assert hashes["FUSE+SHUFFLED_POSES"] != hashes["FUSE"]
    assert hashes["OFF+HARMONIC_FILL"] == hashes["CONSTANT_DEPTH"] == hashes["OFF"]
    error = {name: row["metrics"]["averages"]["depth_absrel"] for name, row in by_arm.items()}
    assert error["CACHE"] == pytest.approx(error["FUSE"], abs=1e-3)
    assert by_arm["CONSTANT_DEPTH"]["metrics"]["averages"]["coverage"] == 0.0
    assert by_arm["FUSE+HARMONIC_FILL"]["metrics"]["averages"]["coverage"] == 1.0
    assert {row["kind"] for name, row in by_arm.items() if name not in ("OFF", "FUSE", "ALL")} == {"control"}


def test_opened_files(finished: tuple[Path, dict[str, Any], list[str]], world: World) -> None:
    """M102: the log names every file below the data folder by phase: online ones while streaming, the vault after."""
    rows = [json.loads(line) for line in (finished[0] / "sealed/opened.jsonl").read_text().splitlines()]
    assert [row["phase"] for row in rows] == ["validate"] + ["stream"] * 10 + ["score"] * 12
    assert not any(row["refused"] for row in rows)
    source = validate_episodes(load_episode_index(world[0]).select(1))[0]
    root = world[0].parent.resolve()
    folder = source.online.folder.relative_to(root).as_posix()
    arrived = [
        f"{folder}/{asset.path}"
        for frame in source.online.manifest.frames
        for asset in (frame.rgb, frame.depth)
        if asset
    ]
    own = [row for row in rows if row["pair"] == f"{source.episode_id}@FUSE"]
    assert own[0]["paths"] == arrived
    assert {path.rsplit("/", 1)[0] for path in own[1]["paths"]} == {source.vault.folder.relative_to(root).as_posix()}
    assert rows[0]["paths"][0].endswith("online.json")


def test_times_are_described(own_world: World, tmp_path: Path) -> None:
    """M93: seconds of decoding, adapting and scoring come from one clock that counts each stretch once."""
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    source = validate_episodes(load_episode_index(own_world[0]).select(1))[0]
    with single_thread():
        equipment = phases.Equipment.load(settings_of(own_world))
        job = phases.StreamJob(source.online, sealed_stream.Arm("OFF", "OFF"), 1)
        result = phases.stream_pair(equipment, job, lambda *_: None, clock)
    assert result.seal["decode_s"] == 3.0  # the warm-up at once, then two arrivals: one tick each
    assert result.seal["adapt_s"] > 3.0
    assert result.seal["adapt_s"] + result.seal["decode_s"] < now[0]


# -- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after", [3, 9, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4, 5, 6, 7, 8, 10, 11))]
)
def test_resume_equals_no_interruption(
    after: int, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M44: stopped after any pair of either phase and started again, a run ends in the same result."""
    remembered(monkeypatch)
    more = {"controls": ["HARMONIC_FILL", "CACHE"]}
    whole = run_sealed(world, tmp_path / "whole", **more)
    out = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run_sealed(world, out, say=stopping(after), **more)
    assert not (out / "report.json").exists()
    assert run_sealed(world, out, **more)["result_digest"] == whole["result_digest"]
    names = [event["event"] for event in events(out)]
    assert names.count("sealed") == 6
    assert names.count("scored") == len(whole["records"])


def test_full_record_left_by_a_kill(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M43, M44: killed between a full record and its line, the run takes the record up and scores nothing twice."""
    remembered(monkeypatch)
    whole = run_sealed(world, tmp_path / "whole")
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_sealed(world, out, say=stopping(5))
    lines = (out / "records.jsonl").read_text().splitlines(keepends=True)
    (out / "records.jsonl").write_text("".join(lines[:-1]))
    assert run_sealed(world, out)["result_digest"] == whole["result_digest"]


def test_order_changes_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M103: the order in which policies and controls are named changes no byte outside times, nor the run id."""
    remembered(monkeypatch)
    monkeypatch.chdir(tmp_path)
    one = run_sealed(world, tmp_path / "one", controls=["CACHE", "CONSTANT_DEPTH"])
    other = run_sealed(world, tmp_path / "other", policies=["FUSE", "OFF"], controls=["CONSTANT_DEPTH", "CACHE"])
    assert one["result_digest"] == other["result_digest"]
    assert one["run_id"] == other["run_id"]


@pytest.mark.slow
def test_processes_change_nothing(world: World, tmp_path: Path) -> None:
    """M44, M92, M103: one, two and no worker processes, and a resume with another number, end in the same result."""
    here = run_sealed(world, tmp_path / "here")
    assert run_sealed(world, tmp_path / "one", workers=1)["result_digest"] == here["result_digest"]
    with pytest.raises(KeyboardInterrupt):
        run_sealed(world, tmp_path / "two", workers=2, say=stopping(1))
    assert run_sealed(world, tmp_path / "two", workers=2)["result_digest"] == here["result_digest"]


def test_inline_needs_one_thread(world: World, tmp_path: Path) -> None:
    """M92: a process that computes with more threads is refused, never changed behind its back."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(UsageError, match="one_thread"):
            sealed_stream.evaluate_sealed_stream(
                load_episode_index(world[0]), world[1], tmp_path / "out", workers=0, **SMALL
            )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


# -- never overwritten, registered ------------------------------------------------------------------------------------


def test_finished_runs_stay(finished: tuple[Path, dict[str, Any], list[str]], world: World) -> None:
    """M42, F41: a folder with a report is never written again."""
    before = (finished[0] / "report.json").read_bytes()
    with pytest.raises(AlreadyThereError, match="never overwritten"):
        run_sealed(world, finished[0])
    assert (finished[0] / "report.json").read_bytes() == before


def test_other_run_in_the_folder(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M42: an unfinished folder goes on only as the same run; what differs is listed with both values."""
    remembered(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run_sealed(world, tmp_path / "out", say=stopping(1))
    with pytest.raises(AlreadyThereError, match=r"residual_threshold: the folder has 0\.03, this run has 0\.5"):
        run_sealed(world, tmp_path / "out", residual_threshold=0.5)


def test_registration_file(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M41: a run agrees with its registration in every value, or starts nothing; an edited file is refused."""
    remembered(monkeypatch)
    given = {"policies": ["OFF", "FUSE"], "render_samples": 16, **SMALL}
    run = sealed_stream.check_run(load_episode_index(world[0]), world[1], tmp_path / "out", **given)
    file = tmp_path / "registration.json"
    run_id = write_registration(file, run.registration)
    assert run_id == run_id_of(read_registration(file))
    with pytest.raises(UsageError, match="residual_threshold: registered is"):
        run_sealed(world, tmp_path / "out", registration=file, residual_threshold=0.5)
    assert not (tmp_path / "out").exists()
    assert run_sealed(world, tmp_path / "out", registration=file)["run_id"] == run_id
    file.write_text(file.read_text().replace('"residual_threshold": 0.03', '"residual_threshold": 0.04'))
    with pytest.raises(IntegrityError, match="edited"):
        read_registration(file)


def test_every_value_has_its_own_id(world: World, tmp_path: Path) -> None:
    """M41: each field of a registration changes the run id; a parent is one of them."""
    run = sealed_stream.check_run(load_episode_index(world[0]), world[1], tmp_path / "out", **SMALL)
    own = run_id_of(run.registration)
    ids = {run_id_of({**run.registration, key: "another"}) for key in run.registration}
    assert len(ids) == len(run.registration)
    assert own not in ids
    child = sealed_stream.check_run(load_episode_index(world[0]), world[1], tmp_path / "out", parent=own, **SMALL)
    grand = run_id_of({**child.registration, "parent": run_id_of(child.registration)})
    assert len({own, run_id_of(child.registration), grand}) == 3


@pytest.mark.parametrize(("commit", "dirty", "word"), [("c0ffee", True, "not committed"), (None, None, "unknown")])
def test_official_needs_clean_code(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str | None, dirty: bool | None, word: str
) -> None:
    """M41, F43, EF39: an official registration is only made of code that can be found again."""
    from skidpad.evaluation import sealed_registration

    real = sealed_registration.environment
    monkeypatch.setattr(
        sealed_registration, "environment", lambda threads: {**real(threads), "commit": commit, "dirty": dirty}
    )
    with pytest.raises(UsageError, match=word):
        sealed_stream.check_run(load_episode_index(world[0]), world[1], tmp_path / "out", kind="official", **SMALL)


def test_state_cap(world: World, tmp_path: Path) -> None:
    """M46, F56: the disk that waiting states need is known before the run, which is refused above the cap."""
    with pytest.raises(UsageError, match="state_cap_mib = 1"):
        run_sealed(world, tmp_path / "out", state_cap_mib=1)
    assert not (tmp_path / "out").exists()


def test_subset(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M32: a prefix of the index; what was asked for, selected and there is in the report."""
    report = run_sealed(world, tmp_path / "out", max_episodes=1, policies=["OFF"])
    first = json.loads(world[0].read_text())["episodes"][0]["episode_id"]
    assert report["subset"] == {"requested": 1, "selected": 1, "available": 2, "episode_ids": [first]}
    with pytest.raises(UsageError, match="at least 2 episodes"):
        run_sealed(world, tmp_path / "two", max_episodes=1, policies=["OFF", "ALL"], controls=["WRONG_SCENE"])


# -- planted faults ---------------------------------------------------------------------------------------------------


class Reader(Fixed):
    """FUSE that opens a file at its first choice, and hides the error."""

    def __init__(self, path: Path) -> None:
        super().__init__(Action.FUSE)
        object.__setattr__(self, "path", path)

    def choose(self, feedback: Feedback, feasible: Any) -> Action:
        with contextlib.suppress(RefusedError):
            self.path.read_bytes()  # type: ignore[attr-defined]
        return Action.FUSE


@pytest.mark.parametrize("which", ["vault", "next frame"])
def test_leaks_are_refused(which: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M84, M45, F53: a mapper that opens its vault, or a frame that has not arrived, is refused; the others finish."""
    source = validate_episodes(load_episode_index(world[0]).select(1))[0]
    last = source.online.manifest.stream[-1]
    path = source.vault.folder / "vault.json" if which == "vault" else source.online.folder / last.rgb.path
    real = make_policy
    monkeypatch.setattr(
        phases, "make_policy", lambda name, **more: Reader(path) if name == "FUSE" else real(name, **more)
    )
    out = tmp_path / "out"
    report = run_sealed(world, out)
    status = {row["pair_id"].split("@")[1]: row["status"] for row in report["records"]}
    assert status == {"OFF": "ok", "FUSE": "refused"}
    assert report["status"] == "incomplete"
    assert sealed_stream.exit_code(report) == 1
    refused = [event["data"] for event in events(out) if event["event"] == "refused"]
    assert {row["error"]["type"] for row in refused} == {"RefusedError"}
    assert path.name in refused[0]["error"]["message"]


class Editing(Gate):
    """A gate that changes its own weights at the third write."""

    calls = 0

    def forward(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            next(self.parameters()).data.add_(1.0)
        return super().forward(*arguments)


def test_edited_weights_are_refused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M84, M69, F51: slow weights that change while streaming are found at the seal; no vault opens for them."""
    real = load_mapper

    def load(path: Path, device: str = "cpu") -> Any:
        mapper = real(path, device)
        gate = Editing()
        gate.load_state_dict(mapper.write_rule.state_dict())
        gate.eval().requires_grad_(False)
        return replace(mapper, write_rule=gate)

    monkeypatch.setattr(phases, "load_mapper", load)
    out = tmp_path / "out"
    report = run_sealed(world, out)
    by_arm = {row["policy"]: row for row in report["records"]}
    assert by_arm["FUSE"]["status"] == "refused"
    assert "edited while streaming" in by_arm["FUSE"]["error"]["message"]
    opened = {event["data"]["pair_id"] for event in events(out) if event["event"] == "vault_opened"}
    assert all(not pair.endswith("FUSE") for pair in opened)


def test_one_crash_leaves_the_others(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M45: a policy that raises on the second episode is one crashed pair, with its traceback; the rest is scored."""
    real, seen = make_policy, [0]

    class Raising(Fixed):
        def choose(self, feedback: Feedback, feasible: Any) -> Action:
            seen[0] += 1
            if seen[0] > SMALL["stream"]:
                raise ZeroDivisionError("planted")
            return Action.FUSE

    monkeypatch.setattr(
        phases, "make_policy", lambda name, **more: Raising(Action.FUSE) if name == "FUSE" else real(name, **more)
    )
    report = run_sealed(world, tmp_path / "out", controls=["HARMONIC_FILL"])
    status = [(row["policy"], row["status"]) for row in report["records"]]
    assert status == [
        *(("OFF", "ok"), ("FUSE", "ok"), ("OFF+HARMONIC_FILL", "ok"), ("FUSE+HARMONIC_FILL", "ok")),
        *(("OFF", "ok"), ("FUSE", "crashed"), ("OFF+HARMONIC_FILL", "ok"), ("FUSE+HARMONIC_FILL", "crashed")),
    ]
    failed = next(row for row in report["records"] if row["status"] == "crashed")
    assert "ZeroDivisionError: planted" in failed["error"]["traceback"]
    assert report["status"] == "incomplete"


def test_changed_state_keeps_its_vault_shut(own_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M72, F52: a waiting state that is not the sealed one ends the run, before its vault is opened."""
    remembered(monkeypatch)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_sealed(own_world, out, say=stopping(3))
    state = sorted((out / "sealed/states").iterdir())[0]
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match="not the state that was sealed"):
        run_sealed(own_world, out)
    assert all(event["data"].get("pair_id") != state.stem for event in events(out) if event["event"] == "vault_opened")
    assert not (out / "report.json").exists()


def test_state_of_another_hash_or_vault(own_world: World) -> None:
    """M72: inside a worker the same is checked again: the chained hash, the vault's ids, and no shown query."""
    one, other = validate_episodes(load_episode_index(own_world[0]).select())
    with single_thread():
        equipment = phases.Equipment.load(settings_of(own_world))
        job = phases.StreamJob(one.online, sealed_stream.Arm("OFF", "OFF"), 1)
        sealed = phases.stream_pair(equipment, job, lambda *_: None)
    assert sealed.state is not None
    state_hash = sealed.seal["state_hash"]
    with pytest.raises(IntegrityError, match="the chain says"):
        phases.open_and_render(sealed.state, "0" * 64, one.vault, "p", "cpu")
    with pytest.raises(IntegrityError, match="the vault has"):
        phases.open_and_render(sealed.state, state_hash, other.vault, "p", "cpu")
    query = one.vault.manifest.queries[0].model_copy(update={"frame_id": one.online.manifest.stream[0].frame_id})
    shown = replace(one.vault, manifest=one.vault.manifest.model_copy(update={"queries": [query]}))
    with pytest.raises(RefusedError, match="were observed"):
        phases.open_and_render(sealed.state, state_hash, shown, "p", "cpu")


@pytest.mark.parametrize("which", ["online", "vaults"])
def test_swapped_images(which: str, own_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M28, F48: an image changed after validation is found on the bytes that are decoded; that pair gets no score."""
    path = sorted((own_world[0].parent / "dev" / which).rglob("*.npy"))[0]
    real = sealed_stream.check_run

    def check(*arguments: Any, **more: Any) -> Any:
        run = real(*arguments, **more)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(bytes(data))
        return run

    monkeypatch.setattr(sealed_stream, "check_run", check)
    out = tmp_path / "out"
    with pytest.raises(IntegrityError, match="digest"):
        run_sealed(own_world, out)
    assert not (out / "report.json").exists()
    assert which == "vaults" or all(event["event"] != "vault_opened" for event in events(out))


def test_nothing_is_added_after_the_first_vault(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M70: once a vault was opened a pair without a seal cannot be made any more."""
    remembered(monkeypatch)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_sealed(world, out, say=stopping(5))
    chain = events(out)
    gone = next(event for event in chain if event["event"] == "sealed")["data"]["pair_id"]
    real = sealed_stream._Book._note

    def note(self: Any, event: str, data: Any, link: str) -> None:
        if not (event == "sealed" and data["pair_id"] == gone):
            real(self, event, data, link)

    monkeypatch.setattr(sealed_stream._Book, "_note", note)
    with pytest.raises(IntegrityError, match="vaults were opened already"):
        run_sealed(world, out)


def test_attempts(own_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M73: the second run of the same vaults says that they were opened once before; a broken ledger is said too."""
    remembered(monkeypatch)
    first = run_sealed(own_world, tmp_path / "first")["attempts"]
    second = run_sealed(own_world, tmp_path / "second")["attempts"]
    assert (set(first["before"].values()), first["ledger"]) == ({0}, "ok")
    assert (set(second["before"].values()), second["ledger"]) == ({1}, "ok")
    ledger = own_world[0].parent / "attempts.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[1:]))
    assert run_sealed(own_world, tmp_path / "third")["attempts"]["ledger"] == "broken"


def test_jobs_of_phase_one_know_no_vault(world: World) -> None:
    """M48: what is sent to a worker that streams holds no path of a vault."""
    import pickle

    source = validate_episodes(load_episode_index(world[0]).select(1))[0]
    job = phases.StreamJob(source.online, sealed_stream.Arm("OFF", "OFF"), 1)
    data = pickle.dumps(job)
    assert b"vaults" not in data
    assert source.vault.vault_root.encode() not in data
