"""What makes a checkout look installed: the entry points and commands that pyproject.toml declares."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def as_installed(folder: Path) -> dict[str, str]:
    """The environment of a process in which torchlens is installed; the folder is made for it."""
    known = folder / "torchlens_as_declared-0.dist-info"
    known.mkdir(parents=True)
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: torchlens-as-declared\nVersion: 0\n")
    plugins = [f"{name} = {target}" for name, target in PROJECT["entry-points"]["pytest11"].items()]
    (known / "entry_points.txt").write_text("\n".join(["[pytest11]", *plugins]))
    commands = folder / "bin"
    commands.mkdir()
    for name, target in PROJECT["scripts"].items():
        module, _, function = target.partition(":")
        script = commands / name
        script.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "PATH": path}
