"""What cannot be captured, refused before anything runs."""

from __future__ import annotations

import torch

from torchlens.errors import NestedCaptureError, UnsupportedModelError


def refuse_unsupported(model: object) -> None:
    """Raise the typed error for a model, or a place to run it, that a capture cannot see into."""
    name = type(model).__name__
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise UnsupportedModelError(
            f"{name} runs in TorchScript's interpreter, not as Python, so its ops cannot be "
            "seen; trace the eager nn.Module it was made from"
        )
    if any(kind.__module__.startswith("torch.export") for kind in type(model).__mro__):
        raise UnsupportedModelError(
            f"{name} comes from torch.export and does not run as ordinary Python; trace the eager nn.Module "
            "before exporting it"
        )
    if torch.utils.data.get_worker_info() is not None:
        raise NestedCaptureError(
            "this is a DataLoader worker process, whose results the main process would not see; "
            "trace the model in the main process"
        )
