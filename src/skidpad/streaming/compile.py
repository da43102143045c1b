"""The compiler: episodes from generators, logs and scans, written so that nobody can quietly change them.

`compile_episodes` is a pure function of the spec, the generators' code and the digests of scenes, traces and scans: the
same bytes twice, with any number of workers. Everything is built in a temporary folder, validated as a reader would,
and renamed into place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_bytes, digest_value
from skidpad.artifacts.files import new_folder, read_bytes, write_new
from skidpad.errors import SettingsError, UsageError
from skidpad.streaming import rooms, scans, street_episode, streets
from skidpad.streaming.assets import DTYPES, encode_npy, root_of
from skidpad.streaming.camera import Camera, ray_lengths
from skidpad.streaming.episode import index_leaves, load_episode_index
from skidpad.streaming.labels import Draft, View, seen_mask
from skidpad.streaming.noise import NONE, SENSOR, noisy_camera, noisy_colour, noisy_depth
from skidpad.streaming.provenance import validate_episodes
from skidpad.streaming.schemas import INDEX_SCHEMA, ONLINE_SCHEMA, SPLITS, VAULT_SCHEMA, NoiseFields
from skidpad.streaming.sources import SceneLog, TraceReader, find_logs
from skidpad.streaming.spec import CompileSpec, RoomsPart, ScansPart, StreetsPart, check_splits

COMPILE_SCHEMA = "skidpad.episodes.compile/1"
ROOM_VOXEL_M = 0.08
FRAME_S = 0.5
_MAX_SOURCE_BYTES = 1 << 20
_SOURCES = ("assets", "camera", "compile", "labels", "noise", "rooms", "scans", "schemas", "street_episode", "streets")


@dataclass(frozen=True, eq=False)
class Job:
    """One episode to make.

    source  seed of a room, log of a street, folder of a scan
    origin  as the vault manifest keeps it; ids are digests of it
    group   what must not be cut into two splits: a seed, a map, a scan
    """

    part: RoomsPart | StreetsPart | ScansPart
    source: int | SceneLog | Path
    origin: Mapping[str, Any]
    group: str
    salt: str
    counts: tuple[int, int, int]

    def identifier(self, kind: str) -> str:
        """An opaque id: without the salt it gives away neither seed nor scene."""
        made_from = {name: value for name, value in self.origin.items() if name != "code_digest"}
        return f"{kind[:2]}-{digest_value([self.salt, kind, self.part.track, made_from], 'episode id')[:20]}"


@dataclass(frozen=True)
class Compiled:
    """What was made: the folder, the root to publish, and how many episodes of each split and track there are."""

    folder: Path
    root: str
    counts: Mapping[str, int]


def compile_episodes(
    spec: CompileSpec, out: Path, *, workers: int = 1, read_trace: TraceReader | None = None, where: str = "spec"
) -> Compiled:
    """Compile a dataset into the new folder `out`.

    workers     processes; no byte depends on it
    read_trace  opens the trace files that street parts name
    Raises SettingsError for seeds, scenes or logs in two splits or twice, AlreadyThereError when `out` exists, and what
    the sources raise. After any fault `out` is not there.
    """
    if workers < 1:
        raise UsageError(f"workers = {workers}: expected a whole number of at least 1.")
    check_splits(spec, where)
    with new_folder(out) as folder:
        jobs = list(_jobs(spec, read_trace))
        _check_groups(jobs, where)
        for path in sorted({f"{job.part.split}/{kind}" for job in jobs for kind in ("online", "vaults")}):
            (folder / path).mkdir(parents=True)
        entries = list(_made(jobs, folder, workers))
        root = root_of(index_leaves(entries))
        counts = Counter(f"{entry['split_id']}/{entry['track_id']}" for entry in entries)
        write_new(folder / "compile.json", _json(_report(spec, jobs, root, counts)))
        write_new(folder / "index.json", _json({"schema": INDEX_SCHEMA, "episodes": entries, "root": root}))
        validate_episodes(load_episode_index(folder / "index.json").select())
    return Compiled(out, root, dict(sorted(counts.items())))


def _jobs(spec: CompileSpec, read_trace: TraceReader | None) -> Iterator[Job]:
    counts = (spec.warmup, spec.stream, spec.queries)
    code = code_digest()
    for part in spec.parts:
        sources: list[tuple[int | SceneLog | Path, dict[str, Any], str]] = []
        if isinstance(part, RoomsPart):
            for seed in range(part.first_seed, part.first_seed + part.count):
                sources.append((seed, _origin(rooms, code, seed=seed), f"room {seed}"))
        elif isinstance(part, StreetsPart):
            for log in find_logs(part.scenes, part.traces, read_trace):
                origin = _origin(streets, code, scene=log.scene.digest, trace=log.trace_digest)
                # Two pieces of traffic on one map are taken for one log: snippets of a recording share their map.
                sources.append((log, origin, f"map {log.scene.map_digest}"))
        else:
            for text in part.folders:
                folder = Path(text)
                digest = scans.scan_digest(
                    part.track, folder, part.image_size, part.every, spec.warmup + spec.stream, spec.queries
                )
                sources.append((folder, _origin(scans, code, scene=digest), f"scan {digest}"))
        for source, origin, group in sources:
            yield Job(part, source, origin, group, spec.salt, counts)


def _origin(
    module: Any, code: str, *, seed: int | None = None, scene: str | None = None, trace: str | None = None
) -> dict[str, Any]:
    return {
        "generator": module.GENERATOR,
        "generator_version": module.VERSION,
        "seed": seed,
        "scene_digest": scene,
        "trace_digest": trace,
        "code_digest": code,
    }


def code_digest() -> str:
    """Digest of the source of everything that decides what an episode holds."""
    here = Path(__file__).parent
    return digest_value(
        {name: digest_bytes(read_bytes(here / f"{name}.py", _MAX_SOURCE_BYTES)) for name in _SOURCES}, "code"
    )


def _check_groups(jobs: Sequence[Job], where: str) -> None:
    """Refuse one map or scan in two splits, and one episode twice (M16, M25)."""
    splits: dict[str, str] = {}
    seen: set[str] = set()
    for job in jobs:
        first = splits.setdefault(job.group, job.part.split)
        if first != job.part.split:
            raise SettingsError(
                f"{where}: {_name(job)} is in {job.part.split} and its {job.group.split()[0]} in {first} already. A "
                "log belongs to one split, whole."
            )
        scene = job.identifier("scene")
        if scene in seen:
            raise SettingsError(f"{where}: {_name(job)} occurs twice on {job.part.track}. List it once.")
        seen.add(scene)


def _name(job: Job) -> str:
    return job.source.name if isinstance(job.source, SceneLog) else str(job.source)


def _made(jobs: Sequence[Job], folder: Path, workers: int) -> Iterator[dict[str, Any]]:
    if workers == 1:
        yield from (make_episode(job, folder) for job in jobs)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")  # a fork after threads of a numeric library hangs
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        yield from pool.map(make_episode, jobs, [folder] * len(jobs))


def make_episode(job: Job, folder: Path) -> dict[str, Any]:
    """Write one episode below the folder of a dataset and return its index entry."""
    draft, noise = _draft(job)
    ids = {
        "episode_id": job.identifier("episode"),
        "scene_id": job.identifier("scene"),
        "split_id": job.part.split,
        "track_id": job.part.track,
        "vault_id": job.identifier("vault"),
    }
    size = list(draft.frames[0].depth.shape)
    common = {**ids, "image_size": size, "depth_convention": draft.depth_convention}
    first_query = len(draft.frames)
    online_path = f"{job.part.split}/online/{ids['episode_id']}/online.json"
    vault_path = f"{job.part.split}/vaults/{ids['vault_id']}/vault.json"

    shown = _Folder(folder / Path(online_path).parent)
    frames = [_frame(shown, number, view, draft) for number, view in enumerate(draft.frames)]
    online_root = shown.finish(
        "online.json",
        {
            "schema": ONLINE_SCHEMA,
            **common,
            "modalities": list(draft.modalities),
            "noise": noise.model_dump() if noise else None,
            "declared_length": len(frames),
            "warmup": frames[: len(draft.warmup)],
            "stream": frames[len(draft.warmup) :],
        },
    )
    hidden = _Folder(folder / Path(vault_path).parent)
    queries = [_query(hidden, first_query + number, view, draft) for number, view in enumerate(draft.queries)]
    vault_root = hidden.finish(
        "vault.json",
        {
            "schema": VAULT_SCHEMA,
            **common,
            "declared_length": len(queries),
            "queries": queries,
            "task": _task(hidden, draft),
            "origin": dict(job.origin),
        },
    )
    return {
        **ids,
        "online_manifest": online_path,
        "vault_manifest": vault_path,
        "warmup_count": len(draft.warmup),
        "stream_count": len(draft.stream),
        "query_count": len(queries),
        "online_root": online_root,
        "vault_root": vault_root,
    }


class _Folder:
    """Files of one manifest, with the leaves of its tree."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.leaves: list[tuple[str, str]] = []

    def asset(self, name: str, array: NDArray[Any]) -> dict[str, Any]:
        data = encode_npy(array)
        write_new(self.path / name, data)
        sha256 = digest_bytes(data)
        self.leaves.append((name, sha256))
        dtype = next(short for short, text in DTYPES.items() if np.dtype(text) == array.dtype)
        return {"path": name, "sha256": sha256, "bytes": len(data), "dtype": dtype, "shape": list(array.shape)}

    def finish(self, name: str, manifest: Mapping[str, Any]) -> str:
        data = _json(manifest)
        write_new(self.path / name, data)
        return root_of([(name, digest_bytes(data)), *self.leaves])


def _draft(job: Job) -> tuple[Draft, NoiseFields | None]:
    part, (warmup, stream, queries) = job.part, job.counts
    if isinstance(job.source, int) and isinstance(part, RoomsPart):
        noise = (part.noise or SENSOR) if part.track == "rooms_noisy" else None
        return room_draft(job.source, part.image_size, job.counts, noise), None if noise == NONE else noise
    if isinstance(job.source, SceneLog) and isinstance(part, StreetsPart):
        log = job.source
        street = street_episode.open_street(log.scene, log.tracks, log.dt_s, warmup + stream, part.frame_step_s)
        draft = street_episode.street_draft(
            street,
            warmup=warmup,
            queries=queries,
            dynamic=part.track == "street_dynamic",
            sensor=part.sensor,
            height=part.image_size[0],
            width=part.image_size[1],
            seed=int(digest_value(dict(job.origin, code_digest=None), "query places")[:12], 16),
        )
        return draft, None
    assert isinstance(job.source, Path)
    assert isinstance(part, ScansPart)
    draft = scans.scan_draft(
        part.track,
        job.source,
        image_size=part.image_size,
        every=part.every,
        warmup=warmup,
        stream=stream,
        queries=queries,
    )
    return draft, None


def room_draft(
    seed: int, image_size: tuple[int, int], counts: tuple[int, int, int], noise: NoiseFields | None
) -> Draft:
    """The episode of a room: frames as a sensor with `noise` gives them, queries clean.

    counts  warm-up, stream, queries
    Raises UsageError when 16 draws of the cameras all have a view that is nearly empty.
    """
    warmup, stream, queries = counts
    height, width = image_size
    room = rooms.Room.random(seed)
    for attempt in range(16):
        places = rooms.room_views(room, warmup + stream, queries, height, width, attempt)
        last = (warmup + stream - 1) * FRAME_S
        frames = [View(k * FRAME_S, one, *room.render(one, height, width)) for k, one in enumerate(places.frames)]
        hidden = [
            View(last, camera, *room.render(camera, height, width), word)
            for camera, word in zip(places.queries, places.placements, strict=True)
        ]
        if noise is not None:
            frames = [_shaken(view, noise, np.random.default_rng([seed, 3, k])) for k, view in enumerate(frames)]
        if all(view.is_usable for view in [*frames, *hidden]):
            return Draft(frames[:warmup], frames[warmup:], hidden, "z", ("rgb", "depth"), ROOM_VOXEL_M)
    raise UsageError(f"room {seed}: 16 draws of its cameras all have a nearly empty view. Use another seed.")


def _shaken(view: View, noise: NoiseFields, rng: np.random.Generator) -> View:
    depth = noisy_depth(noise, view.depth, rng)
    rgb = noisy_colour(noise, view.rgb, rng)
    return View(view.time_s, noisy_camera(noise, view.camera, rng), rgb, depth)


def _stored(view: View, draft: Draft) -> NDArray[np.float32]:
    if draft.depth_convention == view.camera.own_depth:
        return view.depth
    return ray_lengths(view.camera, view.depth.astype(np.float64)).astype(np.float32)


def _frame(folder: _Folder, number: int, view: View, draft: Draft) -> dict[str, Any]:
    return {
        "frame_id": number,
        "time_s": round(view.time_s, 6),
        "camera": _camera(view.camera),
        "rgb": folder.asset(f"rgb-{number:04d}.npy", view.rgb),
        "depth": folder.asset(f"depth-{number:04d}.npy", _stored(view, draft)) if "depth" in draft.modalities else None,
    }


def _query(folder: _Folder, number: int, view: View, draft: Draft) -> dict[str, Any]:
    offered = [(frame.camera, frame.depth) for frame in draft.frames]
    seen = seen_mask(view.camera, view.depth, offered, draft.voxel_m)
    return {
        "frame_id": number,
        "time_s": round(view.time_s, 6),
        "placement": view.placement,
        "camera": _camera(view.camera),
        "rgb": folder.asset(f"rgb-{number:04d}.npy", view.rgb),
        "depth": folder.asset(f"depth-{number:04d}.npy", _stored(view, draft)),
        "seen": folder.asset(f"seen-{number:04d}.npy", seen),
        "moving": None
        if view.moving is None
        else folder.asset(f"moving-{number:04d}.npy", view.moving.astype(np.uint8)),
    }


def _camera(camera: Camera) -> dict[str, Any]:
    return {
        "model": camera.model,
        "intrinsics": camera.intrinsics.tolist(),
        "world_from_camera": camera.world_from_camera.tolist(),
    }


def _task(folder: _Folder, draft: Draft) -> dict[str, Any] | None:
    task = draft.task
    if task is None:
        return None
    return {
        "ground_height": task.ground_height,
        "path": task.path.round(4).tolist(),
        "corridor": task.corridor.round(4).tolist(),
        "bev_origin": task.bev_origin.tolist(),
        "bev_cell_m": task.bev_cell_m,
        "occupancy": folder.asset("occupancy.npy", task.occupancy),
        "agents": folder.asset("agents.npy", task.agents),
    }


def _report(spec: CompileSpec, jobs: Sequence[Job], root: str, counts: Mapping[str, int]) -> dict[str, Any]:
    """What compile.json says: how the dataset came about, which seeds and logs each split holds, and its root."""
    ranges: dict[str, Any] = {split: {"seeds": [], "sources": []} for split in SPLITS}
    for part in spec.parts:
        if isinstance(part, RoomsPart):
            ranges[part.split]["seeds"].append([part.first_seed, part.first_seed + part.count - 1])
    for job in jobs:
        if not isinstance(job.source, int):
            ranges[job.part.split]["sources"].append({"name": _name(job), "group": job.group})
    return {
        "schema": COMPILE_SCHEMA,
        "spec": spec.model_dump(mode="json"),
        "splits": ranges,
        "versions": {"numpy": np.__version__, **{m.GENERATOR: m.VERSION for m in (rooms, streets, scans)}},
        "code_digest": code_digest(),
        "counts": dict(sorted(counts.items())),
        "root": root,
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
