"""What workers of the tests do; imported by them by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from skidpad.engines.engine import Reply

HELD: list[object] = []
"""What tasks have leaked."""


def open_work(data: bytes) -> Any:
    """A hand-over is a JSON object that goes into every answer."""
    handover = json.loads(data)
    if handover.get("broken"):
        raise ValueError("this hand-over cannot be opened")

    def perform(task: Mapping[str, Any]) -> Reply:
        what = task["do"]
        if what == "die" and not os.path.exists(task.get("unless", "")):
            if "unless" in task:
                open(task["unless"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise KeyError("asked to raise")
        if what == "hang":
            time.sleep(600)
        if what == "fork":  # and neither listens when asked to end
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
            with open(task["note"], "w") as file:
                file.write(str(child.pid))
            child.wait()
        if what == "grow":
            HELD.append(b"x" * (task["mib"] << 20))
            time.sleep(task.get("seconds", 0))
        if what == "open":
            HELD.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(task["count"]))
        if what == "nan":
            return Reply({"value": float("nan")})
        if what == "print":
            print("a driver that prints", flush=True)
        blobs = tuple(bytes(size) for size in task.get("sizes", ()))
        return Reply({"number": task.get("number"), "pid": os.getpid(), "handover": handover, "path": sys.path}, blobs)

    return perform
