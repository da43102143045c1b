"""What every kernel declares, and that its cache never serves stale, foreign or damaged code (S126, S127, F20, F24)."""

from __future__ import annotations

import ast
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import Linkage
from worlds import car, coast, simulator, straight_road

import skidpad
from skidpad.artifacts import compile as compiling
from skidpad.settings.schema import EnvSettings

PACKAGE = Path(skidpad.__file__).parent
SOURCES = compiling.kernel_sources()

# A kernel imports these for names, types or codes at build time only; nothing of them is compiled in.
NOT_COMPILED = {"skidpad.errors", "skidpad.artifacts.digests", "skidpad.artifacts.files"}


def trees():
    return [(path, ast.parse(path.read_text())) for path in SOURCES]


def decorators(tree):
    """(function, names of its decorators) of every function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, [ast.unparse(d) for d in node.decorator_list]


def test_kernels_are_declared_in_one_way():
    """Nobody calls Numba but `artifacts/compile.py` with its dispatcher, and the two modules that write machine code: a
    second set of options would make other bits (style 7.2)."""
    artifacts, kernels = PACKAGE / "artifacts", PACKAGE / "simulation" / "kernels"
    doors = {artifacts / "compile.py", artifacts / "dispatch.py", kernels / "slots.py", kernels / "machine.py"}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if "numba" not in text and "kernel" not in text:
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if path not in doors:
                assert not any(name.split(".")[0] == "numba" for name in names), f"{path}: imports numba"
        uses = any("kernel" in names for _, names in decorators(tree))
        assert not uses or path in SOURCES, f"{path}: has kernels but is not in KERNEL_SOURCES"


def test_every_function_of_a_kernel_module_is_a_kernel():
    """In `simulation/kernels` a bare function must be private and only build constants: called from a kernel it would
    be an object, or not compile at all."""
    for path, tree in trees():
        if path.parent.name != "kernels":
            continue
        bare = {function.name for function, names in decorators(tree) if names != ["kernel"]}
        assert all(name.startswith("_") for name in bare), f"{path}: {bare}"
        for function, names in decorators(tree):
            if "kernel" in names:
                used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
                assert not used & bare, f"{path}:{function.lineno}: {function.name} uses {used & bare}"


def test_options_are_the_declared_set():
    """No fastmath (it drops NaN checks), numpy division, nogil, no reference counts: on every compiled function."""
    import importlib

    assert dict(compiling.OPTIONS) == {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": False,
        "_nrt": False,
        "no_cfunc_wrapper": True,
    }
    assert os.environ["NUMBA_SLP_VECTORIZE"] == "1"
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}:
        pytest.skip("nothing is compiled under NUMBA_DISABLE_JIT=1")
    found = 0
    for path, tree in trees():
        module = importlib.import_module(".".join(("skidpad", *path.relative_to(PACKAGE).with_suffix("").parts)))
        for function, names in decorators(tree):
            if "kernel" in names:
                options = getattr(module, function.name).targetoptions
                assert {k: options[k] for k in compiling.OPTIONS} == dict(compiling.OPTIONS)
                assert not options.get("parallel", False)
                found += 1
    assert found > 30


def test_kernels_draw_no_global_random_numbers():
    """`np.random` in a kernel is a generator nobody seeded (S32)."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {"np.random", "numpy.random"}:
                raise AssertionError(f"{path}:{node.lineno}: np.random")
            if isinstance(node, ast.Import):
                assert not any(alias.name == "random" for alias in node.names), path


def imports_of(path):
    """Modules of ours that a file imports when it is loaded."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skidpad"):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("skidpad"))


def test_what_kernels_import_is_in_the_digest():
    """F24: a constant is frozen into compiled code, so a module it comes from must be among the sources."""
    files = {".".join(("skidpad", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in PACKAGE.rglob("*.py")}
    todo, seen = list(SOURCES), set(SOURCES)
    while todo:
        path = todo.pop()
        for module in imports_of(path):
            target = files.get(module)
            if target is None or target in seen or module in NOT_COMPILED or target.name == "__init__.py":
                continue
            assert target in SOURCES, f"{path} imports {module}, which is not in KERNEL_SOURCES"
            seen.add(target)
            todo.append(target)


def test_folder_changes_with_every_source_and_switch(tmp_path):
    """F24, S127: an edit in any kernel file, also an imported one, and any NUMBA_* switch gives another folder."""
    for path in SOURCES:
        copy = tmp_path / path.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    plain = compiling.kernel_digest(tmp_path, {})
    assert plain == compiling.kernel_digest(PACKAGE, {})
    seen = {plain}
    for path in compiling.kernel_sources(tmp_path):
        text = path.read_text()
        path.write_text(text + "\n")
        seen.add(compiling.kernel_digest(tmp_path, {}))
        path.write_text(text)
    for switch in ("NUMBA_BOUNDSCHECK", "NUMBA_OPT", "NUMBA_SLP_VECTORIZE", "NUMBA_CPU_NAME"):
        seen.add(compiling.kernel_digest(tmp_path, {switch: "1"}))
    assert len(seen) == 1 + len(SOURCES) + 4
    assert compiling.kernel_digest(tmp_path, {"HOME": "/elsewhere"}) == plain


PROGRAM = """
import sys, warnings
from pathlib import Path
import skidpad.artifacts.compile as compiling
from skidpad.simulation import random
import numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    value = int(random.words(np.uint64(5), 1, 2, 3, 4, 5)[0])
    again = int(random.integer(np.uint64(5), 1, 2, 3, 4, 5, 10))
folder = compiling.kernel_cache()
stats = getattr(random.words, "stats", None)
hits = sum(stats.cache_hits.values()) if stats else -1
print(value, again, hits, len(caught), folder, sep="|")
print(*(str(w.message) for w in caught), sep="\\n")
"""


def run(cache: Path, **environ):
    """Value, cache hits, number of warnings and folder of a fresh process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    env |= {"XDG_CACHE_HOME": str(cache), **environ}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    value, again, hits, warned, folder = done.stdout.splitlines()[0].split("|")
    assert (int(value), int(again)) == EXPECTED
    return int(hits), int(warned), Path(folder) if folder != "None" else None


def _expected():
    import naive

    word = naive.words(5, 1, 2, 3, 4, 5)[0]
    return word, word * 10 >> 32


EXPECTED = _expected()


@pytest.mark.slow
def test_cache_over_processes(tmp_path):
    """A second process compiles nothing; an altered entry is compiled again, never run (F20); and a folder that others
    may write is not used, because entries are pickles and could run their code."""
    hits, warned, folder = run(tmp_path)
    assert (hits, warned) == (0, 0)
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(tmp_path)[:2] == (1, 0)
    entries = sorted(folder.glob("simulation.random.*.bin"))
    assert len(entries) == 2  # what Python calls, not what that calls
    for entry in entries:
        data = entry.read_bytes()
        entry.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    assert run(tmp_path)[:2] == (0, 0)
    folder.chmod(0o777)
    hits, _, used = run(tmp_path)
    assert (hits, used) == (0, None)


TURNS = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh")
GROWTH = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "hypot", "fmod", "cbrt")
LIBM = {name + size for name in TURNS + GROWTH for size in ("", "f")}


def names_in(code: bytes) -> set[str]:
    """The C functions that compiled code calls: words between zeros, as a table of symbols has them."""
    return {word.decode() for word in re.findall(rb"(?<=\x00)([a-z_][a-z_0-9]{1,40})(?=\x00)", code)}


def sine_of_the_library(x):
    """What must be found, if it were there."""
    return np.sin(x)


def test_no_kernel_of_a_step_calls_the_library():
    """S35, S124, weakness 8: sines, exponentials and roots of other powers differ between C libraries in their last
    bits, and take 20 ns each; the kernels of a step, whoever drives, have polynomials of their own."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"} or compiling.kernel_cache() is None:
        pytest.skip("nothing is compiled, or kept")
    control = compiling.kernel(sine_of_the_library)
    control(1.0)
    [made] = control.overloads.values()
    assert "sin" in names_in(made.library._get_compiled_object()) & LIBM
    for drivers in ("idm", "pdm"):
        sim = simulator(straight_road([car(50.0, speed=5.0), car(80.0)]), EnvSettings(vehicle_controller=drivers))
        sim.reset()
        sim.step(coast(sim))
        phases = sim._phases
        for phase in (*phases.plan, phases.advance, phases.detect, phases.outcomes, phases.observe):
            name = f"{phase.__module__.removeprefix('skidpad.')}.*{phase.__name__}-*.bin"
            entries = list(compiling.kernel_cache().glob(name))
            assert entries, name
            for entry in entries:
                assert not names_in(entry.read_bytes()) & LIBM, entry.name


def test_what_only_kernels_call_is_part_of_them():
    """S124: a phase shows its entry and that for Python, and nothing else. What others could call besides is handed
    every word of every array, for each agent anew, which was a third of a step."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}:
        pytest.skip("nothing is compiled")
    sim = simulator(straight_road([car(50.0, speed=5.0), car(80.0)]), EnvSettings())
    sim.reset()
    sim.step(coast(sim))
    phases = sim._phases
    for phase in (phases.advance, phases.detect, phases.outcomes, phases.observe):
        for made in phase.overloads.values():
            functions = made.library._get_module_for_linking().functions
            shown = {one.name for one in functions if not one.is_declaration and one.linkage != Linkage.internal}
            assert shown == {made.fndesc.llvm_func_name, made.fndesc.llvm_cpython_wrapper_name}


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "header"])
def test_a_damaged_entry_is_absent(tmp_path, damage):
    """F20: entry cut or altered; unpickling it, or running it, could do anything."""
    entries = compiling._Entries(tmp_path, "base")
    entries.save("key", list(range(100)))
    path = entries._path("key")
    data = path.read_bytes()
    flipped = data[:80] + bytes([data[80] ^ 1]) + data[81:]
    path.write_bytes({"cut": data[:70], "empty": b"", "flipped": flipped, "header": b"\0" + data[1:]}[damage])
    assert entries.load("key") is None
    entries.save("key", list(range(100)))
    assert entries.load("key") == list(range(100))


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path):
    """F20: where the cache folder cannot exist, kernels work and one warning names it, not one per kernel."""
    blocked = tmp_path / "a file where the folder should be"
    blocked.write_text("")
    env = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")} | {"XDG_CACHE_HOME": str(blocked)}
    program = "from skidpad.simulation import random, kernels\n" + PROGRAM
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{EXPECTED[0]}|{EXPECTED[1]}|0|0|None")
    assert done.stderr.count("kernels are compiled anew in every process") == 1


def test_a_full_disk_costs_one_warning(tmp_path, monkeypatch):
    """F20: an entry that cannot be written is warned about once; the compiled code in memory goes on."""
    monkeypatch.setattr(compiling, "_warned", [])

    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiling, "replace", full)
    entries = compiling._Entries(tmp_path, "base")
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        entries.save("key", "payload")
    entries.save("other", "payload")  # A second warning would be an error here.
    assert entries.load("key") is None


def test_entries_answer_only_their_own_key(tmp_path):
    """Two signatures must never share code, even if their file names collided."""
    entries = compiling._Entries(tmp_path, "base")
    entries.save(("a", 1), np.arange(3).tolist())
    assert entries.load(("a", 1)) == [0, 1, 2]
    assert entries.load(("a", 2)) is None
    os.replace(entries._path(("a", 1)), entries._path(("a", 2)))
    assert entries.load(("a", 2)) is None
    entries.flush()
    assert list(tmp_path.iterdir()) == []
