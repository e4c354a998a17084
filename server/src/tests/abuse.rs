//! Malformed, truncated and cancelled requests at the same time: none may break the server or leak
//! anything. Time and memory under tens of thousands of them are measured by
//! `tests/clients/abuse.py`.

use super::*;

const PAGES: [&str; 5] = ["/v1/completions", "/v1/chat/completions", "/generate", "/v1/responses", "/tokenize"];
const FIELDS: [&str; 16] = [
    "model",
    "prompt",
    "messages",
    "input",
    "text",
    "input_ids",
    "max_tokens",
    "temperature",
    "n",
    "stop",
    "stream",
    "logit_bias",
    "response_format",
    "tools",
    "tool_choice",
    "sampling_params",
];

/// Random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// A valid body for an endpoint.
    fn body(&mut self, page: &str) -> Value {
        let (tokens, stream) = (1 + self.below(24), self.below(2) == 0);
        match page {
            "/v1/completions" => json!({"prompt": PROMPT, "max_tokens": tokens, "stream": stream}),
            "/v1/chat/completions" => {
                json!({"messages": [{"role": "user", "content": "Why?"}], "max_tokens": tokens, "stream": stream})
            }
            "/generate" => json!({"text": PROMPT, "sampling_params": {"max_new_tokens": tokens}, "stream": stream}),
            "/v1/responses" => json!({"input": "Why?", "max_output_tokens": tokens, "stream": stream}),
            _ => json!({"prompt": PROMPT}),
        }
    }

    /// A body for an endpoint, with one odd field.
    fn odd_body(&mut self, page: &str) -> Value {
        let odd = [
            json!(null),
            json!(false),
            json!(-1),
            json!(1.5),
            json!(1e308),
            json!(u64::MAX),
            json!(""),
            json!("\0"),
            json!([]),
            json!([[]]),
            json!({}),
            json!("x".repeat(3000)),
            json!([1, "a"]),
            json!({"type": "json_schema"}),
        ];
        let mut body = self.body(page);
        for _ in 0..=self.below(3) {
            body[self.pick(&FIELDS)] = self.pick(&odd);
        }
        body
    }

    fn request(&mut self) -> Vec<u8> {
        let page = self.pick(&PAGES);
        let is_plain = self.below(3) == 0;
        let body = if is_plain { self.body(page) } else { self.odd_body(page) };
        let mut body = body.to_string().into_bytes();
        if self.below(3) == 0 {
            let at = self.below(body.len());
            body[at] = self.below(256) as u8;
        }
        let length = body.len();
        let head = format!("POST {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &body].concat()
    }
}

/// Sends a request determined by `numbers`, and returns the status, if the client waited for it.
async fn misbehave(address: SocketAddr, mut numbers: Numbers) -> Option<u16> {
    let mut socket = TcpStream::connect(address).await.expect("the server listens");
    let request = match numbers.below(5) {
        0 => (0..=numbers.below(200)).map(|_| numbers.below(256) as u8).chain(*b"\r\n\r\n").collect(),
        _ => numbers.request(),
    };
    let sent = if numbers.below(4) == 0 { numbers.below(request.len()) } else { request.len() };
    // The server may have closed the connection of an invalid request.
    let _ = socket.write_all(&request[..sent]).await;
    if sent < request.len() || numbers.below(4) == 0 {
        let mut some = vec![0; numbers.below(64)];
        // The client reads part of the response, or nothing, and disconnects.
        let _ = tokio::time::timeout(Duration::from_millis(1), socket.read(&mut some)).await;
        return None;
    }
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

#[tokio::test]
async fn clients_that_misbehave_break_nothing_and_leave_nothing() {
    let server = start(ServeOptions::default()).await;
    let body = json!({"prompt": PROMPT, "max_tokens": 40, "temperature": 0});
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    for round in 0..10 {
        let clients = (0..40).map(|client| misbehave(server.address, Numbers(round * 1000 + client)));
        for status in futures::future::join_all(clients).await.into_iter().flatten() {
            *seen.entry(status).or_default() += 1;
        }
    }
    assert!(seen.keys().all(|status| *status < 500 || *status == 503), "{seen:?}");
    assert!(seen.contains_key(&200) && seen.contains_key(&400), "{seen:?}");
    server.idle().await;
    let statistics = server.state.worker.published().statistics;
    assert_eq!((statistics.running, statistics.waiting, statistics.pages_used, statistics.broken), (0, 0, 0, 0));
    // Connections notice one after another that their clients have disconnected.
    let whole = ServeOptions::default().max_request_memory;
    for _ in 0..2000 {
        if server.state.memory.free() == whole {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.state.memory.free(), whole);
    assert_eq!(server.post("/v1/completions", body).await.json()["choices"][0]["text"], offline(PROMPT, 40).as_str());
}

#[tokio::test]
async fn schemas_that_need_too_much_are_refused_and_deep_ones_are_followed() {
    let server = start(ServeOptions::default()).await;
    let chain = |count: usize, link: &dyn Fn(Value) -> Value| {
        let name = |at: usize| format!("a{at}");
        let mut definitions = json!({});
        for at in 0..count {
            definitions[name(at)] = link(json!({"$ref": format!("#/$defs/a{}", at + 1)}));
        }
        definitions[name(count)] = json!({"type": "string"});
        json!({"$ref": "#/$defs/a0", "$defs": definitions})
    };
    let object = |next: Value| json!({"type": "object", "properties": {"x": next}, "required": ["x"]});
    let all_of = |next: Value| json!({"allOf": [next]});
    let any_of = |next: Value| json!({"anyOf": [{"type": "integer"}, next]});
    let items = |next: Value| json!({"type": "array", "items": next});
    let flat = |count: usize| {
        let mut fields = json!({});
        for at in 0..count {
            fields[format!("p{at}")] = json!({"type": "string"});
        }
        let required: Vec<&String> = fields.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
        json!({"type": "object", "properties": fields, "required": required})
    };
    let body = |schema: &Value| json!({"prompt": "a", "max_tokens": 4, "json_schema": schema});
    for followed in [
        chain(400, &object),
        chain(1500, &|next| next),
        chain(600, &all_of),
        chain(400, &any_of),
        chain(400, &items),
        flat(1900),
    ] {
        let answer = server.post("/v1/completions", body(&followed)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let nested = (0..200).fold("a".to_owned(), |inner, _| format!("({inner}b)?"));
    for regex in [nested, "a?".repeat(2000), "((a{1000}){1000}){1000}".into(), "x".repeat(100_000)] {
        let body = json!({"prompt": "a", "max_tokens": 4, "regex": regex});
        let answer = server.post("/v1/completions", body).await;
        assert!([200, 400].contains(&answer.status), "{}", answer.body);
    }
    let patterns: Vec<Value> = (0..100).map(|at| json!({"pattern": format!("^.*a{at}.*$")})).collect();
    let one_of_them = json!({"type": "string", "anyOf": patterns});
    let answer = server.post("/v1/completions", body(&one_of_them)).await;
    assert!([200, 400].contains(&answer.status), "{}", answer.body);
    for refused in [chain(1000, &object), flat(8000), json!({"type": "string", "allOf": patterns})] {
        server.post("/v1/completions", body(&refused)).await.error(400, Some("json_schema"), "cannot be followed");
    }
    let patterns: Vec<Value> = (0..9).map(|at| json!({"pattern": at.to_string()})).collect();
    let parameters = json!({"properties": {"x": {"type": "string", "allOf": patterns}}});
    let function = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let called = json!({
        "messages": [{"role": "user", "content": "a"}], "tools": [function], "tool_choice": "required", "max_tokens": 4,
    });
    server.post("/v1/chat/completions", called).await.error(400, Some("tool_choice"), "more than 8 patterns");
}

#[tokio::test]
async fn announced_bodies_that_do_not_arrive_take_no_memory() {
    let server = start(ServeOptions { max_request_memory: 9 << 20, ..ServeOptions::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
        let head = format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{{", 8 << 20);
        socket.write_all(head.as_bytes()).await.expect("it is sent");
        idle.push(socket);
    }
    // Until the first byte of each has arrived.
    while server.state.memory.free() > (9 << 20) - 20 * 1024 {
        tokio::task::yield_now().await;
    }
    let answer = server.post("/v1/completions", json!({"prompt": "a", "max_tokens": 1})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(server.state.memory.free() > 8 << 20);
}
