"""A process among several that write to one array: `zarr_writers.py WHAT ARRAY URL NUMBER COUNT`, in an environment with zarr 2 or 3.

WHAT is `append` (values of its own), `attributes` (keys of its own) or `cells` (a cell of its own in a chunk that it shares). URL is that of the
lock service, or `-` to do without. It says `ready`, waits for a line, and begins.
"""

import sys

import zarr


def opened(path, url):
    if url == "-":
        return zarr.open_array(path, mode="r+")
    if zarr.__version__.startswith("2."):
        from elbowroom.zarr import Synchronizer

        return zarr.open_array(path, mode="r+", synchronizer=Synchronizer(path, url))
    from elbowroom.zarr import Synchronized

    return zarr.open_array(Synchronized(path, url), mode="r+")


def main(what, path, url, number, count):
    array = opened(path, url)
    print("ready", flush=True)
    sys.stdin.readline()
    for value in range(1, count + 1):
        if what == "append":
            array.append([number * 1000 + value])
        elif what == "attributes":
            array.attrs[f"{number}-{value}"] = value
        else:
            array[number] = value


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
