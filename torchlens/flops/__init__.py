"""How many floating-point operations one torch call takes, known from shapes alone."""

from torchlens.flops.cost import Cost
from torchlens.flops.counting import count

__all__ = ["Cost", "count"]
