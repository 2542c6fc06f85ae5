"""`torchlens demo`."""

from __future__ import annotations

from typing import Final

import typer

from torchlens.cli.options import PlainOption, WidthOption
from torchlens.cli.printing import show
from torchlens.cli.subject import Run, open_trace

_TARGET: Final = "torchlens.demo:Demo"
_INPUT: Final = "2,6:int64:0..20"
_GO_ON: Final = """\
Go on in Python:

  import torch, torchlens as tl
  from torchlens.demo import Demo

  trace = tl.trace(Demo(), torch.randint(0, 20, (2, 6)))

  trace["tanh_1"].num_passes         # 6: the loop ran that line six times
  trace["tanh_1:3"].out              # the value at the third step
  trace["tanh_1:3"].parents          # what it was computed from
  trace["tanh_1:3"].call_site[-1]    # the line of code that called it
  trace["add_1"].ops                 # two passes: the block ran twice
  trace.modules["block"].calls       # its calls, with what went in and came out
  trace.graph                        # all ops, as a networkx.DiGraph

Your own model: tl.trace(model, x), or without Python code

  torchlens summary package.module:factory --input 1,3,224,224
  torchlens summary file.py:factory --input 1,32:int64:0..50257
"""


def demo(plain: PlainOption = False, width: WidthOption = None) -> None:
    """Trace a small model and say how to go on."""
    show(open_trace(_TARGET, Run([_INPUT])).summary(), plain=plain, width=width)
    typer.echo(f"\n{_GO_ON}", nl=False)
