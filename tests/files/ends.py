"""Runs that end badly, each in a fork of this script: killed at a call, or on a disk that is full.

Prints one line of JSON for each: how it ended, which values were put, and what the writer said.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tests.files.bits import number_of
from torchlens._files.writer import ValueWriter
from torchlens.errors import UnwritablePathError

KEYS = [f"{at}.0" for at in range(9)]
CALLS = ("write", "half a write", "fsync", "replace")
SIZES = {"shard_bytes": 1000, "queue_bytes": 2000}  # two values a shard


def forward(path: Path, log: int) -> None:
    """Put the values, noting in `log` those that were; then what the writer says."""
    raw_write = os.write if not hasattr(os.write, "original") else os.write.original
    try:
        writer = ValueWriter(path, **SIZES)
    except UnwritablePathError as error:
        raw_write(log, f"refused {error}".encode())
        return
    for key in KEYS:
        writer.put(key, number_of(key), {"label": f"op:{key}"})
        raw_write(log, f"{key} ".encode())
    writer.close()
    raw_write(log, json.dumps({"failure": writer.failure, "missing": dict(writer.missing())}).encode())


def in_fork(body: Callable[[int], None]) -> tuple[int, str]:
    """The signal that ended the body, and what it wrote to its log."""
    read, log = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            body(log)
        except BaseException as error:
            os.write(log, f"raised {error!r}".encode())
        finally:
            os._exit(0)
    os.close(log)
    text = b""
    while part := os.read(read, 4096):
        text += part
    os.close(read)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text.decode()


def die_at(call: str, at: int) -> None:
    """Let the process be killed when it begins that call for the n-th time."""
    name = "write" if call == "half a write" else call
    original = getattr(os, name)
    count = 0

    def counting(*args: object) -> object:
        nonlocal count
        count += 1
        if count == at:
            if call == "half a write":
                original(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args)

    counting.original = original
    setattr(os, name, counting)


def killed(parent: Path) -> None:
    for call in CALLS:
        at, code = 0, -signal.SIGKILL
        while code:  # until there is no n-th call
            at += 1
            path = parent / f"{call} {at}"
            code, log = in_fork(partial(forward_to_its_death, call, at, path))
            print(json.dumps({"path": str(path), "code": code, "log": log}))


def forward_to_its_death(call: str, at: int, path: Path, log: int) -> None:
    die_at(call, at)
    forward(path, log)


def limited(parent: Path) -> None:
    """Files may have so many bytes and no more, which is what a full disk or a quota looks like."""
    for limit in (0, 100, 200, 900, 1000, 1100, 1200, 1400, 2000, 3000, 10_000):
        path = parent / str(limit)
        code, log = in_fork(partial(forward_within, limit, path))
        print(json.dumps({"path": str(path), "code": code, "log": log}))


def forward_within(limit: int, path: Path, log: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    forward(path, log)


def endless(path: Path) -> None:
    """A forward that goes on until it is killed from outside."""
    writer = ValueWriter(path, **SIZES)
    at = 0
    while True:
        writer.put(f"{at}.0", number_of(f"{at}.0"), {"label": f"op:{at}.0"})
        at += 1


def exiting(path: Path) -> None:
    """An interpreter that ends without closing the writer."""
    writer = ValueWriter(path, **SIZES)
    for key in KEYS:
        writer.put(key, number_of(key), {"label": f"op:{key}"})


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](Path(sys.argv[2]))
