"""What a capture writes down: plain data, read by everything else.

Tensors appear here only as opaque references. A *row* is one torch call (or an input, buffer version,
source, boundary or output); rows are gathered as plain tuples while the model runs and turned into `Rows`,
one column a fact, when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal, TypeAlias, cast

from torchlens._structure import BufferEntry, ModuleEntry, ParamEntry, Structure

Kind: TypeAlias = Literal["input", "call", "boundary", "buffer", "source", "output"]
Status: TypeAlias = Literal["complete", "halted", "failed"]
ReasonName: TypeAlias = Literal[
    "unknown_origin",
    "tensor_from_another_thread",
    "owner_thread_tripwire_changed",
    "host_round_trip",
    "write_through_numpy",
    "unexplained_write",
    "transform_not_followed",
    "compiled_region_skipped",
    "fused_prediction",
    "unwitnessed_op",
]
"""Why a trace may not vouch for its graph."""
Side: TypeAlias = Literal["left", "right", "unknown"] | None
"""On which side of a binary operator the tensor stood, where the call itself does not tell."""

ROW_FIELDS = tuple("kind func site call context args kwargs out version duration side".split())


@dataclass(slots=True)
class Rows:
    """The rows of a capture, column by column; `rows.func[k]` belongs to row k."""

    kind: Sequence[Kind]
    func: Sequence[Any]
    """The torch function; for other kinds the row's name (`"input"`, an address, a source's name)."""
    site: Sequence[int]
    """Index into `Record.places`; 0 where no Python frame lies between the module boundary and the op."""
    call: Sequence[int]
    """Index into `Record.module_calls`: the innermost module call that was running."""
    context: Sequence[int]
    """Index into `Record.contexts`."""
    args: Sequence[tuple[Any, ...]]
    """Positional arguments as plain data: tensors by reference, lists copied, other objects `Opaque`."""
    kwargs: Sequence[Mapping[str, Any] | None]
    out: Sequence[Any]
    """The tensor the call returned, or a tuple of them; the written ones where it returned none."""
    version: Sequence[Any]
    """Torch's version counter of `out` right after the call, one for each of several; None: it has none."""
    duration: Sequence[int]
    """Nanoseconds of the call itself."""
    side: Sequence[Side]

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def from_tuples(cls, rows: Sequence[tuple[Any, ...]]) -> Rows:
        """Transpose row tuples, each in the order of `ROW_FIELDS`."""
        return cls(*zip(*rows)) if rows else cls(*[()] * len(ROW_FIELDS))


@dataclass(slots=True)
class OpNumbers:
    """The ops of a record: op n is output `slots[n]` of row `rows[n]`; row k's first op is `first[k]`."""

    rows: list[int]
    slots: list[int]
    first: list[int]

    @classmethod
    def of(cls, rows: Rows) -> OpNumbers:
        """Number the outputs of all rows in order."""
        row_of: list[int] = []
        slot_of: list[int] = []
        first: list[int] = []
        for row, out in enumerate(rows.out):
            first.append(len(row_of))
            if type(out) is tuple:
                count = len(cast("tuple[Any, ...]", out))
                row_of.extend([row] * count)
                slot_of.extend(range(count))
            else:
                row_of.append(row)
                slot_of.append(0)
        return cls(row_of, slot_of, first)


@dataclass(slots=True)
class Opaque:
    """Stands for an argument that is no tensor, number, string, dtype or container of these."""

    type_name: str
    text: str

    def __hash__(self) -> int:
        return id(self)  # as keys of a dict, two objects with one text stay two

    def __repr__(self) -> str:
        return self.text


@dataclass(slots=True)
class FramePlace:
    """One Python frame of a call chain. `inner` is the place one frame further in (0: none)."""

    inner: int
    code: CodeType
    offset: int
    """`f_lasti`: a byte offset into the code, possibly inside the instruction's inline cache."""
    recursive: bool
    """The frame runs the same function (code and free variables) as a frame further in of this chain."""


@dataclass(slots=True)
class EnteredPlace:
    """A Python-written torch function was entered here; its own caller's chain is `outer`."""

    inner: int
    outer: int
    func: Callable[..., Any]


@dataclass(slots=True)
class HookedPlace:
    """The frames further in are those of a hook of this module."""

    inner: int
    module: int
    offset: int


@dataclass(slots=True)
class BoundaryPlace:
    """The op is a whole TorchScript module or transform, called from the chain `outer`."""

    inner: int
    outer: int
    func: object


Place: TypeAlias = FramePlace | EnteredPlace | HookedPlace | BoundaryPlace


@dataclass(slots=True)
class Context:
    """The state of torch that a call ran under."""

    grad_enabled: bool
    inference_mode: bool
    autocast: Mapping[str, str]
    """Device type to dtype name, for the devices autocast is on for; empty when off."""
    default_dtype: str
    default_device: str


@dataclass(slots=True)
class ModuleCallEntry:
    """One call of a module; index 0 of `Record.module_calls` is the space outside all calls (module 0)."""

    module: int
    parent: int
    number: int
    """1 for the module's first call; 0 for the space outside all calls."""
    start: int
    """First row of the call."""
    args: tuple[Any, ...] = ()
    # `dict[str, Any]` as the factory would cost a microsecond each call
    kwargs: Mapping[str, Any] = field(default_factory=cast("type[dict[str, Any]]", dict))
    output: Any = None
    end: int | None = None
    """One past the last row of the call; None while it runs, or when it raised."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of code that was running when a forward was ended by an exception."""

    file: str
    line: int
    function: str
    text: str
    """The source text without its indentation, as it was then; empty where there is none."""


@dataclass(frozen=True, slots=True)
class FailedArgument:
    """One tensor, or one thing without tensors in it, among the arguments of a call that raised."""

    position: str
    """`"0"`, `"1.2"` for an item of a list, a keyword by its name."""
    text: str
    """What it was, as text; of a tensor its class."""
    dtype: str | None = None
    """None for what is no tensor."""
    shape: tuple[int, ...] | None = None
    """None for a tensor that has none to tell, as the parameter of a lazy module."""
    device: str | None = None
    made: tuple[int, int] | None = None
    """The row that gave the tensor last, and as which of its outputs; None: no row gave it."""
    param: str | None = None
    """The address of the parameter that it is."""


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The torch call that raised: it gave nothing, so no row stands for it."""

    func_name: str
    """Torch's name of the function."""
    composites: tuple[str, ...]
    """The torch functions around it that were running, outermost first."""
    arguments: tuple[FailedArgument, ...]
    more_arguments: int = 0
    """How many more there were than are listed."""
    raised: str | None = None
    """What it raised, where the run was ended by another exception that followed from it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception that ended a forward, as text: holding the exception would hold every frame."""

    type_name: str
    message: str
    traceback: str
    lines: tuple[SourceLine, ...] = ()
    """The innermost lines that ran, without those of torch and of Python itself, the innermost last."""
    module_call: int = 0
    """Index into `Record.module_calls`: the innermost call that it came out of; 0: none."""
    in_hook: bool = False
    """Whether a hook of that call's module raised, and not its forward."""
    call: FailedCall | None = None
    """None where no torch call raised."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options a capture ran with, and under which versions."""

    seed: int | None
    """What the generators were seeded with; None in a block that seeds nothing."""
    max_copied: int | None
    torch_version: str
    python_version: str
    fused: Literal["keep", "expand"] = "keep"
    """Whether fused attention kernels ran as one op each, or as what they stand for."""
    save: str | None = None
    """Which values were to be kept, as text; None: all of them."""
    grouping_policy: Mapping[str, str] = field(default_factory=lambda: {"detector": "callsite_v1"})


@dataclass(slots=True)
class Reason:
    """Something for which the trace cannot vouch for its graph."""

    name: ReasonName
    text: str
    """What was found, as one sentence."""
    count: int
    rows: Sequence[int]
    """The rows it was found at, where it has any."""


@dataclass(slots=True)
class CensusEntry:
    """Dispatched operators of one sort that nothing recorded accounts for."""

    operator: str
    count: int
    line: str
    """`file:line` of the innermost frame that is not torch's."""

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        return f"{self.operator}{times}, at {self.line}"


@dataclass(slots=True)
class Reached:
    """Where a run came to a site: at an op, or at what a module call returned."""

    row: int
    """-1 where a module returned no tensor."""
    slot: int
    call: int | None = None


@dataclass(slots=True)
class Census:
    """Every operator that reached torch's dispatcher during the capture, by what accounts for it."""

    counts: Mapping[str, int]
    """`recorded`, `boundary`, or the name of a known exception, to how many operators."""
    leftovers: Sequence[CensusEntry]

    def __str__(self) -> str:
        counted = [f"{count:>8,}  {name}" for name, count in sorted(self.counts.items())]
        total = sum(entry.count for entry in self.leftovers)
        left = [f"{total:>8,}  not accounted for", *(f"          {entry}" for entry in self.leftovers)]
        return "\n".join(counted + (left if total else []))


@dataclass(slots=True)
class Record:
    """All that one capture wrote down."""

    rows: Rows
    places: Sequence[Place | None]
    contexts: Sequence[Context]
    structure: Structure
    module_calls: Sequence[ModuleCallEntry]
    generators: Mapping[int, Sequence[tuple[str, Any]]]
    """Row to (device, generator state before the call), for calls that torch tags nondeterministic."""
    reads: Sequence[tuple[int, str, Any]]
    """(row count at that moment, name, tensor) of each value that left for Python."""
    aliases: Sequence[tuple[int, Any, Any]]
    """(row count at that moment, tensor, known tensor) of objects that torch made for known storages."""
    inputs: Sequence[int]
    outputs: Sequence[int]
    output: Any
    """What the traced callable returned, or the last root call of a block, as plain data."""
    is_block: bool
    root_calls: Sequence[int]
    """The module calls made outside any module."""
    status: Status
    failure: Failure | None
    notes: Sequence[str]
    """What was not seen or not as usual, one sentence each."""
    reasons: Sequence[Reason]
    """Why the trace cannot vouch for its graph, in the order of the rows; empty when it can."""
    host_edges: Mapping[int, Sequence[tuple[Any, int]]]
    """Row to the (tensor, row) pairs whose data came to it through the host: the tensor as it was before
    that row. They stand at the argument position `"host"`."""
    options: RunOptions
    halted_at: Reached | None = None
    """Where `stop_after` ended the run."""
    census: Census | None = None
    """What the witness counted; None where it was not asked for."""
    input_names: Sequence[str | None] = ()
    """What each of `inputs` goes by: a parameter of the root call and the path from there, `batch["image"]`.
    Empty where a file does not tell."""

    @property
    def unverified(self) -> ReasonName | None:
        """The first reason's name."""
        return self.reasons[0].name if self.reasons else None

    @property
    def keeps_all(self) -> bool:
        """Whether the rows hold every tensor as it is."""
        return self.options.save is None

    @property
    def modules(self) -> Sequence[ModuleEntry]:
        return self.structure.modules

    @property
    def params(self) -> Sequence[ParamEntry]:
        return self.structure.params

    @property
    def buffers(self) -> Sequence[BufferEntry]:
        return self.structure.buffers
