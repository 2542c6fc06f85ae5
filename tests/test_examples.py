"""The programs in examples/ run, and print what they are there to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FACTS = {
    "resnet18": [
        r"^parameters 11,689,512, all trainable",
        r"^FLOPs      3\.64 GFLOPs, 1\.81 GMACs$",
        r"^layer1\.0\.relu was called 2 times: relu_2:1, relu_2:2$",
        r"^iadd_1:1 is __iadd__, of batch_norm_3:1 and max_pool2d_1:1$",
        r"^it stands at resnet\.py:\d+ in BasicBlock\.forward$",
        r"^least of batch_norm_2:1: -\d\.\d\d, of relu_2:1: 0\.00$",
        r"^most FLOPs: conv2d_1:1 of conv1, 236,027,904$",
    ],
    "gpt2_generation": [
        r"^GPT2LMHeadModel · 5 forwards, complete$",
        r"h\.1, h\.2 GPT2Block ×5, 2 like h\.0",
        r"has 5 passes, of shapes \[\(1, 4, 100\), \(1, 5, 100\), .*, \(1, 8, 100\)\]$",
        r"^argmax_1 chose the tokens \[\d+, \d+, \d+, \d+, \d+\]$",
        r"^the second call read cat_\d+:1, made of input_1:1 and argmax_1:1$",
        r"^transformer\.wte\.weight = lm_head\.weight, used by 10 ops$",
    ],
    "recurrent": [
        r"^tanh_1 has 6 passes; it stands at recurrent\.py:\d+ in Recurrent\.forward$",
        r"^  tanh_1:3 read add_1:3 and has norm \d\.\d{3}$",
        r"^setitem_1 wrote in place; states filled after each pass: \[1, 2, 3, 4, 5, 6\]$",
        r"^bytes copied to keep these versions: 384$",
        r"^back from the last step: tanh_1:6 <- add_1:6 <- linear_2:6 <- tanh_1:5 <-",
        r"^gradient of the last state by the first: norm 0\.\d*[1-9]",
    ],
    "auxiliary_loss": [
        r"^   0  1\.\d+  1\.\d+  1\.\d+$",
        r"^  60  0\.0\d+  0\.[0-2]\d+  0\.[01]\d+$",
        r"^right after 60 steps: (9\d|100)%$",
        r"^step   0, losses at the 5 passes of tanh_1: 0\.[1-9]",
        r"^step 150, losses at the 5 passes of tanh_1: 0\.0\d\d(, 0\.0\d\d){4}$",
    ],
    "probe": [
        r"^probe at norm    : [45]\d% right, features \(200, 4\)$",
        r"^probe at blocks\.0: [89]\d% right, features \(200, 32\)$",
        r"^a trace that ended after blocks\.2:1 gives the same: True$",
        r"^backbone unchanged: True; parameters with a gradient: 0$",
    ],
    "compare_port": [
        r"^original, port · first divergence at gelu_1:1$",
        r"^before it +12 values agree$",
        r"^arguments +they differ: \(approximate='none'\) and \(approximate='tanh'\)$",
        r"^16 ops in both, 4 differ$",
        r"^only in the original: transpose_1:1$",
        r"^as a table: 18 rows, 19 columns$",
    ],
    "duckdb_slowest_layers": [
        r"^layer +module +passes runs +us a run +FLOPs$",
        r"^scaled_dot_product_attention_\d +1\.layers\.\d\.self_attn +5 +5 +\d+\.\d +262,144$",
        r"^linear_\d +1\.layers\.\d\.\w+ +5 +5 +\d+\.\d +(786,432|262,144|524,288)$",
        r"^of \d+ edges, 3 lead from contiguous_1:1$",
    ],
    "pandas_modules": [
        r"^23 ops; flops is int64\[pyarrow\], type is category$",
        r"^conv2d +\d+ +60162048 +1048576$",
        r"^stages\.2 +31\.2$",
        r"^largest parameter: stages\.0\.0\.weight of shape \[16, 16, 3, 3\], in conv2d_2:1$",
    ],
    "polars_lines": [
        r"^polars_lines\.py:20  12 calls of matmul, tanh, add: 557,056 FLOPs, 192 KiB$",
        r"^longest edge: input_1:1 is read by add_1:1, 3 ops later$",
        r"^norm was called through Mixer\.forward > Tensor\.norm > norm$",
    ],
    "distillation": [
        r"^step   0  distance at 0: \d\.\d+, at 2: 0\.[3-9]\d+, of outputs: 0\.[2-9]\d+$",
        r"^step 150  distance at 0: 0\.[01]\d+, at 2: 0\.[01]\d+, of outputs: 0\.0\d+$",
        r"^teacher has gradients: False$",
    ],
    "graph_questions": [
        r"^3 ways through, with 8, 15, 19 ops$",
        r"^bottom\.0\.weight is read by conv2d_3:1 and reaches 12 of 21 ops$",
        r"^all data passes input_1:1 -> conv2d_1:1 -> relu_1:1 -> cat_2:1 -> .* -> output_1:1$",
        r"^the longest path has 301,440 of 302,464 FLOPs$",
        r"^the root feeds bottom\.0, down1\.0, down2\.0, up1\.0, up2\.0$",
    ],
}


def test_every_example_is_run() -> None:
    in_files_of_their_own = {"gallery"}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(FACTS) | in_files_of_their_own


@pytest.mark.parametrize("name", FACTS)
def test_example(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        capture_output=True, encoding="utf-8", timeout=300, cwd=tmp_path,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for fact in FACTS[name]:
        assert re.search(fact, result.stdout, re.M), f"{fact} is not in\n{result.stdout}"
    assert list(tmp_path.iterdir()) == []
