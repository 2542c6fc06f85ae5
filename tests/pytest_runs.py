"""Runs of pytest in processes of their own that find torch imported: forked from one that did nothing else.

A fresh process would spend seconds on importing torch, for each of dozens of runs.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

_IMPORTED = ["torch", "torchlens.testing", "torchlens.report.text"]


def run_pytest(pytester: pytest.Pytester, *arguments: str, environment: dict[str, str]) -> pytest.RunResult:
    """Run pytest in the folder of a `Pytester`, with these environment variables, and read what it said."""
    if sys.platform != "linux":  # elsewhere a fork is not safe, or not there
        with pytest.MonkeyPatch.context() as changed:
            for name, value in environment.items():
                changed.setenv(name, value)
            return pytester.runpytest_subprocess(*arguments)
    context = multiprocessing.get_context("forkserver")
    assert isinstance(context, ForkServerContext)
    context.set_forkserver_preload(_IMPORTED)
    outputs = [pytester.path.parent / f"{pytester.path.name}.{name}" for name in ("out", "err")]
    begun = time.perf_counter()
    process = context.Process(target=_run, args=(pytester.path, arguments, environment, outputs))
    process.start()
    process.join(300)
    assert process.exitcode is not None, "a run of pytest takes more than five minutes"
    lines = [path.read_text(encoding="utf-8").splitlines() for path in outputs]
    for text in lines:
        print("\n".join(text))
    return pytest.RunResult(process.exitcode, *lines, time.perf_counter() - begun)


def _run(folder: Path, arguments: tuple[str, ...], environment: dict[str, str], outputs: list[Path]) -> None:
    """What the forked process does: become one that was started in the folder with this environment."""
    os.chdir(folder)
    os.environ.update(environment)
    sys.path[:0] = [str(folder), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    for descriptor, path in enumerate(outputs, 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    # pytest would have liked to import torchlens itself
    code = pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
