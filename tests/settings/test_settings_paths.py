"""Variables and paths: expanded explicitly, checked at load, relative to the file that wrote them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skidpad.errors import SettingsError
from skidpad.settings import scene_paths
from skidpad.settings.scene_paths import expanded, find_scenes
from skidpad.settings.suite import Suite, load_suite

Load = Callable[..., Suite]
Refusal = Callable[..., str]

HEAD = '[eval.x]\ntype = "realism"\n'


class TestVariables:
    """env_vars_explicit E12: an unexpanded `$USER` killed every behaviour evaluation of the peer."""

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("${A}/x", "one/x"),
            ("${A}${A}", "oneone"),
            ("${NO:-two}/x", "two/x"),
            ("${NO:-}/x", "/x"),
            ("${A:-two}", "one"),
            ("${EMPTY:-two}", "two"),
            ("$$A/x$$", "$A/x$"),
            ("$${A}", "${A}"),
            ("${DOLLAR}", "${A}"),
            ("a~/x", "a~/x"),
        ],
    )
    def test_expanded_once(self, text: str, value: str) -> None:
        """Set, fallback, literal; what a variable holds is not expanded again."""
        assert expanded(text, {"A": "one", "EMPTY": "", "DOLLAR": "${A}"}) == value

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("${NO}/x", "NO is not set; set it, or write ${NO:-fallback}"),
            ("${EMPTY}/x", "EMPTY is not set"),
            ("$A/x", "write ${A}, or $$A for a literal dollar"),
            ("a$", "write $$ for a literal dollar"),
            ("${A", "bare '$'"),
            ("${}", "bare '$'"),
            ("${A:x}", "bare '$'"),
            ("~/x", "write ${HOME}/x"),
        ],
    )
    def test_refused_with_the_right_spelling(self, text: str, message: str) -> None:
        """Unset and empty: `${DATA}/x` must not become `/x`; bare and `~`: never passed on as they are."""
        with pytest.raises(ValueError) as caught:
            expanded(text, {"A": "one", "EMPTY": ""})
        assert message in str(caught.value)

    def test_only_in_paths(self, load: Load) -> None:
        """A label with a dollar is text; the raw text of a path stays known beside the files."""
        spec = load(f'{HEAD}label = "$A ${{A}}"\nenv.scenes = "${{A}}/*.scene"\n', environ={"A": "data"}).spec("x")
        assert spec.eval.model_dump()["label"] == "$A ${A}"
        assert spec.scenes_text == ("${A}/*.scene",)
        assert [path.name for path in spec.scenes] == ["a.scene", "b.scene", "c.scene"]

    def test_process_environment_is_the_default(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without `environ` the variables are the shell's."""
        monkeypatch.setenv("SKIDPAD_TEST_DATA", "data")
        assert len(load(f'{HEAD}env.scenes = "${{SKIDPAD_TEST_DATA}}"').spec("x").scenes) == 3

    def test_disabled_sections_wait(self, load: Load) -> None:
        """Refused for enabled sections only, and for a disabled one when it is run by name."""
        suite = load(f'{HEAD}enabled = false\nenv.scenes = "${{NO}}"\n', environ={})
        with pytest.raises(SettingsError, match=r"suite\.toml:4: env\.scenes of \[eval\.x\]: .* NO is not set"):
            suite.spec("x")


class TestScenes:
    """E13: each path exists, is of the right kind, is readable, and yields a scene."""

    def test_missing_paths_reported_together(self, refusal: Refusal, folder: Path) -> None:
        """missing_paths_reported_together, EF6: three sections, two missing paths, one message."""
        text = "".join(
            f'[eval.{name}]\ntype = "realism"\nenv.scenes = "{path}"\n'
            for name, path in [("a", "nowhere"), ("b", "data"), ("c", "data/z.scene")]
        )
        assert refusal(text, name="s.toml") == (
            "s.toml:3: env.scenes of [eval.a]: 'nowhere' is not there\n"
            "s.toml:9: env.scenes of [eval.c]: 'data/z.scene' is not there"
        )

    def test_one_message_for_four_kinds(self, refusal: Refusal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """EF6: unset variable, missing folder, empty folder, unreadable file, each named with its section."""
        (folder / "empty").mkdir()
        monkeypatch.setattr(scene_paths.os, "access", lambda path, mode: Path(path).name != "b.scene")
        text = f'{HEAD}env.scenes = ["${{NO}}/x", "nowhere/", "empty", "data/b.scene", "*.none", "data/a.scene"]\n'
        message = refusal(text, name="s.toml", environ={})
        for part in (
            "NO is not set",
            "'nowhere' is not there",
            "'empty' holds no .scene file",
            "may not be read: ",
            "no scene",
        ):
            assert part in message
        assert message.count("s.toml:3: env.scenes of [eval.x]: ") == len(message.split("\n")) == 5

    def test_relative_to_the_file_not_the_working_directory(
        self, load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """The same suite runs from another directory, named relative to that directory too."""
        expected = [path.resolve() for path in load(f'{HEAD}env.scenes = "data"').spec("x").scenes]
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        relative = Path(os.path.relpath(folder / "suite.toml"))
        from skidpad.settings.schema import EvalKnobs
        from skidpad.settings.suite import EvaluatorType

        types = {"realism": EvaluatorType("realism", EvalKnobs, {"action_selection": "sample"})}
        assert [path.resolve() for path in load_suite(relative, types=types).spec("x").scenes] == expected

    def test_override_is_relative_to_the_working_directory(
        self, load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command line is no file: what one types is meant from where one stands."""
        monkeypatch.chdir(folder / "data")
        spec = load(HEAD, "eval.x.env.scenes=b.scene").spec("x")
        assert [path.resolve() for path in spec.scenes] == [(folder / "data" / "b.scene").resolve()]

    def test_kinds_of_entry(self, folder: Path) -> None:
        """File, folder, glob, recursive glob, list file and library, each sorted byte-wise (R15)."""
        data = folder / "data"
        (data / "Z.scene").touch()
        (data / "notes.md").touch()
        (data / "sub").mkdir()
        (data / "sub" / "d.scene").touch()
        (folder / "mine.txt").write_text("data/c.scene\n\n data/a.scene \r\n", "utf-8-sig")

        def names(text: str) -> list[str]:
            found = find_scenes(text, folder, {}, lambda pattern: [data / "c.scene", data / f"{pattern}.scene"])
            return [path.name for path in found]

        assert names("data/b.scene") == ["b.scene"]
        assert names("data/notes.md") == ["notes.md"]
        assert names("data") == ["Z.scene", "a.scene", "b.scene", "c.scene"]
        assert names("data/[ab]*.scene") == ["a.scene", "b.scene"]
        assert names("**/*.scene") == ["Z.scene", "a.scene", "b.scene", "c.scene", "d.scene"]
        assert names("mine.txt") == ["a.scene", "c.scene"]
        assert names(str(data / "a.scene")) == ["a.scene"]
        assert names("library:b") == ["b.scene", "c.scene"]

    def test_several_entries_keep_their_order(self, load: Load) -> None:
        """Sorted within an entry, entries as written: the order decides which scenes `num_scenarios` takes."""
        spec = load(f'{HEAD}env.scenes = ["data/c.scene", "data/*.scene"]').spec("x")
        assert [path.name for path in spec.scenes] == ["c.scene", "a.scene", "b.scene", "c.scene"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"a.scene\n", "names files that are not there: "),
            (b"", "matches no scene"),
            (b"\xff", "is not UTF-8 text"),
        ],
    )
    def test_bad_lists(self, folder: Path, content: bytes, message: str) -> None:
        """A list that names nothing, or what is not there, loses a batch in the middle of a training."""
        (folder / "bad.txt").write_bytes(content)
        with pytest.raises(ValueError) as caught:
            find_scenes("bad.txt", folder, {}, lambda pattern: [])
        assert message in str(caught.value)

    @pytest.mark.parametrize("entry", ["", "a\0b", "x" * 300, "library:zzz", "data/*/"])
    def test_odd_entries(self, folder: Path, entry: str) -> None:
        """Empty, NUL, longer than a name may be, nothing in the library: a sentence, never another exception."""
        with pytest.raises(ValueError):
            find_scenes(entry, folder, {}, lambda pattern: [])

    def test_a_section_needs_scenes(self, refusal: Refusal) -> None:
        """An evaluator without scenes would finish at once, with nothing."""
        assert refusal(HEAD, name="s.toml").startswith("s.toml:1: [eval.x] needs env.scenes: a path, a list of paths")

    def test_more_scenes_requested_than_present(self, refusal: Refusal, load: Load) -> None:
        """EF8, E65: both numbers; replicates are cases, not scenes. One file named twice is one scene."""
        text = f'{HEAD}env.scenes = ["data", "data/a.scene"]\nnum_scenarios = 4\n'
        assert refusal(text, name="s.toml") == (
            "s.toml:4: eval.num_scenarios = 4, but env.scenes of [eval.x] has 3 scenes; "
            "ask for fewer, or for several cases a scene with eval.replicates"
        )
        assert load(text.replace("= 4", "= 3")).spec("x").eval.num_scenarios == 3

    def test_library_is_the_package_s_by_default(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        """`library:<glob>` asks the scenes room, and only then is it imported."""
        import sys
        import types

        fake = types.ModuleType("skidpad.scenes.library")
        fake.library_scenes = lambda pattern: [Path(__file__)] if pattern == "us101*" else []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "skidpad.scenes.library", fake)
        assert load(f'{HEAD}env.scenes = "library:us101*"').spec("x").scenes == (Path(__file__),)
