"""`package.module:factory` and `file.py:factory`: finding and building the model a text names."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchlens.errors import TargetError

if TYPE_CHECKING:
    import torch
    from torch import nn

_FORM = "package.module:factory or file.py:factory"


def build_model(target: str, seed: int) -> nn.Module:
    """The model of a target: an `nn.Module`, a class of them, or a callable that returns one."""
    from torch import nn

    model = build_object(target, seed)
    if not isinstance(model, nn.Module):
        raise TargetError(
            f"{target} returned an object of type {type(model).__name__}; a factory returns an nn.Module"
        )
    return model


def build_object(target: str, seed: int) -> object:
    """What a target is or returns, be it a model or not.

    Generators are seeded before its file is run, and again before it is called: a file that was run before,
    for another target, draws nothing.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    place, colon, path = target.rpartition(":")
    if not colon or not place or not path:
        raise TargetError(_without_factory(target))
    found: Any = _load_file(place) if place.endswith(".py") else _load_module(place)
    for name in path.split("."):
        found = _attribute(found, name, target)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise TargetError(
            f"{target} is of type {type(found).__name__}; name an nn.Module or a callable that returns one"
        )
    torch.manual_seed(seed)
    try:
        built = found()
        if built is None:
            raise ValueError("it returned None, so a `return` is missing")
        return built
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"{target} raised {type(error).__name__}: {error}; a factory is called without arguments"
        ) from error


def usable_device(name: str) -> torch.device:
    """The device of this name; raises `TargetError` if torch does not know it or can't use it here."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TargetError(f"torch knows no device {name!r}; try cpu, cuda, cuda:0 or mps") from error
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise TargetError(f"device {name!r} cannot be used here: {reason}") from error
    return device


def _without_factory(target: str) -> str:
    """What to say of a text that names no factory: of a file, the classes and functions in it."""
    if not target.endswith(".py") or not Path(target).is_file():
        return (
            f"{target!r} is no saved trace, which is a path that ends in .tlens or the directory of one that "
            f"is there, and no target of the form {_FORM}"
        )
    try:
        statements = ast.parse(Path(target).read_bytes()).body
    except (SyntaxError, ValueError) as error:
        return f"{target} is no Python file: {error}"
    kinds = (ast.ClassDef, ast.FunctionDef)
    names = [each.name for each in statements if isinstance(each, kinds) and not each.name.startswith("_")]
    listed = ", ".join(f"{target}:{name}" for name in names) or "neither a class nor a function"
    return f"target {target!r} is not of the form {_FORM}; in it: {listed}"


def _load_module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        return importlib.import_module(name)
    except Exception as error:
        hint = f"; for a file, write {name}.py" if Path(f"{name}.py").is_file() else ""
        raise TargetError(f"cannot import {name!r}: {type(error).__name__}: {error}{hint}") from error


def _load_file(name: str) -> ModuleType:
    path = Path(name)
    if not path.is_file():
        raise TargetError(f"there is no file {name!r} in {Path.cwd()}; the target is {_FORM}")
    sys.path.insert(0, str(path.resolve().parent))  # as `python file.py` does
    known = path.stem if path.stem not in sys.modules else f"torchlens_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(known, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[known]
        raise TargetError(f"running {name} raised {type(error).__name__}: {error}") from error
    return module


def _attribute(owner: Any, name: str, target: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError as error:
        near = difflib.get_close_matches(name, [key for key in dir(owner) if not key.startswith("_")], n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise TargetError(f"{target}: there is no {name!r} in {owner.__name__}{hint}") from error
