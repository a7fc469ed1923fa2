//! What the command line asks for.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::plan::{MACHINE, SUBJECTS, WORKLOADS, Workload};

/// How to call it.
pub(crate) const USAGE: &str = "\
usage: peers [--quick] [--workload NAME,...] [--subjects NAME,...] [--claims NUMBER]
             [--rounds NUMBER] [--json PATH]

  --quick     one small run of the most important workloads, about a minute
  --workload  only these; a name stands for all that begin with it
  --subjects  only these; a name stands for all that begin with it
  --claims    instead of each workload's own numbers
  --rounds    how often each subject does each workload
  --json      where to write every figure as a line of JSON";

/// The options.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) quick: bool,
    pub(crate) workloads: Vec<Workload>,
    /// Nothing = each workload's own.
    pub(crate) subjects: Vec<&'static str>,
    pub(crate) claims: Option<u64>,
    pub(crate) rounds: Option<usize>,
    pub(crate) json: Option<PathBuf>,
    /// Whether to say how it is called, and nothing else.
    pub(crate) help: bool,
    /// Whether this process is to measure and print, and nothing else.
    pub(crate) child: bool,
}

impl Arguments {
    /// Reads the words behind the program's name.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut words = words;
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or(format!("{option} needs a value"));
            match &*option {
                "--quick" => arguments.quick = true,
                "--help" => arguments.help = true,
                "--child" => arguments.child = true,
                "--workload" => arguments.workloads = workloads(&value()?)?,
                "--subjects" => arguments.subjects = subjects(&value()?)?,
                "--claims" => arguments.claims = Some(number(&value()?)?),
                "--rounds" => arguments.rounds = Some(number(&value()?)? as usize),
                "--json" => arguments.json = Some(value()?.into()),
                _ => return Err(format!("unknown option {option}")),
            }
        }
        if arguments.workloads.is_empty() {
            arguments.workloads = WORKLOADS.to_vec();
        }
        Ok(arguments)
    }

    /// The numbers of claims that a workload is done with.
    pub(crate) fn claims(&self, workload: &Workload) -> Vec<u64> {
        match self.claims {
            Some(claims) => vec![claims],
            None if self.quick => workload.quick.to_vec(),
            None => workload.claims.to_vec(),
        }
    }

    /// Who takes part in a workload.
    pub(crate) fn subjects(&self, workload: &Workload, claims: u64) -> Vec<&'static str> {
        if !self.subjects.is_empty() {
            return self.subjects.clone();
        }
        workload.subjects(claims)
    }

    /// How often each subject does a workload.
    pub(crate) fn rounds(&self, workload: &Workload, claims: u64) -> usize {
        let own = if self.quick {
            1
        } else {
            workload.rounds(claims)
        };
        self.rounds.unwrap_or(own).max(1)
    }
}

fn number(word: &str) -> Result<u64, String> {
    let digits = word.replace('_', "");
    digits.parse().map_err(|_| format!("{word} is no number"))
}

fn workloads(list: &str) -> Result<Vec<Workload>, String> {
    let names: Vec<&'static str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let chosen = chosen(list, &names)?;
    let all = WORKLOADS.into_iter();
    Ok(all
        .filter(|workload| chosen.contains(&workload.name))
        .collect())
}

fn subjects(list: &str) -> Result<Vec<&'static str>, String> {
    chosen(list, &[&SUBJECTS[..], &[MACHINE]].concat())
}

/// Of `all`, those in a list: the one of that name, else all that begin with it.
fn chosen(list: &str, all: &[&'static str]) -> Result<Vec<&'static str>, String> {
    let mut chosen = Vec::new();
    for word in list.split(',') {
        let exact = all.contains(&word);
        let fits = |name: &&&str| **name == word || !exact && name.starts_with(word);
        let before = chosen.len();
        chosen.extend(all.iter().filter(fits));
        if chosen.len() == before {
            return Err(format!("{word} is none of {}", all.join(", ")));
        }
    }
    Ok(chosen)
}
