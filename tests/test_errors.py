"""The exception tree, and the shape of messages."""

from __future__ import annotations

import re

import skidpad.errors as errors
from skidpad.errors import SkidpadError, listed, nearest


def drawn_tree() -> dict[str, str]:
    """Class to parent, as the module's docstring draws it."""
    stack: list[tuple[int, str]] = []
    parents = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^(?P<indent>[ |]*)(?P<mark>\+- )?(?P<name>[A-Z]\w+Error)\b", line)
        if found is None:
            continue
        depth = len(found["indent"]) + (3 if found["mark"] else 0)
        while stack and stack[-1][0] >= depth:
            stack.pop()
        parents[found["name"]] = stack[-1][1] if stack else ""
        stack.append((depth, found["name"]))
    return parents


def test_tree_is_as_drawn() -> None:
    """The tree drawn in the docstring is the tree of classes: readers catch errors by the drawing."""
    classes = {
        name: item for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, SkidpadError)
    }
    real = {
        name: next((base.__name__ for base in item.__bases__ if issubclass(base, SkidpadError)), "")
        for name, item in classes.items()
    }
    assert drawn_tree() == real


def test_exit_codes() -> None:
    """Usage ends with 2, a failed case with 1, a broken digest with 3 (faults.md, exit codes)."""
    codes = {item.__name__: item.exit_code for item in SkidpadError.__subclasses__()}
    assert codes == {"UsageError": 2, "CaseError": 1, "IntegrityError": 3}


def test_every_class_inherits_a_builtin() -> None:
    """Nobody has to import our errors to catch them: each is also the built-in a caller expects."""
    for item in (errors.UsageError, errors.ProtocolError, errors.AlreadyThereError, errors.CaseError):
        assert issubclass(item, (ValueError, RuntimeError, OSError, ImportError))


def test_lists_are_cut_and_counted() -> None:
    """Long lists in messages end in the count of the rest: a message of 3,000 ids is not read."""
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(8)) == "0, 1, 2, 3, 4 and 3 more"


def test_nearest_name() -> None:
    """A typo is answered with the known name, nonsense with nothing."""
    assert nearest("horizont", ["horizon", "seed"]) == "; did you mean 'horizon'?"
    assert nearest("zzz", ["horizon", "seed"]) == ""
