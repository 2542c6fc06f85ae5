"""A port of a block is checked against the original: which op goes wrong first, and why."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl


class Original(nn.Module):
    """A transformer block as its paper has it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        scores = self.query(h) @ self.key(h).transpose(-1, -2) / x.shape[-1] ** 0.5
        x = x + self.out(scores.softmax(-1) @ self.value(h))
        return x + self.mlp(x)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.matmul(self.q(x), self.k(x).mT) / x.shape[-1] ** 0.5
        return self.o(torch.matmul(F.softmax(scores, dim=-1), self.v(x)))


class Port(nn.Module):
    """The same with other modules, other names and other spellings. The activation is an approximation."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.add(x, self.attention(self.ln(x)))
        return torch.add(x, self.down(F.gelu(self.up(x), approximate="tanh")))


NAMES = {
    "norm": "ln",
    "query": "attention.q",
    "key": "attention.k",
    "value": "attention.v",
    "out": "attention.o",
    "mlp.0": "up",
    "mlp.2": "down",
}


def main() -> None:
    torch.manual_seed(0)
    original, port = Original().eval(), Port().eval()
    weights = original.state_dict()
    renamed = {name: name.rpartition(".") for name in weights}
    port.load_state_dict({f"{NAMES[module]}.{leaf}": weights[n] for n, (module, _, leaf) in renamed.items()})

    x = torch.randn(2, 5, 16)
    bundle = tl.Bundle({"original": tl.trace(original, x), "port": tl.trace(port, x)})
    print(bundle.first_divergence("original", "port"))

    comparison = bundle.compare("original", "port")
    print(f"\n{len(comparison)} ops in both, {len(comparison.differing)} differ")
    print("only in the original:", ", ".join(op.label for op in comparison.only_in_a))
    print("only in the port:", ", ".join(op.label for op in comparison.only_in_b))
    worst = max(comparison.differing, key=lambda row: row.difference.max_abs)
    print(f"worst: {worst.a.label}, by {worst.difference.max_abs:.1e}")
    table = comparison.to_arrow()
    print("as a table:", table.num_rows, "rows,", table.num_columns, "columns")


if __name__ == "__main__":
    main()
