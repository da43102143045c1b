"""A worker process: reads what to do from the socket it was started with, and answers there.

It leads a process group of its own, so that whatever its work has started can be ended with it. When the process that
started it is gone, for whatever reason, it ends its group at once: children never outlive the parent. Ctrl-C is the
other side's business.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
from pathlib import Path

from skidpad.engines.engine import Perform, described, opened
from skidpad.engines.frames import Inbox, Message, encoded, receive


def main(descriptor: int) -> None:
    """Serve the process at the other end of a socket until it leaves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=descriptor)
    waiting: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, waiting), daemon=True).start()
    perform: Perform | None = None
    while True:
        said = waiting.get().document
        try:
            if "opener" in said:
                perform = None
                perform = opened(said["opener"], Path(said["handover"]).read_bytes(), said["digest"])
                answer = encoded({"fate": "opened"})
            else:
                assert perform is not None
                reply = perform(said["task"])
                answer = encoded({"fate": "done", "reply": reply.document}, reply.blobs)
        except Exception as error:  # What a task raises is its result, here as anywhere.
            answer = encoded({"fate": "raised", "reply": described(error)})
        connection.sendall(answer)


def _listen(connection: socket.socket, waiting: queue.SimpleQueue[Message]) -> None:
    """Hand on what is said; end everything when nobody is there any more, also in the middle of a task."""
    inbox = Inbox()
    while (message := receive(connection, inbox)) is not None:
        waiting.put(message)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
