"""The public calls and the one class that forwards to every feature."""
