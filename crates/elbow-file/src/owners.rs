//! Users and groups that have other numbers on another machine.

use serde::{Deserialize, Serialize};

/// The number of this process's user and that of who acts for it elsewhere change places, and so do those of the groups; all others are what they are.
/// As they change places and not one becomes the other, nobody else's files look like the user's. Twice is nothing.
///
/// ```
/// use elbow_file::OwnerSwap;
///
/// let swap = OwnerSwap { uids: (1005, 1000), gids: (100, 100) };
/// assert_eq!(swap.of((1005, 100)), (1000, 100));
/// assert_eq!(swap.of((1000, 7)), (1005, 7));
/// assert_eq!(swap.of((0, 0)), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerSwap {
    /// Two numbers of users.
    pub uids: (u32, u32),
    /// Two numbers of groups.
    pub gids: (u32, u32),
}

impl OwnerSwap {
    /// A user and a group as the other machine knows them.
    #[must_use]
    pub fn of(&self, (uid, gid): (u32, u32)) -> (u32, u32) {
        (self.user(uid), self.group(gid))
    }

    /// Nobody has another number.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.uids.0 == self.uids.1 && self.gids.0 == self.gids.1
    }

    /// A user.
    #[must_use]
    pub fn user(&self, uid: u32) -> u32 {
        swapped(self.uids, uid)
    }

    /// A group.
    #[must_use]
    pub fn group(&self, gid: u32) -> u32 {
        swapped(self.gids, gid)
    }
}

fn swapped(pair: (u32, u32), id: u32) -> u32 {
    match id {
        id if id == pair.0 => pair.1,
        id if id == pair.1 => pair.0,
        id => id,
    }
}
