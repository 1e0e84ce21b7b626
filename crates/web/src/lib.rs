// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway web`: a page for browsers about a running daemon, which it asks as any other client does. It changes nothing.

mod answer;
mod complaints;
mod feed;
mod guard;
mod places;
mod question;
mod secret;
mod server;
mod site;
mod token;

pub use server::{Options, run};
pub use token::Token;
