"""Writing files so that after any fault each one is absent, old, or new, and never half of anything.

`replace` overwrites, `create` refuses an existing name; both write a temporary file beside the target, sync it, and
move it into place. `LineFile` appends whole lines, each synced, and cuts a torn last line when it opens. `run_lock`
keeps a second runner out of a folder, `held` makes one wait. Caches lie in folders that only their user may enter.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from skidpad.errors import AlreadyThereError, FormatError, IntegrityError, UsageError

LINE_CAP_BYTES = 16 << 20
TEMPORARY = ".tmp-"  # follows the target's name in that of a file being written
PRIVATE_FILE = 0o600


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(target: Path, data: bytes | memoryview, mode: int = 0o666) -> Path:
    temporary = target.with_name(f"{target.name}{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with _naming(target), os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors of the system without a name, as those of a full disk, get the name of what was written."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def replace(target: Path, data: bytes | memoryview, *, mode: int = 0o666) -> None:
    """Put `data` at `target`, over whatever was there. After any fault the old file is intact and no temporary is
    left.

    mode  permissions of the file, less the umask
    """
    temporary = _write_temporary(target, data, mode)
    try:
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def create(target: Path, data: bytes | memoryview) -> None:
    """Put `data` at `target`, which must not exist.

    The final name appears by a hard link, which fails if the name is taken and never shows a partial file.
    Raises AlreadyThereError when the target exists.
    """
    temporary = _write_temporary(target, data)
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise AlreadyThereError(f"{target}: already there. Remove it, or choose another name.") from None
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


@contextlib.contextmanager
def temporary_folder(parent: Path, name: str) -> Iterator[Path]:
    """A private folder of a name no other process has, gone when the block ends, however it ends."""
    folder = parent / f"{name}{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a file that is not there yet under its final name: only in a folder that `new_folder` syncs and names."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a temporary folder beside `target` in the block; it gets that name when the block ends, and after any fault
    neither is there.

    Raises AlreadyThereError when the target exists, before and after.
    """
    taken = AlreadyThereError(f"{target}: already there. Remove it, or choose another name.")
    if target.exists() or target.is_symlink():
        raise taken
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        yield temporary
        os.sync()  # once for all files: a thousand single syncs take ten seconds
        if target.exists():  # a rename would replace an empty folder without a word
            raise taken
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(target.parent)


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a file of at most `limit` bytes.

    Raises OSError as `open` does, and FormatError when the file is larger: no more than that is ever read.
    """
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FormatError(f"{path}: above {limit} bytes, which is the most that is read of it.")
    return data


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in names if names.count(name) > 1)!r}")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: str | bytes, *, parse_int: Callable[[str], int] | None = None) -> Any:
    """Strict JSON: no duplicate keys, no NaN or infinity, bounded nesting. Raises ValueError saying what is wrong.

    parse_int  makes integers of their text, for files from elsewhere whose integers are bounded; int where left out
    """
    pairs = _object_without_duplicates
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=_refuse_constant, parse_int=parse_int)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class LineFile:
    """An append-only file of lines that survives a kill at any moment.

    Each line is one `write`; lines that are added together are synced together. A last line without its newline is
    the mark of a kill: it is cut when the file is opened, and `torn_bytes` says how much was lost, for the caller.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_bytes = self._cut_torn_line()
        self._file: IO[bytes] = path.open("ab", buffering=0)
        try:
            _sync_folder(path.parent)
        except BaseException:
            self._file.close()
            raise

    def _cut_torn_line(self) -> int:
        if not self.path.exists():
            return 0
        with self.path.open("r+b") as file:
            data = file.read()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                file.truncate(whole)
                file.flush()
                os.fsync(file.fileno())
        return len(data) - whole

    def append(self, *lines: str) -> None:
        """Add lines, which are on the disk when this returns. Raises ValueError, and adds none, when one holds a
        newline or is above LINE_CAP_BYTES.

        A write that fails closes the file: another line after a torn one would put the damage where no opening
        repairs it.
        """
        encoded = [line.encode() + b"\n" for line in lines]
        if any(b"\n" in data[:-1] or len(data) > LINE_CAP_BYTES for data in encoded):
            raise ValueError("a line must hold no newline and stay under 16 MiB")
        try:
            with _naming(self.path):
                for data in encoded:
                    while data:  # A disk that is nearly full takes a part; why it takes no more, the next write says.
                        data = data[self._file.write(data) :]
                os.fsync(self._file.fileno())
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Whole lines of a line file with their numbers from 1; a torn last line is left out.

    Raises IntegrityError for a line that is not UTF-8 or above LINE_CAP_BYTES.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_CAP_BYTES + 1):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) > LINE_CAP_BYTES:
                    raise IntegrityError(f"{path}:{number}: line above {LINE_CAP_BYTES} bytes")
                return
            try:
                yield number, line[:-1].decode()
            except UnicodeDecodeError as error:
                raise IntegrityError(f"{path}:{number}: byte {error.start} is not UTF-8") from None


def user_cache_folder(name: str) -> Path:
    """Where this user's cache of some kind lies: under $XDG_CACHE_HOME, else ~/.cache. Nothing is made."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skidpad" / name


def private_folder_problem(folder: Path) -> str | None:
    """Make a folder that only this user may enter, if it is absent; None, or why there is none.

    What others may write is no cache but a way to have their data, or their code, taken for ours.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not is_private(status):
        return f"{folder}: it is not private to this user"
    return None


def is_private(status: os.stat_result) -> bool:
    """Whether something belongs to this user, and nobody else may do anything with it."""
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for the lock file `path` and hold it while the block runs, against other threads and other processes. The
    lock dies with its process; the empty file stays.

    Raises OSError where the file cannot be made, or the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold `folder/run.lock` while the block runs. The lock dies with its process; the data in it is only for the
    reader.

    Raises AlreadyThereError naming pid, host and start of the holder when another process has it.
    """
    path = folder / "run.lock"
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise AlreadyThereError(
                f"{folder}: another runner holds this folder ({_holder(file.read())}). "
                "Wait for it, or choose another --out."
            ) from None
        except OSError as error:
            raise UsageError(
                f"{path}: this file system has no locks ({error.strerror}). Choose a local --out."
            ) from None
        file.truncate(0)
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "start": start}).encode())
        file.flush()
        yield


def _holder(data: bytes) -> str:
    try:
        holder = json.loads(data)
        return f"pid {holder['pid']} on {holder['host']}, since {holder['start']}"
    except (ValueError, KeyError, TypeError):
        return "holder unknown"
