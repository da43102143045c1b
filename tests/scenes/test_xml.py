"""Strict bounded XML (R3, R4, F15): what is refused, where the message points, and that nothing unread stays unsaid."""

from __future__ import annotations

import pytest

from skidpad.errors import FormatError
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, parse_float, parse_xml, report_unread

LIMITS = Limits()
BOMB = (
    b'<!DOCTYPE a [<!ENTITY x "ha">'
    + b"".join(b'<!ENTITY x%d "%s">' % (level, b"&x;" * 10) for level in range(10))
    + b"]><a>&x9;</a>"
)


def parse(text: str | bytes, limits: Limits = LIMITS) -> Element:
    return parse_xml(text.encode() if isinstance(text, str) else text, "f.xml", limits)


def test_tree_text_and_lines() -> None:
    """Messages point at lines, so a reader that lost count would send people to the wrong place."""
    root = parse('<?xml version="1.0"?>\n<a>\n <b x="1"/>\n <c> 5 <!-- five -->6\n</c></a>')
    assert (root.tag, root.line, root.text) == ("a", 2, "")
    assert [(child.tag, child.line, child.text) for child in root.children] == [("b", 3, ""), ("c", 4, "5 6")]
    assert str(root.children[0].error("expected more")) == "f.xml:3: <b>: expected more"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_encodings_that_expat_declares(encoding: str) -> None:
    """Old CommonRoad files are Latin-1: the name of an author must survive."""
    declared = encoding.removesuffix("-sig")
    root = parse(f'<?xml version="1.0" encoding="{declared}"?><a who="Höltke"/>'.encode(encoding))
    assert root.get("who") == "Höltke"


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (b"", 1, "no element found"),
        (b"<a>\n<b>", 2, "no element found"),
        (b"<a>\n<b></a>", 2, "mismatched tag"),
        (b"<a/>\n<b/>", 2, "junk after document element"),
        (b"<a>\n\x00</a>", 2, "not well-formed"),
        (b"<a>\n\xff</a>", 2, "not well-formed"),
        (b'<a b="1"\n b="2"/>', 2, "duplicate attribute"),
        (b"<a>&nbsp;</a>", 1, "undefined entity"),
        (BOMB, 1, "DTD in XML is refused"),
        (b'<!DOCTYPE a SYSTEM "http://localhost/x.dtd"><a/>', 1, "DTD in XML is refused"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', 1, "DTD in XML is refused"),
        (b"<a>\n<?php x?></a>", 2, "processing instruction 'php' is refused"),
        (b'<a>\n<xi:include href="b.xml"/></a>', 2, "XInclude is refused"),
        (b'<a>\n<b xmlns:q="http://www.w3.org/2001/XInclude"><q:include href="b"/></b></a>', 2, "XInclude is refused"),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', 1, "cannot be decoded"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', 1, "cannot be decoded"),
    ],
)
def test_refusals_name_the_line(data: bytes, line: int, says: str) -> None:
    """R4 and F15: document types, entities, instructions and inclusions are refused, never followed."""
    with pytest.raises(FormatError, match=says) as caught:
        parse(data)
    assert str(caught.value).startswith(f"f.xml:{line}: ")


def test_depth_is_bounded_before_the_stack_is() -> None:
    """F15: expat itself accepts 100,000 levels; a recursive reader would die of them."""
    with pytest.raises(FormatError, match="xml_depth is 65, the limit is 64"):
        parse(b"<a>" * 100_000)
    parse(b"<a>" * 64 + b"</a>" * 64)


def test_element_count_is_bounded() -> None:
    """R3: a small file can hold very many empty elements."""
    limits = Limits(xml_elements=1000)
    parse(b"<a>" + b"<b/>" * 999 + b"</a>", limits)
    with pytest.raises(FormatError, match="xml_elements is 1001, the limit is 1000"):
        parse(b"<a>" + b"<b/>" * 1000 + b"</a>", limits)


def test_attribute_and_text_lengths_are_bounded() -> None:
    """R3: one huge attribute or text must not be carried along; indentation between children is no text."""
    parse(b'<a b="' + b"x" * 65536 + b'"/>')
    with pytest.raises(FormatError, match="xml_attribute_bytes is 65537"):
        parse(b'<a b="' + b"x" * 65537 + b'"/>')
    with pytest.raises(FormatError, match="exceeded by the text of <a>"):
        parse(b"<a>" + b"x" * 65537 + b"</a>")
    with pytest.raises(FormatError, match="exceeded by the text of <a>"):
        parse(b"<a>" + b"x<b/>" * 101 + b"</a>", Limits(xml_attribute_bytes=100))
    assert parse(b"<a>" + b"\n    <b/>" * 101 + b"</a>", Limits(xml_attribute_bytes=100)).text == ""


@pytest.mark.parametrize("text", ["0", "-1", "+1", "1.", ".5", "-0.25", "1e3", "1E-3", "3.6e+1", " 7 "])
def test_numbers_that_are_numbers(text: str) -> None:
    """CARLA writes 3.6e+1: the strict pattern must not be too strict."""
    assert parse(f"<a>{text}</a>").text_float() == float(text)


@pytest.mark.parametrize("text", ["", "1_0", "1,5", "0x10", "1e", "--1", "1 2", "٣", "１", "1d0", "true", "None"])
def test_numbers_that_are_not(text: str) -> None:
    """`float` takes 1_0 and the digits of other scripts (hazards table); a file with those is broken."""
    with pytest.raises(FormatError, match="expected a number"):
        parse(f"<a>{text}</a>").text_float()
    with pytest.raises(FormatError, match="expected an integer"):
        parse(f"<a>{text}</a>").text_int()


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-1e999"])
def test_what_is_not_finite_is_asked_for(text: str) -> None:
    """R5: an error in geometry, an invalid row in a track: the caller says which, so both must be possible."""
    element = parse(f"<a x='{text}'>{text}</a>")
    with pytest.raises(FormatError, match="finite number"):
        element.text_float()
    with pytest.raises(FormatError, match="finite number"):
        element.require_float("x")
    assert not abs(element.text_float(finite=False)) < 1e308


@pytest.mark.parametrize("text", ["1.0", "1" * 19, "9223372036854775808"])
def test_integers_fit_into_64_bits(text: str) -> None:
    """Ids become int64: a longer one would overflow far from here."""
    with pytest.raises(FormatError, match="at most 18 digits"):
        parse(f"<a>{text}</a>").text_int()


def test_parse_float_of_free_text() -> None:
    """CHN_Roundabout-1 has the speed '30kmh': no number, and no error either where text is free."""
    assert parse_float("30kmh") is None
    assert parse_float("8.5") == 8.5


def test_children_and_attributes_that_must_be_there() -> None:
    """A missing or doubled child is said with the parent's line, for the child has none."""
    root = parse("<a>\n<b/><b/></a>")
    with pytest.raises(FormatError, match="exactly one <b>, found 2"):
        root.only("b")
    with pytest.raises(FormatError, match="exactly one <c>, found 0"):
        root.only("c")
    with pytest.raises(FormatError, match="attribute 'id' is missing"):
        root.require_int("id")
    assert root.get_float("id") is None


def counted(root: Element, known: set[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    report_unread(root, lambda kind, example: found.append((kind, example)), known)
    return sorted(found)


def test_unread_things_are_reported_once() -> None:
    """R7: whatever a reader does not ask for is in the report, the unknown as such, without its inside."""
    root = parse(
        '<a x="1" y="2" z="3">\n<b>7</b>\n<b>words</b>\n<c><d/><d/></c>\n<e q="1"/><old/></a>',
    )
    root.get("x")
    assert root.all("b")[0].text_int() == 7
    root.first("e")
    assert counted(root, {"@y", "a/old"}) == [
        ("ignored_old", "line 5: a/old"),
        ("ignored_y", "line 1: a@y"),
        ("unknown_attribute", "line 1: a@z"),
        ("unknown_attribute", "line 5: a/e@q"),
        ("unknown_element", "line 4: a/c"),
        ("unknown_text", "line 3: a/b: words"),
    ]


def test_unread_things_come_in_file_order() -> None:
    """The report keeps the first five examples of a kind: they should be the first of the file."""
    root = parse("<a>\n<b><x/></b>\n<b><x/></b>\n<b><x/></b></a>")
    root.all("b")
    found: list[str] = []
    report_unread(root, lambda kind, example: found.append(example), set())
    assert found == [f"line {line}: a/b/x" for line in (2, 3, 4)]


def test_only_the_first_of_a_kind_is_taken_by_first() -> None:
    """A second element of a kind that may occur once would otherwise vanish in silence."""
    root = parse("<a><b/><b/></a>")
    root.first("b")
    assert counted(root, set()) == [("unknown_element", "line 1: a/b")]


def test_skip_marks_everything_inside() -> None:
    """What a reader counts as a whole must not be counted again piece by piece."""
    root = parse('<a><b x="1">t<c><d e="2"/></c></b></a>')
    root.children[0].skip()
    assert counted(root, set()) == []


def test_foreign_text_in_messages_is_short() -> None:
    """F16: a tag of 10,000 letters must not become a message of 10,000 letters."""
    root = parse(f"<{'t' * 10_000}>{'w' * 10_000}</{'t' * 10_000}>")
    with pytest.raises(FormatError) as caught:
        root.text_int()
    assert len(str(caught.value)) < 250
