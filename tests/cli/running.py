"""A model's file, and running a command in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from torchlens.cli.app import app

NET = """\
import dataclasses
import torch
from torch import nn

@dataclasses.dataclass
class Config:
    width: int = 4

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(Config().width, 8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)
    def forward(self, x, mask=None):
        x = self.head(self.body(x))
        return x if mask is None else x.masked_fill(mask, 0)

class Ids(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 4)
    def forward(self, ids):
        return self.embed(ids)

built = Net()
number = 3
scripted = torch.jit.script(nn.Linear(2, 2))

def net():
    return Net()

def gives_dict():
    return {}

def takes_argument(width):
    return Net()

def raises():
    raise ValueError("two\\nlines")

class Outer:
    class Inner(Net):
        pass
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def data(*words: str) -> Any:
    """What a command prints with `--json`."""
    result = run(*words, "--json")
    assert result.stdout, result
    return json.loads(result.stdout, parse_constant=lambda name: 1 / 0)  # NaN is no JSON
