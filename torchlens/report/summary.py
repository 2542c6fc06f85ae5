"""placeholder"""
from __future__ import annotations
from typing import Any
def summarize(views: Any) -> Any: return describe(views)
def describe(views: Any) -> str: return f"<Trace {len(views.reader.numbers.rows)} ops>"
