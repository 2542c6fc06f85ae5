"""The command `torchlens`. Its help loads no torch."""

from torchlens.cli.app import main

__all__ = ["main"]
