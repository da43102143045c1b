"""Records and reports of sealed evaluations have exactly their fields."""

from __future__ import annotations

from typing import Any

import pytest
from sealed_example import example_record, example_report

from skidpad.errors import FormatError
from skidpad.streaming.report_format import (
    RECORD_KEYS,
    REPORT_KEYS,
    averaged,
    checked_record,
    checked_report,
    document,
    record_digest,
    result_digest,
    scored_value,
)

RECORD = {
    *("schema", "pair_id", "episode_id", "scene_id", "split_id", "track_id", "vault_id", "policy", "kind", "status"),
    *("error", "learned", "mapper", "writer", "render_protocol", "budget_protocol", "roots", "sealed", "actions"),
    *("history", "metrics", "budget", "times", "memory", "run_id", "chain"),
}
REPORT = {
    *("schema", "status", "kind", "run_id", "registration", "environment", "provenance", "subset", "mapper", "writer"),
    *("metric_keys", "records", "scenes", "unpaired_scenes", "summaries", "frontier", "controls", "attempts"),
    *("caveats", "chain_head", "result_digest"),
}


def wrong_of(value: Any) -> Any:
    """A value of a type that takes no field's place."""
    return 3.5 if isinstance(value, str) else "8"


def test_key_sets() -> None:
    """M47: the fields are pinned; a reader of somebody else's run relies on every one of them."""
    assert set(RECORD_KEYS) == RECORD
    assert set(REPORT_KEYS) == REPORT


@pytest.mark.parametrize("status", ["ok", "refused", "crashed"])
def test_records_pass(status: str) -> None:
    """M45, M47: a failed pair is a record like the others, without scores."""
    record = example_record(status=status)
    assert checked_record(record, "x") == record


@pytest.mark.parametrize(("model", "keys"), [("record", sorted(RECORD)), ("report", sorted(REPORT))])
def test_every_key_is_checked(model: str, keys: list[str]) -> None:
    """M2, M47: each key dropped, doubled by a neighbour, or of another type is refused."""
    value = example_record() if model == "record" else example_report([example_record()])
    check = checked_record if model == "record" else checked_report
    for key in keys:
        without = {name: item for name, item in value.items() if name != key}
        for changed in (without, {**value, f"{key}_": 1}, {**value, key: wrong_of(value[key])}):
            with pytest.raises(FormatError):
                check(changed, "x")


def test_averages() -> None:
    """M76: a query without a value is left out and counted; nothing valid gives None, not zero."""
    found = averaged(example_record()["metrics"]["per_query"])
    assert found["averages"] == {"depth_absrel": pytest.approx(0.15), "depth_absrel.seen": 0.05, "forgetting": 0.01,
                                 "rgb_psnr": 16.0}  # fmt: skip
    assert found["valid_counts"] == {"depth_absrel": 2, "depth_absrel.seen": 1, "forgetting": 1, "rgb_psnr": 2}
    assert averaged([{"metrics": {"a": scored_value(float("nan"))}}])["averages"] == {"a": None}


def test_digests_leave_out_what_differs() -> None:
    """M44: times, memory, chain and attempts change no digest; an action does."""
    record = example_record()
    later = example_record(times={"decode_s": 9.0, "adapt_s": 9.0, "score_s": 9.0, "total_s": 27.0})
    later["chain"] = {"sealed": None, "opened": None}
    later["history"][0]["seconds"] = 7.0
    assert record_digest(later) == record_digest(record)
    assert record_digest(example_record(actions=["OFF", "FUSE"])) != record_digest(record)
    report = example_report([record])
    attempts = {"before": {"va-1": 5}, "ledger": "ok"}
    assert result_digest({**report, "attempts": attempts, "chain_head": "0" * 64}) == report["result_digest"]
    assert result_digest({**report, "status": "incomplete"}) != report["result_digest"]


def test_document_bytes() -> None:
    """M43: sorted keys, two spaces, LF, newline at the end; NaN and tensors are errors when the file is built."""
    assert document({"b": 1, "a": "é"}) == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    with pytest.raises(ValueError, match="JSON"):
        document({"a": float("nan")})
    with pytest.raises(TypeError):
        document({"a": object()})
