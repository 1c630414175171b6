//! Whether writes in atomic mode are done by windows ([`crate::windows`]): what the environment says, and the hints of the program.

use crate::error::MpiError;

const VARIABLE: &str = "ELBOW_MPI_SIEVING";

/// Whether to sieve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sieving {
    Never,
    /// Where it is quicker.
    Automatic,
    /// Wherever it can be done.
    Always,
}

impl Sieving {
    /// The program's hint that its pieces be written one by one counts, unless it is overruled.
    pub(crate) fn unless_hinted(self, is_forbidden: bool) -> Self {
        match self {
            Sieving::Automatic if is_forbidden => Sieving::Never,
            said => said,
        }
    }
}

/// What the environment says.
///
/// # Errors
/// It says something that is none.
pub(crate) fn from_environment() -> Result<Sieving, MpiError> {
    match std::env::var(VARIABLE) {
        // Who writes into a gap without our locks may lose what is written: nobody gets that without having asked for it.
        Err(std::env::VarError::NotPresent) => Ok(Sieving::Never),
        Ok(text) => sieving(&text),
        Err(error) => Err(MpiError::Unsupported(format!("{VARIABLE}: {error}"))),
    }
}

fn sieving(text: &str) -> Result<Sieving, MpiError> {
    match text {
        "never" => Ok(Sieving::Never),
        "automatic" => Ok(Sieving::Automatic),
        "always" => Ok(Sieving::Always),
        other => Err(MpiError::Unsupported(format!(
            "{VARIABLE} is `{other}`; it may be never, automatic or always"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sieving_is_one_of_three_words_and_a_hint_of_the_program_ends_it() {
        assert_eq!(sieving("never").unwrap(), Sieving::Never);
        assert_eq!(sieving("always").unwrap().unless_hinted(true), Sieving::Always);
        assert_eq!(sieving("automatic").unwrap().unless_hinted(true), Sieving::Never);
        assert_eq!(sieving("automatic").unwrap().unless_hinted(false), Sieving::Automatic);
        assert!(
            sieving("on")
                .unwrap_err()
                .to_string()
                .contains("never, automatic or always")
        );
    }
}
