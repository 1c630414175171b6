"""The demo leaves nothing behind, however it ends, and what failed is said in the words of what failed.

    python3 -m unittest discover --start-directory bench/tests

It hid what umount said, and left a mount and a directory in memory behind.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
from harness import storage
from harness.build import BUILT

FEW = ["--files", "60"]


class Demo(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="elbow-test-")
        self.addCleanup(place.cleanup)
        self.place = Path(place.name).resolve()

    def start(self, *options):
        # Who starts the tests may ignore signals, and so would the demo.
        command = ["env", "--default-signal", sys.executable, BENCH / "demo.py", *FEW, "--work", self.place, *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_nothing_is_left(self):
        self.assertNotIn(str(self.place), Path("/proc/self/mounts").read_text())
        self.assertEqual(os.listdir(self.place), [])

    def test_what_is_shown_ends_with_commands_to_try(self):
        out, err = self.start().communicate()
        self.assertIn("the trees are equal", out, err)
        self.assertEqual(out.partition("try next:\n")[2].count("\n"), 3, out)
        self.assert_nothing_is_left()

    def test_a_program_that_fails_is_named(self):
        demo = self.start("--elbow", "/bin/false")
        _, err = demo.communicate()
        self.assertEqual((demo.returncode, err), (1, "demo: false: exit code 1: \n"))
        self.assert_nothing_is_left()

    def test_interruption_ends_the_job_and_cleans_up(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.interrupt(number)

    def test_interruption_before_the_storage_is_mounted_cleans_up_too(self):
        """What was mounted a moment later stayed."""
        with tempfile.TemporaryDirectory() as programs:
            late, started = Path(programs, "slowfs"), Path(programs, "started")
            late.write_text(f'#!/bin/sh\n: >{started}; sleep 1\nexec {BUILT / "slowfs"} "$@"\n')
            late.chmod(0o755)
            self.interrupt(signal.SIGINT, "--programs", programs, when=started.exists)

    def interrupt(self, number, *options, when=lambda: True):
        demo = self.start(*options)
        while not demo.stdout.readline().startswith("demo: slow storage"):
            self.assertIsNone(demo.poll(), demo.stderr)
        while not when():
            time.sleep(0.01)
        demo.send_signal(number)
        _, err = demo.communicate()
        self.assertEqual(demo.returncode, 128 + number, err)
        self.assert_nothing_is_left()


@unittest.skipUnless(os.geteuid() == 0, "only root may mount a file system")
class Unmounting(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="elbow-test-")
        self.addCleanup(place.cleanup)
        self.mount = Path(place.name) / "a mount"
        self.mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", self.mount], check=True)

    def test_what_stays_busy_is_detached_and_the_error_is_umounts_own(self):
        with open(self.mount / "file", "w"):
            with self.assertRaisesRegex(RuntimeError, "umount .*a mount: .*busy"):
                storage.unmount(self.mount, patience=0)
        self.assertFalse(storage.is_mounted(self.mount))

    def test_a_mount_is_gone_after_unmounting(self):
        self.assertTrue(storage.is_mounted(self.mount))
        storage.unmount(self.mount)
        self.assertFalse(storage.is_mounted(self.mount))


if __name__ == "__main__":
    unittest.main()
