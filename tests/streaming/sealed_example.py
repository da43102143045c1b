"""Hand-made records, registration and report of a sealed evaluation: the smallest that have every field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skidpad.artifacts.digests import digest_value
from skidpad.streaming.report_format import (
    PAIR,
    RECORD_SCHEMA,
    REGISTRATION_SCHEMA,
    REPORT_SCHEMA,
    averaged,
    document,
    pair_id,
    record_digest,
    report_row,
    result_digest,
    scored_value,
)

ROWS = {"depth_absrel": (0.1, 0.2), "depth_absrel.seen": (0.05, None), "rgb_psnr": (15.0, 17.0)}


def digest(text: str) -> str:
    """Sixty-four hexadecimal digits that stand for `text`."""
    return digest_value(text, "example")


def example_registration(**changes: Any) -> dict[str, Any]:
    """A registration of two rooms and two policies."""
    return {
        "schema": REGISTRATION_SCHEMA,
        "kind": "development",
        "index_root": digest("index"),
        "split": "dev",
        "tracks": ["rooms"],
        "episode_ids": ["ep-1", "ep-2"],
        "protocol": {"warmup": 2, "stream": 2, "queries": 2},
        "mapper": {"content_hash": digest("mapper"), "file_sha256": digest("mapper file")},
        "writer": None,
        "policies": ["OFF", "FUSE"],
        "controls": ["CACHE"],
        "residual_threshold": 0.03,
        "shuffle_seed": 0,
        "render_protocol": {"renderer": "measure/1", "samples": 96, "ray_chunk": 2048},
        "budget_protocol": {"max_units": 1e12, "writer_units": None},
        "fallback": "median valid warm-up depth, mean warm-up colour",
        "metrics": dict.fromkeys(ROWS, 1),
        "primary": {"name": "depth_absrel", "direction": "lower", "minimum_effect": 0.0},
        "bootstrap": {"resamples": 10000, "seed": 0, "level": 0.95},
        "checkpoint_rule": "last",
        "code": {"commit": None, "dirty": None, "source_digest": digest("code")},
        "environment": {
            "python": "3.12",
            "torch": "2",
            "numpy": "2",
            "scipy": "1",
            "threads": {},
            "device_kind": "cpu",
        },
        "parent": None,
        "release": None,
        **changes,
    }


def example_record(
    episode: str = "ep-1",
    arm: str = "OFF",
    rows: Mapping[str, Sequence[float | None]] = ROWS,
    status: str = "ok",
    **changes: Any,
) -> dict[str, Any]:
    """A record with two queries, their values by metric in `rows`; refused and crashed ones have none."""
    number = episode.rpartition("-")[2]
    scored = status == "ok"
    per_query = [
        {
            "frame_id": 10 + query,
            "placement": ("interpolated", "extrapolated")[query],
            "pixels": {"label": 12, "covered": 9, "seen": 7, "unseen": 5, "moving": 0},
            "metrics": {name: scored_value(values[query]) for name, values in rows.items()},
        }
        for query in range(2)
    ]
    once = {"frame_id": None, "placement": PAIR, "pixels": {}, "metrics": {"forgetting": scored_value(0.01)}}
    action = arm.partition("+")[0] if arm not in ("CACHE", "CONSTANT_DEPTH") else "OFF"
    arrival = [{"frame_id": n, "digests": {"rgb": digest(f"{episode} {n}")}} for n in range(4)]
    return {
        "schema": RECORD_SCHEMA,
        "pair_id": pair_id(episode, arm),
        "episode_id": episode,
        "scene_id": f"sc-{number}",
        "split_id": "dev",
        "track_id": "rooms",
        "vault_id": f"va-{number}",
        "policy": arm,
        "kind": "policy" if arm in ("OFF", "FUSE", "COMPLETE", "ALL", "SCHEDULED", "LEARNED") else "control",
        "status": status,
        "error": None if scored else {"type": "RefusedError", "message": "no", "traceback": "no\n"},
        "learned": arm == "LEARNED",
        "mapper": {"content_hash": digest("mapper"), "file_sha256": digest("mapper file")},
        "writer": None,
        "render_protocol": {"renderer": "measure/1", "samples": 96, "ray_chunk": 2048},
        "budget_protocol": {"max_units": 1e12, "writer_units": None},
        "roots": {
            name: digest(f"{episode} {name}")
            for name in (
                *("index_root", "online_root", "vault_root"),
                *("online_manifest_sha256", "vault_manifest_sha256"),
            )
        },
        "sealed": {
            "checkpoint_hash": digest("mapper"),
            "state_hash": digest(f"{episode} {arm}"),
            "fast_state_hash": digest(f"{episode} {arm} tensors"),
            "observed": arrival,
        }
        if scored
        else None,
        "actions": [action, action] if scored else [],
        "history": [
            {
                "step": step,
                "frame_id": step + 1,
                "action": action,
                "feasible": ["OFF", "FUSE", "COMPLETE", "ALL"],
                "features": {"residual": 0.2},
                "units": 100,
                "seconds": 0.01,
            }
            for step in (1, 2)
        ]
        if scored
        else [],
        "metrics": averaged([*per_query, once] if scored else []),
        "budget": {
            "label": "declared operator work, not FLOPs",
            "max_units": 1e12,
            "units": 200,
            "operations": {
                "fuse": {
                    "count": 2, "units": 200, "flops": 300, "seconds": 0.02, "peak_bytes": None, "touched_voxels": 9,
                }
            },
        }
        if scored
        else None,
        "times": {"decode_s": 0.01, "adapt_s": 0.2, "score_s": 0.1, "total_s": 0.31},
        "memory": {"peak_rss_bytes": 1, "peak_device_bytes": None},
        "run_id": digest_value(example_registration(), REGISTRATION_SCHEMA),
        "chain": {"sealed": digest("sealed"), "opened": digest("opened")},
        **changes,
    }  # fmt: skip


def example_report(records: Sequence[Mapping[str, Any]], **changes: Any) -> dict[str, Any]:
    """A report of these records; what follows from them is empty unless given in `changes`."""
    registration = example_registration()
    report = {
        "schema": REPORT_SCHEMA,
        "status": "complete" if all(record["status"] == "ok" for record in records) else "incomplete",
        "kind": "development",
        "run_id": digest_value(registration, REGISTRATION_SCHEMA),
        "registration": registration,
        "environment": registration["environment"],
        "provenance": [],
        "subset": {"requested": None, "selected": 2, "available": 2, "episode_ids": ["ep-1", "ep-2"]},
        "mapper": registration["mapper"],
        "writer": None,
        "metric_keys": sorted({name for record in records for name in record["metrics"]["averages"]}),
        "records": [
            report_row(record, record_digest(record), digest_value(document(record), "file")) for record in records
        ],
        "scenes": [],
        "unpaired_scenes": [],
        "summaries": [],
        "frontier": {},
        "controls": {},
        "attempts": {"before": {"va-1": 0, "va-2": 0}, "ledger": "ok"},
        "caveats": [],
        "chain_head": digest("head"),
        "result_digest": digest("not yet"),
        **changes,
    }
    return {**report, "result_digest": result_digest(report)}
