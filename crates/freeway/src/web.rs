// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway web`.

use freeway_api::Client;
use freeway_console::{Exit, Stop};
use freeway_daemon::config::Config;
use freeway_daemon::log;
use freeway_web::{Options, Token};

use crate::cli::WebArgs;

/// Serves the page by the configuration and what replaces its keys.
pub fn run(args: WebArgs) -> Result<(), Stop> {
    let config = Config::read(args.config.as_deref())?;
    let mut web = config.web;
    web.listen = args.listen.unwrap_or(web.listen);
    web.token_file = args.token_file.or(web.token_file);
    web.check()
        .map_err(|(_, message)| Stop::new(Exit::Config, message))?;
    let token = web.token_file.as_deref().map(Token::read).transpose()?;
    let socket = args.socket.socket.or(config.daemon.socket);
    let client = Client::new(socket.as_deref())?;
    drop(log::start(args.log.unwrap_or(config.daemon.log)));
    freeway_web::run(Options {
        listen: web.listen,
        token,
        hosts: web.hosts,
        client,
    })
}
