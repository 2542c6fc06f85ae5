"""Values on disk: where a capture is to write them. What a run left is read by `load_values` in `reading`."""

from torchlens.storage.disk import ToDisk, to_disk

__all__ = ["ToDisk", "to_disk"]
