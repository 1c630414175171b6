"""Do mpi4py programs get atomic mode too? mpi4py calls the `_c` functions with large counts where the MPI has them.

    overlap.py FILE ROUNDS      prints "torn T of R rounds"

All ranks write their number into the same noncontiguous bytes at once; whatever the order, all must be of one rank.
"""

import sys

from mpi4py import MPI

PIECES, PIECE, STRIDE = 48, 64, 96

world = MPI.COMM_WORLD
rounds = int(sys.argv[2])
comb = MPI.BYTE.Create_vector(PIECES, PIECE, STRIDE).Commit()
mine = bytearray([world.rank + 1]) * (PIECES * PIECE)
methods = [
    lambda file: file.Write_at(0, mine),
    lambda file: file.Write_at_all(0, mine),
    lambda file: file.Iwrite_at(0, mine).Wait(),
    lambda file: file.Iwrite_at_all(0, mine).Wait(),
]
torn = 0
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
file.Set_atomicity(True)
assert file.Get_atomicity()
file.Set_view(0, MPI.BYTE, comb)
for turn in range(rounds):
    got = bytearray(len(mine))
    world.Barrier()
    methods[turn % len(methods)](file)
    world.Barrier()
    status = MPI.Status()
    file.Read_at_all(0, got, status)
    assert status.Get_count(MPI.BYTE) == len(got)
    torn += len(set(got)) > 1
file.Close()
if world.rank == 0:
    print(f"torn {torn} of {rounds} rounds")
