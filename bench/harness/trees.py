"""What is below a directory, as a value that two places can be compared by."""

import hashlib
import os
import stat

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo",
         stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}

# Everything that `tar` and friends promise to keep. Owners are left out: sftp servers change them as they may.
ALL = ("kind", "mode", "size", "mtime", "target", "links", "same_as", "content")
NEW = tuple(aspect for aspect in ALL if aspect != "mtime")  # What a copy made now has in common with its source.
NAMES = ("kind", "target")


def count(root):
    """How many names are below `root`: quick enough to say what was there at one instant."""
    return sum(len(names) + len(files) for _, names, files in os.walk(root))


def snapshot(root):
    """A dictionary from relative path to a dictionary of aspects, for everything below `root` (not `root` itself)."""
    tree, first_names = {}, {}
    for directory, subdirectories, files in os.walk(root):
        for name in sorted(subdirectories + files):
            path = os.path.join(directory, name)
            tree[os.path.relpath(path, root)] = _describe(path, root, first_names)
        subdirectories.sort()
    return tree


def _describe(path, root, first_names):
    found = os.lstat(path)
    kind = KINDS[stat.S_IFMT(found.st_mode)]
    entry = {"kind": kind, "mode": stat.S_IMODE(found.st_mode), "mtime": found.st_mtime_ns}
    if kind == "directory":
        return entry
    first = first_names.setdefault((found.st_dev, found.st_ino), os.path.relpath(path, root))
    same_as = first if os.path.join(root, first) != path else None
    entry |= {"size": found.st_size, "links": found.st_nlink, "same_as": same_as}
    if kind == "symlink":
        entry["target"] = os.readlink(path)
    if kind == "file":
        with open(path, "rb") as file:
            entry["content"] = hashlib.file_digest(file, "sha1").hexdigest()
    return entry


def difference(found, expected, aspects=ALL, ignored=lambda path: False):
    """Sentences that say how `found` differs from `expected`; an empty list when it does not."""
    lines = [f"missing: {path}" for path in sorted(expected.keys() - found.keys()) if not ignored(path)]
    lines += [f"not expected: {path}" for path in sorted(found.keys() - expected.keys()) if not ignored(path)]
    for path in sorted(expected.keys() & found.keys()):
        for aspect in aspects if not ignored(path) else NAMES:
            if found[path].get(aspect) != expected[path].get(aspect):
                lines.append(f"{path}: {aspect} is {found[path].get(aspect)}, expected {expected[path].get(aspect)}")
    return lines
