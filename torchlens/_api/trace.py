"""`Trace`: what a capture recorded, read through one object. It forwards and holds no logic."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torchlens._api.features import AllFeatures
from torchlens._api.sites import find_ops
from torchlens._records import Record, RunOptions, Status
from torchlens._trace.graph import build_graph
from torchlens._trace.layer import Layer
from torchlens._trace.lookup import Named
from torchlens._trace.module import Module, ModuleCall
from torchlens._trace.op import Op
from torchlens._trace.outcome import find_halt, find_output
from torchlens._trace.provenance import Provenance, find_provenance
from torchlens._trace.reader import TraceReader
from torchlens._trace.selection import find
from torchlens._trace.state import Buffer, Param
from torchlens._trace.views import Views
from torchlens._values.ledger import Ledger
from torchlens.drawing.choices import DrawOptions
from torchlens.drawing.dot import Direction
from torchlens.drawing.drawing import draw
from torchlens.drawing.picture import Page, Picture
from torchlens.drawing.quantities import ColorBy
from torchlens.drawing.rendering import Program
from torchlens.drawing.wishes import Modules
from torchlens.errors import CaptureOpenError, NotSavedError
from torchlens.report.failure import FailureReport, report_failure
from torchlens.report.memory import Memory, measure_memory
from torchlens.report.summary import Summary, describe, summarize
from torchlens.selectors import Sites
from torchlens.tables import Tables
from torchlens.tables.collection import TableName
from torchlens.tables.dataframes import to_pandas, to_polars
from torchlens.validation.checking import check_trace
from torchlens.validation.report import Report

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Trace:
    """Every tensor operation of a run, with its value, its place in the code and what it came from.

    >>> import torch, torchlens as tl
    >>> trace = tl.trace(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]))
    >>> trace["relu_1"].out
    tensor([0., 2.])
    """

    def __init__(self) -> None:
        self._open_views: Views | None = None
        self._cleaned = False

    @property
    def _views(self) -> Views:
        if self._cleaned:
            raise NotSavedError("trace.cleanup() has freed this trace; run it again to read it")
        if self._open_views is None:
            raise CaptureOpenError("the capture block is still open; read the trace after the `with` block")
        return self._open_views

    @property
    def _reader(self) -> TraceReader:
        return self._views.reader

    @property
    def _record(self) -> Record:
        return self._views.reader.record

    def _finish(self, record: Record, ledger: Ledger) -> None:
        self._read_from(TraceReader(record, ledger, AllFeatures()))

    def _read_from(self, reader: TraceReader) -> None:
        self._open_views = Views(reader)

    @property
    def ops(self) -> Named[Op]:
        """All ops in capture order: inputs, calls, boundaries, buffer versions, sources, outputs."""
        return self._views.every_op()

    @property
    def layers(self) -> Named[Layer]:
        return self._views.layers(range(len(self._reader.layering.layers)))

    @property
    def modules(self) -> Named[Module]:
        """Every module of the model, called or not, the root first."""
        return self._views.modules(range(len(self._record.modules)))

    @property
    def module_calls(self) -> Named[ModuleCall]:
        return self._views.module_calls(range(1, len(self._record.module_calls)))

    @property
    def params(self) -> Named[Param]:
        """Every parameter of the model, ties once."""
        return self._views.params(range(len(self._record.params)))

    @property
    def buffers(self) -> Named[Buffer]:
        return self._views.buffers(range(len(self._record.buffers)))

    @property
    def inputs(self) -> Named[Op]:
        first = self._reader.numbers.first
        return self._views.ops([first[row] for row in self._record.inputs])

    @property
    def outputs(self) -> Named[Op]:
        first = self._reader.numbers.first
        return self._views.ops([first[row] for row in self._record.outputs])

    def select(self, sites: Sites) -> Named[Op]:
        """The ops that labels, addresses and selectors, one or several, mean, in capture order."""
        return self._views.ops([op.index for op in find_ops(self._views, sites)])

    def __getitem__(self, key: str | int) -> Op | Layer | Module | ModuleCall:
        """A layer or op by label, a module or module call by address, an op by index."""
        return find(self._views, key)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __contains__(self, key: object) -> bool:
        try:
            find(self._views, key)
        except (KeyError, IndexError, TypeError):
            return False
        return True

    @property
    def graph(self) -> nx.DiGraph[str]:
        """The ops as a networkx graph: nodes are op labels, an edge's `positions` the arguments it fills."""
        return self._graph

    @cached_property
    def _graph(self) -> nx.DiGraph[str]:
        return build_graph(self._reader)

    @property
    def tables(self) -> Tables:
        """Ops, layers, edges, modules, their calls, parameters, buffers and frames as Arrow tables."""
        return self._tables

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self._reader)

    def to_arrow(self) -> pa.Table:
        """One row an op; the other tables are in `trace.tables`."""
        return self.tables.ops

    def to_pandas(self, table: TableName = "ops") -> pd.DataFrame:
        """A table as a pandas frame: words as categories, all else backed by Arrow and not copied."""
        return to_pandas(self.tables[table])

    def to_polars(self, table: TableName = "ops") -> pl.DataFrame:
        """A table as a polars frame, over the same memory where polars can; words as strings."""
        return to_polars(self.tables[table])

    @property
    def output(self) -> Any:
        """What the model returned, with its containers."""
        return find_output(self._views)

    @property
    def status(self) -> Status:
        return self._record.status

    @property
    def halted_at(self) -> Op | ModuleCall | None:
        """The op, or the module call, after which `stop_after` ended the run; None if it went through."""
        return find_halt(self._views)

    @property
    def error(self) -> FailureReport | None:
        """The exception that ended the run, the call that raised and the last ops; None if there was none."""
        return report_failure(self._reader)

    @property
    def provenance(self) -> Provenance:
        """Whether the trace can vouch for its graph, and if not, why."""
        return find_provenance(self._reader)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not as usual about the run, one sentence each."""
        return tuple(self._record.notes)

    @property
    def options(self) -> RunOptions:
        """The options of the capture, and the versions it ran under."""
        return self._record.options

    @property
    def copied_bytes(self) -> int:
        """Bytes copied during the run because they were about to be overwritten in place."""
        return self._reader.values.copied_bytes

    @property
    def memory(self) -> Memory:
        """Bytes that the trace keeps: values, copies saved before in-place writes, and its own record."""
        return measure_memory(self._reader)

    def summary(self, *, depth: int | None = None, fold: bool = True) -> Summary:
        """The module tree, layers, parameters and cost, as a rich renderable that also prints as text.

        `depth` opens that many levels of modules; `fold=False` shows each of several like blocks.
        """
        return summarize(self._views, depth=depth, fold=fold)

    def draw(  # noqa: PLR0913  the surface fixes the names
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rolled: bool = False,
        depth: int | None = None,
        collapse: Modules | Sequence[Modules] | None = None,
        hide: Sites | None = None,
        focus: str | None = None,
        color_by: ColorBy | None = None,
        direction: Direction = "down",
        fold: bool = True,
        program: Program = "graphviz-pure",
        time_limit: float = 60.0,
        statistics: bool = True,
    ) -> Picture | Page:
        """A picture of the run, also written to `path`: .svg, .png, .pdf, .dot, or .html for a page.

        `rolled` draws each layer once, with the number of its passes and the edges that lead back. `depth`
        opens that many levels of modules below the root; without it, as many as fit about 60 nodes. `fold`
        draws like modules that follow one another once. `collapse` closes modules: by a number of levels, an
        address, a class or its name, a function of a module, or a list of these. `hide` leaves out ops,
        given as for `select`, and leads what flowed through them past. `focus` draws one module and what it
        is linked to. `color_by` is "time", "flops", "bytes", or a function of an op that gives a number or a
        word. `direction` is where the data flows: "down", "right", "up", "left". `program="dot"` lets an
        installed Graphviz place the nodes, which may take `time_limit` seconds. A page of a large trace takes
        less long without `statistics` of the values.

        `DrawingError` if placing them fails or takes longer; the DOT text is kept in a file then.
        `OptionError` for an option or ending that is none, or that a page has no use for, `MissingKeyError`
        for a name that the run does not have, `UnwritablePathError` if the path cannot be written.

        >>> import torch, torchlens as tl
        >>> trace = tl.trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), torch.ones(1, 2))
        >>> trace.draw(direction="right")
        <Picture, 4 nodes>
        """
        options = DrawOptions(
            rolled=rolled,
            depth=depth,
            collapse=collapse,
            focus=focus,
            color_by=color_by,
            direction=direction,
            fold=fold,
            program=program,
            time_limit=time_limit,
            statistics=statistics,
        )
        hidden = None if hide is None else [op.index for op in find_ops(self._views, hide)]
        return draw(self._views, path, options, hidden)

    def check(self) -> Report:
        """Make each recorded call again and check the record's own rules; true when nothing failed."""
        return check_trace(self._reader)

    def cleanup(self) -> None:
        """Free everything the trace holds; reading it raises `NotSavedError` from then on."""
        self._open_views = None
        self._cleaned = True
        self.__dict__.pop("_graph", None)
        self.__dict__.pop("_tables", None)

    def __repr__(self) -> str:
        if self._cleaned:
            return "<Trace, freed by cleanup()>"
        return describe(self._views) if self._open_views is not None else "<Trace, its capture block is open>"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()
