"""Evaluating inside a training process without a trace: what a run computes afterwards is, byte for byte, what it would
have computed without (E31).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np


@contextmanager
def undisturbed(policy: object = None) -> Iterator[None]:
    """While entered, evaluation may run; afterwards everything is as it was, also when it raises.

    Given back: generators of Python, NumPy and torch (CPU and devices); torch's default dtype, gradient mode, autocast,
    TF32, matmul precision, cudnn flags and threads; working directory, environment, umask, signal handlers, warning
    filters; and the train flag of every submodule that `policy` holds, which are all in evaluation mode meanwhile.
    Functions that were compiled run as they were written, so no batch shape of an evaluation is compiled (E34).
    """
    with ExitStack() as stack:
        stack.enter_context(_process_kept())
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            stack.enter_context(_torch_kept(torch))
            stack.enter_context(_evaluating(torch, policy))
        yield


@contextmanager
def _process_kept() -> Iterator[None]:
    environment, mask = dict(os.environ), os.umask(0o077)
    os.umask(mask)
    python, legacy, errors = random.getstate(), np.random.get_state(), np.geterr()
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()} if is_main else {}
    filters = list(warnings.filters)
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        np.seterr(**errors)
        os.umask(mask)
        os.fchdir(here)
        os.close(here)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        if list(warnings.filters) != filters:
            warnings.filters[:] = filters  # type: ignore[index]


@contextmanager
def _torch_kept(torch: Any) -> Iterator[None]:
    generator = torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    before = {name: read() for name, (read, _) in _switches(torch).items()}
    compiling = sys.modules.get("torch._dynamo") is not None
    try:
        with torch.compiler.set_stance("force_eager") if compiling else ExitStack():
            yield
    finally:
        torch.set_rng_state(generator)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
        for name, (read, write) in _switches(torch).items():
            if read() != before[name]:
                write(before[name])


def _switches(torch: Any) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """How each global setting of torch is read and written."""
    cudnn = torch.backends.cudnn
    found = {
        "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "threads": (torch.get_num_threads, torch.set_num_threads),
        "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "deterministic algorithms": (
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
    }
    for device in ("cpu", "cuda"):
        found[f"autocast {device}"] = (
            partial(torch.is_autocast_enabled, device),
            partial(torch.set_autocast_enabled, device),
        )
        found[f"autocast dtype {device}"] = (
            partial(torch.get_autocast_dtype, device),
            partial(torch.set_autocast_dtype, device),
        )
    for name in ("enabled", "benchmark", "deterministic", "allow_tf32"):
        found[f"cudnn {name}"] = (partial(getattr, cudnn, name), partial(setattr, cudnn, name))
    matmul = torch.backends.cuda.matmul
    found["cuda allow_tf32"] = (partial(getattr, matmul, "allow_tf32"), partial(setattr, matmul, "allow_tf32"))
    return found


@contextmanager
def _evaluating(torch: Any, policy: object) -> Iterator[None]:
    held = [policy, *vars(policy).values()] if hasattr(policy, "__dict__") else [policy]
    networks = [item for item in held if isinstance(item, torch.nn.Module)]
    flags = {module: module.training for network in networks for module in network.modules()}
    try:
        for module in flags:
            module.training = False
        yield
    finally:
        for module, flag in flags.items():
            module.training = flag
