"""Verification of what a sealed run was made from: the dataset, the weight files, and some pairs run once more."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skidpad.artifacts.digests import digest_file
from skidpad.errors import SkidpadError
from skidpad.evaluation.sealed_pool import Pool
from skidpad.evaluation.verify import Findings, drawn
from skidpad.runs.manifest import environment
from skidpad.streaming import compile as rooms
from skidpad.streaming import scans, street_episode
from skidpad.streaming.arms import Arm, arms_of
from skidpad.streaming.episode import camera_of, load_episode_index, read_asset, read_depth
from skidpad.streaming.labels import seen_mask
from skidpad.streaming.mapper_file import RenderProtocol, load_mapper, load_writer
from skidpad.streaming.provenance import Provenance, validate_episodes
from skidpad.streaming.report_format import pair_id
from skidpad.streaming.sealed import RunSettings, Streamed, StreamJob
from skidpad.streaming.vault import assets_of

ROUNDED_SHARE = 1e-3  # of `seen`, where depth was stored in the other convention and rounded once more


def verify_assets(
    data: Path, manifest: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]], found: Findings
) -> dict[str, Provenance]:
    """Hash every array of the run's episodes, and make their `seen` labels again. Returns the episodes that hold."""
    registration = manifest["identity"]["registration"]
    part = next(iter(manifest["evaluators"].values()))
    stated = {row["episode_id"]: row for row in part["provenance"]}
    try:
        index = load_episode_index(data / "index.json")
        entries = {entry.episode_id: entry for entry in index.select()}
    except (SkidpadError, OSError) as error:
        found.problems.append(str(error))
        return {}
    if index.root != registration["index_root"]:
        found.problems.append(f"{index.path}: has root {index.root}, registered is {registration['index_root']}.")
    sources: dict[str, Provenance] = {}
    arrays = 0
    for episode in registration["episode_ids"]:
        if episode not in entries:
            found.problems.append(f"{index.path}: has no episode {episode}.")
            continue
        try:
            (source,) = validate_episodes([entries[episode]])
            found.compare(f"provenance of {episode}", stated[episode], source.to_json())
            arrays += _hash_arrays(source, found)
            _check_seen(source, found)
        except SkidpadError as error:
            found.problems.append(f"{episode}: {error}")
            continue
        sources[episode] = source
        _check_observed(source, records, found)
    found.done.append(f"{arrays} arrays of {len(sources)} episodes")
    return sources


def _hash_arrays(source: Provenance, found: Findings) -> int:
    online, vault = source.online, source.vault
    assets = [(online.folder, asset) for frame in online.manifest.frames for asset in (frame.rgb, frame.depth) if asset]
    assets += [(vault.folder, asset) for _, asset in assets_of(vault.manifest)]
    for folder, asset in assets:
        path = folder / asset.path
        if not path.is_file() or digest_file(path) != asset.sha256:
            found.problems.append(f"{path}: is not the file that the manifest names.")
    return len(assets)


def _voxel_of(track: str) -> float:
    """The tolerance of `seen` on a track, as its generator has it."""
    if track in scans.VOXEL_M:
        return float(scans.VOXEL_M[track])
    return street_episode.VOXEL_M if track.startswith("street") else rooms.ROOM_VOXEL_M


def _check_seen(source: Provenance, found: Findings) -> None:
    online, vault = source.online, source.vault
    convention = vault.manifest.depth_convention
    frames = []
    for frame in online.manifest.frames:
        camera = camera_of(frame.camera, f"frame {frame.frame_id}")
        if frame.depth is not None:
            frames.append((camera, read_depth(online.folder, frame.depth, camera, convention)))
    for query in vault.manifest.queries:
        camera = camera_of(query.camera, f"query {query.frame_id}")
        depth = read_depth(vault.folder, query.depth, camera, convention)
        again = seen_mask(camera, depth, frames, _voxel_of(source.entry.track_id))
        share = float(np.mean(again != read_asset(vault.folder, query.seen)))
        if share > (0.0 if convention == camera.own_depth else ROUNDED_SHARE):
            found.problems.append(
                f"{source.episode_id}, query {query.frame_id}: {100 * share:.1f} % of its seen mask does not follow "
                "from the frames that were offered."
            )


def _check_observed(source: Provenance, records: Mapping[str, Mapping[str, Any]], found: Findings) -> None:
    """Every pair saw every frame, in order, whatever it wrote."""
    offered = [
        (frame.frame_id, sorted(asset.sha256 for asset in (frame.rgb, frame.depth) if asset))
        for frame in source.online.manifest.frames
    ]
    for pair, record in records.items():
        if record["episode_id"] == source.episode_id and record["sealed"] is not None:
            observed = [(row["frame_id"], sorted(row["digests"].values())) for row in record["sealed"]["observed"]]
            if observed != offered:
                found.problems.append(
                    f"{pair}: the frames it observed are not those that were offered, in their order."
                )


def verify_checkpoints(folder: Path, registration: Mapping[str, Any], found: Findings) -> dict[str, Path]:
    """Find the registered weight files among those in a folder, and load them. Returns them by kind."""
    there = {digest_file(path): path for path in sorted(folder.rglob("*.safetensors"))}
    files: dict[str, Path] = {}
    for kind in ("mapper", "writer"):
        wanted = registration[kind]
        if wanted is None:
            continue
        path = there.get(wanted["file_sha256"])
        if path is None:
            found.problems.append(f"{folder}: no file is the registered {kind} {wanted['file_sha256']}.")
            continue
        files[kind] = path
    try:
        if "mapper" in files:
            mapper = load_mapper(files["mapper"])
            found.compare("mapper content hash", registration["mapper"]["content_hash"], mapper.info["content_hash"])
            if "writer" in files:
                render = _render(registration)
                writer = load_writer(files["writer"], mapper, render, registration["budget_protocol"]["max_units"])
                found.compare("writer", registration["writer"], dict(writer.info))
    except SkidpadError as error:
        found.problems.append(str(error))
        return {}
    found.done.append(f"{len(files)} weight files")
    return files


def _render(registration: Mapping[str, Any]) -> RenderProtocol:
    protocol = registration["render_protocol"]
    return RenderProtocol(protocol["samples"], protocol["ray_chunk"])


def _elsewhere(registration: Mapping[str, Any]) -> str | None:
    """Why hashes need not repeat here, or None."""
    stated, here = registration["environment"], environment(1)["libraries"]
    if stated["device_kind"] != "cpu":
        import torch

        if not torch.cuda.is_available():
            return f"the run used a {stated['device_kind']} device, and there is none"
    now = {"python": platform.python_version(), **{name: here[name] for name in ("torch", "numpy")}}
    other = [f"{name} {stated[name]} then, {version} now" for name, version in now.items() if stated[name] != version]
    return "; ".join(other) or None


def _is_drawn(arm: Arm) -> bool:
    """WRONG_SCENE is pasted of two states, and ORACLE reads the vault."""
    return arm.control != "WRONG_SCENE" and arm.kind != "diagnostic"


def verify_replay(
    count: int,
    head: str,
    registration: Mapping[str, Any],
    sources: Mapping[str, Provenance],
    files: Mapping[str, Path],
    chain: Sequence[Mapping[str, Any]],
    found: Findings,
) -> None:
    """Stream some pairs again and compare their sealed hashes."""
    if (why := _elsewhere(registration)) is not None:
        found.notes.append(f"not replayable here: {why}.")
        return
    arms = {arm.name: arm for arm in arms_of(registration["policies"], registration["controls"])}
    sealed = {event["data"]["pair_id"]: event["data"] for event in chain if event["event"] == "sealed"}
    places = {pair_id(episode, name): (episode, arm) for episode in sources for name, arm in arms.items()}
    pairs = [pair for pair in sealed if pair in places and _is_drawn(places[pair][1])]
    settings = RunSettings(
        data=next(iter(sources.values())).online.folder.parents[2],
        mapper=files["mapper"],
        mapper_hash=(registration["mapper"]["content_hash"], registration["mapper"]["file_sha256"]),
        writer=files.get("writer"),
        render=_render(registration),
        max_units=float(registration["budget_protocol"]["max_units"]),
        residual_threshold=float(registration["residual_threshold"]),
        shuffle_seed=registration["shuffle_seed"],
        device=registration["environment"]["device_kind"],
    )
    jobs = []
    for pair in drawn(pairs, count, head):
        episode, arm = places[pair]
        jobs.append(StreamJob(sources[episode].online, arm, sources[episode].entry.query_count))
    with Pool(settings, min(2, max(1, len(jobs)))) as pool:
        for done in pool.run(jobs):
            result = done.result
            assert isinstance(result, Streamed)
            names = ("state_hash", "fast_state_hash", "checkpoint_hash")
            if result.state is None or any(result.seal[name] != sealed[result.pair][name] for name in names):
                found.problems.append(f"{result.pair}: run again, it does not come to the state that was sealed.")
    found.done.append(f"{len(jobs)} pairs run again")
