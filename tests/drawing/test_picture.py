"""Pictures in files and notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import torchlens as tl
from tests.drawing.traces import traced
from torchlens.drawing import picture as pictures
from torchlens.drawing.picture import Page, Picture

SMALL = "digraph { a -> b }"
BEGINS = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF", ".dot": b"digraph", ".gv": b"digraph"}


@pytest.mark.parametrize("ending", [*BEGINS, ".SVG", ".Png", ".DOT"])
def test_the_ending_says_what_is_written(ending: str, tmp_path: Path) -> None:
    place = tmp_path / "new folder" / f"model{ending}"
    drawn = traced("Looped").draw(place)
    assert place.read_bytes().startswith(BEGINS[ending.lower()])
    assert isinstance(drawn, Picture)
    assert [*place.parent.iterdir()] == [place]


def test_a_path_may_be_text_and_a_file_that_is_there_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "model.dot"
    place.write_text("before")
    traced("Looped").draw(str(place))
    assert place.read_text(encoding="utf-8") == traced("Looped").draw().dot


@pytest.mark.parametrize("name", ["model.jpg", "model", "model.", ".svg", "model.svg.bak"])
def test_an_unknown_ending_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(tl.errors.OptionError, match=r"ends in no form of a picture; .* \.svg, \.png, \.pdf"):
        traced("Looped").draw(tmp_path / name)
    assert [*tmp_path.iterdir()] == []


def test_a_path_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.dot").mkdir()
    with pytest.raises(tl.errors.UnwritablePathError, match=r"model\.dot cannot be written: "):
        traced("Looped").draw(tmp_path / "model.dot")
    assert [*tmp_path.iterdir()] == [tmp_path / "model.dot"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tl.errors.UnwritablePathError, match=r"model\.dot cannot be written: "):
        traced("Looped").draw(tmp_path / "file" / "model.dot")


def test_a_path_of_another_type_is_refused() -> None:
    with pytest.raises(tl.errors.OptionError, match="path=3 is no path"):
        traced("Looped").draw(3)  # type: ignore[arg-type]


def test_a_picture_is_not_saved_as_a_page_and_a_page_as_no_picture(tmp_path: Path) -> None:
    with pytest.raises(tl.errors.OptionError, match=r"'model\.html' asks for a page, and this is a picture"):
        Picture(SMALL).save(tmp_path / "model.html")
    with pytest.raises(
        tl.errors.OptionError, match=r"'model\.svg' does not end in \.html, and this is a page"
    ):
        Page("<html>").save(tmp_path / "model.svg")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("option", [{"direction": "up"}, {"depth": 1}, {"collapse": 1}, {"focus": "x"}])
def test_options_that_mean_nothing_on_a_page_are_refused(option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(tl.errors.OptionError, match=rf"{next(iter(option))}= is for pictures, and "):
        traced("Looped").draw(tmp_path / "model.html", **option)
    assert [*tmp_path.iterdir()] == []


def test_a_notebook_shows_well_formed_svg() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Tanh()))
    shown = tl.trace(model, torch.ones(3, 4)).draw(color_by=lambda op: "<&\"'> \x01 é 漢")._repr_svg_()
    assert shown.startswith("<svg")
    root = ElementTree.fromstring(shown)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("class") == "torchlens-picture"
    assert root.get("viewBox")
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert {"n0", "cluster_f2", "n0->n1"} <= set(titles)


def test_the_program_runs_once_for_one_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: list[str] = []

    def counted(dot: str, form: str, **options: Any) -> bytes:
        runs.append(form)
        return b"<?xml?><svg width='1'></svg>"

    monkeypatch.setattr(pictures, "render", counted)
    picture = Picture(SMALL)
    assert runs == []  # not before somebody looks
    assert picture.svg == picture.svg
    picture._repr_svg_()
    picture.save(tmp_path / "model.svg")
    assert runs == ["svg"]


def test_two_pictures_are_equal_if_they_show_the_same() -> None:
    assert Picture(SMALL) == Picture(SMALL)
    assert Picture(SMALL) != Picture("digraph {}")
    assert repr(Picture("digraph {\nn0 [label=a];\n}")) == "<Picture, 1 node>"


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    traced("StackedBlocks").draw("~/model.dot")
    assert (tmp_path / "model.dot").exists()
