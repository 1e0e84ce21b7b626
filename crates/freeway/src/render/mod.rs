// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon and the doctor say, as pages for people.

mod config;
mod dispatch;
mod doctor;
mod drops;
mod explain;
mod flows;
mod hosts;
mod routes;
mod spark;
mod stats;
mod status;
mod steer;
mod top;

pub use config::{checked, reloaded, shown, upgraded};
pub use dispatch::dispatching;
pub use doctor::doctor;
pub use drops::drops;
pub use explain::explain;
pub use flows::{flow, tail};
pub use hosts::hosts;
pub use routes::routes;
pub use spark::History;
pub use stats::stats;
pub use status::status;
pub use steer::steering;
pub use top::{asleep, busiest, cores, engine_lines, flow_name, remember, to_kernel, top};
