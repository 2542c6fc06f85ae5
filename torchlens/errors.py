"""Every exception torchlens raises on purpose.

All derive from `TorchLensError`. Errors about an attribute that exists but cannot be read now are
`AttributeError`s too, so that `hasattr` and notebook completion behave; errors about a key are `KeyError`s.
"""


class TorchLensError(Exception):
    """Base class of every error torchlens raises on purpose."""


class NestedCaptureError(TorchLensError, RuntimeError):
    """A capture was opened inside another one on the same thread."""


class UnsupportedModelError(TorchLensError, TypeError):
    """The model cannot run under a capture; nothing of it was run."""


class PlanError(TorchLensError, RuntimeError):
    """The model cannot run without values; only a trace of it tells what it keeps."""


class InputError(TorchLensError, TypeError):
    """What was given as input or argument is not what the call takes."""


class OptionError(TorchLensError, ValueError):
    """Options contradict each other or have an impossible value."""


class PathTakenError(TorchLensError, FileExistsError):
    """Something is already where values are to be written; nothing of it was touched."""


class UnwritablePathError(TorchLensError, OSError):
    """Values cannot be written there; nothing was run, and nothing was left there."""


class PathNotFoundError(TorchLensError, FileNotFoundError):
    """There is nothing at the path that values are to be read from."""


class FileFormatError(TorchLensError):
    """The path holds no values, or values in a format that this release does not read."""


class DamagedFileError(TorchLensError):
    """A file is not as it was written: cut off, changed or gone."""


class TraceAssertionError(TorchLensError, AssertionError):
    """What a test asserted of a trace does not hold."""


class MissingSnapshotError(TraceAssertionError):
    """There is no snapshot yet that a trace could be compared with."""


class TargetError(TorchLensError, ValueError):
    """A command-line target, input shape or device cannot be used."""


class MissingLibraryError(TorchLensError, ImportError):
    """A library that torchlens does not need otherwise is not installed."""


class DrawingError(TorchLensError, RuntimeError):
    """No picture came of a graph: it says which program failed, how, and where the graph's DOT text is."""


class MissingKeyError(TorchLensError, KeyError):
    """No op, layer, module, parameter or buffer has this name or index."""

    __str__ = Exception.__str__  # KeyError would print the repr of the message


class NotReachedError(TorchLensError, LookupError):
    """The forward was over before it came to the site that was named."""


class AmbiguousKeyError(MissingKeyError):
    """A key is both a label and an address."""


class UnreadableError(TorchLensError, AttributeError):
    """The attribute exists, but it has no value that can be read now."""


class CaptureOpenError(UnreadableError):
    """A trace was read before its `capture` block ended."""


class SeveralPassesError(UnreadableError):
    """One value was asked of a layer or module that has several passes or calls."""


class NotSavedError(UnreadableError):
    """The value was not kept, or the trace was cleaned up."""


class MissingValueError(NotSavedError):
    """The value was to be written to disk and was not: it says why."""

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        """Why, without the name of the value: one text for all that are missing alike."""


class OverwrittenError(UnreadableError):
    """The value was overwritten in place and its bytes were not kept."""


class UnsavedFunctionError(UnreadableError):
    """The function is none of torch's that a file may name; a loaded trace knows its name only."""


class IncompleteError(UnreadableError):
    """The forward did not get far enough to have this value."""
