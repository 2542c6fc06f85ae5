from __future__ import annotations

from tests.zoo.torchvision_ops import import_torchvision

import_torchvision()
