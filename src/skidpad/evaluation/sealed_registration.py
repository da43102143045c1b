"""The registration of a sealed run: everything that decides its result, frozen before a vault is opened.

Its content hash is the run id. A development run makes its own; an official one is written beforehand by
`skidpad register` and handed to the run as a file, which must then agree in every value.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.files import create, parse_json, read_bytes
from skidpad.errors import FormatError, IntegrityError, UsageError
from skidpad.evaluation.metrics import lpips
from skidpad.evaluation.metrics.scene_metrics import measured_metrics
from skidpad.runs.manifest import code_digests, environment, identity_differences
from skidpad.streaming.arguments import SealedArguments
from skidpad.streaming.mapper_file import LoadedWriter, Mapper, RenderProtocol
from skidpad.streaming.policies import DIAGNOSTIC, POLICIES
from skidpad.streaming.provenance import Provenance
from skidpad.streaming.report_format import REGISTRATION_SCHEMA, document

FALLBACK = "uncovered depth is the median valid warm-up depth, uncovered colour the mean warm-up colour"
CHECKPOINT_RULE = "fixed before the run: the file that is named"
SHUFFLE_SEED = 0
PRIMARY = {"name": "depth_absrel", "direction": "lower", "minimum_effect": 0.0}
BOOTSTRAP = {"resamples": 10_000, "seed": 0, "level": 0.95}
MAX_BYTES = 1 << 24


def run_id_of(registration: Mapping[str, Any]) -> str:
    """Content hash of a registration."""
    return digest_value(registration, REGISTRATION_SCHEMA)


def make_registration(
    arguments: SealedArguments,
    provenances: Sequence[Provenance],
    mapper: Mapper,
    writer: LoadedWriter | None,
    *,
    kind: str,
    parent: str | None = None,
    minimum_effect: float = 0.0,
) -> dict[str, Any]:
    """The registration of a run. Raises UsageError for an official one from a tree that is not clean and known."""
    here = environment(1)
    if kind == "official" and (here["commit"] is None or here["dirty"]):
        found = "its commit is unknown" if here["commit"] is None else "it has changes that are not committed"
        raise UsageError(
            f"an official registration needs code that can be found again, and {found}. Commit, or run from a checkout."
        )
    entries = [provenance.entry for provenance in provenances]
    return {
        "schema": REGISTRATION_SCHEMA,
        "kind": kind,
        "index_root": provenances[0].online.index_root,
        "split": arguments.split,
        "tracks": sorted({entry.track_id for entry in entries}),
        "episode_ids": [entry.episode_id for entry in entries],
        "protocol": {"warmup": arguments.warmup, "stream": arguments.stream, "queries": arguments.queries},
        "mapper": {name: mapper.info[name] for name in ("content_hash", "file_sha256")},
        "writer": None if writer is None else dict(writer.info),
        "policies": [name for name in (*POLICIES, *DIAGNOSTIC) if name in arguments.policies],
        "controls": sorted(arguments.controls),
        "residual_threshold": float(arguments.residual_threshold),
        "shuffle_seed": SHUFFLE_SEED,
        "render_protocol": RenderProtocol(arguments.render_samples, arguments.ray_chunk).to_json(),
        "budget_protocol": {
            "max_units": float(arguments.max_units),
            "writer_units": None if writer is None else writer.network.units,
        },
        "fallback": FALLBACK,
        "metrics": measured_metrics(lpips=lpips.available() is not None),
        "primary": {**PRIMARY, "minimum_effect": minimum_effect},
        "bootstrap": dict(BOOTSTRAP),
        "checkpoint_rule": CHECKPOINT_RULE,
        "code": {"commit": here["commit"], "dirty": here["dirty"], "source_digest": code_digests()["code"]},
        "environment": {
            "python": platform.python_version(),
            **{name: here["libraries"][name] for name in ("torch", "numpy", "scipy")},
            "threads": {"intra_op": 1, "inter_op": 1, "deterministic": True},
            "device_kind": str(arguments.device).partition(":")[0],
        },
        "parent": parent,
        "release": arguments.release or None,
    }


def write_registration(path: Path, registration: Mapping[str, Any]) -> str:
    """Write a registration file and return its run id. Raises AlreadyThereError when the file exists."""
    run_id = run_id_of(registration)
    path.parent.mkdir(parents=True, exist_ok=True)
    create(path, document({"registration": registration, "run_id": run_id}))
    return run_id


def read_registration(path: Path) -> dict[str, Any]:
    """The registration of a file.

    Raises UsageError when there is none, FormatError for another kind of file, IntegrityError when it was edited.
    """
    try:
        value = parse_json(read_bytes(path, MAX_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}). Make one with `skidpad register`.") from None
    except ValueError as error:
        raise FormatError(f"{path}: not a registration ({error}).") from None
    if not isinstance(value, dict) or set(value) != {"registration", "run_id"}:
        raise FormatError(f"{path}: not a registration: expected 'registration' and 'run_id', and nothing else.")
    registration = value["registration"]
    if not isinstance(registration, dict) or registration.get("schema") != REGISTRATION_SCHEMA:
        found = registration.get("schema") if isinstance(registration, dict) else type(registration).__name__
        raise FormatError(f"{path}: schema {found!r}, expected {REGISTRATION_SCHEMA!r}.")
    if run_id_of(registration) != value["run_id"]:
        raise IntegrityError(
            f"{path}: has run id {run_id_of(registration)}, it says {value['run_id']}. The registration was edited; a "
            "late change is a new registration that names this one as its parent."
        )
    return registration


def check_registered(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raises UsageError listing every value in which a run departs from its registration."""
    if differences := identity_differences(there, here):
        lines = "\n  ".join(line.replace("the folder has", "registered is") for line in differences)
        raise UsageError(f"{path}: this run is not the registered one:\n  {lines}\nRestore it, or register it anew.")
