"""Runs whose files are kept, one of each sort, for later releases to read.

    python -m tests.saving.golden_runs

writes what is missing in tests/saving/golden; files of a format version are never written anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests.saving.mutations import parts_of, sealed, write_directory
from torchlens.saving.layout import RECORD, VERSION

DIRECTORY = Path(__file__).parent / "golden"


class Scores(NamedTuple):
    low: Tensor
    rest: dict[str, Any]


class Everything(nn.Module):
    """A buffer, writes over views, a loop, dropout, several types of elements and a nested output."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(9.0).reshape(3, 3) / 8)
            self.linear.bias.copy_(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: Tensor) -> Scores:
        self.count.add_(1)
        out = torch.zeros(2, 3)
        for row in range(2):
            out[row] = self.linear(x[row]).tanh()
        half = F.dropout(out, 0.5).to(torch.bfloat16)
        turned = torch.fft.fft(out)
        return Scores(out.relu_(), {"half": half, "turned": turned.conj(), 3: [x[:0], None, float("inf")]})


def inputs() -> Tensor:
    return torch.tensor([[1.0, -2.0, 0.25], [0.0, 3.0, -1.0]])


def whole() -> Any:
    return tl.trace(Everything(), inputs(), capture=tl.options.CaptureOptions(seed=7))


def some() -> Any:
    return tl.trace(Everything(), inputs(), save=tl.func("tanh"), capture=tl.options.CaptureOptions(seed=7))


def failed() -> Any:
    model, wrong = Everything(), torch.ones(2, 5)
    try:
        with tl.capture(model) as trace:
            model(wrong)
    except RuntimeError:
        return trace
    raise AssertionError("the model was to raise")


RUNS: dict[str, Callable[[], Any]] = {"whole": whole, "some": some, "failed": failed}


def path_of(name: str, version: int = VERSION) -> Path:
    return DIRECTORY / f"version-{version}-{name}.tlens"


def text_of(trace: Any) -> str:
    """What a person reads of it, and every value."""
    lines = [str(trace.summary()), ""]
    for op in trace.ops:
        try:
            value = f"{op.out.detach().resolve_conj().tolist()}"
        except tl.errors.UnreadableError as error:
            value = type(error).__name__
        parents = " ".join(parent.label for parent in op.parents)
        lines.append(f"{op.label} [{parents}] {op.shape} {op.dtype} {value}")
    return "\n".join(lines) + "\n"


def without_folders(trace: Any) -> Any:
    """The trace as if every source file had lain in no folder: whose machine it was is nobody's business."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "here"
        tl.save(trace, path, params=True)
        parts = parts_of(path)
        frames = pa.ipc.open_stream(parts["frames.arrow"]).read_all()
        names = pa.array([Path(file).name for file in frames["file"].to_pylist()])
        frames = frames.set_column(0, frames.schema.field(0), names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, frames.schema) as writer:
            writer.write_table(frames)
        parts["frames.arrow"] = sink.getvalue().to_pybytes()
        parts[RECORD] = re.sub(rb"(/[\w.+-]+)+/", b"", parts[RECORD])
        sealed(parts)
        write_directory(parts, Path(directory) / "anywhere")
        loaded = tl.load(Path(directory) / "anywhere")
        _ = [op.out for op in loaded.ops if hasattr(op, "out")]  # reads all that is there
        return loaded


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, run in RUNS.items():
        path = path_of(name)
        if not path.exists():
            tl.save(without_folders(run()), path, params=name == "whole")
            path.with_suffix(".txt").write_text(text_of(tl.load(path)), encoding="utf-8")


if __name__ == "__main__":
    main()
