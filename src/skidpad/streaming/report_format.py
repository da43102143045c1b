"""What a sealed evaluation leaves behind, field by field: the record of a pair, and the report of a run.

A record and a report have exactly the fields of their models. Whatever differs between two equal runs (times, memory,
host, paths, attempts, hashes of chain lines) stands under the names in `UNEQUAL`, so that one function takes it away.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from skidpad.artifacts.digests import canonical_json, digest_value
from skidpad.streaming.schemas import Count, Digest, Exact, Finite, Identifier, Split, validated

REGISTRATION_SCHEMA = "skidpad.sealed_stream.registration/1"
RECORD_SCHEMA = "skidpad.sealed_stream.record/1"
REPORT_SCHEMA = "skidpad.sealed_stream.report/1"

PAIR = "pair"
"""`placement` of the row that holds what is measured once per pair, and not per query: forgetting, the task."""

UNEQUAL = frozenset(
    {
        *("times", "memory", "chain", "chain_head", "attempts", "host", "path", "paths"),
        *("seconds", "peak_bytes", "traceback", "file_sha256_of_record", "result_digest"),
    }
)

Status = Literal["ok", "refused", "crashed"]
ArmKind = Literal["policy", "control", "diagnostic"]
RunKind = Literal["development", "official", "diagnostic"]
Natural = Annotated[int, Field(ge=0)]


class MapperFields(Exact):
    """The weights a pair ran on; `file_sha256` is None for a mapper that never was a file."""

    content_hash: Digest
    file_sha256: Digest | None


class WriterFields(Exact):
    """The writer of LEARNED, with all it is bound to."""

    content_hash: Digest
    file_sha256: Digest
    binding: dict[str, Any]


class RenderFields(Exact):
    """How every view was rendered."""

    renderer: str
    samples: Count
    ray_chunk: Count


class BudgetFields(Exact):
    """The limit of an episode; `writer_units` of one choice of the writer, None without one."""

    max_units: Finite
    writer_units: Count | None


class RootFields(Exact):
    """Where the frames and the labels come from."""

    index_root: Digest
    online_root: Digest
    vault_root: Digest
    online_manifest_sha256: Digest
    vault_manifest_sha256: Digest


class ArrivalFields(Exact):
    """One frame as it arrived."""

    frame_id: Natural
    digests: dict[str, Digest]


class SealedFields(Exact):
    """The seal of a pair, and every frame that arrived, warm-up first, whatever was written."""

    checkpoint_hash: Digest
    state_hash: Digest
    fast_state_hash: Digest
    observed: list[ArrivalFields]


class ValueFields(Exact):
    """A metric's value; None exactly when it is not valid."""

    value: Finite | None
    valid: bool


class QueryFields(Exact):
    """Scores of one query; `frame_id` is None in the row of the pair itself, whose placement is `PAIR`.

    pixels  by set: label, covered, seen, unseen, moving
    """

    frame_id: Natural | None
    placement: str
    pixels: dict[str, Natural]
    metrics: dict[str, ValueFields]


class MetricFields(Exact):
    """Scores of a pair. An average is the mean over the rows in which the metric is valid, None where there is none."""

    averages: dict[str, Finite | None]
    valid_counts: dict[str, Natural]
    per_query: list[QueryFields]


class TimeFields(Exact):
    """Seconds: decoding, reset to seal without decoding, vault opening to last metric, and their sum."""

    decode_s: Finite
    adapt_s: Finite
    score_s: Finite
    total_s: Finite


class MemoryFields(Exact):
    """Peaks of the process, and of the device where it is one."""

    peak_rss_bytes: Natural
    peak_device_bytes: Natural | None


class ChainFields(Exact):
    """Hashes of the chain's lines that sealed the pair and opened its vault; None where it did not come to that."""

    sealed: Digest | None
    opened: Digest | None


class ErrorFields(Exact):
    """Why a pair has no scores."""

    type: str
    message: str
    traceback: str


class RecordModel(Exact):
    """The full record of one pair.

    kind  policy, control, or diagnostic: what the arm is
    """

    schema_: Literal["skidpad.sealed_stream.record/1"] = Field(alias="schema")
    pair_id: str
    episode_id: Identifier
    scene_id: Identifier
    split_id: Split
    track_id: Identifier
    vault_id: Identifier
    policy: str
    kind: ArmKind
    status: Status
    error: ErrorFields | None
    learned: bool
    mapper: MapperFields
    writer: WriterFields | None
    render_protocol: RenderFields
    budget_protocol: BudgetFields
    roots: RootFields
    sealed: SealedFields | None
    actions: list[str]
    history: list[dict[str, Any]]
    metrics: MetricFields
    budget: dict[str, Any] | None
    times: TimeFields
    memory: MemoryFields
    run_id: Digest
    chain: ChainFields


class AttemptFields(Exact):
    """How often the vaults were opened before this run, by vault id; what the ledger beside the data says of itself."""

    before: dict[str, Natural]
    ledger: Literal["ok", "broken", "not writable"]


class SubsetFields(Exact):
    """Which episodes of the index ran."""

    requested: Count | None
    selected: Count
    available: Count
    episode_ids: list[Identifier]


class ReportModel(Exact):
    """The report of a run.

    records   each record without `metrics.per_query`, with `digest` (`record_digest`) and `file_sha256_of_record`
    scenes, unpaired_scenes, summaries, frontier, controls, caveats   pure functions of registration and records
    """

    schema_: Literal["skidpad.sealed_stream.report/1"] = Field(alias="schema")
    status: Literal["complete", "incomplete"]
    kind: RunKind
    run_id: Digest
    registration: dict[str, Any]
    environment: dict[str, Any]
    provenance: list[dict[str, Any]]
    subset: SubsetFields
    mapper: MapperFields
    writer: WriterFields | None
    metric_keys: list[str]
    records: list[dict[str, Any]]
    scenes: list[dict[str, Any]]
    unpaired_scenes: list[Any]
    summaries: list[dict[str, Any]]
    frontier: dict[str, Any]
    controls: dict[str, Any]
    attempts: AttemptFields
    caveats: list[str]
    chain_head: Digest
    result_digest: Digest


RECORD_KEYS = tuple(field.alias or name for name, field in RecordModel.model_fields.items())
REPORT_KEYS = tuple(field.alias or name for name, field in ReportModel.model_fields.items())


def pair_id(episode_id: str, arm: str) -> str:
    """Name of a pair, and of its file."""
    return f"{episode_id}@{arm}"


def checked_record(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A record with exactly its fields. Raises FormatError listing what is wrong."""
    validated(RecordModel, canonical_json(value).encode(), where, RECORD_SCHEMA)
    return dict(value)


def checked_report(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A report with exactly its fields. Raises FormatError listing what is wrong."""
    validated(ReportModel, canonical_json(value).encode(), where, REPORT_SCHEMA)
    return dict(value)


def scored_value(value: float | None) -> dict[str, Any]:
    """A number as records hold it: {value, valid}; what is not finite is not valid."""
    if value is None or not math.isfinite(value):
        return {"value": None, "valid": False}
    return {"value": float(value), "valid": True}


def averaged(per_query: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The `metrics` of a record from its rows: sums in row order, so that everybody gets the same digits."""
    averages: dict[str, float | None] = {}
    counts: dict[str, int] = {}
    for name in sorted({name for row in per_query for name in row["metrics"]}):
        entries = [row["metrics"][name] for row in per_query if name in row["metrics"]]
        values = [entry["value"] for entry in entries if entry["valid"]]
        averages[name] = math.fsum(values) / len(values) if values else None
        counts[name] = len(values)
    return {"averages": averages, "valid_counts": counts, "per_query": [dict(row) for row in per_query]}


def equal_part(value: Any) -> Any:
    """A record or a report without what differs between two equal runs."""
    if value is None or isinstance(value, (str, int, float)):  # first: most are, and asking for a Mapping is dear
        return value
    if isinstance(value, (dict, Mapping)):
        return {key: equal_part(item) for key, item in value.items() if key not in UNEQUAL}
    if isinstance(value, (list, tuple)):
        return [equal_part(item) for item in value]
    return value


def record_digest(record: Mapping[str, Any]) -> str:
    """Content hash of what two equal runs share of a record."""
    return digest_value(equal_part(record), RECORD_SCHEMA)


def result_digest(report: Mapping[str, Any]) -> str:
    """Content hash of what two equal runs share of a report."""
    return digest_value(equal_part(report), REPORT_SCHEMA)


def report_row(record: Mapping[str, Any], digest: str, file_sha256: str) -> dict[str, Any]:
    """A record as the report lists it; `digest` is its `record_digest`."""
    metrics = {key: value for key, value in record["metrics"].items() if key != "per_query"}
    return {
        **record,
        "metrics": metrics,
        "digest": digest,
        "file_sha256_of_record": file_sha256,
    }


def document(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file: sorted keys, two spaces, LF, newline at the end. Raises ValueError for NaN, TypeError
    for what JSON cannot hold."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
