//! New connections: each says hello, and is then a client that asks, or a worker that is handed on.

use std::time::Duration;

use interprocess::local_socket::tokio::Listener;
use interprocess::local_socket::traits::tokio::Listener as _;
use tokio::io::{AsyncWriteExt, BufReader, ReadHalf, WriteHalf, split};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::Happening;
use super::clients::{Line, OUTBOX, Outbox, line_of};
use crate::run::protocol::{Answer, Request};
use crate::worker::line::{Hello, LineError, Role, decode, read_line_async, write_line_async};
use crate::worker::process::Connection;

/// How long a hello, or the taking of one line, may last.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time; more are closed at once.
const MAX_CONNECTIONS: usize = 256;
/// How long clients may take to read their last lines.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Before another attempt to accept, when the system is out of something.
const RETRY: Duration = Duration::from_millis(100);

/// Both directions of a connection.
pub struct Talk {
    pub reader: BufReader<ReadHalf<Box<dyn Connection>>>,
    pub writer: WriteHalf<Box<dyn Connection>>,
}

/// Takes connections in at the socket, until it is aborted or nobody wants them.
pub async fn listen(listener: Listener, door: mpsc::Sender<Box<dyn Connection>>) {
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if door.send(Box::new(stream)).await.is_err() {
                    return;
                }
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// Whoever looks after connections, in a task of its own.
pub struct Doorkeeper {
    closing: watch::Sender<Option<Line>>,
    task: JoinHandle<()>,
}

impl Doorkeeper {
    pub fn at(connections: mpsc::Receiver<Box<dyn Connection>>, happenings: mpsc::Sender<Happening>) -> Self {
        let (closing, closed) = watch::channel(None);
        Self { closing, task: tokio::spawn(keep(connections, happenings, closed)) }
    }

    /// Takes no more requests, says `last` to every client, and waits a little until they have read it.
    pub async fn close(&mut self, last: &Answer) {
        self.closing.send_replace(line_of(last));
        let _ = timeout(FAREWELL_LIMIT, &mut self.task).await;
        self.task.abort();
    }
}

async fn keep(
    mut connections: mpsc::Receiver<Box<dyn Connection>>,
    happenings: mpsc::Sender<Happening>,
    mut closed: watch::Receiver<Option<Line>>,
) {
    let mut talks = JoinSet::new();
    loop {
        tokio::select! {
            Some(connection) = connections.recv() => {
                if talks.len() < MAX_CONNECTIONS {
                    talks.spawn(attend(connection, happenings.clone(), closed.clone()));
                }
            }
            Some(_) = talks.join_next() => {}
            _ = closed.changed() => break,
        }
    }
    while talks.join_next().await.is_some() {}
}

/// Whatever goes wrong here costs only this connection.
async fn attend(
    connection: Box<dyn Connection>,
    happenings: mpsc::Sender<Happening>,
    mut closed: watch::Receiver<Option<Line>>,
) {
    let (reader, writer) = split(connection);
    let mut talk = Talk { reader: BufReader::new(reader), writer };
    let hello = tokio::select! {
        hello = timeout(PATIENCE, read_hello(&mut talk)) => hello,
        _ = closed.changed() => return,
    };
    match hello {
        Ok(Ok(Hello { role: Role::Worker, token, .. })) => {
            let token = token.unwrap_or_default();
            // At the end nobody listens any more.
            let _ = happenings.send(Happening::Worker { token, talk }).await;
        }
        Ok(Ok(Hello { role: Role::Client, .. })) => serve(talk, happenings, closed).await,
        Ok(Ok(Hello { role: Role::Supervisor, .. })) => {}
        Ok(Err(error)) => {
            let refusal = Answer::Refused { message: error.to_string() };
            // One who says no hello may not read either.
            let _ = timeout(PATIENCE, write_line_async(&mut talk.writer, &refusal)).await;
        }
        Err(_) => {}
    }
}

/// Says hello back in any case, so that the other side can name both versions.
async fn read_hello(talk: &mut Talk) -> Result<Hello, LineError> {
    let line = read_line_async(&mut talk.reader).await?;
    write_line_async(&mut talk.writer, &Hello::of(Role::Supervisor)).await?;
    Hello::from_line(&line.ok_or(LineError::NoHello)?)
}

async fn serve(talk: Talk, happenings: mpsc::Sender<Happening>, mut closed: watch::Receiver<Option<Line>>) {
    let (sender, lines) = mpsc::channel(OUTBOX);
    let mut writing = std::pin::pin!(write_lines(talk.writer, lines));
    let is_closed = tokio::select! {
        () = &mut writing => return,
        () = take_requests(talk.reader, Outbox::to(sender.clone()), happenings) => false,
        _ = closed.changed() => true,
    };
    if let (true, Some(last)) = (is_closed, closed.borrow().clone()) {
        // Whoever lets so much wait does not read.
        let _ = sender.try_send(last);
    }
    drop(sender);
    // What is in the queue, or still comes to one who watches, is written.
    writing.await;
}

async fn take_requests(
    mut reader: BufReader<ReadHalf<Box<dyn Connection>>>,
    outbox: Outbox,
    happenings: mpsc::Sender<Happening>,
) {
    loop {
        let line = match read_line_async(&mut reader).await {
            Ok(Some(line)) => line,
            Ok(None) | Err(LineError::Io(_) | LineError::CutShort) => return,
            Err(error) => {
                outbox.send(&Answer::Refused { message: error.to_string() });
                return;
            }
        };
        let is_taken = match decode::<Request>(&line) {
            Ok(request) => happenings.send(Happening::Request { request, outbox: outbox.clone() }).await.is_ok(),
            Err(error) => outbox.send(&Answer::Refused { message: error.to_string() }),
        };
        if !is_taken {
            return;
        }
    }
}

async fn write_lines(mut writer: WriteHalf<Box<dyn Connection>>, mut lines: mpsc::Receiver<Line>) {
    while let Some(line) = lines.recv().await {
        match timeout(PATIENCE, writer.write_all(&line)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
    // Whoever is gone needs no goodbye.
    let _ = writer.shutdown().await;
}
