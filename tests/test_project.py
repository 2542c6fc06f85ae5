"""The project's own files: what they promise is there and agrees."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TERMS = (
    "op",
    "layer",
    "pass",
    "call site",
    "scope",
    "module call",
    "record",
    "trace",
    "place",
    "chain",
    "boundary",
    "source",
    "buffer version",
    "value",
    "parent",
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def tox_settings() -> configparser.ConfigParser:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "tox.ini", encoding="utf-8")
    return settings


def test_readme_opens_with_five_lines_of_code() -> None:
    first = code_blocks(text_of("README.md"), "python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) == 5


def test_readme_gives_the_two_commands() -> None:
    commands = code_blocks(text_of("README.md"), "sh")[:2]
    assert commands == ["pip install torch==2.13.0 . && torchlens demo\n", "pip install tox && tox\n"]


def test_ci_runs_the_readmes_second_command() -> None:
    assert code_blocks(text_of("README.md"), "sh")[1] in text_of(".ci/run")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_another_project(page: Path) -> None:
    assert not re.search(
        r"pip3? install[^\n]*\btorchlens\b(?! (demo|summary))", page.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("term", TERMS)
def test_glossary_has_the_term(term: str) -> None:
    assert re.search(rf"^- .*\*\*{term}\*\*.*: \w", text_of("docs/glossary.md"), flags=re.MULTILINE)


def test_changelog_has_one_unreleased_section_on_top() -> None:
    assert re.findall(r"^## (.*)$", text_of("CHANGELOG.md"), flags=re.MULTILINE)[0] == "[Unreleased]"
    assert text_of("CHANGELOG.md").count("## [Unreleased]") == 1


def test_license_is_what_the_metadata_says() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text_of("LICENSE")
    assert "license: Apache-2.0" in text_of("CITATION.cff")


def test_citation_names_the_paper() -> None:
    for page in ("CITATION.cff", "README.md"):
        assert "10.1038/s41598-023-40807-0" in text_of(page)


def test_tox_runs_each_check() -> None:
    listed = re.split(r",\s*", tox_settings()["tox"]["env_list"])
    assert {"format", "lint", "imports", "types", "docs", "tests"} < set(listed)
    readme = text_of("README.md")
    assert [name for name in listed if f"`{name}`" not in readme and f"-e {name}`" not in readme] == []


def test_every_supported_python_is_tested_or_runs_the_tests() -> None:
    minors = {int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["classifiers"]))}
    low, high = map(int, re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups())
    assert minors == set(range(low, high))
    without_torch = {int(minor) for minor in re.findall(r"keys-py3(\d+)", tox_settings()["tox"]["env_list"])}
    assert without_torch == minors - {11}


def test_the_command_is_installed() -> None:
    module, _, function = PROJECT["scripts"]["torchlens"].partition(":")
    code = f"from {module} import {function}; assert callable({function})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


def test_what_the_package_imports_is_a_dependency() -> None:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "torchlens").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imported = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"torchlens"}
    declared = {re.match(r"[\w-]+", dependency)[0] for dependency in PROJECT["dependencies"]}
    optional = {"pandas", "polars", "typst"}  # asked for by name; an error says what to install
    assert imported <= declared | optional | {"pytest"}, "pytest loads its plugin itself"


@pytest.mark.parametrize("extra", ["zoo", "test"])
def test_extras_are_declared(extra: str) -> None:
    assert PROJECT["optional-dependencies"][extra]
