"""The page's text: style, script and data in one document that may load nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Final

from torchlens.drawing.page.columns import Plain

_WEB: Final = files("torchlens.drawing.page") / "web"
_SCRIPTS: Final = (
    *("data", "state", "warp", "curves", "element", "colors", "differences", "nodes", "drawing"),
    *("camera", "amounts", "hover", "details", "details_op", "details_box"),
    *("search", "legend", "fragment", "keys", "start"),
)
"""In the order in which they stand in the page's one script."""


def document(title: str, data: dict[str, Plain]) -> str:
    """The page with its data, in which nothing that a model is called can end the data or become markup."""
    style, script = _read("page.css"), _script()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(_without_surrogates(title)),
        "policy": policy,
        "style": style,
        "data": _json(data),
        "script": script,
    }
    pieces = _read("page.html").split("@@")  # text and names of parts in turn
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def _read(name: str) -> str:
    return _WEB.joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """All files in one scope of its own."""
    return "\n".join(['(() => {\n"use strict";', *(_read(f"{name}.js") for name in _SCRIPTS), "})();"])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(data: dict[str, Plain]) -> str:
    """In ASCII, so that no character that ends a line or turns its direction stands in the source."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
