//! `--via`: a directory that is reached by ssh, instead of through its mount.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use elbow_file::{Handle, ShowName, Storage};
use elbow_job::Elsewhere;
use elbow_mount::{job_mounts, sshfs_source};
use elbow_remote::{BadTarget, ConnectError, Login, Ssh, SshTarget};
use serde::{Deserialize, Serialize};

use crate::signals;

/// Another program than ssh(1).
const SSH: &str = "ELBOW_SSH";
/// Where `elbow` is at the far end.
const FAR_ELBOW: &str = "ELBOW_VIA_PROGRAM";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// By ssh where the directory is an sshfs mount of a machine that lets us in without a question.
    Auto,
    /// Through the mount.
    Mount,
    /// There.
    Ssh(SshTarget),
}

impl FromStr for Via {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        match text {
            "auto" => Ok(Self::Auto),
            "mount" => Ok(Self::Mount),
            other => other.parse().map(Self::Ssh),
        }
    }
}

/// How the storage of a directory is reached. Of several directories the way that knows least of what is there stands for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reached {
    /// Through the file system that is mounted here.
    #[default]
    Mount,
    /// By ssh, through the SFTP server at the far end.
    Sftp,
    /// By ssh, through `elbow` at the far end.
    Elbow,
}

/// A storage at the end of a connection.
pub(crate) struct Connected {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) root: Handle,
    pub(crate) reached: Reached,
    /// What is known by that, and not by its name here.
    pub(crate) elsewhere: Elsewhere,
    /// By what it is stored, and where, in words.
    pub(crate) note: String,
    pub(crate) connection: Ssh,
}

/// A place to connect to.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) target: SshTarget,
    /// The directory there.
    pub(crate) root: PathBuf,
    /// No connection is no error.
    pub(crate) is_optional: bool,
}

impl Via {
    /// Where the directories are to be reached, each; `None`: through the mount.
    pub(crate) fn of_each(&self, directories: &[PathBuf]) -> anyhow::Result<Vec<Option<Far>>> {
        if let Self::Ssh(SshTarget { path: Some(path), .. }) = self {
            ensure!(
                directories.len() == 1,
                "--via with a path ({}) is for one directory; leave the path out where each has the same path there",
                path.shown()
            );
        }
        directories.iter().map(|directory| self.of(directory)).collect()
    }

    fn of(&self, directory: &Path) -> anyhow::Result<Option<Far>> {
        Ok(match self {
            // The job around it stores what is done there.
            _ if is_in_job(directory) => None,
            Self::Mount => None,
            Self::Auto => sshfs_source(directory)?.and_then(|(host, path)| of_mount(&host, path)),
            Self::Ssh(target) => Some(Far {
                root: match &target.path {
                    Some(path) => path.clone(),
                    None => std::path::absolute(directory)?,
                },
                target: target.clone(),
                is_optional: false,
            }),
        })
    }
}

/// Whether what is at a path is shown by a job already: a variable of the environment is for what runs in it, too.
#[allow(clippy::disallowed_methods)] // where mounts are, and not the storage of a job
fn is_in_job(directory: &Path) -> bool {
    let path = directory.canonicalize();
    path.is_ok_and(|path| job_mounts().iter().any(|mount| path.starts_with(mount)))
}

/// What sshfs has mounted from `[USER@]HOST`.
fn of_mount(host: &str, path: PathBuf) -> Option<Far> {
    let (user, host) = match host.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, host),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('-');
    (is_name(host) && user.as_deref().is_none_or(is_name)).then(|| Far {
        target: SshTarget {
            user,
            host: host.to_owned(),
            port: None,
            path: None,
        },
        root: path,
        is_optional: true,
    })
}

impl Far {
    /// What `--via` is to say for the same.
    pub(crate) fn address(&self) -> String {
        match self.is_optional {
            true => "auto".to_owned(),
            false => self.target.address(),
        }
    }

    fn elsewhere(&self, path: PathBuf) -> Elsewhere {
        let machine = SshTarget {
            path: None,
            ..self.target.clone()
        };
        Elsewhere {
            machine: machine.address(),
            path,
        }
    }

    /// How to log in.
    pub(crate) fn login(&self, compresses: bool) -> Login {
        let named = |variable, usual: &str| std::env::var_os(variable).unwrap_or_else(|| OsString::from(usual));
        Login {
            ssh: named(SSH, "ssh"),
            elbow: named(FAR_ELBOW, "elbow"),
            is_batch: self.is_optional,
            compresses,
            is_ended: signals::is_end_pending,
        }
    }

    /// Connects to `elbow` there, or to the SFTP server where there is none.
    ///
    /// # Errors
    /// Why there is neither.
    pub(crate) fn connect(&self, compresses: bool) -> anyhow::Result<Connected> {
        let login = self.login(compresses);
        if login.elbow.is_empty() {
            return Ok(self.connect_sftp(&login, &format!("{FAR_ELBOW} is empty"))?);
        }
        match Ssh::connect(&self.target, &self.root, &login) {
            Ok((storage, connection)) => Ok(Connected {
                root: storage.root(),
                storage: Arc::new(storage),
                reached: Reached::Elbow,
                elsewhere: self.elsewhere(self.root.clone()),
                note: format!("by `elbow` on {}", self.target),
                connection,
            }),
            Err(error) if self.may_do_without(&error) => {
                let why = match &error {
                    ConnectError::NoProgram { program, .. } => format!("there is no `{program}`"),
                    ConnectError::NotOurs { said, .. } => format!("no `elbow` answered, but {said}"),
                    _ => "no `elbow` answered".to_owned(),
                };
                self.connect_sftp(&login, &why).map_err(|sftp| match sftp {
                    // There is a server, which knows of the directory.
                    ConnectError::Refused { .. } => anyhow!(sftp),
                    sftp => anyhow!("{}; nor is it reached by SFTP ({sftp})", Self::advice(&error)),
                })
            }
            Err(error) => Err(anyhow!(Self::advice(&error))),
        }
    }

    fn connect_sftp(&self, login: &Login, why: &str) -> Result<Connected, ConnectError> {
        let (storage, connection) = Ssh::connect_sftp(&self.target, &self.root, login)?;
        Ok(Connected {
            root: storage.root(),
            // As the server has resolved it.
            elsewhere: self.elsewhere(storage.path()),
            storage: storage.shown_as_own(),
            reached: Reached::Sftp,
            note: format!("over SFTP on {}: {why}", self.target),
            connection,
        })
    }

    /// Nobody there has said that it is `elbow`. An account that is for SFTP alone answers anything else, or with its end.
    fn may_do_without(&self, error: &ConnectError) -> bool {
        match error {
            ConnectError::NoProgram { .. } | ConnectError::NotOurs { .. } | ConnectError::Broken { .. } => true,
            ConnectError::Version { .. } => self.is_optional,
            _ => false,
        }
    }

    /// What is to be done about a connection that there is not.
    fn advice(error: &ConnectError) -> String {
        match error {
            ConnectError::NoProgram { .. } => format!("{error} ({FAR_ELBOW}=PATH)"),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sshfs_shows_of_itself_names_a_machine() {
        let far = of_mount("alice@box", "/data".into()).unwrap();
        assert_eq!((far.target.user.as_deref(), &*far.target.host), (Some("alice"), "box"));
        assert!(far.login(true).is_batch, "nobody is asked who did not ask for it");
        let far = of_mount("[fe80::1]", "data".into()).unwrap();
        assert_eq!((far.target.user, &*far.target.host), (None, "fe80::1"));
        assert!(
            of_mount("-oProxyCommand=x", "/".into()).is_none(),
            "it would be an option of ssh"
        );
        assert!(of_mount("-l@box", "/".into()).is_none());
    }

    #[test]
    fn an_address_with_a_path_is_for_one_directory() {
        let two = [PathBuf::from("/a"), PathBuf::from("/b")];
        let via: Via = "ssh://box/data".parse().unwrap();
        assert!(via.of_each(&two).unwrap_err().to_string().contains("one directory"));
        assert_eq!(
            via.of_each(&two[..1]).unwrap()[0].as_ref().unwrap().root,
            Path::new("/data")
        );
        let via: Via = "ssh://box".parse().unwrap();
        let roots: Vec<PathBuf> = via
            .of_each(&two)
            .unwrap()
            .into_iter()
            .flatten()
            .map(|far| far.root)
            .collect();
        assert_eq!(roots, two, "the same path as here");
    }
}
