"""A lock service of its own for each test that asks for one."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import elbowroom
import pytest

# Started in the background of a shell, Python ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

ELBOW = os.environ.get("ELBOW") or shutil.which("elbow")


class Service:
    """`elbow lockd serve` on a Unix socket."""

    def __init__(self, directory, *options):
        self.url = f"unix:{directory}/locks"
        self.command = [ELBOW, "lockd", "serve", "--listen", self.url, *options]
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "listening on" in line, f"the lock service said {line!r}"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def directory():
    """A short path: that of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="elbow-py-") as path:
        yield pathlib.Path(path)


@pytest.fixture
def service(directory):
    assert ELBOW, "name the elbow binary in the environment variable ELBOW"
    service = Service(directory, "--ttl", "2s")
    yield service
    service.kill()


@pytest.fixture
def client(service):
    return elbowroom.LockClient(service.url)
