//! `clew fg`, `bg`, `swap-out`, `restore`, `stop`: one request each.

use std::path::Path;

use clew_live::control::client::Client;
use clew_live::control::protocol::Request;

use crate::Failure;

/// Which app.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the app, as `clew ps` shows it.
    app: String,
}

fn ask(socket: &Path, request: Request) -> Result<(), Failure> {
    Client::connect(socket)?.order(&request)?;
    Ok(())
}

/// `clew fg APP`.
pub fn fg(socket: &Path, args: Args) -> Result<(), Failure> {
    ask(socket, Request::Fg { app: args.app })
}

/// `clew bg APP`.
pub fn bg(socket: &Path, args: Args) -> Result<(), Failure> {
    ask(socket, Request::Bg { app: args.app })
}

/// `clew swap-out APP`.
pub fn swap_out(socket: &Path, args: Args) -> Result<(), Failure> {
    ask(socket, Request::SwapOut { app: args.app })
}

/// `clew restore APP`.
pub fn restore(socket: &Path, args: Args) -> Result<(), Failure> {
    ask(socket, Request::Restore { app: args.app })
}

/// `clew stop`.
pub fn stop(socket: &Path) -> Result<(), Failure> {
    ask(socket, Request::Stop)
}
