"""How the package hangs together: imports point down one list, and light things stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

# From the top. A row's members import rows below their own and never each other, for types neither; a
# package's own files import one another without cycles, for types freely. What is in no row is rejected.
HOUSE = (
    ("torchlens",),  # public names, loaded lazily
    ("__main__",),
    ("cli", "pytest_plugin"),  # people's doors
    ("demo",),
    ("testing",),  # what a test says of traces
    ("_api",),
    ("drawing",),  # features: functions over a TraceReader
    ("saving",),
    ("comparing",),
    ("tables",),
    ("validation",),
    ("report",),
    ("_replay",),
    ("_trace", "_capture"),  # reads records; exists while a model runs
    ("flops",),
    ("_keys",),
    ("_values",),
    ("storage",),  # what a caller says and reads of values on disk
    ("_files",),
    ("_arrow",),
    ("_unseen",),
    ("_records",),
    ("_structure",),
    ("selectors",),
    ("_terms",),
    ("options",),
    ("errors",),
    ("_version",),
)
LAZY = ("torchlens",)  # may import inside functions
DOORS = ("cli", "pytest_plugin")  # may import `torchlens` itself, through whose table they reach the rest
# at any depth
NO_TORCH = (
    "torchlens",
    "cli",
    "pytest_plugin",
    "_keys",
    "_records",
    "_structure",
    "_terms",
    "selectors",
    "errors",
    "_arrow",
    "_capture.call_site",
)
ONE_FILE_EACH = ("networkx", "pyarrow", "pydot", "typst")
EMPTY_NAMES = ("utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "impl", "core")

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "torchlens"
ROW = {member: number for number, row in enumerate(HOUSE) for member in row}


@dataclass(frozen=True)
class Import:
    source: str
    target: str
    line: int
    inside_function: bool
    for_types: bool


def module_name(file: Path, package: Path = PACKAGE) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def member_of(module: str) -> str:
    """`torchlens._trace.op` belongs to `_trace`; `torchlens` itself is its `__init__`."""
    return module.split(".")[1] if "." in module else module


def absolute(node: ast.ImportFrom, file: Path, package: Path) -> str:
    if not node.level:
        return node.module or ""
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join((*parts[: -node.level], *((node.module,) if node.module else ())))


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def nodes_below(
    node: ast.AST, inside: bool = False, types: bool = False
) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Each node with whether it stands in a function, and whether only type checkers read it."""
    for child in ast.iter_child_nodes(node):
        in_function = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for_types = types or is_for_types(child)
        yield child, in_function, for_types
        yield from nodes_below(child, in_function, for_types)


def imports_of(file: Path, package: Path = PACKAGE) -> Iterator[Import]:
    """Every import statement; `from torchlens import errors` counts as one of `torchlens.errors`."""
    source = module_name(file, package)
    for node, inside, for_types in nodes_below(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, file, package)
            submodules = {
                f"{module}.{alias.name}"
                for alias in node.names
                if (found := package.parent.joinpath(*module.split("."), alias.name)).is_dir()
                or found.with_suffix(".py").is_file()
            }
            targets = sorted(submodules) or [module]
        else:
            continue
        yield from (Import(source, target, node.lineno, inside, for_types) for target in targets)


def files(package: Path = PACKAGE) -> list[Path]:
    return sorted(package.rglob("*.py"))


def is_ours(target: str) -> bool:
    return target == "torchlens" or target.startswith("torchlens.")


def is_upward(found: Import) -> bool:
    source, target = member_of(found.source), member_of(found.target)
    if target not in ROW:
        return True
    if source in DOORS and found.target == "torchlens":
        return False
    return source != target and source != "torchlens" and ROW[target] <= ROW[source]


def complaints(package: Path) -> list[str]:
    """What is wrong with a package's imports and files, one line each."""
    lines = []
    for file in files(package):
        name = module_name(file, package)
        if member_of(name) not in ROW:
            lines.append(f"{name}: stands in no row of the house")
            continue
        if set(name.split(".")) & set(EMPTY_NAMES):
            lines.append(f"{name}: the name says nothing")
        for found in imports_of(file, package):
            if not is_ours(found.target):
                continue
            if is_upward(found):
                lines.append(f"{name}:{found.line} imports {found.target}, which is not below it")
            if found.inside_function and member_of(name) not in LAZY:
                lines.append(f"{name}:{found.line} imports {found.target} inside a function")
    return lines


def test_imports_point_down() -> None:
    assert complaints(PACKAGE) == []


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        pytest.param(
            "stray.py", "", "torchlens.stray: stands in no row", id="a file the house does not know"
        ),
        pytest.param(
            "stray/op.py", "", "torchlens.stray.op: stands in no row", id="a package it does not know"
        ),
        pytest.param("_trace/helpers.py", "", "the name says nothing", id="a name that says nothing"),
        pytest.param("_keys/a.py", "import torchlens._trace.op", "not below", id="upwards"),
        pytest.param("_keys/a.py", "from torchlens import _api", "not below", id="upwards, from the package"),
        pytest.param("_keys/a.py", "from .. import _api", "not below", id="upwards, relative"),
        pytest.param("_keys/a.py", "import torchlens", "not below", id="the package itself"),
        pytest.param("demo.py", "import torchlens as tl", "not below", id="the package, by no door"),
        pytest.param(
            "_trace/op.py", "from .._capture.session import run", "not below", id="_trace: _capture"
        ),
        pytest.param("_capture/op.py", "from torchlens._trace import op", "not below", id="_capture: _trace"),
        pytest.param("_keys/a.py", "import torchlens.stray", "not below", id="what the house does not know"),
        pytest.param(
            "_api/__init__.py",
            "def f():\n    from torchlens._records import Rows",
            "torchlens._api:2 imports torchlens._records inside a function",
            id="inside a function",
        ),
        pytest.param(
            "_keys/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torchlens._trace",
            "torchlens._keys.a:3 imports torchlens._trace",
            id="for types only",
        ),
    ],
)
def test_a_bad_import_or_file_is_found(tmp_path: Path, path: str, text: str, complaint: str) -> None:
    package = tmp_path / "torchlens"
    for name in ("_trace", "_capture", "_keys", "_api"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    assert complaints(package) == []
    file = package / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    assert [line for line in complaints(package) if complaint in line]


def test_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for file in files():
        name = module_name(file)
        targets = {
            found.target for found in imports_of(file) if is_ours(found.target) and not found.for_types
        }
        graph[name] = targets - {name} if name not in LAZY else set()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("library", ONE_FILE_EACH)
def test_a_heavy_library_is_imported_in_one_file(library: str) -> None:
    using = {
        module_name(file)
        for file in files()
        for found in imports_of(file)
        if found.target.split(".")[0] == library and not found.for_types
    }
    assert len(using) <= 1


def run_alone(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", NO_TORCH)
def test_works_where_torch_is_not_installed(name: str) -> None:
    path = f"torchlens.{name}"
    modules = [m for m in map(module_name, files()) if m == name or m == path or m.startswith(f"{path}.")]
    assert modules
    run_alone(f"import sys; sys.modules['torch'] = None; import {', '.join(modules)}")


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", *ONE_FILE_EACH, "rich", "typer")
    assert run_alone(f"import sys, torchlens; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


def test_help_loads_no_torch() -> None:
    code = """
import sys
sys.argv = ["torchlens", "--help"]
from torchlens.cli import main
try:
    main()
except SystemExit as exit:
    assert not exit.code, exit.code
print("torch" in sys.modules)
"""
    *help_text, loaded = run_alone(code).splitlines()
    assert "summary" in "\n".join(help_text)
    assert loaded == "False"


def test_importing_every_module_changes_nothing_of_torch() -> None:
    modules = [module_name(file) for file in files() if member_of(module_name(file)) != "pytest_plugin"]
    code = f"""
import importlib, sys, types
import torch, torch.nn.functional, torch.overrides, torch.utils.checkpoint

def state():
    modules = sys.modules.items()
    spaces = {{n: m for n, m in modules if n.split(".")[0] == "torch" and type(m) is types.ModuleType}}
    classes = {{
        f"{{n}}.{{k}}": v for n, m in spaces.items() for k, v in vars(m).items()
        if issubclass(type(v), type) and v.__module__.split(".")[0] == "torch"
    }}
    return {{(n, k): v for n, s in (spaces | classes).items() for k, v in vars(s).items() if callable(v)}}

before = state()
for name in {modules!r}:
    importlib.import_module(name)
now = state()
print([key for key, value in before.items() if now.get(key) is not value])
print(len(before) > 10_000, torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack())
"""
    assert run_alone(code) == "[]\nTrue 0 0\n"
