"""What is read is what was put, bit for bit, of every type, layout and kind of tensor."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.files.bits import Recipe, check_same, strided, write
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter
from torchlens.errors import MissingKeyError, MissingValueError

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(nested tensors is in prototype|quantize|ComplexHalf|Sparse|sparse):UserWarning"
)


@given(st.lists(strided(), min_size=1, max_size=8), st.sampled_from([1, 64, 4096]))
def test_any_tensor_comes_back(recipes: list[Recipe], shard_bytes: int) -> None:
    values = {f"{at}.0": recipe.tensor() for at, recipe in enumerate(recipes)}
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent) / "values"
        writer = write(path, values, shard_bytes=shard_bytes, queue_bytes=4096)
        stored = StoredValues(path)
        assert list(stored) == list(values)
        assert (dict(writer.missing()), writer.failure, stored.status) == ({}, None, "complete")
        for key, value in values.items():
            check_same(stored[key], value)


def of_inference_mode() -> Tensor:
    with torch.inference_mode():
        return torch.arange(6.0).reshape(2, 3).t()


class WithSize(Tensor):
    """A subclass that lies about itself, without a dispatch of its own."""

    @property
    def shape(self) -> torch.Size:
        raise RuntimeError("asked for my shape")


def signals() -> Tensor:
    return torch.tensor([0x7FA00001, -0x00400000, 0x00000001, -0x80000000], dtype=torch.int32)


PLAIN = {
    "a signalling NaN, -0 and a denormal": lambda: signals().view(torch.float32),
    "0-dim": lambda: torch.tensor(3.5),
    "no element": lambda: torch.empty(0, 3),
    "no element, expanded": lambda: torch.empty(1, 0).expand(4, 0),
    "transposed": lambda: torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
    "channels last": lambda: torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "every other": lambda: torch.arange(10.0)[::2],
    "a column": lambda: torch.arange(12.0).reshape(3, 4)[:, 1],
    "columns of complex128": lambda: torch.randn(3, 4, dtype=torch.complex128)[:, 1:3],
    "windows": lambda: torch.arange(10.0).unfold(0, 4, 1),
    "a parameter": lambda: torch.nn.Parameter(torch.rand(3)),
    "with a history": lambda: torch.rand(3, requires_grad=True) * 2,
    "made in inference mode": of_inference_mode,
    "conjugate": lambda: torch.randn(3, 2, dtype=torch.complex64).t().conj(),
    "the imaginary part of a conjugate": lambda: torch.randn(4, dtype=torch.complex64).conj().imag,
    "bool that is neither 0 nor 1": lambda: torch.tensor([0, 1, 2], dtype=torch.uint8).view(torch.bool),
    "a subclass": lambda: torch.rand(3).as_subclass(WithSize),
    "larger than the queue": lambda: torch.rand(5000),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_kind_of_tensor_comes_back(name: str, tmp_path: Path) -> None:
    value = PLAIN[name]()
    write(tmp_path / "values", {"before": torch.rand(3), "it": value}, shard_bytes=4096, queue_bytes=8192)
    check_same(StoredValues(tmp_path / "values")["it"], value.as_subclass(Tensor))


def test_what_an_expanded_tensor_repeats_is_written_once(tmp_path: Path) -> None:
    wide = torch.arange(5.0).reshape(5, 1).expand(5, 2**40)
    write(tmp_path / "values", {"wide": wide})
    stored = StoredValues(tmp_path / "values")["wide"]
    assert (stored.shape, stored.stride(), stored[3, 2**39]) == (wide.shape, (1, 0), 3.0)
    assert sum(file.stat().st_size for file in (tmp_path / "values").iterdir()) < 10_000


def test_a_part_with_gaps_takes_its_own_bytes(tmp_path: Path) -> None:
    write(tmp_path / "values", {"column": torch.rand(1000, 1000)[:, 7]})
    assert (tmp_path / "values" / "values-00000.safetensors").stat().st_size < 5000


class Wrapper(Tensor):
    @staticmethod
    def __new__(cls) -> Wrapper:
        return Tensor._make_wrapper_subclass(cls, (2,))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("was asked")


def resized() -> Tensor:
    tensor = torch.rand(5)
    tensor.untyped_storage().resize_(8)
    return tensor


WITHOUT_ELEMENTS = {
    "layout sparse_coo": lambda: torch.eye(3).to_sparse(),
    "layout sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "layout _mkldnn": lambda: torch.rand(3).to_mkldnn(),
    "nested": lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),
    "quantized": lambda: torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.qint8),
    "meta": lambda: torch.rand(3, device="meta"),
    r"wrapper subclass \(Wrapper\)": Wrapper,
    "lazy module": lambda: torch.nn.LazyLinear(3).weight,
    "storage was resized": resized,
    "without memory": lambda: torch._efficientzerotensor((3,)),
}


@pytest.mark.parametrize("reason", WITHOUT_ELEMENTS)
def test_what_has_no_plain_elements_is_missing_by_name(reason: str, tmp_path: Path) -> None:
    values = {"it": WITHOUT_ELEMENTS[reason](), "other": torch.ones(3)}
    writer = write(tmp_path / "values", values)
    stored = StoredValues(tmp_path / "values")
    assert stored.status == "complete"
    assert stored.missing == writer.missing()
    assert stored.about("it") == {"label": "op:it"}
    assert list(stored) == ["other"]
    assert "it" not in stored
    with pytest.raises(MissingValueError, match=reason):
        stored["it"]
    check_same(stored["other"], values["other"])


def test_a_tensor_inside_a_transform_is_missing(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values")

    def put(x: Tensor) -> Tensor:
        writer.put(f"{len(writer.missing())}", x, {})
        writer.put(f"{len(writer.missing())}", torch.ones(2), {})
        return x.sum()

    torch.func.grad(put)(torch.ones(3))
    torch.func.vmap(put)(torch.ones(3, 2))
    writer.put("after", torch.ones(2), {})
    writer.close()
    assert len(writer.missing()) == 4
    check_same(StoredValues(tmp_path / "values")["after"], torch.ones(2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_values_on_a_gpu_come_back_on_the_cpu(tmp_path: Path) -> None:
    base = torch.randn(30, 40, device="cuda")
    values = {"whole": base, "columns": base[:, 3:9], "turned": base.t(), "wide": base[0].expand(5, 40)}
    write(tmp_path / "values", values)
    stored = StoredValues(tmp_path / "values")
    for key, value in values.items():
        check_same(stored[key], value)


def test_the_snapshot_is_the_value_at_that_moment(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values")
    x = torch.zeros(3)
    for step in range(3):
        writer.put(str(step), x.add_(1), {})
    writer.close()
    stored = StoredValues(tmp_path / "values")
    assert [stored[str(step)].tolist() for step in range(3)] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


def test_modes_see_nothing(tmp_path: Path) -> None:
    seen: list[object] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    value = torch.rand(4, 4)[:, 1:3]
    with Functions(), Dispatches():
        seen.clear()
        write(tmp_path / "values", {"it": value})
        stored = StoredValues(tmp_path / "values")["it"]
        assert seen == []
    check_same(stored, value)


def test_reading_under_inference_mode_gives_plain_tensors(tmp_path: Path) -> None:
    write(tmp_path / "values", {"it": torch.ones(3)})
    with torch.inference_mode():
        stored = StoredValues(tmp_path / "values")["it"]
    (stored.requires_grad_() * 2).sum().backward()
    assert stored.grad.tolist() == [2.0, 2.0, 2.0]


def test_other_programs_read_the_shards(tmp_path: Path) -> None:
    values = {
        "0": torch.rand(2, 3),
        "1": torch.ones(3, dtype=torch.bool),
        "2": torch.randn(4, dtype=torch.complex64),
        "3": torch.rand(5, 7).to(torch.bfloat16),
    }
    write(tmp_path / "values", values)
    shard = load_file(tmp_path / "values" / "values-00000.safetensors")
    assert torch.equal(shard["0"], values["0"])
    assert torch.equal(shard["1"], values["1"])
    assert torch.equal(torch.view_as_complex(shard["2"]), values["2"])
    assert torch.equal(shard["3"], values["3"])


def test_a_read_copies_nothing_and_outlives_the_reader(tmp_path: Path) -> None:
    value = torch.rand(1000)
    write(tmp_path / "values", {"it": value, "part": torch.rand(10)})
    stored = StoredValues(tmp_path / "values")
    one, other = stored["it"], stored["it"]
    assert one.data_ptr() == other.data_ptr()
    assert one.untyped_storage().nbytes() == 4000  # not the whole shard, which torch.save would write
    del stored, other
    check_same(one, value)


@pytest.mark.parametrize("grad", [True, False])
def test_writing_into_a_read_value_changes_no_later_read(grad: bool, tmp_path: Path) -> None:
    values = {"it": torch.rand(10), "other": torch.rand(10)}
    write(tmp_path / "values", values)
    stored = StoredValues(tmp_path / "values")
    other = stored["other"]
    with torch.set_grad_enabled(grad):
        written = stored["it"]
        written[2:4].zero_()
    version = other._version
    check_same(stored["it"], values["it"])
    check_same(stored["other"], values["other"])
    assert other._version == version
    assert written[2] == 0
    stored.verify()


def test_unknown_keys_and_words(tmp_path: Path) -> None:
    about = {"label": "relu_1:1", "index": 2**70, "nothing": None, "yes": True, "odd": '\ud800 " \n é \0'}
    writer = ValueWriter(tmp_path / "values")
    writer.put('a "key"\n\ud800', torch.ones(3), about)
    with pytest.raises(ValueError, match="two values have the key"):
        writer.put('a "key"\n\ud800', torch.ones(3), {})
    with pytest.raises(TypeError, match=r"1\.5 \(float\) cannot be written"):
        writer.put("float", torch.ones(3), {"x": 1.5})
    writer.close()
    with pytest.raises(ValueError, match="after close"):
        writer.put("late", torch.ones(3), {})
    stored = StoredValues(tmp_path / "values")
    assert stored.about('a "key"\n\ud800') == about
    assert stored.get("unknown") is None
    with pytest.raises(MissingKeyError, match="has no value 'unknown'"):
        stored["unknown"]
    with pytest.raises(MissingKeyError, match="has no value 'unknown'"):
        stored.about("unknown")
