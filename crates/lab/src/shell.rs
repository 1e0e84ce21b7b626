// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shell inside the router.

use std::env;
use std::process::{Command, ExitStatus};

use crate::error::{Context, LabError};
use crate::lab::Lab;
use crate::signal::{cleanup_on_signal, hold_interrupts};

impl Lab {
    /// What is there and how to reach it.
    pub fn banner(&self) -> String {
        let topology = self.topology();
        let plan = topology.family.plan();
        let enter =
            |netns: &crate::netns::Netns| format!("nsenter --net={}", netns.path().display());
        format!(
            "Lab `{name}`: {summary}\n{picture}\n\n\
             This shell is in the router. The hosts, from here or from any other terminal:\n\
             \x20 client   {client}\n\
             \x20 router   {router}\n\
             \x20 server   {server}\n\
             (in scripts: $LAB_CLIENT, $LAB_ROUTER, $LAB_SERVER hold the namespaces' names)\n\n\
             Try:\n\
             \x20 {server} iperf3 -s -D\n\
             \x20 {client} iperf3 -c {address}\n\
             Leave the shell and everything is removed.\n",
            name = topology.name,
            summary = topology.summary,
            picture = topology.picture.trim_start_matches('\n'),
            client = enter(self.client()),
            router = enter(self.router()),
            server = enter(self.server()),
            address = plan.server,
        )
    }

    /// Runs `$SHELL` in the router until it ends; `extra` is printed below the banner. The lab is gone afterwards,
    /// also when a signal ends this process.
    pub fn shell(self, extra: &str) -> Result<ExitStatus, LabError> {
        cleanup_on_signal()?;
        println!("{}{extra}", self.banner());
        let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
        let mut command = Command::new(shell.unwrap_or_else(|| "/bin/sh".into()));
        command
            .env("LAB_CLIENT", self.client().name())
            .env("LAB_ROUTER", self.router().name())
            .env("LAB_SERVER", self.server().name());
        let _hold = hold_interrupts();
        let mut child = self.router().spawn(&mut command)?;
        child.wait().context("wait for the shell")
    }
}
