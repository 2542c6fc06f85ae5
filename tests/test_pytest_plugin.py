"""The pytest plugin, in runs of pytest of their own: snapshots that are missing, written, met and not met."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.installation import ROOT, as_installed
from tests.pytest_runs import run_pytest
from torchlens.pytest_plugin import file_name

LEFT_OUT = ("-p no:cacheprovider", "-p no:hypothesispytest", "-p no:anyio")  # they take seconds to import
Run: TypeAlias = Callable[..., pytest.RunResult]

NET = """
import os
import pytest, torch
import torchlens as tl

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, int(os.environ.get("WIDTH", 2)))

    def forward(self, x):
        h = torch.relu(self.first(x)) * float(os.environ.get("FACTOR", 1))
        return self.second(torch.tanh(h) if "TANH" in os.environ else h)

@pytest.fixture
def trace():
    torch.manual_seed(0)
    return tl.trace(Net(), torch.ones(1, 3))
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs pytest on the files of a folder, as where torchlens is installed."""
    installed = as_installed(pytester.path.parent / f"{pytester.path.name}.installed")
    pytester.makeini(f"[pytest]\naddopts = {' '.join(LEFT_OUT)}\ntestpaths = .")

    def run(*arguments: str, **environment: str) -> pytest.RunResult:
        return run_pytest(pytester, *arguments, environment={**installed, **environment})

    return run


@pytest.fixture
def run_afresh(run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same in a process that has imported nothing."""
    for name, value in as_installed(pytester.path / "installed").items():
        monkeypatch.setenv(name, value)
    return pytester.runpytest_subprocess


def files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("__traces__/**/*")
        if p.is_file()
    }


def test_missing_written_met_and_changed(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net=NET + "def test_net(trace, trace_regression):\n    trace_regression(trace)\n"
    )
    result = run()
    result.assert_outcomes(failed=1)
    hint = "to write it: pytest 'test_net.py::test_net' --torchlens-update"
    missing = f"there is no snapshot __traces__/test_net/test_net.txt; {hint}"
    result.stdout.fnmatch_lines([f"E *MissingSnapshotError: {missing}"])
    assert files(pytester.path) == {}, "nothing is written unless it is asked for"

    result = run("--torchlens-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*torchlens: 1 snapshot written*", "__traces__/test_net/test_net.txt"])
    written = files(pytester.path)
    assert list(written) == ["__traces__/test_net/test_net.txt"]
    assert (
        b"\nlinear_1 | 1x4 float32 | in first | from input_1 | with first.weight 4x3, "
        in written.popitem()[1]
    )

    for change in ({}, {"FACTOR": "1.00001"}):
        before = files(pytester.path)
        result = run("--torchlens-update", **change)
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*torchlens:*")
        assert files(pytester.path) == before, "what holds is left as it is"

    result = run(FACTOR="1.01")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"E +.*TraceAssertionError: the trace is not as __traces__/test_net/test_net.txt has it:",
            r"E +mul_1 \(.*py:12\) +\w+ [\d.]+ instead of [\d.]+, tolerance [\d.e-]+.* <- starts here",
            r"E +linear_2 ",
            r"E +expected\? to write it anew: pytest 'test_net.py::test_net' --torchlens-update",
        ]
    )
    assert "site-packages" not in result.stdout.str()
    assert "_plugin.py" not in result.stdout.str(), "frames of ours tell nothing"

    result = run(WIDTH="3", TANH="1")
    result.stdout.fnmatch_lines(
        [
            "E *parameters * 31 in 4 tensors instead of 26 in 4 tensors",
            "E *tanh_1 (test_net.py:*)  is new, after mul_1  <- starts here",
            "E *linear_2 * shape 1x3 instead of 1x2",
            "E *linear_2 * reads tanh_1 instead of mul_1",
            "E *linear_2 * parameter second.weight 3x4 instead of 2x4",
        ]
    )


NAMES = (
    NET
    + """
@pytest.mark.parametrize("name", ["plain", "a/b", "../up", "a::b", "ä", "x" * 300, "sp ace", "CON:", "q.r"])
def test_named(trace, trace_regression, name):
    trace_regression(trace)

class TestInClass:
    def test_named(self, trace, trace_regression):
        trace_regression(trace)
        trace_regression(trace, "second/ü", values="exact")
        trace_regression(trace, name="third", values=None)

    @pytest.mark.parametrize("values", ["stats", "exact"])
    def test_values(self, trace, trace_regression, values):
        trace_regression(trace, values=values, rtol=1e-3)
"""
)


def test_names_modes_and_workers(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(**{"sub/test_one": NAMES, "sub/test_two": NAMES})
    result = run("--torchlens-update", "-n", "2")
    result.assert_outcomes(passed=24)
    result.stdout.fnmatch_lines(
        ["*torchlens: 28 snapshots written*", "sub/__traces__/test_two/TestInClass.test_named.txt"]
    )
    names = sorted(
        name.removeprefix("sub/__traces__/test_one/") for name in files(pytester.path) if "_one" in name
    )
    texts = [name for name in names if name.endswith(".txt")]
    assert len(texts) == 14
    assert {"test_named[plain].txt", "test_named[q.r].txt", "TestInClass.test_named-third.txt"} <= set(texts)
    assert all(re.fullmatch(r"[\w.,=+\[\]-]{1,140}", name, re.ASCII) for name in texts)
    assert {name.partition("/")[0] for name in names if ".values/" in name} == {
        "TestInClass.test_values[exact].values",
        next(name for name in texts if "second" in name).replace(".txt", ".values"),
    }
    before = files(pytester.path)
    for arguments in ((), ("-n", "2")):
        result = run(*arguments)
        result.assert_outcomes(passed=24)
        result.stdout.no_fnmatch_line("*torchlens:*")
    assert files(pytester.path) == before
    result = run("-k", "test_values or third", FACTOR="1.0001")
    result.assert_outcomes(passed=4, deselected=20)
    result = run("-k", "InClass and test_named", FACTOR="1.00001")
    result.assert_outcomes(failed=2, deselected=22)
    result.stdout.re_match_lines([r"E +mul_1 \(.*\) +\d of 4 elements differ, by up to "])


MISUSE = (
    NET
    + """
def test_twice(trace, trace_regression):
    trace_regression(trace)
    trace_regression(trace)

def test_one_name_twice(trace, trace_regression):
    trace_regression(trace, "a")
    trace_regression(trace, "a")

@pytest.mark.parametrize("name", ["a", "A"])
def test_alike(trace, trace_regression, name):
    trace_regression(trace)

def test_values(trace, trace_regression):
    trace_regression(trace, values="all")

def test_damaged(trace, trace_regression):
    trace_regression(trace)
"""
)


def test_what_cannot_be_meant(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_net=MISUSE)
    result = run("--torchlens-update")
    result.assert_outcomes(failed=4, passed=2)
    result.stdout.fnmatch_lines(
        [
            "E *OptionError: test_twice asks for a second snapshot; give each one a name of its own",
            "E *OptionError: test_one_name_twice asks for a second snapshot with name='a'; give *",
            "E *OptionError: test_alike[[]A] and test_net.py::test_alike[[]a] would share *.txt; *",
            "E *OptionError: values='all' is none of 'stats', 'exact' and None",
            "*torchlens: 4 snapshots written*",
        ]
    )
    path = pytester.path / "__traces__/test_net/test_damaged.txt"
    path.write_bytes(path.read_bytes().replace(b"mul_1", b"mul_2"))
    result = run("-k", "damaged")
    result.stdout.fnmatch_lines(
        ["E *DamagedFileError: *test_damaged.txt was changed after it was written, by hand*"]
    )


def test_snapshots_of_no_test_are_named(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net=NET + "def test_net(trace, trace_regression):\n    trace_regression(trace, 'a')\n"
    )
    run("--torchlens-update").assert_outcomes(passed=1)
    folder = pytester.path / "__traces__/test_net"
    (folder / "test_net-a.txt").rename(folder / "test_gone.txt")
    result = run()
    result.stdout.fnmatch_lines(
        ["*torchlens: 1 snapshot of no test, which can be deleted*", "*/test_gone.txt"]
    )
    run("test_net.py::test_net").stdout.no_fnmatch_line("*of no test*")


def test_snapshots_of_tests_whose_names_need_a_digest(run: Run, pytester: pytest.Pytester) -> None:
    long = f"test_{'long_' * 30}"
    pytester.makepyfile(
        test_net=NET
        + "import pytest\n"
        + "@pytest.mark.parametrize('word', ['a b'])\n"
        + "def test_net(trace, trace_regression, word):\n    trace_regression(trace, 'a')\n"
        + f"def {long}(trace, trace_regression):\n    trace_regression(trace, 'a')\n"
    )
    run("--torchlens-update").assert_outcomes(passed=2)
    run().stdout.no_fnmatch_line("*of no test*")


def test_a_folder_that_cannot_be_written(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_net=NET + "def test_net(trace, trace_regression):\n    trace_regression(trace)\n"
    )
    (pytester.path / "__traces__").touch()
    result = run("--torchlens-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *UnwritablePathError: *the snapshot */test_net.txt cannot be written: *"])


CAPTURES = (
    NET
    + """
def test_passes(tl_capture):
    with tl_capture(Net(), save="relu_1") as trace:
        Net()(torch.ones(1, 3))
    assert trace["relu_1"].num_passes == 1

def test_fails_later(tl_capture):
    net = Net()
    with tl_capture(net) as trace:
        net(torch.ones(1, 3))
        torch.zeros(2).log() * 2
    assert trace["relu_1"].num_passes == 2

def test_raises_inside(tl_capture):
    net = Net()
    with tl_capture(net):
        net(torch.ones(1, 3))
    with tl_capture(net):
        net(torch.ones(1, 2))

def test_refused(tl_capture):
    with tl_capture(Net(), stop_after="nothing_1"):
        pass

def test_freed(tl_capture):
    with tl_capture(Net()) as trace:
        pass
    trace.cleanup()
    assert False

def test_unused(tl_capture):
    assert False
"""
)


def test_a_failure_shows_what_was_captured(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_net=CAPTURES)
    result = run()
    result.assert_outcomes(passed=1, failed=5)
    result.stdout.fnmatch_lines(
        [
            "*test_fails_later*",
            "*torchlens capture 1*",
            "Net * forward, complete",
            "the last 8 of 9 ops:",
            "  relu_1:1  1×4 float32, from linear_1:1, at test_net.py:* in Net.forward",
            "  mul_2:1  2 float32, from log_1:1, at test_net.py:* in test_fails_later",
            "log_1:1 makes what is not finite from finite inputs: 2 inf among 2 elements",
            "*test_raises_inside*",
            "*torchlens capture 1*",
            "*torchlens capture 2*",
            "Net * forward, failed",
            "last ops * at",
            "*test_freed*",
            "*torchlens capture 1*",
            "<Trace, freed by cleanup()>: *",
        ]
    )
    assert result.stdout.str().count("torchlens capture ") == 5


QUIET = """
import sys

def test_no_torch():
    assert "torchlens.pytest_plugin" in sys.modules
    assert not {"torch", "numpy", "pyarrow", "networkx", "rich"} & set(sys.modules)
"""


def test_it_loads_no_torch(run_afresh: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_quiet=QUIET)
    run_afresh().assert_outcomes(passed=1)
    result = run_afresh("--help")
    result.stdout.fnmatch_lines(["torchlens:", "*--torchlens-update*"])


def test_it_can_be_left_out(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_net="def test_net(trace_regression): pass")
    run("-p", "no:torchlens").stdout.fnmatch_lines(["E *fixture 'trace_regression' not found"])


@pytest.mark.parametrize("name", ["test_a", "test_a[x-1.5]", "TestB.test_a[float32-True]"])
def test_names_that_are_files_as_they_are(name: str) -> None:
    assert file_name(name) == name


def test_other_names_do_not_meet() -> None:
    names = ["a/b", "a\\b", "a:b", "a b", "ä", "ö", "\ud800", "a_b", "x" * 200, "x" * 201]
    found = {name: file_name(name) for name in names}
    assert len({name.casefold() for name in found.values()}) == len(names)
    assert all(re.fullmatch(r"[\w.,=+\[\]-]{1,140}", name, re.ASCII) for name in found.values())


def test_the_names_are_the_same_on_each_machine() -> None:
    code = "from torchlens.pytest_plugin import file_name; print(file_name('test_a[ä/b]'))"
    found = [
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}, timeout=60,
        ).stdout
        for seed in ("0", "1")
    ]  # fmt: skip
    assert found[0] == found[1] == "test_a[__b]-5e8358fd\n"
