"""Feature templates evaluated by Polars over whole columns; their language is in `engine.templates`."""

import polars as pl

from engine.templates import MACRO, Macro, Template, check_columns, parse

__all__ = ["MACRO", "Macro", "Template", "check_columns", "expand", "parse"]


def _macro_column(macro: Macro) -> pl.Expr:
    """The value `row` positions away; beyond the edges _B-1, _B-2, … and _B+1, _B+2, …"""
    target = pl.col("position") + macro.row
    value = pl.col(f"x{macro.column}").shift(-macro.row)
    before = pl.lit("_B") + target.cast(pl.String)
    after = pl.lit("_B+") + (target - pl.col("length") + 1).cast(pl.String)
    if macro.row < 0:
        value = pl.when(target < 0).then(before).otherwise(value)
    elif macro.row > 0:
        value = pl.when(target >= pl.col("length")).then(after).otherwise(value)
    return value.alias(macro.name)


def expand(tokens: pl.DataFrame, templates: list[Template]) -> pl.DataFrame:
    """One text column per template (t00, t01, …), one row per token."""
    macros = sorted({macro for t in templates for macro in t.macros}, key=lambda m: (m.column, m.row))
    index = pl.int_range(pl.len(), dtype=pl.Int32)
    frame = tokens.with_columns(
        position=index.over("sequence"), length=pl.len().over("sequence").cast(pl.Int32)
    ).select(pl.len().alias("_") if not macros else [_macro_column(macro) for macro in macros])
    columns = [_expansion(template).alias(f"t{i:02d}") for i, template in enumerate(templates)]
    if not macros:
        return pl.select(*columns).select(pl.all().repeat_by(len(tokens)).explode()).head(len(tokens))
    return frame.select(columns)


def _expansion(template: Template) -> pl.Expr:
    pieces = [pl.col(part.name) if isinstance(part, Macro) else pl.lit(part) for part in template.parts]
    return pl.concat_str(pieces) if template.macros else pl.lit(template.line)
