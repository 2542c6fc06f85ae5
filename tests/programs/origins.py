"""The programs of every origin, in one table."""

from __future__ import annotations

from tests.programs import origins_host, origins_seen, origins_unseen
from tests.programs.origin_program import Program

PROGRAMS: list[Program] = [*origins_seen.PROGRAMS, *origins_host.PROGRAMS, *origins_unseen.PROGRAMS]
