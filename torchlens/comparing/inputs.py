"""Whether two ops that are one another read the same, so that a difference starts at them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from torch import Tensor

from torchlens._trace.op import Op
from torchlens._trace.reference import TensorRef, references_in
from torchlens.comparing.alignment import Alignment
from torchlens.comparing.differences import IncomparableError
from torchlens.comparing.excess import find_excess
from torchlens.comparing.tolerances import Asked, tolerance_between
from torchlens.errors import UnreadableError

Verdict: TypeAlias = Literal["none", "agree", "differ", "not known"]
ParamVerdict: TypeAlias = Literal["none", "agree", "shared", "differ", "not known"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What two ops read."""

    ops: Verdict
    """`agree`: their parents are one another, with values that agree; `differ`: they are other ops."""
    parents_a: Sequence[str]
    """Labels."""
    parents_b: Sequence[str]
    params: ParamVerdict
    """Whether the parameters they read agree, in order; `shared` where they are the same tensors, which a
    trace holds by reference and not as they were."""
    params_reason: str | None
    """Why parameters could not be compared, where that is `not known`."""
    differing_params: Sequence[str]
    """Addresses in the first run."""
    arguments: tuple[str, str] | None
    """The arguments that are no tensors, as text, where they differ; None where they are the same."""

    @property
    def starts_here(self) -> bool:
        """Whether all that could have brought the difference in agrees: ops, parameters and arguments."""
        told = self.ops in ("none", "agree") and self.params in ("none", "agree", "shared")
        return told and self.arguments is None


def inputs_of(
    a: Op, b: Op, alignment: Alignment, agreeing: Collection[int], asked: Asked, names: tuple[str, str]
) -> Inputs:
    """Compare what two ops read; `agreeing` are the ops of the first run whose values were found to agree."""
    params = _params(a, b, asked, names)
    ours, theirs = _arguments(a), _arguments(b)
    comparable = a.func_name == b.func_name
    return Inputs(
        _parents(a, b, alignment, agreeing),
        [parent.label for parent in a.parents],
        [parent.label for parent in b.parents],
        params.verdict,
        params.reason,
        params.differing,
        (ours, theirs) if comparable and ours != theirs else None,
    )


def _parents(a: Op, b: Op, alignment: Alignment, agreeing: Collection[int]) -> Verdict:
    ours, theirs = list(a.parents), list(b.parents)
    if not ours and not theirs:
        return "none"
    partners = {alignment.b_of_a.get(parent.index) for parent in ours}
    read_by_one = [parent for parent in theirs if parent.index not in partners]
    read_by_one += [parent for parent in ours if alignment.b_of_a.get(parent.index) not in _indices(theirs)]
    if any(parent.kind != "source" for parent in read_by_one):
        return "differ"
    # a source of one run may be a parameter of the other: a weight of a plain function is a source
    known = not read_by_one and all(parent.index in agreeing for parent in ours)
    return "agree" if known else "not known"


def _indices(ops: Sequence[Op]) -> set[int]:
    return {op.index for op in ops}


class _Params(NamedTuple):
    verdict: ParamVerdict
    reason: str | None = None
    """Why it is not known."""
    differing: Sequence[str] = ()
    """Addresses."""


def _params(a: Op, b: Op, asked: Asked, names: tuple[str, str]) -> _Params:
    """The worst of what is found of each pair of parameters, with all that differ."""
    ours, theirs = _param_references(a), _param_references(b)
    if len(ours) != len(theirs):
        return _Params("not known", f"{names[0]} reads {len(ours)} of them, {names[1]} {len(theirs)}")
    found = [_param(one, other, asked, names) for one, other in zip(ours, theirs)]
    differing = [address for each in found for address in each.differing]
    for verdict in _FROM_WORST:
        reasons = [each.reason for each in found if each.verdict == verdict]
        if reasons:
            return _Params(verdict, reasons[0], differing)
    return _Params("none")


_FROM_WORST: Final[tuple[ParamVerdict, ...]] = ("differ", "not known", "agree", "shared")


def _param(one: TensorRef, other: TensorRef, asked: Asked, names: tuple[str, str]) -> _Params:
    left, right = _read(one, names[0]), _read(other, names[1])
    if isinstance(left, str):
        return _Params("not known", left)
    if isinstance(right, str):
        return _Params("not known", right)
    if left.data_ptr() == right.data_ptr() and left.data_ptr():
        return _Params("shared")
    differ = _Params("differ", differing=[one.param.address] if one.param is not None else [])
    try:
        excess = find_excess(left, right, tolerance_between(asked, left.dtype, right.dtype))
    except IncomparableError as error:
        return differ if one.shape != other.shape else _Params("not known", str(error))
    return _Params("agree") if excess is None else differ


def _read(param: TensorRef, name: str) -> Tensor | str:
    """What a parameter of a run holds; where that is gone, the reason."""
    try:
        return param.out
    except UnreadableError as error:
        return f"{name}: {error}"


def _param_references(op: Op) -> list[TensorRef]:
    return [ref for ref in references_in([op.args, op.kwargs]) if ref.param is not None]


def _arguments(op: Op) -> str:
    """The arguments without tensors in them, as text."""
    given = [*((str(at), value) for at, value in enumerate(op.args)), *op.kwargs.items()]
    plain = [(name, value) for name, value in given if not list(references_in(value))]
    return ", ".join(repr(value) if name.isdigit() else f"{name}={value!r}" for name, value in plain)
