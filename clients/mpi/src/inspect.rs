//! From an MPI datatype to its [`Layout`], by asking the library how the type was made.
//!
//! What the program described as a vector becomes a pattern of the same size; no list of pairs is made of it. Types made
//! by `_c` constructors (large counts) are read with `MPI_Type_get_contents_c` where the library has it.
//!
//! Source: MPI 4.0, section 5.1.13 (decoding a datatype) and 5.1.3, 5.1.4 (subarray, distributed array).

mod array;
mod numbers;

use std::ffi::c_int;

use crate::abi::{Combiner, Handle};
use crate::error::MpiError;
use crate::layout::Layout;
use crate::native::{Native, call};
use numbers::{Element, Numbers, count, product};

/// Types are not nested deeper than this; a real one has ten levels.
const DEPTH_MAX: u32 = 200;

/// How a type was made, as `MPI_Type_get_contents` gives it.
struct Contents {
    combiner: Combiner,
    /// `int` arguments, then those of `MPI_Aint`; or the large counts alone, where the type has some and its
    /// constructor takes no other numbers: the same numbers in the same order.
    numbers: Vec<i64>,
    types: Vec<Handle>,
}

/// Bytes of data in a datatype.
pub(crate) fn size_of(native: &Native, datatype: Handle) -> Result<u64, MpiError> {
    let mut size = -1_i64;
    let code = if native.has("PMPI_Type_size_c") {
        call!(native, "PMPI_Type_size_c", datatype => Handle, &raw mut size => *mut i64)
    } else {
        call!(native, "PMPI_Type_size_x", datatype => Handle, &raw mut size => *mut i64)
    };
    MpiError::of_native(code)?;
    u64::try_from(size).map_err(|_| MpiError::Datatype("its size is not known".into()))
}

/// Bytes from one copy of a datatype to the next.
pub(crate) fn extent_of(native: &Native, datatype: Handle) -> Result<i64, MpiError> {
    let (mut lower, mut extent) = (0_i64, 0_i64);
    let code = call!(native, "PMPI_Type_get_extent", datatype => Handle, &raw mut lower => *mut i64, &raw mut extent => *mut i64);
    MpiError::of_native(code)?;
    Ok(extent)
}

/// The layout of a datatype.
///
/// # Errors
/// [`MpiError::Datatype`]: it was made in a way that is not known here.
pub(crate) fn layout_of(native: &Native, datatype: Handle) -> Result<Layout, MpiError> {
    nested(native, datatype, 0)
}

/// Frees a datatype that a query gave, unless it is predefined.
pub(crate) fn free(native: &Native, datatype: Handle) {
    if let Ok((Combiner::Named | Combiner::Fortran90, _)) | Err(_) = envelope(native, datatype) {
        return;
    }
    let mut stored = native.abi.stored(datatype);
    call!(native, "PMPI_Type_free", &raw mut stored => *mut usize);
}

fn nested(native: &Native, datatype: Handle, depth: u32) -> Result<Layout, MpiError> {
    if depth > DEPTH_MAX {
        return Err(MpiError::Datatype(format!(
            "it is nested deeper than {DEPTH_MAX} levels"
        )));
    }
    let (combiner, counts) = envelope(native, datatype)?;
    if matches!(combiner, Combiner::Named | Combiner::Fortran90) {
        return predefined(native, datatype);
    }
    let contents = contents(native, datatype, combiner, &counts)?;
    let layout = made(native, &contents, depth);
    contents.types.iter().for_each(|datatype| free(native, *datatype));
    layout
}

fn predefined(native: &Native, datatype: Handle) -> Result<Layout, MpiError> {
    let size = size_of(native, datatype)?;
    let (mut lower, mut extent) = (0_i64, 0_i64);
    let code = call!(native, "PMPI_Type_get_true_extent", datatype => Handle, &raw mut lower => *mut i64, &raw mut extent => *mut i64);
    MpiError::of_native(code)?;
    match (lower, u64::try_from(extent), size) {
        (_, _, 0) => Ok(Layout::Run(0)),
        (0, Ok(extent), size) if extent == size => Ok(Layout::Run(size)),
        // The one predefined type with a gap before its end: a short and an int.
        (0, Ok(8), 6) => Ok(Layout::sequence([(0, Layout::Run(2)), (4, Layout::Run(4))])?),
        _ => Err(MpiError::Datatype(
            "a predefined type has gaps that are not known here".into(),
        )),
    }
}

/// How many `int`, `MPI_Aint`, large and datatype arguments a type was made from.
#[derive(Default)]
struct Counts {
    ints: i64,
    addresses: i64,
    large: i64,
    types: i64,
}

fn envelope(native: &Native, datatype: Handle) -> Result<(Combiner, Counts), MpiError> {
    let (mut counts, mut combiner) = (Counts::default(), 0);
    let code = if native.has("PMPI_Type_get_envelope_c") {
        call!(native, "PMPI_Type_get_envelope_c", datatype => Handle, &raw mut counts.ints => *mut i64, &raw mut counts.addresses => *mut i64,
            &raw mut counts.large => *mut i64, &raw mut counts.types => *mut i64, &raw mut combiner => *mut c_int)
    } else {
        let mut few = [0; 3];
        let [ints, addresses, types] = &mut few;
        let code = call!(native, "PMPI_Type_get_envelope", datatype => Handle, &raw mut *ints => *mut c_int, &raw mut *addresses => *mut c_int,
            &raw mut *types => *mut c_int, &raw mut combiner => *mut c_int);
        counts = Counts {
            ints: few[0].into(),
            addresses: few[1].into(),
            large: 0,
            types: few[2].into(),
        };
        code
    };
    MpiError::of_native(code)?;
    match native.abi.combiner(combiner) {
        Some(combiner) => Ok((combiner, counts)),
        None => Err(MpiError::Datatype(format!(
            "it was made in a way that is not known here (combiner {combiner})"
        ))),
    }
}

fn contents(native: &Native, datatype: Handle, combiner: Combiner, counts: &Counts) -> Result<Contents, MpiError> {
    let room = |count: i64| {
        usize::try_from(count).map_err(|_| MpiError::Datatype("its description has a negative length".into()))
    };
    let mut ints = vec![0 as c_int; room(counts.ints)?];
    let mut addresses = vec![0_i64; room(counts.addresses)?];
    let mut large = vec![0_i64; room(counts.large)?];
    let mut types = vec![0_u8; room(counts.types)? * native.abi.handle_bytes];
    let code = if native.has("PMPI_Type_get_contents_c") {
        call!(native, "PMPI_Type_get_contents_c", datatype => Handle, counts.ints => i64, counts.addresses => i64, counts.large => i64,
            counts.types => i64, ints.as_mut_ptr() => *mut c_int, addresses.as_mut_ptr() => *mut i64, large.as_mut_ptr() => *mut i64,
            types.as_mut_ptr() => *mut u8)
    } else {
        call!(native, "PMPI_Type_get_contents", datatype => Handle, counts.ints as c_int => c_int, counts.addresses as c_int => c_int,
            counts.types as c_int => c_int, ints.as_mut_ptr() => *mut c_int, addresses.as_mut_ptr() => *mut i64,
            types.as_mut_ptr() => *mut u8)
    };
    MpiError::of_native(code)?;
    // SAFETY: the library has put one handle in each place.
    #[allow(unsafe_code)]
    let types = types
        .chunks_exact(native.abi.handle_bytes)
        .map(|stored| unsafe { native.abi.load(stored.as_ptr()) })
        .collect();
    Ok(Contents {
        combiner,
        numbers: in_order(combiner, &ints, addresses, large),
        types,
    })
}

/// The numbers in the order of the constructor that takes no large counts.
fn in_order(combiner: Combiner, ints: &[c_int], addresses: Vec<i64>, large: Vec<i64>) -> Vec<i64> {
    let ints = ints.iter().map(|int| i64::from(*int));
    // How many ints come before the large counts.
    let before = match combiner {
        _ if large.is_empty() => return ints.chain(addresses).collect(),
        Combiner::Subarray => 1,
        Combiner::Darray => 3,
        _ => 0,
    };
    ints.clone()
        .take(before)
        .chain(large)
        .chain(ints.skip(before))
        .chain(addresses)
        .collect()
}

fn made(native: &Native, contents: &Contents, depth: u32) -> Result<Layout, MpiError> {
    let numbers = Numbers(&contents.numbers);
    if contents.combiner == Combiner::Struct {
        return structure(native, contents, depth);
    }
    let [old] = contents.types.as_slice() else {
        return Err(MpiError::Datatype(
            "its description names another number of types than one".into(),
        ));
    };
    let element = Element {
        layout: nested(native, *old, depth + 1)?,
        extent: extent_of(native, *old)?,
    };
    match contents.combiner {
        Combiner::Dup | Combiner::Resized => Ok(element.layout),
        Combiner::Contiguous => element.block(numbers.count(0)?),
        Combiner::Vector => element.vector(
            numbers.count(0)?,
            numbers.count(1)?,
            product(numbers.at(2)?, element.extent)?,
        ),
        Combiner::Hvector => element.vector(numbers.count(0)?, numbers.count(1)?, numbers.at(2)?),
        Combiner::Indexed => element.indexed(numbers.array(1, 0)?, numbers.array(1, 1)?, element.extent),
        Combiner::Hindexed => element.indexed(numbers.array(1, 0)?, numbers.array(1, 1)?, 1),
        Combiner::IndexedBlock => element.indexed(
            &vec![numbers.at(1)?; numbers.array(2, 0)?.len()],
            numbers.array(2, 0)?,
            element.extent,
        ),
        Combiner::HindexedBlock => element.indexed(
            &vec![numbers.at(1)?; numbers.array(2, 0)?.len()],
            numbers.array(2, 0)?,
            1,
        ),
        Combiner::Subarray => array::part(native, element, &numbers),
        Combiner::Darray => array::share(native, element, &numbers),
        Combiner::Named | Combiner::Fortran90 | Combiner::Struct => {
            Err(MpiError::Datatype("it describes itself".into()))
        }
    }
}

fn structure(native: &Native, contents: &Contents, depth: u32) -> Result<Layout, MpiError> {
    let numbers = Numbers(&contents.numbers);
    let (lengths, displacements) = (numbers.array(1, 0)?, numbers.array(1, 1)?);
    let mut parts = Vec::with_capacity(lengths.len());
    for ((old, length), at) in contents.types.iter().zip(lengths).zip(displacements) {
        let element = Element {
            layout: nested(native, *old, depth + 1)?,
            extent: extent_of(native, *old)?,
        };
        parts.push((*at, element.block(count(*length)?)?));
    }
    Ok(Layout::sequence(parts)?)
}
