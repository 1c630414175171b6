//! The first words of the two ends, as the near one says and hears them.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use thiserror::Error;

use crate::frame::{self, Content};
use crate::message::{Greeting, MAGIC, UNANSWERED, VERSION, Welcome};
use crate::serve::NearUser;

/// So much of what is no protocol is shown.
const SHOWN_BYTES: usize = 200;

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The program could not be started.
    #[error("cannot run {}: {error}", program.display())]
    NotStarted {
        /// What was run.
        program: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// ssh(1) has not got there, and has said why.
    #[error("{host}: no connection; what ssh says about it is above")]
    NoLogin {
        /// Where.
        host: String,
    },
    /// There is no such program.
    #[error(
        "{host}: there is no `{program}` in the search path of a command by ssh; install it there, or say where it is"
    )]
    NoProgram {
        /// Where.
        host: String,
        /// What was to be run there.
        program: String,
    },
    /// It is not our protocol that came.
    #[error(
        "{host}: something else than `elbow serve` answered: {said}; a file that the shell reads at each start must not print anything"
    )]
    NotOurs {
        /// Where.
        host: String,
        /// The beginning of it.
        said: String,
    },
    /// It is not an SFTP server that answered.
    #[error("{host}: no SFTP server answered: {error}")]
    NotSftp {
        /// Where.
        host: String,
        /// What is wrong with the answer.
        error: io::Error,
    },
    /// The far end has another version.
    #[error(
        "{host}: `elbow` there speaks version {theirs} of the protocol, this one {VERSION}; install the same version on both"
    )]
    Version {
        /// Where.
        host: String,
        /// Its version.
        theirs: u16,
    },
    /// The far end cannot do it.
    #[error("{host}: {why}")]
    Refused {
        /// Where.
        host: String,
        /// Its words.
        why: String,
    },
    /// The end was asked for before anybody had answered.
    #[error("{host}: interrupted before it answered")]
    Interrupted {
        /// Where.
        host: String,
    },
    /// The connection failed.
    #[error("{host}: the connection failed: {error}")]
    Broken {
        /// Where.
        host: String,
        /// How.
        error: io::Error,
    },
}

/// Says the first words to a far end.
pub(crate) fn hail(to: &mut impl Write) -> io::Result<()> {
    let near = NearUser::of_this_process();
    let greeting = Greeting {
        version: VERSION,
        uid: near.uid,
        gid: near.gid,
    };
    to.write_all(&MAGIC)?;
    frame::encode(&greeting, &Content::NONE)?.write(to, UNANSWERED, &Content::NONE)
}

/// Hears whether the far end, which was greeted, can do what is asked for. `host` names it in errors.
///
/// # Errors
/// Why it cannot.
pub(crate) fn welcomed(host: &str, from: &mut impl Read) -> Result<(), ConnectError> {
    let broken = |error| ConnectError::Broken {
        host: host.to_owned(),
        error,
    };
    let mut magic = [0; MAGIC.len()];
    let read = frame::read_some(from, &mut magic).map_err(broken)?;
    if read == 0 {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    if magic[..read] != MAGIC {
        return Err(not_ours(host, &magic[..read], from));
    }
    let frame = frame::read(from).map_err(broken)?;
    let frame = frame.ok_or_else(|| broken(io::ErrorKind::UnexpectedEof.into()))?;
    let welcome: Welcome = frame.decode().map_err(broken)?;
    let host = host.to_owned();
    match welcome.refusal {
        _ if welcome.version != VERSION => Err(ConnectError::Version {
            host,
            theirs: welcome.version,
        }),
        Some(why) => Err(ConnectError::Refused { host, why }),
        None => Ok(()),
    }
}

fn not_ours(host: &str, begun: &[u8], from: &mut impl Read) -> ConnectError {
    let mut said = begun.to_vec();
    // One more read: whoever talks may go on for ever, or wait for us.
    let mut more = [0; SHOWN_BYTES];
    let read = from.read(&mut more).unwrap_or(0);
    said.extend_from_slice(&more[..read]);
    ConnectError::NotOurs {
        host: host.to_owned(),
        said: format!("{:?}", String::from_utf8_lossy(&said)),
    }
}
