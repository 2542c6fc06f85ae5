"""How a run ended: its output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlens._values.plain import plain
from torchlens.errors import IncompleteError, SeveralPassesError

if TYPE_CHECKING:
    from torchlens._trace.module import ModuleCall
    from torchlens._trace.op import Op
    from torchlens._trace.views import Views


def find_halt(views: Views) -> Op | ModuleCall | None:
    """Where the run was ended on purpose."""
    reached = views.reader.record.halted_at
    if reached is None:
        return None
    if reached.call is not None:
        return views.module_call(reached.call)
    return views.op(views.reader.numbers.first[reached.row] + reached.slot)


def find_output(views: Views) -> Any:
    """What the model returned: of a block, what its only root call did."""
    record = views.reader.record
    if record.is_block:
        roots = record.root_calls
        if len(roots) != 1:
            labels = [views.reader.call_labels[call] for call in roots[:3]]
            calls = ", ".join(f"trace.module_calls[{label!r}].output" for label in labels)
            hint = f"ask one of them: {calls}" if calls else "no module was called in it"
            raise SeveralPassesError(
                f"the block made {len(roots)} root calls, so it has no one output; {hint}"
            )
        call = views.module_call(roots[0])
        if record.module_calls[roots[0]].end is None and record.status != "halted":
            return call.output  # which raises
    if record.status == "halted" or (not record.is_block and record.status != "complete"):
        failure = record.failure
        why = "it was halted" if failure is None else f"it raised {failure.type_name}: {failure.message}"
        raise IncompleteError(f"the forward has no output: {why}")
    row = record.outputs[-1] if record.outputs else len(record.rows) - 1
    return plain(record.output, lambda t: views.reader.values.read(t, row, after=True, what="the output"))
