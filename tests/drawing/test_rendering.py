"""DOT text to pictures: what comes out, and what a person learns when none does."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from torchlens.drawing import programs
from torchlens.drawing.rendering import lay_out, render
from torchlens.errors import DrawingError, OptionError, TorchLensError

DOT = """digraph model {
    node [fontname="Helvetica"];
    subgraph cluster_block { label="block · Block × 2"; linear [label="linear_1\\n2×3"]; relu [label="…"]; }
    linear -> relu [style=dashed, color="#ff0000", label="input"];
}"""
PNG = b"\x89PNG\r\n\x1a\n"

posix_only = pytest.mark.skipif(os.name == "nt", reason="the fake programs are shell scripts")
FakeProgram = Callable[[str], Path]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that DOT texts are kept in."""
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProgram:
    """Puts shell scripts in the place of both programs."""

    def make(script: str) -> Path:
        folder = tmp_path / "fake"
        folder.mkdir()
        for name in ("graphviz-pure", "dot"):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
        monkeypatch.setattr(programs, "_script_folders", lambda: [str(folder)])
        monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
        return folder

    return make


def kept_text(error: pytest.ExceptionInfo[DrawingError], folder: Path) -> str:
    """What is in the file that the error names, which is the only one kept."""
    file = Path(re.search(r"The DOT text is in (\S+\.dot)\.", str(error.value))[1])
    assert list(folder.iterdir()) == [file]
    assert file.name.startswith("torchlens-")
    return file.read_text("utf-8")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # the killed child of a killed process is a zombie until init collects it
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def ended_soon(pid: int) -> bool:
    until = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_running(pid)


def texts_of(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


# pictures


def test_svg_has_every_text_of_the_graph() -> None:
    assert texts_of(render(DOT, "svg")) == ["block · Block × 2", "linear_1", "2×3", "…", "input"]


def test_png_is_a_png_and_letters_of_four_scripts_need_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert render('digraph { a [label="é × Δλ Привет שלום kᵀ …"] }', "png").startswith(PNG)


def test_png_warns_of_letters_that_become_boxes_and_they_do() -> None:
    pictures = []
    for letter in "注意":
        with pytest.warns(
            UserWarning, match=rf"the PNG has boxes in place of {letter}, .* write \.svg or \.pdf"
        ):
            pictures.append(render(f'digraph {{ a [label="{letter}"] }}', "png"))
    assert pictures[0] == pictures[1]
    known = [render(f'digraph {{ a [label="{letter}"] }}', "png") for letter in "ПЖ"]
    assert known[0] != known[1]


def test_warnings_of_the_program_are_no_errors(capfd: pytest.CaptureFixture[str]) -> None:
    dot = 'digraph { a [label="×", shape=nosuchshape] }'
    command = [programs._path_of("graphviz-pure", dot), "-Tsvg"]
    direct = subprocess.run(command, input=dot.encode(), capture_output=True, check=True)
    assert b"nosuchshape" in direct.stderr
    assert render(dot, "svg") == direct.stdout
    assert capfd.readouterr() == ("", "")


def test_the_wheels_program_is_found_in_an_environment_that_is_not_activated() -> None:
    code = "from torchlens.drawing.rendering import render; print(render('digraph { a }', 'svg')[:5])"
    empty = {"PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {name: value for name, value in os.environ.items() if name == "SYSTEMROOT"} | empty
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout == "b'<?xml'\n", result.stderr


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
@posix_only
def test_dot_draws_when_asked(fake: FakeProgram, form: Any) -> None:
    fake('echo "$(basename "$0") $@"; cat')
    assert render(DOT, form, program="dot").decode() == f"dot -T{form}\n{DOT}"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_an_installed_graphviz_draws_the_same_texts() -> None:
    assert sorted(texts_of(render(DOT, "svg", program="dot"))) == sorted(texts_of(render(DOT, "svg")))


def test_a_lone_surrogate_is_drawn_as_a_question_mark() -> None:
    assert texts_of(render('digraph { a [label="\ud800x"] }', "svg")) == ["?x"]


# positions


def test_lay_out_places_the_graphs_of_one_text_in_order() -> None:
    first, second = lay_out(f"{DOT}\ndigraph other {{ a }}\n")
    assert (first["name"], second["name"]) == ("model", "other")
    cluster, linear, relu = first["objects"]
    assert cluster["nodes"] == [linear["_gvid"], relu["_gvid"]]
    left, bottom, right, top = map(float, cluster["bb"].split(","))
    for node in (linear, relu):
        x, y = map(float, node["pos"].split(","))
        assert left < x < right and bottom < y < top
    (edge,) = first["edges"]
    assert (edge["tail"], edge["head"], edge["label"]) == (linear["_gvid"], relu["_gvid"], "input")


@posix_only
@pytest.mark.parametrize("output", ["this is not JSON", '{"name": "a"} and more', "[1, 2]", '{"name": "a"'])
def test_lay_out_says_when_the_program_wrote_no_json(fake: FakeProgram, kept: Path, output: str) -> None:
    fake(f"cat > /dev/null; printf '%s' '{output}'")
    message = "graphviz-pure wrote something else than JSON, which begins .*pip install --force-reinstall"
    with pytest.raises(DrawingError, match=message) as error:
        lay_out(DOT)
    assert output[:10] in str(error.value)
    assert kept_text(error, kept) == DOT


# failures


@posix_only
@pytest.mark.parametrize("trap", ["", "trap '' TERM INT HUP"], ids=["sleeps", "ignores SIGTERM"])
@pytest.mark.parametrize(
    "draw", [lambda: render(DOT, "svg", time_limit=0.5), lambda: lay_out(DOT, time_limit=0.5)]
)
def test_a_program_that_hangs_is_killed_with_its_children(
    fake: FakeProgram, kept: Path, tmp_path: Path, trap: str, draw: Callable[[], object]
) -> None:
    fake(f"{trap}\nsleep 60 &\necho $$ $! > {tmp_path}/pids\nwait\nwait")
    began = time.monotonic()
    message = "graphviz-pure was not done after 0.5 s.*depth=, collapse= or focus=.*html.*time_limit=5"
    with pytest.raises(DrawingError, match=message) as error:
        draw()
    assert time.monotonic() - began < 10
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert [pid for pid in pids if not ended_soon(pid)] == []
    assert kept_text(error, kept) == DOT


@posix_only
def test_a_program_whose_child_keeps_the_pipe_is_killed_too(fake: FakeProgram, tmp_path: Path) -> None:
    fake(f"sleep 60 & echo $! > {tmp_path}/pid; exit 0")
    with pytest.raises(DrawingError, match=r"not done after 0\.5 s"):
        render(DOT, "svg", time_limit=0.5)
    assert ended_soon(int((tmp_path / "pid").read_text()))


@posix_only
def test_an_interrupt_leaves_nothing_running(
    fake: FakeProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(f"echo $$ > {tmp_path}/pid; exec sleep 60")

    def interrupted(process: subprocess.Popen[bytes], *_: object, **__: object) -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt("by hand")

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        render(DOT, "svg")
    assert ended_soon(int((tmp_path / "pid").read_text()))


@posix_only
def test_the_status_and_the_first_errors_are_told(fake: FakeProgram, kept: Path) -> None:
    complaints = r"Warning: fonts\n\nError: no memory\nsecond\nthird\nfourth\n"
    fake(f"cat > /dev/null; printf '{complaints}' >&2; exit 3")
    message = r"^graphviz-pure exited with status 3: Error: no memory; second; third\. The DOT .* page\.$"
    with pytest.raises(DrawingError, match=message) as error:
        render(DOT, "svg")
    assert kept_text(error, kept) == DOT
    assert isinstance(error.value, RuntimeError) and isinstance(error.value, TorchLensError)


@posix_only
def test_a_program_that_dies_without_reading_is_told_by_its_signal(fake: FakeProgram) -> None:
    fake("kill -9 $$")
    with pytest.raises(DrawingError, match=r"graphviz-pure was killed by signal 9\. "):
        render("digraph { a }" + " " * 1_000_000, "svg")


@posix_only
@pytest.mark.parametrize("draw", [lambda: render(DOT, "pdf", program="dot"), lambda: lay_out(DOT)])
def test_success_without_a_picture_is_an_error(
    fake: FakeProgram, kept: Path, draw: Callable[[], object]
) -> None:
    fake("cat > /dev/null; echo 'Warning: nothing to do' >&2")
    message = "(dot|graphviz-pure) wrote no picture: Warning: nothing to do. The DOT text is in"
    with pytest.raises(DrawingError, match=message) as error:
        draw()
    assert kept_text(error, kept) == DOT


def test_a_syntax_error_is_told_as_the_program_tells_it(kept: Path) -> None:
    with pytest.raises(
        DrawingError, match=r"graphviz-pure exited with status 1: Error: .*syntax error in line 2"
    ):
        render("digraph {\na -> }", "svg")


@posix_only
def test_a_program_that_cannot_start_is_told(fake: FakeProgram, kept: Path) -> None:
    folder = fake("")
    (folder / "graphviz-pure").write_bytes(b"\x00\x01")
    message = "graphviz-pure could not be started: .*pip install graphviz-pure"
    with pytest.raises(DrawingError, match=message) as error:
        render(DOT, "svg")
    assert kept_text(error, kept) == DOT


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "graphviz-pure",
            "found neither beside .* nor on the PATH. .*pip install graphviz-pure, or say program=",
        ),
        ("dot", 'dot was not found on the PATH. .*program="dot" needs Graphviz.*graphviz-pure draws'),
    ],
)
def test_a_missing_program_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, kept: Path, program: Any, message: str
) -> None:
    monkeypatch.setattr(programs, "_script_folders", lambda: [str(kept)])
    monkeypatch.setenv("PATH", str(kept))
    with pytest.raises(DrawingError, match=message) as error:
        render(DOT, "svg", program=program)
    assert kept_text(error, kept) == DOT


def test_a_text_that_cannot_be_kept_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(
        DrawingError, match=r"syntax error.* The DOT text could not be kept in a file: .*nowhere"
    ):
        render("digraph {", "svg")


@pytest.mark.parametrize("limit", [0, -1, math.nan, True, None, "60", -math.inf])
def test_a_time_limit_that_is_none_is_refused(limit: Any) -> None:
    for draw in (lambda: render(DOT, "svg", time_limit=limit), lambda: lay_out(DOT, time_limit=limit)):
        with pytest.raises(OptionError, match="time_limit is a number of seconds above 0"):
            draw()


@pytest.mark.parametrize("limit", [math.inf, 1e300, 30])
def test_a_time_limit_may_be_endless(limit: float) -> None:
    assert render(DOT, "svg", time_limit=limit)


def test_an_unknown_form_or_program_is_refused() -> None:
    with pytest.raises(OptionError, match="form='gif' is none of 'svg', 'png', 'pdf'"):
        render(DOT, "gif")
    with pytest.raises(OptionError, match="program='neato' is none of 'graphviz-pure', 'dot'"):
        render(DOT, "svg", program="neato")
