// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting and ending the daemon.

use std::future::IntoFuture;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use freeway_console::{Exit, Stop};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use super::engine::{End, Engine, Legacy};
use super::gate::Gate;
use super::log::{self, SetLog};
use super::options::Options;
use super::peer::Peer;
use super::reload::{Metrics, Reloader};
use super::signals::Hangup;
use super::socket::ControlSocket;
use super::succession::predecessor::Predecessor;
use super::upgrade::{Program, Property, Upgrader};
use super::{Request, engine, privilege, reload, server, signals, upgrade};
use crate::config::Config;
use crate::supervisor::Supervisor;

/// Questions that may wait for the engine.
const QUEUE: usize = 64;

/// How long a connection may take to have its answer once another daemon takes the next ones.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Runs the daemon until a signal, a successor or a failure ends it.
pub fn run(options: Options) -> Result<(), Stop> {
    if !options.take_over {
        return serve(options, None);
    }
    let predecessor = Predecessor::meet()?;
    let result = serve(options, Some(&predecessor));
    if let Err(stop) = &result {
        predecessor.disappoint(stop);
    }
    result
}

fn serve(options: Options, predecessor: Option<&Predecessor>) -> Result<(), Stop> {
    let program = Program::of_process().map_err(Stop::failure)?;
    let config = match predecessor {
        Some(_) => options.read_again(),
        None => options.read(),
    }?;
    privilege::check()?;
    let set_log = log::start(config.daemon.log);
    let supervisor = Supervisor::of_environment();
    let begin = |error| Stop::failure(format!("cannot start the runtime: {error}"));
    let runtime = runtime().map_err(begin)?;
    let ended = {
        let _inside = runtime.enter();
        signals::ended().map_err(begin)?
    };
    let server = Server::new().map_err(begin)?;
    // a predecessor's ports may be away for a moment
    let given = predecessor.map_or(&*options.interfaces, |_| &[]).to_vec();
    let load = || {
        let engine = Engine::load(config.clone(), supervisor.clone())?;
        engine.check_ports(&given)?;
        Ok(engine)
    };
    let (engine, place) = match predecessor {
        Some(predecessor) => Place::inherit(predecessor, &config, load)?,
        None => Place::open(&config, load)?,
    };
    let Place { socket, metrics } = place;
    let (requests, queue) = mpsc::channel(QUEUE);
    let front = server.start(
        options,
        &config,
        (&socket, metrics, program),
        requests,
        set_log,
        supervisor,
    )?;
    let result = runtime.block_on(engine::run(engine, queue, ended));
    front.stop(matches!(result, Ok(End::HandedOver)));
    match result.map_err(Stop::from)? {
        End::Stopped => tracing::info!("stopped; the kernel forwards everything"),
        End::HandedOver => {
            socket.leave();
            tracing::info!("another daemon has taken over");
        }
    }
    Ok(())
}

/// Where the daemon is found: its sockets, and the locks behind them.
struct Place {
    socket: ControlSocket,
    metrics: Option<TcpListener>,
}

impl Place {
    /// One that nobody has. The engine is loaded once it is there, and begins.
    fn open(
        config: &Config,
        load: impl FnOnce() -> Result<Engine, Stop>,
    ) -> Result<(Engine, Self), Stop> {
        let socket = ControlSocket::open(config.daemon.socket.as_deref())?;
        let metrics = listen(config.daemon.metrics)?;
        let mut engine = load()?;
        engine.receive_engines(socket.path(), None)?;
        engine.begin(None)?;
        Ok((engine, Self { socket, metrics }))
    }

    /// Another daemon's, which leaves it once the engine does what that one's did.
    fn inherit(
        predecessor: &Predecessor,
        config: &Config,
        load: impl FnOnce() -> Result<Engine, Stop>,
    ) -> Result<(Engine, Self), Stop> {
        let path = config.daemon.socket.as_deref();
        predecessor.check_socket(&ControlSocket::place(path)?)?;
        let address = config.daemon.metrics;
        let own = match address == predecessor.metrics() {
            true => None,
            false => listen(address)?,
        };
        let mut engine = load()?;
        engine.load_ahead()?;
        let inheritance = predecessor.inherit()?;
        engine.begin(Some(Legacy {
            from: predecessor.told(),
            links: inheritance.links,
            flows: inheritance.flows,
            estate: inheritance.estate,
        }))?;
        predecessor.relieve();
        let socket = ControlSocket::adopt(path, inheritance.control, inheritance.locks)?;
        engine.receive_engines(socket.path(), Some(inheritance.door))?;
        let inherited = inheritance.metrics.filter(|_| own.is_none());
        let metrics = own.or(inherited).filter(|_| address.is_some());
        tracing::info!(
            "taken over from version {} (process {})",
            predecessor.told().version,
            predecessor.told().pid
        );
        Ok((engine, Self { socket, metrics }))
    }
}

fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, Stop> {
    Metrics::listen(address).map_err(|message| Stop::new(Exit::Config, message))
}

/// The control server, on a thread of its own: what it writes to a slow or greedy reader takes no time of the engine's.
struct Front {
    /// Whether what is asked already is answered first.
    stop: oneshot::Sender<bool>,
    thread: JoinHandle<()>,
}

/// The same before it begins. SIGHUP is heeded already.
struct Server {
    runtime: Runtime,
    hangup: Hangup,
}

impl Server {
    fn new() -> io::Result<Self> {
        let runtime = runtime()?;
        let hangup = {
            let _inside = runtime.enter();
            Hangup::heed()?
        };
        Ok(Self { runtime, hangup })
    }

    fn start(
        self,
        options: Options,
        config: &Config,
        (socket, listener, program): (&ControlSocket, Option<TcpListener>, Program),
        requests: mpsc::Sender<Request>,
        set_log: SetLog,
        supervisor: Supervisor,
    ) -> Result<Front, Stop> {
        let failed = |error| Stop::failure(format!("cannot start the control server: {error}"));
        tracing::debug!("control socket {}", socket.path().display());
        let control = socket.listener().map_err(failed)?;
        let property = Property {
            program,
            socket: socket.path().to_path_buf(),
            control: socket.listener().map_err(failed)?.into(),
            locks: socket.locks().map_err(failed)?,
        };
        let (file, address) = (config.file.clone(), config.daemon.metrics);
        let (stop, stopped) = oneshot::channel();
        let Self { runtime, hangup } = self;
        let work = move || {
            runtime.block_on(async {
                let mut metrics = Metrics::default();
                metrics.serve(address, listener, &requests);
                let asked = requests.clone();
                let reloader = Reloader::new(asked, options, file, metrics, set_log, supervisor);
                let (leave, left) = oneshot::channel::<()>();
                let mut serving = None;
                if let Ok(listener) = UnixListener::from_std(control) {
                    let (gate, latch) = Gate::new(listener);
                    let upgrader = Upgrader::new(reloader.clone(), property, latch);
                    let router = server::router(requests)
                        .merge(reload::router(reloader.clone()))
                        .merge(upgrade::router(upgrader));
                    let service = router.into_make_service_with_connect_info::<Peer>();
                    let server = axum::serve(gate, service);
                    let server = server.with_graceful_shutdown(async { drop(left.await) });
                    serving = Some(tokio::spawn(server.into_future()));
                }
                tokio::spawn(reloader.follow(hangup));
                // an error says that the other end is gone, which is the end, too
                if let (Ok(true), Some(serving)) = (stopped.await, serving) {
                    drop(leave);
                    let _ = tokio::time::timeout(LAST_ANSWERS, serving).await;
                }
            });
        };
        let thread = thread::Builder::new().name("freeway-server".into());
        Ok(Front {
            stop,
            thread: thread.spawn(work).map_err(failed)?,
        })
    }
}

impl Front {
    fn stop(self, answers: bool) {
        // a panic there was printed there
        let _ = self.stop.send(answers);
        let _ = self.thread.join();
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
