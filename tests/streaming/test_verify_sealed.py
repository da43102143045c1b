"""Verification catches whatever somebody changes in a finished sealed run, its data or its weights (M98, M99)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from episode_folders import manifest_path, rewrite_index
from sealed_runs import make_world, run_sealed

from skidpad.cli import run as command_line
from skidpad.errors import UsageError
from skidpad.evaluation.verify import Findings, drawn, verify_run
from skidpad.reporting.sealed_page import sealed_page
from skidpad.streaming.mapper_file import Carrier, RenderProtocol, binding_for, load_mapper, save_mapper, save_writer
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.write_rule import Gate
from skidpad.streaming.writer import Writer

RENDER = RenderProtocol(16, 2048)
TEACHER = {"data_digest": "0" * 64, "scene_ids": ["sc-9"], "price": 0.0}


class World(NamedTuple):
    """A finished run with the data and the weights it was made from."""

    run: Path
    data: Path
    weights: Path

    def verify(self, **options: Any) -> Findings:
        return verify_run(self.run, page=sealed_page, **options)

    def json(self, name: str) -> Any:
        return json.loads((self.run / name).read_text())

    def edit(self, name: str, change: Callable[[Any], None]) -> None:
        """Change a JSON file of the run, written as the run writes it."""
        value = self.json(name)
        change(value)
        text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
        (self.run / name).write_text(text)

    def lines(self, name: str, change: Callable[[list[str]], list[str]]) -> None:
        """Change the lines of a file of the run."""
        path = self.run / name
        path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))

    def replace(self, name: str, old: str, new: str) -> None:
        """Change the first occurrence of a text, which must be there."""
        path = self.run / name
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new, 1))

    def pair(self, arm: str = "FUSE", number: int = 0) -> str:
        """Path of a record in the run."""
        episode = self.json("report.json")["subset"]["episode_ids"][number]
        return f"sealed/pairs/{episode}@{arm}.json"


@pytest.fixture(scope="session")
def verified(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three rooms with four policies, one of them learned, and four controls; nobody may change it."""
    folder = tmp_path_factory.mktemp("verified")
    index, mapper = make_world(folder, count=3)
    weights = folder / "weights"
    weights.mkdir()
    mapper = mapper.rename(weights / mapper.name)
    network = Writer()
    save_writer(
        weights / "writer.safetensors", network, binding_for(load_mapper(mapper), RENDER, 1e12, network.units), TEACHER
    )
    run_sealed(
        (index, mapper),
        folder / "run",
        policies=["OFF", "FUSE", "ALL", "LEARNED"],
        controls=["CACHE", "CONSTANT_DEPTH", "HARMONIC_FILL", "WRONG_SCENE"],
        writer=str(weights / "writer.safetensors"),
        page=sealed_page,
    )
    return World(folder / "run", index.parent, weights)


@pytest.fixture
def world(verified: World, tmp_path: Path) -> World:
    """A copy of the run that a test may change; data and weights are the shared ones."""
    shutil.copytree(verified.run, tmp_path / "run")
    return World(tmp_path / "run", verified.data, verified.weights)


@pytest.fixture
def everything(world: World, tmp_path: Path) -> World:
    """A copy of the run, its data and its weights."""
    shutil.copytree(world.data, tmp_path / "data")
    shutil.copytree(world.weights, tmp_path / "weights")
    return World(world.run, tmp_path / "data", tmp_path / "weights")


def flip(path: Path, at: int = -1) -> None:
    """Turn one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def restored(world: World, verified: World) -> None:
    """A changed folder is one that holds as soon as the first one is put back."""
    shutil.rmtree(world.run)
    shutil.copytree(verified.run, world.run)


def test_a_clean_run_holds(verified: World) -> None:
    """Everything is derived again without a difference, with data, weights and two pairs run once more (M98)."""
    found = verified.verify(assets=verified.data, checkpoints=verified.weights, replay=2)
    assert found.problems == []
    assert found.notes == []
    assert found.exit_code == 0
    assert any("2 pairs run again" in line for line in found.done)


def test_the_verb(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`skidpad verify` says what it checked and leaves with 0, 3 for a change, 2 for a folder that is no run (M96)."""
    assert command_line(["verify", str(world.run)]) == 0
    assert "all holds" in capsys.readouterr().out
    flip(world.run / world.pair())
    assert command_line(["verify", str(world.run)]) == 3
    assert "does not hold" in capsys.readouterr().out
    assert command_line(["verify", str(world.run.parent)]) == 2
    assert command_line(["verify", str(world.run), "--replay", "1"]) == 2


def test_an_interrupted_run_is_consistent_and_incomplete(world: World) -> None:
    """A run without its end holds as far as it goes: exit 1, not 3 (M98)."""
    for name in ("report.json", "report.html"):
        (world.run / name).unlink()
    world.lines("chain.jsonl", lambda lines: lines[:-1])
    found = world.verify()
    assert found.problems == []
    assert found.exit_code == 1


def without_worst_scene(world: World) -> None:
    """Take a scene out of records and report as somebody would who wants a better figure."""
    episode = world.json("report.json")["subset"]["episode_ids"][0]
    scene = world.json(world.pair())["scene_id"]
    for path in (world.run / "sealed" / "pairs").glob(f"{episode}@*.json"):
        path.unlink()
    world.lines("records.jsonl", lambda lines: [line for line in lines if episode not in line])

    def change(report: Any) -> None:
        report["records"] = [row for row in report["records"] if row["episode_id"] != episode]
        report["scenes"] = [row for row in report["scenes"] if row["scene_id"] != scene]

    world.edit("report.json", change)


def swap(items: list[str], a: int, b: int) -> list[str]:
    """The items with two exchanged."""
    items[a], items[b] = items[b], items[a]
    return items


def position(lines: list[str], event: str) -> int:
    """Place of the first chain line of an event."""
    return next(number for number, line in enumerate(lines) if f'"event":"{event}"' in line)


def in_manifest(change: Callable[[Any], None]) -> Callable[[World], None]:
    """A change of the registration in the manifest."""

    def tamper(world: World) -> None:
        value = world.json("manifest.json")
        change(value["identity"]["registration"])
        (world.run / "manifest.json").write_text(
            json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        )

    return tamper


def in_both(change: Callable[[Any], None]) -> Callable[[World], None]:
    """The same change of the registration in manifest and report."""

    def tamper(world: World) -> None:
        in_manifest(change)(world)
        world.edit("report.json", lambda report: change(report["registration"]))

    return tamper


def set_at(*path: Any, value: Any) -> Callable[[Any], None]:
    """Sets a value inside a tree."""

    def change(tree: Any) -> None:
        for key in path[:-1]:
            tree = tree[key]
        assert tree[path[-1]] != value
        tree[path[-1]] = value

    return change


def report_at(*path: Any, value: Any) -> Callable[[World], None]:
    """Sets a value inside report.json."""
    return lambda world: world.edit("report.json", set_at(*path, value=value))


def record_at(*path: Any, value: Any) -> Callable[[World], None]:
    """Sets a value inside one record."""
    return lambda world: world.edit(world.pair(), set_at(*path, value=value))


def swap_records(world: World) -> None:
    """Two records under each other's names."""
    a, b = (world.run / world.pair("FUSE", number) for number in (0, 1))
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def opened_first(world: World) -> None:
    """The first opened vault before the last seal."""

    def change(lines: list[str]) -> list[str]:
        at = position(lines, "vault_opened")
        return swap(lines, at - 1, at)

    world.lines("chain.jsonl", change)


def table_cell(world: World) -> None:
    """One figure of the summary."""

    def change(lines: list[str]) -> list[str]:
        cells = lines[2].split(",")
        cells[8] = "0.001"
        return [*lines[:2], ",".join(cells), *lines[3:]]

    world.lines("sealed/summary.csv", change)


def control_dropped(world: World) -> None:
    """CACHE gone from records, lines and report, as if it had not run."""
    for path in (world.run / "sealed" / "pairs").glob("*@CACHE.json"):
        path.unlink()
    world.lines("records.jsonl", lambda lines: [line for line in lines if '"arm":"CACHE"' not in line])

    def change(report: Any) -> None:
        report["records"] = [row for row in report["records"] if row["policy"] != "CACHE"]
        report["summaries"] = [row for row in report["summaries"] if row["arm"] != "CACHE"]

    world.edit("report.json", change)


def more_attempts(report: Any) -> None:
    """Every vault opened seven times before."""
    report["attempts"]["before"] = dict.fromkeys(report["attempts"]["before"], 7)


TAMPERINGS: dict[str, tuple[Callable[[World], None], str]] = {
    "1 byte in a record": (lambda w: flip(w.run / w.pair(), 400), "changed after|fields|unexpected|not JSON"),
    "2 record deleted": (lambda w: (w.run / w.pair()).unlink(), "its record is gone"),
    "3 records swapped": (swap_records, "holds the record of"),
    "4 worst scene dropped": (without_worst_scene, "registration asks for it"),
    "5 line appended": (lambda w: w.lines("records.jsonl", lambda rows: [*rows, rows[-1]]), "records.jsonl"),
    "6 CSV cell": (table_cell, "summary.csv: is not the table"),
    "7 CSV column": (lambda w: w.replace("sealed/queries.csv", "placement", "place"), "queries.csv: is not the table"),
    "8 report mean": (report_at("summaries", 1, "metrics", "depth_absrel", "mean", value=0.01), r"depth_absrel\.mean"),
    "9 interval": (report_at("summaries", 1, "metrics", "depth_absrel", "low", value=-0.9), r"depth_absrel\.low"),
    "10 verdict word": (report_at("summaries", 1, "verdict", value="better"), r"summaries\[1\]\.verdict"),
    "12 chain line edited": (lambda w: w.replace("chain.jsonl", '"event":"sealed"', '"event":"refused"'), "was edited"),
    "13 chain line removed": (lambda w: w.lines("chain.jsonl", lambda rows: rows[:3] + rows[4:]), "does not follow"),
    "14 chain lines reordered": (lambda w: w.lines("chain.jsonl", lambda rows: swap(rows, 3, 4)), "does not follow"),
    "15 chain tail cut": (lambda w: w.lines("chain.jsonl", lambda rows: rows[:-1]), "head of chain|end of the run"),
    "16 registration edited": (in_manifest(set_at("residual_threshold", value=0.5)), "run id is not"),
    "17 run id kept": (in_both(set_at("shuffle_seed", value=99)), "run id is not"),
    "18 bootstrap seed": (in_both(set_at("bootstrap", "seed", value=5)), "run id is not"),
    "19 minimum effect": (in_both(set_at("primary", "minimum_effect", value=0.2)), "run id is not"),
    "20 metric version": (in_both(set_at("metrics", "depth_absrel", value=2)), "other versions"),
    "24 action in the history": (record_at("history", 0, "action", value="ALL"), "not those of its history"),
    "25 ledger units": (record_at("budget", "operations", "fuse", "units", value=1), "add up to"),
    "26 state hash": (record_at("sealed", "state_hash", value="0" * 64), "not the one that was sealed"),
    "27 observed reordered": (
        lambda w: w.edit(w.pair(), lambda record: record["sealed"]["observed"].reverse()),
        "not the one that was scored",
    ),
    "33 opened before sealed": (opened_first, "does not follow"),
    "35 control dropped": (control_dropped, "@CACHE: the registration asks for it"),
    "36 PSNR above the cap": (
        record_at("metrics", "per_query", 0, "metrics", "rgb_psnr", "value", value=61.0),
        "outside its range",
    ),
    "37 number in the page": (lambda w: w.replace("report.html", "<td>0.", "<td>9."), "report.html: is not the page"),
    "38 thread count": (report_at("environment", "threads", "intra_op", value=8), "environment.threads"),
    "39 extra file": (lambda w: (w.run / "sealed" / "notes.txt").write_text("x") and None, "no file of this run"),
    "40 attempts": (lambda w: w.edit("report.json", more_attempts), "attempts"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_with_the_run_is_found(name: str, world: World) -> None:
    """Each change of the folder alone is exit 3, with a line that says where (M99)."""
    tamper, words = TAMPERINGS[name]
    tamper(world)
    found = world.verify()
    assert found.exit_code == 3
    assert re.search(words, "\n".join(found.problems)), found.problems


def test_a_restored_run_holds_again(world: World, verified: World) -> None:
    """Verification keeps nothing: put back what was, and all holds (M99)."""
    without_worst_scene(world)
    assert world.verify().exit_code == 3
    restored(world, verified)
    assert world.verify().exit_code == 0


@pytest.fixture(scope="session")
def starved(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two rooms in which ALL has too few units, and is refused."""
    folder = tmp_path_factory.mktemp("starved")
    index, mapper = make_world(folder)
    report = run_sealed((index, mapper), folder / "run", policies=["OFF", "ALL"], max_units=1.5e7, page=sealed_page)
    assert {row["policy"]: row["status"] for row in report["records"]} == {"OFF": "ok", "ALL": "refused"}
    return World(folder / "run", index.parent, folder)


def test_refused_pairs(starved: World, tmp_path: Path) -> None:
    """(11) incomplete made complete and (34) a refused pair deleted are found; as it was it is exit 1 (M98, M99)."""
    assert starved.verify().exit_code == 1
    copies = []
    for number in range(2):
        shutil.copytree(starved.run, tmp_path / str(number))
        copies.append(World(tmp_path / str(number), starved.data, starved.weights))
    copies[0].edit("report.json", set_at("status", value="complete"))
    found = copies[0].verify()
    assert found.exit_code == 3
    assert any("report.status" in line for line in found.problems)
    refused = copies[1].pair("ALL")
    (copies[1].run / refused).unlink()
    found = copies[1].verify()
    assert found.exit_code == 3
    assert any("was scored, and its record is gone" in line for line in found.problems)


def first_asset(world: World, which: str, kind: str) -> Path:
    """Path of an array of the first episode: `online` or `vault`, by the beginning of its name."""
    manifest = manifest_path(world.data / "index.json", which)
    return next(path for path in sorted(manifest.parent.glob("*.npy")) if path.name.startswith(kind))


def remove_entry(world: World) -> None:
    """An index without its last episode, with a root that holds."""
    index = world.data / "index.json"
    value = json.loads(index.read_text())
    value["episodes"].pop()
    rewrite_index(index, value)


def exchange_vault(world: World) -> None:
    """Two vault folders under each other's names."""
    a, b = (manifest_path(world.data / "index.json", "vault", number).parent for number in (0, 1))
    other = a.with_name("other")
    a.rename(other)
    b.rename(a)
    other.rename(b)


ASSETS: dict[str, tuple[Callable[[World], None], str]] = {
    "28 online image byte": (lambda w: flip(first_asset(w, "online", "rgb")), "not the file that the manifest names"),
    "29 query image byte": (lambda w: flip(first_asset(w, "vault", "rgb")), "not the file that the manifest names"),
    "30 seen mask": (lambda w: flip(first_asset(w, "vault", "seen")), "not the file that the manifest names"),
    "31 index entry removed": (remove_entry, "registered is"),
    "32 vault exchanged": (exchange_vault, "vault"),
}


@pytest.mark.parametrize("name", ASSETS)
def test_tampering_with_the_data_is_found(name: str, everything: World) -> None:
    """With --assets each change of the dataset is exit 3; without, the run folder alone still holds (M98, M99)."""
    tamper, words = ASSETS[name]
    tamper(everything)
    found = everything.verify(assets=everything.data)
    assert found.exit_code == 3
    assert any(words in line for line in found.problems), found.problems


def other_mapper(world: World) -> None:
    """The mapper's file is that of another one."""
    path = world.weights / "mapper.safetensors"
    path.unlink()
    gate = Gate()
    for parameter in gate.parameters():
        parameter.data += 0.01
    save_mapper(path, Carrier(PRESETS["embedded"], "harmonic"), gate)


def other_writer(world: World, max_units: float = 1e12, shift: float = 0.01) -> None:
    """The writer's file is that of another one, or of the same with another budget."""
    path = world.weights / "writer.safetensors"
    path.unlink()
    network = Writer()
    for parameter in network.parameters():
        parameter.data += shift
    save_writer(
        path,
        network,
        binding_for(load_mapper(world.weights / "mapper.safetensors"), RENDER, max_units, network.units),
        TEACHER,
    )


WEIGHTS: dict[str, tuple[Callable[[World], None], str]] = {
    "21 mapper exchanged": (other_mapper, "no file is the registered mapper"),
    "22 writer exchanged": (other_writer, "no file is the registered writer"),
    "23 max_units of the binding": (lambda w: other_writer(w, 1e11), "no file is the registered writer"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_tampering_with_the_weights_is_found(name: str, everything: World) -> None:
    """With --checkpoints an exchanged file is exit 3 (M98, M99)."""
    tamper, words = WEIGHTS[name]
    tamper(everything)
    found = everything.verify(checkpoints=everything.weights)
    assert found.exit_code == 3
    assert any(words in line for line in found.problems), found.problems


def test_all_forty_are_there() -> None:
    """Every tampering of the list has its test: 11 and 34 in a test of their own."""
    numbers = {int(name.split()[0]) for table in (TAMPERINGS, ASSETS, WEIGHTS) for name in table}
    assert numbers | {11, 34} == set(range(1, 41))


def test_drawing_depends_on_the_head_alone() -> None:
    """Which pairs are run again follows from the chain head, whatever order they are listed in (M98)."""
    pairs = [f"ep-{n}@FUSE" for n in range(20)]
    assert drawn(pairs, 3, "a") == drawn(pairs[::-1], 3, "a")
    assert len({tuple(drawn(pairs, 3, head)) for head in "abcdef"}) > 1
    assert len(drawn(pairs, 99, "a")) == 20


def test_replay_needs_both(verified: World) -> None:
    """Running pairs again without data or weights is refused by a sentence (M98)."""
    with pytest.raises(UsageError, match="--assets and --checkpoints"):
        verified.verify(replay=1)
