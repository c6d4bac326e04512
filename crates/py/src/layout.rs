//! From `ArrayInfo` (`outcore/formats/layout.py`) to the core's own types.
//!
//! Reads the dataclass attributes by name, once, when an array is opened.

use std::io::Error;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use numpy::{PyArrayDescr, PyArrayDescrMethods};
use outcore_access::described::{Described as Core, Identities, Originals, Shard, Source};
use outcore_access::guard::Guard;
use outcore_io::chunk_cache::Stamp;
use outcore_io::codec::{CodecSpec, Decoder, OptionValue, Pipeline};
use outcore_io::original::{FileId, Original};
use outcore_io::store::root::{Found, Identity};
use outcore_io::strings::{End, Strings};
use outcore_io::{Arena, StorageError};
use outcore_plan::{Chunked, Layout, Part, Strided};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::calls::python;
use crate::errors::{Class, Fault};
use crate::library::{Calls, Filter, Locks};

/// Elements of at least this many bytes are counted in the budget while one is kept.
const LARGE_ITEM: i64 = 4096;

/// The facts that are known about an array before any file is open.
pub struct Described {
    /// Type of an element; keeps the file's byte order.
    pub dtype: Py<PyArrayDescr>,
    /// Description of the array for the core.
    pub core: Arc<Core>,
}

impl Deref for Described {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// Properties of an array of chunk files when its metadata were read.
struct Known {
    file: PathBuf,
    folder: Option<(u64, u64)>,
    document: Option<Stamp>,
    check: Py<PyAny>,
}

/// State of a file: device, inode, size, time of its last content change and of its last status change.
type Words = (u64, u64, i64, i128, i128);

fn stamp((device, inode, size, modified, changed): Words) -> Stamp {
    Stamp::new((device, inode), size, modified, changed)
}

impl Known {
    fn read(found: &Bound<'_, PyAny>) -> PyResult<Option<Known>> {
        if found.is_none() {
            return Ok(None);
        }
        Ok(Some(Known {
            file: found.getattr("file")?.extract()?,
            folder: found.getattr("folder")?.extract()?,
            document: found.getattr("document")?.extract::<Option<Words>>()?.map(stamp),
            check: found.getattr("check")?.unbind(),
        }))
    }

    /// Converts it for the core, which asks the format through Python.
    fn identity(&self, py: Python<'_>) -> Identity {
        let check = self.check.clone_ref(py);
        let again = move || {
            Python::attach(|py| {
                let found = check.call0(py).and_then(|found| found.extract(py));
                let (document, limits): (Words, Vec<i64>) =
                    found.map_err(|error| words_of(py, &error))?;
                Ok(Found { document: stamp(document), limits })
            })
        };
        let (file, folder, document) = (self.file.clone(), self.folder, self.document);
        Identity { file, folder, document, again: Box::new(again) }
    }
}

/// Returns the function that the core calls when it makes a store of these files.
fn identities(known: Known) -> Identities {
    Box::new(move || Python::attach(|py| known.identity(py)))
}

/// Properties of a file when its metadata were read.
struct Origin {
    id: FileId,
    /// First byte, bytes, and the function that reads them again.
    header: Option<(i64, Vec<u8>, Py<PyAny>)>,
}

impl Origin {
    fn read(found: &Bound<'_, PyAny>) -> PyResult<Option<Origin>> {
        if found.is_none() {
            return Ok(None);
        }
        let (device, inode, born) = found.getattr("file")?.extract()?;
        let check = found.getattr("check")?;
        let header = match check.is_none() {
            true => None,
            false => {
                let (at, bytes) = found.getattr("header")?.extract()?;
                Some((at, bytes, check.unbind()))
            }
        };
        Ok(Some(Origin { id: FileId { inode: (device, inode), born }, header }))
    }

    /// Converts it for the core, which asks the format through Python.
    fn original(&self, py: Python<'_>, path: &Path) -> Original {
        let original = Original::new(self.id);
        let Some((at, bytes, check)) = &self.header else { return original };
        let (check, path) = (check.clone_ref(py), path.to_path_buf());
        let again = move || {
            python(|py| {
                let found = check.call0(py).and_then(|found| found.extract(py));
                found.map_err(|error| refusal(py, &error, &path))
            })
        };
        original.with_header(*at, bytes.clone(), Box::new(again))
    }
}

/// Converts an exception that the format raised when it read a header again.
fn refusal(py: Python<'_>, error: &PyErr, path: &Path) -> StorageError {
    let value = error.value(py);
    let code: Option<String> = value.getattr("code").ok().and_then(|code| code.extract().ok());
    let errno: Option<i32> = value.getattr("errno").ok().and_then(|errno| errno.extract().ok());
    let path = path.to_path_buf();
    match (code.as_deref(), errno) {
        (Some("locked"), _) => StorageError::InUse { path, waited: Duration::from_secs(2) },
        (_, Some(errno)) => StorageError::io("read the header again", &path, errno),
        _ => StorageError::Replaced { path, why: words_of(py, error) },
    }
}

fn words_of(py: Python<'_>, error: &PyErr) -> String {
    let value = error.value(py);
    let words = value.getattr("message").or_else(|_| value.str().map(Bound::into_any));
    words.map_or_else(|_| error.to_string(), |words| words.to_string())
}

/// Return device, inode and time of birth (0: unknown) of an open file, or of the target of a path.
#[pyfunction]
pub fn file_id(file: &Bound<'_, PyAny>) -> PyResult<(u64, u64, i128)> {
    let found = match file.extract::<i32>() {
        Ok(fd) => FileId::of(fd),
        Err(_) => FileId::at(&file.extract::<PathBuf>()?),
    };
    let FileId { inode: (device, inode), born } = found.map_err(Error::from_raw_os_error)?;
    Ok((device, inode, born))
}

/// Returns the function that the core calls when it makes a table of these files.
fn originals(origins: Vec<Option<Origin>>, files: Vec<PathBuf>) -> Originals {
    Box::new(move || {
        let known = origins.iter().zip(&files);
        Python::attach(|py| {
            known.map(|(origin, path)| Some(origin.as_ref()?.original(py, path))).collect()
        })
    })
}

/// Reads an `ArrayInfo`.
pub fn describe(info: &Bound<'_, PyAny>) -> PyResult<Described> {
    let py = info.py();
    // For messages only: names of files need not be text.
    let path: PathBuf = info.getattr("path")?.extract()?;
    let path = path.to_string_lossy().into_owned();
    let shape: Vec<i64> = info.getattr("shape")?.extract()?;
    let dtype = info.getattr("dtype")?.cast_into::<PyArrayDescr>()?;
    if dtype.has_object() {
        let text = format!(
            "'{path}' holds Python objects, which cannot be read as bytes; store it with another \
             dtype"
        );
        return Err(Fault::new(Class::Unsupported, "object-dtype", text).at(&path).into());
    }
    let item = dtype.itemsize() as i64;
    let layout = info.getattr("layout")?;
    let mut described = Core {
        fill: vec![],
        fill_held: None,
        fortran: info.getattr("order")?.extract::<String>()? == "F",
        layout: Layout::Strided(Strided { shape: vec![], item, strides: vec![], parts: vec![] }),
        path,
        files: vec![],
        originals: Box::new(Vec::new),
        plain: matches!(info.getattr("format")?.extract()?, "npy" | "raw"),
        guard: None,
        source: None,
        pipeline: Pipeline::new(&[], 0).map_err(Fault::from)?,
        strings: strings(&info.getattr("strings")?)?,
    };
    let strides: Vec<i64> = layout.getattr("strides")?.extract()?;
    if layout.hasattr("parts")? {
        let mut origins = vec![];
        let parts = parts(&layout, &mut described.files, &mut origins)?;
        described.originals = originals(origins, described.files.clone());
        described.guard = guard(&layout.getattr("guard")?)?;
        let strided = Strided::new(shape, item, strides, parts);
        described.layout =
            Layout::Strided(strided.map_err(|e| Fault::from(e).at(&described.path))?);
    } else {
        if item >= LARGE_ITEM {
            let held = Arena::global().reserve("the fill value", item as u64);
            described.fill_held = Some(held.map_err(|e| Fault::from(e).at(&described.path))?);
        }
        described.fill = fill_bytes(py, &info.getattr("fill_value")?, &dtype)?;
        let chunk: Vec<i64> = layout.getattr("chunks")?.extract()?;
        let chunks = layout.getattr("source")?;
        described.source = Some(source(&chunks)?);
        let bytes = chunk.iter().try_fold(item, |n, c| n.checked_mul(*c));
        let bytes = bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
            let text = format!(
                "chunks of shape {chunk:?} have more bytes than memory can hold; store the array \
                 with smaller chunks"
            );
            Fault::new(Class::Format, "bad-layout", text).at(&described.path)
        })?;
        let codecs = codecs(&layout.getattr("codecs")?, &chunks)?;
        described.pipeline = Pipeline::new(&codecs, bytes).map_err(Fault::from)?;
        let encoded = !described.pipeline.is_empty();
        let bound = i64::try_from(described.pipeline.encoded_bound()).unwrap_or(i64::MAX);
        let chunked = Chunked::new(shape, item, chunk, strides, encoded, bound);
        described.layout =
            Layout::Chunked(chunked.map_err(|e| Fault::from(e).at(&described.path))?);
    }
    Ok(Described { dtype: dtype.unbind(), core: Arc::new(described) })
}

fn strings(list: &Bound<'_, PyAny>) -> PyResult<Vec<Strings>> {
    let one = |found: Bound<'_, PyAny>| {
        Ok(Strings {
            offset: found.getattr("offset")?.extract()?,
            len: found.getattr("nbytes")?.extract()?,
            end: match found.getattr("spaces")?.extract()? {
                true => End::Space,
                false => End::Nul,
            },
            loops: found.getattr("loops")?.extract()?,
        })
    };
    list.try_iter()?.map(|found| one(found?)).collect()
}

fn guard(guard: &Bound<'_, PyAny>) -> PyResult<Option<Guard>> {
    if guard.is_none() {
        return Ok(None);
    }
    let call = |name: &str| guard.getattr(name).map(Bound::unbind);
    let log = guard.getattr("log")?.extract()?;
    let keeper = Arc::new(Locks { recover: call("recover")?, hold: call("hold")? });
    Ok(Some(Guard { log, keeper }))
}

fn parts(
    layout: &Bound<'_, PyAny>,
    files: &mut Vec<PathBuf>,
    origins: &mut Vec<Option<Origin>>,
) -> PyResult<Vec<Part>> {
    let mut parts = vec![];
    for part in layout.getattr("parts")?.try_iter()? {
        let part = part?;
        let path: PathBuf = part.getattr("path")?.extract()?;
        let number = match files.iter().rposition(|known| *known == path) {
            Some(number) => number,
            None => {
                files.push(path);
                origins.push(Origin::read(&part.getattr("origin")?)?);
                files.len() - 1
            }
        };
        parts.push(Part {
            file: number as u32,
            offset: part.getattr("offset")?.extract()?,
            len: part.getattr("nbytes")?.extract()?,
        });
    }
    Ok(parts)
}

/// Name of codecs that the format's own library decodes.
const OF_LIBRARY: &str = "hdf5";

fn codecs(list: &Bound<'_, PyAny>, chunks: &Bound<'_, PyAny>) -> PyResult<Vec<CodecSpec>> {
    let mut codecs = vec![];
    for codec in list.try_iter()? {
        let codec = codec?;
        let mut spec = CodecSpec::new(&codec.getattr("name")?.extract::<String>()?);
        let options = PyDict::new(codec.py());
        options.update(codec.getattr("options")?.cast()?)?;
        for (name, value) in options {
            let value = match value.extract::<i64>() {
                Ok(number) => OptionValue::Int(number),
                Err(_) => OptionValue::Text(value.extract()?),
            };
            spec.options.push((name.extract()?, value));
        }
        let decode = chunks.getattr_opt("decode")?.filter(|decode| !decode.is_none());
        if let Some(decode) = decode.filter(|_| spec.name == OF_LIBRARY) {
            let options = codec.getattr("options")?.unbind();
            let filter = Filter { decode: decode.unbind(), options };
            let decoder = OptionValue::Decoder(Decoder(Arc::new(filter)));
            spec.options.push(("decode".into(), decoder));
        }
        codecs.push(spec);
    }
    Ok(codecs)
}

fn source(source: &Bound<'_, PyAny>) -> PyResult<Source> {
    let kind: String = source.getattr("kind")?.extract()?;
    if kind == "table" {
        let some = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            Ok(Some(source.getattr(name)?).filter(|call| !call.is_none()).map(Bound::unbind))
        };
        let calls = Calls {
            fetch: source.getattr("fetch")?.unbind(),
            stored: source.getattr("stored")?.unbind(),
            commit: some("commit")?,
            load: some("load")?,
            stretch: some("stretch")?,
        };
        return Ok(Source::Table {
            path: source.getattr("path")?.extract()?,
            log: source.getattr("log")?.extract()?,
            library: Arc::new(calls),
            guard: guard(&source.getattr("guard")?)?,
        });
    }
    let shard = if kind == "shards" {
        Some(Shard {
            per_shard: source.getattr("per_shard")?.extract()?,
            index_at_start: source.getattr("index_at")?.extract::<String>()? == "start",
            index_crc32c: source.getattr("index_crc32c")?.extract()?,
        })
    } else if kind == "files" {
        None
    } else {
        let text = format!("chunk source of kind '{kind}' is not known");
        return Err(Fault::new(Class::Internal, "bad-layout-info", text).into());
    };
    Ok(Source::Files {
        root: source.getattr("root")?.extract()?,
        prefix: source.getattr("prefix")?.extract()?,
        separator: source.getattr("separator")?.extract()?,
        lock: source.getattr("lock")?.extract()?,
        identity: Known::read(&source.getattr("identity")?)?.map(identities),
        shard,
    })
}

/// Returns one element of `value` in its stored form; zero bytes if there is none.
fn fill_bytes(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyArrayDescr>,
) -> PyResult<Vec<u8>> {
    if value.is_none() {
        return Ok(vec![0; dtype.itemsize()]);
    }
    let element = py.import("numpy")?.call_method1("full", ((), value, dtype))?;
    element.call_method0("tobytes")?.extract()
}
