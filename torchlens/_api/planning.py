"""`plan`: what a trace would keep, from a run on stand-ins without elements, before anything is spent.

The stand-ins are fake tensors in a copy of the model. Tensors on meta say that they lie there, which models
branch on and constants do not share; a fake made of each tensor as it is met would be left in the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Any, cast

from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from torchlens._api.capturing import trace
from torchlens._api.sites import refuse_missing, refuse_unknown
from torchlens._api.stand_ins import StandIns
from torchlens._api.trace import Trace
from torchlens._capture.kinds import Special, classify
from torchlens._capture.refusals import refuse_unsupported
from torchlens._capture.session import refuse_nested
from torchlens._capture.unwrapping import unwrapped
from torchlens._capture.user_lines import places_of, user_lines
from torchlens._capture.writes import Target, out_targets
from torchlens._replay.pieces import whole
from torchlens._terms import Selector
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import StorageKey
from torchlens._values.ledger import Write
from torchlens._values.plain import tensors_in
from torchlens._values.region import Region
from torchlens.errors import PlanError, TorchLensError
from torchlens.report.memory import held_tensors, storages_of
from torchlens.report.plan import Plan, plan_of
from torchlens.selectors import Sites, selector_of


def plan(
    model: Callable[..., Any],
    x: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    save: Sites | None = None,
) -> Plan:
    """Say how many bytes each layer of a trace would keep, without computing or allocating any of them.

    The model runs once on stand-ins: copies of its Python objects and of the inputs, with tensors that have
    shapes and no elements. Model, inputs and random state stay as they are. Tensors on the meta device stand
    for tensors on the device of the other inputs. Layers have the labels that `tl.trace` gives them.
    `save` names the values to keep, as for `trace`; the plan has the layers of these and of the output.
    What goes wrong on the way raises `PlanError` with the line of the code: above all models that need
    values, for a branch, an `item()` or a `nonzero()`. The first plan in a process loads torch's compiler.

    >>> import torch, torchlens as tl
    >>> planned = tl.plan(torch.nn.Linear(1000, 1000), torch.zeros(64, 1000))
    >>> planned["linear_1"].nbytes, planned.parameter_bytes
    (256000, 4004000)
    """
    refuse_nested()
    model = unwrapped(model)
    refuse_unsupported(model)
    meant = None if save is None else selector_of(save, "save")
    refuse_unknown(model, [] if meant is None else [meant])
    args = cast("tuple[Any, ...]", x) if type(x) is tuple else (x,)
    kwargs = dict(input_kwargs or {})
    stand_ins = StandIns(tensors_in([args, kwargs]))
    try:
        blank = stand_ins.of_model(model)
        blank_args, blank_kwargs = stand_ins.of_value((args, kwargs))
    except PlanError as error:
        raise PlanError(f"{error}; {_INSTEAD}") from error
    try:
        with stand_ins.mode:
            traced = trace(blank, blank_args, input_kwargs=blank_kwargs)
        return _planned(traced, meant)
    except TorchLensError as error:
        if not isinstance(error, PlanError):
            raise
        raise PlanError(f"{error}{_place(error)}; {_INSTEAD}") from error
    except Exception as error:
        raise PlanError(f"{_what(error)}{_place(error)}; {_INSTEAD}") from error


def _planned(traced: Trace, meant: Selector | None) -> Plan:
    reader = traced._reader
    if meant is None:
        return plan_of(reader, _copied_bytes(reader, reader.ledger.writes.keys()))
    refuse_missing(traced._views, [meant])
    ops = {op.index for op in (*traced.select(meant), *traced.outputs)}
    kept = {key for _, tensor in held_tensors(reader, ops) for key, _ in storages_of(tensor)}
    return plan_of(reader, _copied_bytes(reader, kept), ops)


_INSTEAD = "trace a small input instead, tl.trace(model, x), and look at trace.memory"


def _what(error: Exception) -> str:
    """What went wrong, for a run that has no values."""
    if isinstance(error, DataDependentOutputException):
        return "a value is read (item, bool, tolist or a branch), and a plan has no values"
    if isinstance(error, DynamicOutputShapeException):
        return f"`{_name(error.func)}` gives a tensor whose size depends on values, and a plan has none"
    if isinstance(error, UnsupportedOperatorException):
        return f"`{_name(error.func)}` does not tell the shape of its result without computing it"
    first = str(error).strip().partition("\n")[0].rstrip(".")
    return f"the model raised {type(error).__name__}: {first}, in a run without values"


def _name(operator: object) -> str:
    """`aten.nonzero.default` without its namespace and overload."""
    return ".".join(str(operator).split(".")[1:-1]) or str(operator)


def _place(error: Exception) -> str:
    """Where it went wrong: the innermost line of the user's code; empty if there is none."""
    place = ""
    for line in user_lines(places_of(error.__traceback__), 1):
        place = f"; at {line.file}:{line.line} in {line.function}" + (f", `{line.text}`" if line.text else "")
    return place


# ---- copies before writes ------------------------------------------------------------------------


def _copied_bytes(reader: TraceReader, kept: Set[StorageKey]) -> int:
    """What a trace on real tensors that keeps these storages would save before in-place writes, at most.

    The ledger of stand-ins knows who writes, but takes them for tensors that nobody can look into.
    """
    ledger = reader.ledger
    copied = [
        written for key, written in ledger.writes.items() if key in kept and key not in ledger.param_storages
    ]
    rows = {write.row: write for written in copied for write in written}
    return sum(_copied_by(reader, row, write) for row, write in rows.items())


def _copied_by(reader: TraceReader, row: int, write: Write) -> int:
    func, args, kwargs = reader.rows.func[row], reader.rows.args[row], reader.rows.kwargs[row] or {}
    special = classify(func) if callable(func) else None
    targets: list[Target] = []
    if kwargs.get("out") is not None:
        targets = out_targets(kwargs["out"])
    elif isinstance(special, Special) and special.writes is not None:
        targets = special.writes(args, kwargs)
    if not targets:  # a transform, or a call that raised
        return _bytes_written(whole(write.tensor), None)
    params = reader.ledger.param_storages
    return sum(
        _bytes_written(whole(reader.values.geometry(target.tensor, row, after=False)), target.index)
        for target in targets
        if not target.metadata and storage_key(target.tensor) not in params
    )


def _bytes_written(tensor: Tensor, index: Any) -> int:
    """Bytes of the elements that an index picks; of all of them where that depends on values."""
    seen = tensor
    if index is not None:
        with suppress(RuntimeError, IndexError, TypeError, ValueError):
            seen = tensor[index]
    region = Region(0, tuple(seen.shape), seen.stride(), seen.element_size())
    if not region.may_overlap_itself:
        return seen.numel() * seen.element_size()
    first, past = region.span
    return past - first
