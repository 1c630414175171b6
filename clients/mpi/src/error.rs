//! What keeps an access from being atomic, and how the program hears of it: as an MPI error on the file, before any I/O.
//!
//! MPI programs often ignore the codes of MPI-IO (files return errors by default), and an error string of MPI has no room
//! for details. So the details go to stderr once, where the error is found, and the code says which of a few kinds it is.
//! The codes are of a class of their own: some libraries garble the text of a code added to one of MPI's classes.

use std::ffi::{CString, c_int};
use std::sync::OnceLock;

use elbow_lock::LockError;
use elbow_ranges::PatternError;

use crate::layout::LayoutError;
use crate::native::{Native, call, call_back};

/// Why an access is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpiError {
    /// The MPI library's own error; it has been through the error handler already.
    #[error("MPI error {0}")]
    Native(c_int),
    /// Another rank has found the trouble and told of it.
    #[error("another process could not take part")]
    Elsewhere,
    #[error("{0}")]
    Locks(#[from] LockError),
    #[error("the file type of the view cannot be locked exactly: {0}")]
    Datatype(String),
    #[error("{0}")]
    Unsupported(String),
}

/// The texts of the error codes.
const KINDS: [&str; 5] = [
    "elbow: atomic access refused, another process could not take part",
    "elbow: no lock to be had from the lock service (details on stderr)",
    "elbow: the lock was lost, the access may not have been atomic (details on stderr)",
    "elbow: the view's file type cannot be locked exactly (details on stderr)",
    "elbow: not supported in atomic mode (details on stderr)",
];

impl From<LayoutError> for MpiError {
    fn from(error: LayoutError) -> Self {
        MpiError::Datatype(error.to_string())
    }
}

impl From<PatternError> for MpiError {
    fn from(error: PatternError) -> Self {
        MpiError::Datatype(error.to_string())
    }
}

impl MpiError {
    /// The library's code as a result.
    pub(crate) fn of_native(code: c_int) -> Result<(), MpiError> {
        if code == 0 { Ok(()) } else { Err(MpiError::Native(code)) }
    }

    /// An error of the library on a handle that the program does not know, told to the error handler of the one it knows.
    pub(crate) fn handled_on(self, native: &Native, file: usize) -> MpiError {
        if let MpiError::Native(code) = self {
            call_back!(native, "PMPI_File_call_errhandler", file => usize, code => c_int);
        }
        self
    }

    fn kind(&self) -> usize {
        match self {
            MpiError::Native(_) | MpiError::Elsewhere => 0,
            MpiError::Locks(LockError::Lost { .. }) => 2,
            MpiError::Locks(_) => 1,
            MpiError::Datatype(_) => 3,
            MpiError::Unsupported(_) => 4,
        }
    }

    /// Tells the program: raises an MPI error on the file and gives its code.
    pub(crate) fn raise(&self, native: &Native, file: usize, doing: &str) -> c_int {
        if let MpiError::Native(code) = self {
            return *code;
        }
        if !matches!(self, MpiError::Elsewhere) {
            let line = format!("elbow: {doing}: {self}\n");
            eprint!("{line}"); // one piece, so that those of several processes do not mix
        }
        let code = codes(native)[self.kind()];
        let handled = call_back!(native, "PMPI_File_call_errhandler", file => usize, code => c_int);
        if handled == 0 { code } else { handled }
    }
}

/// One error code for each kind.
fn codes(native: &Native) -> &'static [c_int; KINDS.len()] {
    static CODES: OnceLock<[c_int; KINDS.len()]> = OnceLock::new();
    CODES.get_or_init(|| {
        let mut class = native.abi.err_other;
        call!(native, "PMPI_Add_error_class", &raw mut class => *mut c_int);
        describe(native, class, "elbow: atomic mode");
        KINDS.map(|text| {
            let mut code = class;
            call!(native, "PMPI_Add_error_code", class => c_int, &raw mut code => *mut c_int);
            describe(native, code, text);
            code
        })
    })
}

fn describe(native: &Native, code: c_int, text: &str) {
    let text = CString::new(text).unwrap_or_default();
    call!(native, "PMPI_Add_error_string", code => c_int, text.as_ptr() => *const std::ffi::c_char);
}
