"""What holds around every test: nothing of a capture stays behind."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.programs")

try:  # call_site is tested on Pythons without torch
    import torch
    import torch._dynamo  # torch's checkpoints import it, and its import replaces `torch.manual_seed`
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    install_generation_tagging_init()  # as the first compilation would, which replaces methods of nn.Module
except ModuleNotFoundError:
    torch = None

try:
    import hypothesis
except ModuleNotFoundError:
    hypothesis = None

if hypothesis is not None:
    relaxed = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
    hypothesis.settings.register_profile(
        "ci",
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=relaxed,
    )
    hypothesis.settings.register_profile("explore", deadline=None, suppress_health_check=relaxed)
    hypothesis.settings.load_profile("ci")  # `--hypothesis-profile=explore` looks further

WATCHED = (
    "torch",
    "torch.functional",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch.overrides",
    "torch._tensor",
    "torch._C",
    "torch._C._nn",
    "torch._VF",
    "torch.nn.init",
    "torch.nn.functional",
    "torch.nn.modules.module",
    "torch.utils.checkpoint",
)
WATCHED_CLASSES = ("Tensor", "nn.Module", "nn.Parameter", "_C.TensorBase", "autograd.Function")


def watched_namespaces() -> dict[str, Any]:
    spaces = {name: importlib.import_module(name) for name in WATCHED}
    for path in WATCHED_CLASSES:
        owner = torch
        for part in path.split("."):
            owner = getattr(owner, part)
        spaces[f"torch.{path}"] = owner
    return spaces


def is_function(value: object) -> bool:
    return callable(value) or hasattr(type(value), "__get__")


@pytest.fixture(scope="session")
def attributes_of_torch() -> dict[str, tuple[Any, dict[str, object]]]:
    """Every function, class and descriptor that torch's namespaces hold, as the session found them."""
    if torch is None:
        return {}
    return {
        name: (space, {key: value for key, value in vars(space).items() if is_function(value)})
        for name, space in watched_namespaces().items()
    }


def is_of_transformers(value: object) -> bool:
    """The first model that transformers builds gives `nn.Module` a method."""
    return isinstance(value, FunctionType) and value.__module__.startswith("transformers.")


def replaced_attributes(snapshot: dict[str, tuple[Any, dict[str, object]]]) -> list[str]:
    changed = []
    for name, (space, before) in snapshot.items():
        now = vars(space)
        changed += [f"{name}.{key}" for key, value in before.items() if now.get(key) is not value]
        if isinstance(space, type):  # modules gain attributes by lazy imports, classes do not
            added = [key for key, value in now.items() if key not in before and is_function(value)]
            changed += [f"{name}.{key}" for key in added if not is_of_transformers(now[key])]
    return changed


def state_of_torch() -> dict[str, object]:
    """What a capture touches or could touch, by name."""
    module = sys.modules["torch.nn.modules.module"]
    state: dict[str, object] = {
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch functions enabled": torch._C._is_torch_function_enabled(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
    }
    for name, value in vars(module).items():
        if name.startswith("_global"):
            state[name] = list(value.items()) if isinstance(value, dict) else value
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None:
        state["compile stance"] = dynamo._stance.stance
    return state


def state_of_python() -> dict[str, object]:
    return {
        "collector enabled": gc.isenabled(),
        "collector callbacks": [call for call in gc.callbacks if "torchlens" in call.__module__],
        "profiler of new threads": threading.getprofile(),
        "collector thresholds": gc.get_threshold(),
        "frozen objects": gc.get_freeze_count(),
        "profiler": sys.getprofile(),
        "tracer": sys.gettrace(),
        "recursion limit": sys.getrecursionlimit(),
        "threads": threading.active_count(),
        "exception hook": sys.excepthook,
    }


def state_now() -> dict[str, object]:
    return state_of_python() | (state_of_torch() if torch is not None else {})


def differences(before: dict[str, object], now: dict[str, object]) -> list[str]:
    # a part of torch that was imported meanwhile has nothing to be compared with
    return [f"{key}: {before[key]!r} -> {now.get(key)!r}" for key in before if before[key] != now.get(key)]


@pytest.fixture(autouse=True)
def nothing_stays_behind(attributes_of_torch: dict[str, tuple[Any, dict[str, object]]]) -> Iterator[None]:
    before = state_now()
    yield
    assert differences(before, state_now()) == []
    assert replaced_attributes(attributes_of_torch) == []
