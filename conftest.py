"""Examples in the README, in docs/ and in docstrings are tests: `pytest README.md docs torchlens`."""

from doctest import ELLIPSIS

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

FLAGS = ELLIPSIS

pages = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=FLAGS)],
    patterns=["README.md", "docs/*.md"],
    excludes=["docs/tour.md"],  # tests/test_tour.py does all of it
)
docstrings = Sybil(parsers=[DocTestParser(FLAGS)], patterns=["torchlens/*.py", "torchlens/**/*.py"])

pytest_plugins = ["pytester"]
pytest_collect_file = (pages + docstrings).pytest()
