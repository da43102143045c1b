"""What runs while streaming cannot reach what must stay hidden, not even through others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import skidpad

PACKAGE = Path(skidpad.__file__).parent
STREAMING = (
    "blocks", "budget", "camera", "carrier", "check", "completion", "controls", "episode", "feedback", "mapper_file",
    "policies", "presets", "renderer", "runner", "seal", "threads", "write_rule", "writer",
)  # fmt: skip
HIDDEN = (
    "streaming.sealed", "streaming.vault", "streaming.provenance", "streaming.compile", "streaming.rooms",
    "streaming.streets", "streaming.train", "evaluation", "simulation",
)  # fmt: skip


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports anywhere, as dotted names below it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("skidpad.") for name in found if name.startswith("skidpad.")}


def reached(path: Path) -> set[str]:
    """Modules that a file imports, directly or through others."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for name in imported(waiting.pop()) - found:
            found.add(name)
            place = PACKAGE.joinpath(*name.split("."))
            waiting += [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
    return found


def leaks(path: Path) -> list[str]:
    """Hidden modules that a file reaches."""
    return sorted(name for name in reached(path) if any((name + ".").startswith(one + ".") for one in HIDDEN))


@pytest.mark.parametrize("name", STREAMING)
def test_streaming_reaches_nothing_hidden(name: str) -> None:
    """M100: the modules that run while frames arrive reach neither vaults nor generators nor evaluation."""
    assert leaks(PACKAGE / "streaming" / f"{name}.py") == []


def test_planted_imports_are_found(tmp_path: Path) -> None:
    """M100: an import inside a function, one of a name out of a package, and one through another module are seen."""
    for number, text in enumerate(
        (
            "def f():\n    import skidpad.streaming.vault",
            "from skidpad.streaming import compile",
            "from skidpad.evaluation.metrics import registry",
            "from skidpad.streaming.provenance import validate_episodes",
        )
    ):
        path = tmp_path / f"planted_{number}.py"
        path.write_text(text)
        assert leaks(path), text
