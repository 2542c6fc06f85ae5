"""The pytest plugin: fixtures `trace_regression` and `tl_capture`, option `--torchlens-update`.

pytest imports it in every run of whoever has torchlens installed: it loads no torch before a fixture is used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

import torchlens as tl

if TYPE_CHECKING:
    from torch import nn

    from torchlens._api.trace import Trace
    from torchlens._terms import Selector
    from torchlens.options import CaptureOptions
    from torchlens.selectors import Sites
    from torchlens.storage import ToDisk

FOLDER: Final = "__traces__"
"""Beside the test files, with a folder for each of them."""
_LONGEST: Final = 120
_WRITTEN: Final = "torchlens_written"
"""A report's own attribute, which comes through from the workers of pytest-xdist."""
_WRITTEN_KEY: Final = pytest.StashKey[list[str]]()
_CAPTURED_KEY: Final = pytest.StashKey[list["Trace"]]()
_CLAIMED_KEY: Final = pytest.StashKey[dict[str, tuple[str, str | None]]]()
"""By path, whatever its case, the test and name that have a snapshot there."""
_COLLECTED_KEY: Final = pytest.StashKey[dict[Path, set[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--torchlens-update`."""
    parser.getgroup("torchlens").addoption(
        "--torchlens-update",
        action="store_true",
        help="Write the snapshots that traces differ from, or that are missing, instead of failing.",
    )


class TraceRegression:
    """What the fixture `trace_regression` gives: compares traces of one test with their snapshots."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._names: set[str | None] = set()

    def __call__(
        self,
        trace: Trace,
        name: str | None = None,
        values: Literal["stats", "exact"] | None = "stats",
        *,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        """Fail unless a trace is as the test's snapshot has it; under `--torchlens-update`, write that.

        `name` tells several snapshots of one test apart. `values`, `rtol` and `atol` are those of
        `torchlens.testing.Snapshot.check`.
        """
        __tracebackhide__ = True
        snapshot = tl.testing.Snapshot(self._path(name), f"pytest {self._item.nodeid!r} --torchlens-update")
        if not self._item.config.getoption("torchlens_update"):
            snapshot.check(trace, values=values, rtol=rtol, atol=atol)
        elif snapshot.update(trace, values=values, rtol=rtol, atol=atol):
            shown = _from(snapshot.path, self._item.config.rootpath)
            self._item.stash.setdefault(_WRITTEN_KEY, []).append(shown)

    def _path(self, name: str | None) -> Path:
        __tracebackhide__ = True
        test = _test_of(self._item)
        if name in self._names:
            called = "a second snapshot" if name is None else f"a second snapshot with name={name!r}"
            raise tl.errors.OptionError(f"{test} asks for {called}; give each one a name of its own")
        self._names.add(name)
        full = test if name is None else f"{test}-{name}"
        path = self._item.path.parent / FOLDER / self._item.path.stem / f"{file_name(full)}.txt"
        claimed = self._item.config.stash.setdefault(_CLAIMED_KEY, {})
        owner = claimed.setdefault(str(path).casefold(), (self._item.nodeid, name))
        if owner != (self._item.nodeid, name):
            shown = _from(path, self._item.config.rootpath)
            raise tl.errors.OptionError(
                f"{test} and {owner[0]} would share the snapshot {shown}; give a name="
            )
        return path


@pytest.fixture
def trace_regression(request: pytest.FixtureRequest) -> TraceRegression:
    """Compare a trace with the snapshot that is stored for this test: `trace_regression(trace)`."""
    return TraceRegression(_item_of(request))


class Captures:
    """What the fixture `tl_capture` gives: opens captures, and shows them where the test fails."""

    def __init__(self, traces: list[Trace]) -> None:
        self._traces = traces

    def __call__(
        self,
        model: Callable[..., Any] | Mapping[str, nn.Module],
        *,
        save: Sites | None = None,
        stop_after: str | Selector | None = None,
        storage: ToDisk | None = None,
        capture: CaptureOptions | None = None,
    ) -> AbstractContextManager[Trace]:
        """`torchlens.capture` with the same arguments."""
        return self._remembered(
            tl.capture(model, save=save, stop_after=stop_after, storage=storage, capture=capture)
        )

    @contextmanager
    def _remembered(self, opened: AbstractContextManager[Trace]) -> Generator[Trace]:
        __tracebackhide__ = True
        with opened as trace:
            self._traces.append(trace)
            yield trace


@pytest.fixture
def tl_capture(request: pytest.FixtureRequest) -> Iterator[Captures]:
    """Capture what a block runs, `with tl_capture(model) as trace:`; a failure then shows the last ops."""
    item = _item_of(request)
    traces = item.stash.setdefault(_CAPTURED_KEY, [])
    yield Captures(traces)
    del item.stash[_CAPTURED_KEY]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Put what was written, and what a failed test captured, on the report."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    written = item.stash.get(_WRITTEN_KEY, None)
    if written:
        setattr(report, _WRITTEN, list(written))
        written.clear()
    traces = item.stash.get(_CAPTURED_KEY, None)
    if report.failed and traces:
        for number, trace in enumerate(traces, 1):
            report.sections.append((f"torchlens capture {number}", _last_ops(trace)))


def _last_ops(trace: Trace) -> str:
    try:
        return tl.testing.last_ops(trace)
    except Exception as error:  # noqa: BLE001 - as of a full device; it would hide why the test failed
        return f"{type(error).__name__} while the trace was read: {error}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note which tests there are before any is deselected, if all of their files were collected."""
    partial = any("::" in argument for argument in config.args) or config.getoption("lf", False)
    if partial or hasattr(config, "workerinput"):
        return
    collected = config.stash.setdefault(_COLLECTED_KEY, {})
    for item in items:
        collected.setdefault(item.path, set()).add(_safe(_test_of(item)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the snapshots that were written, and those that no test has."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    written = [path for report in reports for path in _written_in(report)]
    collected = config.stash.get(_COLLECTED_KEY, None) or {}
    stale = [_from(path, config.rootpath) for path in stale_snapshots(collected)]
    for title, paths in (("written", written), ("of no test, which can be deleted", stale)):
        if paths:
            noun = "snapshot" if len(paths) == 1 else "snapshots"
            terminalreporter.section(f"torchlens: {len(paths)} {noun} {title}")
            for path in sorted(paths):
                terminalreporter.line(path)


def _written_in(report: object) -> list[str]:
    return vars(report).get(_WRITTEN, []) if isinstance(report, pytest.TestReport) else []


def stale_snapshots(collected: dict[Path, set[str]]) -> Iterator[Path]:
    """The snapshots of test files, by the names of all tests in each, that belong to none of these tests.

    A snapshot whose name begins with that of a test, `-` behind it, counts as one that the test asks for with
    `name=`, or as that of a test whose name needs a digest.
    """
    for file, names in collected.items():
        for path in sorted((file.parent / FOLDER / file.stem).glob("*.txt")):
            if not any(path.stem == name or path.stem.startswith(f"{name}-") for name in names):
                yield path


def file_name(test: str) -> str:
    """The name of a test as that of a file on any system; what can't stand in one is told by a digest."""
    safe = _safe(test)
    if safe == test:
        return safe
    return f"{safe}-{hashlib.sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _safe(test: str) -> str:
    """What of a test's name can stand in that of a file."""
    return re.sub(r"[^A-Za-z0-9_.,=+\[\]-]", "_", test)[:_LONGEST]


def _test_of(item: pytest.Item) -> str:
    """The test within its file: class, function and parameters."""
    place, bracket, parameters = item.nodeid.partition("::")[2].partition("[")
    return place.replace("::", ".") + bracket + parameters


def _item_of(request: pytest.FixtureRequest) -> pytest.Item:
    item: object = request.node
    assert isinstance(item, pytest.Item)  # both fixtures have the scope of a function
    return item


def _from(path: Path, root: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()
