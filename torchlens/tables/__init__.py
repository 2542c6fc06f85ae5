"""A trace as Arrow tables: ops, layers, edges, modules and their calls, parameters, buffers, frames."""

from torchlens.tables.collection import Tables

__all__ = ["Tables"]
