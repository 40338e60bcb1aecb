//! `leasehold-sim`: runs with one safety rule switched off, and the table that says which invariant noticed. It is a
//! separate program because the real one must not be able to do this; `leasehold sim` is for everything else.

use std::process::ExitCode;

use leasehold_sim::{
    OptionError, Options, Sabotage, Tracing, needs_table, report, run, sabotage_table, shrink,
};

const HELP: &str = "\
leasehold-sim: the simulator with single safety rules switched off (for everything else: leasehold sim)

  --sabotage-table N          switch every rule off in turn, at most N seeds each, and print the table
  --needs-table N             for each fault a rule that only it shows to be broken: N seeds with it, and N without
  --sabotage RULE --seed N    one run with this rule switched off
  --from SEED                 the table counts from this seed on (0)
  --faults LIST, --store-kind KIND
                              as in leasehold sim, instead of the faults made for the rule
  --keep 1,4,7                only these faults of the seed's schedule
  --trace                     print every step of the run
  --jobs N                    threads (2)
";

struct Arguments {
    options: Options,
    seed: Option<u64>,
    trace: bool,
    from: u64,
    jobs: usize,
    table: Option<(Table, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Sabotage,
    Needs,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => go(&arguments),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("leasehold-sim: {problem}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let options = Options::default();
    let mut found = Arguments { options, seed: None, trace: false, from: 0, jobs: 2, table: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--trace" => found.trace = true,
            "--seed" => found.seed = Some(number(&value()?)?),
            "--from" => found.from = number(&value()?)?,
            "--jobs" => found.jobs = number(&value()?)? as usize,
            "--sabotage" => found.options.sabotage = Some(value()?.parse::<Sabotage>()?),
            "--sabotage-table" => found.table = Some((Table::Sabotage, number(&value()?)?)),
            "--needs-table" => found.table = Some((Table::Needs, number(&value()?)?)),
            "--faults" => found.options.faults = value()?.parse()?,
            "--store-kind" => found.options.store = Some(value()?.parse().map_err(text_of)?),
            "--keep" => found.options.keep = Some(leasehold_sim::parse_keep(&value()?).map_err(text_of)?),
            _ => return Err(format!("unknown option {word:?}")),
        }
    }
    if found.table.is_none() && (found.seed.is_none() || found.options.sabotage.is_none()) {
        return Err("use --sabotage-table N, --needs-table N, or --sabotage RULE --seed N".to_owned());
    }
    if found.table.is_some() && (found.seed.is_some() || found.trace || found.options.keep.is_some()) {
        return Err("--seed, --trace and --keep need a single run, not the table".to_owned());
    }
    if let (Some(seed), Some(sabotage)) = (found.seed, found.options.sabotage) {
        sabotage.options(&found.options).check_keep(seed).map_err(text_of)?;
    }
    Ok(Some(found))
}

fn text_of(error: OptionError) -> String {
    error.to_string()
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("invalid number {text:?}"))
}

fn go(arguments: &Arguments) -> ExitCode {
    // A core's panic message is part of the report.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some((table, seeds_max)) = arguments.table {
        let seeds = arguments.from..arguments.from.saturating_add(seeds_max);
        let (text, as_stated) = match table {
            Table::Sabotage => sabotage_table(&arguments.options, seeds, arguments.jobs),
            Table::Needs => needs_table(&arguments.options, seeds, arguments.jobs),
        };
        print!("{text}");
        return if as_stated { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let usual = &arguments.options;
    let options = usual.sabotage.map_or_else(|| usual.clone(), |sabotage| sabotage.options(usual));
    let options = Options { tracing: Tracing::On, ..options };
    let outcome = run(&options, arguments.seed.unwrap_or_default());
    if arguments.trace {
        print!("{}", leasehold_sim::transcript(&outcome.trace));
    }
    let shown = if options.keep.is_none() { shrink(&options, &outcome) } else { outcome };
    print!("{}", report::failure(&options, &shown));
    if shown.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
