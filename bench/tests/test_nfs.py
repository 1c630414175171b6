"""What is read of the kernel's counts of an NFS client."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import nfs, report

MOUNTSTATS = """device proc mounted on /proc with fstype proc
device 127.0.0.1:/a mounted on /mnt/other with fstype nfs statvers=1.1
\tper-op statistics
\t        NULL: 9 9 0 0 0 0 0 0 0
device 127.0.0.1:/b mounted on /mnt/b with fstype nfs4 statvers=1.1
\tage:\t12
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 0 0 0 0 0 0 0 0 0
\t      CREATE: 17 17 0 3876 2652 0 12 12 0

device tmpfs mounted on /run with fstype tmpfs
"""


def run(peer, repetition, **rpcs):
    return dict(storage="nfs3-2", says="NFS", job="tar", peer=peer, repetition=repetition, rival=False, seconds=1.0, details={},
                wrong=[], failed=None, server={"rpcs": rpcs})


class Counts(unittest.TestCase):
    def test_the_operations_of_one_mount_are_read(self):
        self.assertEqual(nfs.rpcs(MOUNTSTATS, "/mnt/b"), {"NULL": 1, "CREATE": 17})
        self.assertEqual(nfs.rpcs(MOUNTSTATS, "/mnt"), {})

    def test_the_median_run_is_shown_and_judged(self):
        results = report.Results()
        for repetition, sizes in enumerate([300, 100, 115]):
            results.add(**run("elbow", repetition, CREATE=sizes))
            results.add(**run("direct", repetition, CREATE=90, SETATTR=10))
        text = report.markdown(results)
        self.assertIn("| tar | elbow | 115 | CREATE 115 |", text)
        self.assertIn("| tar | direct | 100 | CREATE 90, SETATTR 10 |", text)
        self.assertIn("| nfs3-2: tar asks <= 1.1x the RPCs of the command alone | 1.15x | MISS |", text)


if __name__ == "__main__":
    unittest.main()
