"""Record files: nothing finished is lost, nothing half-written is read, and order does not matter."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from skidpad.errors import IntegrityError
from skidpad.runs.records import Record, RecordFile, deterministic, merge, parse_record, read_records


def example(case: str = "aaaa", arm: str = "idm", *, seconds: float = 1.0, value: float = 0.5) -> Record:
    return Record(
        evaluator="validation",
        epoch=0,
        step=0,
        checkpoint="",
        case=case,
        arm=arm,
        case_index=0,
        scene_id="<script>\u2028 \n",
        scene_digest="d" * 64,
        seed=2**64 - 1,
        benchmark_seed=0,
        replicate=0,
        ego=-1,
        ego_rule="",
        status="ok",
        error=None,
        result={"n_agents": 2, "steps": 9, "metrics": {"score": {"value": value, "valid": True}}},
        cost={"seconds": seconds, "host": "here"},
    )


def test_a_line_reads_back_as_the_record() -> None:
    """E97: every field survives, the 64-bit seed exactly, hostile names as they are, on one line."""
    record = example()
    assert "\n" not in record.line()
    assert parse_record(record.line(), "x") == record


def test_non_finite_numbers_never_reach_a_file() -> None:
    """E97, style 8.4: a NaN that becomes null and then 0 two tools later is how scores are invented."""
    with pytest.raises(ValueError, match="JSON"):
        example(value=float("nan")).line()


def test_cost_is_no_part_of_the_promise() -> None:
    """E97: times differ between equal runs; everything else must not."""
    assert deterministic(example(seconds=1.0)) == deterministic(example(seconds=2.0))
    assert deterministic(example(value=0.5)) != deterministic(example(value=0.25))


def test_torn_last_line_at_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E98, F42: cut at any byte of the last two lines, the whole lines before the cut remain, the torn one is cut and
    counted, and appending goes on from there."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a thousand openings; durability is not the question
    path = tmp_path / "records.jsonl"
    lines = [example(case).line().encode() + b"\n" for case in ("aaaa", "bbbb", "cccc")]
    whole = b"".join(lines)
    for length in range(len(lines[0]), len(whole) + 1):
        path.write_bytes(whole[:length])
        kept = 1 + (length >= len(lines[0] + lines[1])) + (length >= len(whole))
        readers = list(read_records(path))
        assert len(readers) == kept
        file = RecordFile(path)
        assert len(file.records) == kept
        assert file.torn_bytes == length - sum(len(line) for line in lines[:kept])
        file.append(example("zzzz"))
        file.close()
        assert [record.case for record in read_records(path)] == [*("aaaa", "bbbb", "cccc")[:kept], "zzzz"]


def test_damage_further_up_is_an_integrity_error(tmp_path: Path) -> None:
    """F42: only the last line can be torn by a kill; a broken line above it was edited, and is not skipped."""
    path = tmp_path / "records.jsonl"
    good = example().line()
    for bad in (good[:-20], "{}", "[]", good.replace('"status":"ok"', '"status":"fine"'), good + '{"x":1}'):
        path.write_text(f"{bad}\n{example('bbbb').line()}\n")
        with pytest.raises(IntegrityError, match=r"records\.jsonl:1"):
            RecordFile(path)


def test_duplicate_keys_in_a_line_are_refused() -> None:
    """Writing rule 4: JSON readers take the last of two equal keys, so a line could say two things."""
    with pytest.raises(IntegrityError, match="duplicate key"):
        parse_record(example().line().replace('"step":0', '"step":0,"step":1'), "x")


def test_merging_forgets_order_and_doubles() -> None:
    """E47: shards arrive in any order and may overlap; the table is the same."""
    records = [example(case, arm) for case in ("bbbb", "aaaa", "cccc") for arm in ("log", "idm")]
    expected = list(merge(records))
    for seed in range(10):
        shuffled = [*records, *records[:3]]
        random.Random(seed).shuffle(shuffled)
        assert list(merge(shuffled)) == expected
    assert [key.case for key in expected] == ["aaaa", "aaaa", "bbbb", "bbbb", "cccc", "cccc"]


def test_conflicting_records_are_an_error_that_names_the_field() -> None:
    """E47: two results of one case mean that something is not deterministic; picking one would hide it."""
    with pytest.raises(IntegrityError, match=r"differ in result\.metrics\.score\.value"):
        merge([example(value=0.5), example(value=0.25)])
    merge([example(seconds=1.0), example(seconds=9.0)])


def test_a_key_is_written_once(tmp_path: Path) -> None:
    """Writing rule 5: the writer itself must not double a case; another checkpoint is another key."""
    file = RecordFile(tmp_path / "records.jsonl")
    file.append(example())
    with pytest.raises(IntegrityError, match="twice"):
        file.append(example())
    file.append(replace(example(), checkpoint="c" * 64))
    assert example().key in file
    file.close()
