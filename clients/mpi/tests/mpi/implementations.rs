//! The MPI installations of this machine, and how to compile and start programs with each.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One installed MPI, as one of its binary interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Mpi {
    /// For people.
    pub(crate) name: &'static str,
    /// The binary interface, by the name that `src/abi.rs` gives it.
    pub(crate) abi: &'static str,
    pub(crate) compiler: PathBuf,
    pub(crate) fortran: Option<PathBuf>,
    pub(crate) launcher: PathBuf,
    /// What the launcher needs to start more processes than there are processors, as root.
    pub(crate) options: &'static [&'static str],
}

/// What `scripts/setup.sh test` installs: two Debian packages, two from PyPI (one of them with two interfaces).
pub(crate) fn installed() -> Vec<Mpi> {
    let fixtures =
        std::env::var_os("ELBOW_FIXTURES").map_or_else(|| workspace().join("target/fixtures"), PathBuf::from);
    let (mpich, open_mpi) = (fixtures.join("mpi-mpich/bin"), fixtures.join("mpi-openmpi/bin"));
    let debian = Path::new("/usr/bin");
    let open_mpi_4: &[&str] = &["--allow-run-as-root", "--oversubscribe"];
    let open_mpi_5: &[&str] = &["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"];
    let all = [
        Mpi {
            name: "mpich 4",
            abi: "MPICH",
            compiler: debian.join("mpicc.mpich"),
            fortran: Some(debian.join("mpifort.mpich")),
            launcher: debian.join("mpirun.mpich"),
            options: &[],
        },
        Mpi {
            name: "open mpi 4",
            abi: "Open MPI",
            compiler: debian.join("mpicc.openmpi"),
            fortran: Some(debian.join("mpifort.openmpi")),
            launcher: debian.join("mpirun.openmpi"),
            options: open_mpi_4,
        },
        Mpi {
            name: "mpich 5",
            abi: "MPICH",
            compiler: mpich.join("mpicc"),
            fortran: None,
            launcher: mpich.join("mpirun"),
            options: &[],
        },
        Mpi {
            name: "mpich 5, standard interface",
            abi: "standard",
            compiler: mpich.join("mpicc_abi"),
            fortran: None,
            launcher: mpich.join("mpirun"),
            options: &[],
        },
        Mpi {
            name: "open mpi 5",
            abi: "Open MPI",
            compiler: open_mpi.join("mpicc"),
            fortran: None,
            launcher: open_mpi.join("mpirun"),
            options: open_mpi_5,
        },
    ];
    let (here, missing): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|mpi| mpi.compiler.exists() && mpi.launcher.exists());
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|mpi| mpi.name).collect();
        assert!(
            std::env::var_os("CI").is_none(),
            "not installed: {names:?}; scripts/setup.sh test installs them"
        );
        println!("SKIPPED: {names:?} not installed (scripts/setup.sh test)");
    }
    let only = std::env::var("MPI").ok();
    here.into_iter()
        .filter(|mpi| only.as_ref().is_none_or(|only| mpi.name.starts_with(only.as_str())))
        .collect()
}

impl Mpi {
    /// Compiles a program of `tests/c` (or `tests/fortran`, by its suffix) into `dir`.
    pub(crate) fn compile(&self, source: &str, dir: &Path) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let program = dir.join(format!(
            "{}-{}",
            source.file_stem().expect("a name").display(),
            self.name.replace([' ', ','], "-")
        ));
        let is_fortran = source
            .extension()
            .is_some_and(|suffix| suffix.to_string_lossy().starts_with('f'));
        let compiler = if is_fortran {
            self.fortran.as_ref().expect("a Fortran compiler")
        } else {
            &self.compiler
        };
        let mut command = Command::new(compiler);
        command.args(["-O1", "-g", "-o"]).arg(&program).arg(&source);
        if !is_fortran {
            command.args(["-Wall", "-Werror"]);
        }
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        program
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("clients/mpi is two levels down")
}
