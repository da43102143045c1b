"""Small SUMO networks for the tests, put together from readable pieces."""

from __future__ import annotations


def lane(identity: str, index: int, shape: str, more: str = "", *, speed: float = 13.9) -> str:
    return f'<lane id="{identity}" index="{index}" speed="{speed}" length="1.00" shape="{shape}" {more}/>'


def edge(identity: str, *lanes: str, **more: str) -> str:
    return f'<edge id="{identity}" {_attributes(more)}>{"".join(lanes)}</edge>\n'


def connection(start: str, end: str, lanes: str = "00", **more: str) -> str:
    ends = f'fromLane="{lanes[0]}" toLane="{lanes[1]}"'
    return f'<connection from="{start}" to="{end}" {ends} {_attributes(more)}/>\n'


def logic(identity: str, phases: str, *, type: str = "static", offset: float = 0.0) -> str:
    return f'<tlLogic id="{identity}" type="{type}" programID="0" offset="{offset}">{phases}</tlLogic>\n'


def net(*parts: str, offset: str = "0,0", **more: str) -> bytes:
    head = f'<?xml version="1.0"?>\n<!-- made by hand -->\n<net version="1.20" {_attributes(more)}>\n'
    return (head + f'<location netOffset="{offset}"/>\n' + "".join(parts) + "</net>\n").encode()


def _attributes(values: dict[str, str]) -> str:
    return " ".join(f'{key}="{value}"' for key, value in values.items())


PHASES = (
    '<phase duration="30" state="G"/><phase duration="3" state="y"/><phase duration="20" state="r"/>'
    '<phase duration="7" state="u"/>'
)
# Two lanes that lead over a junction into one: the right one by a light and two internal lanes, the left one gives way.
NET = net(
    edge(
        "a",
        lane("a_0", 0, "100.0,200.0 150.0,200.0", 'width="3.2"'),
        lane("a_1", 1, "100,203.2 150,203.2", 'width="3.2"'),
    ),
    edge("b", lane("b_0", 0, "170,200 220,200", 'width="3.2"', speed=8.3)),
    edge(":j_0", lane(":j_0_0", 0, "150,200 160,200", 'width="3.2"'), function="internal"),
    edge(":j_2", lane(":j_2_0", 0, "160,200 170,200", 'width="3.2"'), function="internal"),
    edge(":j_1", lane(":j_1_0", 0, "150,203.2 170,200", 'width="3.2"'), function="internal"),
    logic("j", PHASES, offset=5.0),
    connection("a", "b", via=":j_0_0", tl="j", linkIndex="0", dir="s", state="o"),
    connection("a", "b", "10", via=":j_1_0", dir="s", state="m"),
    connection(":j_0", "b", via=":j_2_0", dir="s", state="M"),
    connection(":j_2", "b", dir="s", state="M"),
    connection(":j_1", "b", dir="s", state="m"),
    offset="100,200",
)
