"""Commands on saved traces: each gives what it gives on the target that was saved."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import torchlens as tl
from tests.cli.running import data, run

NET = ("net.py:net", "-i", "3,4")


@pytest.fixture
def saved(files: Path) -> str:
    """A trace of a model, saved."""
    assert run("save", *NET, "-o", "run.tlens").exit_code == 0
    return "run.tlens"


def test_a_saved_trace_reads_as_the_run_did(saved: str) -> None:
    ours, theirs = data("summary", saved), data("summary", *NET)
    times = ours.pop("duration_ns"), theirs.pop("duration_ns")
    assert min(times) > 0
    for each in (ours, theirs):
        del each["value_bytes"]  # a file shares storages across what was copied
    assert ours == theirs
    assert (ours["model"], ours["status"], ours["error"]) == ("Net", "complete", None)
    assert (ours["ops"], ours["parameters"], ours["flops"]) == (5, 58, 3 * 2 * (4 * 8 + 8 * 2))


def test_the_text_of_a_saved_trace(saved: str) -> None:
    result = run("summary", saved, "--depth", "0", "--width", "60")
    assert result.stdout.startswith("Net · forward, complete\ninput      input_1 3×4 float32 cpu\n")
    assert result.stderr == ""


def test_a_directory_is_a_saved_trace_too(files: Path) -> None:
    assert run("save", *NET, "-o", "folder").exit_code == 0
    assert data("summary", "folder")["model"] == "Net"


def test_what_ran_of_a_failing_model_is_saved(files: Path) -> None:
    result = run("save", "net.py:net", "-i", "3,5", "-o", "failed.tlens")
    assert result.exit_code == 1
    assert "the model raised RuntimeError: mat1 and mat2 shapes" in result.stderr
    shown = run("summary", "failed.tlens")
    assert shown.exit_code == 1 and shown.stderr == result.stderr
    assert "1: 8×4 float32 cpu, parameter body.0.weight" in shown.stdout
    error = data("summary", "failed.tlens")["error"]
    assert error["call"]["func_name"] == "linear"
    assert error["call"]["arguments"][0]["shape"] == [3, 5]
    assert error["lines"][-1]["text"] == "x = self.head(self.body(x))"


def test_values_that_were_not_kept(files: Path) -> None:
    assert run("save", *NET, "-o", "little.tlens", "--keep", "linear_1").exit_code == 0
    assert tl.load("little.tlens")["linear_1"].out.shape == (3, 8)
    shown = data("show", "little.tlens", "linear_2")["ops"][0]
    assert shown["statistics"] is None and "was not kept" in shown["statistics_reason"]
    assert data("show", "little.tlens", "linear_1")["ops"][0]["statistics"]["count"] == 24


def test_parameters_are_saved_on_demand(files: Path) -> None:
    assert run("save", *NET, "-o", "with.tlens", "--params").exit_code == 0
    assert tl.load("with.tlens").params["head.weight"].value.shape == (2, 8)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("summary gone.tlens", "there is no "),
        ("summary text.tlens", "text.tlens "),
        ("summary run.tlens -i 3,4", "run.tlens is a saved trace; leave it out"),
        ("doctor run.tlens -i 3,4", "run.tlens is a saved trace; leave it out"),
        ("save run.tlens -o other.tlens", "run.tlens is a saved trace already"),
        ("save net.py:net -i 3,4 -o run.tlens", "exists already"),
        ("save net.py:net -i 3,4 -o net.py/run.tlens", "net.py"),
        ("save net.py:net -i 3,4 --keep nope -o new.tlens", "nope"),
        ("show run.tlens relu_9", "no op is called 'relu_9'; nearest: "),
        ("show run.tlens body", "body is a module; the layers in it and below it: linear_1, dropout_1"),
        ("show run.tlens head", "head is a module; the layers in it and below it: linear_2"),
        ("show run.tlens 99", "there are 5 ops; 99 is not one of them"),
        ("export run.tlens", "say in which form: --to parquet or csv"),
        ("export run.tlens --to xlsx", "there is no form 'xlsx'"),
        ("export run.tlens -o ops", "the path has no ending that names a form"),
        ("export run.tlens --to csv --table nodes", "no table is called 'nodes'"),
        ("export run.tlens -o net.py/ops.csv", "cannot be written: "),
        ("compare run.tlens gone.tlens", "there is no "),
        ("compare run.tlens run.tlens -i 3,4", "--input is for a target, which is run, and run.tlens is a"),
        ("compare run.tlens run.tlens --seed 1", "--seed is for a target, which is run, and run.tlens is a"),
        (
            "summary run.tlens --train",
            "--train is for a target, which is run, and run.tlens is a",
        ),
        ("show run.tlens 1 --device meta", "--device is for a target, which is run, and run.tlens is a"),
        ("doctor --train", "--train is for a target, which is run, and none is given"),
    ],
)
def test_a_bad_request_gets_one_line_and_exit_code_2(saved: str, words: str, message: str) -> None:
    Path("text.tlens").write_text("no trace")
    result = run(*words.split())
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("torchlens: ") and message in line


def test_show_prints_a_layer_and_an_op(saved: str) -> None:
    text = run("show", saved, "linear_1", "--width", "80").stdout
    assert text.startswith("linear_1 · layer, 1 pass\nfunction   linear\nmodule     body.0:1 (Linear)\n")
    assert "elements   24, 0 zero, 0 NaN, 0 infinite" in text and "█" in text
    assert data("show", saved, "linear_1") == data("show", saved, "1") == data("show", saved, "linear_1:1")
    assert run("show", saved, "--", "-1").stdout.startswith("output_1:1 · output, one pass\n")


def test_the_json_of_show(saved: str) -> None:
    (op,) = data("show", saved, "linear_2")["ops"]
    assert (op["shape"], op["dtype"], op["params"]) == ([3, 2], "float32", ["head.weight", "head.bias"])
    assert (op["parents"], op["children"], op["flops"]) == (["dropout_1:1"], ["output_1:1"], 96)
    assert op["call_site"][-1]["function"] == "Linear.forward"
    value = tl.load(saved)["linear_2"].out
    assert op["statistics"]["maximum"] == pytest.approx(float(value.max()))
    assert sum(part["count"] for part in op["statistics"]["histogram"]) == 6


def test_statistics_that_json_lacks(files: Path) -> None:
    (files / "odd.py").write_text(
        "import torch\nfrom torch import nn\nclass Odd(nn.Module):\n"
        "    def forward(self, x):\n        return x * float('nan'), x.abs() / 0, x * 1e308 * 10\n"
    )
    for label in ("mul_1", "truediv_1", "mul_2"):
        statistics = data("show", "odd.py:Odd", label, "-i", "3:float64")["ops"][0]["statistics"]
        assert statistics["count"] == 3


@pytest.mark.parametrize("table", ["ops", "layers", "edges", "modules", "module_calls", "params", "frames"])
def test_export_writes_what_the_tables_hold(saved: str, table: str) -> None:
    wanted = tl.load(saved).tables[table]
    result = run("export", saved, "--table", table, "--to", "json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == wanted.num_rows > 0
    assert run("export", saved, "--table", table, "-o", "t.parquet").stdout == ""
    assert pq.read_table("t.parquet").column_names == wanted.column_names
    rows = list(csv.reader(io.StringIO(run("export", saved, "--table", table, "--to", "csv").stdout)))
    assert rows[0] == wanted.column_names and len(rows) == wanted.num_rows + 1


def test_export_of_a_failing_target_writes_what_ran(files: Path) -> None:
    result = run("export", "net.py:net", "-i", "3,5", "-o", "ops.csv")
    assert result.exit_code == 1
    assert len(Path("ops.csv").read_text().splitlines()) == 2


def test_the_doctor_checks_a_saved_trace(saved: str) -> None:
    result = run("doctor", saved)
    assert result.exit_code == 0 and result.stdout.startswith("Net · holds\n")
    assert data("doctor", saved)["failed"] == []
    page = run("doctor", saved, "--width", "200").stdout
    assert page.count("it lies in a parameter") == 1
    assert "\nunchecked  linear_1:1 and 1 other: a value it needs is not in the file: it lies in" in page
    found = data("doctor", saved)["unchecked"]
    assert [finding["about"] for finding in found] == ["linear_1:1", "linear_2:1"]
    assert "the value of head.weight is not in the file" in found[1]["text"]
    assert run("doctor", saved, "--markdown").exit_code == 2


def test_export_makes_the_folders_of_its_path(saved: str) -> None:
    assert run("export", saved, "-o", "new/folder/ops.csv").exit_code == 0
    assert len(Path("new/folder/ops.csv").read_text().splitlines()) == 6


def test_runs_that_are_the_same(saved: str) -> None:
    result = run("compare", saved, *NET)
    assert result.exit_code == 0
    assert result.stdout == (
        "run.tlens, net.py:net · equal\nin both 5 ops: 5 equal, 0 differ\n\nthey are the same, bit for bit\n"
    )
    found = data("compare", saved, *NET)
    assert (found["same"], found["first_divergence"], found["compared"]) == (True, None, 5)
    assert data("compare", saved, saved)["same"] is True


def test_runs_that_differ_and_the_tolerance(saved: str) -> None:
    result = run("compare", saved, *NET, "--seed", "1")
    assert result.exit_code == 1
    assert "first divergence at input_1:1" in result.stdout
    found = data("compare", saved, *NET, "--seed", "1")
    assert found["same"] is False and found["first_divergence"]["a"]["label"] == "input_1:1"
    result = run("compare", saved, *NET, "--seed", "1", "--tolerance", "1000")
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last == "they are the same within the tolerance of 1000: 5 values compared"
    assert run("compare", saved, *NET, "--tolerance", "0").exit_code == 0


def test_a_side_of_a_divergence_has_the_names_that_show_has(saved: str) -> None:
    """The first linear layer's weights differ: that is where the runs part."""
    Path("other.py").write_text(
        "import torch\nfrom net import Net\n"
        "def doubled():\n    net = Net()\n    net.body[0].weight.data *= 2\n    return net\n"
    )
    found = data("compare", saved, "other.py:doubled", "-i", "3,4")["first_divergence"]
    (shown,) = data("show", saved, "linear_1")["ops"]
    shared = found["a"].keys() & shown.keys()
    assert shared == {
        "label", "module", "call_site", "shape", "dtype", "statistics", "statistics_reason",
    }  # fmt: skip
    assert {name: found["a"][name] for name in shared} == {name: shown[name] for name in shared}
    assert (found["a"]["module"], found["a"]["module_type"]) == ("body.0", "Linear")
    assert found["before"] == {"agreeing": 1, "not_compared": [], "only_in_a": [], "only_in_b": []}
    assert found["tolerance"] == {"relative": 1.3e-6, "absolute": 1e-5}
    assert found["inputs"]["params"] == "not known" and found["starts_here"] is False
    assert found["inputs"]["params_reason"].startswith("run.tlens: the value of body.0.weight is not in the")


def test_shapes_that_all_changed_are_a_difference(saved: str) -> None:
    (Path("wide.py")).write_text(
        "from torch import nn\nfrom net import Net\n"
        "def wide():\n    net = Net()\n    net.head = nn.Linear(8, 3)\n"
        "    net.body[0] = nn.Linear(4, 8)\n    return net\n"
    )
    result = run("compare", saved, "wide.py:wide", "-i", "5,4")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "differs   the shapes are 3×4 and 5×4" in result.stdout
    assert data("compare", saved, "wide.py:wide", "-i", "5,4")["compared"] == 0


def test_complex_values_in_json(files: Path) -> None:
    (files / "complex.py").write_text(
        "import torch\nclass Turn(torch.nn.Module):\n    by = 1j\n"
        "    def forward(self, x):\n        return x * self.by\n"
        "class Other(Turn):\n    by = complex('inf')\n"
    )
    found = data("compare", "complex.py:Turn", "complex.py:Other", "-i", "1:float64")["first_divergence"]
    assert found["excess"]["a"]["real"] == 0 and found["excess"]["b"]["real"] in ("Infinity", "-Infinity")


def test_ops_of_one_run_only_are_a_difference(files: Path) -> None:
    (files / "more.py").write_text(
        "from net import Net\nclass More(Net):\n"
        "    def forward(self, x):\n        x.sin()\n        return super().forward(x)\n"
    )
    result = run("compare", "net.py:Net", "more.py:More", "-i", "3,4")
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-1]
    assert last == "they differ: 1 op is in one run only, which --values lets pass"
    result = run("compare", "net.py:Net", "more.py:More", "-i", "3,4", "--values")
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last == "they are the same within the tolerance of their dtypes: 5 values compared"
    found = data("compare", "net.py:Net", "more.py:More", "-i", "3,4")
    assert [op["label"] for op in found["only_in_b"]] == ["sin_1:1"] and found["only_in_a"] == []


def test_a_reason_is_told_once(files: Path) -> None:
    for name, seed in (("one.tlens", "0"), ("two.tlens", "1")):
        assert run("save", *NET, "-o", name, "--keep", "linear_1", "--seed", seed).exit_code == 0
    result = run("compare", "one.tlens", "two.tlens", "--width", "200")
    assert result.exit_code == 1 and "first divergence at linear_1:1" in result.stdout
    assert result.stdout.count("one.tlens: the value was not kept") == 1
    assert "before it  0 values agree, 1 could not be compared" in result.stdout
    result = run("compare", "one.tlens", "two.tlens", "--width", "200", "--tolerance", "10")
    assert result.exit_code == 0
    assert result.stdout.count("one.tlens: the value was not kept") == 1
    last = result.stdout.splitlines()[-1]
    assert last == "they are the same within the tolerance of 10: 2 values compared, 3 not"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_runs_without_values_cannot_be_compared(files: Path, form: list[str]) -> None:
    (files / "meta.py").write_text(
        "import torch\nclass Sin(torch.nn.Module):\n    def forward(self, x):\n        return x.sin()\n"
    )
    for name in ("one.tlens", "two.tlens"):
        words = ("meta.py:Sin", "-i", "3", "--device", "meta", "-o", name)
        assert run("save", *words).exit_code == 0
    found = run("compare", "one.tlens", "two.tlens", *form)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("torchlens: no value could be compared: ")


def test_a_model_that_raised_where_nothing_can_be_compared(files: Path) -> None:
    """What was raised decides the exit code; the page does not call the runs the same."""
    words = ("net.py:net", "-i", "3,5", "--device", "meta")
    for name in ("one.tlens", "two.tlens"):
        assert run("save", *words, "-o", name).exit_code == 1
    found = run("compare", "one.tlens", "two.tlens")
    assert found.exit_code == 1 and found.stderr.startswith("torchlens: the model raised RuntimeError: ")
    assert "no value could be compared: " in found.stdout and "the same" not in found.stdout
