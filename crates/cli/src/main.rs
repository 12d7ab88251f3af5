//! The `clew` command.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    clew_cli::main()
}
