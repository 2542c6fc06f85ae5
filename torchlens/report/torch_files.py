"""Which files are torch's own."""

from __future__ import annotations

import os
import re
from typing import Final

import torch

_HERE: Final = os.path.join(os.path.dirname(torch.__file__), "")
_INSTALLED: Final = re.compile(r"[\\/](?:site|dist)-packages[\\/]torch[\\/]")


def is_of_torch(file: str) -> bool:
    """Whether a file is one of torch's own, here or on the machine where a trace was made."""
    return file.startswith(_HERE) or _INSTALLED.search(file) is not None
