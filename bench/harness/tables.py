#!/usr/bin/env python3
"""Sorts of tables by DuckDB and Polars, run by the interpreter of `venv.py`; not imported by the bench.

    tables.py load KIND RAW DIRECTORY                  records to Parquet files
    tables.py duckdb|polars KIND DIRECTORY OUT MIB TMP  sorts them into one Parquet file
    tables.py unload KIND PARQUET RAW                  and back, to be checked as everybody's output is

Neither sorts raw records, so they get the form that costs them least: Parquet without compression, of columns as they like
them (s24: six UINTEGER; r100: two BLOB, key and rest), made outside of the timing. What they write is Parquet again.
"""

import os
import sys
from pathlib import Path

PIECE_RECORDS = 1 << 20
BYTES = {"s24": 24, "r100": 100}
KEY_BYTES = 10  # Of r100.


def load(kind, raw, directory):
    import numpy
    import polars

    directory = Path(directory)
    directory.mkdir()
    with open(raw, "rb") as file:
        pieces = iter(lambda: file.read(PIECE_RECORDS * BYTES[kind]), b"")
        for number, piece in enumerate(pieces):
            if kind == "s24":
                columns = numpy.frombuffer(piece, "<u4").reshape(-1, 6)
                table = polars.DataFrame({f"c{at}": numpy.ascontiguousarray(columns[:, at]) for at in range(6)})
            else:
                records = [piece[at:at + 100] for at in range(0, len(piece), 100)]
                table = polars.DataFrame({"c0": [record[:KEY_BYTES] for record in records],
                                          "c1": [record[KEY_BYTES:] for record in records]})
            table.write_parquet(directory / f"{number:05}.parquet", compression="uncompressed")


def duckdb(_, directory, out, mebibytes, scratch):
    import duckdb as engine

    connection = engine.connect()
    connection.execute(f"SET memory_limit='{mebibytes}MiB'")
    connection.execute(f"SET temp_directory='{scratch}'")
    connection.execute("SET preserve_insertion_order=false")  # Takes less memory; the order asked for holds all the same.
    connection.execute(f"SET threads={len(os.sched_getaffinity(0))}")
    connection.execute(f"COPY (SELECT * FROM read_parquet('{directory}/*.parquet') ORDER BY c0) "
                       f"TO '{out}' (FORMAT parquet, COMPRESSION uncompressed)")


def polars(_, directory, out, mebibytes, scratch):
    os.environ.update(POLARS_OOC_MEMORY_BUDGET_MB=mebibytes, POLARS_OOC_SPILL_DIR=scratch, POLARS_TEMP_DIR=scratch,
                      POLARS_TEMP_DIR_BASE_PATH=scratch, POLARS_MAX_THREADS=str(len(os.sched_getaffinity(0))))
    import polars as engine

    table = engine.scan_parquet(f"{directory}/*.parquet").sort("c0")
    table.sink_parquet(out, compression="uncompressed", engine="streaming")


def unload(kind, parquet, raw):
    import polars

    table = polars.scan_parquet(parquet)
    with open(raw, "wb") as file:
        for start in range(0, 1 << 40, PIECE_RECORDS):
            piece = table.slice(start, PIECE_RECORDS).collect()
            if piece.height == 0:
                return
            if kind == "s24":
                file.write(piece.to_numpy(order="c").astype("<u4").tobytes())
            else:
                file.write(b"".join(part for row in piece.iter_rows() for part in row))


if __name__ == "__main__":
    {"load": load, "duckdb": duckdb, "polars": polars, "unload": unload}[sys.argv[1]](*sys.argv[2:])
