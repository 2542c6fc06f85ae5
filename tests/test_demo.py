"""The model that ships with the package, and the lines that `torchlens demo` tells to type next."""

from __future__ import annotations

import torch
from typer.testing import CliRunner

import torchlens as tl
from torchlens.cli.app import app
from torchlens.demo import Demo

IDS = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]])


def test_output_is_that_of_a_plain_forward() -> None:
    model = Demo()
    assert torch.equal(tl.trace(model, IDS).output, model(IDS))


def test_it_has_a_loop_a_reused_block_attention_and_residuals() -> None:
    trace = tl.trace(Demo(), IDS)
    assert trace["tanh_1"].num_passes == 6
    assert trace.modules["block"].num_calls == 2
    assert trace["scaled_dot_product_attention_1"].num_passes == 2
    for label in ("add_1:2", "add_2:2"):
        entered, computed = trace.ops[label].parents
        assert entered.label in {"add_2:1", "add_1:2"}
        assert computed.type == "linear"


def lines_to_type(output: str) -> list[str]:
    shown = output.split("Go on in Python:\n")[1].split("Your own model")[0]
    return [line.strip() for line in shown.splitlines() if line.strip()]


def test_the_lines_to_type_next_work() -> None:
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0
    namespace: dict[str, object] = {}
    *setup, passes, value, parents, site, twice, calls, graph = lines_to_type(result.output)
    exec("\n".join(setup), namespace)
    assert eval(passes, namespace) == 6
    assert eval(value, namespace).shape == (2, 16)
    assert [op.label for op in eval(parents, namespace)] == ["linear_5:3"]
    assert eval(site, namespace).file.endswith("demo.py")
    assert len(eval(twice, namespace)) == 2
    assert [call.label for call in eval(calls, namespace)] == ["block:1", "block:2"]
    assert "tanh_1:6" in eval(graph, namespace).nodes


def test_it_shows_the_summary() -> None:
    output = CliRunner().invoke(app, ["demo", "--width", "80"]).output
    assert "├ block Block ×2" in output
    assert "├ tanh_1 ×6" in output
    assert "parameters 3,380, all trainable" in output
    assert max(map(len, output.splitlines())) <= 80
