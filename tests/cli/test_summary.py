"""`torchlens summary`: what it prints, and one clear line with exit code 2 where a request can't be met."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.running import NET, run


@pytest.mark.parametrize(
    "target",
    ["net.py:net", "net.py:Net", "net.py:built", "net.py:Outer.Inner", "net:net", "./net.py:net"],
)
def test_targets(files: Path, target: str) -> None:
    result = run("summary", target, "--input", "3,4")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == "input      input_1 3×4 float32 cpu"
    assert "├ body Sequential" in result.stdout
    assert "parameters 58, all trainable" in result.stdout


def test_a_file_with_the_name_of_an_imported_module_does_not_replace_it(files: Path) -> None:
    (files / "json.py").write_text(NET)
    before = sys.modules["json"]
    result = run("summary", "json.py:net", "--input", "3,4")
    assert sys.modules["json"] is before
    assert sys.modules.pop("torchlens_target_json").__file__ == str(files / "json.py")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param("net.py", "in it: net.py:Config, net.py:Net, net.py:Ids, net.py:net, ", id="no factory"),
        pytest.param("empty.py", "file.py:factory; in it: neither a class nor a function", id="empty file"),
        pytest.param("text.py", "text.py is no Python file: ", id="no Python"),
        pytest.param("gone.py", "'gone.py' is no saved trace, which is a path that ", id="gone"),
        pytest.param("run", "'run' is no saved trace, which is a path that ends in", id="no directory"),
        pytest.param("net", "'net' is no saved trace", id="a module without a factory"),
        pytest.param("nope.py:net", "there is no file 'nope.py' in ", id="no such file"),
        pytest.param("nope.nope:net", "cannot import 'nope.nope': ModuleNotFoundError", id="no such module"),
        pytest.param("broken.py:net", "broken.py raised OSError: no weights", id="a file that fails"),
        pytest.param("broken:net", "cannot import 'broken': OSError: no weights", id="a module that fails"),
        pytest.param("net.py:nett", "there is no 'nett' in net; nearest: net", id="no such factory"),
        pytest.param("net.py:number", "net.py:number is of type int", id="no factory but a number"),
        pytest.param("net.py:gives_dict", "returned an object of type dict", id="no model"),
        pytest.param("net.py:takes_argument", "a factory is called without arguments", id="arguments"),
        pytest.param("net.py:raises", "raised ValueError: two lines", id="a factory that fails"),
        pytest.param("net.py:scripted", "trace the eager nn.Module it was made from", id="TorchScript"),
        pytest.param("net.py:net --input 3,x", "'x' is no size", id="letters as size"),
        pytest.param("net.py:net --input 3,-4", "'-4' is no size", id="negative size"),
        pytest.param("net.py:net --input 3,,4", "'' is no size", id="missing size"),
        pytest.param("net.py:net --input 3:int64:4", "is not of the form [NAME=]SIZES", id="bad form"),
        pytest.param("net.py:net --input 3,4:flot32", "did you mean float32", id="bad dtype"),
        pytest.param("net.py:net --input 3,4:nn", "torch has no dtype 'nn'", id="no dtype"),
        pytest.param("net.py:net --input 3:int64:5..5", "has an empty range", id="empty range"),
        pytest.param("net.py:net --input 3:float32:0..5", "which only integers take", id="float range"),
        pytest.param("net.py:net --input 3:uint8:0..999", "cannot make input '3:uint8'", id="long range"),
        pytest.param("net.py:net --input 9999999999,9999999999", "cannot make input", id="too large"),
        pytest.param("net.py:net --input 3,4 --device gpu", "torch knows no device 'gpu'", id="no device"),
        pytest.param("net.py:net -i 3,4 --device xpu:7", "'xpu:7' cannot be used here", id="device not here"),
    ],
)  # fmt: skip
def test_a_bad_request_gets_one_line_and_exit_code_2(files: Path, words: str, message: str) -> None:
    (files / "empty.py").touch()
    (files / "text.py").write_text("no (Python")
    result = run("summary", *words.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("torchlens: ")
    assert message in line


def test_a_model_that_raises_gets_its_error_and_the_part_that_ran(files: Path) -> None:
    result = run("summary", "net.py:net", "--input", "3,5")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "torchlens: the model raised RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    )
    assert "Net · forward, failed" in result.stdout
    assert "0 Linear, raised here" in result.stdout
    assert "return" not in line


def test_a_model_that_lacks_inputs_is_told_how_to_give_them(files: Path) -> None:
    result = run("summary", "net.py:net")
    assert result.exit_code == 1
    assert "missing 1 required positional argument: 'x'; --input gives it inputs" in result.stderr


def test_inputs_by_position_and_keyword(files: Path) -> None:
    result = run("summary", "net.py:net", "-i", "3,4", "-i", "mask=3,2:bool")
    assert result.exit_code == 0
    assert "input_2 3×2 bool cpu" in result.stdout
    assert "masked_fill_1" in result.stdout


def test_integers_are_small_unless_a_range_is_given(files: Path) -> None:
    assert run("summary", "net.py:Ids", "-i", "1,200:int64").exit_code == 0
    assert run("summary", "net.py:Ids", "-i", "1,200:int64:0..50").exit_code == 0
    assert run("summary", "net.py:Ids", "-i", "1,200:int64:50..60").exit_code == 1


def test_train_and_eval(files: Path) -> None:
    quiet = run("summary", "net.py:net", "-i", "3,4", "--full").stdout
    noisy = run("summary", "net.py:net", "-i", "3,4", "--full", "--train").stdout
    dropout = [next(x for x in text.splitlines() if "dropout_1" in x).split() for text in (quiet, noisy)]
    assert [row[-2] for row in dropout] == ["0", "24"]


def test_a_seed_makes_a_run_repeatable(files: Path) -> None:
    (files / "seeded.py").write_text(
        NET
        + "\nclass Tells(Net):\n    def forward(self, x):\n        print(float(super().forward(x).sum()))\n"
    )

    def told(seed: str) -> str:
        words = ("summary", "seeded.py:Tells", "-i", "3,4", "--train", "--seed", seed)
        output = run(*words).stderr.splitlines()[0]
        del sys.modules["seeded"]
        return output

    assert told("1") == told("1") != told("2")


def test_depth_full_width_and_plain(files: Path) -> None:
    closed = run("summary", "net.py:net", "-i", "3,4", "--depth", "1").stdout
    assert "body Sequential, 2 layers" in closed
    assert "dropout_1" in run("summary", "net.py:net", "-i", "3,4", "--full", "--plain").stdout
    narrow = run("summary", "net.py:net", "-i", "3,4", "--width", "50").stdout
    assert max(map(len, narrow.splitlines())) <= 50
    assert "FLOPs    time" not in narrow


def test_plain_overrides_colours(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("summary", "net.py:net", "-i", "3,4").stdout
    assert "\x1b[" not in run("summary", "net.py:net", "-i", "3,4", "--plain").stdout


TALKS = """
import torch

print("imported")

class Talks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        print("built")
    def forward(self, x):
        print("ran")
        return x * 2

class Exits(torch.nn.Module):
    def forward(self, x):
        raise SystemExit(7)
"""


def test_what_a_model_prints_is_no_part_of_the_answer(files: Path) -> None:
    (files / "talks.py").write_text(TALKS)
    result = run("summary", "talks.py:Talks", "--input", "3,4", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["ops"]
    assert "ran" in result.stderr


def test_a_model_that_exits_has_raised(files: Path) -> None:
    (files / "talks.py").write_text(TALKS)
    result = run("summary", "talks.py:Exits", "--input", "3,4")
    assert result.exit_code == 1
    assert "the model raised SystemExit: 7" in result.stderr
