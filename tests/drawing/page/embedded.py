"""The data in a page."""

from __future__ import annotations

import json
import re
from typing import Any


def data_of(html: str) -> Any:
    """What the page's script reads."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', html)
    assert found is not None
    return json.loads(found[1])
