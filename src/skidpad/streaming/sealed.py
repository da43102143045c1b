"""The two phases of one pair: stream and seal with nothing hidden at hand; open the vault of a sealed state and render.

Phase one gets the online half of an episode and no path to a vault. Phase two gets the bytes of a sealed state and the
hash that was chained before any vault was opened; it reads the vault only when both agree. Runs in worker processes.
"""

from __future__ import annotations

import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_bytes
from skidpad.errors import IntegrityError, RefusedError
from skidpad.streaming.arms import Arm
from skidpad.streaming.audit import opening, watching
from skidpad.streaming.budget import BudgetProtocol
from skidpad.streaming.controls import ShuffledPoses
from skidpad.streaming.episode import Observation, OnlineEpisode, OnlineSource
from skidpad.streaming.feedback import Rendered, render_depth
from skidpad.streaming.mapper_file import LoadedWriter, Mapper, RenderProtocol, load_mapper, load_writer
from skidpad.streaming.policies import WritePolicy, make_policy
from skidpad.streaming.renderer import render_flops
from skidpad.streaming.report_format import pair_id
from skidpad.streaming.runner import MapperRunner
from skidpad.streaming.schemas import ID_NAMES
from skidpad.streaming.seal import SealedState, renderer_of
from skidpad.streaming.vault import Vault, VaultEpisode, open_vault

Read = TypeVar("Read")
DepthError = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], float], float | None]


@dataclass(frozen=True)
class RunSettings:
    """What every pair of a run has in common; small, so that worker processes get it whole.

    data         folder of the dataset, watched while pairs run
    mapper_hash  content hash and file digest that the mapper file must still have
    strips       phase two also draws what it scores
    lpips        file of the weights of `rgb_lpips`, where the run measures it
    """

    data: Path
    mapper: Path
    mapper_hash: tuple[str, str]
    writer: Path | None
    render: RenderProtocol
    max_units: float
    residual_threshold: float
    shuffle_seed: int
    device: str
    strips: bool = False
    lpips: Path | None = None


@dataclass(frozen=True, eq=False)
class Equipment:
    """Settings with the weights loaded: one per process."""

    settings: RunSettings
    mapper: Mapper
    writer: LoadedWriter | None

    @classmethod
    def load(cls, settings: RunSettings) -> Equipment:
        """Raises IntegrityError when the mapper file is not the registered one any more."""
        mapper = load_mapper(settings.mapper, settings.device)
        found = (mapper.info["content_hash"], mapper.info["file_sha256"])
        if found != settings.mapper_hash:
            raise IntegrityError(
                f"{settings.mapper}: has content hash {found[0]}, the run registered {settings.mapper_hash[0]}. The "
                "file was changed while the run went on; restore it."
            )
        writer = None
        if settings.writer is not None:
            writer = load_writer(settings.writer, mapper, settings.render, settings.max_units, settings.device)
        return cls(settings, mapper, writer)

    def policy(self, name: str) -> WritePolicy:
        """The write policy of that name."""
        return make_policy(name, residual_threshold=self.settings.residual_threshold, writer=self.writer)


@dataclass(frozen=True)
class StreamJob:
    """One pair of phase one. Holds nothing of the vault but the number of its queries."""

    online: OnlineEpisode
    arm: Arm
    query_count: int

    @property
    def pair(self) -> str:
        return pair_id(self.online.manifest.episode_id, self.arm.name)


@dataclass(frozen=True)
class OracleJob(StreamJob):
    """ORACLE of a diagnostic run: it is given the vault, and says so."""

    vault: VaultEpisode


@dataclass(frozen=True, eq=False)
class PasteJob:
    """WRONG_SCENE: the completion layer of `other`, the next episode's sealed state, pasted into `own`."""

    arm: Arm
    own: bytes
    other: bytes
    pair: str


@dataclass(frozen=True, eq=False)
class Streamed:
    """What phase one leaves of a pair.

    status  "ok", or "refused" and "crashed" with `error`; "invalid" where a file is not what was validated
    state   bytes of the sealed state, or None
    seal    hashes, seconds, peaks and `forgetting`: what the chain commits to before any vault is opened
    opened  row of `opened.jsonl`
    """

    pair: str
    status: str
    error: dict[str, str] | None
    state: bytes | None = None
    seal: Mapping[str, Any] = field(default_factory=dict)
    opened: Mapping[str, Any] | None = None


def described(error: BaseException) -> dict[str, str]:
    """An error as records hold it."""
    text = "".join(traceback.format_exception(error))
    return {"type": type(error).__name__, "message": " ".join(str(error).split()), "traceback": text}


def status_of(error: BaseException) -> str:
    """What an error makes of a pair: a broken rule is refused, what does not hold stops the run, the rest crashed."""
    if isinstance(error, IntegrityError):
        return "invalid"
    return "refused" if isinstance(error, RefusedError) else "crashed"


class _TimedSource:
    """Frames of a source, read where they may be read, and the seconds that took."""

    def __init__(self, source: OnlineSource | ShuffledPoses, folder: Path, clock: Callable[[], float]) -> None:
        self._source, self._folder, self._clock = source, folder, clock
        self.seconds = 0.0

    def warmup(self) -> list[Observation]:
        return self._timed(self._source.warmup)

    def stream(self) -> Iterator[Observation]:
        while self._source.remaining:
            yield self._timed(self._source.next)

    def _timed(self, read: Callable[[], Read]) -> Read:
        start = self._clock()
        with opening(self._folder):
            found = read()
        self.seconds += self._clock() - start
        return found


def stream_pair(
    equipment: Equipment, job: StreamJob, depth_error: DepthError, clock: Callable[[], float] = time.monotonic
) -> Streamed:
    """Phase one of a pair. Never raises for what the pair does: a failure is a value.

    depth_error  of one view, for `forgetting`: how well the first warm-up view is rendered after the stream, and before
    """
    with watching(equipment.settings.data, "stream") as watch:
        try:
            sealed, seal = _streamed(equipment, job, depth_error, clock)
            watch.check()
        except Exception as error:  # A failure becomes a record of the pair.
            return Streamed(job.pair, status_of(error), described(error), opened=watch.row(job.pair))
        return _closed(job.pair, sealed, seal, watch.row(job.pair))


def _streamed(
    equipment: Equipment, job: StreamJob, depth_error: DepthError, clock: Callable[[], float]
) -> tuple[SealedState, dict[str, Any]]:
    settings, manifest = equipment.settings, job.online.manifest
    source: OnlineSource | ShuffledPoses = OnlineSource(job.online, settings.device)
    if job.arm.control == "SHUFFLED_POSES":
        source = ShuffledPoses(source, settings.shuffle_seed)  # type: ignore[arg-type]
    timed = _TimedSource(source, job.online.folder, clock)
    if isinstance(job, OracleJob):
        policy = _oracle(equipment, job, depth_error)
    else:
        policy = equipment.policy(job.arm.policy)
    runner = _runner(equipment, job, policy, clock)
    warmup = timed.warmup()
    ids = {name: getattr(manifest, name) for name in ID_NAMES}
    runner.reset(warmup, ids, len(manifest.stream), job.query_count)
    before = runner.state
    for arrival in timed.stream():
        runner.step(arrival)
    sealed = runner.seal()
    errors = [_view_error(state, sealed, warmup[0], depth_error) for state in (before, sealed.state)]
    forgetting = None if errors[0] is None or errors[1] is None else errors[1] - errors[0]
    return sealed, {"decode_s": timed.seconds, "adapt_s": sealed.adapt_s, "forgetting": forgetting}


def _runner(
    equipment: Equipment, job: StreamJob, policy: WritePolicy, clock: Callable[[], float] = time.monotonic
) -> MapperRunner:
    settings = equipment.settings
    return MapperRunner(
        equipment.mapper,
        policy,
        render_protocol=settings.render,
        budget_protocol=BudgetProtocol(settings.max_units),
        completion=equipment.mapper.mean_field() if job.arm.control == "MEAN_FIELD" else None,
        name=job.arm.name,
        clock=clock,
    )


def _oracle(equipment: Equipment, job: OracleJob, depth_error: DepthError) -> WritePolicy:
    """The policy with the best true score; every subset is streamed and held against the opened vault."""
    from skidpad.streaming.oracle import best_choice

    manifest = job.online.manifest
    with opening(job.online.folder):
        source = OnlineSource(job.online, equipment.settings.device)
        warmup, stream = source.warmup(), list(source.stream())
    with opening(job.vault.folder):
        queries = open_vault(job.vault).queries

    def sealed_by(policy: WritePolicy) -> SealedState:
        runner = _runner(equipment, job, policy)
        runner.reset(warmup, {name: getattr(manifest, name) for name in ID_NAMES}, len(stream), job.query_count)
        for arrival in stream:
            runner.step(arrival)
        return runner.seal()

    def error_of(sealed: SealedState) -> float:
        found = []
        for query in queries:
            view = sealed.render(query.camera, *query.depth.shape)
            depth, opacity = view.depth.cpu().numpy(), view.opacity.cpu().numpy()
            found.append(depth_error(depth, opacity, query.depth, sealed.fallback.depth))
        known = [error for error in found if error is not None]
        return sum(known) / len(known) if known else 0.0

    return best_choice(len(stream), sealed_by, error_of)


def _view_error(state: Any, sealed: SealedState, view: Observation, depth_error: DepthError) -> float | None:
    if view.depth is None:
        return None
    renderer = renderer_of(state.preset, sealed.render_protocol)
    with torch.inference_mode():
        depth, opacity = render_depth(state, renderer, view.camera, *view.depth.shape)
    return depth_error(depth.cpu().numpy(), opacity.cpu().numpy(), view.depth.cpu().numpy(), sealed.fallback.depth)


def _closed(pair: str, sealed: SealedState, seal: Mapping[str, Any], opened: Mapping[str, Any] | None) -> Streamed:
    data = sealed.to_bytes()
    facts = {
        **seal,
        "checkpoint_hash": sealed.checkpoint_hash,
        "state_hash": sealed.state_hash,
        "fast_state_hash": sealed.fast_state_hash,
        "state_sha256": digest_bytes(data),
        "peak_rss_bytes": peak_rss_bytes(),
        "peak_device_bytes": sealed.peak_device_bytes,
    }
    return Streamed(pair, "ok", None, data, facts, opened)


def paste_layer(equipment: Equipment, job: PasteJob) -> Streamed:
    """WRONG_SCENE of a pair, sealed anew."""
    device = equipment.settings.device
    try:
        own, other = (SealedState.from_bytes(data, job.pair, device) for data in (job.own, job.other))
        seal = {"decode_s": 0.0, "adapt_s": own.adapt_s, "forgetting": None}
        return _closed(job.pair, own.with_layer_of(other, job.arm.name), seal, None)
    except Exception as error:  # A failure becomes a record of the pair.
        return Streamed(job.pair, status_of(error), described(error))


def peak_rss_bytes() -> int:
    """The most memory this process has held.

    Linux hands `ru_maxrss` down to a process from the one that started it, so a small worker of a large parent would
    report the parent's; `VmHWM` is of this process alone.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# -- phase two --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Opened:
    """An opened vault, and what the sealed state renders at its queries, in their order."""

    sealed: SealedState
    vault: Vault
    views: Sequence[Rendered]


def open_and_render(data: bytes, state_hash: str, vault: VaultEpisode, pair: str, device: str) -> Opened:
    """Check the waiting state, open its vault, render every query, and check the state again.

    state_hash  as the chain has it
    Raises IntegrityError, with the vault shut, when the state is not the one that was sealed or the vault is another;
    and RefusedError for queries that were shown while streaming.
    """
    sealed = SealedState.from_bytes(data, f"sealed state of {pair}", device)
    if sealed.state_hash != state_hash:
        raise IntegrityError(
            f"{pair}: the waiting state has hash {sealed.state_hash}, the chain says {state_hash}. The vault stays "
            "shut."
        )
    manifest = vault.manifest
    for name in ID_NAMES:
        if sealed.ids[name] != getattr(manifest, name):
            raise IntegrityError(
                f"{pair}: sealed for {name} {sealed.ids[name]!r}, the vault has {getattr(manifest, name)!r}. It stays "
                "shut."
            )
    with opening(vault.folder):
        opened = open_vault(vault)
    observed = {row["frame_id"] for row in sealed.observed}
    if shared := sorted(observed & {query.frame_id for query in opened.queries}):
        raise RefusedError(f"{pair}: queries {shared} were observed while streaming.")
    if len(opened.queries) != manifest.declared_length or sealed.ledger.reserved["query_render"] != len(opened.queries):
        raise IntegrityError(
            f"{pair}: {len(opened.queries)} queries, {manifest.declared_length} declared and "
            f"{sealed.ledger.reserved['query_render']} reserved."
        )
    views = []
    for query in opened.queries:
        start = time.monotonic()
        views.append(sealed.render(query.camera, *query.depth.shape))
        flops = query.depth.size * render_flops(sealed.render_protocol.samples)
        sealed.ledger.record("query_render", flops=flops, seconds=time.monotonic() - start)
    sealed.check()
    return Opened(sealed, opened, views)


class StateProbe:
    """What a sealed state says of points in the world."""

    def __init__(self, sealed: SealedState) -> None:
        self._state = sealed.state

    def inside(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(N,) whether (N, 3) points [m] lie in the grid."""
        return ~self._state.frame.outside(self._state.preset, points)

    def occupancy(self, points: NDArray[np.float64]) -> NDArray[np.int8]:
        """(N,) of each point's voxel: -1 unknown (also outside the grid), 0 free, 1 solid (distance not above 0)."""
        state = self._state
        frame, preset = state.frame, state.preset
        pose = frame.state_from_world
        local = (points @ pose[:3, :3].T + pose[:3, 3] - frame.corner) / preset.voxel
        inside = self.inside(points)
        index = np.clip(np.floor(local).astype(np.int64), 0, np.asarray(preset.shape) - 1)
        flat = np.ravel_multi_index(tuple(index.T), preset.shape)
        distance = state.read_out.distance.cpu().numpy().reshape(-1)[flat]
        known = state.read_out.known.cpu().numpy().reshape(-1)[flat] & inside
        return np.where(known, (distance <= 0).astype(np.int8), np.int8(-1)).astype(np.int8)
