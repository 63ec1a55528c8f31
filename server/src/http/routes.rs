//! Which path does what.

use super::body::{self, ReplyBody};
use super::generate::Generation;
use super::prepare::prepare;
use super::server::{App, Connection};
use super::sse::{self, Watch};
use crate::api::{ApiError, Reply, Surface};
use crate::metrics;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tessera_runtime::engine::Fault;
use tokio::time::timeout;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A client's id is echoed up to this length; the engine never sees it.
const MAX_REQUEST_ID: usize = 256;

#[derive(Debug, Clone, Copy)]
enum Route {
    Generate(Surface),
    Models,
    Model,
    Live,
    Ready,
    Metrics,
    Info,
    Fault,
}

/// Answers one request.
pub(super) async fn handle(
    app: Arc<App>,
    connection: Connection,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    app.metrics.http_requests_total.fetch_add(1, Ordering::Relaxed);
    let client_id = request.headers().get(REQUEST_ID).cloned();
    let mut response = match answer(&app, &connection, request).await {
        Ok(response) => response,
        Err(error) => error_response(&error),
    };
    if let Some(id) = client_id.filter(|id| id.len() <= MAX_REQUEST_ID) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    Ok(response)
}

async fn answer(
    app: &Arc<App>,
    connection: &Connection,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, ApiError> {
    if connection.heads.has_both() {
        return Err(ApiError::Framing);
    }
    let route = route(app, &request)?;
    let (parts, incoming) = request.into_parts();
    let empty = incoming.is_end_stream();
    let body = if empty && parts.method == Method::GET {
        Vec::new()
    } else {
        body::read(incoming, app.body_limit, app.config.body_timeout).await?
    };
    connection.heads.rearm();
    let engine = &app.engine;
    match route {
        Route::Generate(surface) => generate(app, connection, surface, body).await,
        Route::Models => Ok(json_response(200, &json!({"object": "list", "data": models(app)}))),
        Route::Model => {
            let name = parts.uri.path().trim_start_matches("/v1/models/");
            let found = models(app).into_iter().find(|model| model["id"] == name);
            found.map(|model| json_response(200, &model)).ok_or_else(|| ApiError::Model {
                model: name.chars().take(100).collect(),
                served: app.served_name().to_owned(),
            })
        }
        Route::Live => Ok(json_response(200, &json!({"status": "live"}))),
        Route::Ready => Ok(ready(app)),
        Route::Metrics => {
            let text = metrics::render(app.served_name(), &app.metrics, engine.metrics());
            Ok(response(200, "text/plain; version=0.0.4; charset=utf-8", text.into()))
        }
        Route::Info => {
            let mut info = serde_json::to_value(engine.info())
                .map_err(|error| ApiError::Worker { reason: error.to_string() })?;
            info["version"] = json!(env!("CARGO_PKG_VERSION"));
            Ok(json_response(200, &info))
        }
        Route::Fault => fault(app, &body),
    }
}

fn route(app: &App, request: &Request<Incoming>) -> Result<Route, ApiError> {
    let path = request.uri().path();
    let (route, allow) = match path {
        "/v1/chat/completions" => (Route::Generate(Surface::Chat), "POST"),
        "/v1/completions" => (Route::Generate(Surface::Raw), "POST"),
        "/v1/models" => (Route::Models, "GET"),
        "/health/live" => (Route::Live, "GET"),
        "/health/ready" => (Route::Ready, "GET"),
        "/metrics" => (Route::Metrics, "GET"),
        "/server_info" => (Route::Info, "GET"),
        "/debug/fault" if app.config.fault_injection => (Route::Fault, "POST"),
        _ if path.starts_with("/v1/models/") => (Route::Model, "GET"),
        _ => return Err(ApiError::Path { path: path.chars().take(100).collect() }),
    };
    let method = request.method().as_str();
    if method != allow {
        let (path, method) = (path.to_owned(), method.chars().take(20).collect());
        return Err(ApiError::Method { path, method, allow });
    }
    Ok(route)
}

async fn generate(
    app: &Arc<App>,
    connection: &Connection,
    surface: Surface,
    body: Vec<u8>,
) -> Result<Response<ReplyBody>, ApiError> {
    if app.is_shutting_down() {
        return Err(ApiError::ShuttingDown);
    }
    let id = app.fresh_id(surface);
    let mut watch = Watch::new(app, &id);
    match run(app, (surface, id, body)).await {
        Ok(Answer::Stream(generation, reply, first)) => {
            let events = sse::stream((app, connection), *generation, (reply, watch), first);
            let mut response = Response::new(Either::Right(events));
            let headers = response.headers_mut();
            headers
                .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            Ok(response)
        }
        Ok(Answer::Whole(body)) => {
            watch.end();
            Ok(json_response(200, &body))
        }
        Err(error) => {
            watch.end();
            Err(error)
        }
    }
}

enum Answer {
    Whole(Value),
    Stream(Box<Generation>, Reply, Option<sse::Said>),
}

async fn run(
    app: &Arc<App>,
    (surface, id, body): (Surface, String, Vec<u8>),
) -> Result<Answer, ApiError> {
    let prepared = prepare(app, surface, body).await?;
    let reply = Reply {
        surface,
        id,
        created: app.clock.unix_seconds(),
        model: app.served_name().to_owned(),
        logprobs: prepared.options.sampling.top_logprobs.is_some(),
        token_ids: prepared.options.return_token_ids,
        include_usage: prepared.options.include_usage,
    };
    let stream = prepared.options.stream;
    let mut generation = Generation::start(app, prepared)?;
    if !stream {
        return Ok(Answer::Whole(sse::collect(generation, &reply).await?));
    }
    // A request that the engine refuses at once gets an honest status; one that waits for its
    // turn gets its headers all the same, before a proxy loses patience.
    let first = timeout(app.config.stream_header_wait, generation.next()).await.ok();
    if let Some(Some(Err(error))) = first {
        return Err(error.into());
    }
    Ok(Answer::Stream(Box::new(generation), reply, first))
}

fn models(app: &App) -> Vec<Value> {
    let names = app.limits.served_names.iter();
    let model = |name| {
        json!({
            "id": name, "object": "model", "created": app.started_unix, "owned_by": "tessera",
            "max_model_len": app.limits.max_model_len,
        })
    };
    names.map(model).collect()
}

fn ready(app: &App) -> Response<ReplyBody> {
    let (status, text) = if app.is_shutting_down() {
        (503, "shutting down")
    } else if app.engine.metrics().ready.load(Ordering::Relaxed) {
        (200, "ready")
    } else {
        (503, "starting")
    };
    json_response(status, &json!({"status": text}))
}

fn fault(app: &App, body: &[u8]) -> Result<Response<ReplyBody>, ApiError> {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let fault = match body["kind"].as_str() {
        Some("page_tag") => Fault::PageTag,
        Some("page_table_entry") => Fault::PageTableEntry,
        Some("page_in_flight") => Fault::PageInFlight,
        _ => {
            let kinds = "must be page_tag, page_table_entry or page_in_flight";
            return Err(ApiError::field("kind", kinds));
        }
    };
    app.engine.inject(fault)?;
    Ok(json_response(202, &json!({"injected": body["kind"]})))
}

fn json_response(status: u16, body: &Value) -> Response<ReplyBody> {
    response(status, "application/json", body.to_string().into())
}

fn error_response(error: &ApiError) -> Response<ReplyBody> {
    let mut response = json_response(error.status(), &error.body());
    let close = matches!(
        error,
        ApiError::BodyTooLarge { .. }
            | ApiError::BodyTimeout { .. }
            | ApiError::BodyBroken
            | ApiError::Framing
    );
    if close {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let ApiError::Method { allow, .. } = error {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    }
    response
}

fn response(status: u16, kind: &'static str, body: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() =
        StatusCode::from_u16(status).expect("every status is a constant of the error table");
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
