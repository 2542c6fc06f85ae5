"""Whether a trace is true: each call again, the record's own rules, and a fresh forward."""
