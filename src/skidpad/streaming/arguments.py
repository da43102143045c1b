"""The arguments of a sealed evaluation, checked in one order, before a file of the run exists (M31).

Both doors use it: Python passes values, a suite passes the place of each key as well, which then stands in front of the
message. The first failure wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skidpad.errors import AlreadyThereError, UsageError, listed, nearest
from skidpad.streaming.episode import EpisodeEntry
from skidpad.streaming.policies import DIAGNOSTIC, POLICIES

# Each control with the policies of which at least one must run; none for those that stand beside any.
CONTROLS: Mapping[str, tuple[str, ...]] = {
    "MEAN_FIELD": ("ALL", "COMPLETE"),
    "WRONG_SCENE": ("ALL", "COMPLETE"),
    "SHUFFLED_POSES": ("FUSE",),
    "CONSTANT_DEPTH": (),
    "HARMONIC_FILL": (),
    "CACHE": (),
}


@dataclass(frozen=True, kw_only=True)
class SealedArguments:
    """What a sealed evaluation is asked for; the defaults are those of both doors."""

    max_episodes: Any = None
    policies: Any = ("OFF", "FUSE", "COMPLETE", "ALL")
    controls: Any = ()
    residual_threshold: Any = 0.03
    render_samples: Any = 96
    ray_chunk: Any = 2048
    warmup: Any = 4
    stream: Any = 8
    queries: Any = 4
    max_units: Any = 1e12
    writer: Any = None
    device: Any = "cpu"
    split: Any = "dev"
    official: bool = False
    diagnostic: bool = False
    release: str = ""
    parent: str | None = None


def check_arguments(
    arguments: SealedArguments,
    *,
    count: int,
    index: str,
    out: Path,
    select: Callable[[int | None], Sequence[EpisodeEntry]],
    places: Mapping[str, str] | None = None,
    released_by: Callable[[Sequence[EpisodeEntry]], str | None] = lambda entries: None,
) -> list[Any]:
    """Check everything in the order of the table, rows 1 to 12; returns the Provenances of the selected episodes.

    count   entries in the index at `index`
    select  the first so many entries of it, checked one by one
    places  file:line of keys, for messages
    released_by  run id of the first run that opened the vaults of these entries, asked for the holdout split
    Raises UsageError or a kind of it for the first failure, IntegrityError where a root does not hold.
    """
    from skidpad.streaming.provenance import Protocol, check_split, validate_episodes

    def refuse(key: str, text: str) -> UsageError:
        place = (places or {}).get(key)
        return UsageError(f"{place}: {text}" if place else text)

    if count < 1:
        raise refuse("index", f"no episodes in {index}")
    if arguments.max_episodes is not None and not _is_count(arguments.max_episodes, 1):
        raise refuse(
            "max_episodes",
            f"max_episodes = {arguments.max_episodes!r}: must be a whole number of at least 1, or left out for all",
        )
    _check_names(arguments, refuse)
    _check_numbers(arguments, refuse)
    if ("LEARNED" in arguments.policies) != (arguments.writer is not None):
        if arguments.writer is None:
            raise refuse("policies", 'policy LEARNED needs writer = "<file>"')
        raise refuse("writer", f"writer = {str(arguments.writer)!r} needs policy LEARNED")
    if (out / "report.json").exists():
        raise AlreadyThereError(f"{out} has report.json: a finished run is never overwritten; choose another name")
    entries = list(select(arguments.max_episodes))
    check_split(
        entries,
        arguments.split,
        official=arguments.official,
        release=arguments.release,
        released_by=released_by(entries) if arguments.split == "holdout" else None,
        parent=arguments.parent,
    )
    found = validate_episodes(entries, Protocol(arguments.warmup, arguments.stream, arguments.queries))
    _check_device(arguments.device, refuse)
    return found


Refusal = Callable[[str, str], UsageError]


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_names(arguments: SealedArguments, refuse: Refusal) -> None:
    policies = (*POLICIES, *DIAGNOSTIC) if arguments.diagnostic else POLICIES
    for key, known in (("policies", policies), ("controls", tuple(CONTROLS))):
        value = getattr(arguments, key)
        if not isinstance(value, (list, tuple)):
            raise refuse(key, f"{key} = {value!r}: must be a list of names")
        for name in value:
            if name in DIAGNOSTIC and name not in known and key == "policies":
                text = f"policy {name} reads the vault, so no sealed run has it. Run it with --diagnostic."
                raise refuse(key, text)
            if not isinstance(name, str) or name not in known:
                hint = nearest(name.upper(), known) if isinstance(name, str) else ""
                raise refuse(key, f"{key}: {name!r} is not one of {listed(known, len(known))}{hint}")
        if len(set(value)) != len(value):
            twice = next(name for name in value if list(value).count(name) > 1)
            raise refuse(key, f"{key} = {list(value)!r}: {twice} is named twice")
        if key == "policies" and "OFF" not in value:
            text = f"policies = {_quoted(value)}: OFF is missing; every policy is compared with it, scene by scene"
            raise refuse(key, text)
    for control in arguments.controls:
        needed = CONTROLS[control]
        if needed and not set(needed) & set(arguments.policies):
            raise refuse("controls", f"control {control} needs policy {' or '.join(needed)}")


def _quoted(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _check_numbers(arguments: SealedArguments, refuse: Refusal) -> None:
    threshold = arguments.residual_threshold
    if not _is_number(threshold) or threshold < 0:
        raise refuse("residual_threshold", f"residual_threshold = {threshold!r}: must be a finite number, 0 or more")
    if not _is_count(arguments.render_samples, 2):
        text = f"render_samples = {arguments.render_samples!r}: one ray needs at least 2 samples"
        raise refuse("render_samples", text)
    for key in ("ray_chunk", "warmup", "stream", "queries"):
        value = getattr(arguments, key)
        if not _is_count(value, 1):
            raise refuse(key, f"{key} = {value!r}: must be a whole number of at least 1")
    if not _is_number(arguments.max_units) or arguments.max_units <= 0:
        text = f"max_units = {arguments.max_units!r}: give a finite budget; 1e12 binds nothing at this size"
        raise refuse("max_units", text)


def _check_device(device: Any, refuse: Refusal) -> None:
    name, _, number = str(device).partition(":")
    is_known = device == "cpu" or (name == "cuda" and (not number or (number.isascii() and number.isdigit())))
    if not isinstance(device, str) or not is_known or str(device).endswith(":"):
        raise refuse("device", f'device = {device!r}: must be "cpu", "cuda" or "cuda:<number>"')
    if name == "cuda":
        import torch

        visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(number or 0) >= visible:
            what = "no CUDA device is" if not visible else f"only {visible} CUDA devices are"
            raise refuse("device", f'device = "{device}": {what} visible here')
