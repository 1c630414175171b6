"""Is a collective, atomic write of parallel HDF5 whole?

    collective_h5.py FILE ROUNDS      prints "torn T of R rounds"

All ranks write their number into the same strided selection of a dataset, collectively, with the file in atomic mode.
"""

import sys

import h5py
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
rounds = int(sys.argv[2])
torn = 0
with h5py.File(sys.argv[1], "w", driver="mpio", comm=world) as file:
    file.atomic = True
    data = file.create_dataset("grid", (64, 96), dtype="u1")
    for turn in range(rounds):
        world.Barrier()
        with data.collective:
            data[:, : 48 + turn % 5] = numpy.full((64, 48 + turn % 5), world.rank + 1, dtype="u1")
        world.Barrier()
        with data.collective:
            got = data[:, : 48 + turn % 5]
        torn += len(numpy.unique(got)) > 1
if world.rank == 0:
    print(f"torn {torn} of {rounds} rounds")
