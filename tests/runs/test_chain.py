"""The event chain: any change of what was written shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from skidpad.errors import IntegrityError
from skidpad.runs.chain import FIRST, Chain, read_chain


def chain_of(path: Path, count: int = 4) -> list[bytes]:
    chain = Chain(path, clock=lambda: 12.5)
    for number in range(count):
        chain.append("scored", {"number": number})
    chain.close()
    return path.read_bytes().splitlines(keepends=True)


def test_events_follow_each_other_over_several_openings(tmp_path: Path) -> None:
    """F39: order is the sequence number and the hash before, over restarts too, whatever the clock says."""
    path = tmp_path / "chain.jsonl"
    chain_of(path, 2)
    late = Chain(path, clock=lambda: 1.0)  # the clock has jumped back
    head = late.append("finished")
    late.close()
    events = read_chain(path)
    assert [event["seq"] for event in events] == [0, 1, 2]
    assert events[0]["previous"] == FIRST
    assert events[-1]["hash"] == head
    assert [event["event"] for event in events] == ["scored", "scored", "finished"]


def test_every_tampering_is_found(tmp_path: Path) -> None:
    """F45, EF38: edited, removed, doubled, moved and added lines each break the chain at a named line."""
    path = tmp_path / "chain.jsonl"
    lines = chain_of(path)
    for name, changed in {
        "edited": [lines[0], lines[1].replace(b'"number":1', b'"number":7'), *lines[2:]],
        "removed": [lines[0], *lines[2:]],
        "first removed": lines[1:],
        "doubled": [lines[0], lines[0], *lines[1:]],
        "moved": [lines[0], lines[2], lines[1], lines[3]],
        "added": [*lines, lines[3]],
        "not json": [b"hello\n", *lines],
        "foreign": [b"{}\n", *lines],
    }.items():
        path.write_bytes(b"".join(changed))
        with pytest.raises(IntegrityError, match=r"chain\.jsonl:\d"):
            read_chain(path)
        with pytest.raises(IntegrityError):
            Chain(path)
        assert name


def test_a_torn_event_is_cut_and_counted(tmp_path: Path) -> None:
    """F42: a kill while an event is written loses that event only; the next follows the last whole one."""
    path = tmp_path / "chain.jsonl"
    lines = chain_of(path)
    path.write_bytes(b"".join(lines)[:-9])
    chain = Chain(path)
    assert chain.torn_bytes == len(lines[3]) - 9
    assert chain.length == 3
    chain.append("resumed")
    chain.close()
    assert [event["event"] for event in read_chain(path)][-1] == "resumed"
