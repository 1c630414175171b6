//! A collective access in atomic mode.
//!
//! ```text
//!   all     what I cover ------------------.
//!   rank 0                 who overlaps whom? one lock on all of it -- the decision --.
//!   all                                                                             do it, each as told
//!   rank 0                                                              all done: unlock <---'
//! ```
//!
//! One process locks for all: if each locked for itself, one could wait inside the library's two-phase I/O for another
//! that waits for its lock. The verdict on writes:
//!
//! - nobody overlaps and there is no gap: the library's own collective function, which may gather the data in few processes
//!   and write it in large pieces;
//! - nobody overlaps, with gaps: each process writes its own pieces, all at once (two-phase I/O fills gaps by reading and
//!   writing back what is not locked);
//! - some overlap: in turns. A process's turn is one after the last turn of those of lower rank that it overlaps, so the
//!   outcome is that of rank order, and who does not overlap does not wait.
//!
//! Reads take one shared lock and the library's own function. Rank 0 looks at the lease before each turn. Sources: MPI
//! 4.0, section 14.6.1; turns are the coloring of Liao et al., *Scalable implementations of MPI atomicity for concurrent
//! overlapping I/O*, ICPP 2003.

use elbow_lock::Hold;
use elbow_ranges::Footprint;
use elbow_ranges::encoding::{Reader, Writer};

use crate::error::MpiError;
use crate::files::{Atomic, OpenFile};
use crate::native::{Native, call};
use crate::transfer::{Direction, Positioning, Transfer};
use crate::view::AccessFootprint;

/// How a collective access is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// Not at all.
    Refused,
    /// By the library's collective function.
    Together,
    /// By each process on its own, in so many turns.
    Turns(u64),
}

/// What rank 0 decided.
struct Plan {
    decision: Decision,
    /// The turn of each rank, if there are several.
    turns: Vec<u64>,
    hold: Option<Hold>,
}

/// Does `transfer` with all processes of the file.
///
/// # Errors
/// See [`MpiError`]; when one process cannot take part, none does I/O.
pub(crate) fn collective(
    native: &Native,
    file: &OpenFile,
    atomic: &Atomic,
    transfer: &Transfer,
) -> Result<(), MpiError> {
    if file.group.size == 1 {
        return transfer.independent(native, file, atomic);
    }
    let mine = transfer.cover(native, file, atomic);
    let offers = file.group.gather(native, &offer(&mine), atomic.gathered_bytes_max)?;
    let plan = if file.group.leads() {
        plan(transfer, atomic, &offers)
    } else {
        Ok(Plan {
            decision: Decision::Refused,
            turns: Vec::new(),
            hold: None,
        })
    };
    let decision = file.group.share_number(
        native,
        plan.as_ref()
            .map_or(Decision::Refused, |plan| plan.decision)
            .to_number(),
    )?;
    mine?;
    let plan = plan?;
    let code = match Decision::of_number(decision) {
        Decision::Refused => return Err(MpiError::Elsewhere),
        Decision::Together => transfer.go_collective(native, file),
        Decision::Turns(turns) => in_turns(native, file, transfer, &plan, turns)?,
    };
    file.group.arrived(native)?;
    plan.hold.map_or(Ok(()), Hold::finish)?;
    MpiError::of_native(code)
}

fn in_turns(native: &Native, file: &OpenFile, transfer: &Transfer, plan: &Plan, turns: u64) -> Result<i32, MpiError> {
    let mine = if turns > 1 {
        file.group.scatter_number(native, &plan.turns)?
    } else {
        0
    };
    let mut code = 0;
    for turn in 0..turns {
        if turn > 0 {
            file.group.arrived(native)?;
            let ours = plan.hold.as_ref().map_or(Ok(()), Hold::check);
            let go_on = file.group.share_number(native, u64::from(ours.is_ok()))?;
            ours?;
            if go_on == 0 {
                return Err(MpiError::Elsewhere);
            }
        }
        if turn == mine {
            code = transfer.go(native, file);
        }
    }
    Ok(code)
}

/// An access at the shared file pointer, by all processes in the order of their ranks.
///
/// # Errors
/// As [`collective`].
pub(crate) fn ordered(native: &Native, file: &OpenFile, atomic: &Atomic, transfer: &Transfer) -> Result<(), MpiError> {
    let mine = transfer.etypes(native, file, atomic);
    let counts = file
        .group
        .gather_numbers(native, mine.as_ref().copied().unwrap_or(REFUSED))?;
    let (places, pointer) = match places(native, file, atomic, &counts) {
        Ok((places, pointer)) => (places, Ok(pointer)),
        Err(trouble) => (vec![REFUSED; counts.len() + 1], Err(trouble)),
    };
    let place = file.group.scatter_number(native, &places[..counts.len()])?;
    let end = file
        .group
        .share_number(native, places.last().copied().unwrap_or(REFUSED))?;
    mine?;
    let pointer = pointer?;
    if place == REFUSED || end == REFUSED {
        return Err(MpiError::Elsewhere);
    }
    let done = collective(
        native,
        file,
        atomic,
        &Transfer {
            place: Positioning::At(place as i64),
            ..*transfer
        },
    );
    let moved =
        call!(native, "PMPI_File_seek_shared", file.handle => usize, end as i64 => i64, native.abi.seek_set => i32);
    done?;
    pointer.map_or(Ok(()), Hold::finish)?;
    MpiError::of_native(moved)
}

/// In place of a number of etypes: this process, or all, cannot take part.
const REFUSED: u64 = u64::MAX;

/// On rank 0: where each rank's part begins and the last one ends, with the lock on the pointer. Nothing elsewhere.
fn places(
    native: &Native,
    file: &OpenFile,
    atomic: &Atomic,
    counts: &[u64],
) -> Result<(Vec<u64>, Option<Hold>), MpiError> {
    if !file.group.leads() {
        return Ok((Vec::new(), None));
    }
    if counts.contains(&REFUSED) {
        return Err(MpiError::Elsewhere);
    }
    let pointer = atomic.lock_shared_pointer()?;
    let mut position = 0_i64;
    MpiError::of_native(
        call!(native, "PMPI_File_get_position_shared", file.handle => usize, &raw mut position => *mut i64),
    )?;
    let mut places = vec![position as u64];
    for count in counts {
        let end = places[places.len() - 1]
            .checked_add(*count)
            .filter(|end| i64::try_from(*end).is_ok());
        places.push(end.ok_or_else(|| MpiError::Unsupported("an access that ends beyond 2^63".into()))?);
    }
    Ok((places, Some(pointer)))
}

fn offer(mine: &Result<AccessFootprint, MpiError>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.bool(mine.is_ok());
    if let Ok(cover) = mine {
        cover.encode(&mut writer);
    }
    writer.finish()
}

/// What each rank would cover.
fn understood(offers: &[Vec<u8>]) -> Result<Vec<AccessFootprint>, MpiError> {
    let garbled = |error: String| {
        MpiError::Unsupported(format!(
            "another process described its access in another way ({error}): has it the same version?"
        ))
    };
    let mut covers = Vec::with_capacity(offers.len());
    for offer in offers {
        let mut reader = Reader::new(offer);
        if !reader.bool().map_err(|error| garbled(error.to_string()))? {
            return Err(MpiError::Elsewhere);
        }
        covers.push(AccessFootprint::decode(&mut reader).map_err(garbled)?);
    }
    Ok(covers)
}

fn plan(transfer: &Transfer, atomic: &Atomic, offers: &[Vec<u8>]) -> Result<Plan, MpiError> {
    let covers = understood(offers)?;
    let turns = match transfer.direction {
        Direction::Read => vec![0; offers.len()],
        Direction::Write => turns(&covers),
    };
    let last = turns.iter().max().copied().unwrap_or(0);
    let Some(all) = AccessFootprint::union(covers.iter().cloned()).footprint() else {
        return Ok(Plan {
            decision: Decision::Together,
            turns,
            hold: None,
        });
    };
    let bounds = all.bounds();
    let without_gap = last == 0
        && covers
            .iter()
            .filter_map(AccessFootprint::footprint)
            .map(|cover| cover.total_bytes())
            .sum::<u64>()
            == bounds.end - bounds.start;
    let (decision, all) = match transfer.direction {
        Direction::Read => (Decision::Together, all),
        Direction::Write if without_gap => (Decision::Together, Footprint::extent(bounds).unwrap_or(all)),
        Direction::Write => (Decision::Turns(last + 1), all),
    };
    let hold = atomic.lock(all, transfer.kind())?;
    Ok(Plan {
        decision,
        turns,
        hold: Some(hold),
    })
}

/// Each rank's turn: after those of lower rank that it overlaps.
fn turns(covers: &[AccessFootprint]) -> Vec<u64> {
    let footprints: Vec<Option<Footprint>> = covers.iter().map(AccessFootprint::footprint).collect();
    let mut turns = Vec::with_capacity(covers.len());
    for mine in &footprints {
        let overlaps =
            |other: &Option<Footprint>| matches!((mine, other), (Some(mine), Some(other)) if mine.overlaps(other));
        let before = footprints
            .iter()
            .zip(&turns)
            .filter(|(other, _)| overlaps(other))
            .map(|(_, turn)| turn + 1);
        let turn = before.max().unwrap_or(0_u64);
        turns.push(turn);
    }
    turns
}

impl Decision {
    fn to_number(self) -> u64 {
        match self {
            Decision::Refused => 0,
            Decision::Together => 1,
            Decision::Turns(turns) => 1 + turns,
        }
    }

    fn of_number(number: u64) -> Self {
        match number {
            0 => Decision::Refused,
            1 => Decision::Together,
            more => Decision::Turns(more - 1),
        }
    }
}
