"""The witness: it accounts for every operator, finds what no mode is told of, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import torchlens as tl
from tests import models
from tests.capture.test_provenance import dependencies, inputs, true_dependencies
from tests.programs.last_writers import equal_bits
from tests.programs.origin_program import Program, scripted, scripted_write
from tests.programs.origins import PROGRAMS
from tests.programs.reading import floats, lint
from torchlens._records import Census
from torchlens._values.plain import tensors_in

WITNESS = tl.options.CaptureOptions(seed=0, witness=True)

SEEN_TOO = {
    "a_scripted_function": (),
    "a_scripted_function_kept_in_an_attribute": (),
    "a_scripted_function_as_new_buffer": (),
    "a_scripted_function_as_parameter": (),
    "a_scripted_function_in_a_closure": (),
    "a_scripted_function_as_argument_of_a_module": (),
    "a_scripted_function_as_result": (),
    "legacy_constructors": (),
    "written_through_the_storage": ("unexplained_write", "unwitnessed_op"),
    "written_by_a_scripted_function": ("unexplained_write", "unwitnessed_op"),
    "an_unseen_write_beside_one_through_data": ("unexplained_write", "unwitnessed_op"),
    "half_of_a_complex_number_set": ("unexplained_write", "unwitnessed_op"),
    "another_storage_set": ("unexplained_write", "unwitnessed_op"),
    "pickled_and_back": ("unexplained_write", "unwitnessed_op"),
    "saved_and_loaded": ("host_round_trip", "unexplained_write", "unwitnessed_op"),
    "bytes_of_a_storage": ("host_round_trip", "unwitnessed_op"),
    "buffer_written_by_a_script": ("unexplained_write", "unwitnessed_op"),
    "parameter_written_by_a_script": ("unexplained_write", "unwitnessed_op"),
}
"""Programs whose verdict is another one when the witness is there."""


def witnessed(model: Callable[..., Any], *given: Any) -> Any:
    trace = tl.trace(model, given or (floats(2, 4),), capture=WITNESS)
    lint(trace)
    return trace


def counts(model: Callable[..., Any], *given: Any) -> dict[str, int]:
    """What was counted, where nothing is left over."""
    trace = witnessed(model, *given)
    census = trace.provenance.census
    assert census is not None and not census.leftovers, str(census)
    assert trace.provenance.verified
    return dict(census.counts)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_of_every_origin(program: Program) -> None:
    torch.manual_seed(0)
    trace = tl.trace(program.make(), inputs(), capture=WITNESS)
    lint(trace)
    found = tuple(doubt.name for doubt in trace.provenance.reasons)
    assert found == SEEN_TOO.get(program.name, program.reasons), str(trace.provenance)
    if trace.provenance.verified:
        assert true_dependencies(program.make) <= dependencies(trace)


def test_without_the_option_nothing_is_counted() -> None:
    assert tl.trace(nn.ReLU(), floats(3)).provenance.census is None


def test_operators_of_recorded_calls() -> None:
    assert counts(nn.Linear(4, 3)) == {"recorded": 2}  # a transposition and the product
    assert counts(lambda x: F.normalize(x) + 1).keys() == {"recorded"}


def test_reads_and_questions() -> None:
    found = counts(lambda x: x * 2 if bool((x > 5).any()) or x.sum().item() > 9 else x + 1)
    assert found == {"recorded": 4, "read": 2}
    assert counts(lambda x: [x.size(), x.dim(), x + 1][2]) == {"recorded": 1}


def test_boundaries() -> None:
    inner = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert counts(lambda x: inner(x) + 1)["recorded"] == 1
    assert counts(lambda x: inner(x) + 1)["boundary"] > 1
    assert "boundary" in counts(lambda x: torch.func.vmap(lambda row: row.sin() * 2)(x))
    assert "boundary" in counts(lambda x: torch.func.grad(lambda z: z.sin().sum())(x))


def test_backward_inside_a_block() -> None:
    model = nn.Linear(4, 4)
    with tl.capture(model, capture=WITNESS) as trace:
        model(floats(2, 4)).sum().backward()
    census = trace.provenance.census
    assert census is not None and census.counts["backward"] > 1 and not census.leftovers


def test_recomputation_is_backward() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = floats(2, 4).requires_grad_()
    with tl.capture(model, capture=WITNESS) as trace:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    assert trace.provenance.verified
    assert [op.type for op in trace.ops if op.kind == "call"].count("tanh") == 1


def test_an_operator_that_nothing_accounts_for_is_listed_with_its_line() -> None:
    def model(x: Tensor) -> Tensor:
        z = x * 1
        for _ in range(3):
            scripted_write(z)  # this line
        return z

    trace = tl.trace(model, floats(3), capture=WITNESS)
    census = trace.provenance.census
    assert census is not None
    (left,) = census.leftovers
    file, _, line = left.line.rpartition(":")
    assert (left.operator, left.count) == ("aten.mul_.Scalar", 3)
    assert file == __file__ and "# this line" in open(__file__).read().splitlines()[int(line) - 1]
    assert [(d.name, d.count) for d in trace.provenance.reasons][-1] == ("unwitnessed_op", 3)
    assert "aten.mul_.Scalar, 3 times" in str(census)


def test_work_that_was_not_seen_is_one_op_with_its_edges() -> None:
    weight = floats(4)

    def model(x: Tensor) -> Tensor:
        y = x * weight
        return scripted(y) + 1

    trace = witnessed(model)
    op = trace["unseen_1"]
    assert op.is_boundary and [parent.type for parent in op.parents] == ["mul"]
    assert torch.equal(op.out, torch.sin(floats(2, 4) * weight) + 1)
    assert [frame.function.rpartition(".")[2] for frame in op.call_site] == ["model"]
    assert trace.provenance.verified


def test_two_results_of_unseen_work() -> None:
    @torch.jit.script
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), (x * y).view(-1)[1:]

    def model(x: Tensor, y: Tensor) -> Tensor:
        one, other = both(x, y)
        return one.sum() + other.sum()

    trace = witnessed(model, floats(3), floats(3))
    parents = [[parent.label for parent in op.parents] for op in trace.ops if op.type == "unseen"]
    assert parents == [["input_1:1"], ["input_1:1", "input_2:1"]]
    assert trace.provenance.verified


def test_what_is_written_before_unseen_work_is_used_leaves_a_doubt() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        z = scripted(y)
        y.add_(1)
        return z + 1

    trace = tl.trace(model, floats(3), capture=WITNESS)
    assert trace.provenance.verification_reason == "unwitnessed_op"


def test_constants_that_nothing_uses_are_no_doubt() -> None:
    assert counts(lambda x: [torch.Tensor([1.0, 2.0]), x + 1][1])["constant"] == 1


def test_a_legacy_constructor_of_what_left_is_a_round_trip() -> None:
    trace = tl.trace(lambda x: x + torch.Tensor(x.tolist()), floats(3), capture=WITNESS)
    assert trace.provenance.verification_reason == "host_round_trip"
    assert [parent.label for parent in trace["unseen_1"].parents] == ["input_1:1"]


# ---- it changes nothing --------------------------------------------------------------------------


def of_attention(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])


def of_indices(x: Tensor) -> Tensor:
    table = torch.zeros(5, 4)
    table[1:3] = x
    table.index_add_(0, torch.tensor([0, 4]), x)
    return table[table > 0]


def of_a_dropout(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, True) + torch.rand(4) + torch.randn_like(x)


def of_a_condition(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda z: z.sin(), lambda z: z.cos(), (x,))


NEUTRAL: dict[str, Callable[[Tensor], Any]] = {
    "linear": nn.Linear(4, 3),
    "convolution": lambda x: F.conv1d(x[:, None], torch.ones(2, 1, 3)),
    "bilinear": lambda x: F.bilinear(x, x, torch.linspace(-1, 1, 48).view(3, 4, 4)),
    "pseudoinverse": torch.linalg.pinv,
    "attention": of_attention,
    "multihead": lambda x: nn.MultiheadAttention(4, 2)(x, x, x)[0],
    "encoder": nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
    "encoder, eval": nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(),
    "lstm": nn.LSTM(4, 3),
    "gru": nn.GRU(4, 3),
    "norms": lambda x: F.layer_norm(F.group_norm(x, 2), (4,)),
    "batch norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
    "distances": lambda x: torch.cdist(x, x + 1),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "losses": lambda x: F.cross_entropy(x, torch.tensor([1, 2])) + F.mse_loss(x, x * 2),
    "indices": of_indices,
    "random": of_a_dropout,
    "complex": lambda x: torch.linalg.inv(torch.complex(x, x[:, [1, 0, 3, 2]])[:, :2].mH @ torch.eye(2) * 1j),
    "conjugated": lambda x: torch.view_as_real(
        (torch.complex(x, x).conj() @ torch.complex(x, x).T).resolve_conj()
    ),
    "fourier": lambda x: torch.fft.irfft(torch.fft.rfft(x).conj()),
    "sorted": lambda x: torch.sort(x)[1] + torch.topk(x, 2)[0].sum().long(),
    "condition": of_a_condition,
    "sparse": lambda x: torch.sparse.mm(x.to_sparse(), x.T),
    "nested": lambda x: torch.nested.to_padded_tensor(torch.nested.nested_tensor([x, x[:1]]) * 2, 0.0),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
    "meta": lambda x: (x.to("meta") @ torch.ones(4, 3, device="meta")).shape[0] + x,
    "mapped": lambda x: torch.func.vmap(lambda row: row.sin() * row.sum())(x),
    "jacobian": lambda x: torch.func.jacrev(lambda z: z.sin())(x),
    "scripted": lambda x: scripted(x) + 1,
    "functional": lambda x: torch._foreach_add([x, x * 2], 1.0)[1],
}


def output_of(run: Callable[[Tensor], Any], x: Tensor, under: Any) -> list[Tensor]:
    torch.manual_seed(0)
    with under():
        return tensors_in(run(x))


def under_nothing() -> Any:
    return torch.enable_grad()


def under_bfloat16() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("under", [torch.no_grad, under_nothing, under_bfloat16, torch.inference_mode])
@pytest.mark.parametrize("name", NEUTRAL)
def test_outputs_are_those_without_the_witness(name: str, under: Any) -> None:
    run, x = NEUTRAL[name], floats(2, 4) + 0.1

    def plainly(**options: Any) -> list[Tensor]:
        torch.manual_seed(0)

        def model(x: Tensor) -> Any:
            with under():
                return run(x)

        torch.manual_seed(0)
        return tensors_in(tl.trace(model, x, capture=tl.options.CaptureOptions(seed=0, **options)).output)

    try:
        expected = output_of(run, x, under)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            plainly(witness=True)
        return
    found = plainly(witness=True)
    assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in expected]
    assert all(equal_bits(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", [name for name in dir(models) if isinstance(getattr(models, name), type)])
def test_example_models(name: str) -> None:
    kind = getattr(models, name)
    if not issubclass(kind, nn.Module) or kind.__module__ != models.__name__:
        return
    try:
        kind()(floats(3, 4))  # which may fill a table of its class
        torch.manual_seed(0)
        plain = tl.trace(kind(), floats(3, 4), capture=tl.options.CaptureOptions(seed=0))
    except (TypeError, RuntimeError):  # takes other inputs
        return
    torch.manual_seed(0)
    trace = witnessed(kind(), floats(3, 4))
    found, expected = tensors_in(trace.output), tensors_in(plain.output)
    assert all(equal_bits(one, other) for one, other in zip(found, expected, strict=True))
    assert trace.provenance.reasons == plain.provenance.reasons
    assert [op.label for op in trace.ops] == [op.label for op in plain.ops]


@pytest.mark.parametrize("name", ["svdvals", "eigvalsh", "cond"])
def test_singular_values_alone_may_differ_in_the_last_bits(name: str) -> None:
    """Torch itself computes more under any dispatch mode; docs/limits.md says so."""
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    function = getattr(torch.linalg, name)
    assert torch.allclose(tl.trace(function, x, capture=WITNESS).output, function(x), rtol=1e-5)


def test_modes_of_the_program_work_and_stay() -> None:
    class Counts(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counts.seen += 1
            return func(*args, **(kwargs or {}))

    def model(x: Tensor) -> Tensor:
        with Counts():
            return x * 2

    x = floats(3)
    with Counts():
        trace = tl.trace(model, x, capture=WITNESS)
        assert Counts.seen == 2
    assert trace.provenance.verified and trace.provenance.census == Census({"recorded": 1}, [])
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_failed_run_leaves_no_mode() -> None:
    with pytest.raises(ValueError, match="deliberate"):
        tl.trace(models.Raises(ValueError("deliberate")), floats(3, 4), capture=WITNESS)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_dynamo_is_not_loaded() -> None:
    code = """
import sys, torch, torchlens as tl
trace = tl.trace(torch.nn.Linear(3, 3), torch.ones(3), capture=tl.options.CaptureOptions(witness=True))
print(trace.provenance.verified, "torch._dynamo" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True False\n"


def test_the_option_is_a_bool() -> None:
    with pytest.raises(tl.errors.OptionError, match="witness='yes' is a str"):
        tl.options.CaptureOptions(witness="yes")  # type: ignore[arg-type]
