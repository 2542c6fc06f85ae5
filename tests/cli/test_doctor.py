"""`torchlens doctor`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.running import NET, run


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_doctor_looks_and_runs_nothing(files: Path) -> None:
    (files / "doctored.py").write_text(
        NET
        + "\nclass Raises(Net):\n    def forward(self, x):\n        raise RuntimeError('it ran')\n"
        + "\ndef exported():\n    return torch.export.export(nn.ReLU(), (torch.ones(2),))\n"
    )
    words = ("doctor", "doctored.py:Raises", "-i", "3,4:float64", "-i", "mask=3,2:bool", "--train")
    result = run(*words)
    sys.modules.pop("doctored")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Raises · nothing refused")
    assert "body.1 (Dropout): random values" in result.stdout
    assert "input 0 is torch.float64, the parameters torch.float32" in result.stdout
    result = run(*words[:-1], "--markdown")
    assert "training mode" in result.stdout.partition("Not found: ")[2]
    sys.modules.pop("doctored")
    result = run("doctor", "doctored.py:exported", "--markdown")
    sys.modules.pop("doctored")
    assert result.exit_code == 1
    assert result.stdout.startswith("### torchlens doctor: ExportedProgram\n\n1 refused")


def test_the_doctor_without_a_target_looks_at_the_environment() -> None:
    result = run("doctor", "--width", "60")
    assert result.exit_code == 0
    assert result.stdout.startswith("environment · nothing refused")
    assert "Python" in result.stdout and "training mode" not in result.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("net.py:scripted", 1, ""),
        ("net.py:nett", 2, "there is no 'nett' in net; nearest: net"),
        ("net.py:net -i 3,x", 2, "'x' is no size"),
        ("-i 3,4", 2, "--input is for a target, which is run, and none is given; leave it out"),
    ],
)
def test_exit_codes_of_the_doctor(files: Path, words: str, code: int, message: str) -> None:
    result = run("doctor", *words.split())
    assert result.exit_code == code
    assert message in result.stderr
    assert ("refused" in result.stdout) == (code == 1)
