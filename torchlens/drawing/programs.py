"""The programs that lay graphs out: where they are, and a run that ends in time and leaves nothing."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Final, Literal, TypeAlias, get_args

from torchlens.errors import DrawingError, OptionError

Program: TypeAlias = Literal["graphviz-pure", "dot"]

DRAW_LESS: Final = "Draw less of the model with depth=, collapse= or focus=, or write an .html page"
_LONGEST_LIMIT: Final = (
    1e6  # seconds; operating systems take none that is much longer: past it there is no limit
)
_LEFT_TO_END: Final = 5.0  # seconds that a killed process has, which a disk that hangs may keep from ending


def run(program: Program, form: str, dot: str, *, time_limit: float) -> bytes:
    """What the program writes when it draws the DOT text in this form.

    Raises `DrawingError`, with the DOT text kept in a file, where the program is missing, fails, writes
    nothing or takes longer than `time_limit` seconds, after which it is killed with all that it started.
    """
    check_choice("program", program, get_args(Program))
    limit = _checked_limit(time_limit)
    command = [_path_of(program, dot), f"-T{form}"]
    try:
        process = _started(command)
    except OSError as error:
        raise failure(dot, f"{program} could not be started: {error}", _how_to_get(program)) from error
    try:
        output, complaints = process.communicate(dot.encode(errors="replace"), timeout=limit)
    except subprocess.TimeoutExpired as error:
        remedy = f"{DRAW_LESS}, or give it longer: time_limit={time_limit * 10:g}"
        raise failure(dot, f"{program} was not done after {time_limit:g} s", remedy) from error
    finally:
        if process.returncode is None:  # too late, or the caller was interrupted
            _kill(process)
    if process.returncode:
        raise failure(dot, f"{program} {_end_of(process.returncode)}{_quoted(complaints)}", DRAW_LESS)
    if not output.strip():
        raise failure(dot, f"{program} wrote no picture{_quoted(complaints)}", DRAW_LESS)
    return output


def failure(dot: str, what: str, remedy: str) -> DrawingError:
    """The error to raise: what happened, where the DOT text now is, what to do."""
    return DrawingError(f"{what}. {_kept(dot)}. {remedy}.")


def check_choice(option: str, given: object, known: tuple[str, ...]) -> None:
    """Raises `OptionError` if what was given for the option is none of those known."""
    if given not in known:
        raise OptionError(f"{option}={given!r} is none of {', '.join(map(repr, known))}")


def check_limit(time_limit: object) -> None:
    """Raises `OptionError` for what is no number of seconds above 0."""
    if not _is_duration(time_limit):
        raise OptionError(f"time_limit is a number of seconds above 0, such as 60, not {time_limit!r}")


def _checked_limit(time_limit: float) -> float | None:
    """The limit in seconds; None where there is none."""
    check_limit(time_limit)
    return time_limit if time_limit < _LONGEST_LIMIT else None


def _is_duration(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return not math.isnan(value) and value > 0


def _path_of(program: Program, dot: str) -> str:
    """Where the program is: a wheel's beside the running Python, whose environment may not be activated."""
    if program == "dot":
        found, missing = which("dot"), "dot was not found on the PATH"
    else:
        found = which(program, path=os.pathsep.join(_script_folders())) or which(program)
        missing = f"{program} was found neither beside {sys.executable or 'Python'} nor on the PATH"
    if found is None:
        raise failure(dot, missing, _how_to_get(program))
    return found


def _script_folders() -> list[str]:
    beside = [str(Path(sys.executable).parent)] if sys.executable else []
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    return [*beside, *(sysconfig.get_path("scripts", scheme) for scheme in schemes)]


def _how_to_get(program: Program) -> str:
    if program == "dot":
        return (
            'program="dot" needs Graphviz, which the system\'s package manager installs; without program= '
            "graphviz-pure draws, which comes with torchlens"
        )
    return 'pip install graphviz-pure, or say program="dot" where Graphviz is installed'


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a process group of its own, to be killed whole
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        tree = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
        subprocess.run(tree, capture_output=True, check=False)
    else:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LEFT_TO_END)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):  # closing writes what is left, which nobody reads any more
                pipe.close()


def _end_of(status: int) -> str:
    return f"exited with status {status}" if status > 0 else f"was killed by signal {-status}"


def _quoted(complaints: bytes) -> str:
    """The first lines that a program wrote to its standard error; of warnings and errors the errors."""
    lines = [line.strip() for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("Warning")] or lines
    return f": {'; '.join(errors[:3])}" if errors else ""


def _kept(dot: str) -> str:
    """Says where the DOT text is, after writing it to a file that stays."""
    try:
        with tempfile.NamedTemporaryFile(prefix="torchlens-", suffix=".dot", delete=False) as file:
            file.write(dot.encode(errors="replace"))
    except OSError as error:
        return f"The DOT text could not be kept in a file: {error}"
    return f"The DOT text is in {file.name}"
