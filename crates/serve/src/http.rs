//! The server: its paths, and the limits on each resource.
//!
//! One thread does all input and output. It never computes: a body is passed unparsed to the [`Queue`].
//!
//! | limit | response if exceeded |
//! |---|---|
//! | classification requests in progress, and seven eighths of them for one client | 503 with Retry-After, at once |
//! | a quarter of them with large pictures | 503 with Retry-After, at once |
//! | pixels of a picture | 413, before decoding |
//! | bytes of a body | 413, before the body is read if its length is declared |
//! | bytes of all bodies of a size | the next waits to be read, and gets 503 once its time is over |
//! | seconds for a body to arrive | 408 |
//! | seconds for answering it | 503 |
//! | classes in an answer | 400 |
//! | bytes of large answers that clients have not received | 503 |
//! | seconds for receiving an answer | the connection is closed |
//! | seconds for a head to arrive, and between two requests | the connection is closed |
//! | connections | the next waits to be accepted; one of a client that has seven eighths is closed |
//!
//! The server reads and drops the rest of a refused request's body for a while, since a client that is still sending
//! would lose the refusal with its connection.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{BodyDataStream, Bytes, HttpBody};
use axum::extract::{Extension, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, RETRY_AFTER,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use pelton_run::{Interrupt, PROMETHEUS_TYPE};
use pelton_storage::StorageError;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{interval, sleep, timeout, timeout_at};

use crate::engine::Engine;
use crate::fair::{Client, Places, Taken};
use crate::metrics::Metrics;
use crate::question::{Asked, Kind, Refusal};
use crate::queue::Queue;
use crate::task::{Answered, SMALL_BODY, Task};
use crate::timely::Timely;

/// Connections in addition to those with requests in progress: overload gets an answer instead of a wait.
const SPARE_CONNECTIONS: usize = 1024;
/// Time for current requests to finish once the server must end.
const GRACE: Duration = Duration::from_secs(1);
/// Interval of checks whether the server must end.
const LOOK: Duration = Duration::from_millis(50);
/// Most bytes of a body that does not wait for larger ones, and of all such bodies.
const USUAL_BODY: usize = 256 << 10;
const USUAL_BODIES: usize = 4 << 20;
/// Open files of the process other than connections.
const OTHER_FILES: usize = 64;
/// Most bytes that a connection reads ahead.
const READ_AHEAD: usize = 16 << 10;
/// The answer when the server is full.
const RETRY_SECONDS: &str = "1";

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Classification requests handled at once.
    pub concurrency: usize,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Time for a request to arrive, and the same again for the answer.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            concurrency: 64,
            body_bytes: 8 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// A body, and its room until answered.
type Held = (Vec<u8>, Option<OwnedSemaphorePermit>);

/// State shared by all requests.
pub(crate) struct Service {
    pub(crate) queue: Queue,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    /// A description of the net, as JSON.
    pub(crate) model: String,
    places: Arc<Places>,
    /// Bytes of bodies above [`SMALL_BODY`] up to [`USUAL_BODY`].
    usual_room: Arc<Semaphore>,
    /// Bytes of larger bodies: one of the largest, or several smaller ones.
    large_room: Arc<Semaphore>,
}

impl Service {
    pub(crate) fn new(
        limits: Limits,
        model: String,
        engine: Engine,
    ) -> Result<Service, StorageError> {
        let (readers, reader) = (
            engine.pool.current_num_threads(),
            Arc::clone(&engine.reader),
        );
        let queue = Queue::new(
            limits.concurrency,
            readers,
            &reader,
            |answering, reading| engine.run(answering, reading),
        )?;
        Ok(Service {
            queue,
            limits,
            metrics: Metrics::default(),
            model,
            places: Places::new(limits.concurrency),
            usual_room: Arc::new(Semaphore::new(USUAL_BODIES)),
            large_room: Arc::new(Semaphore::new(limits.body_bytes.min(u32::MAX as usize))),
        })
    }
}

/// Serves until `interrupt` is set, then finishes current requests for a moment. Calls `ready` with the address.
///
/// Errors: an address that it cannot listen on.
pub(crate) fn serve(
    service: &Arc<Service>,
    address: (&str, u16),
    interrupt: &Interrupt,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build()?;
    // Resolves names here: the runtime would start a thread for it.
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    runtime.block_on(async {
        let listener = TcpListener::bind(&addresses[..]).await?;
        ready(listener.local_addr()?);
        accept(listener, service, interrupt).await;
        Ok(())
    })
}

async fn accept(listener: TcpListener, service: &Arc<Service>, interrupt: &Interrupt) {
    let routes = TowerToHyperService::new(routes(service));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .max_buf_size(READ_AHEAD)
        // A client that has sent everything may close its half of the connection.
        .half_close(true)
        .header_read_timeout(service.limits.time);
    let most = service.limits.concurrency.saturating_add(SPARE_CONNECTIONS);
    pelton_storage::allow_open_files(most.saturating_add(OTHER_FILES) as u64);
    let connections = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
    let of_clients = Places::new(most);
    let graceful = GracefulShutdown::new();
    let mut look = interval(LOOK);
    while !interrupt.load(std::sync::atomic::Ordering::Relaxed) {
        let (accepted, permit) = tokio::select! {
            next = next(&listener, &connections) => next,
            _ = look.tick() => continue,
        };
        let Ok((stream, address)) = accepted else {
            // For instance out of file descriptors: closing connections free some.
            sleep(LOOK).await;
            continue;
        };
        let client = Client::from(address);
        let Ok(place) = of_clients.take(client) else {
            continue;
        };
        // Answers are written whole.
        let _ = stream.set_nodelay(true);
        let stream = TokioIo::new(Timely::new(stream, service.limits.time));
        let routes = routes.clone();
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(client);
            routes.call(request)
        });
        let connection = builder.serve_connection(stream, service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // The peer may disconnect at any time.
            let _ = connection.await;
            drop((permit, place));
        });
    }
    let _ = timeout(GRACE, graceful.shutdown()).await;
}

/// The next connection, once there is room for it; safe to cancel.
async fn next(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> (
    io::Result<(TcpStream, SocketAddr)>,
    Option<OwnedSemaphorePermit>,
) {
    let permit = Arc::clone(connections).acquire_owned().await;
    let accepted = listener.accept().await;
    (accepted, permit.ok())
}

fn routes(service: &Arc<Service>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(async || "ok\n"))
        .route("/metrics", get(metrics))
        .route("/v1/model", get(model))
        .route("/v1/classify", post(classify))
        .route("/v1/embed", post(embed))
        .fallback(async || {
            let known = "GET /, /health, /metrics and /v1/model, POST /v1/classify and /v1/embed";
            refused(&Refusal::new(
                404,
                format!("there is nothing at this path; use {known}"),
            ))
        })
        .method_not_allowed_fallback(async || {
            let sentence = "use POST for /v1/classify and /v1/embed, and GET for every other path";
            refused(&Refusal::new(405, sentence))
        })
        .layer(from_fn_with_state(Arc::clone(service), count))
        .with_state(Arc::clone(service))
}

async fn count(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    service.metrics.responded(response.status().as_u16());
    response
}

async fn page() -> Response {
    text(
        "text/html; charset=utf-8",
        include_str!("page.html").to_string(),
    )
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    text(PROMETHEUS_TYPE, service.metrics.text())
}

async fn model(State(service): State<Arc<Service>>) -> Response {
    text("application/json", service.model.clone())
}

fn text(content_type: &'static str, text: String) -> Response {
    typed(content_type, text.into())
}

fn typed(content_type: &'static str, body: Bytes) -> Response {
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (headers, body).into_response()
}

/// The refusal as JSON.
fn refused(refusal: &Refusal) -> Response {
    let body = serde_json::json!({ "error": refusal.sentence }).to_string();
    let mut response = text("application/json", body);
    let status = StatusCode::from_u16(refusal.status);
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match refusal.status {
        503 => {
            let seconds = HeaderValue::from_static(RETRY_SECONDS);
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        // Does not wait long for the rest of the body.
        408 | 413 => {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        _ => {}
    }
    response
}

async fn classify(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    computed(service, client, request, false).await
}

async fn embed(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    computed(service, client, request, true).await
}

/// The result of a request: classes, or `features`.
async fn computed(
    service: Arc<Service>,
    client: Client,
    request: Request,
    features: bool,
) -> Response {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let waits = head.headers.contains_key(EXPECT);
    let mut body = body.into_data_stream();
    let answer = match service.places.take(client) {
        Ok(place) => {
            let _under_way = service.metrics.begin();
            answer(&service, (client, place), &head, &mut body, features).await
        }
        Err(count) => {
            let client = if count < service.limits.concurrency {
                " of this address"
            } else {
                ""
            };
            let sentence = format!(
                "{count} requests{client} are being handled already; try again in a second"
            );
            Err(Refusal::new(503, sentence))
        }
    };
    match answer {
        Ok((text, queries)) => {
            service.metrics.classified(queries, began.elapsed());
            typed("application/json", Bytes::from_owner(text))
        }
        Err(refusal) => {
            // A client that waits for `100 Continue` gets the answer instead, and sends no body.
            if !waits && !body.is_end_stream() {
                let time = service.limits.time;
                tokio::spawn(timeout(time, async move {
                    while let Some(Ok(_)) = body.next().await {}
                }));
            }
            refused(&refusal)
        }
    }
}

async fn answer(
    service: &Service,
    (client, place): (Client, Taken),
    head: &Parts,
    body: &mut BodyDataStream,
    features: bool,
) -> Answered {
    let content_type = head.headers.get(CONTENT_TYPE);
    let kind =
        Kind::from_content_type(content_type.map(|text| text.to_str().unwrap_or("of no letters")))?;
    let k = match head.uri.query() {
        None | Some("") => None,
        Some(query) => Some(k_of(query)?),
    };
    let declared = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|text| text.to_str().ok()?.parse().ok());
    let (body, room) = received(service, declared, body).await?;
    let asked = Asked {
        kind,
        features,
        k,
        body,
    };
    let (task, answer) = Task::new(client, place, asked, room);
    service.queue.push(task);
    match timeout(service.limits.time, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Refusal::new(500, "this request failed; others still work")),
        Err(_) => {
            let seconds = service.limits.time.as_secs_f64();
            let sentence = format!("no answer was ready within {seconds} s; try again later");
            Err(Refusal::new(503, sentence))
        }
    }
}

/// Receives the whole body.
async fn received(
    service: &Service,
    declared: Option<u64>,
    body: &mut BodyDataStream,
) -> Result<Held, Refusal> {
    let Limits {
        body_bytes, time, ..
    } = service.limits;
    let too_large = || {
        let sentence = format!("the body is larger than {body_bytes} bytes; send less at once");
        Refusal::new(413, sentence)
    };
    if declared.is_some_and(|bytes| bytes > body_bytes as u64) {
        return Err(too_large());
    }
    let seconds = time.as_secs_f64();
    let end = tokio::time::Instant::now() + time;
    let (mut held, mut room) = (Vec::new(), None);
    loop {
        let slow = |_| Refusal::new(408, format!("the body did not arrive within {seconds} s"));
        let Some(part) = timeout_at(end, body.next()).await.map_err(slow)? else {
            return Ok((held, room));
        };
        let part = part.map_err(|_| Refusal::new(400, "the body ended early"))?;
        let bytes = held.len() + part.len();
        if bytes > body_bytes {
            return Err(too_large());
        }
        if bytes > SMALL_BODY && room.is_none() {
            let most = declared.unwrap_or(body_bytes as u64) as usize;
            let rooms = if most <= USUAL_BODY {
                &service.usual_room
            } else {
                &service.large_room
            };
            let next = Arc::clone(rooms);
            let next = next.acquire_many_owned(u32::try_from(most).unwrap_or(u32::MAX));
            let full = |_| {
                let sentence = format!(
                    "large bodies of other requests were not read within {seconds} s; try again later"
                );
                Refusal::new(503, sentence)
            };
            room = timeout_at(end, next).await.map_err(full)?.ok();
            held.reserve_exact(most.saturating_sub(held.len()));
        }
        held.extend_from_slice(&part);
    }
}

/// The value of a query such as `k=5`.
fn k_of(query: &str) -> Result<usize, Refusal> {
    let k = query.strip_prefix("k=").and_then(|text| text.parse().ok());
    k.ok_or_else(|| {
        let sentence = format!("the query {query:?} is not understood; give k=COUNT or nothing");
        Refusal::new(400, sentence)
    })
}
