"""Frames as a mapper meets them: one after the other, decoded when they arrive, checked (M48, M49, M28)."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from episode_folders import change, compiled, entries_of, manifest_path

from skidpad.errors import ProtocolError
from skidpad.streaming import episode as episode_module
from skidpad.streaming.camera import Camera, look, pinhole, points_of
from skidpad.streaming.episode import Observation, OnlineSource
from skidpad.streaming.provenance import validate_episodes
from skidpad.streaming.vault import open_vault


def test_frames_arrive_once_and_in_order(rooms_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M48: a frame is decoded when it arrives and not before; `remaining` counts down; out of turn is an error."""
    decoded: list[str] = []
    real = episode_module.decode_npy
    monkeypatch.setattr(episode_module, "decode_npy", lambda *args: decoded.append(Path(args[3]).name) or real(*args))
    source = OnlineSource(validate_episodes(entries_of(rooms_index))[0].online)
    assert not decoded
    with pytest.raises(ProtocolError, match="warm-up before"):
        source.next()
    assert [view.frame_id for view in source.warmup()] == [0, 1]
    assert decoded == ["rgb-0000.npy", "depth-0000.npy", "rgb-0001.npy", "depth-0001.npy"]
    with pytest.raises(ProtocolError, match="already taken"):
        source.warmup()
    for left, frame in ((3, 2), (2, 3), (1, 4)):
        assert source.remaining == left
        decoded.clear()
        view = source.next()
        assert (view.frame_id, len(decoded)) == (frame, 2)
        assert view.digests["rgb"] == source.manifest.frames[frame].rgb.sha256
    with pytest.raises(ProtocolError, match="have arrived"):
        source.next()


def test_streaming_needs_no_vault(index: Path) -> None:
    """M48, M102: a phase-one job holds no path into the vaults, and runs where they cannot be read."""
    online = validate_episodes(entries_of(index))[0].online
    job = pickle.dumps(online)
    vaults = manifest_path(index, "vault").parent.parent
    assert b"vaults" not in job
    vaults.rename(index.parent / "hidden")
    source = OnlineSource(pickle.loads(job))
    assert len([*source.warmup(), *source.stream()]) == 5


def test_observation_values(rooms_index: Path) -> None:
    """M49: rgb is [3, H, W] in [0, 1] and depth [H, W] in metres, as the files have them."""
    online = validate_episodes(entries_of(rooms_index))[0].online
    view = OnlineSource(online).warmup()[1]
    rgb = np.load(online.folder / "rgb-0001.npy")
    assert view.rgb.shape == (3, 12, 16)
    assert view.rgb.dtype == view.depth.dtype == torch.float32
    np.testing.assert_allclose(view.rgb.numpy(), rgb.transpose(2, 0, 1) / 255.0, atol=1e-7)
    np.testing.assert_array_equal(view.depth.numpy(), np.load(online.folder / "depth-0001.npy"))


def test_depth_convention_ends_here(index: Path) -> None:
    """M18: a file that stores the ray's length gives the same observation as one that stores z."""
    before = OnlineSource(validate_episodes(entries_of(index))[0].online).warmup()[0]
    for which in ("online", "vault"):
        change(index, which, lambda value: value.update(depth_convention="ray"))
    after = OnlineSource(validate_episodes(entries_of(index))[0].online).warmup()[0]
    cosine = after.depth / before.depth
    assert float(cosine.max()) <= 1.0
    assert float(cosine.min()) < 0.9
    from skidpad.streaming.camera import rays

    _, _, z_scale = rays(before.camera, 12, 16)
    np.testing.assert_allclose(cosine.numpy(), z_scale, rtol=1e-5)


def observation(**changes: object) -> Observation:
    camera = Camera("pinhole", pinhole(4, 6, 1.0), look(np.zeros(3), np.array([1.0, 0.0, 0.0])))
    values = {
        "episode_id": "ep-1",
        "frame_id": 0,
        "time_s": 0.0,
        "rgb": torch.full((3, 4, 6), 0.5),
        "depth": torch.ones(4, 6),
        "camera": camera,
        "digests": {},
    }
    return Observation(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rgb": torch.full((3, 4, 6), 255.0)}, "Divide bytes by 255"),
        ({"rgb": torch.full((3, 4, 6), float("nan"))}, "outside"),
        ({"rgb": torch.full((4, 6, 3), 0.5)}, "expected f"),
        ({"rgb": torch.ones(3, 4, 6, dtype=torch.float64)}, "expected f"),
        ({"depth": torch.full((4, 6), -1.0)}, "negative or not finite"),
        ({"depth": torch.full((4, 6), float("inf"))}, "negative or not finite"),
        ({"depth": torch.full((4, 6), float("nan"))}, "negative or not finite"),
        ({"depth": torch.ones(6, 4)}, "expected float32"),
        ({"time_s": float("nan")}, "time"),
    ],
)
def test_observation_is_checked(changes: dict[str, object], match: str) -> None:
    """M49: NaN, negative depth and rgb of 255 are refused where they arise, not as a strange score later."""
    assert observation().frame_id == 0
    assert observation(depth=None).depth is None
    with pytest.raises(ProtocolError, match=match):
        observation(**changes)


def test_vault_content(rooms_index: Path) -> None:
    """M15, M29: an opened vault holds its queries in order, with labels of the images' size, and no task for rooms."""
    found = validate_episodes(entries_of(rooms_index))[0]
    vault = open_vault(found.vault)
    assert vault.vault_id == found.entry.vault_id
    assert vault.task is None
    assert [query.frame_id for query in vault.queries] == [5, 6]
    for query in vault.queries:
        assert query.rgb.shape == (3, 12, 16)
        assert query.depth.shape == query.seen.shape == (12, 16)
        assert query.moving is None
        assert not query.seen[query.depth == 0.0].any()
        assert np.isfinite(points_of(query.camera, query.depth.astype(np.float64))).all()


def test_rgb_only_episode(index: Path) -> None:
    """M7: where the modalities have no depth, none arrives."""

    def without(value: dict) -> None:
        value["modalities"] = ["rgb"]
        for frame in (*value["warmup"], *value["stream"]):
            frame["depth"] = None

    change(index, "online", without)
    view = OnlineSource(validate_episodes(entries_of(index))[0].online).warmup()[0]
    assert view.depth is None
    assert set(view.digests) == {"rgb"}


def test_spherical_episode(tmp_path: Path) -> None:
    """M13, M18: a range image keeps the ray's length, and its bev query, a pinhole, comes back as z."""
    street = {"track": "street_static", "split": "dev", "scenes": ["synthetic:straight:1"], "sensor": "spherical"}
    index = compiled(tmp_path / "data", {**street, "image_size": [16, 48]}, queries=5)
    found = validate_episodes(entries_of(index))[0]
    view = OnlineSource(found.online).warmup()[0]
    assert view.camera.model == "spherical"
    np.testing.assert_array_equal(view.depth.numpy(), np.load(found.online.folder / "depth-0000.npy"))
    query = next(one for one in open_vault(found.vault).queries if one.placement == "bev")
    ground = points_of(query.camera, query.depth.astype(np.float64))[..., 2]
    assert np.abs(ground[query.depth > 0.0]).min() < 1e-3
    assert np.median(np.abs(ground)) < 0.01
