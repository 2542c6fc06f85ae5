"""What a test can say of traces: that they are finite, have one graph, or are as a snapshot has them."""

from torchlens.testing.finite import Finite, assert_finite
from torchlens.testing.graphs import assert_same_graph
from torchlens.testing.last_ops import last_ops
from torchlens.testing.snapshot import Snapshot

__all__ = ["Finite", "Snapshot", "assert_finite", "assert_same_graph", "last_ops"]
