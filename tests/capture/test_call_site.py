"""Frames to places, live, with modules and hooks called as torch calls them; needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torchlens._capture.call_site import CallSites
from torchlens._keys.chains import Chains
from torchlens._records import HookedPlace


class Calls:
    """Records where `op` was called from, and which module call was running."""

    def __init__(self) -> None:
        self.modules: list[Module] = []
        self.sites = CallSites(INNER, FORWARD_OFFSET, (Module._call_impl.__code__,), self.modules.index)
        self.seen: list[tuple[int, int]] = []
        self.count = 0

    def op(self) -> None:
        self.seen.append(self.sites.locate(sys._getframe(1)))

    def run(self, program: Callable[[], object]) -> list[int]:
        """The key of each op of a program, numbered by first sight."""
        self.sites.open(sys._getframe())
        program()
        self.sites.close()
        chains = Chains(self.sites.places)
        numbers: dict[int, int] = {}
        return [numbers.setdefault(chains.key(site), len(numbers)) for site, _ in self.seen]


class Module:
    """Calls `forward` and hooks from a closure, as torch does when any hook is present."""

    def __init__(self, calls: Calls, forward: Callable[[], object]) -> None:
        self.calls = calls
        self.forward = forward
        self.pre_hooks: list[Callable[[], object]] = []
        self.hooks: list[Callable[[], object]] = []
        calls.modules.append(self)

    def __call__(self) -> None:
        self._call_impl()

    def _call_impl(self) -> None:
        def inner() -> None:
            sites = self.calls.sites
            self.calls.count += 1
            sites.frames.append(sys._getframe())
            sites.calls.append(self.calls.count)
            for hook in self.pre_hooks:
                hook()
            self.forward()
            sites.frames.pop()
            sites.calls.pop()
            for hook in self.hooks:
                hook()

        inner()


def _calibrate() -> tuple[Any, int]:
    found: list[tuple[Any, int]] = []

    class Nothing:
        def __init__(self) -> None:
            self.sites: Any = self
            self.frames: list[Any] = []
            self.calls: list[Any] = []
            self.modules: list[Any] = []
            self.count = 0

    def forward() -> None:
        frame = sys._getframe(1)
        found.append((frame.f_code, frame.f_lasti))

    calls: Any = Nothing()
    Module(calls, forward)()
    return found[0]


INNER, FORWARD_OFFSET = _calibrate()


def loop(calls: Calls) -> None:
    for _ in range(3):
        calls.op()


def two_lines(calls: Calls) -> None:
    calls.op()
    calls.op()


def twice_on_one_line(calls: Calls) -> None:
    _ = (calls.op(), calls.op())


def helper_from_two_lines(calls: Calls) -> None:
    def helper() -> None:
        calls.op()

    helper()
    helper()


def comprehension(calls: Calls) -> None:
    _ = [calls.op() for _ in range(3)]


def generator(calls: Calls) -> None:
    def each() -> Iterator[None]:
        for _ in range(3):
            yield calls.op()

    for _ in each():
        pass


def recursion(calls: Calls, depth: int = 3) -> None:
    calls.op()
    if depth > 1:
        recursion(calls, depth - 1)


def recursion_from_two_lines(calls: Calls) -> None:
    recursion(calls, 2)
    recursion(calls, 2)


def composed_closures(calls: Calls) -> None:
    def around(inner: Callable[[], object]) -> Callable[[], object]:
        def wrapper() -> None:
            calls.op()
            inner()

        return wrapper

    around(around(lambda: None))()


def while_condition(calls: Calls) -> None:
    left = [1, 2]

    def more() -> bool:
        calls.op()
        return bool(left)

    while more():
        left.pop()


CASES = {
    "a loop repeats one place": (loop, [0, 0, 0]),
    "two lines are two places": (two_lines, [0, 1]),
    "a helper called from two lines": (helper_from_two_lines, [0, 1]),
    "a comprehension repeats one place": (comprehension, [0, 0, 0]),
    "a generator repeats one place": (generator, [0, 0, 0]),
    "recursion folds": (recursion, [0, 0, 0]),
    "recursion entered from two lines": (recursion_from_two_lines, [0, 0, 1, 1]),
    "closures of one code around each other stay apart": (composed_closures, [0, 1]),
    "a while condition is one place": (while_condition, [0, 0, 0]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("inside", ["outside any module", "in a module"])
def test_places(case: str, inside: str) -> None:
    program, expected = CASES[case]
    calls = Calls()
    if inside == "in a module":
        module = Module(calls, lambda: program(calls))
        assert calls.run(module) == expected
        assert {call for _, call in calls.seen} == {1}
    else:
        assert calls.run(lambda: program(calls)) == expected
        assert {call for _, call in calls.seen} == {0}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 has no columns, but offsets")
def test_two_calls_on_one_line_are_two_places() -> None:
    calls = Calls()
    assert calls.run(lambda: twice_on_one_line(calls)) == [0, 1]


def test_a_chain_ends_at_the_module_that_runs() -> None:
    calls = Calls()
    module = Module(calls, lambda: loop(calls))

    def program() -> None:
        module()
        module()

    assert calls.run(program) == [0] * 6
    assert [call for _, call in calls.seen] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("kind", ["pre_hooks", "hooks"])
def test_a_hook_belongs_to_the_caller_with_its_module_as_part_of_the_place(kind: str) -> None:
    calls = Calls()
    inner = [Module(calls, lambda: None) for _ in range(2)]
    for module in inner:
        getattr(module, kind).append(calls.op)

    def forward() -> None:
        for module in inner:
            module()

    outer = Module(calls, forward)
    assert calls.run(outer) == [0, 1]
    assert [call for _, call in calls.seen] == [1, 1]
    assert [place.module for place in calls.sites.places if isinstance(place, HookedPlace)] == [0, 1]


def test_a_module_left_by_an_exception_is_over() -> None:
    calls = Calls()

    def fail() -> None:
        raise KeyboardInterrupt

    failing = Module(calls, fail)

    def forward() -> None:
        with pytest.raises(KeyboardInterrupt):
            failing()
        calls.op()

    outer = Module(calls, forward)

    def program() -> None:
        with pytest.raises(KeyboardInterrupt):
            failing()
        calls.op()
        outer()

    calls.run(program)
    assert [call for _, call in calls.seen] == [0, 2]
    assert calls.sites.frames == []


def test_frames_that_ran_before_the_opening_end_the_chain() -> None:
    calls = Calls()

    def opener() -> None:
        calls.sites.open(sys._getframe())

    opener()
    calls.op()
    calls.sites.close()
    frames = Chains(calls.sites.places).frames(calls.seen[0][0])
    assert [frame.function.rpartition(".")[2] for frame in frames] == [
        "test_frames_that_ran_before_the_opening_end_the_chain"
    ]


def test_a_known_chain_adds_no_place() -> None:
    calls = Calls()

    def program() -> None:
        for _ in range(100):
            calls.op()

    calls.run(program)
    assert len(calls.seen) == 100
    assert len(calls.sites.places) == 3  # none, the program's line, and the line that ran the program
