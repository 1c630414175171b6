//! The functions of MPI-IO that programs find here instead of in their MPI library.
//!
//! Each is there twice: as `MPI_File_x`, which C programs call, and as `PMPI_File_x`, which Open MPI's Fortran functions
//! call (MPICH's call `MPI_File_x`); so Fortran programs of all kinds (`mpif.h`, `use mpi`, `use mpi_f08`) come here with
//! their arguments translated by the library's own Fortran part. Functions of data access also have a `_c` twin with a
//! large count. In nonatomic mode, and in calls that the library makes itself, all goes straight to the library.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::abi::Handle;
use crate::error::MpiError;
use crate::files::{self, Atomic, OpenFile, SplitAccess};
use crate::native::{InsideLibrary, Native, call};
use crate::status::Status;
use crate::transfer::{Direction, Positioning, Transfer};
use crate::view::View;
use crate::{collective, hints, request};

/// Exports a function under `MPI_<name>` and `PMPI_<name>`.
macro_rules! export {
    ($name:expr, ($($argument:ident: $type:ty),*), $body:expr) => {
        const _: () = {
            #[allow(clippy::too_many_arguments, reason = "MPI's functions")]
            fn serve($($argument: $type),*) -> c_int {
                $body
            }
            #[allow(unsafe_code)]
            // SAFETY: the name is MPI's, and the function is what MPI says of it.
            #[unsafe(export_name = concat!("MPI_", $name))]
            #[allow(clippy::too_many_arguments, reason = "MPI's functions")]
            extern "C" fn outer($($argument: $type),*) -> c_int {
                serve($($argument),*)
            }
            #[allow(unsafe_code)]
            // SAFETY: as above.
            #[unsafe(export_name = concat!("PMPI_", $name))]
            #[allow(clippy::too_many_arguments, reason = "MPI's functions")]
            extern "C" fn inner($($argument: $type),*) -> c_int {
                serve($($argument),*)
            }
        };
    };
}

pub(crate) use export;

/// How an access is carried out in atomic mode.
type AccessFunction = fn(&Native, &OpenFile, &Atomic, &Transfer) -> c_int;

/// Exports a function of data access, with a count of `int` and, under `_c`, of `MPI_Count`.
macro_rules! access {
    ($name:literal, ($($offset:ident)?), ($($status:ident)?), $direction:ident, $place:expr, $way:expr) => {
        access!(@one $name, $name, c_int, ($($offset)?), ($($status)?), $direction, $place, $way);
        access!(@one concat!($name, "_c"), $name, i64, ($($offset)?), ($($status)?), $direction, $place, $way);
    };
    (@one $exported:expr, $name:literal, $count:ty, ($($offset:ident)?), ($($status:ident)?), $direction:ident, $place:expr, $way:expr) => {
        export!($exported, (file: usize, $($offset: i64,)? buffer: *mut c_void, count: $count, datatype: usize $(, $status: *mut c_void)?), {
            let native = Native::get();
            let datatype = native.abi.handle(datatype);
            if let Some((known, atomic)) = atomic(file) {
                let status: *mut c_void = access!(@status native, $($status)?);
                let transfer = Transfer { direction: Direction::$direction, place: $place, buffer, count: i64::from(count), datatype, status };
                let way: AccessFunction = $way;
                return way(native, &known, &atomic, &transfer);
            }
            if native.has(concat!("P", "MPI_", $exported)) {
                return call!(native, concat!("PMPI_", $exported), file => usize, $($offset => i64,)? buffer => *mut c_void, count => $count,
                    datatype => Handle $(, $status => *mut c_void)?);
            }
            match c_int::try_from(count) {
                Ok(count) => call!(native, concat!("PMPI_", $name), file => usize, $($offset => i64,)? buffer => *mut c_void, count => c_int,
                    datatype => Handle $(, $status => *mut c_void)?),
                Err(_) => native.abi.err_count,
            }
        });
    };
    (@status $native:ident, $status:ident) => { $status };
    (@status $native:ident,) => { $native.abi.status_ignore as *mut c_void };
}

/// Exports the end of a split collective access.
macro_rules! end {
    ($name:literal) => {
        export!($name, (file: usize, buffer: *mut c_void, status: *mut c_void), {
            let native = Native::get();
            match files::find(file).and_then(|known| known.begun.lock().take()) {
                Some(begun) if !InsideLibrary::is_set() => ended(native, &begun, status),
                _ => call!(native, concat!("PMPI_", $name), file => usize, buffer => *mut c_void, status => *mut c_void),
            }
        });
    };
}

access!(
    "File_read_at",
    (offset),
    (status),
    Read,
    Positioning::At(offset),
    independent
);
access!(
    "File_write_at",
    (offset),
    (status),
    Write,
    Positioning::At(offset),
    independent
);
access!("File_read", (), (status), Read, Positioning::Own, independent);
access!("File_write", (), (status), Write, Positioning::Own, independent);
access!("File_read_shared", (), (status), Read, Positioning::Shared, independent);
access!(
    "File_write_shared",
    (),
    (status),
    Write,
    Positioning::Shared,
    independent
);

access!(
    "File_iread_at",
    (offset),
    (request),
    Read,
    Positioning::At(offset),
    at_once
);
access!(
    "File_iwrite_at",
    (offset),
    (request),
    Write,
    Positioning::At(offset),
    at_once
);
access!("File_iread", (), (request), Read, Positioning::Own, at_once);
access!("File_iwrite", (), (request), Write, Positioning::Own, at_once);
access!("File_iread_shared", (), (request), Read, Positioning::Shared, at_once);
access!("File_iwrite_shared", (), (request), Write, Positioning::Shared, at_once);
access!(
    "File_iread_at_all",
    (offset),
    (request),
    Read,
    Positioning::At(offset),
    at_once
);
access!(
    "File_iwrite_at_all",
    (offset),
    (request),
    Write,
    Positioning::At(offset),
    at_once
);
access!("File_iread_all", (), (request), Read, Positioning::Own, at_once);
access!("File_iwrite_all", (), (request), Write, Positioning::Own, at_once);

access!(
    "File_read_at_all",
    (offset),
    (status),
    Read,
    Positioning::At(offset),
    collective
);
access!(
    "File_write_at_all",
    (offset),
    (status),
    Write,
    Positioning::At(offset),
    collective
);
access!("File_read_all", (), (status), Read, Positioning::Own, collective);
access!("File_write_all", (), (status), Write, Positioning::Own, collective);
access!("File_read_ordered", (), (status), Read, Positioning::Shared, ordered);
access!("File_write_ordered", (), (status), Write, Positioning::Shared, ordered);

access!(
    "File_read_at_all_begin",
    (offset),
    (),
    Read,
    Positioning::At(offset),
    begin
);
access!(
    "File_write_at_all_begin",
    (offset),
    (),
    Write,
    Positioning::At(offset),
    begin
);
access!("File_read_all_begin", (), (), Read, Positioning::Own, begin);
access!("File_write_all_begin", (), (), Write, Positioning::Own, begin);
access!("File_read_ordered_begin", (), (), Read, Positioning::Shared, begin);
access!("File_write_ordered_begin", (), (), Write, Positioning::Shared, begin);
end!("File_read_at_all_end");
end!("File_write_at_all_end");
end!("File_read_all_end");
end!("File_write_all_end");
end!("File_read_ordered_end");
end!("File_write_ordered_end");

export!("File_open", (comm: usize, path: *const c_char, amode: c_int, info: usize, file: *mut usize), {
    let native = Native::get();
    // SAFETY: the program's arguments, as they came.
    #[allow(unsafe_code)]
    unsafe {
        files::open(native, native.abi.handle(comm), path, amode, native.abi.handle(info), file)
    }
});

export!("File_close", (file: *mut usize), {
    // SAFETY: the program's argument, as it came.
    #[allow(unsafe_code)]
    unsafe {
        files::close(Native::get(), file)
    }
});

export!(
    "File_set_view",
    (file: usize, displacement: i64, etype: usize, filetype: usize, representation: *const c_char, info: usize),
    {
        let native = Native::get();
        let code = call!(native, "PMPI_File_set_view", file => usize, displacement => i64, native.abi.handle(etype) => Handle,
            native.abi.handle(filetype) => Handle, representation => *const c_char, native.abi.handle(info) => Handle);
        changed(native, file);
        code
    }
);

export!("File_set_info", (file: usize, info: usize), {
    let native = Native::get();
    let code = call!(native, "PMPI_File_set_info", file => usize, native.abi.handle(info) => Handle);
    changed(native, file);
    code
});

export!("File_set_atomicity", (file: usize, flag: c_int), {
    let native = Native::get();
    let Some(known) = files::find(file).filter(|_| !InsideLibrary::is_set()) else {
        if flag == 0 {
            return call!(native, "PMPI_File_set_atomicity", file => usize, flag => c_int);
        }
        return MpiError::Unsupported("the file was not opened by MPI_File_open of this process".into()).raise(native, file, "MPI_File_set_atomicity");
    };
    outcome(native, &known, "MPI_File_set_atomicity", known.set_atomicity(native, flag != 0))
});

export!("File_get_atomicity", (file: usize, flag: *mut c_int), {
    let native = Native::get();
    let Some(known) = files::find(file) else {
        return call!(native, "PMPI_File_get_atomicity", file => usize, flag => *mut c_int);
    };
    // SAFETY: the program's pointer to an int.
    #[allow(unsafe_code)]
    unsafe {
        flag.write(known.atomic().is_some().into());
    }
    0
});

/// What an access of `bytes` at `offset` would lock, for tests: fills `ranges` with up to `room` pairs of begin and end and
/// gives their number, and of how many patterns they are; -1 if it would be refused or does not fit.
#[allow(unsafe_code)]
// SAFETY: the name is ours.
#[unsafe(no_mangle)]
unsafe extern "C" fn elbow_mpi_cover(
    file: usize,
    offset: i64,
    bytes: u64,
    ranges: *mut u64,
    room: usize,
    patterns: *mut i64,
) -> i64 {
    let native = Native::get();
    let cover = match View::of(native, file).and_then(|view| view.cover(offset, bytes)) {
        Ok(cover) => cover,
        Err(trouble) => {
            eprintln!("elbow: {trouble}");
            return -1;
        }
    };
    let Some(footprint) = cover.footprint() else {
        return 0;
    };
    let mut count = 0;
    for range in footprint.iter() {
        if count == room {
            return -1;
        }
        // SAFETY: the caller has room for as many pairs.
        unsafe {
            ranges.add(2 * count).write(range.start);
            ranges.add(2 * count + 1).write(range.end);
        }
        count += 1;
    }
    // SAFETY: the caller's number.
    unsafe { patterns.write(cover.len() as i64) };
    count as i64
}

/// The file if it is in atomic mode and the call is the program's.
fn atomic(file: usize) -> Option<(Arc<OpenFile>, Arc<Atomic>)> {
    if InsideLibrary::is_set() {
        return None;
    }
    let known = files::find(file)?;
    let atomic = known.atomic()?;
    Some((known, atomic))
}

/// The view or the hints of a file were set.
fn changed(native: &Native, file: usize) {
    if let Some((known, _)) = atomic(file) {
        known.forget_view();
        let _ = hints::keep_exact(native, file);
    }
}

fn outcome(native: &Native, file: &OpenFile, doing: &str, done: Result<(), MpiError>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(trouble) => trouble.raise(native, file.handle, &format!("{doing} of {}", file.path())),
    }
}

fn independent(native: &Native, file: &OpenFile, atomic: &Atomic, transfer: &Transfer) -> c_int {
    outcome(
        native,
        file,
        transfer.name(),
        transfer.independent(native, file, atomic),
    )
}

fn collective(native: &Native, file: &OpenFile, atomic: &Atomic, transfer: &Transfer) -> c_int {
    outcome(
        native,
        file,
        transfer.name(),
        collective::collective(native, file, atomic, transfer),
    )
}

fn ordered(native: &Native, file: &OpenFile, atomic: &Atomic, transfer: &Transfer) -> c_int {
    outcome(
        native,
        file,
        transfer.name(),
        collective::ordered(native, file, atomic, transfer),
    )
}

/// A nonblocking access: done here and now, each process for itself (a collective one may not wait for the others).
fn at_once(native: &Native, file: &OpenFile, atomic: &Atomic, transfer: &Transfer) -> c_int {
    let mut status = Status::default();
    let request = transfer.status;
    match independent(native, file, atomic, &transfer.with_status(&mut status)) {
        0 => request::done(native, status, request),
        code => code,
    }
}

/// The begin of a split collective access: all of it, as MPI allows (section 14.4.5).
fn begin(native: &Native, file: &OpenFile, atomic: &Atomic, transfer: &Transfer) -> c_int {
    let mut begun = file.begun.lock();
    if begun.is_some() {
        let trouble = MpiError::Unsupported("a split collective access was begun before the last one was ended".into());
        return trouble.raise(native, file.handle, transfer.name());
    }
    let mut status = Status::default();
    let kept = transfer.with_status(&mut status);
    let code = if kept.place == Positioning::Shared {
        ordered(native, file, atomic, &kept)
    } else {
        collective(native, file, atomic, &kept)
    };
    if code == 0 {
        *begun = Some(SplitAccess { status });
    }
    code
}

fn ended(native: &Native, begun: &SplitAccess, status: *mut c_void) -> c_int {
    if status as usize != native.abi.status_ignore {
        // SAFETY: the program's status, which is as long as the library says.
        #[allow(unsafe_code)]
        unsafe {
            std::ptr::copy_nonoverlapping(begun.status.0.as_ptr(), status.cast::<u8>(), native.abi.status_bytes);
        }
    }
    0
}
