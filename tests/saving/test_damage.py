"""Files that are not as they were written, by accident or on purpose: a typed error, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import torchlens as tl
from tests.programs.examples import EXAMPLES, floats
from tests.saving.mutations import MUTATIONS, Parts, parts_of, sealed, write_directory, write_zip
from tests.saving.reading_all import read_all
from torchlens.errors import (
    DamagedFileError,
    FileFormatError,
    TorchLensError,
    UnsavedFunctionError,
)
from torchlens.saving.layout import MANIFEST, RECORD, TABLES, table_name

NAMES = "WritesThroughViews GivesModelOutput LSTM GivesNamedTuple ReassignsBuffer".split()
VALUES = "values-00000.safetensors"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Parts]:
    directory = tmp_path_factory.mktemp("seeds")
    found: list[Parts] = []
    for name in NAMES:
        example = EXAMPLES[name]
        torch.manual_seed(0)
        tl.save(tl.trace(example.build(), example.inputs()), directory / name, params=True)
        found.append(parts_of(directory / name))
    return found


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    torch.manual_seed(0)
    path = tmp_path / "original"
    tl.save(tl.trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), floats(2, 3)), path)
    return parts_of(path)


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_mutated_files_load_or_say_why_not(
    written: list[Parts],
    tmp_path_factory: pytest.TempPathFactory,
    source: random.Random,
    mutations: list[Callable[[Parts, random.Random], None]],
) -> None:
    directory = tmp_path_factory.mktemp("mutated")
    parts = dict(source.choice(written))
    for mutate in mutations:
        try:
            mutate(parts, source)
        except (ValueError, KeyError, TypeError, pa.ArrowException, AttributeError, OSError):
            break  # an earlier one has left nothing to change
    path = directory / "run"
    write_directory(parts, path)
    try:
        loaded = tl.load(path)
    except (DamagedFileError, FileFormatError):
        return
    try:
        read_all(loaded)
    except TorchLensError:
        pass
    assert os.listdir(directory) == ["run"]


def loaded_from(parts: Parts, directory: Path) -> Any:
    write_directory(parts, directory / "changed")
    return tl.load(directory / "changed")


@pytest.mark.parametrize("name", [MANIFEST, RECORD, *map(table_name, TABLES)])
def test_every_flipped_byte_of_a_part_is_found(name: str, parts: Parts, tmp_path: Path) -> None:
    octets = parts[name]
    for at in range(0, len(octets), max(1, len(octets) // 40)):
        changed = {**parts, name: octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :]}
        with pytest.raises((DamagedFileError, FileFormatError), match=r"copy it again|read it with"):
            loaded_from(changed, tmp_path / f"{at}")


def test_flipped_bytes_of_a_value_are_found_when_it_is_read(parts: Parts, tmp_path: Path) -> None:
    octets = bytearray(parts[VALUES])
    octets[int.from_bytes(octets[:8], "little") + 8] ^= 1
    loaded = loaded_from({**parts, VALUES: bytes(octets)}, tmp_path)
    with pytest.raises(DamagedFileError, match="the bytes of input_1:1 are not those that were written"):
        _ = loaded["input_1"].out
    assert loaded["relu_1"].out.shape == (2, 4)


@pytest.mark.parametrize("name", [VALUES, RECORD, "rows.arrow"])
def test_a_part_that_was_cut_off(name: str, parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=rf"{name} has {len(parts[name]) - 1} bytes"):
        loaded_from({**parts, name: parts[name][:-1]}, tmp_path)


def test_a_part_that_is_gone(parts: Parts, tmp_path: Path) -> None:
    del parts["ops.arrow"]
    with pytest.raises(DamagedFileError, match=r"its part 'ops\.arrow' is missing"):
        loaded_from(parts, tmp_path)


def test_another_version_of_the_format(parts: Parts, tmp_path: Path) -> None:
    parts[MANIFEST] = parts[MANIFEST].replace(b'"version": 1,', b'"version": 2,')
    with pytest.raises(FileFormatError, match=r"version 2; this release reads 'torchlens trace', version 1"):
        loaded_from(parts, tmp_path)


def test_values_written_by_to_disk_are_no_trace(tmp_path: Path) -> None:
    tl.trace(nn.ReLU(), floats(2), storage=tl.to_disk(tmp_path / "values"))
    with pytest.raises(FileFormatError, match="format 'torchlens values'"):
        tl.load(tmp_path / "values")


@pytest.mark.parametrize("octets", [b"", b"PK\3\4", b"no zip at all" * 100])
def test_a_file_that_is_no_zip(octets: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.tlens").write_bytes(octets)
    with pytest.raises(FileFormatError, match=r"is no saved trace|was cut off or changed"):
        tl.load(tmp_path / "run.tlens")


def test_a_zip_that_was_cut_off(parts: Parts, tmp_path: Path) -> None:
    write_zip(parts, tmp_path / "run.tlens")
    octets = (tmp_path / "run.tlens").read_bytes()
    (tmp_path / "run.tlens").write_bytes(octets[: len(octets) // 2])
    with pytest.raises(FileFormatError, match="was cut off"):
        tl.load(tmp_path / "run.tlens")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "values-00000.safetensors/../x", "more.arrow"])
def test_a_zip_with_a_path_in_it(name: str, parts: Parts, tmp_path: Path) -> None:
    write_zip({**parts, name: b"x"}, tmp_path / "run.tlens")
    with pytest.raises(DamagedFileError, match="which no saved trace has"):
        tl.load(tmp_path / "run.tlens")
    assert sorted(os.listdir(tmp_path)) == ["original", "run.tlens"]


def test_a_zip_bomb(parts: Parts, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.tlens", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, octets in {**parts, VALUES: bytes(2**24)}.items():
            archive.writestr(name, octets)
    with pytest.raises(DamagedFileError, match="compressed or encrypted"):
        tl.load(tmp_path / "run.tlens")


def test_a_table_that_is_compressed(parts: Parts, tmp_path: Path) -> None:
    table = pa.ipc.open_stream(parts["rows.arrow"]).read_all()
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    parts["rows.arrow"] = sink.getvalue().to_pybytes()
    sealed(parts)
    with pytest.raises(DamagedFileError, match=r"rows\.arrow: it is compressed"):
        loaded_from(parts, tmp_path)


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
def test_a_part_that_is_a_link(parts: Parts, tmp_path: Path) -> None:
    write_directory(parts, tmp_path / "run")
    (tmp_path / "run" / VALUES).rename(tmp_path / "elsewhere")
    (tmp_path / "run" / VALUES).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedFileError, match="is no regular file"):
        tl.load(tmp_path / "run")


def with_linear_named(parts: Parts, name: list[str]) -> Parts:
    """The same trace, whose `linear` is said to be another function."""
    record = json.loads(parts[RECORD])
    linear = {"listed": ["torch.nn.functional", "linear"]}
    record["functions"] = [{"listed": name} if each == linear else each for each in record["functions"]]
    assert linear not in record["functions"]
    changed = {**parts, RECORD: json.dumps(record).encode()}
    sealed(changed)
    return changed


HARMFUL = """
    torch.load torch.save torch.from_file torch.serialization.load os.system builtins.eval torch.hub.load
    torch.Tensor.__reduce_ex__ torch.Tensor.__setstate__ torch.Tensor.__class__ torch.Tensor.__init_subclass__
    torch.nn.functional.handle_torch_function torch.compile torch.set_default_device torch.jit.load
    torch.ops.aten.from_file torch.ops.aten.__class__ torch.ops.profiler._record_function_enter
"""


@pytest.mark.parametrize("path", HARMFUL.split())
def test_a_function_that_is_not_listed_is_a_name(path: str, parts: Parts, tmp_path: Path) -> None:
    namespace, _, name = path.rpartition(".")
    loaded = loaded_from(with_linear_named(parts, [namespace, name]), tmp_path)
    with pytest.raises(UnsavedFunctionError, match=f"{name} is no function of torch's that a file may name"):
        _ = loaded["linear_1"].func
    assert not hasattr(loaded["linear_1"], "func") and loaded["linear_1"].func_name == "linear"
    assert [found.about for found in loaded.check().unchecked if found.about == "linear_1:1"]


def test_a_function_that_is_listed_is_torchs_own(parts: Parts, tmp_path: Path) -> None:
    loaded = loaded_from(with_linear_named(parts, ["torch", "sigmoid"]), tmp_path)
    assert loaded["linear_1"].func is torch.sigmoid


def test_values_of_another_device_are_not_computed_again(parts: Parts, tmp_path: Path) -> None:
    table = pa.ipc.open_stream(parts["tensors.arrow"]).read_all()
    at = table.schema.get_field_index("device")
    moved = table.set_column(at, table.schema.field(at), pa.array(["cuda:0"] * table.num_rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, moved.schema) as writer:
        writer.write_table(moved)
    parts["tensors.arrow"] = sink.getvalue().to_pybytes()
    sealed(parts)
    loaded = loaded_from(parts, tmp_path)
    assert loaded["relu_1"].device == torch.device("cuda:0") and loaded["relu_1"].out.device.type == "cpu"
    report = loaded.check()
    assert report and {found.text for found in report.unchecked if found.about == "relu_1:1"} == {
        "it ran on cuda:0, and its values are on cpu now"
    }


def test_names_in_a_file_are_never_imported(parts: Parts, tmp_path: Path) -> None:
    evil = {"dataclass": ["os", "object", [["system", "rm"]], []]}
    record = json.loads(parts[RECORD])
    record["output"] = evil
    parts[RECORD] = json.dumps(record).encode()
    sealed(parts)
    output = loaded_from(parts, tmp_path).output
    assert (type(output).__module__, output.system) == ("types", "rm")


def test_no_pickle_is_written(parts: Parts) -> None:
    for octets in parts.values():
        assert b"\x80\x02" not in octets[:2] and b"cposix" not in octets and b"__reduce__" not in octets


def with_cells(parts: Parts, table: str, **cells: list[Any]) -> Parts:
    """The first cells of some columns replaced, in a table that is sealed again."""
    found = pa.ipc.open_stream(pa.BufferReader(parts[table_name(table)])).read_all()
    columns = found.to_pydict()
    for name, given_cells in cells.items():
        columns[name][: len(given_cells)] = given_cells
    arrays = [pa.array(columns[field.name], field.type) for field in found.schema]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=found.schema))
    parts[table_name(table)] = sink.getvalue().to_pybytes()
    sealed(parts)
    return parts


def test_modules_that_hold_one_another(parts: Parts, tmp_path: Path) -> None:
    """Twenty of them have more ways from one to the next than could ever be walked."""
    record = json.loads(parts[RECORD])
    structure, count = record["structure"], 20
    among = [[[other, "m"] for other in range(1, count) if other != at] for at in range(1, count)]
    structure.update(
        module_places=[[[None, ""]], *among], module_types=["M"] * count, training=[True] * count
    )
    parts[RECORD] = json.dumps(record).encode()
    sealed(parts)
    with pytest.raises(DamagedFileError, match="held in too many ways"):
        loaded_from(parts, tmp_path / "copy")


@pytest.mark.parametrize("form", ['{"named":["A",%s,[1,2]]}', '{"dataclass":["A","object",%s,[]]}'])
def test_two_spellings_that_python_reads_as_one_name(form: str, parts: Parts, tmp_path: Path) -> None:
    fields = ["\ufb01", "fi"] if "named" in form else [["\ufb01", 1], ["fi", 2]]
    with_cells(parts, "rows", args=[f"[{form % json.dumps(fields)}]"])
    with pytest.raises(DamagedFileError, match="is no name of a field"):
        loaded_from(parts, tmp_path / "copy")


@pytest.mark.parametrize("line", [2**40, -1])
def test_a_line_that_no_file_has(line: int, parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"a frame of .* stands at"):
        loaded_from(with_cells(parts, "frames", line=[line]), tmp_path / "copy")


@pytest.mark.parametrize("offset", [2**64 - 1, 2**63, 2**40])
def test_a_member_that_begins_beyond_its_zip(offset: int, parts: Parts, tmp_path: Path) -> None:
    path = tmp_path / "copy.tlens"
    write_zip(parts, path)
    octets = bytearray(path.read_bytes())
    entry, end = octets.index(b"PK\1\2"), octets.rindex(b"PK\5\6")
    extra = struct.pack("<HHQ", 1, 8, offset)
    struct.pack_into("<H", octets, entry + 30, len(extra))
    struct.pack_into("<I", octets, entry + 42, 2**32 - 1)
    struct.pack_into("<I", octets, end + 12, struct.unpack_from("<I", octets, end + 12)[0] + len(extra))
    name = entry + 46 + struct.unpack_from("<H", octets, entry + 28)[0]
    octets[name:name] = extra
    path.write_bytes(octets)
    with pytest.raises(DamagedFileError, match=r"ends before its part .* begins"):
        tl.load(path)


class WritesTwice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[0] = 7.0
        y[1] = 8.0
        return y.sum()


@pytest.fixture
def writes(tmp_path: Path) -> Parts:
    tl.save(tl.trace(WritesTwice(), floats(4)), tmp_path / "writes")
    return parts_of(tmp_path / "writes")


def regions_of(parts: Parts) -> tuple[dict[str, list[Any]], list[int]]:
    tables = [
        pa.ipc.open_stream(pa.BufferReader(parts[table_name(name)])).read_all().to_pydict()
        for name in ("tensors", "writes")
    ]
    return tables[0], tables[1]["region"]


def test_elements_of_a_place_that_is_not_there(writes: Parts, tmp_path: Path) -> None:
    tensors, regions = regions_of(writes)
    for at in regions:
        tensors["row"][at] = 2
    with pytest.raises(DamagedFileError, match="and not their place"):
        loaded_from(with_cells(writes, "tensors", row=tensors["row"]), tmp_path / "copy")


def test_a_place_that_is_expanded_without_end(writes: Parts, tmp_path: Path) -> None:
    """Its elements are one, and are not walked through."""
    tensors, regions = regions_of(writes)
    for at in regions:
        tensors["size"][at] = tensors["shape"][at] = [2**61]
        tensors["stride"][at] = [0]
    cells = {name: tensors[name] for name in ("size", "shape", "stride")}
    trace = loaded_from(with_cells(writes, "tensors", **cells), tmp_path / "copy")
    with pytest.raises(DamagedFileError, match="cannot be put together"):
        _ = trace["mul_1"].out


def test_keys_that_were_made_to_collide(parts: Parts, tmp_path: Path) -> None:
    record = json.loads(parts[RECORD])
    record["output"] = {"dict": [[number * (2**61 - 1), None] for number in range(20_000)]}
    parts[RECORD] = json.dumps(record).encode()
    sealed(parts)
    with pytest.raises(DamagedFileError, match="keys that were made to collide"):
        loaded_from(parts, tmp_path)


def test_a_save_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    for name in ("run.tlens", "run"):
        (tmp_path / f"{name}.part").touch()
        tl.save(tl.trace(nn.ReLU(), floats(2)), tmp_path / name)
        assert tl.load(tmp_path / name).ops


@pytest.mark.parametrize("index", [-1, 3, 10**12])
def test_sparse_indices_that_lead_out_of_the_tensor(index: int, tmp_path: Path) -> None:
    unsorted = torch.sparse_csr_tensor([0, 2, 3], [2, 0, 1], [1.0, 2.0, 3.0], (2, 3), check_invariants=False)
    path = tmp_path / "run"
    tl.save(tl.trace(lambda x: x * 2, unsorted), path)
    parts = parts_of(path)
    columns = torch.tensor([2, 0, 1]).numpy().tobytes()
    assert columns in parts[VALUES]
    changed = torch.tensor([2, index, 1]).numpy().tobytes()
    parts[VALUES] = parts[VALUES].replace(columns, changed)
    table = pa.ipc.open_stream(parts["storages.arrow"]).read_all()
    hashes = [
        hashlib.sha256(parts[VALUES][begin : begin + nbytes]).hexdigest() if shard is not None else ""
        for shard, begin, nbytes in zip(*(table[n].to_pylist() for n in ("shard", "begin", "nbytes")))
    ]
    at = table.schema.get_field_index("sha256")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.set_column(at, table.schema.field(at), pa.array(hashes)))
    parts["storages.arrow"] = sink.getvalue().to_pybytes()
    sealed(parts)
    with pytest.raises(DamagedFileError, match=r"indices of a sparse tensor lead out of it|cannot be made"):
        loaded_from(parts, tmp_path)
