//! What `belljar env create …` and `belljar env import …` mean.

use std::path::Path;

use belljar::environment::{
    EnvironmentError, ImportLimits, Module, PythonWish, Requirement, Specification, split_packages,
};
use belljar::{Bytes, EnvironmentName, Error};

use super::super::args::{CreateArgs, ImportArgs};
use super::super::problem::Problem;
use super::limits::{count, quantity};

pub(crate) fn specification(args: &CreateArgs, directory: &Path) -> Result<Specification, Problem> {
    read(args, directory).map_err(|error| Problem::from(Error::from(error)))
}

fn read(args: &CreateArgs, directory: &Path) -> Result<Specification, EnvironmentError> {
    let mut wanted = Specification::named(EnvironmentName::new(&args.name)?);
    wanted.python = args
        .python
        .as_deref()
        .map(|text| match text.parse()? {
            PythonWish::Program(path) => Ok(PythonWish::Program(directory.join(path))),
            version => Ok::<_, EnvironmentError>(version),
        })
        .transpose()?;
    for text in args.packages.iter().flat_map(|list| split_packages(list)) {
        wanted.packages.push(Requirement::parse(&text, directory)?);
    }
    for file in &args.requirements {
        wanted
            .packages
            .extend(Requirement::read_file(&directory.join(file))?);
    }
    wanted.wheels = args.wheels.as_ref().map(|dir| directory.join(dir));
    for text in args.preload.iter().flat_map(|list| list.split(',')) {
        wanted.preload.push(text.trim().parse::<Module>()?);
    }
    wanted.allow_build = args.allow_build;
    wanted.replace = args.replace;
    Ok(wanted)
}

/// How much an archive may come to.
pub(crate) fn import_limits(args: &ImportArgs) -> Result<ImportLimits, Problem> {
    let usual = ImportLimits::default();
    let size: Option<Bytes> = quantity(args.max_size.as_deref(), "--max-size", "40G")?;
    let entries = count(args.max_entries.as_deref(), "--max-entries", "2000000")?;
    Ok(ImportLimits {
        bytes: size.map_or(usual.bytes, Bytes::get),
        entries: entries.map_or(usual.entries, u64::from),
    })
}
