"""One of two processes that run a DistributedDataParallel model; prints what its trace says.

python -m tests.wrapped.ddp_rank RANK FILE
"""

from __future__ import annotations

import copy
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torchlens as tl
from tests.programs.reading import lint


def main(rank: int, file: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(file, 2))
    print(json.dumps(told(rank)), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads, ended by the interpreter, sometimes abort the process


def told(rank: int) -> dict[str, object]:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU())
    model = DistributedDataParallel(inner)
    x = torch.randn(3, 4) + rank
    before = copy.deepcopy(inner.state_dict())
    trace = tl.trace(model, x)
    after = copy.deepcopy(inner.state_dict())
    inner.load_state_dict(before)
    torch.manual_seed(trace.options.seed)
    plain = model(x)
    report = trace.check()
    lint(trace)
    facts: dict[str, object] = {
        "same output": torch.equal(trace.output, plain),
        "same state": all(torch.equal(after[key], value) for key, value in inner.state_dict().items()),
        "check": bool(report) or str(report),
        "modules": [module.address for module in trace.modules],
        "params": [param.address for param in trace.params],
        "calls": [call.label for call in trace.module_calls],
        "twice": [op.label for op in trace.ops] == [op.label for op in tl.trace(model, x).ops],
    }
    with tl.capture(model) as block:
        model(x).sum().backward()
    facts["gradients"] = [param.grad is not None for param in inner.parameters()]
    facts["first weight gradient"] = inner[0].weight.grad.flatten().tolist()
    mean = inner[1].running_mean.clone()
    later = tl.trace(model.eval(), x)
    read = later["batch_norm_1:1"].args[3].out
    facts["buffer was exchanged"] = not torch.equal(mean, read)
    facts["buffer read"] = read.tolist()
    facts["doctor"] = [row.found for row in tl.report.doctor(model).of("limited") if row.check == "wrappers"]
    facts["verified"] = [run.provenance.verified for run in (trace, block, later)]
    return facts


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
