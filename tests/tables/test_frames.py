"""Call sites, the line of the user's own code, and which files are torch's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from torchlens.report.torch_files import is_of_torch


def halved(x: Tensor) -> Tensor:
    return F.normalize(x) / 2


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return halved(self.inner(x))


def rows(trace: Any, name: str) -> list[dict[str, Any]]:
    return trace.tables[name].to_pylist()


def test_the_line_of_an_op_is_the_innermost_that_is_not_torchs() -> None:
    trace = tl.trace(Nested(), torch.ones(2, 4))
    first = halved.__code__.co_firstlineno
    ops = {row["label"]: row for row in rows(trace, "ops")}
    inside_normalize = ops["linalg_vector_norm_1:1"] if "linalg_vector_norm_1:1" in ops else ops["norm_1:1"]
    assert (inside_normalize["file"], inside_normalize["line"]) == (__file__, first + 1)
    assert (ops["linear_1:1"]["file"], ops["linear_1:1"]["line"]) == (None, None)  # torch's own module
    assert ops["linear_1:1"]["call_site"] is not None and ops["input_1:1"]["call_site"] is None


def test_frames_join_ops_by_call_site() -> None:
    trace = tl.trace(Nested(), torch.ones(2, 4))
    for op in rows(trace, "ops"):
        frames = [row for row in rows(trace, "frames") if row["call_site"] == op["call_site"]]
        assert [row["depth"] for row in frames] == list(range(len(trace[op["label"]].call_site)))
        own = [row for row in frames if not row["in_torch"]]
        assert op["line"] == (own[-1]["line"] if own else None)
    functions = {row["function"].rpartition(".")[2] for row in rows(trace, "frames")}
    assert {"forward", "halved", "normalize"} <= functions


def test_ops_called_from_the_same_frames_share_a_call_site() -> None:
    def twice(x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + 1
        return x - 1

    trace = tl.trace(twice, torch.ones(2))
    assert trace.to_arrow()["call_site"].to_pylist() == [None, 0, 0, 1, None]


def test_torchs_files_are_told_on_any_machine() -> None:
    own = {
        F.__file__,
        "/opt/lib/python3.12/site-packages/torch/nn/functional.py",
        r"C:\py\site-packages\torch\x.py",
    }
    own |= {"/usr/lib/python3/dist-packages/torch/_tensor.py"}
    others = {
        __file__, "<stdin>", "<string>", "", "/home/me/torch/model.py",
        "/opt/lib/python3.12/site-packages/torchvision/models/resnet.py",
    }  # fmt: skip
    assert set(filter(is_of_torch, own | others)) == own
