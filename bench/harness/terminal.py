"""Terminals that a script types into, and what was to be seen in them, with times.

Each is a tmux session, because tmux is what knows how a terminal draws what programs print. `tick` looks at all of them; what
changed since the last look is kept as (seconds since the clock started, name of the terminal, its rows).
"""

import subprocess
import time

from .inputs import need_programs

LOOK = 0.08  # Seconds between two looks: each takes processor time from what is looked at.
KEYSTROKE = 0.03  # Seconds, about as somebody types who knows what to type.
PROMPT = "$"


class Stuck(Exception):
    """A terminal that does not show what it is waited for; the message has its screen."""


class Terminals:
    """Terminals of one size, side by side; a context manager that ends them."""

    def __init__(self, work, columns, rows, environment):
        need_programs("tmux", "bash")
        self.call = ["tmux", "-S", str(work / "tmux"), "-f", "/dev/null"]
        self.columns, self.rows, self.environment = columns, rows, environment
        self.names, self.seen, self.screens = [], {}, []
        self.start = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._tmux("kill-server", check=False)

    def open(self, name, directory):
        """A shell in `directory`, and its prompt."""
        size = ["-x", str(self.columns), "-y", str(self.rows)]
        self._tmux("new-session", "-d", "-s", name, *size, "-c", directory, "bash", "--norc", "--noprofile")
        self.names.append(name)
        self.wait(name, self.is_idle, 10)

    def restart_clock(self):
        """What was seen before this is before 0."""
        now = time.monotonic()
        self.screens = [(round(seconds - (now - self.start), 3), name, rows) for seconds, name, rows in self.screens]
        self.start = now

    def seconds(self):
        return time.monotonic() - self.start

    def tick(self):
        """Looks once at all terminals."""
        for name in self.names:
            shown = self._tmux("capture-pane", "-p", "-t", name).split("\n")[:self.rows]
            rows = "\n".join(row.rstrip() for row in shown).rstrip("\n").split("\n")
            if self.seen.get(name) != rows:
                self.seen[name] = rows
                self.screens.append((round(self.seconds(), 3), name, rows))

    def type(self, name, text):
        for key in text:
            self._tmux("send-keys", "-t", name, "-l", key.replace(";", "\\;"))  # A plain one ends a command of tmux.
            self.look_for(KEYSTROKE)

    def enter(self, *names):
        for name in names:
            self._tmux("send-keys", "-t", name, "Enter")

    def look_for(self, seconds):
        """Goes on looking for so long."""
        until = time.monotonic() + seconds
        while True:
            self.tick()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(LOOK, left))

    def run(self, name, command, patience):
        """Types a command and waits for the next prompt."""
        self.type(name, command)
        self.enter(name)
        self.wait(name, self.is_idle, patience)

    def is_idle(self, name):
        """Whether the last row that is not empty is a prompt alone."""
        return next((row for row in reversed(self.seen[name]) if row), None) == PROMPT

    def wait(self, name, condition, patience):
        until = time.monotonic() + patience
        self.tick()
        while not condition(name):
            if time.monotonic() > until:
                raise Stuck(f"{name} after {patience} s:\n" + "\n".join(self.seen[name]).rstrip())
            self.look_for(LOOK)

    def _tmux(self, *words, check=True):
        return subprocess.run([*self.call, *map(str, words)], env=self.environment, check=check, capture_output=True, text=True).stdout
