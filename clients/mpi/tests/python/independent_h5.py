"""Is an independent, atomic write of parallel HDF5 whole? It is one call of the program, and one write of MPI-IO for each row.

    independent_h5.py FILE ROUNDS      prints "torn T of R rounds"

All ranks write their number into the same strided selection of a dataset in a row, and of one in chunks, each for itself, with the
file in atomic mode. All but the last then read it, each for itself, while the last writes once more.
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
    row = file.create_dataset("row", (64, 96), dtype="u1")
    chunked = file.create_dataset("chunked", (64, 96), dtype="u1", chunks=(16, 32))
    for turn in range(rounds):
        width = 48 + turn % 5
        mine = numpy.full((64, width), world.rank + 1, dtype="u1")
        found = 0
        for data in (row, chunked):
            world.Barrier()
            data[:, :width] = mine
            world.Barrier()
            if world.rank == world.size - 1:
                data[:, :width] = mine
            else:
                found |= len(numpy.unique(data[:, :width])) > 1
        torn += world.allreduce(found, MPI.BOR)
if world.rank == 0:
    print(f"torn {torn} of {rounds} rounds")
