"""The house stays as ARCHITECTURE.md draws it: arrows between rooms, what is imported when, what may not be written."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "skidpad"

# Who may be imported by whom, beside the room itself: the arrows of ARCHITECTURE.md.
BASE = {"errors", "artifacts", "__init__"}
ALLOWED = {
    "errors": set(),
    "artifacts": BASE,
    "settings": BASE,
    "progress": BASE,
    "scenes": BASE | {"settings"},
    "runs": BASE | {"settings", "scenes"},
    "streaming": BASE | {"settings", "scenes"},
    "simulation": BASE | {"settings", "scenes"},
    "policies": BASE | {"settings", "scenes", "simulation"},
    "adapters": BASE | {"settings", "scenes", "simulation"},
    "rendering": BASE | {"settings", "scenes", "runs"},
    "engines": BASE,
    "evaluation": BASE | {"engines", "settings", "scenes", "runs", "simulation", "policies", "rendering", "streaming"},
    "training": BASE | {"settings", "scenes", "simulation", "policies", "runs", "evaluation"},
    "reporting": BASE | {"settings", "scenes", "runs", "rendering", "evaluation", "streaming"},
}
# Settings know one thing of scenes and of policies: where the bundled files lie, so that `library:Town01` and a shipped
# driver among `eval.baselines` can be checked at load.
EXCEPTIONS = {("settings/suite.py", "scenes"), ("settings/suite.py", "policies")}
HEAVY = (
    "numpy",
    "numba",
    "torch",
    "scipy",
    "cv2",
    "jinja2",
    "pydantic",
    "matplotlib",
    "safetensors",
    "gymnasium",
    "pettingzoo",
)


def imports_of(path: Path) -> set[str]:
    """Rooms of the package that a file imports, wherever in the file."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "skidpad" else [f"skidpad.{alias.name}" for alias in node.names]
        for name in names:
            if name == "skidpad" or name.startswith("skidpad."):
                rooms.add((name + ".__init__").split(".")[1])
    return rooms


def sources() -> list[Path]:
    """Every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_arrows(path: Path) -> None:
    """A room imports only what its arrow allows: one convenient import turns rooms into a knot."""
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room in {"cli", "__main__", "__init__", "bench"}:
        return
    known = {name: allowed for name, allowed in ALLOWED.items() if name == room}
    assert known, f"room {room} is not in the list of ARCHITECTURE.md"
    rooms = {name for name in imports_of(path) if (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists()}
    excused = {name for file, name in EXCEPTIONS if file == path.relative_to(PACKAGE).as_posix()}
    refused = sorted(rooms - ALLOWED[room] - {room} - excused)
    assert not refused, f"{path}: {room} may not import {refused}"


def loaded_by(code: str) -> set[str]:
    """Top-level modules in memory after running some code in a fresh interpreter."""
    text = f"import sys\n{code}\nprint(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    """`skidpad --help` answers at once: one top-level import of torch in a module it reaches costs a second."""
    loaded = loaded_by("from skidpad.cli import run\nrun(['--help'])")
    assert not loaded & set(HEAVY)


def test_settings_load_nothing_heavy() -> None:
    """A typo in a suite is found before torch, numba or scipy are imported (E10, F1)."""
    loaded = loaded_by("import skidpad.settings.suite, skidpad.evaluation.evaluators")
    assert not loaded & {"numba", "torch", "scipy", "cv2", "jinja2"}


def test_architecture_lists_every_room() -> None:
    """ARCHITECTURE.md names every folder of the package: a room nobody wrote down is a room nobody looks after."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {room for room in rooms if f"`{room}/`" not in text} == set()


TEXT_SUFFIXES = {".py", ".md", ".toml", ".html", ".cff", ".cfg", ".ini", ".sh", ""}
FORBIDDEN = re.compile(
    r"py[p]i\.org|python[h]osted|registry\.np[m]js|deb\.deb[i]an\.org|(?<![A-Za-z0-9_.])/(wo[r]k|ro[o]t)/[a-z]"
)


def test_nothing_names_a_machine() -> None:
    """No file names a registry host or a path of somebody's machine: such text is wrong for every reader but one."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in TEXT_SUFFIXES and path.is_file():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if FORBIDDEN.search(line):
                    found.append(f"{name}:{number}")
    assert found == []


def test_no_forbidden_calls() -> None:
    """No global random generator, no change of directory, no pickle, no fastmath: each has cost somebody a result.

    Compiled kernels are the exception for pickles: Numba's entries and types are nothing else. They lie in a folder
    private to the user, and pass through a pipe from our own process.
    """
    found = []
    for path in sources():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            code = line.split("#")[0]
            if re.search(r"os\.chdir|np\.random\.(seed|rand|normal|uniform)\(|pickle\.load|fastmath\s*=\s*True", code):
                found.append(f"{path.relative_to(PACKAGE).as_posix()}:{number}")
    assert [place for place in found if not place.startswith("artifacts/compile")] == []


def test_changelog_is_of_this_version() -> None:
    """The top version of the changelog is the package's: a release without its lines helps nobody."""
    import skidpad

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    top = re.search(r"^## \[([^\]]+)\]", text, re.M)
    assert top is not None
    assert top.group(1) == skidpad.__version__
