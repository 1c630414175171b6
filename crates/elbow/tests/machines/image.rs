//! What a machine boots: a kernel of Debian's, and a root that lies in its memory.
//!
//! ```text
//!   fixtures/machine    kernel, modules, NFS, busybox (scripts/setup.sh)  ──┐
//!   programs of this machine, elbow, and the libraries that they ask for ──┴─> root ──> initrd (cpio)
//! ```
//!
//! Nothing of it needs root, and the machine sees nothing of the one that it runs on. Busybox is there for what only starts a machine;
//! what a job runs are the programs that it would run here.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::machine::INIT;

/// Of the fixtures.
const FETCHED: [&str; 6] = [
    "bin/busybox",
    "sbin/rpc.nfsd",
    "sbin/rpc.mountd",
    "sbin/exportfs",
    "sbin/mount.nfs",
    "sbin/rpcbind",
];
/// Of this machine.
const HERE: [&str; 12] = [
    "/usr/sbin/tc",
    "/usr/bin/find",
    "/usr/bin/xargs",
    "/usr/bin/sort",
    "/usr/bin/sha1sum",
    "/bin/cat",
    "/bin/chmod",
    "/bin/dash",
    "/bin/mkdir",
    "/bin/mv",
    "/bin/rm",
    "/bin/sleep",
];
/// With those that they need.
const MODULES: [&str; 11] = [
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "virtio_blk",
    "fuse",
    "nfsd",
    "nfs",
    "nfsv3",
    "nfsv4",
    "sch_netem",
    "null_blk",
];
/// Where programs of NFS look for what is exported and what is called how, and rpcbind whom to become.
const SETTINGS: [(&str, &str); 7] = [
    (
        "exports",
        "/export *(rw,sync,no_root_squash,insecure,no_subtree_check,fsid=0)\n",
    ),
    (
        "services",
        "sunrpc 111/tcp\nsunrpc 111/udp\nnfs 2049/tcp\nnfs 2049/udp\n",
    ),
    ("protocols", "tcp 6 TCP\nudp 17 UDP\n"),
    (
        "rpc",
        "portmapper 100000 portmap\nnfs 100003 nfsprog\nmountd 100005 mount\n",
    ),
    (
        "netconfig",
        "udp tpi_clts v inet udp - -\ntcp tpi_cots_ord v inet tcp - -\nlocal tpi_cots_ord - loopback - - -\n",
    ),
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/sh\n_rpc:x:0:0::/run/rpcbind:/bin/sh\n",
    ),
    ("group", "root:x:0:\n"),
];

/// A kernel, and the initrd that was made for it.
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
}

impl Image {
    /// Makes one in a directory, of what `scripts/setup.sh` brought; `None` where it did not.
    pub(crate) fn make(directory: &Path) -> Option<Self> {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
        let fixtures = std::env::var_os("ELBOW_FIXTURES").map_or(fixtures, PathBuf::from);
        let fetched = fixtures.join("machine").canonicalize().ok()?;
        let kernel = fetched.join("boot/vmlinuz");
        if !kernel.exists() {
            return None;
        }
        let root = Root {
            fetched: &fetched,
            place: directory.join("root"),
        };
        root.fill();
        let initrd = directory.join("initrd");
        root.pack(&initrd);
        fs::remove_dir_all(&root.place).expect("a directory to be removed");
        Some(Self { kernel, initrd })
    }
}

/// A directory that becomes the root of a machine.
struct Root<'a> {
    fetched: &'a Path,
    place: PathBuf,
}

impl Root<'_> {
    fn fill(&self) {
        self.make_directories();
        for name in FETCHED {
            self.add_program(&self.fetched.join(name), name);
        }
        for path in HERE {
            self.add_program(Path::new(path), path);
        }
        symlink("dash", self.place.join("bin/sh")).expect("a link");
        self.add_elbow();
        self.add_modules();
        for (name, text) in SETTINGS {
            fs::write(self.place.join("etc").join(name), text).expect("a file of settings");
        }
        self.write_program("init", INIT);
    }

    /// Those of Debian's root that were joined are links, as there.
    fn make_directories(&self) {
        for name in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(self.place.join("usr").join(name)).expect("a directory");
            symlink(Path::new("usr").join(name), self.place.join(name)).expect("a link");
        }
        for name in [
            "etc", "proc", "sys", "dev", "tmp", "run", "mnt", "root", "var/lib", "var/tmp",
        ] {
            fs::create_dir_all(self.place.join(name)).expect("a directory");
        }
        symlink("/run", self.place.join("var/run")).expect("a link");
    }

    /// A copy at a path, and of its libraries where it looks for them.
    fn add_program(&self, program: &Path, path: &str) {
        self.add(program, path);
        for library in self.libraries(program) {
            let library = Path::new(&library);
            let path = library.strip_prefix(self.fetched).unwrap_or(library);
            self.add(library, path);
        }
    }

    fn add(&self, file: &Path, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let place = self.place.join(path.strip_prefix("/").unwrap_or(path));
        fs::create_dir_all(place.parent().expect("a parent")).expect("a directory");
        fs::copy(file, &place).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    fn write_program(&self, name: &str, text: &str) {
        let path = self.place.join(name);
        fs::write(&path, text).expect("a program");
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a program");
    }

    /// What ldd(1) says; a static program has none.
    fn libraries(&self, program: &Path) -> Vec<String> {
        let fetched = self.fetched.join("usr/lib/x86_64-linux-gnu");
        let said = output(Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", fetched));
        let path = |line: &str| {
            let (name, _) = line.trim().rsplit_once(" (0x")?;
            let path = name.rsplit_once("=> ").map_or(name, |(_, path)| path);
            path.starts_with('/').then(|| path.to_owned())
        };
        said.lines().filter_map(path).collect()
    }

    /// Without what a debugger wants of it, which is most of it.
    fn add_elbow(&self) {
        let place = self.place.join("bin/elbow");
        self.add_program(Path::new(env!("CARGO_BIN_EXE_elbow")), "bin/elbow");
        output(Command::new("strip").arg(place));
    }

    fn add_modules(&self) {
        let versions = self.fetched.join("lib/modules");
        let version = fs::read_dir(&versions).expect("modules").next().expect("a version");
        let directory = version.expect("a version").path();
        let inside = |name: &str| {
            Path::new("lib/modules")
                .join(directory.file_name().expect("a name"))
                .join(name)
        };
        let needs = fs::read_to_string(directory.join("modules.dep")).expect("what modules need");
        let wanted = needs.lines().filter(|line| MODULES.contains(&name_of_module(line)));
        for file in wanted.flat_map(|line| line.split([':', ' ']).filter(|file| !file.is_empty())) {
            self.add(&directory.join(file), inside(file));
        }
        self.add(&directory.join("modules.dep"), inside("modules.dep"));
    }

    /// cpio(1) as the kernel reads it.
    fn pack(&self, archive: &Path) {
        let script = "find . | \"$0\" cpio -o -H newc -R 0:0";
        let busybox = self.fetched.join("bin/busybox");
        let archive = File::create(archive).expect("an archive");
        let mut command = Command::new("sh");
        command.args([OsStr::new("-c"), script.as_ref(), busybox.as_ref()]);
        let ended = command
            .current_dir(&self.place)
            .stdout(archive)
            .stderr(Stdio::null())
            .status();
        assert!(ended.expect("cpio").success());
    }
}

/// That of a line of modules.dep(5): `kernel/fs/nfsd/nfsd.ko: kernel/...`.
fn name_of_module(line: &str) -> &str {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_suffix(".ko").unwrap_or(file)
}

/// What a command says that may fail for a reason of its own (`ldd` of what is static).
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
