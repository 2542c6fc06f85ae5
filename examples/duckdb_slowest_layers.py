"""The ten slowest layers of the last five runs, by SQL over one Parquet file for each run."""

import tempfile
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import torch
from torch import nn

import torchlens as tl

RUNS = 7


def model() -> nn.Module:
    encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(50, 32), nn.TransformerEncoder(encoder, 2), nn.Linear(32, 50))


def keep_runs(folder: Path) -> None:
    """What a training script would do now and then: one file a run, whose name sorts by time."""
    torch.manual_seed(0)
    net = model()
    for run in range(RUNS):
        trace = tl.trace(net, torch.randint(50, (8, 16)), save=[])  # the tables need no values
        pq.write_table(trace.tables.layers, folder / f"run-{run:04}.parquet")


SLOWEST = """
    WITH runs AS (
        SELECT *, parse_filename(filename) AS run FROM read_parquet($files, filename = true)
    ),
    latest AS (SELECT DISTINCT run FROM runs ORDER BY run DESC LIMIT 5)
    SELECT
        layer_label,
        any_value(module) AS module,
        sum(num_passes)::INT AS passes,
        count(DISTINCT run) AS runs,
        sum(duration_ns) / 1e3 / count(DISTINCT run) AS us_a_run,
        any_value(flops) AS flops
    FROM runs JOIN latest USING (run)
    WHERE duration_ns IS NOT NULL
    GROUP BY layer_label
    ORDER BY us_a_run DESC
    LIMIT 10
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        keep_runs(Path(folder))
        slowest = duckdb.execute(SLOWEST, {"files": f"{folder}/*.parquet"}).fetchall()
    print(f"{'layer':<34} {'module':<22} {'passes':>6} {'runs':>4} {'us a run':>9} {'FLOPs':>9}")
    for layer, module, passes, runs, microseconds, flops in slowest:
        shown = "?" if flops is None else f"{flops:,}"
        print(f"{layer:<34} {module:<22} {passes:>6} {runs:>4} {microseconds:>9.1f} {shown:>9}")

    # A table of a trace in hand is asked without any file, by the name of its variable.
    edges = tl.trace(model(), torch.randint(50, (8, 16)), save=[]).tables.edges
    query = "SELECT parent, count(*) AS n FROM edges GROUP BY parent ORDER BY n DESC, parent LIMIT 1"
    label, readers = duckdb.sql(query).fetchall()[0]
    print(f"of {edges.num_rows} edges, {readers} lead from {label}")


if __name__ == "__main__":
    main()
