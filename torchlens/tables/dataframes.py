"""Arrow tables as frames of pandas and polars. The only file that imports these, when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlens._arrow import is_category
from torchlens.errors import MissingLibraryError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """The table in pandas: columns of words are categories, all others are backed by Arrow and not copied."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingLibraryError(_missing("pandas", "to_pandas")) from error

    def dtype_of(data_type: pa.DataType) -> pd.ArrowDtype | None:
        return None if is_category(data_type) else pd.ArrowDtype(data_type)

    return table.to_pandas(types_mapper=dtype_of)


def to_polars(table: pa.Table) -> pl.DataFrame:
    """The table in polars, over the memory of the Arrow table where polars can; words become strings.

    Of two tables' words polars would join those of categories with categories only, and no list's items.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise MissingLibraryError(_missing("polars", "to_polars")) from error
    return pl.DataFrame(pl.from_arrow(table)).with_columns(pl.col(pl.Categorical).cast(pl.String))


def _missing(library: str, method: str) -> str:
    return (
        f"trace.{method}() needs {library}, which is not installed: pip install {library}; "
        "trace.to_arrow() works without it"
    )
