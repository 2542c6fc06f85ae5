"""A small model that shows what a trace shows: a loop, a block used twice, attention, a residual."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Self-attention and a two-layer perceptron, each added to what entered it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """`x`: (batch, steps, width)."""
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.project(F.scaled_dot_product_attention(query, key, value))
        return x + self.mlp(x)


class Demo(nn.Module):
    """Reads token ids with one block, used twice, then steps through time with a recurrent layer.

    >>> import torchlens as tl
    >>> trace = tl.trace(Demo(), torch.zeros(1, 6, dtype=torch.int64))
    >>> trace["tanh_1"].num_passes, trace.modules["block"].num_calls
    (6, 2)
    """

    def __init__(self, vocabulary: int = 20, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.block = Block(width)
        self.step = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """`ids`: (batch, steps), integers below `vocabulary`; returns (batch, vocabulary)."""
        x = self.embed(ids)
        for _ in range(2):
            x = self.block(x)
        hidden = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            hidden = torch.tanh(self.step(torch.cat([x[:, t], hidden], dim=-1)))
        return self.head(hidden)
