//! The two numbers of a shard that only grow: requests in the order of asking, and fencing tokens.
//!
//! One counter serves all files of the shard, so a file's tokens go on growing when nobody has used it for a while and
//! everything about it was dropped: memory holds what is locked, not what ever was. Over a restart they grow because the
//! epoch of the service is the high part of a token.

use crate::message::Token;

/// Tokens that are kept back for requests already in queues when the rest has been given: 128 for each of 2^29, which would take 400 GB.
const RESERVE: u64 = 1 << 36;

#[derive(Debug)]
pub(crate) struct Sequence {
    number: u64,
    token: u64,
    end: u64,
}

impl Sequence {
    /// Starts in an epoch of the service.
    pub(crate) fn new(epoch: u32) -> Self {
        assert!(
            epoch < 1 << (64 - Token::COUNTER_BITS),
            "epoch {epoch} does not fit a token"
        );
        let token = Token::first_of(epoch).0;
        Self {
            number: 0,
            token,
            end: token + (1 << Token::COUNTER_BITS),
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn token(&mut self) -> Token {
        self.tokens(1)
    }

    /// Of an answer that grants nothing. What gives something back is never refused: where tokens run out, it has the last one again.
    pub(crate) fn token_of_unlock(&mut self) -> Token {
        match self.is_exhausted() {
            true => Token(self.token - 1),
            false => self.token(),
        }
    }

    /// The first of so many that belong to one grant.
    pub(crate) fn tokens(&mut self, count: u64) -> Token {
        assert!(
            self.end - self.token >= count,
            "more than 2^40 tokens in one epoch of a shard"
        );
        self.token += count;
        Token(self.token - count)
    }

    /// Whether nothing new should be granted before the service is restarted: after 2^40 grants, 12 days at a million
    /// each second, or 2^33 to proxies.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.end - self.token < RESERVE
    }
}

#[cfg(test)]
impl Sequence {
    /// Of which so many tokens are left.
    pub(crate) fn with_left(epoch: u32, left: u64) -> Self {
        let mut sequence = Self::new(epoch);
        sequence.token = sequence.end - left;
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stay_within_their_epoch_and_run_out_before_they_end() {
        let mut sequence = Sequence::new(7);
        assert_eq!(sequence.tokens(3), Token::first_of(7));
        assert_eq!(sequence.token(), Token(Token::first_of(7).0 + 3));
        assert!(!sequence.is_exhausted());
        sequence.token = sequence.end - RESERVE + 1;
        assert!(sequence.is_exhausted());
        assert_eq!(sequence.token().epoch(), 7);
    }
}
