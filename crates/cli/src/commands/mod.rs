//! Runs one command and prints its figures.

mod bench;
mod blocks;
mod buckets;
mod data;
mod model;
#[cfg(feature = "nets")]
mod nets;
mod run;
#[cfg(feature = "nets")]
mod serve;
mod train;
mod vocabulary;

use crate::arguments::{Arguments, Command, TrainCommand};
use crate::output::Failure;

/// Runs a command.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Train(TrainCommand::Linear(arguments)) => train::linear(*arguments),
        #[cfg(feature = "nets")]
        Command::Train(TrainCommand::Image(arguments)) => nets::image(*arguments),
        #[cfg(feature = "nets")]
        Command::Train(TrainCommand::Classify(arguments)) => nets::classify(*arguments),
        #[cfg(feature = "nets")]
        Command::Train(TrainCommand::Language(arguments)) => nets::language(*arguments),
        Command::Eval(arguments) => model::eval(arguments),
        Command::Predict(arguments) => model::predict(arguments),
        #[cfg(feature = "nets")]
        Command::Serve(arguments) => serve::serve(arguments),
        #[cfg(feature = "nets")]
        Command::Classes(arguments) => model::classes(arguments),
        #[cfg(feature = "nets")]
        Command::Sample(arguments) => model::sample(arguments),
        Command::Index(arguments) => data::index(arguments),
        Command::Inspect(arguments) => data::inspect(arguments),
        Command::Pack(arguments) => data::pack(arguments),
        Command::Probe(arguments) => data::probe(arguments),
        Command::Bench(arguments) => bench::bench(*arguments),
        Command::Buckets(arguments) => buckets::compare(arguments),
        Command::Vocabulary(arguments) => vocabulary::count(arguments),
    }
}
