//! The open objects of one connection, at the far end.
//!
//! The near end gives the numbers, and may name an object before it is open: whoever needs it waits until the request that opens it is
//! over. Requests are begun in the order in which they come, and each waits only for such as came before it; so some request can always
//! go on.

use std::collections::HashMap;
use std::sync::Arc;

use elbow_file::{Errno, Handle, Result};
use parking_lot::{Condvar, Mutex};

use crate::message::{Id, ROOT};

/// More than any process may have descriptors.
const OBJECTS_MAX: usize = 1 << 20;

/// An object that is open, will be, or could not be opened.
#[derive(Debug, Default)]
pub(crate) struct Object {
    handle: Mutex<Option<Result<Handle>>>,
    is_known: Condvar,
}

impl Object {
    fn open(handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            handle: Mutex::new(Some(Ok(handle))),
            is_known: Condvar::new(),
        })
    }

    /// What came of opening it.
    pub(crate) fn set(&self, opened: Result<Handle>) {
        *self.handle.lock() = Some(opened);
        self.is_known.notify_all();
    }

    /// The object, once it is open.
    ///
    /// # Errors
    /// ECANCELED when it could not be opened: who asked for that hears why.
    pub(crate) fn wait(&self) -> Result<Handle> {
        let mut handle = self.handle.lock();
        loop {
            match &*handle {
                Some(opened) => return opened.clone().map_err(|_| Errno::CANCELED),
                None => self.is_known.wait(&mut handle),
            }
        }
    }

    /// Takes the object to close it: no clone stays here.
    pub(crate) fn take(&self) -> Result<Handle> {
        let opened = self.wait();
        *self.handle.lock() = Some(Err(Errno::BADF));
        opened
    }
}

/// The objects of a connection by their numbers.
#[derive(Debug)]
pub(crate) struct Objects(HashMap<Id, Arc<Object>>);

impl Objects {
    pub(crate) fn new(root: Handle) -> Self {
        Self(HashMap::from([(ROOT, Object::open(root))]))
    }

    /// The object of a number.
    ///
    /// # Errors
    /// EBADF where there is none.
    pub(crate) fn get(&self, id: Id) -> Result<Arc<Object>> {
        self.0.get(&id).cloned().ok_or(Errno::BADF)
    }

    /// Makes room for an object that a request is going to open.
    ///
    /// # Errors
    /// EPROTO where the number is taken, EMFILE where there are too many.
    pub(crate) fn promise(&mut self, id: Id) -> Result<Arc<Object>> {
        if self.0.len() >= OBJECTS_MAX {
            return Err(Errno::MFILE);
        }
        let object = Arc::<Object>::default();
        match self.0.insert(id, object.clone()) {
            None => Ok(object),
            Some(before) => {
                self.0.insert(id, before);
                Err(Errno::PROTO)
            }
        }
    }

    /// Forgets an object: it is closed as soon as the requests that name it are over.
    pub(crate) fn release(&mut self, id: Id) {
        if id != ROOT {
            self.0.remove(&id);
        }
    }
}
