"""`--zoo` runs every model of the zoo, not only a spread, and writes docs/zoo.md when all have passed."""

from __future__ import annotations

import pytest

from tests.zoo import page
from tests.zoo.catalogue import entries, spread
from tests.zoo.torchvision_ops import import_torchvision

import_torchvision()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--zoo", action="store_true", help="run every model of the zoo and write docs/zoo.md")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--zoo") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "entry" in metafunc.fixturenames:
        found = entries()
        chosen = found if metafunc.config.getoption("--zoo", default=False) else spread(found)
        metafunc.parametrize("entry", chosen, ids=[f"{entry.package}-{entry.name}" for entry in chosen])


class Writer:
    """Gathers the lines of the models that passed, from all workers."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], page.Line] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for key, value in report.user_properties:
                if key == "zoo":
                    line = page.Line(*value)
                    self._lines[line.package, line.model.strip("*")] = line

    def pytest_sessionfinish(self) -> None:
        wanted = [(entry.package, entry.name) for entry in entries()]
        if all(key in self._lines for key in wanted):
            page.PATH.write_text(page.page([self._lines[key] for key in wanted]), encoding="utf-8")
